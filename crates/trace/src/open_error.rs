//! Why a trace cannot be opened or queried.

use crate::info::SCHEMA_VERSION;
use std::io;
use std::path::PathBuf;

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
    /// The recorder has stored nothing in it.
    #[error("{} holds nothing yet: its recorder stores the first rows after 2 s; if it runs no more, it was killed before", .0.display())]
    Nothing(PathBuf),
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
    #[error("the trace could not be queried: {}", first_line(.0))]
    Database(#[from] duckdb::Error),
    /// [`crate::Trace::interrupt`] stopped the question, because it was cancelled or took too long.
    #[error("the question was stopped before it was answered")]
    Interrupted,
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

/// What DuckDB says is wrong; the lines after it show the statement.
pub(crate) fn first_line(error: &duckdb::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().to_owned()
}
