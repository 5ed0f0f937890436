//! From the tables to the numbers that the diagnosis reasons from.

mod budget;
mod costs;
mod cpu;
mod job;
mod load;
mod readback;
mod respawn;
mod timeline;

pub(crate) use budget::Job;
pub(crate) use job::job;
#[cfg(test)]
pub(crate) use timeline::Wait;
pub(crate) use timeline::{Activity, Blocked, Timeline, Waker};

use crate::call_kind::CallKind;
use crate::coverage::Source;
use crate::names::Names;
use crate::roles::roles;
use crate::{AnalysisError, Window, ask, coverage};
use budget::Spent;
use costs::is_blocking_copy;
use cpu::{
    CpuTime, QueuedTime, bytes_read, contention, cpu_times, lives, loader, preempted_by_others,
    throttled,
};
use ingero_diagnosis::{Budget, Contention, Cores, Features, Feeder, Part, Readbacks, Recorded};
use ingero_trace::{Trace, TraceInfo};
use timeline::Call;

/// The first steps warm up (contexts, modules, caches) and say nothing about the others.
pub(crate) const WARM_UP_STEPS: u64 = 3;
/// A job shorter than this many steps is judged whole.
pub(crate) const STEPS_TO_SKIP_WARM_UP: u64 = 10;
/// Width of the buckets of `cpu_time`.
const BUCKET_NS: i64 = 100_000_000;
const NS: f64 = 1e-9;
const NS_PER_MS: f64 = 1e6;

/// The numbers about one window: about the feeder of process `pid`, or of the process that makes
/// the most CUDA calls.
///
/// # Errors
/// If the trace cannot be read.
pub fn features(
    trace: &Trace,
    window: Window,
    pid: Option<i32>,
) -> Result<Features, AnalysisError> {
    let info = trace.info()?;
    let mut features = Features {
        window_start_ms: window.start_ns as f64 / NS_PER_MS,
        window_end_ms: window.end_ns as f64 / NS_PER_MS,
        recorded: recorded(trace, &info, window)?,
        cores: cores(&info),
        ..Features::default()
    };
    let roles = roles(trace)?;
    let mut feeders = roles.feeders.iter();
    let Some(feeder) = feeders.find(|feeder| pid.is_none_or(|pid| pid == feeder.pid)) else {
        return Ok(features);
    };
    if roles.feeders.len() > 1 {
        features.recorded.caveats.push(format!(
            "{} processes give a GPU work; this is about process {}, ask for another with pid",
            roles.feeders.len(),
            feeder.pid
        ));
    }
    let mut job = job(trace, window, &roles, Some(feeder))?;
    let of_feeder = job.threads.values().filter(|t| t.pid() == feeder.pid);
    let first_call_ns = of_feeder
        .filter_map(|thread| Some(thread.calls().first()?.start_ns))
        .min();
    let since_first_call_s =
        first_call_ns.map_or(0.0, |first| (window.end_ns - first).max(0) as f64 * NS);
    let lives = lives(trace)?;
    job.respawns = respawn::starts(&job, &lives);
    let identity = Feeder {
        pid: feeder.pid,
        tid: feeder.tid,
        name: ask(trace, Names::read)?.of(feeder.pid),
        since_first_call_s,
        ..Feeder::default()
    };
    let Some(span) = active_span(&job, window, &info) else {
        features.feeder = Some(identity);
        return Ok(features);
    };
    let read = bytes_read(trace, span)?;
    let cpu = cpu_times(trace, span)?;
    let queued = QueuedTime::of(&job, span);
    let (wakes_by_loader, wakes_of_loader) = handovers(&job, span);
    features.loader = loader(&job, &lives, span, &cpu, &queued, &read);
    features.contention = Contention {
        preempted_by_others: preempted_by_others(trace, span)?,
        throttled: throttled(trace, span)?,
        ..contention(&cpu, &queued, &features.cores)
    };
    features.feeder = Some(Feeder {
        pid: identity.pid,
        tid: identity.tid,
        name: identity.name,
        since_first_call_s,
        rchar_bytes: read.get(&feeder.pid).copied(),
        wakes_by_loader,
        wakes_of_loader,
        batch_interval_s: respawn::batch_interval_s(&job, &lives),
        ..feeder_numbers(&job, span, &cpu, info.probe_pair_cost_ns.unwrap_or(0))
    });
    Ok(features)
}

