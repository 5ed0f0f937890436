//! LOADER_IPC_INMEM: batches are so small that handing them from a worker process to the feeder
//! costs more than preparing them.
//!
//! Signature: workers idle for over half of their lives, hundreds of wake-ups a second between
//! them and the feeder, one for two steps or more, and the feeder spends its time receiving.
//! Look-alikes: slow workers (then they compute all the time), slow storage (then they read),
//! other work of the main thread (then its computing per step is long).

use super::{
    DataSource, Outcome, data_evidence, data_source, evidence, index_batches, ruled_out,
    unknown_work,
};
use crate::case::{Case, WORTH_NAMING};
use crate::features::Part;
use crate::output::{Advice, Code, Confidence, Finding, Gain, speedup};
use crate::text::{duration, percent};

/// Workers busy for less than this part of their lives have time to spare.
const IDLE_WORKERS: f64 = 0.5;
/// Hand-overs a second from which on they can be the cost: at less than that, 5% of the time
/// would be over 0.25 ms each.
const HANDOVERS_PER_S: f64 = 200.0;
/// Hand-overs per step from which on the steps depend on them. A full queue hands over without
/// waking anybody, so there can be fewer than one.
const HANDOVERS_PER_STEP: f64 = 0.5;
/// Receiving one small batch (a wake-up, a read, unpickling) takes less than this.
const RECEIVING_S: f64 = 0.002;

pub(crate) fn judge(case: &Case<'_>) -> Outcome {
    let Some(loader) = case.loader else {
        return Outcome::DoesNotHold("no loader worker was seen".to_owned());
    };
    if let Some(missing) = unknown_work(loader) {
        return missing;
    }
    if loader.busy_share() >= IDLE_WORKERS {
        return Outcome::DoesNotHold(format!(
            "the workers wanted a CPU for {} of their lives",
            percent(loader.busy_share())
        ));
    }
    let feeder = case.feeder;
    let cost_s = case.exposed(&[
        Part::HostCompute,
        Part::Submit,
        Part::LoaderCompute,
        Part::LoaderCpuWait,
        Part::LoaderSleep,
    ]);
    let share = case.share(cost_s);
    if share < WORTH_NAMING {
        return Outcome::DoesNotHold(format!(
            "receiving batches cost at most {} of the time",
            percent(share)
        ));
    }
    let handovers = feeder.wakes_by_loader + feeder.wakes_of_loader;
    let per_second = handovers as f64 / feeder.span_s;
    let per_step = handovers as f64 / feeder.steps.max(1) as f64;
    if per_second < HANDOVERS_PER_S || per_step < HANDOVERS_PER_STEP {
        return Outcome::DoesNotHold(format!(
            "the feeder and its workers woke each other only {per_second:.0} times a second"
        ));
    }
    let each_s = cost_s / feeder.steps.max(1) as f64;
    if each_s > RECEIVING_S {
        return Outcome::DoesNotHold(format!(
            "{} per step is more than receiving a batch takes",
            duration(each_s)
        ));
    }
    let source = data_source(case);
    let bound = speedup(share);
    let in_process = Advice {
        change: "num_workers=0".to_owned(),
        why: format!(
            "a step takes {} of worker CPU time, less than the {} that receiving it costs",
            duration(loader.run_s / feeder.steps.max(1) as f64),
            duration(each_s)
        ),
        snippet: Some("DataLoader(..., num_workers=0)".to_owned()),
        expected_speedup: Some(Gain {
            low: 1.0,
            high: bound,
        }),
        check: format!("a step took {} here", duration(case.step_s())),
    };
    let larger = Advice {
        change: "larger batches, if the training allows it".to_owned(),
        why: "the hand-over costs the same for a larger batch, and happens less often".to_owned(),
        snippet: None,
        expected_speedup: None,
        check: "fewer switches per sample in top_offcpu".to_owned(),
    };
    let mut advice = Vec::new();
    if source == DataSource::Memory {
        advice.push(index_batches(case, cost_s, true));
    }
    advice.extend([in_process, larger]);
    Outcome::Holds(Box::new(Finding {
        code: Code::LoaderIpcInmem,
        title: "the GPU waits while small batches are handed from worker processes to the feeder, which costs more than preparing them".to_owned(),
        confidence: if source == DataSource::Memory { Confidence::High } else { Confidence::Medium },
        share,
        seconds: cost_s,
        evidence: vec![
            evidence(
                "explain_bottleneck",
                format!(
                    "the feeder spent {} per step receiving: {} computing, the rest waiting for workers that idle",
                    duration(each_s),
                    percent(case.exposed(&[Part::HostCompute, Part::Submit]) / cost_s)
                ),
            ),
            evidence(
                "top_offcpu",
                format!("the feeder and its workers woke each other {per_second:.0} times a second, {per_step:.1} times per step"),
            ),
            evidence(
                "list_processes",
                format!(
                    "the {} workers were on a CPU for only {} of their lives",
                    loader.workers,
                    percent(loader.run_share())
                ),
            ),
            data_evidence(case),
        ],
        ruled_out: vec![
            ruled_out("too few workers", format!("they idled for {} of their lives", percent(1.0 - loader.busy_share()))),
            ruled_out("slow storage", format!("the workers waited {} for the disk", duration(loader.disk_s))),
        ],
        advice,
        would_not_help: vec![
            format!("more workers, such as usable CPUs - 1 = {}: those that are there idle", case.cores.usable.saturating_sub(1).max(1)),
            "pin_memory: it adds another hand-over".to_owned(),
        ],
    }))
}
