//! HOST_SERIAL: the main process computes between its CUDA calls while the GPU has nothing to do:
//! logging, tokenizing, sampling, a Python loop.
//!
//! Signature: the feeder is on a CPU for over 0.2 ms at a time between CUDA calls, exposed.
//! Look-alikes: preparing batches (then copies of batches follow), receiving batches from workers,
//! reading from a disk, launching many kernels, and waits for the GPU behind which the work could
//! have been hidden.

use super::{Outcome, Rule, evidence, loader_cpu_bound, loader_ipc_inmem, ruled_out};
use crate::case::{Case, WORTH_NAMING};
use crate::features::Part;
use crate::output::{Advice, Code, Confidence, Finding, Gain};
use crate::text::{duration, percent};

/// Waiting for the disk for this part of the computing time means that the computing reads.
const READING: f64 = 0.3;

pub(crate) fn judge(case: &Case<'_>) -> Outcome {
    let cost_s = case.serial_s();
    let share = case.share(cost_s);
    if share < WORTH_NAMING {
        return Outcome::DoesNotHold(format!(
            "the main thread computed between CUDA calls for {} of the time",
            percent(share)
        ));
    }
    let disk_s = case.exposed(&[Part::Disk]);
    if disk_s >= READING * cost_s {
        return Outcome::DoesNotHold(format!(
            "it also waited {} for the disk: it reads",
            duration(disk_s)
        ));
    }
    let same_work: [Rule; 2] = [
        Rule {
            code: Code::LoaderIpcInmem,
            judge: loader_ipc_inmem::judge,
        },
        Rule {
            code: Code::LoaderCpuBound,
            judge: loader_cpu_bound::of_the_main_process,
        },
    ];
    for rule in same_work {
        if matches!((rule.judge)(case), Outcome::Holds(_)) {
            return Outcome::DoesNotHold(format!("that work is {}", rule.code.name()));
        }
    }
    let steps = case.feeder.steps.max(1) as f64;
    let workers_idle = case.loader.map(|loader| 1.0 - loader.busy_share());
    Outcome::Holds(Box::new(Finding {
        code: Code::HostSerial,
        title: "the main process computes between GPU calls while the GPU has nothing to do"
            .to_owned(),
        confidence: if case.feeder.h2d_copies * 2 < case.feeder.steps {
            Confidence::High
        } else {
            // What it computes may be the batches that it copies.
            Confidence::Medium
        },
        share,
        seconds: cost_s,
        evidence: vec![
            evidence(
                "explain_bottleneck",
                format!(
                    "the main thread was on a CPU for {} per step between its CUDA calls",
                    duration(cost_s / steps)
                ),
            ),
            evidence(
                "cuda_wait_latency",
                format!(
                    "for at least {} of the time the GPU certainly had nothing to do; the longest gaps are listed there",
                    percent(case.gpu_idle_share())
                ),
            ),
        ],
        ruled_out: vec![
            ruled_out(
                "slow loader workers",
                workers_idle.map_or_else(
                    || "there are none".to_owned(),
                    |idle| format!("this time the feeder computed itself; they idled for {} of their lives", percent(idle)),
                ),
            ),
            ruled_out(
                "no CPU for the main thread",
                format!("it waited {} for one", duration(case.exposed(&[Part::CpuWait]))),
            ),
            ruled_out(
                "launching kernels",
                format!("that took {}", percent(case.share(case.launching_s()))),
            ),
        ],
        advice: vec![Advice {
            change: "find out what the main thread computes between the GPU calls, and move it off that thread, vectorize it, or do it less often".to_owned(),
            why: format!(
                "it takes {} of every step, on one thread; which code it is, this recording cannot show",
                duration(cost_s / steps)
            ),
            snippet: Some(format!("py-spy record --pid {}", case.feeder.pid)),
            expected_speedup: Some(Gain::up_to(share)),
            check: "host_compute must shrink in the budget".to_owned(),
        }],
        would_not_help: vec![
            "more loader workers, unless the work turns out to be loading".to_owned(),
            "more cores, or a faster GPU: one thread works while all else waits".to_owned(),
        ],
    }))
}