fn recorded(trace: &Trace, info: &TraceInfo, window: Window) -> Result<Recorded, AnalysisError> {
    const SOURCES: [Source; 3] = [Source::Scheduler, Source::Processes, Source::Cuda];
    let unsigned = |count: i64| u64::try_from(count).unwrap_or(0);
    Ok(Recorded {
        cuda: coverage::records_cuda(info),
        switches: info
            .probes
            .iter()
            .any(|probe| probe.attached && probe.name == "sched_switch"),
        lost: coverage::missing(trace, window, &SOURCES)?
            .into_iter()
            .map(|(class, count)| (class, unsigned(count)))
            .collect(),
        caveats: coverage::caveats(trace, info, window, &SOURCES)?,
    })
}

fn cores(info: &TraceInfo) -> Cores {
    let positive = |cores: i32| u32::try_from(cores).unwrap_or(0);
    Cores {
        online: positive(info.cores_online),
        affinity: info.cores_affinity.map(positive),
        quota: info.cgroup_quota_cores,
        usable: positive(info.cores_usable).max(1),
    }
}

/// How often in the span a loader woke the feeder's process, and how often it woke a loader.
fn handovers(job: &Job, span: Window) -> (u64, u64) {
    let (mut by_loader, mut of_loader) = (0, 0);
    for timeline in job.threads.values() {
        let pid = timeline.pid();
        for wait in timeline.waits() {
            if wait.woken_ns < span.start_ns || wait.woken_ns >= span.end_ns {
                continue;
            }
            if let Waker::Thread { pid: waker, .. } = wait.waker {
                by_loader += u64::from(pid == job.feeder_pid && job.loaders.contains(&waker));
                of_loader += u64::from(job.loaders.contains(&pid) && waker == job.feeder_pid);
            }
        }
    }
    (by_loader, of_loader)
}

/// From the end of the warm-up to the last call, or to the end of the window where the feeder
/// still waits for something then; `None` if the GPU was given no work.
fn active_span(job: &Job, window: Window, info: &TraceInfo) -> Option<Window> {
    let feeder = job.threads.get(&job.feeder_tid)?;
    let calls = feeder.calls();
    let first = calls.iter().find(|call| call.kind.enqueues())?;
    let mut start_ns = first.start_ns.max(window.start_ns);
    let rounds: Vec<i64> = feeder.rounds().collect();
    if rounds.len() as u64 >= STEPS_TO_SKIP_WARM_UP {
        start_ns = start_ns.max(rounds[WARM_UP_STEPS as usize - 1]);
    }
    let last_call_ns = calls.last().map_or(start_ns, |call| call.end_ns);
    let hangs = feeder.waits().last().is_some_and(|wait| {
        wait.start_ns >= last_call_ns
            && wait.end_ns >= info.duration_ns
            && wait.waker == Waker::Unknown
            && wait.blocked != Blocked::Ended
    });
    let end_ns = if hangs {
        window.end_ns
    } else {
        last_call_ns.min(window.end_ns)
    };
    (end_ns > start_ns).then_some(Window { start_ns, end_ns })
}

/// The numbers that come from the feeder's own timeline.
fn feeder_numbers(job: &Job, span: Window, cpu: &[CpuTime], probe_pair_ns: i64) -> Feeder {
    let Spent {
        mut budget,
        mut exposed,
        gpu_idle_ns,
        prepare_s,
        respawn,
        hideable,
    } = job.spend(span.start_ns, span.end_ns);
    let inside = |call: &&Call| call.start_ns < span.end_ns && call.end_ns > span.start_ns;
    // Other threads of the process give the GPU work too, as those that run a backward pass do.
    let calls: Vec<&Call> = job
        .threads
        .values()
        .filter(|thread| thread.pid() == job.feeder_pid)
        .flat_map(|thread| thread.calls().iter().filter(inside))
        .collect();
    let of_kind = |kind: CallKind| calls.iter().filter(move |call| call.kind == kind);
    let count = |kind: CallKind| of_kind(kind).count() as u64;
    let bytes = |call: &&&Call| u64::try_from(call.bytes).unwrap_or(0);
    let blocking = || calls.iter().filter(|call| is_blocking_copy(call));
    let h2d_copies = count(CallKind::CopyToDevice);
    let rounds = job.threads.get(&job.feeder_tid).map_or(0, |feeder| {
        let in_span = |end: &i64| (span.start_ns + 1..=span.end_ns).contains(end);
        feeder.rounds().filter(in_span).count() as u64
    });

    let probe_pairs: i64 = calls.iter().map(|call| call.probe_pairs).sum();
    let probes_s = probe_pairs as f64 * probe_pair_ns as f64 * NS;
    charge_recorder(&mut budget, &mut exposed, probes_s);
    // What the switches show as running cannot be more than its process ran: the rest was not
    // recorded.
    let ran_s: f64 = cpu
        .iter()
        .filter(|time| time.pid == job.feeder_pid)
        .map(|time| time.run_ns * NS)
        .sum();
    charge_unknown(&mut budget, &mut exposed, ran_s);
    let in_span = |start: &&respawn::Start| (span.start_ns..span.end_ns).contains(&start.from_ns);
    let starts: Vec<&respawn::Start> = job.respawns.iter().filter(in_span).collect();
    Feeder {
        span_start_ms: span.start_ns as f64 / NS_PER_MS,
        span_s: span.dur_ns() as f64 * NS,
        // A job that hardly ever waits for the GPU is counted by the batches it copies.
        steps: if rounds >= STEPS_TO_SKIP_WARM_UP {
            rounds
        } else {
            rounds.max(h2d_copies)
        },
        launches: count(CallKind::Launch),
        h2d_copies,
        h2d_bytes: of_kind(CallKind::CopyToDevice)
            .map(|call| bytes(&call))
            .sum(),
        blocking_copies: blocking().count() as u64,
        blocking_copy_bytes: blocking().map(|call| bytes(&call)).sum(),
        allocations: count(CallKind::Alloc),
        frees: count(CallKind::Free),
        failed_allocations: of_kind(CallKind::Alloc).filter(|call| call.failed).count() as u64,
        gpu_idle_lower_bound_s: gpu_idle_ns as f64 * NS,
        prepare_s,
        readbacks: Readbacks {
            waits: hideable.waits,
            own_s: hideable.own_s,
            hideable_s: hideable.at_least_s,
            hideable_most_s: hideable.at_most_s,
        },
        respawns: starts.len() as u64,
        respawn_later_s: starts
            .iter()
            .map(|start| start.later_ns as f64 / start.workers.max(1) as f64 * NS)
            .sum(),
        respawn,
        budget,
        exposed,
        ..Feeder::default()
    }
}

