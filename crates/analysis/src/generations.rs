//! Generations of loader workers: those that a loader started together.

use crate::call_kind::CallKind;
use crate::cuda_functions::Functions;
use crate::forks::{Life, lives};
use crate::roles::Roles;
use crate::{AnalysisError, Window, ask};
use ingero_trace::Trace;
use ingero_trace::duckdb::{self, Connection, named_params};
use std::collections::{BTreeMap, BTreeSet};

/// Loader workers that were started in one burst and lived at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation {
    /// The process that they work for.
    pub feeder_pid: i32,
    /// Their pids, in the order of their start.
    pub workers: Vec<i32>,
    /// When the first was forked.
    pub first_fork_ns: i64,
    /// When the last was forked.
    pub last_fork_ns: i64,
    /// When one of them, all being started, first woke a thread of the feeder's process that takes
    /// batches: its feeder, main or pinning thread. `None` if that was not seen. A worker that
    /// reads what it needs to start from a pipe wakes the main thread by that too, so this can be
    /// too early where workers are spawned with large data.
    pub first_handover_ns: Option<i64>,
    /// When the feeder's process next began to give the GPU work after that; after the last fork,
    /// where the hand-over was not seen, because nobody slept until it came.
    pub next_submit_ns: Option<i64>,
    /// When the last of them ended; `None` if one lived on to the recording's end.
    pub ended_ns: Option<i64>,
    /// How many of them ended.
    pub exited: usize,
    /// How many of those by an error or a signal.
    pub failed: usize,
}

impl Generation {
    /// From the first fork until one of them handed something over.
    pub fn handover_after_ns(&self) -> Option<i64> {
        Some(self.first_handover_ns? - self.first_fork_ns)
    }

    /// From the first fork until the GPU was given work after that: what the start cost.
    pub fn start_cost_ns(&self) -> Option<i64> {
        Some(self.next_submit_ns? - self.first_fork_ns)
    }

    /// From the first fork to the end of the last of them.
    pub fn lifetime_ns(&self) -> Option<i64> {
        Some(self.ended_ns? - self.first_fork_ns)
    }
}

/// Forks this close together are one burst even if another thread of the feeder gave the GPU work
/// in between: forking a process takes a few milliseconds.
const BURST_NS: i64 = 20_000_000;

/// The generations of the whole recording, by start. Workers that were there before the recording
/// began belong to none, since their start was not seen.
///
/// A fork continues a burst as long as none of its workers has ended and the feeder's process gave
/// the GPU no work since the fork before: a loader starts all its workers before it asks them for
/// the first batch, however long each of them takes to start.
///
/// # Errors
/// If the trace cannot be read.
pub fn generations(trace: &Trace, roles: &Roles) -> Result<Vec<Generation>, AnalysisError> {
    let whole = Window::whole(&trace.info()?);
    let mut by_feeder: BTreeMap<i32, Vec<Life>> = BTreeMap::new();
    for life in lives(trace, whole, None)? {
        let mut workers = roles.workers.iter();
        if let Some(worker) = workers.find(|worker| worker.pid == life.pid) {
            by_feeder.entry(worker.feeder_pid).or_default().push(life);
        }
    }
    let mut generations = Vec::new();
    for (feeder_pid, lives) in by_feeder {
        let feeder = Feeder::of(roles, feeder_pid);
        generations.extend(ask(trace, |c| of_feeder(c, &feeder, &lives))?);
    }
    generations.sort_by_key(|generation| generation.first_fork_ns);
    Ok(generations)
}

/// Who takes what the workers hand over.
#[derive(Debug)]
struct Feeder {
    pid: i32,
    /// Threads that take batches. Others are woken by workers too: by those that read the indices
    /// that they send.
    consumers: BTreeSet<i32>,
}

impl Feeder {
    fn of(roles: &Roles, pid: i32) -> Self {
        let feeders = roles.feeders.iter();
        let pins = roles.pin_threads.iter();
        let consumers = feeders
            .filter(|feeder| feeder.pid == pid)
            .map(|feeder| feeder.tid)
            .chain(pins.filter(|pin| pin.pid == pid).map(|pin| pin.tid))
            .chain([pid])
            .collect();
        Self { pid, consumers }
    }
}

/// One worker, from its fork.
#[derive(Debug, Clone, Copy)]
struct Worker {
    pid: i32,
    fork_ns: i64,
    exec_ns: Option<i64>,
    exit_ns: Option<i64>,
    failed: bool,
}

