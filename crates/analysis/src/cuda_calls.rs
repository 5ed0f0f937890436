//! What the CUDA calls cost, and when nothing was handed to the GPU.

use crate::call_kind::CallKind;
use crate::cuda_functions::Functions;
use crate::roles::Roles;
use crate::{AnalysisError, Window, ask};
use ingero_trace::Trace;
use ingero_trace::duckdb::{self, Connection, named_params};

/// One function, with the calls that the window touches, cut to it.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRow {
    /// runtime, driver or nccl.
    pub layer: String,
    /// Name of the function.
    pub call: String,
    /// Direction of a copy.
    pub direction: Option<String>,
    /// Number of calls.
    pub calls: i64,
    /// Processes that made them.
    pub processes: i64,
    /// Median length.
    pub p50_ns: i64,
    /// 95 of 100 calls were not longer.
    pub p95_ns: i64,
    /// 99 of 100 calls were not longer.
    pub p99_ns: i64,
    /// The longest call.
    pub max_ns: i64,
    /// When it began.
    pub max_at_ns: i64,
    /// Time in the calls.
    pub total_ns: i64,
    /// Part of it during which the thread was off the CPU.
    pub off_cpu_ns: i64,
    /// Bytes copied or allocated; `None` for calls without a size.
    pub bytes: Option<i64>,
    /// Bytes copied per time in the call, in 10^9 bytes a second.
    pub gb_per_s: Option<f64>,
    /// Calls that returned an error.
    pub failed: i64,
}

/// A time in which a process neither handed work to the GPU nor waited for it in a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// When it began.
    pub start_ns: i64,
    /// Its length.
    pub dur_ns: i64,
    /// The call before it.
    pub after_call: Option<String>,
    /// The call that ended it; `None` at the end of the window or of the process.
    pub before_call: Option<String>,
    /// The call before it left nothing to do for the GPU.
    pub gpu_idle: bool,
}

/// The gaps of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gaps {
    /// The process.
    pub pid: i32,
    /// How many.
    pub count: i64,
    /// Their time together.
    pub total_ns: i64,
    /// Those that began with the GPU known to have nothing to do.
    pub idle_ns: i64,
    /// The longest, longest first.
    pub longest: Vec<Gap>,
}

/// CUDA calls and gaps in the window.
#[derive(Debug, Clone, PartialEq)]
pub struct CudaCalls {
    /// By time in the calls, most first.
    pub calls: Vec<CallRow>,
    /// Of the process asked for, or else of the feeder; `None` if it made no calls that count.
    pub gaps: Option<Gaps>,
}

/// What the CUDA calls in the window cost, and the `longest` longest gaps.
///
/// # Errors
/// If the trace cannot be read.
pub fn cuda_calls(
    trace: &Trace,
    window: Window,
    pid: Option<i32>,
    roles: &Roles,
    longest: u32,
) -> Result<CudaCalls, AnalysisError> {
    ask(trace, |c| {
        let mut calls = call_rows(c, window, pid)?;
        add_off_cpu(c, window, pid, &mut calls)?;
        let of = pid.or_else(|| roles.feeders.first().map(|feeder| feeder.pid));
        let gaps = match of {
            Some(pid) => gaps(c, window, pid, longest)?,
            None => None,
        };
        Ok(CudaCalls { calls, gaps })
    })
}

fn call_rows(c: &Connection, window: Window, pid: Option<i32>) -> duckdb::Result<Vec<CallRow>> {
    c.prepare(include_str!("cuda_calls.sql"))?
        .query_map(
            named_params! { "start_ns": window.start_ns, "end_ns": window.end_ns, "pid": pid },
            |row| {
                Ok(CallRow {
                    layer: row.get(0)?,
                    call: row.get(1)?,
                    direction: row.get(2)?,
                    calls: row.get(3)?,
                    processes: row.get(4)?,
                    p50_ns: row.get(5)?,
                    p95_ns: row.get(6)?,
                    p99_ns: row.get(7)?,
                    max_ns: row.get(8)?,
                    max_at_ns: row.get(9)?,
                    total_ns: row.get(10)?,
                    off_cpu_ns: 0,
                    bytes: row.get(11)?,
                    gb_per_s: row.get(12)?,
                    failed: row.get(13)?,
                })
            },
        )?
        .collect()
}

