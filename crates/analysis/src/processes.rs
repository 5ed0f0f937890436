//! Who ran: the processes of the job.

use crate::coverage::records_pages;
use crate::roles::{Role, Roles};
use crate::{AnalysisError, Window, ask};
use ingero_trace::duckdb::{self, named_params};
use ingero_trace::{Trace, TraceInfo};

/// One process of the job. Times are of all its threads together, in the window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRow {
    /// Its id.
    pub pid: i32,
    /// Its parent; unknown if its start was not seen.
    pub parent_pid: Option<i32>,
    /// Its last name.
    pub name: String,
    /// What it is to the job.
    pub role: Role,
    /// How many processes had this pid, one after the other.
    pub lives: i64,
    /// Threads that it had so far.
    pub threads: i64,
    /// When it was forked; `None` if it was there before the recording.
    pub forked_ns: Option<i64>,
    /// When it exited; `None` if it lived to the window's end.
    pub exit_ns: Option<i64>,
    /// Time on a CPU.
    pub cpu_ns: i64,
    /// Time of its threads off the CPU.
    pub off_cpu_ns: i64,
    /// Part of that spent waiting for a CPU that others used.
    pub runq_ns: i64,
    /// Bytes of the pages allocated; `None` if that was not recorded.
    pub page_bytes: Option<i64>,
    /// Bytes that reading calls returned, page cache and pipes included; `None` if not sampled.
    pub read_bytes: Option<i64>,
    /// Bytes fetched from storage; `None` if not sampled.
    pub storage_read_bytes: Option<i64>,
    /// CUDA calls.
    pub cuda_calls: i64,
}

/// The processes of the job that lived in the window: feeders first, then loader workers, each
/// by CPU time.
///
/// # Errors
/// If the trace cannot be read.
pub fn processes(
    trace: &Trace,
    info: &TraceInfo,
    window: Window,
    pid: Option<i32>,
    roles: &Roles,
) -> Result<Vec<ProcessRow>, AnalysisError> {
    let mut processes: Vec<ProcessRow> = ask(trace, |c| {
        c.prepare(include_str!("processes.sql"))?
            .query_map(
                named_params! {
                    "start_ns": window.start_ns,
                    "end_ns": window.end_ns,
                    "recorded_ns": info.duration_ns.max(window.end_ns),
                    "pages_recorded": records_pages(info),
                    "pid": pid,
                },
                |row| {
                    let pid = row.get(0)?;
                    Ok(ProcessRow {
                        pid,
                        parent_pid: row.get(1)?,
                        name: row.get(2)?,
                        role: roles.of(pid),
                        lives: row.get(3)?,
                        threads: row.get(4)?,
                        forked_ns: row.get(5)?,
                        exit_ns: row.get(6)?,
                        cpu_ns: row.get(7)?,
                        off_cpu_ns: row.get(8)?,
                        runq_ns: row.get(9)?,
                        page_bytes: row.get(10)?,
                        read_bytes: row.get(11)?,
                        storage_read_bytes: row.get(12)?,
                        cuda_calls: row.get(13)?,
                    })
                },
            )?
            .collect::<duckdb::Result<_>>()
    })?;
    processes.sort_by_key(|process| process.role);
    Ok(processes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roles::roles;
    use ingero_testkit::trace::draw;

    const JOB: &str = "
        process 100 python
        process 200 pt_data_worker parent=100 from=100 exit=0
        thread 100 100: (S20<200+5 R5 launch(0.5) sync(9.5))*10
        thread 200 200: (R20 S10<100)*5";

    fn ask_about(window_ms: Option<(f64, f64)>) -> Vec<ProcessRow> {
        let drawn = draw(JOB);
        let trace = drawn.open();
        let info = trace.info().unwrap();
        let (start, end) = window_ms.unzip();
        let window = Window::from_ms(&info, start, end).unwrap();
        processes(&trace, &info, window, None, &roles(&trace).unwrap()).unwrap()
    }

    #[test]
    fn sums_of_the_whole_recording() {
        let rows = ask_about(None);
        assert_eq!(
            rows,
            [
                ProcessRow {
                    pid: 100,
                    parent_pid: Some(1),
                    name: "python".to_owned(),
                    role: Role::Feeder,
                    lives: 1,
                    threads: 1,
                    forked_ns: None,
                    exit_ns: None,
                    cpu_ns: 150_000_000,
                    off_cpu_ns: 250_000_000,
                    runq_ns: 50_000_000,
                    page_bytes: None,
                    read_bytes: None,
                    storage_read_bytes: None,
                    cuda_calls: 20,
                },
                ProcessRow {
                    pid: 200,
                    parent_pid: Some(100),
                    name: "pt_data_worker".to_owned(),
                    role: Role::LoaderWorker,
                    lives: 1,
                    threads: 1,
                    forked_ns: Some(100_000_000),
                    exit_ns: Some(250_000_000),
                    cpu_ns: 100_000_000,
                    off_cpu_ns: 50_000_000,
                    runq_ns: 0,
                    page_bytes: None,
                    read_bytes: None,
                    storage_read_bytes: None,
                    cuda_calls: 0,
                },
            ]
        );
    }

    #[test]
    fn a_window_cuts_waits_and_leaves_out_who_did_not_live_in_it() {
        // From 10 to 22 ms the feeder sleeps for 10 ms and then waits 2 ms for a CPU.
        let rows = ask_about(Some((10.0, 22.0)));
        assert_eq!(rows.len(), 1);
        assert_eq!(
            (rows[0].off_cpu_ns, rows[0].runq_ns),
            (12_000_000, 2_000_000)
        );
        assert_eq!(rows[0].cuda_calls, 0);
        // The worker is gone after 250 ms.
        assert_eq!(ask_about(Some((300.0, 400.0))).len(), 1);
        assert_eq!(ask_about(Some((200.0, 260.0))).len(), 2);
    }

    #[test]
    fn buckets_that_a_window_cuts_count_in_proportion() {
        let whole: i64 = ask_about(Some((0.0, 100.0)))[0].cpu_ns;
        let half: i64 = ask_about(Some((0.0, 50.0)))[0].cpu_ns;
        assert_eq!(half * 2, whole);
    }

    #[test]
    fn what_was_read_and_allocated_is_counted_from_the_fork_or_the_window() {
        // The counters grow evenly over 400 ms, those of 200 from before its fork at 100 ms on.
        let drawn = draw(&format!(
            "{JOB}
             samples 100 rchar=1000..5000 read=0..400
             samples 200 rchar=0..4000
             pages 100: @0..100 10*2"
        ));
        let trace = drawn.open();
        let info = trace.info().unwrap();
        let rows = |start_ms: f64, end_ms: f64| {
            let window = Window::from_ms(&info, Some(start_ms), Some(end_ms)).unwrap();
            processes(&trace, &info, window, None, &roles(&trace).unwrap()).unwrap()
        };
        let whole = rows(0.0, 401.0);
        assert_eq!(whole[0].page_bytes, Some(100 * 2 * 4096));
        // What it had read before the recording does not count.
        assert_eq!(whole[0].read_bytes, Some(4_000));
        assert_eq!(whole[0].storage_read_bytes, Some(400));
        // A forked process began with 0; it allocated nothing.
        assert_eq!(whole[1].read_bytes, Some(4_000));
        assert_eq!(whole[1].page_bytes, Some(0));
        let part = rows(95.0, 250.0);
        assert_eq!(part[0].page_bytes, Some(5 * 2 * 4096));
        assert_eq!(part[0].read_bytes, Some(2_000));
        assert_eq!(rows(210.0, 220.0)[0].read_bytes, Some(0));
    }
}