/// `lives` are of the workers of one feeder, in the order of their start.
fn of_feeder(c: &Connection, feeder: &Feeder, lives: &[Life]) -> duckdb::Result<Vec<Generation>> {
    let workers: Vec<Worker> = lives
        .iter()
        .filter_map(|life| {
            Some(Worker {
                pid: life.pid,
                fork_ns: life.forked_ns?,
                exec_ns: life.executed_ns,
                exit_ns: life.exit_ns,
                failed: life.exit_status.is_some_and(|status| status != 0),
            })
        })
        .collect();
    let forks: Vec<i64> = workers.iter().map(|worker| worker.fork_ns).collect();
    let submits = next_submits(c, feeder.pid, &forks)?;
    let bursts = bursts(&workers, &submits);
    let handovers = first_handovers(c, feeder, &bursts)?;
    let ready: Vec<i64> = bursts
        .iter()
        .zip(&handovers)
        .map(|(burst, handover)| handover.unwrap_or_else(|| last_fork_ns(burst)))
        .collect();
    let submits = next_submits(c, feeder.pid, &ready)?;
    Ok(bursts
        .iter()
        .zip(handovers)
        .zip(ready)
        .filter_map(|((burst, first_handover_ns), ready_ns)| {
            let exits: Vec<i64> = burst.iter().filter_map(|worker| worker.exit_ns).collect();
            let all_ended = exits.len() == burst.len();
            Some(Generation {
                feeder_pid: feeder.pid,
                workers: burst.iter().map(|worker| worker.pid).collect(),
                first_fork_ns: burst.first()?.fork_ns,
                last_fork_ns: last_fork_ns(burst),
                first_handover_ns,
                next_submit_ns: submits.get(&ready_ns).copied(),
                ended_ns: exits.iter().copied().max().filter(|_| all_ended),
                exited: exits.len(),
                failed: burst.iter().filter(|worker| worker.failed).count(),
            })
        })
        .collect())
}

fn last_fork_ns(burst: &[Worker]) -> i64 {
    burst.last().map_or(0, |worker| worker.fork_ns)
}

/// Divides workers into bursts; `submits` holds the next submission after each fork.
fn bursts(workers: &[Worker], submits: &BTreeMap<i64, i64>) -> Vec<Vec<Worker>> {
    let mut bursts: Vec<Vec<Worker>> = Vec::new();
    for worker in workers {
        match bursts.last_mut() {
            Some(burst) if continues(burst, worker, submits) => burst.push(*worker),
            _ => bursts.push(vec![*worker]),
        }
    }
    bursts
}

fn continues(burst: &[Worker], next: &Worker, submits: &BTreeMap<i64, i64>) -> bool {
    let all_live = burst
        .iter()
        .all(|worker| worker.exit_ns.is_none_or(|exit| exit > next.fork_ns));
    let Some(last) = burst.last() else {
        return false;
    };
    let worked = submits
        .get(&last.fork_ns)
        .is_some_and(|submit| *submit < next.fork_ns);
    all_live && (!worked || next.fork_ns - last.fork_ns <= BURST_NS)
}

