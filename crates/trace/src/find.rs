//! What a path is: a catalog, a folder of events, a packed file, or no trace.

use crate::catalog::events_folder;
use crate::open_error::OpenError;
use crate::schema::tables;
use crate::segments::table_folder;
use crate::views::{attach, is_base_table};
use duckdb::Connection;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the rows lie.
#[derive(Debug)]
pub(crate) enum Source {
    /// A folder of segments.
    Segments(PathBuf),
    /// Native tables of a packed file.
    Packed,
}

/// Finds out what `path` is.
pub(crate) fn find(path: &Path) -> Result<Source, OpenError> {
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
    // Opening a pipe would wait for somebody who writes.
    if !metadata.is_file() {
        return Err(OpenError::NotADatabase(path.to_owned()));
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
    if let Err(source) = fs::read_dir(&events)
        && source.kind() != io::ErrorKind::NotFound
    {
        return Err(OpenError::Unreadable {
            path: events_folder(path),
            source,
        });
    }
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
