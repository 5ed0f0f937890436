//! QUOTA_THROTTLE: the CPU quota of the job's cgroup is used up early in each period, and the whole
//! job stops until the next one while CPUs are idle.
//!
//! Signature: threads that are ready have no CPU, and the kernel counts throttled periods: half of them
//! and more, or a tenth while at least half of the CPUs are idle. Look-alikes: an affinity mask (then the CPUs in the mask are
//! busy), a neighbour or too many workers (then no CPU idles).

use super::{Outcome, evidence, queued_evidence, ruled_out};
use crate::case::{Case, Shortage, WORTH_NAMING};
use crate::output::{Advice, Code, Confidence, Finding, Gain};
use crate::text::percent;

pub(crate) fn judge(case: &Case<'_>) -> Outcome {
    let Some(quota) = case.cores.quota else {
        return Outcome::DoesNotHold("no CPU quota limits the job".to_owned());
    };
    let share = case.share(case.queued_s());
    if share < WORTH_NAMING {
        return Outcome::DoesNotHold(format!(
            "waiting for a CPU costs {} of the time",
            percent(share)
        ));
    }
    let Some(throttled) = case.contention.throttled else {
        return Outcome::CannotTell(
            "the counters of the cgroup with the CPU quota were not sampled".to_owned(),
        );
    };
    if case.shortage() != Shortage::Quota {
        return Outcome::DoesNotHold(format!(
            "the job was throttled in {} of the quota's periods, and {} of the CPUs idled while its threads waited for one",
            percent(case.throttled_share()),
            percent(case.contention.idle_share)
        ));
    }
    let wanted = (case.load_ratio() * f64::from(case.cores.usable))
        .ceil()
        .clamp(
            quota.ceil() + 1.0,
            f64::from(case.cores.online).max(quota.ceil() + 1.0),
        );
    let fits = (quota.floor() as u32).max(1);
    Outcome::Holds(Box::new(Finding {
        code: Code::QuotaThrottle,
        title: format!(
            "the CPU quota of {quota:.1} CPUs stops the whole job again and again while CPUs are idle"
        ),
        confidence: Confidence::High,
        share,
        seconds: case.queued_s(),
        evidence: vec![
            evidence(
                "explain_bottleneck",
                format!(
                    "the job was throttled in {} of {} periods of the quota",
                    throttled.throttled, throttled.periods
                ),
            ),
            queued_evidence(case),
            evidence(
                "list_processes",
                format!(
                    "{} of the CPUs were idle meanwhile ({})",
                    percent(case.contention.idle_share),
                    case.cores_origin()
                ),
            ),
        ],
        ruled_out: vec![
            ruled_out(
                "a neighbour takes the CPUs",
                format!(
                    "processes outside the job used {} of them",
                    percent(case.contention.other_share)
                ),
            ),
            ruled_out(
                "too many workers for the CPUs of the host",
                format!("the job used only {} of them", percent(case.contention.job_share)),
            ),
        ],
        advice: vec![
            Advice {
                change: format!("raise the CPU quota of the job's cgroup from {quota:.1} to {wanted:.0} CPUs"),
                why: format!(
                    "on average {:.1} of the job's threads ran or were ready to",
                    case.load_ratio() * f64::from(case.cores.usable)
                ),
                snippet: Some("docker run --cpus, resources.limits.cpu in Kubernetes, CPUQuota= in systemd, or cpu.max".to_owned()),
                expected_speedup: Some(Gain::of(share)),
                check: "record again: fewer periods throttled, and cpu_wait and loader_cpu_wait gone from the budget".to_owned(),
            },
            Advice {
                change: format!(
                    "where the quota must stay: size the pools to it, num_workers={} and {} for each pool of threads",
                    fits.saturating_sub(1).max(1),
                    if fits == 1 { "1 thread".to_owned() } else { format!("{fits} threads") }
                ),
                why: "threads beyond the quota use it up earlier in each period, and then all of them stop, the feeder too".to_owned(),
                snippet: Some(format!("torch.set_num_threads({fits})")),
                expected_speedup: None,
                check: "fewer periods throttled".to_owned(),
            },
        ],
        would_not_help: vec![
            "sizing pools by os.cpu_count() or os.sched_getaffinity(): neither sees a quota".to_owned(),
            "more workers, or a machine with more CPUs under the same quota".to_owned(),
        ],
    }))
}
