//! WORKER_OVERSUB: more loader workers want a CPU than there are, so the workers wait for each
//! other and the feeder waits for its CPU too.
//!
//! Signature: at least as many workers as usable CPUs; the job's threads want over 1.5 times the
//! CPUs it may use and have none for over 40% of that time; meanwhile it is the job itself that
//! runs. Look-alikes: a neighbour (then others run), a quota or a mask (then CPUs idle).
//! Thresholds: CASES K01, measured there at 4.05, 0.81 and 0.75 to 0.99.

use super::{Outcome, cheaper_batches, data_source, evidence, ruled_out};
use crate::case::{Case, LOADER_WAITS, Shortage, WORTH_NAMING};
use crate::features::Part;
use crate::output::{Advice, Code, Confidence, Finding, Gain, speedup};
use crate::text::{count, duration, percent};
use crate::workers::WorkerCount;

const LOAD_RATIO: f64 = 1.5;
const QUEUED_SHARE: f64 = 0.4;
const JOB_SHARE: f64 = 0.6;

pub(crate) fn judge(case: &Case<'_>) -> Outcome {
    let Some(loader) = case.loader else {
        return Outcome::DoesNotHold("no loader worker was seen".to_owned());
    };
    let usable = case.cores.usable;
    if loader.workers < usable.max(2) {
        return Outcome::DoesNotHold(format!(
            "{} are fewer than the {usable} usable CPUs",
            count(u64::from(loader.workers), "worker")
        ));
    }
    let (ratio, queued) = (case.load_ratio(), case.queued_share());
    if ratio <= LOAD_RATIO || queued <= QUEUED_SHARE {
        return Outcome::DoesNotHold(format!(
            "the job wants {ratio:.1} times its CPUs and has none for {} of that time",
            percent(queued)
        ));
    }
    let contention = case.contention;
    if case.shortage() == Shortage::Mask {
        return Outcome::DoesNotHold(
            "while its threads waited for a CPU, those outside its affinity mask were idle"
                .to_owned(),
        );
    }
    if contention.job_share < JOB_SHARE {
        return Outcome::DoesNotHold(format!(
            "while the job's threads waited for a CPU, the job itself used only {} of them",
            percent(contention.job_share)
        ));
    }
    let cost_s = case.exposed(&[Part::CpuWait, Part::LoaderCpuWait]);
    let share = case.share(cost_s);
    if share < WORTH_NAMING {
        return Outcome::DoesNotHold(format!(
            "the competition costs {} of the time",
            percent(share)
        ));
    }
    let computing_s = case.exposed(&[Part::LoaderCompute]);
    Outcome::Holds(Box::new(Finding {
        code: Code::WorkerOversub,
        title: format!(
            "{} loader workers compete for {usable} CPUs with each other and with the process that feeds the GPU",
            loader.workers
        ),
        confidence: Confidence::High,
        share,
        seconds: cost_s,
        evidence: vec![
            evidence(
                "top_offcpu",
                format!(
                    "the job's threads wanted {ratio:.1} times the CPUs it may use ({}), and had none for {} of that time",
                    case.cores_origin(),
                    percent(queued)
                ),
            ),
            evidence(
                "explain_bottleneck",
                format!(
                    "the feeder itself waited {} for a CPU, and {} for workers that had none",
                    duration(case.exposed(&[Part::CpuWait])),
                    duration(case.exposed(&[Part::LoaderCpuWait]))
                ),
            ),
            evidence(
                "list_processes",
                format!(
                    "while they waited, the job itself used {} of the CPUs",
                    percent(contention.job_share)
                ),
            ),
        ],
        ruled_out: vec![
            ruled_out(
                "a neighbour takes the CPUs",
                format!(
                    "processes outside the job used {} of them meanwhile",
                    percent(contention.other_share)
                ),
            ),
            ruled_out(
                "a CPU quota or an affinity mask",
                format!(
                    "only {} of the CPUs idled while the job's threads waited",
                    percent(contention.idle_share)
                ),
            ),
            ruled_out(
                "too few workers",
                format!(
                    "the workers were on a CPU for {} of their lives and wanted one for {}",
                    percent(loader.run_share()),
                    percent(loader.busy_share())
                ),
            ),
        ],
        advice: advice(case, share, computing_s),
        would_not_help: vec![
            "more workers, or a larger prefetch_factor: the CPUs are taken already".to_owned(),
            "pinning the job to fewer CPUs".to_owned(),
        ],
    }))
}

fn advice(case: &Case<'_>, share: f64, computing_s: f64) -> Vec<Advice> {
    let bound = speedup(share);
    let Some(counted) = WorkerCount::of(case) else {
        let workers = case.cores.usable.saturating_sub(1).max(1);
        return vec![Advice {
            change: format!("num_workers={workers}"),
            why: format!(
                "{}, less one for the process that feeds the GPU; the time per batch could not be measured",
                case.cores_origin()
            ),
            snippet: Some(format!("DataLoader(..., num_workers={workers})")),
            expected_speedup: Some(Gain {
                low: 1.0,
                high: bound,
            }),
            check: CHECK.to_owned(),
        }];
    };
    let workers = counted.advised();
    let speedup = counted.speedup(case, bound);
    let fewer = Advice {
        change: format!("num_workers={workers}"),
        why: format!(
            "a step needs {} of worker CPU time and {} otherwise: {} would keep the GPU fed, and the CPUs carry {} ({}, of which the feeder and others take {:.1})",
            duration(counted.cpu_per_step_s),
            duration(counted.rest_of_step_s),
            count(u64::from(counted.need), "worker"),
            counted.cap,
            case.cores_origin(),
            counted.taken_cpus
        ),
        snippet: Some(format!("DataLoader(..., num_workers={workers})")),
        expected_speedup: Some(speedup),
        check: CHECK.to_owned(),
    };
    if !counted.cpu_short() {
        return vec![fewer];
    }
    let loader_s = computing_s + case.exposed(&LOADER_WAITS[1..]) + case.exposed(&[Part::CpuWait]);
    let cheaper = Advice {
        change: cheaper_batches(data_source(case)).to_owned(),
        why: format!(
            "{} of CPU time per step on {:.1} free CPUs cannot keep up with a GPU that takes a batch every {}: no number of workers can, and fewer of them only stop competing",
            duration(counted.cpu_per_step_s),
            f64::from(case.cores.usable) - counted.taken_cpus,
            duration(counted.rest_of_step_s)
        ),
        snippet: None,
        expected_speedup: Some(Gain::up_to(case.share(loader_s))),
        check: "the CPU time of the workers per step must fall".to_owned(),
    };
    vec![fewer, cheaper]
}

const CHECK: &str = "record again: cpu_wait and loader_cpu_wait must shrink in the budget";
