//! AFFINITY_CONFINED: the job's threads may run on few of the CPUs and wait for each other there,
//! while the other CPUs are idle.
//!
//! Signature: an affinity mask smaller than the host, threads that are ready and have no CPU, the
//! job itself on the CPUs of the mask, and idle CPUs outside it. Look-alikes: a quota (then the
//! CPUs of the mask idle as well), a neighbour on the same CPUs. That somebody wants it so cannot
//! be seen.

use super::{Outcome, evidence, queued_evidence, ruled_out};
use crate::case::{Case, Shortage, WORTH_NAMING};
use crate::output::{Advice, Code, Confidence, Finding, Gain, speedup};
use crate::text::percent;
use crate::workers::WorkerCount;

pub(crate) fn judge(case: &Case<'_>) -> Outcome {
    let online = case.cores.online;
    let Some(mask) = case.cores.affinity.filter(|mask| *mask < online) else {
        return Outcome::DoesNotHold("the job may run on every CPU of the host".to_owned());
    };
    let share = case.share(case.queued_s());
    if share < WORTH_NAMING {
        return Outcome::DoesNotHold(format!(
            "waiting for a CPU costs {} of the time",
            percent(share)
        ));
    }
    let contention = case.contention;
    let outside = contention.outside_idle_share.unwrap_or(0.0);
    if case.shortage() != Shortage::Mask {
        return Outcome::DoesNotHold(format!(
            "while its threads waited for a CPU, {} of the CPUs outside its mask were idle, and it used {} of those inside",
            percent(outside),
            percent(contention.job_share)
        ));
    }
    let mut advice = vec![Advice {
        change: format!("let the job run on more than {mask} of the {online} CPUs"),
        why: "launchers and thread libraries set masks that workers inherit; whether this one is meant, the recording cannot show".to_owned(),
        snippet: Some("srun --cpus-per-task, mpiexec --bind-to none, taskset, or in worker_init_fn: os.sched_setaffinity(0, range(os.cpu_count()))".to_owned()),
        expected_speedup: Some(Gain::of(share)),
        check: "list_processes must show more usable CPUs, and cpu_wait and loader_cpu_wait must shrink in the budget".to_owned(),
    }];
    if let Some(counted) = WorkerCount::of(case).filter(|counted| counted.advised() != counted.now)
    {
        let workers = counted.advised();
        advice.push(Advice {
            change: format!("where the mask is meant: num_workers={workers}"),
            why: format!(
                "its {mask} CPUs carry {} workers, now there are {}",
                counted.cap, counted.now
            ),
            snippet: Some(format!("DataLoader(..., num_workers={workers})")),
            expected_speedup: Some(counted.speedup(case, speedup(share))),
            check: "cpu_wait must shrink in the budget".to_owned(),
        });
    }
    Outcome::Holds(Box::new(Finding {
        code: Code::AffinityConfined,
        title: format!(
            "the job is confined to {mask} of {online} CPUs and its threads wait for each other there"
        ),
        confidence: Confidence::High,
        share,
        seconds: case.queued_s(),
        evidence: vec![
            evidence("list_processes", case.cores_origin()),
            queued_evidence(case),
            evidence(
                "list_processes",
                format!(
                    "meanwhile the job used {} of its CPUs, and at least {} of the others were idle",
                    percent(contention.job_share),
                    percent(outside)
                ),
            ),
        ],
        ruled_out: vec![
            ruled_out(
                "a neighbour takes the CPUs",
                match contention.preempted_by_others {
                    Some(others) => format!(
                        "where a thread of the job lost its CPU, the job itself took it for {} of the time",
                        percent(1.0 - others)
                    ),
                    None => "no thread of the job was preempted by another process".to_owned(),
                },
            ),
            ruled_out(
                "a CPU quota",
                if case.cores.quota.is_some() {
                    format!(
                        "the job was throttled in {} of its periods",
                        percent(case.throttled_share())
                    )
                } else {
                    "there is none".to_owned()
                },
            ),
        ],
        advice,
        would_not_help: vec![
            "more workers: they share the same CPUs".to_owned(),
            "a machine with more CPUs, under the same mask".to_owned(),
        ],
    }))
}
