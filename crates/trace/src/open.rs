//! Opening a trace: read-only, without trust in what it holds.
//!
//! Every statement of a reader runs in a DuckDB of its own in memory, which may read nothing but
//! the trace's own folder, under views that this module defines over the known tables. What a
//! file brings along (its views, macros, other tables) is never run.

use crate::catalog::events_folder;
use crate::info::{SCHEMA_VERSION, TraceInfo};
use crate::read_info;
use crate::schema::{columns_of, tables};
use crate::segments::{self, table_folder};
use crate::{escape_glob, sql_quote};
use duckdb::{Connection, InterruptHandle, params};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Why a path could not be opened as a trace.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nothing is there.
    #[error("{} does not exist: give the path of a trace, e.g. trace.duckdb", .0.display())]
    Missing(PathBuf),
    /// The path cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is empty.
    #[error("{} is empty: the recorder writes the catalog whole, so this is no trace", .0.display())]
    Empty(PathBuf),
    /// The file is no DuckDB database.
    #[error("{} is no DuckDB database, so it is no trace", .0.display())]
    NotADatabase(PathBuf),
    /// DuckDB could not open the file.
    #[error("DuckDB cannot open {}: {source}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What DuckDB said.
        source: duckdb::Error,
    },
    /// The database is not a trace.
    #[error("{} is a database but no trace: {why}", path.display())]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
    /// The catalog is there, its segments are not.
    #[error(
        "{} is the catalog of a trace, but the folder {} with its events is missing: keep the two side by side, or share a file made by `ingero-mcp pack`",
        path.display(), events.display()
    )]
    NoEvents {
        /// The catalog.
        path: PathBuf,
        /// Where the events should be.
        events: PathBuf,
    },
    /// The folder holds no trace.
    #[error("{} is a folder without a trace in it: give a trace.duckdb or a trace.events folder", .0.display())]
    EmptyFolder(PathBuf),
    /// The folder holds several traces.
    #[error("{} holds several traces, give one of them: {}", path.display(), names.join(", "))]
    SeveralTraces {
        /// The folder.
        path: PathBuf,
        /// The traces in it.
        names: Vec<String>,
    },
    /// The trace was written by a newer recorder.
    #[error("{} has schema version {found}, this program reads up to {SCHEMA_VERSION}: use the version of ingero-mcp that came with the recorder", path.display())]
    Newer {
        /// The trace.
        path: PathBuf,
        /// Its version.
        found: i32,
    },
    /// The reader's own DuckDB failed.
    #[error("cannot prepare DuckDB: {0}")]
    Start(#[source] duckdb::Error),
    /// The description of the recording cannot be read.
    #[error("cannot read what {} was recorded with: {source}", path.display())]
    Info {
        /// The trace.
        path: PathBuf,
        /// What failed.
        source: QueryError,
    },
}

