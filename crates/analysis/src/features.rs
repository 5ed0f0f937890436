//! From the tables to the numbers that the diagnosis reasons from.

use crate::budget::{Job, Spent};
use crate::coverage::Source;
use crate::roles::roles;
use crate::timeline::{Blocked, Call, CallKind, Timeline, Wait, Waker};
use crate::{AnalysisError, Window, ask, coverage};
use ingero_diagnosis::{Budget, Contention, Cores, Features, Feeder, Loader, Part, Recorded};
use ingero_trace::duckdb::arrow::array::{Array, AsArray};
use ingero_trace::duckdb::arrow::datatypes::{Int32Type, Int64Type};
use ingero_trace::duckdb::arrow::record_batch::RecordBatch;
use ingero_trace::duckdb::{self, named_params};
use ingero_trace::{Trace, TraceInfo};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The first steps warm up (contexts, modules, caches) and say nothing about the others.
const WARM_UP_STEPS: u64 = 3;
/// A job shorter than this many steps is judged whole.
const STEPS_TO_SKIP_WARM_UP: u64 = 10;
/// Width of the buckets of `cpu_time`.
const BUCKET_NS: i64 = 100_000_000;
const NS: f64 = 1e-9;
const NS_PER_MS: f64 = 1e6;

/// The time a process lived.
#[derive(Debug, Clone, Copy)]
struct Life {
    pid: i32,
    born_ns: i64,
    ended_ns: i64,
}

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
    let calls = calls(trace, window, feeder.pid)?;
    let first_call_ns = calls.values().flatten().map(|call| call.start_ns).min();
    let since_first_call_s =
        first_call_ns.map_or(0.0, |first| (window.end_ns - first).max(0) as f64 * NS);
    let job = Job {
        threads: threads(trace, window, feeder.pid, calls)?,
        feeder_pid: feeder.pid,
        feeder_tid: feeder.tid,
        loaders: roles
            .workers
            .iter()
            .filter(|worker| worker.feeder_pid == feeder.pid)
            .map(|worker| worker.pid)
            .collect(),
    };
    let identity = Feeder {
        pid: feeder.pid,
        tid: feeder.tid,
        name: name_of(trace, feeder.pid)?,
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
    features.loader = loader(&job, &lives(trace)?, span, &cpu, &queued, &read);
    features.contention = contention(&cpu, &queued, features.cores.online);
    features.feeder = Some(Feeder {
        pid: identity.pid,
        tid: identity.tid,
        name: identity.name,
        since_first_call_s,
        rchar_bytes: read.get(&feeder.pid).copied(),
        wakes_by_loader,
        wakes_of_loader,
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
        lost: coverage::lost(trace, window)?
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

fn name_of(trace: &Trace, pid: i32) -> Result<String, AnalysisError> {
    ask(trace, |c| {
        c.query_row(
            "SELECT coalesce(last(name ORDER BY ts_ns), '') FROM process_events WHERE pid = ? AND tid = pid",
            [pid],
            |row| row.get(0),
        )
    })
}

/// One column of a batch of 64-bit integers.
fn longs<'a>(batch: &'a RecordBatch, name: &str) -> duckdb::Result<&'a [i64]> {
    column(batch, name)?
        .as_primitive_opt::<Int64Type>()
        .map(|column| column.values().as_ref())
        .ok_or_else(|| duckdb::Error::InvalidColumnName(name.to_owned()))
}

/// One column of a batch of 32-bit integers.
fn integers<'a>(batch: &'a RecordBatch, name: &str) -> duckdb::Result<&'a [i32]> {
    column(batch, name)?
        .as_primitive_opt::<Int32Type>()
        .map(|column| column.values().as_ref())
        .ok_or_else(|| duckdb::Error::InvalidColumnName(name.to_owned()))
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> duckdb::Result<&'a dyn Array> {
    batch
        .column_by_name(name)
        .map(AsRef::as_ref)
        .ok_or_else(|| duckdb::Error::InvalidColumnName(name.to_owned()))
}

/// The CUDA calls of the feeder's process by thread.
fn calls(
    trace: &Trace,
    window: Window,
    pid: i32,
) -> Result<HashMap<i32, Vec<Call>>, AnalysisError> {
    ask(trace, |c| {
        let mut calls: HashMap<i32, Vec<Call>> = HashMap::new();
        let mut statement = c.prepare(include_str!("features_calls.sql"))?;
        for batch in statement.query_arrow(named_params! {
            "pid": pid, "start_ns": window.start_ns, "end_ns": window.end_ns
        })? {
            let tid = integers(&batch, "tid")?;
            let (start, end) = (longs(&batch, "start_ns")?, longs(&batch, "end_ns")?);
            let bytes = longs(&batch, "bytes")?;
            let names = column(&batch, "call")?.as_string::<i32>();
            let directions = column(&batch, "direction")?.as_string::<i32>();
            for row in 0..batch.num_rows() {
                calls.entry(tid[row]).or_default().push(Call {
                    start_ns: start[row],
                    end_ns: end[row],
                    kind: CallKind::of(names.value(row), Some(directions.value(row))),
                    bytes: bytes[row],
                });
            }
        }
        Ok(calls)
    })
}

