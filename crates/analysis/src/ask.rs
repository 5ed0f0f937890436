//! Asking one thing of the trace.

use crate::AnalysisError;
use ingero_trace::Trace;
use ingero_trace::duckdb::{self, Connection};

/// Waits and calls without their division into pieces.
const WHOLE: &str = concat!(
    include_str!("whole_waits.sql"),
    include_str!("whole_calls.sql")
);

/// Runs `question` over the tables of the trace and two views more: `whole_waits` is `off_cpu`
/// and `whole_calls` is `cuda_calls` with the pieces of one wait or call joined into one row.
///
/// # Errors
/// If the trace cannot be read, or [`Trace::interrupt`] stopped the question.
pub fn ask<T>(
    trace: &Trace,
    mut question: impl FnMut(&Connection) -> duckdb::Result<T>,
) -> Result<T, AnalysisError> {
    Ok(trace.query(|connection| {
        connection.execute_batch(WHOLE)?;
        question(connection)
    })?)
}
