//! WORKER_RESPAWN: loader workers are started anew again and again, for every epoch for example,
//! and each time the GPU waits until they have started and made their first batch.
//!
//! Signature: new workers are forked while the job runs, more than once, and the GPU has nothing to
//! do from the feeder's last call before to its next one, longer than it usually waits. Look-alikes:
//! a checkpoint or a validation at the end of an epoch (then nothing is forked), too few workers
//! (then the GPU waits for every batch as long).

use super::{Outcome, evidence, ruled_out};
use crate::case::{Case, FEWEST_STARTS, NO_TIME_TO_SPARE, Respawns};
use crate::features::Part;
use crate::output::{Advice, Code, Confidence, Finding, Gain, speedup};
use crate::text::{duration, percent};

pub(crate) fn judge(case: &Case<'_>) -> Outcome {
    let feeder = case.feeder;
    let Some(loader) = case.loader else {
        return Outcome::DoesNotHold("no loader worker was seen".to_owned());
    };
    if feeder.respawns < FEWEST_STARTS {
        return Outcome::DoesNotHold(format!(
            "new workers were started {} times while the job ran",
            feeder.respawns
        ));
    }
    let Some(Respawns {
        cost_s,
        most_s,
        ordinary_s,
    }) = case.respawns
    else {
        return Outcome::DoesNotHold(
            "the starts of new workers hardly cost more than ordinary batches".to_owned(),
        );
    };
    let share = case.share(cost_s);
    let starts = feeder.respawns as f64;
    let respawn = &feeder.respawn;
    let own_s = respawn.sum(&[Part::HostCompute, Part::CpuWait]);
    Outcome::Holds(Box::new(Finding {
        code: Code::WorkerRespawn,
        title: format!(
            "new loader workers are started again and again ({} times here), and the GPU waits for each start",
            feeder.respawns
        ),
        confidence: Confidence::High,
        share,
        seconds: cost_s,
        evidence: vec![
            evidence(
                "fork_timeline",
                format!(
                    "{} starts of up to {} workers, one every {}",
                    feeder.respawns,
                    loader.workers,
                    duration(feeder.span_s / starts)
                ),
            ),
            evidence(
                "explain_bottleneck",
                format!(
                    "around a start the GPU had nothing to do for {}; ordinary steps or a batch explain {} of that",
                    duration(case.respawn_s() / starts),
                    duration(ordinary_s)
                ),
            ),
            evidence(
                "correlate_window",
                format!(
                    "of the time around the starts the feeder itself worked, ending the old workers and forking the new ones, for {}; it waited for the new ones for the rest",
                    percent(own_s / case.respawn_s().max(f64::MIN_POSITIVE))
                ),
            ),
        ],
        ruled_out: vec![
            ruled_out(
                "a checkpoint or a validation at the end of the epoch",
                "in every one of these times new workers were forked; only what lies between the job's last call before and its next work for the GPU is counted".to_owned(),
            ),
            ruled_out(
                "too few workers",
                format!(
                    "what an ordinary step waits, or a batch takes to prepare, {}, is not counted",
                    duration(ordinary_s)
                ),
            ),
        ],
        advice: vec![
            Advice {
                change: "keep the workers: one DataLoader for all epochs, with persistent_workers=True".to_owned(),
                why: format!(
                    "each start costs {}, and the workers of one start can serve all epochs",
                    duration(cost_s / starts)
                ),
                snippet: Some("DataLoader(..., persistent_workers=True), made once".to_owned()),
                expected_speedup: Some(Gain {
                    // Workers that are busy all the time would be waited for without a start too.
                    low: if loader.busy_share() < NO_TIME_TO_SPARE {
                        speedup(share / 2.0)
                    } else {
                        1.0
                    },
                    high: speedup(case.share(most_s)),
                }),
                check: "fork_timeline must show one generation of workers".to_owned(),
            },
            Advice {
                change: "where they cannot be kept: arrays instead of lists of objects in the parent, or a small dataset object under spawn".to_owned(),
                why: "a fork copies the page tables of the parent, and spawn pickles the dataset for each worker in turn".to_owned(),
                snippet: None,
                expected_speedup: Some(Gain::up_to(share)),
                check: "the time from fork to first batch in fork_timeline must fall".to_owned(),
            },
        ],
        would_not_help: vec![
            "more workers: each start takes longer".to_owned(),
            "a larger prefetch_factor: the queue of new workers is empty".to_owned(),
        ],
    }))
}
