//! LAUNCH_BOUND: the GPU runs its many small kernels faster than the host can launch them.
//!
//! Signature: the host is busy from launch to launch, tens of launches for each wait for the GPU,
//! and when it waits, hardly any work is left. Look-alikes: long work between CUDA calls, lack of
//! CPUs, and the recorder itself: a probe costs about as much as a launch, so where the probes take
//! over a fifth of the time nothing can be said.

use super::{Outcome, evidence, ruled_out};
use crate::case::{Case, WORTH_NAMING};
use crate::features::Part;
use crate::output::{Advice, Code, Confidence, Finding, Gain};
use crate::text::{duration, percent};

/// Fewer launches for each wait than this are a step with some calls, not a stream of launches.
const LAUNCHES_PER_WAIT: f64 = 10.0;
/// The recorder's own part above which the launches without it are not known.
const RECORDER_MAX: f64 = 0.2;

/// What a framework does in a step besides launching.
const BESIDE_LAUNCHES: [Part; 4] = [
    Part::HostCompute,
    Part::OwnThread,
    Part::OtherWait,
    Part::Alloc,
];

pub(crate) fn judge(case: &Case<'_>) -> Outcome {
    let feeder = case.feeder;
    let share = case.share(case.launching_s());
    let recorder = case.share(feeder.budget.seconds(Part::Recorder));
    if case.share(case.launching_s()) + recorder < WORTH_NAMING {
        return Outcome::DoesNotHold(format!("launching costs {} of the time", percent(share)));
    }
    let per_wait = feeder.launches as f64 / feeder.readbacks.waits.max(1) as f64;
    if per_wait < LAUNCHES_PER_WAIT {
        return Outcome::DoesNotHold(format!(
            "the host waits for the GPU after {per_wait:.1} launches"
        ));
    }
    if recorder > RECORDER_MAX {
        return Outcome::CannotTell(format!(
            "the recorder's own probes took {} of the time, so what launching costs without them is not known",
            percent(recorder)
        ));
    }
    if share < WORTH_NAMING {
        return Outcome::DoesNotHold(format!("launching costs {} of the time", percent(share)));
    }
    let each_s = case.launching_s() / feeder.launches.max(1) as f64;
    Outcome::Holds(Box::new(Finding {
        code: Code::LaunchBound,
        title: format!(
            "the host cannot launch kernels as fast as the GPU runs them: {:.0} launches a second, {} of host time each",
            feeder.launches as f64 / feeder.span_s,
            duration(each_s)
        ),
        // How long the kernels take is not recorded.
        confidence: Confidence::Medium,
        share,
        seconds: case.launching_s(),
        evidence: vec![
            evidence(
                "explain_bottleneck",
                format!(
                    "the host launched, or computed for less than 0.2 ms between CUDA calls, for {}",
                    duration(case.launching_s())
                ),
            ),
            evidence(
                "cuda_wait_latency",
                format!(
                    "{per_wait:.0} launches for each wait, and the waits for the GPU took {} of the time",
                    percent(case.gpu_wait_share())
                ),
            ),
        ],
        ruled_out: vec![
            ruled_out(
                "the GPU is the limit",
                format!("the host waited for it {} of the time", percent(case.gpu_wait_share())),
            ),
            ruled_out(
                "long work between CUDA calls",
                format!(
                    "computing for longer than 0.2 ms between calls took {}",
                    percent(case.share(case.serial_s()))
                ),
            ),
            ruled_out("the recorder", format!("its probes took {} of the time", percent(recorder))),
        ],
        advice: vec![Advice {
            change: "give the GPU more work with each launch: CUDA graphs or torch.compile(mode=\"reduce-overhead\"), a larger batch, fused optimizers".to_owned(),
            why: "one graph launch stands for hundreds of kernels; how far the job gets then depends on its kernels, whose time this recording does not hold".to_owned(),
            snippet: Some("model = torch.compile(model, mode=\"reduce-overhead\")".to_owned()),
            // A graph of a whole step also leaves out what the host does between its launches, of
            // which more than the launches themselves belongs to something else.
            expected_speedup: Some(Gain::up_to(
                share + case.share(case.exposed(&BESIDE_LAUNCHES)).min(share),
            )),
            check: "cuda_wait_latency must show fewer launches per step".to_owned(),
        }],
        would_not_help: vec![
            "more loader workers, or pinned memory: the host does not wait for data".to_owned(),
            "a faster GPU: it waits for launches already".to_owned(),
        ],
    }))
}
