//! The job as timelines: from rows of the trace to what each thread did.

use super::timeline::{Blocked, Call, Timeline, Wait, Waker};
use crate::call_kind::CallKind;
use crate::{AnalysisError, Window, ask};
use ingero_trace::Trace;
use ingero_trace::duckdb::arrow::array::{Array, AsArray};
use ingero_trace::duckdb::arrow::datatypes::{Int32Type, Int64Type};
use ingero_trace::duckdb::arrow::record_batch::RecordBatch;
use ingero_trace::duckdb::{self, named_params};
use std::collections::HashMap;

/// One column of a batch of 64-bit integers.
fn longs<'a>(batch: &'a RecordBatch, name: &str) -> duckdb::Result<&'a [i64]> {
    column(batch, name)?
        .as_primitive_opt::<Int64Type>()
        .map(|column| column.values().as_ref())
        .ok_or_else(|| duckdb::Error::InvalidColumnName(name.to_owned()))
}

/// One column of a batch of 32-bit integers.
fn integers<'a>(batch: &'a RecordBatch, name: &str) -> duckdb::Result<&'a [i32]> {
    column(batch, name)?
        .as_primitive_opt::<Int32Type>()
        .map(|column| column.values().as_ref())
        .ok_or_else(|| duckdb::Error::InvalidColumnName(name.to_owned()))
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> duckdb::Result<&'a dyn Array> {
    batch
        .column_by_name(name)
        .map(AsRef::as_ref)
        .ok_or_else(|| duckdb::Error::InvalidColumnName(name.to_owned()))
}

/// The CUDA calls of the feeder's process by thread.
pub(super) fn calls(
    trace: &Trace,
    window: Window,
    pid: i32,
) -> Result<HashMap<i32, Vec<Call>>, AnalysisError> {
    ask(trace, |c| {
        let mut calls: HashMap<i32, Vec<Call>> = HashMap::new();
        let mut statement = c.prepare(include_str!("calls.sql"))?;
        for batch in statement.query_arrow(named_params! {
            "pid": pid, "start_ns": window.start_ns, "end_ns": window.end_ns
        })? {
            let tid = integers(&batch, "tid")?;
            let (start, end) = (longs(&batch, "start_ns")?, longs(&batch, "end_ns")?);
            let (bytes, failed) = (longs(&batch, "bytes")?, integers(&batch, "failed")?);
            let probe_pairs = longs(&batch, "probe_pairs")?;
            let names = column(&batch, "call")?.as_string::<i32>();
            let directions = column(&batch, "direction")?.as_string::<i32>();
            for row in 0..batch.num_rows() {
                calls.entry(tid[row]).or_default().push(Call {
                    start_ns: start[row],
                    end_ns: end[row],
                    kind: CallKind::of(names.value(row), Some(directions.value(row))),
                    bytes: bytes[row],
                    failed: failed[row] != 0,
                    probe_pairs: probe_pairs[row],
                });
            }
        }
        Ok(calls)
    })
}

/// The timelines of every thread of the job. One that was alive and never off the CPU in the
/// window was on it all the time.
pub(super) fn threads(
    trace: &Trace,
    window: Window,
    feeder_pid: i32,
    mut calls: HashMap<i32, Vec<Call>>,
) -> Result<HashMap<i32, Timeline>, AnalysisError> {
    let waits = ask(trace, |c| {
        let mut waits: HashMap<i32, (i32, Vec<Wait>)> = HashMap::new();
        let mut statement = c.prepare(include_str!("waits.sql"))?;
        for batch in statement.query_arrow(named_params! {
            "start_ns": window.start_ns, "end_ns": window.end_ns
        })? {
            let (tid, pid) = (integers(&batch, "tid")?, integers(&batch, "pid")?);
            let (start, end) = (longs(&batch, "start_ns")?, longs(&batch, "end_ns")?);
            let woken = longs(&batch, "woken_ns")?;
            let (blocked, waker) = (integers(&batch, "blocked")?, integers(&batch, "waker")?);
            let waker_tid = integers(&batch, "waker_tid")?;
            let waker_pid = integers(&batch, "waker_pid")?;
            for row in 0..batch.num_rows() {
                let thread = waits
                    .entry(tid[row])
                    .or_insert_with(|| (pid[row], Vec::new()));
                thread.1.push(Wait {
                    start_ns: start[row],
                    woken_ns: woken[row],
                    end_ns: end[row],
                    blocked: match blocked[row] {
                        0 => Blocked::Sleeping,
                        1 => Blocked::Disk,
                        2 => Blocked::Unknown,
                        _ => Blocked::Ended,
                    },
                    waker: match waker[row] {
                        1 => Waker::Thread {
                            tid: waker_tid[row],
                            pid: waker_pid[row],
                        },
                        2 => Waker::Interrupt,
                        _ => Waker::Unknown,
                    },
                });
            }
        }
        Ok(waits)
    })?;
    let mut threads: HashMap<i32, Timeline> = waits
        .into_iter()
        .map(|(tid, (pid, waits))| {
            let calls = calls.remove(&tid).unwrap_or_default();
            (tid, Timeline::new(pid, waits, calls))
        })
        .collect();
    // Threads that were never off the CPU in the window.
    for (tid, calls) in calls {
        threads.insert(tid, Timeline::new(feeder_pid, Vec::new(), calls));
    }
    let alive: Vec<(i32, i32)> = ask(trace, |c| {
        c.prepare(include_str!("alive.sql"))?
            .query_map(
                named_params! { "start_ns": window.start_ns, "end_ns": window.end_ns },
                |row| Ok((row.get("tid")?, row.get("pid")?)),
            )?
            .collect()
    })?;
    for (tid, pid) in alive {
        let always_running = || Timeline::new(pid, Vec::new(), Vec::new());
        threads.entry(tid).or_insert_with(always_running);
    }
    Ok(threads)
}
