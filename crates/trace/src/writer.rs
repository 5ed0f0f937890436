//! Writing a trace while it is recorded.

use crate::catalog::{self, CatalogError};
use crate::info::TraceInfo;
use crate::rows::{Buffered, Buffers, RowBuffer};
use crate::store::Store;
use duckdb::arrow::record_batch::RecordBatch;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Rows are stored at least this often: what a killed recorder may lose.
const FLUSH_EVERY: Duration = Duration::from_secs(2);
/// Rows of one table that cause a flush before its time.
const FLUSH_ROWS: usize = 200_000;
/// Segments of single flushes are merged this often.
const MERGE_EVERY: Duration = Duration::from_secs(60);
/// Flushes that may wait for the disk before `flush` waits too.
const QUEUED_FLUSHES: usize = 4;

/// What could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output is already there.
    #[error("{} exists already: choose another output, or remove it first", .0.display())]
    Exists(PathBuf),
    /// The name of the output cannot be one of a trace.
    #[error("{} cannot be the name of a trace: it must end in .duckdb", .0.display())]
    Name(PathBuf),
    /// The folder of the output is missing or is no folder.
    #[error("cannot write into {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// DuckDB did not start.
    #[error("cannot start DuckDB: {0}")]
    Start(#[source] duckdb::Error),
    /// The catalog could not be written.
    #[error("cannot write the catalog {}: {source}", path.display())]
    Catalog {
        /// The catalog.
        path: PathBuf,
        /// What went wrong.
        source: CatalogError,
    },
    /// A segment could not be written; the earlier ones are whole.
    #[error("cannot store rows of {table}: {source}")]
    Segment {
        /// The table.
        table: &'static str,
        /// What DuckDB said.
        source: duckdb::Error,
    },
    /// A file could not be created, renamed or synced.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The writing thread ended early, which only a panic in it can cause.
    #[error("the thread that stores the rows has died")]
    Died,
}

/// What has been written so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteStats {
    /// Rows handed to the writer.
    pub rows: u64,
    /// Bytes of the segments stored.
    pub bytes: u64,
}

enum Work {
    Flush(u64, Vec<(&'static str, RecordBatch)>, Box<TraceInfo>),
    Finish,
}

/// State that the storing thread shares.
#[derive(Default)]
struct Shared {
    bytes: u64,
    error: Option<WriteError>,
}

/// Writes a trace: rows are gathered in columns, and stored by a thread of its own.
#[derive(Debug)]
pub struct TraceWriter {
    buffers: Buffers,
    rows: u64,
    flushes: u64,
    last_flush: Instant,
    work: SyncSender<Work>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Mutex<Shared>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("bytes", &self.bytes)
            .field("error", &self.error)
            .finish()
    }
}

impl TraceWriter {
    /// Starts the trace `X.duckdb` with its folder `X.events`.
    ///
    /// # Errors
    /// If either exists already, or the folder they go into is missing or not writable. Nothing is
    /// left behind then.
    pub fn create(path: &Path) -> Result<Self, WriteError> {
        Self::create_for(path, None)
    }

    /// As [`TraceWriter::create`], with every file given to the user and group `owner`.
    ///
    /// # Errors
    /// As [`TraceWriter::create`].
    pub fn create_for(path: &Path, owner: Option<(u32, u32)>) -> Result<Self, WriteError> {
        if path
            .extension()
            .is_none_or(|extension| extension != "duckdb")
            || path.file_stem().is_none()
        {
            return Err(WriteError::Name(path.to_owned()));
        }
        let events = catalog::events_folder(path);
        for output in [path, &events] {
            if output.symlink_metadata().is_ok() {
                return Err(WriteError::Exists(output.to_owned()));
            }
        }
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let absolute = std::fs::canonicalize(folder).map_err(|source| WriteError::Folder {
            path: folder.to_owned(),
            source,
        })?;
        let path = absolute.join(path.file_name().unwrap_or_default());
        let events = catalog::events_folder(&path);
        let store = Store::create(&events, owner)
            .and_then(|store| write_catalog(&path, &store).map(|()| store))
            .inspect_err(|_| remove_output(&path, &events))?;

        let (work, queue) = sync_channel(QUEUED_FLUSHES);
        let shared = Arc::new(Mutex::new(Shared {
            bytes: store.bytes(),
            error: None,
        }));
        let thread = std::thread::Builder::new()
            .name("ingero-store".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || run(store, &queue, &shared)
            })
            .map_err(|source| WriteError::Folder {
                path: absolute,
                source,
            })
            .inspect_err(|_| remove_output(&path, &events))?;
        Ok(Self {
            buffers: Buffers::default(),
            rows: 0,
            flushes: 0,
            last_flush: Instant::now(),
            work,
            thread: Some(thread),
            shared,
        })
    }

