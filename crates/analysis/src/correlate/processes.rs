//! What every process did in a window.

use crate::features::{Activity, Blocked, Job};
use crate::names::Names;
use crate::pages::pages;
use crate::roles::{Role, Roles};
use crate::{AnalysisError, Window, ask};
use ingero_trace::duckdb::{self, named_params};
use ingero_trace::{Trace, TraceInfo};
use std::collections::{BTreeMap, HashMap};

/// A process of the job. Times are sums over its threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInWindow {
    /// Its id.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// What it is to the job.
    pub role: Role,
    /// On a CPU.
    pub ran_ns: i64,
    /// Ready to run, without a CPU.
    pub queued_ns: i64,
    /// Asleep.
    pub slept_ns: i64,
    /// In uninterruptible sleep: disk, page fault.
    pub disk_ns: i64,
    /// CUDA calls that the window touches.
    pub cuda_calls: i64,
    /// Time in them.
    pub cuda_ns: i64,
    /// Bytes of pages allocated.
    pub page_bytes: i64,
}

/// A process outside the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherProcess {
    /// Its id.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// On a CPU.
    pub ran_ns: i64,
}

/// Who used the CPUs of the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cpus {
    /// CPU time that there is: that of all CPUs online.
    pub total_ns: i64,
    /// Used by the job.
    pub job_ns: i64,
    /// Used by processes outside the job.
    pub others_ns: i64,
}

#[derive(Debug, Default)]
struct Times {
    ran_ns: i64,
    queued_ns: i64,
    slept_ns: i64,
    disk_ns: i64,
}

/// The processes of the job that lived in the window: the feeder's first, then by time on a CPU.
pub(super) fn processes(
    trace: &Trace,
    job: &Job,
    roles: &Roles,
    names: &Names,
    window: Window,
) -> Result<Vec<ProcessInWindow>, AnalysisError> {
    let mut times: BTreeMap<i32, Times> = BTreeMap::new();
    for thread in job.threads.values() {
        let mut lived = false;
        let mut of = Times::default();
        thread.divide(window.start_ns, window.end_ns, |from, to, activity| {
            let part = match activity {
                Activity::Running => &mut of.ran_ns,
                Activity::Queued => &mut of.queued_ns,
                Activity::Blocked(index) => match thread.waits()[index].blocked {
                    Blocked::Sleeping => &mut of.slept_ns,
                    Blocked::Disk => &mut of.disk_ns,
                    // Not there yet, or not any more, or not known.
                    Blocked::Unknown | Blocked::Ended => return,
                },
            };
            *part += to - from;
            lived = true;
        });
        if lived {
            let sum = times.entry(thread.pid()).or_default();
            sum.ran_ns += of.ran_ns;
            sum.queued_ns += of.queued_ns;
            sum.slept_ns += of.slept_ns;
            sum.disk_ns += of.disk_ns;
        }
    }
    let calls = calls(trace, window)?;
    let pages: HashMap<i32, i64> = pages(trace, window, None)?
        .into_iter()
        .map(|row| (row.pid, row.bytes))
        .collect();
    let mut processes: Vec<ProcessInWindow> = times
        .into_iter()
        .map(|(pid, times)| {
            let (cuda_calls, cuda_ns) = calls.get(&pid).copied().unwrap_or_default();
            ProcessInWindow {
                pid,
                name: names.of(pid),
                role: roles.of(pid),
                ran_ns: times.ran_ns,
                queued_ns: times.queued_ns,
                slept_ns: times.slept_ns,
                disk_ns: times.disk_ns,
                cuda_calls,
                cuda_ns,
                page_bytes: pages.get(&pid).copied().unwrap_or(0),
            }
        })
        .collect();
    processes.sort_by_key(|process| {
        let busy_ns = process.ran_ns + process.queued_ns;
        (process.pid != job.feeder_pid, std::cmp::Reverse(busy_ns))
    });
    Ok(processes)
}

