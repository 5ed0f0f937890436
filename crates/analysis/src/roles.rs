//! Who does what in the job: who feeds the GPU, who prepares data for it.

use crate::call_kind::CallKind;
use crate::{AnalysisError, ask};
use ingero_trace::Trace;
use ingero_trace::duckdb::{self, Connection};
use std::collections::{BTreeMap, BTreeSet};

/// What a process is to the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Makes the CUDA calls.
    Feeder,
    /// Prepares data for a feeder in a process of its own.
    LoaderWorker,
    /// Anything else.
    Other,
}

impl Role {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Feeder => "feeder",
            Self::LoaderWorker => "loader_worker",
            Self::Other => "other",
        }
    }
}

/// A thread that hands the GPU its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feeder {
    /// Its process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// Time in CUDA calls of the thread.
    pub call_ns: i64,
    /// Calls of the thread that hand work to the GPU.
    pub submissions: i64,
    /// Calls of the thread that wait for the GPU.
    pub waits: i64,
    /// Its first CUDA call.
    pub first_ns: i64,
}

/// A process that prepares data for a feeder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// The worker.
    pub pid: i32,
    /// The process that it works for.
    pub feeder_pid: i32,
}

/// A thread of a feeder's process that copies batches into pinned memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinThread {
    /// Its process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
}

/// Who does what in the job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roles {
    /// One per process that feeds a GPU, the one with the most to do first.
    pub feeders: Vec<Feeder>,
    /// By pid.
    pub workers: Vec<Worker>,
    /// By pid and tid.
    pub pin_threads: Vec<PinThread>,
}

impl Roles {
    /// The role of a process.
    pub fn of(&self, pid: i32) -> Role {
        if self.feeders.iter().any(|feeder| feeder.pid == pid) {
            Role::Feeder
        } else if self.workers.iter().any(|worker| worker.pid == pid) {
            Role::LoaderWorker
        } else {
            Role::Other
        }
    }
}

/// A process feeds a GPU too if it hands over at least this part of what the busiest one does:
/// ranks of one job differ little, helpers that query a device a lot.
const FEEDER_SHARE: f64 = 0.1;

/// A child that exits wakes its parent twice, by its exit and by the end of its pipe. One that
/// hands over data does so more often.
const WORKER_WAKES: i64 = 3;

/// Finds out who does what, from the whole recording.
///
/// A feeder is a process whose threads hand work to the GPU. A loader worker descends from a
/// feeder or from the feeder's parent, runs the same program, makes no CUDA calls, and either
/// has the name that PyTorch gives its workers or wakes the feeder's process (or is woken by it)
/// repeatedly.
///
/// # Errors
/// If the trace cannot be read.
pub fn roles(trace: &Trace) -> Result<Roles, AnalysisError> {
    let seen = ask(trace, Seen::read)?;
    let feeders = seen.feeders();
    let workers = seen.workers(&feeders);
    let pin_threads = seen
        .threads
        .iter()
        .filter(|thread| is_pin_name(&thread.name))
        .filter(|thread| feeders.iter().any(|feeder| feeder.pid == thread.pid))
        .map(|thread| PinThread {
            pid: thread.pid,
            tid: thread.tid,
        })
        .collect();
    Ok(Roles {
        feeders,
        workers,
        pin_threads,
    })
}

/// PyTorch names the thread `pt_data_pin`.
fn is_pin_name(name: &str) -> bool {
    name.starts_with("pt_data_pin") || name.contains("pin_memory")
}

#[derive(Debug)]
struct Process {
    parent: Option<i32>,
    name: String,
    command_line: Option<String>,
    executed: bool,
    ended_ns: Option<i64>,
}

#[derive(Debug)]
struct Thread {
    pid: i32,
    tid: i32,
    name: String,
}

