//! ALLOC_CHURN: memory is allocated and freed through CUDA in every step.
//!
//! Signature: allocating and freeing cost 5% of the time and more, and there is at least one such
//! call for every two steps. Freeing waits for the GPU's work; what a free takes beyond its own
//! cost is that wait and not counted. Look-alikes: a free that only absorbs GPU time, allocations
//! of the first steps.

use super::{Outcome, evidence, ruled_out};
use crate::case::{Case, WORTH_NAMING};
use crate::features::Part;
use crate::output::{Advice, Code, Confidence, Finding, Gain, speedup};
use crate::text::{count, duration, percent};

/// Calls per step from which on they are no growth of the first steps.
const CALLS_PER_STEP: f64 = 0.5;

pub(crate) fn judge(case: &Case<'_>) -> Outcome {
    let feeder = case.feeder;
    let cost_s = case.exposed(&[Part::Alloc]);
    let share = case.share(cost_s);
    if share < WORTH_NAMING {
        return Outcome::DoesNotHold(format!(
            "allocating and freeing through CUDA cost {} of the time",
            percent(share)
        ));
    }
    let calls = feeder.allocations + feeder.frees;
    let steps = feeder.steps.max(1) as f64;
    if (calls as f64) < CALLS_PER_STEP * steps {
        return Outcome::DoesNotHold(format!(
            "{} in {} are no habit",
            count(calls, "allocation"),
            count(feeder.steps, "step")
        ));
    }
    let mut advice = vec![Advice {
        change: "keep memory and use it again: no torch.cuda.empty_cache() in the loop, buffers allocated once, pinned buffers too".to_owned(),
        why: "a caching allocator takes memory from CUDA once; calls in every step mean that it is given back or bypassed".to_owned(),
        snippet: None,
        expected_speedup: Some(Gain {
            low: speedup(share / 2.0),
            // Without frees to wait in, the host can run ahead of the GPU.
            high: speedup(case.share(
                feeder.budget.seconds(Part::Alloc) + feeder.readbacks.hideable_most_s,
            )),
        }),
        check: "cuda_wait_latency must show no allocations after the first steps".to_owned(),
    }];
    if feeder.failed_allocations > 0 {
        advice.push(Advice {
            change: "use less memory, or let the allocator grow its segments".to_owned(),
            why: format!(
                "{} failed: the memory is at its limit, and the allocator empties its cache to try again",
                count(feeder.failed_allocations, "allocation")
            ),
            snippet: Some("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True".to_owned()),
            expected_speedup: None,
            check: "no failed allocations in cuda_wait_latency".to_owned(),
        });
    }
    Outcome::Holds(Box::new(Finding {
        code: Code::AllocChurn,
        title: format!(
            "memory is allocated and freed through CUDA {:.1} times per step",
            calls as f64 / steps
        ),
        confidence: Confidence::High,
        share,
        seconds: cost_s,
        evidence: vec![
            evidence(
                "cuda_wait_latency",
                format!(
                    "{} and {} in {}",
                    count(feeder.allocations, "allocation"),
                    count(feeder.frees, "free"),
                    count(feeder.steps, "step")
                ),
            ),
            evidence(
                "explain_bottleneck",
                format!(
                    "they took {} per step, without what the frees waited for the GPU",
                    duration(cost_s / steps)
                ),
            ),
        ],
        ruled_out: vec![
            ruled_out(
                "frees that only wait for the GPU",
                "a free counts with what it takes when the GPU is idle; the rest of it is counted as a wait for the GPU".to_owned(),
            ),
            ruled_out(
                "the allocations of the first steps",
                "the first three steps are left out".to_owned(),
            ),
        ],
        advice,
        would_not_help: vec![
            "calling torch.cuda.empty_cache(): it causes such calls".to_owned(),
        ],
    }))
}
