//! Opening a trace: read-only, without trust in what it holds.
//!
//! Every statement of a reader runs in a DuckDB of its own in memory, which may read nothing but
//! the trace's own folder, under views that this module defines over the known tables. What a
//! file brings along (its views, macros, other tables) is never run.

use crate::check::{self, is_interrupt};
use crate::find::{Source, find};
use crate::info::{SCHEMA_VERSION, TraceInfo};
use crate::open_error::{OpenError, QueryError};
use crate::read_info;
use crate::schema::tables;
use crate::segments::{self, table_folder};
use crate::views::{attach, define_empty_tables, define_packed_views, define_segment_view, lock};
use duckdb::{Connection, InterruptHandle};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An opened trace.
pub struct Trace {
    path: PathBuf,
    source: Source,
    state: Mutex<State>,
    interrupt: Arc<InterruptHandle>,
}

#[derive(Debug)]
struct State {
    connection: Connection,
    /// Segments set aside, with the reason.
    bad: BTreeMap<PathBuf, String>,
    /// Tables without a segment: the recorder gives every table one, so files were removed.
    stripped: BTreeSet<&'static str>,
    /// The names of the segments that each table's view reads now.
    listed: BTreeMap<&'static str, Vec<String>>,
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace")
            .field("path", &self.path)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// How often a question is asked again when a segment vanished under it.
const TRIES: usize = 5;

impl Trace {
    /// Opens a catalog, a folder of events, or a packed file.
    ///
    /// # Errors
    /// If the path is no trace; the message says why and what to give instead.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let source = find(path)?;
        let connection = Connection::open_in_memory().map_err(OpenError::Start)?;
        connection
            .execute_batch("SET temp_directory = ''; SET threads = 2; SET memory_limit = '900MB';")
            .map_err(OpenError::Start)?;
        match &source {
            Source::Segments(events) => define_empty_tables(&connection)
                .and_then(|()| lock(&connection, Some(events)))
                .map_err(OpenError::Start)?,
            Source::Packed => {
                attach(&connection, path)?;
                define_packed_views(&connection, path)?;
                lock(&connection, None).map_err(OpenError::Start)?;
            }
        }
        let trace = Self {
            path: path.to_owned(),
            source,
            interrupt: connection.interrupt_handle(),
            state: Mutex::new(State {
                connection,
                bad: BTreeMap::new(),
                stripped: BTreeSet::new(),
                listed: BTreeMap::new(),
            }),
        };
        let info = trace.info().map_err(|source| match source {
            QueryError::NoInfo if trace.caveats().is_empty() => OpenError::Nothing(path.to_owned()),
            source => OpenError::Info {
                path: path.to_owned(),
                source,
            },
        })?;
        if info.schema_version > SCHEMA_VERSION {
            return Err(OpenError::Newer {
                path: path.to_owned(),
                found: info.schema_version,
            });
        }
        let why = if info.schema_version < 1 {
            format!("there is no schema version {}", info.schema_version)
        } else if !(0..=check::LARGEST).contains(&info.duration_ns) {
            format!("no recording lasts {} ns", info.duration_ns)
        } else {
            return Ok(trace);
        };
        Err(OpenError::NotATrace {
            path: path.to_owned(),
            why,
        })
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stops the question being asked, from another thread.
    pub fn interrupt(&self) {
        self.interrupt.interrupt();
    }

    /// Asks a question: `ask` sees one view per table. It may be called again, if a segment
    /// vanished (it was merged) or turned out to be damaged.
    ///
    /// # Errors
    /// If DuckDB fails for another reason, the segments cannot be listed, or
    /// [`Trace::interrupt`] stopped the question.
    pub fn query<T>(
        &self,
        mut ask: impl FnMut(&Connection) -> duckdb::Result<T>,
    ) -> Result<T, QueryError> {
        let mut state = self.lock_state();
        let mut tries = 0;
        loop {
            tries += 1;
            let failure = match self.list_and_ask(&mut state, &mut ask) {
                // It says nothing about the segments: none may be blamed for it.
                Err(QueryError::Database(failure)) if is_interrupt(&failure) => {
                    return Err(QueryError::Interrupted);
                }
                Err(QueryError::Database(failure)) => failure,
                other => return other,
            };
            let Source::Segments(events) = &self.source else {
                return Err(failure.into());
            };
            if state.lost_a_segment(events) {
                if tries == TRIES {
                    return Err(QueryError::Vanishing(failure));
                }
            } else if !state.set_damaged_aside(events)? {
                return Err(failure.into());
            }
        }
    }

