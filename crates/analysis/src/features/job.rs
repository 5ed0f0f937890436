//! The job around one feeder.

use super::budget::Job;
use super::costs::Costs;
use super::load::{calls, threads};
use crate::roles::{Feeder, Roles};
use crate::{AnalysisError, Window};
use ingero_trace::Trace;
use std::collections::HashMap;

/// The threads of the job in a window, around `feeder` if there is one.
pub(crate) fn job(
    trace: &Trace,
    window: Window,
    roles: &Roles,
    feeder: Option<&Feeder>,
) -> Result<Job, AnalysisError> {
    let Some(feeder) = feeder else {
        return Ok(Job {
            threads: threads(trace, window, 0, HashMap::new())?,
            ..Job::default()
        });
    };
    let calls = calls(trace, window, feeder.pid)?;
    let costs = calls.get(&feeder.tid).map(|calls| Costs::of(calls));
    let workers = roles.workers.iter();
    Ok(Job {
        threads: threads(trace, window, feeder.pid, calls)?,
        feeder_pid: feeder.pid,
        feeder_tid: feeder.tid,
        loaders: workers
            .filter(|worker| worker.feeder_pid == feeder.pid)
            .map(|worker| worker.pid)
            .collect(),
        pin_threads: roles
            .pin_threads
            .iter()
            .filter(|thread| thread.pid == feeder.pid)
            .map(|thread| thread.tid)
            .collect(),
        costs: costs.unwrap_or_default(),
        ..Job::default()
    })
}
