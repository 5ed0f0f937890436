//! Packing a trace into one file that can be shared.

use crate::open::Trace;
use crate::open_error::{OpenError, QueryError};
use crate::schema::{columns_of, tables};
use crate::sql_quote;
use duckdb::Connection;
use std::io;
use std::path::{Path, PathBuf};

/// Why a trace could not be packed. The output does not exist then.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The input is no trace.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The output is already there.
    #[error("{} exists already: choose another output, or remove it first", .0.display())]
    Exists(PathBuf),
    /// A table could not be read.
    #[error("cannot read {table}: {source}")]
    Read {
        /// The table.
        table: &'static str,
        /// What failed.
        source: QueryError,
    },
    /// The output could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The output.
        path: PathBuf,
        /// What DuckDB said.
        source: duckdb::Error,
    },
    /// The output could not be put in its place.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// The output.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Copies every table of the trace `input` into the new database `output`, as native tables
/// sorted by time. Damaged segments are left out; [`Trace::caveats`] names them, and they are
/// returned.
///
/// # Errors
/// If `input` is no trace, or `output` exists or cannot be written.
pub fn pack(input: &Path, output: &Path) -> Result<Vec<String>, PackError> {
    if output.symlink_metadata().is_ok() {
        return Err(PackError::Exists(output.to_owned()));
    }
    let trace = Trace::open(input)?;
    let mut temporary = output.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    if temporary.symlink_metadata().is_ok() {
        return Err(PackError::Exists(temporary));
    }
    let written = write(&trace, &temporary, output).and_then(|()| {
        // Unlike a rename, a link never replaces a file that appeared meanwhile.
        std::fs::hard_link(&temporary, output).map_err(|source| PackError::File {
            path: output.to_owned(),
            source,
        })
    });
    // Whether packing worked is known by now; the temporary file goes either way.
    let _ = std::fs::remove_file(&temporary);
    written.map(|()| trace.caveats())
}

fn write(trace: &Trace, temporary: &Path, output: &Path) -> Result<(), PackError> {
    let write_error = |source| PackError::Write {
        path: output.to_owned(),
        source,
    };
    let connection = Connection::open_in_memory().map_err(write_error)?;
    connection
        .execute_batch(&format!(
            "SET temp_directory = ''; ATTACH {} AS packed (STORAGE_VERSION 'v1.0.0'); USE packed;",
            sql_quote(&temporary.to_string_lossy())
        ))
        .map_err(write_error)?;
    for (table, ddl) in tables() {
        connection.execute_batch(ddl).map_err(write_error)?;
        for column in columns_of(table) {
            connection
                .execute_batch(&format!(
                    "COMMENT ON COLUMN {table}.{} IS {};",
                    column.name,
                    sql_quote(&column.comment)
                ))
                .map_err(write_error)?;
        }
        copy(trace, table, &connection).map_err(|failure| match failure {
            CopyError::Read(source) => PackError::Read { table, source },
            CopyError::Write(source) => write_error(source),
        })?;
    }
    connection
        .execute_batch("CHECKPOINT packed; USE memory; DETACH packed;")
        .map_err(write_error)
}

enum CopyError {
    Read(QueryError),
    Write(duckdb::Error),
}

/// Copies one table as Arrow batches from the reader's locked database to the writer's own.
fn copy(trace: &Trace, table: &str, output: &Connection) -> Result<(), CopyError> {
    let batches = trace
        .query(|connection| {
            let mut statement =
                connection.prepare(&format!("SELECT * FROM {table} ORDER BY ts_ns"))?;
            let batches: Vec<_> = statement.query_arrow([])?.collect();
            Ok(batches)
        })
        .map_err(CopyError::Read)?;
    let mut appender = output.appender(table).map_err(CopyError::Write)?;
    for batch in batches {
        appender
            .append_record_batch(batch)
            .map_err(CopyError::Write)?;
    }
    appender.flush().map_err(CopyError::Write)
}