fn add_off_cpu(
    c: &Connection,
    window: Window,
    pid: Option<i32>,
    calls: &mut [CallRow],
) -> duckdb::Result<()> {
    let mut statement = c.prepare(include_str!("cuda_descheduled.sql"))?;
    let mut rows = statement.query(
        named_params! { "start_ns": window.start_ns, "end_ns": window.end_ns, "pid": pid },
    )?;
    while let Some(row) = rows.next()? {
        let (layer, call): (String, String) = (row.get(0)?, row.get(1)?);
        let direction: Option<String> = row.get(2)?;
        let off_cpu_ns = row.get(3)?;
        for known in calls.iter_mut() {
            if known.layer == layer && known.call == call && known.direction == direction {
                known.off_cpu_ns = off_cpu_ns;
            }
        }
    }
    Ok(())
}

pub(crate) fn gaps(
    c: &Connection,
    window: Window,
    pid: i32,
    longest: u32,
) -> duckdb::Result<Option<Gaps>> {
    // All calls of the process, also those before the window: one of them may begin a gap in it.
    let functions = Functions::of(c, pid, window.end_ns, |kind| !kind.is_aside())?;
    if functions.is_empty() {
        return Ok(None);
    }
    let mut statement = c.prepare(include_str!("cuda_gaps.sql"))?;
    let mut rows = statement.query(named_params! {
        "start_ns": window.start_ns,
        "end_ns": window.end_ns,
        "pid": pid,
        "calls": functions.calls(),
        "directions": functions.directions(),
        "drains": functions.flags(CallKind::drains),
        "limit": longest.max(1),
    })?;
    let mut gaps = Gaps {
        pid,
        count: 0,
        total_ns: 0,
        idle_ns: 0,
        longest: Vec::new(),
    };
    while let Some(row) = rows.next()? {
        gaps.count = row.get(0)?;
        gaps.total_ns = row.get(1)?;
        gaps.idle_ns = row.get(2)?;
        if let Some(start_ns) = row.get(3)? {
            gaps.longest.push(Gap {
                start_ns,
                dur_ns: row.get(4)?,
                after_call: row.get(5)?,
                before_call: row.get(6)?,
                gpu_idle: row.get(7)?,
            });
        }
    }
    gaps.longest.truncate(longest as usize);
    Ok(Some(gaps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roles::roles;
    use ingero_testkit::trace::{draw, info};
    use ingero_trace::TraceWriter;
    use ingero_trace::rows::CudaCall;

    // |  S20  | h2d 1 | launch 1 | sync 4+Q2+4 |  twice, then 30 ms without a call
    const JOB: &str = "
        process 100 python
        thread 100 100: malloc(1) (S20 h2d(1,4000000) launch(1) sync(R4 Q2 R4))*2 R30";

    fn ask_job(window: Option<Window>) -> CudaCalls {
        let drawn = draw(JOB);
        let trace = drawn.open();
        let window = window.unwrap_or_else(|| Window::whole(&trace.info().unwrap()));
        cuda_calls(&trace, window, None, &roles(&trace).unwrap(), 10).unwrap()
    }

    #[test]
    fn calls_are_summed_by_function_and_lose_their_time_off_the_cpu() {
        let calls = ask_job(None).calls;
        let names: Vec<&str> = calls.iter().map(|row| row.call.as_str()).collect();
        assert_eq!(
            names,
            [
                "cudaStreamSynchronize",
                "cudaLaunchKernel",
                "cudaMemcpyAsync",
                "cudaMalloc"
            ]
        );
        assert_eq!((calls[0].calls, calls[0].total_ns), (2, 20_000_000));
        assert_eq!(
            (calls[0].off_cpu_ns, calls[0].p50_ns),
            (4_000_000, 10_000_000)
        );
        assert_eq!(
            (calls[0].max_ns, calls[0].max_at_ns),
            (10_000_000, 23_000_000)
        );
        assert_eq!((calls[0].bytes, calls[0].gb_per_s), (None, None));
        assert_eq!(calls[2].direction.as_deref(), Some("h2d"));
        assert_eq!(
            (calls[2].bytes, calls[2].gb_per_s),
            (Some(8_000_000), Some(4.0))
        );
        assert_eq!(calls[1].off_cpu_ns, 0);
    }

    #[test]
    fn gaps_lie_between_calls_that_feed_or_wait() {
        // The allocation at the start neither feeds nor waits, so no gap begins with it.
        let gaps = ask_job(None).gaps.unwrap();
        assert_eq!((gaps.pid, gaps.count), (100, 2));
        assert_eq!((gaps.total_ns, gaps.idle_ns), (50_000_000, 50_000_000));
        assert_eq!(
            gaps.longest,
            [
                Gap {
                    start_ns: 65_000_000,
                    dur_ns: 30_000_000,
                    after_call: Some("cudaStreamSynchronize".to_owned()),
                    before_call: None,
                    gpu_idle: true,
                },
                Gap {
                    start_ns: 33_000_000,
                    dur_ns: 20_000_000,
                    after_call: Some("cudaStreamSynchronize".to_owned()),
                    before_call: Some("cudaMemcpyAsync".to_owned()),
                    gpu_idle: true,
                },
            ]
        );
    }

    #[test]
    fn calls_of_the_runtime_and_the_driver_divide_the_time_together() {
        // Triton launches through the driver: only 5 and 3 ms were without a call.
        let drawn = draw(
            "process 100 python
             thread 100 100: launch(1) R5 cuLaunchKernel(1) R3 cudaEventSynchronize(2)",
        );
        let trace = drawn.open();
        let whole = Window::whole(&trace.info().unwrap());
        let gaps = cuda_calls(&trace, whole, None, &roles(&trace).unwrap(), 10);
        let gaps = gaps.unwrap().gaps.unwrap();
        assert_eq!((gaps.count, gaps.total_ns), (2, 8_000_000));
        assert_eq!(
            gaps.longest[0].before_call.as_deref(),
            Some("cuLaunchKernel")
        );
        // A wait for an event leaves the GPU what was given after it.
        assert_eq!(gaps.idle_ns, 0);
    }

    #[test]
    fn a_window_cuts_calls_and_gaps() {
        // From 30 to 45 ms: the last 3 ms of the sync, then 12 ms of the gap after it.
        let answer = ask_job(Some(Window {
            start_ns: 30_000_000,
            end_ns: 45_000_000,
        }));
        assert_eq!(answer.calls.len(), 1);
        assert_eq!(
            (answer.calls[0].total_ns, answer.calls[0].off_cpu_ns),
            (3_000_000, 0)
        );
        let gaps = answer.gaps.unwrap();
        assert_eq!((gaps.count, gaps.total_ns), (1, 12_000_000));
        // A window inside of a gap is all gap.
        let answer = ask_job(Some(Window {
            start_ns: 40_000_000,
            end_ns: 45_000_000,
        }));
        assert!(answer.calls.is_empty());
        assert_eq!(answer.gaps.unwrap().total_ns, 5_000_000);
    }

    #[test]
    fn what_a_failed_call_was_given_is_not_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.duckdb");
        let mut writer = TraceWriter::create(&path).unwrap();
        for (at, bytes, status) in [(1, i64::MAX, 2), (2, i64::MAX, 2), (3, 4_096, 0)] {
            writer.push(CudaCall {
                ts_ns: at * 1_000_000,
                dur_ns: 1_000,
                pid: 100,
                tid: 100,
                layer: "runtime".into(),
                call: "cudaMalloc".into(),
                bytes: Some(bytes),
                direction: None,
                stream: None,
                status: Some(status),
                open: false,
                continued: false,
                nested: Some(0),
            });
        }
        writer.finish(&info(10_000_000)).unwrap();
        let trace = ingero_trace::Trace::open(&path).unwrap();
        let whole = Window::whole(&trace.info().unwrap());
        let found = cuda_calls(&trace, whole, None, &Roles::default(), 0).unwrap();
        let calls = &found.calls[0];
        assert_eq!(
            (calls.calls, calls.failed, calls.bytes),
            (3, 2, Some(4_096))
        );
    }

    #[test]
    fn a_call_in_pieces_is_one_call() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.duckdb");
        let mut writer = TraceWriter::create(&path).unwrap();
        for (at, dur, open, continued) in
            [(1, 2, true, false), (3, 2, true, true), (5, 1, false, true)]
        {
            let second = 1_000_000_000;
            writer.push(CudaCall {
                ts_ns: at * second,
                dur_ns: dur * second,
                pid: 100,
                tid: 100,
                layer: "runtime".into(),
                call: "cudaDeviceSynchronize".into(),
                bytes: None,
                direction: None,
                stream: None,
                status: (!open).then_some(0),
                open,
                continued,
                nested: Some(0),
            });
        }
        writer.finish(&info(7_000_000_000)).unwrap();
        let trace = Trace::open(&path).unwrap();
        let window = Window {
            start_ns: 0,
            end_ns: 7_000_000_000,
        };
        let roles = roles(&trace).unwrap();
        let calls = cuda_calls(&trace, window, None, &roles, 1).unwrap().calls;
        assert_eq!(
            (calls.len(), calls[0].calls, calls[0].max_ns),
            (1, 1, 5_000_000_000)
        );
    }
}
