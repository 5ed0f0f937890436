//! What happened in a window: where the feeder's time went, who ended its longest wait and what
//! that thread was doing meanwhile, and what every process did.

mod chain;
mod processes;
#[cfg(test)]
mod properties;
mod worst;

pub use chain::{Chain, Ended, Hop, Taker};
pub use processes::{Cpus, OtherProcess, ProcessInWindow};
pub use worst::{Chosen, Worst, steady, worst};

use crate::features::{Job, charge_recorder, job};
use crate::names::Names;
use crate::roles::Roles;
use crate::{AnalysisError, Window, ask};
use ingero_diagnosis::{Budget, Part};
use ingero_trace::{Trace, TraceInfo};

/// The feeder in the window.
#[derive(Debug, Clone, PartialEq)]
pub struct FeederInWindow {
    /// Its process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// Seconds of the window by what they were spent on, all of them.
    pub budget: Budget,
    /// Its longest wait, followed to whoever ended it; `None` if it was on a CPU all the time.
    pub chain: Option<Chain>,
}

/// What happened in a window.
#[derive(Debug, Clone, PartialEq)]
pub struct Correlation {
    /// `None` if no process gave a GPU work.
    pub feeder: Option<FeederInWindow>,
    /// The processes of the job that lived in the window: the feeder first, then by time on a CPU.
    pub processes: Vec<ProcessInWindow>,
    /// Processes outside the job that used a CPU, the one with the most time first.
    pub others: Vec<OtherProcess>,
    /// Who used the CPUs.
    pub cpus: Cpus,
}

/// What happened in `window`, to the feeder of process `pid` or else to the first one.
///
/// # Errors
/// If the trace cannot be read.
pub fn correlate(
    trace: &Trace,
    info: &TraceInfo,
    window: Window,
    pid: Option<i32>,
    roles: &Roles,
) -> Result<Correlation, AnalysisError> {
    let mut feeders = roles.feeders.iter();
    let feeder = feeders.find(|feeder| pid.is_none_or(|pid| pid == feeder.pid));
    let job = job(trace, window, roles, feeder)?;
    let names = ask(trace, Names::read)?;
    let feeder = match feeder {
        Some(feeder) => Some(FeederInWindow {
            pid: feeder.pid,
            tid: feeder.tid,
            name: names.of(feeder.tid),
            budget: budget(&job, window, info),
            chain: chain::longest(trace, &job, roles, &names, window)?,
        }),
        None => None,
    };
    let (others, cpus) = processes::others(trace, window, info)?;
    Ok(Correlation {
        feeder,
        processes: processes::processes(trace, &job, roles, &names, window)?,
        others,
        cpus,
    })
}

fn budget(job: &Job, window: Window, info: &TraceInfo) -> Budget {
    let mut budget = job.spend(window.start_ns, window.end_ns).budget;
    let probe_pairs: i64 = job.threads.get(&job.feeder_tid).map_or(0, |feeder| {
        let calls = feeder.calls().iter();
        calls
            .filter(|call| call.start_ns < window.end_ns && call.end_ns > window.start_ns)
            .map(|call| call.probe_pairs)
            .sum()
    });
    let probe_pair_ns = info.probe_pair_cost_ns.unwrap_or(0);
    charge_recorder(
        &mut budget,
        &mut Budget::default(),
        probe_pairs as f64 * probe_pair_ns as f64 * 1e-9,
    );
    budget
}

/// The parts of a budget that took time, the largest first, in nanoseconds.
pub fn parts(budget: &Budget) -> Vec<(Part, i64)> {
    let mut parts: Vec<(Part, i64)> = Part::ALL
        .into_iter()
        .map(|part| (part, (budget.seconds(part) * 1e9).round() as i64))
        .filter(|(_, ns)| *ns > 0)
        .collect();
    parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    parts
}
