//! LOADER_CPU_BOUND: preparing a batch takes more CPU time than the GPU leaves for it.
//!
//! Signature with workers: the feeder waits for workers that are on a CPU all the time. Without
//! workers: the feeder computes between a wait for the GPU and the next copy to it.
//! Look-alikes: oversubscription (then the workers wait for CPUs), hand-over (then the workers
//! idle), storage (then they wait for the disk), any other work of the main thread (then no copy
//! to the device follows it).

use super::{
    DataSource, Outcome, cheaper_batches, data_evidence, data_source, evidence, index_batches,
    ruled_out, unknown_work,
};
use crate::case::{Case, LOADER_WAITS, NO_TIME_TO_SPARE, WORTH_NAMING};
use crate::features::{Loader, Part};
use crate::output::{Advice, Code, Confidence, Finding, Gain, speedup};
use crate::text::{bytes, count, duration, percent};
use crate::workers::WorkerCount;

/// Above this part of that time without a CPU, it is the competition that counts.
const QUEUED_SHARE: f64 = 0.4;
/// Without workers, the finding needs this part of the feeder's exposed computing before copies.
const BEFORE_COPIES: f64 = 0.5;
/// A copy smaller than this is no batch.
const BATCH_BYTES: f64 = 4096.0;

pub(crate) fn judge(case: &Case<'_>) -> Outcome {
    match case.loader {
        Some(loader) => with_workers(case, loader),
        None => of_the_main_process(case),
    }
}

fn with_workers(case: &Case<'_>, loader: &Loader) -> Outcome {
    let mut cost_s = case.exposed(&[Part::LoaderCompute, Part::LoaderSleep]);
    if !case.lacks_cpus_for_another_reason() {
        cost_s += case.exposed(&[Part::LoaderCpuWait]);
    }
    let share = case.share(cost_s);
    if share < WORTH_NAMING {
        return Outcome::DoesNotHold(format!(
            "the feeder waited for its workers {} of the time",
            percent(share)
        ));
    }
    if let Some(missing) = unknown_work(loader) {
        return missing;
    }
    if loader.busy_share() < NO_TIME_TO_SPARE {
        return Outcome::DoesNotHold(format!(
            "the workers wanted a CPU for only {} of their lives",
            percent(loader.busy_share())
        ));
    }
    let queued = loader.runq_s / (loader.run_s + loader.runq_s);
    if queued > QUEUED_SHARE {
        return Outcome::DoesNotHold(format!(
            "the workers had no CPU for {} of the time that they wanted one",
            percent(queued)
        ));
    }
    let counted = WorkerCount::of(case);
    let mut facts = vec![
        evidence(
            "explain_bottleneck",
            format!(
                "the feeder waited {} for its workers, {} of that while they computed",
                duration(case.exposed(&LOADER_WAITS)),
                percent(case.exposed(&[Part::LoaderCompute]) / case.exposed(&LOADER_WAITS))
            ),
        ),
        evidence(
            "list_processes",
            format!(
                "{}: on a CPU for {} of the time",
                count(u64::from(loader.workers), "worker"),
                percent(loader.run_share())
            ),
        ),
    ];
    if let Some(counted) = counted {
        facts.push(evidence(
            "explain_bottleneck",
            format!(
                "a step takes {} of worker CPU time, and {} without its wait for the workers",
                duration(counted.cpu_per_step_s),
                duration(counted.rest_of_step_s)
            ),
        ));
    }
    facts.push(data_evidence(case));
    Outcome::Holds(Box::new(Finding {
        code: Code::LoaderCpuBound,
        title: format!(
            "the GPU waits for batches: {} cannot prepare them as fast as it takes them",
            match loader.workers {
                1 => "one worker".to_owned(),
                workers => format!("{workers} workers"),
            }
        ),
        confidence: Confidence::High,
        share,
        seconds: cost_s,
        evidence: facts,
        ruled_out: vec![
            ruled_out(
                "too many workers",
                format!(
                    "the workers had no CPU for {} of the time that they wanted one",
                    percent(queued)
                ),
            ),
            ruled_out(
                "slow storage",
                format!("the workers waited {} for the disk", duration(loader.disk_s)),
            ),
            ruled_out(
                "handing over the batches",
                format!(
                    "the workers wanted a CPU for {} of their lives: they had no time to wait",
                    percent(loader.busy_share())
                ),
            ),
        ],
        advice: advice_with_workers(case, counted, cost_s),
        would_not_help: vec![
            "persistent_workers or pin_memory: they change nothing about the time a batch takes to prepare".to_owned(),
            "a larger prefetch_factor: the queue is empty because it is filled too slowly".to_owned(),
        ],
    }))
}

