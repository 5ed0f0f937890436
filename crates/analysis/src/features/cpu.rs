//! Who used the CPUs: the loader workers, and whoever else competed with the job.

use super::budget::Job;
use super::timeline::Blocked;
use super::{BUCKET_NS, NS};
use crate::{AnalysisError, Window, ask};
use ingero_diagnosis::{Contention, Cores, Loader, Neighbour, Throttled};
use ingero_trace::Trace;
use ingero_trace::duckdb::{self, named_params};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The time a process lived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Life {
    pub(super) pid: i32,
    pub(super) born_ns: i64,
    pub(super) ended_ns: i64,
}

pub(super) fn lives(trace: &Trace) -> Result<Vec<Life>, AnalysisError> {
    ask(trace, |c| {
        c.prepare(include_str!("lives.sql"))?
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

/// Bytes that the sampled processes read.
pub(super) fn bytes_read(trace: &Trace, span: Window) -> Result<HashMap<i32, u64>, AnalysisError> {
    ask(trace, |c| {
        c.prepare(include_str!("read.sql"))?
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
pub(super) struct CpuTime {
    bucket_ns: i64,
    pub(super) pid: i32,
    name: String,
    pub(super) run_ns: f64,
    in_job: bool,
}

pub(super) fn cpu_times(trace: &Trace, span: Window) -> Result<Vec<CpuTime>, AnalysisError> {
    ask(trace, |c| {
        c.prepare(include_str!("cpu.sql"))?
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
pub(super) struct QueuedTime {
    by_bucket_ns: BTreeMap<i64, f64>,
    by_pid_ns: HashMap<i32, f64>,
    disk_by_pid_ns: HashMap<i32, f64>,
}

impl QueuedTime {
    pub(super) fn of(job: &Job, span: Window) -> Self {
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

pub(super) fn loader(
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
        workers: most_at_once(&lives),
        alive_s: lives
            .iter()
            .map(|(_, from, to)| (to - from) as f64)
            .sum::<f64>()
            * NS,
        run_s: run_ns * NS,
        runq_s: sum(&queued.by_pid_ns),
        disk_s: sum(&queued.disk_by_pid_ns).max(0.0),
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

/// Of the time that threads of the job were preempted in the span, the part in which a thread
/// outside the job had taken the CPU.
pub(super) fn preempted_by_others(
    trace: &Trace,
    span: Window,
) -> Result<Option<f64>, AnalysisError> {
    ask(trace, |c| {
        c.query_row(
            include_str!("takers.sql"),
            named_params! {"start_ns": span.start_ns, "end_ns": span.end_ns},
            |row| row.get("by_others"),
        )
    })
}

/// What the quota of the target's cgroup cost in the span.
pub(super) fn throttled(trace: &Trace, span: Window) -> Result<Option<Throttled>, AnalysisError> {
    ask(trace, |c| {
        c.query_row(
            include_str!("throttled.sql"),
            named_params! {"start_ns": span.start_ns, "end_ns": span.end_ns},
            |row| {
                let count = |column| -> duckdb::Result<Option<u64>> {
                    Ok(row
                        .get::<_, Option<i64>>(column)?
                        .and_then(|count| u64::try_from(count).ok()))
                };
                let Some(periods) = count("periods")? else {
                    return Ok(None);
                };
                Ok(Some(Throttled {
                    periods,
                    throttled: count("throttled")?.unwrap_or(0),
                    seconds: count("throttled_us")?.unwrap_or(0) as f64 * 1e-6,
                }))
            },
        )
    })
}

/// Who used the CPUs while threads of the job competed for one.
pub(super) fn contention(cpu: &[CpuTime], queued: &QueuedTime, cores: &Cores) -> Contention {
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
    let online = cores.online.max(1);
    let in_mask = cores.affinity.unwrap_or(online).clamp(1, online);
    let mask_ns = f64::from(in_mask) * BUCKET_NS as f64;
    let outside_ns = f64::from(online - in_mask) * BUCKET_NS as f64;
    // Where others ran is not recorded. They are taken to use CPUs outside the mask first: who
    // competes inside it is seen from the preemptions.
    let in_mask_ns = |other_ns: f64| (other_ns - outside_ns).max(0.0);
    let (mut by_job, mut by_other, mut idle_outside, mut queued_ns) = (0.0, 0.0, 0.0, 0.0);
    for (bucket, ns) in &queued.by_bucket_ns {
        let (job_ns, other_ns) = buckets.get(bucket).copied().unwrap_or_default();
        let others_in_mask = in_mask_ns(other_ns);
        let used = mask_ns.max(job_ns + others_in_mask);
        by_job += ns * job_ns / used;
        by_other += ns * others_in_mask / used;
        if outside_ns > 0.0 {
            idle_outside += ns * (1.0 - (other_ns / outside_ns).min(1.0));
        }
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
        outside_idle_share: (outside_ns > 0.0).then(|| share(idle_outside)),
        other_run_s: buckets.values().map(|(_, ns)| in_mask_ns(*ns)).sum::<f64>() * NS,
        top_others: neighbours(others),
        ..Contention::default()
    }
}

/// The busiest programs, by name.
fn neighbours(others: HashMap<i32, (f64, &str)>) -> Vec<Neighbour> {
    const NAMED: usize = 3;
    let mut by_pid: Vec<(i32, f64, &str)> = others
        .into_iter()
        .map(|(pid, (ns, name))| (pid, ns, name))
        .collect();
    by_pid.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut programs: Vec<Neighbour> = Vec::new();
    for (pid, ns, name) in by_pid {
        match programs.iter_mut().find(|program| program.name == name) {
            Some(program) => {
                program.processes += 1;
                program.run_s += ns * NS;
            }
            None => programs.push(Neighbour {
                name: name.to_owned(),
                processes: 1,
                pid,
                run_s: ns * NS,
            }),
        }
    }
    programs.sort_by(|a, b| b.run_s.total_cmp(&a.run_s).then(a.pid.cmp(&b.pid)));
    programs.truncate(NAMED);
    programs
}