/// For each moment, when a process next began to give the GPU work.
fn next_submits(c: &Connection, pid: i32, moments: &[i64]) -> duckdb::Result<BTreeMap<i64, i64>> {
    let submitting = Functions::of(c, pid, i64::MAX, CallKind::enqueues)?;
    c.prepare(include_str!("generation_submits.sql"))?
        .query_map(
            named_params! {
                "pid": pid,
                "calls": submitting.calls(),
                "directions": submitting.directions(),
                "moments": list(moments.iter()),
            },
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?
        .collect()
}

/// When each burst first woke a thread that takes batches, all its workers being started.
fn first_handovers(
    c: &Connection,
    feeder: &Feeder,
    bursts: &[Vec<Worker>],
) -> duckdb::Result<Vec<Option<i64>>> {
    let mut workers = Vec::new();
    for (number, burst) in bursts.iter().enumerate() {
        let last_fork_ns = last_fork_ns(burst);
        for worker in burst {
            // By executing a program a process wakes whoever forked it.
            let from_ns = last_fork_ns.max(worker.exec_ns.unwrap_or(0));
            // By its end, too.
            let to_ns = worker.exit_ns.unwrap_or(i64::MAX);
            workers.push((number, worker.pid, from_ns, to_ns));
        }
    }
    let mut first = vec![None; bursts.len()];
    let mut statement = c.prepare(include_str!("generation_handovers.sql"))?;
    let mut rows = statement.query(named_params! {
        "feeder_pid": feeder.pid,
        "consumers": list(feeder.consumers.iter()),
        "bursts": list(workers.iter().map(|(number, ..)| number)),
        "pids": list(workers.iter().map(|(_, pid, ..)| pid)),
        "from_ns": list(workers.iter().map(|(_, _, from_ns, _)| from_ns)),
        "to_ns": list(workers.iter().map(|(.., to_ns)| to_ns)),
    })?;
    while let Some(row) = rows.next()? {
        let burst: i64 = row.get(0)?;
        first[burst as usize] = Some(row.get(1)?);
    }
    Ok(first)
}

/// Numbers as one parameter of a query.
fn list<T: ToString>(numbers: impl Iterator<Item = T>) -> String {
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    numbers.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roles::roles;
    use ingero_testkit::trace::{draw, info};
    use ingero_trace::TraceWriter;
    use ingero_trace::rows::{CudaCall, OffCpu, ProcessEvent};

    const MS: i64 = 1_000_000;

    fn of(text: &str) -> Vec<Generation> {
        let drawn = draw(text);
        let trace = drawn.open();
        generations(&trace, &roles(&trace).unwrap()).unwrap()
    }

    fn pids(generations: &[Generation]) -> Vec<&[i32]> {
        generations
            .iter()
            .map(|generation| generation.workers.as_slice())
            .collect()
    }

    //      0    100 110   130  150   200   250     400
    // 100  +-sync-----------h l------------------------
    // 200       +------------------------x
    // 300           +--------------------x
    #[test]
    fn a_generation_tells_what_its_start_cost() {
        let found = of("
            process 100 python
            process 200 pt_data_worker parent=100 from=100 exit=0
            process 300 pt_data_worker parent=100 from=110 exit=137
            thread 100 100: launch(1) sync(99) S50<200 R10 (launch(1) sync(4) S1<300)*5 R200
            thread 200 200: R150
            thread 300 300: R150");
        assert_eq!(
            found,
            [Generation {
                feeder_pid: 100,
                workers: vec![200, 300],
                first_fork_ns: 100 * MS,
                last_fork_ns: 110 * MS,
                first_handover_ns: Some(150 * MS),
                next_submit_ns: Some(160 * MS),
                ended_ns: Some(260 * MS),
                exited: 2,
                failed: 1,
            }]
        );
    }

    #[test]
    fn workers_of_every_epoch_are_a_generation_each() {
        let found = of("
            process 100 python
            process 200 pt_data_worker parent=100 from=0 exit=0
            process 300 pt_data_worker parent=100 from=5 exit=0
            process 400 pt_data_worker parent=100 from=60 exit=0
            process 500 pt_data_worker parent=100 from=65
            thread 100 100: R10 S10<200 (launch(1) sync(4))*5 R20 S10<400 (launch(1) sync(4))*10
            thread 200 200: R50
            thread 300 300: R45
            thread 400 400: R50
            thread 500 500: R100");
        assert_eq!(pids(&found), [[200, 300], [400, 500]]);
        assert_eq!(found[0].ended_ns, Some(50 * MS));
        assert_eq!(found[1].first_handover_ns, Some(75 * MS));
        assert_eq!(found[1].next_submit_ns, Some(75 * MS));
        // One lived on.
        assert_eq!((found[1].ended_ns, found[1].exited), (None, 1));
    }

    #[test]
    fn a_loader_beside_another_one_is_a_generation_of_its_own() {
        // The workers of the first stay while the second starts its own, the GPU having worked.
        let found = of("
            process 100 python
            process 200 pt_data_worker parent=100 from=0
            process 300 pt_data_worker parent=100 from=60
            process 400 pt_data_worker parent=100 from=400
            thread 100 100: R10 S10<200 (launch(1) sync(4))*4 R300
            thread 200 200: R500
            thread 300 300: R400
            thread 400 400: R100");
        // From 300 to 400 the GPU was given no work: one slow burst.
        assert_eq!(pids(&found), [&[200][..], &[300, 400]]);
        assert_eq!(found[1].first_handover_ns, None);
        assert_eq!(found[1].next_submit_ns, None);
    }

    #[test]
    fn submissions_of_another_thread_do_not_divide_a_burst() {
        let found = of("
            process 100 python
            process 200 pt_data_worker parent=100 from=10
            process 300 pt_data_worker parent=100 from=15
            thread 100 100: R100
            thread 100 101: (launch(0.1) R0.9)*100
            thread 200 200: R90
            thread 300 300: R85");
        assert_eq!(pids(&found), [[200, 300]]);
    }

    #[test]
    fn a_worker_that_only_ends_hands_nothing_over() {
        let found = of("
            process 100 python
            process 200 pt_data_worker parent=100 from=10 exit=1
            thread 100 100: launch(1) R9 S10<200 launch(1) sync(30)
            thread 200 200: R10");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].first_handover_ns, None);
        // Whatever it waited for.
        assert_eq!(found[0].next_submit_ns, Some(20 * MS));
    }

    #[test]
    fn a_worker_that_takes_its_work_from_another_thread_hands_nothing_over_by_that() {
        // Thread 101 sends indices and is woken when the worker has read them.
        let found = of("
            process 100 python
            process 200 pt_data_worker parent=100 from=10
            thread 100 100: launch(1) R9 S90<200 launch(1) sync(30)
            thread 100 101: R20 S5<200 R100
            thread 200 200: R110");
        assert_eq!(found[0].first_handover_ns, Some(100 * MS));
    }

    #[test]
    fn helpers_are_no_workers() {
        let found = of("
            process 100 python
            process 200 python parent=100 from=10 exit=0
            thread 100 100: launch(1) sync(99) S50<200 launch(1) sync(100)
            thread 200 200: R150");
        assert_eq!(found, []);
    }

    #[test]
    fn a_spawned_worker_wakes_whoever_forked_it_without_handing_anything_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.duckdb");
        let mut writer = TraceWriter::create(&path).unwrap();
        let event = |ms: i64, kind: &'static str, pid: i32, name: &'static str| ProcessEvent {
            ts_ns: ms * MS,
            kind: kind.into(),
            pid,
            tid: pid,
            parent_pid: Some(if pid == 100 { 1 } else { 100 }),
            name: name.into(),
            command_line: (kind == "exec").then(|| "python -c multiprocessing.spawn".to_owned()),
            exit_status: None,
            cgroup: None,
        };
        writer.push(event(0, "existing", 100, "python"));
        writer.push(event(10, "fork", 200, "python"));
        writer.push(event(12, "exec", 200, "pt_data_worker"));
        // Woken by the exec, and by a batch.
        for (at, blocked) in [(10, 2), (15, 85), (110, 5)] {
            writer.push(OffCpu {
                ts_ns: at * MS,
                pid: 100,
                tid: 100,
                cpu: 0,
                ran_ns: 0,
                blocked_ns: blocked * MS - i64::from(blocked == 2),
                wake_ns: 0,
                runq_ns: 0,
                idle_before: false,
                state: "sleeping".into(),
                waker_tid: Some(200),
                waker_pid: Some(200),
                waker_context: Some("task".into()),
                taker_tid: None,
                clipped: false,
                open: false,
                continued: false,
            });
        }
        writer.push(CudaCall {
            ts_ns: 105 * MS,
            dur_ns: MS,
            pid: 100,
            tid: 100,
            layer: "driver".into(),
            call: "cuLaunchKernel".into(),
            bytes: None,
            direction: None,
            stream: None,
            status: Some(0),
            open: false,
            continued: false,
            nested: Some(0),
        });
        writer.finish(&info(200 * MS)).unwrap();
        let trace = Trace::open(&path).unwrap();
        let found = generations(&trace, &roles(&trace).unwrap()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].first_handover_ns, Some(100 * MS));
        assert_eq!(found[0].next_submit_ns, Some(105 * MS));
    }

    #[test]
    fn a_recorded_job_starts_its_workers_anew_for_every_epoch() {
        let path = ingero_testkit::repository().join("fixtures/pytorch-dataloader/workers4.duckdb");
        let trace = Trace::open(&path).unwrap();
        let found = generations(&trace, &roles(&trace).unwrap()).unwrap();
        assert_eq!(found.len(), 6);
        for generation in &found {
            assert_eq!(generation.workers.len(), 4, "{generation:?}");
            // The first batch takes a second, in an epoch of 2.3 s.
            let cost_ns = generation.start_cost_ns().unwrap();
            assert!((900 * MS..1_300 * MS).contains(&cost_ns), "{generation:?}");
            let handover_ns = generation.handover_after_ns().unwrap();
            assert!((500 * MS..cost_ns).contains(&handover_ns), "{generation:?}");
            assert!(generation.ended_ns.is_some(), "{generation:?}");
        }
        assert!(found.is_sorted_by_key(|generation| generation.first_fork_ns));
    }
}