/// The timelines of every thread of the job.
fn threads(
    trace: &Trace,
    window: Window,
    feeder_pid: i32,
    mut calls: HashMap<i32, Vec<Call>>,
) -> Result<HashMap<i32, Timeline>, AnalysisError> {
    let waits = ask(trace, |c| {
        let mut waits: HashMap<i32, (i32, Vec<Wait>)> = HashMap::new();
        let mut statement = c.prepare(include_str!("features_waits.sql"))?;
        for batch in statement.query_arrow(named_params! {
            "start_ns": window.start_ns, "end_ns": window.end_ns
        })? {
            let (tid, pid) = (integers(&batch, "tid")?, integers(&batch, "pid")?);
            let (start, end) = (longs(&batch, "start_ns")?, longs(&batch, "end_ns")?);
            let woken = longs(&batch, "woken_ns")?;
            let (blocked, waker) = (integers(&batch, "blocked")?, integers(&batch, "waker")?);
            let waker_tid = integers(&batch, "waker_tid")?;
            let waker_pid = integers(&batch, "waker_pid")?;
            for row in 0..batch.num_rows() {
                let thread = waits
                    .entry(tid[row])
                    .or_insert_with(|| (pid[row], Vec::new()));
                thread.1.push(Wait {
                    start_ns: start[row],
                    woken_ns: woken[row],
                    end_ns: end[row],
                    blocked: match blocked[row] {
                        0 => Blocked::Sleeping,
                        1 => Blocked::Disk,
                        _ => Blocked::Unknown,
                    },
                    waker: match waker[row] {
                        1 => Waker::Thread {
                            tid: waker_tid[row],
                            pid: waker_pid[row],
                        },
                        2 => Waker::Interrupt,
                        _ => Waker::Unknown,
                    },
                });
            }
        }
        Ok(waits)
    })?;
    let mut threads: HashMap<i32, Timeline> = waits
        .into_iter()
        .map(|(tid, (pid, waits))| {
            let calls = calls.remove(&tid).unwrap_or_default();
            (tid, Timeline::new(pid, waits, calls))
        })
        .collect();
    // Threads that were never off the CPU in the window.
    for (tid, calls) in calls {
        threads.insert(tid, Timeline::new(feeder_pid, Vec::new(), calls));
    }
    Ok(threads)
}

fn lives(trace: &Trace) -> Result<Vec<Life>, AnalysisError> {
    ask(trace, |c| {
        c.prepare(include_str!("features_lives.sql"))?
            .query_map([], |row| {
                Ok(Life {
                    pid: row.get("pid")?,
                    born_ns: row.get("born_ns")?,
                    ended_ns: row.get("ended_ns")?,
                })
            })?
            .collect()
    })
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
    let mut rounds = Vec::new();
    let mut given = false;
    for call in calls {
        if given && call.kind.drains() {
            rounds.push(call.end_ns);
            given = false;
        } else {
            given |= call.kind.enqueues();
        }
    }
    if rounds.len() as u64 >= STEPS_TO_SKIP_WARM_UP {
        start_ns = start_ns.max(rounds[WARM_UP_STEPS as usize - 1]);
    }
    let last_call_ns = calls.last().map_or(start_ns, |call| call.end_ns);
    let hangs = feeder.waits().last().is_some_and(|wait| {
        wait.start_ns >= last_call_ns
            && wait.end_ns >= info.duration_ns
            && wait.waker == Waker::Unknown
    });
    let end_ns = if hangs {
        window.end_ns
    } else {
        last_call_ns.min(window.end_ns)
    };
    (end_ns > start_ns).then_some(Window { start_ns, end_ns })
}

/// Bytes that the sampled processes read.
fn bytes_read(trace: &Trace, span: Window) -> Result<HashMap<i32, u64>, AnalysisError> {
    ask(trace, |c| {
        c.prepare(include_str!("features_read.sql"))?
            .query_map(
                named_params! {"start_ns": span.start_ns, "end_ns": span.end_ns},
                |row| {
                    let bytes: i64 = row.get("rchar_bytes")?;
                    Ok((row.get("pid")?, u64::try_from(bytes).unwrap_or(0)))
                },
            )?
            .collect()
    })
}