/// Why a question could not be answered.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// DuckDB refused or failed.
    #[error("the trace could not be queried: {0}")]
    Database(#[from] duckdb::Error),
    /// The segments could not be listed.
    #[error("cannot list the segments in {}: {source}", path.display())]
    List {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Segments kept vanishing while they were read.
    #[error("the trace changes faster than it can be read: ask again ({0})")]
    Vanishing(#[source] duckdb::Error),
    /// The trace has no row that describes it.
    #[error("the trace does not say what it is: its trace_info is empty")]
    NoInfo,
}

/// Where the rows lie.
#[derive(Debug)]
enum Source {
    /// A folder of segments.
    Segments(PathBuf),
    /// Native tables of a packed file.
    Packed,
}

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
                listed: BTreeMap::new(),
            }),
        };
        let info = trace.info().map_err(|source| match source {
            QueryError::NoInfo => OpenError::NotATrace {
                path: path.to_owned(),
                why: "its trace_info is empty".to_owned(),
            },
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
        Ok(trace)
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
    /// If DuckDB fails for another reason, or the segments cannot be listed.
    pub fn query<T>(
        &self,
        mut ask: impl FnMut(&Connection) -> duckdb::Result<T>,
    ) -> Result<T, QueryError> {
        let mut state = self.lock_state();
        let mut tries = 0;
        loop {
            tries += 1;
            let failure = match self.list_and_ask(&mut state, &mut ask) {
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
            } else if !state.set_damaged_aside(events) {
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
        self.lock_state()
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
            for segment in segments::list(&folder).map_err(list_error)? {
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
                        // It was merged between the listing and now.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
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
    fn set_damaged_aside(&mut self, events: &Path) -> bool {
        let mut found = false;
        for (table, names) in &self.listed {
            let columns: Vec<String> = columns_of(table)
                .iter()
                .map(|column| format!("max({}::{})", column.name, column.data_type))
                .collect();
            for name in names {
                let path = table_folder(events, table).join(name);
                let read = self.connection.query_row(
                    &format!(
                        "SELECT {} FROM read_parquet([?], union_by_name = true)",
                        columns.join(", ")
                    ),
                    params![escape_glob(&path)],
                    |_| Ok(()),
                );
                if let Err(error) = read {
                    // The first line says what is wrong, the rest shows SQL.
                    let why = error.to_string();
                    let why = why.lines().next().unwrap_or_default();
                    self.bad.insert(path, format!("it cannot be read ({why})"));
                    found = true;
                }
            }
        }
        if found {
            self.listed.clear();
        }
        found
    }
}

/// Finds out what `path` is.
fn find(path: &Path) -> Result<Source, OpenError> {
    let unreadable = |source: io::Error| {
        if source.kind() == io::ErrorKind::NotFound {
            OpenError::Missing(path.to_owned())
        } else {
            OpenError::Unreadable {
                path: path.to_owned(),
                source,
            }
        }
    };
    let metadata = fs::metadata(path).map_err(unreadable)?;
    let absolute = fs::canonicalize(path).map_err(unreadable)?;
    if metadata.is_dir() {
        return find_in_folder(path, &absolute);
    }
    if metadata.len() == 0 {
        return Err(OpenError::Empty(path.to_owned()));
    }
    if !is_duckdb_file(path).map_err(unreadable)? {
        return Err(OpenError::NotADatabase(path.to_owned()));
    }
    let connection = Connection::open_in_memory().map_err(OpenError::Start)?;
    attach(&connection, path)?;
    if is_base_table(&connection, "trace_info").map_err(OpenError::Start)? {
        return Ok(Source::Packed);
    }
    let is_catalog: bool = connection
        .query_row(
            "SELECT count(*) > 0 FROM duckdb_views()
             WHERE database_name = 'packed' AND view_name = 'trace_info'",
            [],
            |row| row.get(0),
        )
        .map_err(OpenError::Start)?;
    if !is_catalog {
        return Err(OpenError::NotATrace {
            path: path.to_owned(),
            why: "it has no trace_info".to_owned(),
        });
    }
    let events = events_folder(&absolute);
    if !is_events_folder(&events) {
        return Err(OpenError::NoEvents {
            path: path.to_owned(),
            events: events_folder(path),
        });
    }
    Ok(Source::Segments(events))
}

/// A folder of events, or a folder with one trace in it.
fn find_in_folder(path: &Path, absolute: &Path) -> Result<Source, OpenError> {
    if is_events_folder(absolute) {
        return Ok(Source::Segments(absolute.to_owned()));
    }
    let entries = fs::read_dir(path).map_err(|source| OpenError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().extension().is_some_and(|e| e == "duckdb"))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Err(if names.is_empty() {
        OpenError::EmptyFolder(path.to_owned())
    } else {
        OpenError::SeveralTraces {
            path: path.to_owned(),
            names,
        }
    })
}

fn is_events_folder(path: &Path) -> bool {
    tables().all(|(table, _)| table_folder(path, table).is_dir())
}

/// DuckDB writes its magic bytes after an 8-byte checksum.
fn is_duckdb_file(path: &Path) -> io::Result<bool> {
    use std::io::Read;
    let mut head = Vec::new();
    fs::File::open(path)?.take(12).read_to_end(&mut head)?;
    Ok(head.get(8..12) == Some(b"DUCK"))
}

fn attach(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    connection
        .execute_batch(&format!(
            "ATTACH {} AS packed (READ_ONLY);",
            sql_quote(&path.to_string_lossy())
        ))
        .map_err(|source| OpenError::Database {
            path: path.to_owned(),
            source,
        })
}

fn is_base_table(connection: &Connection, table: &str) -> duckdb::Result<bool> {
    connection.query_row(
        "SELECT count(*) > 0 FROM duckdb_tables()
         WHERE database_name = 'packed' AND schema_name = 'main' AND table_name = ?",
        [table],
        |row| row.get(0),
    )
}

/// The columns of a view, cast to what the DDL says, so that a foreign type fails here.
fn select_list(table: &str) -> String {
    let columns: Vec<String> = columns_of(table)
        .iter()
        .map(|column| format!("{0}::{1} AS {0}", column.name, column.data_type))
        .collect();
    columns.join(", ")
}

/// Empty tables to stand in where a table has no usable segment.
fn define_empty_tables(connection: &Connection) -> duckdb::Result<()> {
    connection.execute_batch("CREATE SCHEMA empty; USE memory.empty;")?;
    for (_, ddl) in tables() {
        connection.execute_batch(ddl)?;
    }
    connection.execute_batch("USE memory.main;")
}

/// Points the view of a table at these segments. The files are named by a variable, since a view
/// takes no parameters.
fn define_segment_view(
    connection: &Connection,
    table: &str,
    folder: &Path,
    names: &[String],
) -> duckdb::Result<()> {
    let rows = if names.is_empty() {
        format!("empty.{table}")
    } else {
        connection.execute(
            &format!(
                "SET VARIABLE {table}_files =
                     list_transform(string_split(?, '/'), lambda name: concat(?, name))"
            ),
            params![names.join("/"), format!("{}/", escape_glob(folder))],
        )?;
        format!("read_parquet(getvariable('{table}_files'), union_by_name = true)")
    };
    connection.execute_batch(&format!(
        "CREATE OR REPLACE VIEW {table} AS SELECT {} FROM {rows};",
        select_list(table)
    ))
}

fn define_packed_views(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    for (table, _) in tables() {
        if !is_base_table(connection, table).map_err(OpenError::Start)? {
            return Err(OpenError::NotATrace {
                path: path.to_owned(),
                why: format!("it has no table {table}"),
            });
        }
        connection
            .execute_batch(&format!(
                "CREATE VIEW {table} AS SELECT {} FROM packed.main.{table};",
                select_list(table)
            ))
            .map_err(|source| OpenError::NotATrace {
                path: path.to_owned(),
                why: format!("its table {table} has other columns ({source})"),
            })?;
    }
    Ok(())
}

/// Closes the door: from here on DuckDB reads nothing but `folder`, and no setting can be changed.
fn lock(connection: &Connection, folder: Option<&Path>) -> duckdb::Result<()> {
    // DuckDB compares a path as it was written, with its patterns escaped.
    let allowed = folder.map_or_else(String::new, |folder| {
        let plain = sql_quote(&folder.to_string_lossy());
        format!("{plain}, {}", sql_quote(&escape_glob(folder)))
    });
    connection.execute_batch(&format!(
        "SET allowed_directories = [{allowed}];
         SET autoinstall_known_extensions = false;
         SET autoload_known_extensions = false;
         SET allow_community_extensions = false;
         SET enable_external_access = false;
         SET lock_configuration = true;"
    ))
}
