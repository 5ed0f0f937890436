//! The trace: its tables, writing one and opening one.
//!
//! A recording is a small catalog `X.duckdb` beside a folder `X.events` of Parquet segments,
//! `X.events/<table>/<n>.parquet`. [`TraceWriter`] makes both, [`Trace`] opens them, also while
//! the recording goes on, and [`pack`] makes one self-contained file of them.

mod catalog;
mod check;
pub mod columns;
mod find;
mod info;
mod open;
mod open_error;
mod pack;
mod read_info;
pub mod rows;
mod schema;
mod segments;
mod store;
mod views;
mod writer;

pub use catalog::CatalogError;
pub use duckdb;
pub use info::{Probe, SCHEMA_VERSION, TraceInfo};
pub use open::Trace;
pub use open_error::{OpenError, QueryError};
pub use pack::{PackError, pack};
pub use schema::{ColumnDoc, columns_of, tables};
pub use writer::{TraceWriter, WriteError, WriteStats};

/// The shortest quoted form of `text` as an SQL string literal.
///
/// Only for statements that take no parameters, such as the path of `COPY ... TO`.
pub(crate) fn sql_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// DuckDB expands patterns in paths; the characters of a real path stand for themselves.
pub(crate) fn escape_glob(path: &std::path::Path) -> String {
    let mut escaped = String::new();
    for character in path.to_string_lossy().chars() {
        match character {
            '*' | '?' | '[' => {
                escaped.push('[');
                escaped.push(character);
                escaped.push(']');
            }
            other => escaped.push(other),
        }
    }
    escaped
}
