//! Whether a segment can be read as rows of its table.

use crate::escape_glob;
use crate::open_error::first_line;
use crate::schema::columns_of;
use crate::views::{column_names, value};
use duckdb::{Connection, params};
use std::path::Path;

/// Nine years in ns: no time or count of a recording is larger, and sums of a few such numbers
/// stay far from the end of a BIGINT.
pub(crate) const LARGEST: i64 = 1 << 58;

/// Reads a segment on its own. Why it is no part of the trace, or `None` if it is.
///
/// # Errors
/// If the check was interrupted, which says nothing about the segment.
pub(crate) fn problem(
    connection: &Connection,
    table: &str,
    path: &Path,
) -> duckdb::Result<Option<String>> {
    let path = escape_glob(path);
    let read = column_names(connection, SEGMENT, params![path]).and_then(|present| {
        connection.query_row(&question(table, &present), params![path], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
    });
    match read {
        Ok((false, false)) => Ok(None),
        Ok((true, _)) => Ok(Some("a column that must have a value has none".to_owned())),
        Ok((false, true)) => Ok(Some("a number in it is out of range".to_owned())),
        Err(error) if is_interrupt(&error) => Err(error),
        Err(error) => Ok(Some(format!("it cannot be read ({})", first_line(&error)))),
    }
}

/// The segment that is a statement's only parameter.
const SEGMENT: &str = "read_parquet([?], union_by_name = true)";

/// Reads every value as its type: whether a value is missing that must be there, and whether a
/// time or count is larger than any can be. What a job hands to CUDA may be any number; those
/// columns are nullable.
fn question(table: &str, present: &[String]) -> String {
    let (mut missing, mut out_of_range, mut read) = (Vec::new(), Vec::new(), Vec::new());
    for column in columns_of(table) {
        let (name, value) = (&column.name, value(&column, present));
        if !column.nullable {
            missing.push(format!("{name} IS NULL"));
            if column.data_type == "BIGINT" {
                out_of_range.push(format!("{value} NOT BETWEEN -{LARGEST} AND {LARGEST}"));
            }
        }
        read.push(format!("max({value})"));
    }
    format!(
        "SELECT coalesce(bool_or({}), false), coalesce(bool_or({}), false), {} FROM {SEGMENT}",
        missing.join(" OR "),
        out_of_range.join(" OR "),
        read.join(", ")
    )
}

/// Whether a statement failed only because [`crate::Trace::interrupt`] stopped it. The bindings
/// give no code for it, so the text decides.
pub(crate) fn is_interrupt(error: &duckdb::Error) -> bool {
    matches!(error, duckdb::Error::DuckDBFailure(_, Some(text)) if text.starts_with("INTERRUPT"))
}