/// What the roles are concluded from.
#[derive(Debug)]
struct Seen {
    /// Sums of the CUDA calls of each thread.
    callers: Vec<Feeder>,
    processes: BTreeMap<i32, Process>,
    threads: Vec<Thread>,
    /// Wake-ups by (waker, woken).
    wakes: BTreeMap<(i32, i32), i64>,
}

impl Seen {
    fn read(c: &Connection) -> duckdb::Result<Self> {
        let mut callers: Vec<Feeder> = Vec::new();
        let mut statement = c.prepare(include_str!("roles_calls.sql"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (pid, tid) = (row.get(0)?, row.get(1)?);
            let call: String = row.get(2)?;
            let direction: Option<String> = row.get(3)?;
            let call_ns: i64 = row.get(4)?;
            let calls: i64 = row.get(5)?;
            let first_ns: i64 = row.get(6)?;
            let kind = CallKind::of(&call, direction.as_deref());
            let submissions = if kind.enqueues() { calls } else { 0 };
            let waits = if kind.waits() { calls } else { 0 };
            match callers.last_mut() {
                Some(caller) if (caller.pid, caller.tid) == (pid, tid) => {
                    caller.call_ns += call_ns;
                    caller.submissions += submissions;
                    caller.waits += waits;
                    caller.first_ns = caller.first_ns.min(first_ns);
                }
                _ => callers.push(Feeder {
                    pid,
                    tid,
                    call_ns,
                    submissions,
                    waits,
                    first_ns,
                }),
            }
        }
        let processes = c
            .prepare(include_str!("roles_processes.sql"))?
            .query_map([], |row| {
                let process = Process {
                    parent: row.get(1)?,
                    name: row.get(2)?,
                    command_line: row.get(3)?,
                    executed: row.get(4)?,
                    ended_ns: row.get(5)?,
                };
                Ok((row.get(0)?, process))
            })?
            .collect::<duckdb::Result<_>>()?;
        let threads = c
            .prepare(include_str!("roles_threads.sql"))?
            .query_map([], |row| {
                Ok(Thread {
                    pid: row.get(0)?,
                    tid: row.get(1)?,
                    name: row.get(2)?,
                })
            })?
            .collect::<duckdb::Result<_>>()?;
        let wakes = c
            .prepare(include_str!("roles_wakes.sql"))?
            .query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?
            .collect::<duckdb::Result<_>>()?;
        Ok(Self {
            callers,
            processes,
            threads,
            wakes,
        })
    }

    /// The leading thread of every process that feeds a GPU.
    fn feeders(&self) -> Vec<Feeder> {
        let mut waits_of: BTreeMap<i32, i64> = BTreeMap::new();
        for caller in &self.callers {
            *waits_of.entry(caller.pid).or_default() += caller.waits;
        }
        let mut by_process: BTreeMap<i32, (Feeder, i64)> = BTreeMap::new();
        for caller in &self.callers {
            let (leader, submissions) = by_process
                .entry(caller.pid)
                .or_insert_with(|| (caller.clone(), 0));
            *submissions += caller.submissions;
            // A thread that only waits does not feed, however long it waits. One that hardly ever
            // waits works for another that does, as those that run a backward pass do.
            let waits = waits_of.get(&caller.pid).copied().unwrap_or(0);
            let rank = |thread: &Feeder| {
                let submits = thread.submissions > 0;
                let waits = thread.waits as f64 > FEEDER_SHARE * waits as f64;
                (submits, submits && waits, thread.call_ns)
            };
            if rank(caller) > rank(leader) {
                *leader = caller.clone();
            }
        }
        let mut feeders: Vec<(Feeder, i64)> = by_process.into_values().collect();
        feeders.sort_by_key(|(leader, submissions)| {
            std::cmp::Reverse((*submissions > 0, leader.call_ns, -leader.pid))
        });
        let most = feeders.iter().map(|(_, submissions)| *submissions).max();
        let most = most.unwrap_or(0);
        if most == 0 {
            // Nobody hands over work: whoever calls CUDA most would do it.
            feeders.truncate(1);
        } else {
            feeders.retain(|(_, submissions)| *submissions as f64 >= FEEDER_SHARE * most as f64);
        }
        feeders.into_iter().map(|(leader, _)| leader).collect()
    }

    fn workers(&self, feeders: &[Feeder]) -> Vec<Worker> {
        let callers: BTreeSet<i32> = self.callers.iter().map(|caller| caller.pid).collect();
        self.processes
            .iter()
            .filter(|(pid, _)| !callers.contains(pid))
            .filter_map(|(&pid, process)| {
                let feeder_pid = self.works_for(pid, process, feeders)?;
                Some(Worker { pid, feeder_pid })
            })
            .collect()
    }

    /// The feeder that `pid` prepares data for.
    fn works_for(&self, pid: i32, process: &Process, feeders: &[Feeder]) -> Option<i32> {
        let named = process.name.starts_with("pt_data_worker");
        if !named && self.runs_another_program(process) {
            return None;
        }
        let relatives = self.related_feeders(pid, feeders);
        let exchanges = |feeder: i32| {
            let wakes = |pair| self.wakes.get(&pair).copied().unwrap_or(0);
            wakes((pid, feeder)) + wakes((feeder, pid))
        };
        let partner = relatives
            .iter()
            .copied()
            .max_by_key(|&feeder| exchanges(feeder))?;
        // What ended before the feeder used the GPU prepared nothing for it: a launcher's helpers.
        let began_ns = self
            .callers
            .iter()
            .filter(|caller| caller.pid == partner)
            .map(|caller| caller.first_ns)
            .min();
        if process
            .ended_ns
            .is_some_and(|ended| began_ns.is_some_and(|began| ended < began))
        {
            return None;
        }
        if exchanges(partner) >= WORKER_WAKES {
            return Some(partner);
        }
        // A worker that never came to hand anything over belongs to whoever started it.
        named.then(|| relatives.first().copied()).flatten()
    }

    /// Feeders among the ancestors, nearest first, then those whose parent is an ancestor.
    fn related_feeders(&self, pid: i32, feeders: &[Feeder]) -> Vec<i32> {
        let mut ancestors = Vec::new();
        let mut next = self.processes.get(&pid).and_then(|process| process.parent);
        while let Some(ancestor) = next {
            if ancestors.contains(&ancestor) {
                break;
            }
            ancestors.push(ancestor);
            next = self
                .processes
                .get(&ancestor)
                .and_then(|process| process.parent);
        }
        let is_feeder = |pid: &i32| feeders.iter().any(|feeder| feeder.pid == *pid);
        let above = ancestors.iter().copied().filter(is_feeder);
        let beside = feeders.iter().map(|feeder| feeder.pid).filter(|feeder| {
            let launcher = self
                .processes
                .get(feeder)
                .and_then(|process| process.parent);
            // The launcher must be part of the job: everything descends from init.
            launcher.is_some_and(|launcher| {
                self.processes.contains_key(&launcher) && ancestors.contains(&launcher)
            })
        });
        let above: Vec<i32> = above.collect();
        if above.is_empty() {
            beside.collect()
        } else {
            above
        }
    }

    /// Whether a process runs something else than its parent. The start of a worker of Python's
    /// multiprocessing by `spawn` is the exception: it executes the interpreter again.
    fn runs_another_program(&self, process: &Process) -> bool {
        let command_line = process.command_line.as_deref();
        if command_line.is_some_and(|line| {
            line.contains("multiprocessing.spawn") || line.contains("--multiprocessing-fork")
        }) {
            return false;
        }
        let parent = process.parent.and_then(|pid| self.processes.get(&pid));
        let inherited = parent.and_then(|parent| parent.command_line.as_deref());
        // Processes that were there before the recording show no exec, but their command line.
        let differs =
            matches!((command_line, inherited), (Some(own), Some(parents)) if own != parents);
        process.executed || differs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingero_testkit::trace::draw;

    #[test]
    fn workers_are_known_by_name_or_by_what_they_hand_over() {
        // Process 200 is named by PyTorch, 300 is not but wakes the feeder, 400 only exits.
        let drawn = draw(
            "process 100 python
             process 200 pt_data_worker parent=100
             process 300 python parent=100
             process 400 python parent=100 exit=0
             thread 100 100: malloc(1) (S20<300 h2d(0.1,65536) launch(0.01) sync(5))*5 S5<400
             thread 100 101: R1
             thread 200 200: R20
             thread 300 300: (R20 S6<100)*5
             thread 400 400: R20",
        );
        let trace = drawn.open();
        let roles = roles(&trace).unwrap();
        assert_eq!(roles.feeders.len(), 1);
        assert_eq!((roles.feeders[0].pid, roles.feeders[0].tid), (100, 100));
        assert_eq!(roles.feeders[0].submissions, 10);
        assert_eq!(roles.feeders[0].call_ns, 1_000_000 + 5 * 5_110_000);
        let workers: Vec<i32> = roles.workers.iter().map(|worker| worker.pid).collect();
        assert_eq!(workers, [200, 300]);
        assert_eq!(roles.of(300), Role::LoaderWorker);
        assert_eq!(roles.of(400), Role::Other);
        assert_eq!(roles.of(100), Role::Feeder);
        assert!(roles.pin_threads.is_empty());
    }

    #[test]
    fn helpers_of_the_launcher_are_no_workers() {
        let drawn = draw(
            "process 100 bash
             process 200 bash parent=100 exit=0
             thread 100 100: (S1<200)*5 R300 malloc(1) (launch(0.01) sync(5))*5
             thread 200 200: R10",
        );
        assert!(roles(&drawn.open()).unwrap().workers.is_empty());
    }

    #[test]
    fn who_was_interrupted_has_woken_nobody() {
        // A timer went off while 200 ran.
        let drawn = draw(
            "process 100 python
             process 200 python parent=100
             thread 100 100: (launch(0.01) sync(5) S1<200/timer)*50
             thread 200 200: R300",
        );
        assert!(roles(&drawn.open()).unwrap().workers.is_empty());
    }

    #[test]
    fn a_thread_that_only_waits_is_not_the_feeder() {
        let drawn = draw(
            "process 100 python
             thread 100 100: sync(500)
             thread 100 101: (launch(0.01) R1)*50",
        );
        let trace = drawn.open();
        assert_eq!(roles(&trace).unwrap().feeders[0].tid, 101);
    }

    #[test]
    fn ranks_have_a_feeder_each_and_their_own_workers() {
        let drawn = draw(
            "process 100 torchrun
             process 200 python parent=100
             process 300 python parent=100
             process 400 python parent=200
             process 500 python parent=100
             thread 200 200: (S5<400 launch(0.1) sync(5))*20
             thread 300 300: (S5<500 launch(0.1) sync(9))*20
             thread 400 400: (R5 S5<200)*20
             thread 500 500: (R5 S5<300)*20",
        );
        let trace = drawn.open();
        let roles = roles(&trace).unwrap();
        let feeders: Vec<i32> = roles.feeders.iter().map(|feeder| feeder.pid).collect();
        assert_eq!(feeders, [300, 200]);
        let workers: Vec<(i32, i32)> = roles
            .workers
            .iter()
            .map(|worker| (worker.pid, worker.feeder_pid))
            .collect();
        assert_eq!(workers, [(400, 200), (500, 300)]);
    }

    #[test]
    fn a_job_without_cuda_calls_has_no_feeder() {
        let drawn = draw("process 100 python\nthread 100 100: R50");
        let trace = drawn.open();
        assert_eq!(roles(&trace).unwrap(), Roles::default());
    }
}
