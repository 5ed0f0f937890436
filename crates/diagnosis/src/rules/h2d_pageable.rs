//! H2D_PAGEABLE: the host copies batches to the GPU from memory that is not pinned, which takes
//! longer and holds the host up until the copy is done.
//!
//! Signature: large copies to the device that return only after a time that their bytes explain at
//! 1 to 14 GB/s. Look-alikes: waiting for the GPU in the copy (what is longer than the usual rate
//! is not counted), synchronous copies from pinned memory (then the rate is higher), many small
//! copies (then it is their number that costs).

use super::{Outcome, evidence, ruled_out};
use crate::case::{Case, WORTH_NAMING};
use crate::features::Part;
use crate::output::{Advice, Code, Confidence, Finding, Gain, speedup};
use crate::text::{bytes, duration, percent};

/// Smaller copies take their fixed cost and no bandwidth.
const LARGE_BYTES: f64 = 256.0 * 1024.0;
/// Pageable memory moves at 3 to 12 GB/s; a loaded machine is slower.
const PAGEABLE_GB_PER_S: std::ops::RangeInclusive<f64> = 1.0..=14.0;
/// What a PCIe 5 link moves from pinned memory, in GB/s: the copies still take this long.
const PINNED_GB_PER_S: f64 = 55.0;

pub(crate) fn judge(case: &Case<'_>) -> Outcome {
    let feeder = case.feeder;
    let cost_s = case.exposed(&[Part::Copy]);
    let share = case.share(cost_s);
    if share < WORTH_NAMING {
        return Outcome::DoesNotHold(format!(
            "copying to the GPU held the host up for {} of the time",
            percent(share)
        ));
    }
    let each = feeder.blocking_copy_bytes as f64 / feeder.blocking_copies.max(1) as f64;
    if each < LARGE_BYTES {
        return Outcome::DoesNotHold(format!("the copies are small: {} each", bytes(each)));
    }
    let rate = feeder.blocking_copy_bytes as f64
        / 1e9
        / feeder.budget.seconds(Part::Copy).max(f64::MIN_POSITIVE);
    if !PAGEABLE_GB_PER_S.contains(&rate) {
        return Outcome::DoesNotHold(format!(
            "the copies run at {rate:.1} GB/s, which is not the rate of pageable memory"
        ));
    }
    let goes = share * (1.0 - rate / PINNED_GB_PER_S);
    let gain = Gain {
        low: speedup(goes / 2.0),
        high: speedup(goes),
    };
    let steps = feeder.steps.max(1) as f64;
    let mut advice = Vec::new();
    if case.loader.is_some() {
        advice.push(Advice {
            change: "pin the batches in the loader and copy them asynchronously".to_owned(),
            why: "from pinned memory the GPU fetches the batch itself, while the host goes on; the loader's pin thread does the extra copy beside the training".to_owned(),
            snippet: Some("DataLoader(..., pin_memory=True) and batch.to(device, non_blocking=True)".to_owned()),
            expected_speedup: Some(gain),
            check: CHECK.to_owned(),
        });
    } else {
        advice.push(Advice {
            change: "keep the data on the GPU if it fits there; otherwise pin it once and copy asynchronously".to_owned(),
            why: format!(
                "{} go to the GPU in every step; from pinned memory the GPU fetches them itself, while the host goes on",
                bytes(feeder.h2d_bytes as f64 / steps)
            ),
            snippet: Some("X = X.to(device) once, before the loop; or X = X.pin_memory() once and X[i:j].to(device, non_blocking=True)".to_owned()),
            expected_speedup: Some(Gain { low: gain.low, high: speedup(share) }),
            check: CHECK.to_owned(),
        });
    }
    advice.push(Advice {
        change: "send fewer bytes: a smaller type (uint8 images, bfloat16), converted on the GPU"
            .to_owned(),
        why: "the copies take as long as their bytes".to_owned(),
        snippet: None,
        expected_speedup: Some(Gain::up_to(share)),
        check: CHECK.to_owned(),
    });
    Outcome::Holds(Box::new(Finding {
        code: Code::H2dPageable,
        title: format!(
            "the host is held up by copies to the GPU at {rate:.1} GB/s, the rate of memory that is not pinned"
        ),
        // The rate tells, not the allocation.
        confidence: if share >= 0.1 {
            Confidence::High
        } else {
            Confidence::Medium
        },
        share,
        seconds: cost_s,
        evidence: vec![
            evidence(
                "cuda_wait_latency",
                format!(
                    "{} blocking copies of {} each took {} without their waits for the GPU",
                    feeder.blocking_copies,
                    bytes(each),
                    duration(feeder.budget.seconds(Part::Copy))
                ),
            ),
            evidence(
                "explain_bottleneck",
                format!(
                    "{} of copying per step, of a step of {}",
                    duration(cost_s / steps),
                    duration(case.step_s())
                ),
            ),
        ],
        ruled_out: vec![
            ruled_out(
                "the GPU is the limit",
                format!(
                    "waiting for kernels, in these copies too, took {}",
                    percent(case.gpu_wait_share())
                ),
            ),
            ruled_out(
                "synchronous copies from pinned memory",
                format!("those run at 20 GB/s and more, these at {rate:.1}"),
            ),
        ],
        advice,
        would_not_help: vec![
            "batch.pin_memory() in every step: it copies the batch once more on the same thread"
                .to_owned(),
            "non_blocking=True alone: without pinned memory the copy blocks".to_owned(),
        ],
    }))
}

const CHECK: &str = "copy_to_gpu must be gone from the budget";