fn advice_with_workers(case: &Case<'_>, counted: Option<WorkerCount>, cost_s: f64) -> Vec<Advice> {
    let bound = speedup(case.share(cost_s));
    let mut advice = Vec::new();
    let fallback = case.cores.usable.saturating_sub(1).max(1);
    match counted {
        None => advice.push(Advice {
            change: format!("num_workers={fallback}"),
            why: format!("{}, less one for the process that feeds the GPU; the time per batch could not be measured", case.cores_origin()),
            snippet: Some(format!("DataLoader(..., num_workers={fallback})")),
            expected_speedup: None,
            check: "record again: the wait for the workers must shrink".to_owned(),
        }),
        Some(counted) if counted.advised() > counted.now => {
            let workers = counted.advised();
            advice.push(Advice {
                change: format!("num_workers={workers}"),
                why: format!(
                    "now {}; {} would keep the GPU fed and the CPUs carry {} ({}, of which {:.1} are taken)",
                    counted.now,
                    counted.need,
                    counted.cap,
                    case.cores_origin(),
                    counted.taken_cpus
                ),
                snippet: Some(format!("DataLoader(..., num_workers={workers})")),
                expected_speedup: Some(counted.speedup(case, bound)),
                check: format!("a step took {} here", duration(case.step_s())),
            });
        }
        Some(_) => {}
    }
    if data_source(case) == DataSource::Memory {
        // Without workers, starting them and receiving their batches goes as well.
        let receiving_s = case.exposed(&[Part::HostCompute, Part::CpuWait])
            + case.respawns.map_or(0.0, |respawns| respawns.cost_s);
        advice.push(index_batches(case, cost_s + receiving_s, false));
    }
    if let Some(counted) = counted.filter(WorkerCount::cpu_short) {
        advice.push(Advice {
            change: cheaper_batches(data_source(case)).to_owned(),
            why: format!(
                "it would take {} busy workers to keep the GPU fed with a tenth to spare, and the CPUs carry {}: no number of workers is enough",
                counted.need, counted.cap
            ),
            snippet: None,
            expected_speedup: Some(Gain { low: 1.0, high: bound }),
            check: "the CPU time of the workers per step must fall".to_owned(),
        });
    }
    advice
}

/// The same without workers: the main process prepares its batches itself.
pub(super) fn of_the_main_process(case: &Case<'_>) -> Outcome {
    let feeder = case.feeder;
    if case.loader.is_some() {
        return Outcome::DoesNotHold("there are loader workers".to_owned());
    }
    let per_copy = feeder.h2d_bytes as f64 / feeder.h2d_copies.max(1) as f64;
    if feeder.h2d_copies * 2 < feeder.steps || per_copy < BATCH_BYTES {
        return Outcome::DoesNotHold(
            "no loader worker was seen, and what the feeder computes is not followed by a copy of a batch to the GPU".to_owned(),
        );
    }
    let cost_s = (feeder.prepare_s - case.hideable_work_s()).max(0.0);
    let share = case.share(cost_s);
    if share < WORTH_NAMING || cost_s < BEFORE_COPIES * case.exposed(&[Part::HostCompute]) {
        return Outcome::DoesNotHold(format!(
            "no loader worker was seen, and the feeder computed before copies to the GPU for {} of the time",
            percent(share)
        ));
    }
    let mut advice = Vec::new();
    if data_source(case) == DataSource::Memory {
        advice.push(index_batches(case, cost_s, false));
    }
    advice.push(Advice {
        change: "find out what the main thread computes before each copy (py-spy record --pid, or a profiler), and make it cheaper or move it to other processes".to_owned(),
        why: format!(
            "it computes {} before each step while the GPU has nothing to do; which code that is, this recording cannot show",
            duration(cost_s / feeder.steps.max(1) as f64)
        ),
        snippet: None,
        expected_speedup: Some(Gain::up_to(share)),
        check: "host_compute must shrink in the budget".to_owned(),
    });
    Outcome::Holds(Box::new(Finding {
        code: Code::LoaderCpuBound,
        title: "the main process computes between GPU calls: it prepares each batch itself while the GPU waits".to_owned(),
        // From outside, preparing a batch looks like any other work before a copy.
        confidence: Confidence::Medium,
        share,
        seconds: cost_s,
        evidence: vec![
            evidence(
                "explain_bottleneck",
                format!(
                    "the feeder was on a CPU for {} between waiting for the GPU and the next copy to it",
                    duration(cost_s)
                ),
            ),
            evidence(
                "cuda_wait_latency",
                format!(
                    "{} to the GPU of {} each, in {}",
                    count(feeder.h2d_copies, "copy").replace("copys", "copies"),
                    bytes(per_copy),
                    count(feeder.steps, "step")
                ),
            ),
            data_evidence(case),
        ],
        ruled_out: vec![
            ruled_out("slow loader workers", "no process hands data to this one".to_owned()),
            ruled_out(
                "slow storage",
                format!("the feeder waited {} for the disk", duration(case.exposed(&[Part::Disk]))),
            ),
            ruled_out(
                "no CPU for the feeder",
                format!("it waited {} for one", duration(case.exposed(&[Part::CpuWait]))),
            ),
        ],
        advice,
        would_not_help: vec![
            "a faster GPU, or larger kernels: the GPU waits for the host".to_owned(),
        ],
    }))
}
