//! SYNC_EVERY_STEP: the host waits for the GPU and only then prepares its next work, so that each
//! idles while the other works.
//!
//! Signature: after waits for the GPU the host works on a CPU before it gives the GPU more, and at
//! least half of each such time would have fitted into the wait before it. Look-alikes: host work much longer
//! than the waits (then it is the work that counts), a wait at the end of a step of a job that is
//! limited by the GPU (then the GPU hardly idles).

use super::{Outcome, evidence, ruled_out};
use crate::case::{Case, WORTH_NAMING};
use crate::output::{Advice, Code, Confidence, Finding, Gain};
use crate::text::{duration, percent};

/// Below this part of idle time the waits may be worth little.
const CLEAR: f64 = 0.15;

pub(crate) fn judge(case: &Case<'_>) -> Outcome {
    let feeder = case.feeder;
    let readbacks = &feeder.readbacks;
    let share = case.share(readbacks.hideable_s);
    if share < WORTH_NAMING {
        return Outcome::DoesNotHold(format!(
            "at most {} of the time could be won by not waiting for the GPU",
            percent(share)
        ));
    }
    let waits = readbacks.waits as f64;
    let steps = feeder.steps.max(1) as f64;
    Outcome::Holds(Box::new(Finding {
        code: Code::SyncEveryStep,
        title: format!(
            "the host waits for the GPU {:.0} times a second and then works while the GPU has nothing to do",
            waits / feeder.span_s
        ),
        confidence: if case.gpu_idle_share() >= CLEAR {
            Confidence::High
        } else {
            Confidence::Medium
        },
        share,
        seconds: readbacks.hideable_s,
        evidence: vec![
            evidence(
                "cuda_wait_latency",
                format!(
                    "the host waited for the GPU {:.1} times per step, for {:.1} launches each",
                    waits / steps,
                    feeder.launches as f64 / waits
                ),
            ),
            evidence(
                "explain_bottleneck",
                format!(
                    "after a wait the host worked {} before it gave the GPU more; the GPU idled for at least {} of the time",
                    duration(readbacks.own_s / waits),
                    percent(case.gpu_idle_share())
                ),
            ),
        ],
        ruled_out: vec![
            ruled_out(
                "the GPU is the limit",
                format!(
                    "it had nothing to do for at least {} of the time",
                    percent(case.gpu_idle_share())
                ),
            ),
            ruled_out(
                "too much work on the host",
                format!(
                    "{} of its work after waits would fit behind the GPU's work",
                    percent(readbacks.hideable_s / readbacks.own_s.max(f64::MIN_POSITIVE))
                ),
            ),
        ],
        advice: vec![Advice {
            change: "wait for the GPU less often: keep losses and metrics on the GPU and read them every n steps".to_owned(),
            why: ".item(), .cpu(), .tolist(), print of a tensor, bool(tensor) and nonzero() all wait for the GPU; the host could prepare the next step meanwhile. A value that decides the next step cannot wait".to_owned(),
            snippet: Some("total += loss.detach(); if step % 50 == 0: print(total.item())".to_owned()),
            expected_speedup: Some(Gain::up_to(case.share(readbacks.hideable_most_s))),
            check: "cuda_wait_latency must show fewer waits, and the share of the time in which the GPU was idle must fall".to_owned(),
        }],
        would_not_help: vec![
            "more loader workers, or pinned memory: the host does not wait for data".to_owned(),
        ],
    }))
}