/// CPU time of one process in one bucket of the span.
#[derive(Debug)]
struct CpuTime {
    bucket_ns: i64,
    pid: i32,
    name: String,
    run_ns: f64,
    in_job: bool,
}

fn cpu_times(trace: &Trace, span: Window) -> Result<Vec<CpuTime>, AnalysisError> {
    ask(trace, |c| {
        c.prepare(include_str!("features_cpu.sql"))?
            .query_map(
                named_params! {"start_ns": span.start_ns, "end_ns": span.end_ns},
                |row| {
                    Ok(CpuTime {
                        bucket_ns: row.get("bucket_ns")?,
                        pid: row.get("pid")?,
                        name: row.get("name")?,
                        run_ns: row.get("run_ns")?,
                        in_job: row.get("in_job")?,
                    })
                },
            )?
            .collect()
    })
}

/// Time in which threads of the job competed for a CPU, by bucket and by process.
#[derive(Debug, Default)]
struct QueuedTime {
    by_bucket_ns: BTreeMap<i64, f64>,
    by_pid_ns: HashMap<i32, f64>,
    disk_by_pid_ns: HashMap<i32, f64>,
}

impl QueuedTime {
    fn of(job: &Job, span: Window) -> Self {
        let mut queued = Self::default();
        for timeline in job.threads.values() {
            for wait in timeline.waits() {
                let cut = |ns: i64| ns.clamp(span.start_ns, span.end_ns);
                let (mut from, to) = (cut(wait.woken_ns), cut(wait.end_ns));
                *queued.by_pid_ns.entry(timeline.pid()).or_default() += (to - from) as f64;
                if wait.blocked == Blocked::Disk {
                    *queued.disk_by_pid_ns.entry(timeline.pid()).or_default() +=
                        (from - cut(wait.start_ns)) as f64;
                }
                while from < to {
                    let bucket = from - from.rem_euclid(BUCKET_NS);
                    let until = to.min(bucket + BUCKET_NS);
                    *queued.by_bucket_ns.entry(bucket).or_default() += (until - from) as f64;
                    from = until;
                }
            }
        }
        queued
    }
}

fn loader(
    job: &Job,
    lives: &[Life],
    span: Window,
    cpu: &[CpuTime],
    queued: &QueuedTime,
    read: &HashMap<i32, u64>,
) -> Option<Loader> {
    let cut = |ns: i64| ns.clamp(span.start_ns, span.end_ns);
    let lives: Vec<(i32, i64, i64)> = lives
        .iter()
        .filter(|life| job.loaders.contains(&life.pid))
        .map(|life| (life.pid, cut(life.born_ns), cut(life.ended_ns)))
        .filter(|(_, from, to)| to > from)
        .collect();
    if lives.is_empty() {
        return None;
    }
    let sum = |by_pid: &HashMap<i32, f64>| -> f64 {
        lives
            .iter()
            .filter_map(|(pid, ..)| by_pid.get(pid))
            .sum::<f64>()
            * NS
    };
    let pids: HashSet<i32> = lives.iter().map(|(pid, ..)| *pid).collect();
    let run_ns: f64 = cpu
        .iter()
        .filter(|time| pids.contains(&time.pid))
        .map(|time| time.run_ns)
        .sum();
    let sampled: Vec<u64> = pids
        .iter()
        .filter_map(|pid| read.get(pid).copied())
        .collect();
    Some(Loader {
        processes: lives.len() as u32,
        workers: most_at_once(&lives),
        alive_s: lives
            .iter()
            .map(|(_, from, to)| (to - from) as f64)
            .sum::<f64>()
            * NS,
        run_s: run_ns * NS,
        runq_s: sum(&queued.by_pid_ns),
        disk_s: sum(&queued.disk_by_pid_ns),
        rchar_bytes: (!sampled.is_empty()).then(|| sampled.iter().sum()),
    })
}

/// The most processes that lived at once.
fn most_at_once(lives: &[(i32, i64, i64)]) -> u32 {
    let mut changes: Vec<(i64, i32)> = lives
        .iter()
        .flat_map(|(_, from, to)| [(*from, 1), (*to, -1)])
        .collect();
    // At the same moment, those that end go first.
    changes.sort_unstable();
    let (mut now, mut most) = (0_i32, 0);
    for (_, change) in changes {
        now += change;
        most = most.max(now);
    }
    most.unsigned_abs()
}