/// Parts in which the feeder was on a CPU doing its own work.
const OWN_WORK: [Part; 3] = [Part::HostCompute, Part::Submit, Part::Alloc];

/// Takes the cost of the probes out of the parts that contain it.
pub(crate) fn charge_recorder(budget: &mut Budget, exposed: &mut Budget, cost_s: f64) {
    move_share(budget, exposed, &OWN_WORK, Part::Recorder, cost_s);
}

/// The recording shows more running than there was: the difference is a gap in the recording.
fn charge_unknown(budget: &mut Budget, exposed: &mut Budget, ran_s: f64) {
    let shown = budget.sum(&OWN_WORK) + budget.sum(&[Part::Copy, Part::Recorder]);
    move_share(budget, exposed, &OWN_WORK, Part::Unknown, shown - ran_s);
}

/// Moves up to `seconds` from some parts to another, in proportion.
fn move_share(budget: &mut Budget, exposed: &mut Budget, from: &[Part], to: Part, seconds: f64) {
    let available = budget.sum(from);
    if available <= 0.0 || seconds <= 0.0 {
        return;
    }
    let share = (seconds / available).min(1.0);
    for budget in [budget, exposed] {
        for part in from {
            let moved = budget.seconds(*part) * share;
            budget.add(*part, -moved);
            budget.add(to, moved);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingero_testkit::trace::info;
    use ingero_trace::TraceWriter;
    use ingero_trace::rows::CudaCall;

    /// The recorder's part of a job of 50 launches and waits, in which the probes of `nested` more
    /// calls fired each time.
    fn recorder_s(nested: Option<i32>) -> f64 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.duckdb");
        let mut writer = TraceWriter::create(&path).unwrap();
        for number in 0..100 {
            let launches = number % 2 == 0;
            writer.push(CudaCall {
                ts_ns: number * 1_000_000,
                dur_ns: 500_000,
                pid: 100,
                tid: 100,
                layer: "runtime".into(),
                call: if launches {
                    "cudaLaunchKernel"
                } else {
                    "cudaStreamSynchronize"
                }
                .into(),
                bytes: None,
                direction: None,
                stream: Some(0),
                status: Some(0),
                open: false,
                continued: false,
                nested,
            });
        }
        writer.finish(&info(200_000_000)).unwrap();
        let trace = Trace::open(&path).unwrap();
        let window = Window::whole(&trace.info().unwrap());
        let feeder = features(&trace, window, None).unwrap().feeder.unwrap();
        feeder.budget.seconds(Part::Recorder)
    }

    #[test]
    fn the_recorder_pays_for_the_probes_of_calls_inside_of_calls() {
        let plain = recorder_s(Some(0));
        assert!(plain > 0.0);
        assert_eq!(recorder_s(None), plain);
        assert!((recorder_s(Some(3)) / plain - 4.0).abs() < 1e-9);
    }
}