    fn list_and_ask<T>(
        &self,
        state: &mut State,
        ask: &mut impl FnMut(&Connection) -> duckdb::Result<T>,
    ) -> Result<T, QueryError> {
        if let Source::Segments(events) = &self.source {
            state.list(events)?;
        }
        Ok(ask(&state.connection)?)
    }

    /// What was recorded, and how far.
    ///
    /// # Errors
    /// As [`Trace::query`], or if the trace does not say.
    pub fn info(&self) -> Result<TraceInfo, QueryError> {
        self.query(read_info::last)?.ok_or(QueryError::NoInfo)
    }

    /// What a reader must know about the state of the files.
    pub fn caveats(&self) -> Vec<String> {
        let state = self.lock_state();
        let stripped = state.stripped.iter().map(|table| {
            format!("all segments of {table} were removed; its rows are missing from the answers")
        });
        state
            .bad
            .iter()
            .map(|(path, why)| {
                let table = path.parent().and_then(Path::file_name).unwrap_or_default();
                let name = path.file_name().unwrap_or_default();
                format!(
                    "segment {}/{} was set aside: {why}; its rows are missing from the answers",
                    table.to_string_lossy(),
                    name.to_string_lossy()
                )
            })
            .chain(stripped)
            .collect()
    }

    /// A panic inside a question leaves the connection usable and the lists true.
    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Points every view at the segments that are there now.
    fn list(&mut self, events: &Path) -> Result<(), QueryError> {
        for (table, _) in tables() {
            let folder = table_folder(events, table);
            let list_error = |source| QueryError::List {
                path: folder.clone(),
                source,
            };
            let mut names = Vec::new();
            let segments = segments::list(&folder).map_err(list_error)?;
            if segments.is_empty() {
                self.stripped.insert(table);
            } else {
                self.stripped.remove(table);
            }
            for segment in segments {
                let name = segment.file_name();
                let known = self
                    .listed
                    .get(table)
                    .is_some_and(|listed| listed.contains(&name));
                let path = folder.join(&name);
                if !known && !self.bad.contains_key(&path) {
                    match segments::damage(&path) {
                        Ok(None) => {}
                        Ok(Some(why)) => {
                            self.bad.insert(path.clone(), why.to_owned());
                        }
                        // It was merged between the listing and now. A link that points nowhere
                        // is still there.
                        Err(error)
                            if error.kind() == io::ErrorKind::NotFound
                                && path.symlink_metadata().is_err() =>
                        {
                            continue;
                        }
                        Err(error) => {
                            self.bad.insert(path.clone(), error.to_string());
                        }
                    }
                }
                if !self.bad.contains_key(&path) {
                    names.push(name);
                }
            }
            if self.listed.get(table) != Some(&names) {
                // Noted first: if a damaged segment spoils the view, it is looked for among these.
                self.listed.insert(table, names.clone());
                define_segment_view(&self.connection, table, &folder, &names)?;
            }
        }
        Ok(())
    }

    /// Whether a listed segment is no longer there.
    fn lost_a_segment(&self, events: &Path) -> bool {
        self.listed.iter().any(|(table, names)| {
            let folder = table_folder(events, table);
            names.iter().any(|name| !folder.join(name).exists())
        })
    }

    /// Reads every listed segment on its own and sets aside those that fail; whether any did.
    fn set_damaged_aside(&mut self, events: &Path) -> Result<bool, QueryError> {
        let mut found = false;
        for (table, names) in &self.listed {
            for name in names {
                let path = table_folder(events, table).join(name);
                match check::problem(&self.connection, table, &path) {
                    Ok(None) => {}
                    Ok(Some(why)) => {
                        self.bad.insert(path, why);
                        found = true;
                    }
                    Err(_interrupted) => {
                        // What was found so far stays aside: the views are made anew.
                        self.listed.clear();
                        return Err(QueryError::Interrupted);
                    }
                }
            }
        }
        if found {
            self.listed.clear();
        }
        Ok(found)
    }
}