    /// Adds a row to its table.
    #[allow(private_bounds)] // the tables are fixed: nobody else implements this
    pub fn push<R: Buffered>(&mut self, row: R) {
        self.rows += 1;
        R::buffer(&mut self.buffers).push(row);
    }

    /// Whether it is time for a [`TraceWriter::flush`].
    pub fn due(&self) -> bool {
        self.last_flush.elapsed() >= FLUSH_EVERY || self.buffers.most_rows() >= FLUSH_ROWS
    }

    /// Hands the gathered rows to the storing thread, and then `info`, which vouches for them.
    ///
    /// # Errors
    /// What an earlier flush could not store. Its rows are lost, later ones are tried again.
    pub fn flush(&mut self, info: &TraceInfo) -> Result<(), WriteError> {
        self.flushes += 1;
        self.last_flush = Instant::now();
        let batches = self.buffers.take();
        self.work
            .send(Work::Flush(self.flushes, batches, Box::new(info.clone())))
            .map_err(|_| self.take_error().unwrap_or(WriteError::Died))?;
        match self.take_error() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// What has been written so far.
    pub fn stats(&self) -> WriteStats {
        WriteStats {
            rows: self.rows,
            bytes: lock(&self.shared).bytes,
        }
    }

    /// Stores the last rows, merges the segments and waits until everything is on the disk.
    ///
    /// # Errors
    /// The first thing that could not be stored.
    pub fn finish(mut self, info: &TraceInfo) -> Result<WriteStats, WriteError> {
        let flushed = self.flush(info);
        let told = self.work.send(Work::Finish).map_err(|_| WriteError::Died);
        if let Some(thread) = self.thread.take() {
            thread.join().map_err(|_| WriteError::Died)?;
        }
        flushed.and(told)?;
        match self.take_error() {
            Some(error) => Err(error),
            None => Ok(self.stats()),
        }
    }

    fn take_error(&self) -> Option<WriteError> {
        lock(&self.shared).error.take()
    }
}

/// The state is plain data, whole at every moment: a panic elsewhere does not spoil it.
fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write_catalog(path: &Path, store: &Store) -> Result<(), WriteError> {
    // Under its own folder's name until it is whole; the name must keep the stem of the events.
    let building = path.with_extension("events").join("catalog.tmp");
    std::fs::create_dir(&building).map_err(|source| WriteError::File {
        path: building.clone(),
        source,
    })?;
    let temporary = building.join("catalog.duckdb");
    catalog::write(&temporary, path).map_err(|source| WriteError::Catalog {
        path: path.to_owned(),
        source,
    })?;
    store
        .give_to_owner(&temporary)
        .and_then(|()| std::fs::rename(&temporary, path))
        .and_then(|()| std::fs::remove_dir_all(&building))
        .map_err(|source| WriteError::File {
            path: path.to_owned(),
            source,
        })
}

/// Takes back what `create` made before it failed.
fn remove_output(path: &Path, events: &Path) {
    let _ = std::fs::remove_file(path);
    let _ = std::fs::remove_dir_all(events);
}

/// The storing thread.
fn run(mut store: Store, queue: &Receiver<Work>, shared: &Mutex<Shared>) {
    let mut last_merge = Instant::now();
    while let Ok(work) = queue.recv() {
        let (done, last) = match work {
            Work::Flush(flush, batches, info) => {
                let stored = store.flush(flush, batches, &info);
                let merged = if last_merge.elapsed() >= MERGE_EVERY {
                    last_merge = Instant::now();
                    store.merge_singles()
                } else {
                    Ok(())
                };
                (stored.and(merged), false)
            }
            Work::Finish => (store.merge_all(), true),
        };
        let mut shared = lock(shared);
        shared.bytes = store.bytes();
        if let Err(error) = done {
            shared.error.get_or_insert(error);
        }
        if last {
            return;
        }
    }
}
