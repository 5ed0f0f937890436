//! The catalog: a DuckDB file of views over the segments beside it, for a person with `duckdb`.

use crate::schema::tables;
use crate::{escape_glob, sql_quote};
use duckdb::Connection;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Why a catalog could not be written.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The folder it goes into cannot be opened.
    #[error("cannot open {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// DuckDB refused.
    #[error(transparent)]
    Database(#[from] duckdb::Error),
}

/// The folder of segments that belongs to a catalog: `trace.events` for `trace.duckdb`.
pub(crate) fn events_folder(catalog: &Path) -> PathBuf {
    catalog.with_extension("events")
}

/// Writes into `file` the catalog that is to lie at `path`. Every table must already have a segment, since DuckDB binds a
/// view when it is created.
///
/// The paths in the views are relative, so that a trace can be moved: they work where `duckdb` is
/// started in the folder of the trace.
pub(crate) fn write(file: &Path, path: &Path) -> Result<(), CatalogError> {
    let events = events_folder(path);
    let folder = path.parent().unwrap_or(Path::new("."));
    let events_name = escape_glob(Path::new(events.file_name().unwrap_or_default()));
    // The search path is a comma-separated list of patterns, and a folder may be named anything:
    // a descriptor has a name without such characters.
    let opened = std::fs::File::open(folder).map_err(|source| CatalogError::Folder {
        path: folder.to_owned(),
        source,
    })?;
    let search_path = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let connection = Connection::open_in_memory()?;
    connection.execute_batch(&format!(
        "SET file_search_path = {};
         ATTACH {} AS catalog (STORAGE_VERSION 'v1.0.0');",
        sql_quote(&search_path),
        sql_quote(&file.to_string_lossy()),
    ))?;
    for (table, _) in tables() {
        let glob = format!("{events_name}/{table}/*.parquet");
        connection.execute_batch(&format!(
            "CREATE VIEW catalog.{table} AS SELECT * FROM read_parquet({}, union_by_name = true);",
            sql_quote(&glob)
        ))?;
    }
    connection.execute_batch("DETACH catalog;")?;
    Ok(())
}
