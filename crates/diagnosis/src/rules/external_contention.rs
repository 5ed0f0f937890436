//! EXTERNAL_CONTENTION: processes outside the job are on the CPUs that the feeder or its workers
//! are ready to run on.
//!
//! Signature: the feeder, or workers it waits for, have no CPU for 5% of the time or more, and
//! others use at least 40% of the CPUs then. A wait for a CPU inside a wait for the GPU counts only
//! if the call returned as soon as the thread ran again. Look-alikes: the job's own workers, a
//! quota, a mask.

use super::{Outcome, evidence, ruled_out};
use crate::case::{Case, Shortage, WORTH_NAMING};
use crate::features::{Neighbour, Part};
use crate::output::{Advice, Code, Confidence, Finding, Gain};
use crate::text::{duration, percent};

pub(crate) fn judge(case: &Case<'_>) -> Outcome {
    let share = case.share(case.queued_s());
    if share < WORTH_NAMING {
        return Outcome::DoesNotHold(format!(
            "waiting for a CPU costs {} of the time",
            percent(share)
        ));
    }
    let contention = case.contention;
    if case.shortage() != Shortage::Neighbours {
        return Outcome::DoesNotHold(format!(
            "while the job's threads waited for a CPU, processes outside it used {} of the CPUs",
            percent(contention.other_share)
        ));
    }
    let who: Vec<String> = contention
        .top_others
        .iter()
        .map(Neighbour::in_words)
        .collect();
    let first = contention.top_others.first();
    let named = first.map_or_else(
        || "other processes".to_owned(),
        |other| format!("{} (process {})", other.name, other.pid),
    );
    let mut facts = vec![
        evidence(
            "explain_bottleneck",
            format!(
                "the feeder was ready but had no CPU for {}, and waited {} for workers that had none",
                duration(case.exposed(&[Part::CpuWait])),
                duration(case.exposed(&[Part::LoaderCpuWait]))
            ),
        ),
        evidence(
            "list_processes",
            format!(
                "meanwhile processes outside the job used {} of the CPUs: {}",
                percent(contention.other_share),
                who.join(", ")
            ),
        ),
    ];
    if let Some(others) = contention.preempted_by_others {
        facts.push(evidence(
            "top_offcpu",
            format!(
                "where a thread of the job lost its CPU, a process outside it took it for {} of the time",
                percent(others)
            ),
        ));
    }
    Outcome::Holds(Box::new(Finding {
        code: Code::ExternalContention,
        title: format!(
            "processes outside the job take its CPUs, {} the most",
            first.map_or("others".to_owned(), |other| other.name.clone())
        ),
        confidence: Confidence::High,
        share,
        seconds: case.queued_s(),
        evidence: facts,
        ruled_out: vec![
            ruled_out(
                "too many workers of the job itself",
                format!(
                    "the job used only {} of the CPUs while its threads waited for one",
                    percent(contention.job_share)
                ),
            ),
            ruled_out(
                "a CPU quota or an affinity mask",
                format!("only {} of the CPUs were idle", percent(contention.idle_share)),
            ),
            ruled_out(
                "waits for a CPU that cost nothing, because the GPU was still busy",
                "only waits count after which the CUDA call returned at once".to_owned(),
            ),
        ],
        advice: vec![Advice {
            change: format!(
                "stop {named}, move it to other CPUs or another time, or give it a lower weight"
            ),
            why: "the job needs the CPUs that it takes; what it works on and whether it may be stopped, the recording cannot show".to_owned(),
            snippet: first.map(|other| format!("renice 19 -p {0}, or taskset -cp CPUS {0}, or a cgroup with cpu.weight", other.pid)),
            expected_speedup: Some(Gain::of(share)),
            check: "record again: cpu_wait and loader_cpu_wait must shrink in the budget".to_owned(),
        }],
        would_not_help: vec![
            "fewer loader workers as the fix: the CPUs go to others".to_owned(),
            "more loader workers: they too get no CPU".to_owned(),
        ],
    }))
}