/// CUDA calls of each process, and the time in them.
fn calls(trace: &Trace, window: Window) -> Result<HashMap<i32, (i64, i64)>, AnalysisError> {
    ask(trace, |c| {
        c.prepare(include_str!("calls.sql"))?
            .query_map(
                named_params! { "start_ns": window.start_ns, "end_ns": window.end_ns },
                |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))),
            )?
            .collect()
    })
}

/// The processes outside the job that used a CPU, and who used how much in all.
pub(super) fn others(
    trace: &Trace,
    window: Window,
    info: &TraceInfo,
) -> Result<(Vec<OtherProcess>, Cpus), AnalysisError> {
    let used: Vec<(OtherProcess, bool)> = ask(trace, |c| {
        c.prepare(include_str!("cpu.sql"))?
            .query_map(
                named_params! {
                    "start_ns": window.start_ns,
                    "end_ns": window.end_ns,
                    "recorded_ns": info.duration_ns.max(window.end_ns),
                },
                |row| {
                    let process = OtherProcess {
                        pid: row.get(0)?,
                        name: row.get(1)?,
                        ran_ns: row.get(2)?,
                    };
                    Ok((process, row.get(3)?))
                },
            )?
            .collect::<duckdb::Result<_>>()
    })?;
    let sum = |wanted: bool| -> i64 {
        let of = used.iter().filter(|(_, in_job)| *in_job == wanted);
        of.map(|(process, _)| process.ran_ns).sum()
    };
    let cpus = Cpus {
        total_ns: i64::from(info.cores_online) * window.dur_ns(),
        job_ns: sum(true),
        others_ns: sum(false),
    };
    let others = used.into_iter().filter(|(_, in_job)| !in_job);
    Ok((others.map(|(process, _)| process).collect(), cpus))
}

#[cfg(test)]
mod tests {
    use crate::Window;
    use crate::correlate::correlate;
    use crate::roles::roles;
    use ingero_testkit::trace::draw;

    const MS: i64 = 1_000_000;

    #[test]
    fn everybody_is_shown_with_what_lies_in_the_window() {
        let drawn = draw(
            "host online=4 usable=4
             neighbour 900 logrotate cpus=1.5
             neighbour 901 cron cpus=0.1
             process 100 python
             process 200 pt_data_worker parent=100
             process 300 pt_data_worker parent=100 from=50 exit=0
             thread 100 100: (launch(1) sync(4) S14<200+1)*10
             thread 200 200: (R8 D2)*20
             thread 300 300: R30
             pages 200: @100 5*1",
        );
        let trace = drawn.open();
        let info = trace.info().unwrap();
        let window = Window {
            start_ns: 100 * MS,
            end_ns: 200 * MS,
        };
        let found = correlate(&trace, &info, window, None, &roles(&trace).unwrap()).unwrap();
        let pids: Vec<i32> = found.processes.iter().map(|process| process.pid).collect();
        // 300 has ended before.
        assert_eq!(pids, [100, 200]);
        let feeder = &found.processes[0];
        assert_eq!(
            (feeder.ran_ns, feeder.queued_ns, feeder.slept_ns),
            (25 * MS, 5 * MS, 70 * MS)
        );
        assert_eq!((feeder.cuda_calls, feeder.cuda_ns), (10, 25 * MS));
        let worker = &found.processes[1];
        assert_eq!((worker.ran_ns, worker.disk_ns), (80 * MS, 20 * MS));
        assert_eq!(worker.page_bytes, 5 * 4096);
        let others: Vec<(&str, i64)> = found
            .others
            .iter()
            .map(|other| (other.name.as_str(), other.ran_ns))
            .collect();
        assert_eq!(others, [("logrotate", 150 * MS), ("cron", 10 * MS)]);
        assert_eq!(
            (found.cpus.total_ns, found.cpus.job_ns, found.cpus.others_ns),
            (400 * MS, 105 * MS, 160 * MS)
        );
        let budget = found.feeder.unwrap().budget;
        assert!((budget.total() - 0.1).abs() < 1e-9, "{budget:?}");
    }
}