/// Who used the CPUs while threads of the job competed for one.
fn contention(cpu: &[CpuTime], queued: &QueuedTime, cores: u32) -> Contention {
    let mut buckets: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
    let mut others: HashMap<i32, (f64, &str)> = HashMap::new();
    for time in cpu {
        let bucket = buckets.entry(time.bucket_ns).or_default();
        if time.in_job {
            bucket.0 += time.run_ns;
        } else {
            bucket.1 += time.run_ns;
            let other = others.entry(time.pid).or_insert((0.0, &time.name));
            other.0 += time.run_ns;
        }
    }
    let capacity = f64::from(cores.max(1)) * BUCKET_NS as f64;
    let (mut by_job, mut by_other, mut queued_ns) = (0.0, 0.0, 0.0);
    for (bucket, ns) in &queued.by_bucket_ns {
        let (job_ns, other_ns) = buckets.get(bucket).copied().unwrap_or_default();
        let used = capacity.max(job_ns + other_ns);
        by_job += ns * job_ns / used;
        by_other += ns * other_ns / used;
        queued_ns += ns;
    }
    let share = |part: f64| {
        if queued_ns > 0.0 {
            part / queued_ns
        } else {
            0.0
        }
    };
    Contention {
        job_run_s: buckets.values().map(|(ns, _)| ns).sum::<f64>() * NS,
        job_runq_s: queued_ns * NS,
        job_share: share(by_job),
        other_share: share(by_other),
        idle_share: share(queued_ns - by_job - by_other),
        other_run_s: buckets.values().map(|(_, ns)| ns).sum::<f64>() * NS,
        top_other: others
            .into_iter()
            .max_by(|a, b| a.1.0.total_cmp(&b.1.0).then(b.0.cmp(&a.0)))
            .map(|(pid, (ns, name))| (name.to_owned(), pid, ns * NS)),
    }
}

/// The numbers that come from the feeder's own timeline.
fn feeder_numbers(job: &Job, span: Window, cpu: &[CpuTime], probe_pair_ns: i64) -> Feeder {
    let Spent {
        mut budget,
        mut exposed,
        gpu_idle_ns,
        prepare_s,
        rounds,
    } = job.spend(span.start_ns, span.end_ns);
    let inside = |call: &&Call| call.start_ns < span.end_ns && call.end_ns > span.start_ns;
    let calls: Vec<&Call> = job
        .threads
        .get(&job.feeder_tid)
        .map(|feeder| feeder.calls().iter().filter(inside).collect())
        .unwrap_or_default();
    let of_kind = |kind: CallKind| calls.iter().filter(move |call| call.kind == kind);
    let h2d_copies = of_kind(CallKind::CopyToDevice).count() as u64;

    charge_recorder(
        &mut budget,
        &mut exposed,
        calls.len() as f64 * probe_pair_ns as f64 * NS,
    );
    // What the switches show as running cannot be more than its process ran: the rest was not
    // recorded.
    let ran_s: f64 = cpu
        .iter()
        .filter(|time| time.pid == job.feeder_pid)
        .map(|time| time.run_ns * NS)
        .sum();
    charge_unknown(&mut budget, &mut exposed, ran_s);
    Feeder {
        span_start_ms: span.start_ns as f64 / NS_PER_MS,
        span_s: span.dur_ns() as f64 * NS,
        launches: of_kind(CallKind::Launch).count() as u64,
        syncs: calls.iter().filter(|call| call.kind.drains()).count() as u64,
        steps: if rounds >= STEPS_TO_SKIP_WARM_UP || rounds >= h2d_copies {
            rounds
        } else {
            h2d_copies
        },
        h2d_copies,
        h2d_bytes: of_kind(CallKind::CopyToDevice)
            .map(|call| u64::try_from(call.bytes).unwrap_or(0))
            .sum(),
        gpu_idle_lower_bound_s: gpu_idle_ns as f64 * NS,
        prepare_s,
        budget,
        exposed,
        ..Feeder::default()
    }
}

/// Parts in which the feeder was on a CPU doing its own work.
const OWN_WORK: [Part; 2] = [Part::HostCompute, Part::Submit];

/// Takes the cost of the probes out of the parts that contain it.
fn charge_recorder(budget: &mut Budget, exposed: &mut Budget, cost_s: f64) {
    move_share(budget, exposed, &OWN_WORK, Part::Recorder, cost_s);
}

/// The recording shows more running than there was: the difference is a gap in the recording.
fn charge_unknown(budget: &mut Budget, exposed: &mut Budget, ran_s: f64) {
    let shown = budget.sum(&[Part::HostCompute, Part::Submit, Part::Copy, Part::Recorder]);
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
