//! From a wait to who ended it, and on to what that thread was doing meanwhile.

use crate::features::{Activity, Blocked, Job, Timeline, Waker};
use crate::names::Names;
use crate::roles::{Role, Roles};
use crate::{AnalysisError, Window, ask};
use ingero_trace::Trace;
use ingero_trace::duckdb::named_params;
use std::collections::HashMap;

/// How many threads a chain names at most.
const MOST_HOPS: usize = 8;
/// A hop that slept for less than this part of the wait explains it by what else it did.
const EXPLAINED_SHARE: f64 = 0.05;

/// How the sleep of a hop ended, for the most part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It slept too little for it to matter, or not at all: what it did explains the wait.
    Explained,
    /// By the thread of the next hop.
    ByThread {
        /// The thread.
        tid: i32,
        /// Its process, 0 if unknown.
        pid: i32,
    },
    /// By a thread whose doings are not recorded: it is not of the job.
    ByOutsider {
        /// The thread.
        tid: i32,
        /// Its process, 0 if unknown.
        pid: i32,
        /// The process's name, the empty text if it is not known.
        name: String,
    },
    /// By a thread that the chain has named before: they take turns.
    ByEarlierHop {
        /// The thread.
        tid: i32,
    },
    /// By an interrupt in this context (softirq, hardirq, idle): a timer, the network, a device.
    ByInterrupt {
        /// The context.
        context: String,
    },
    /// By a timer again and again, as a thread does that waits for a lock of its process: the next
    /// hop is the main thread of that process.
    WaitsWithTimeout,
    /// Not recorded, or not yet ended.
    Unknown,
}

/// Who a thread lost its CPU to. Others may have run there before it came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taker {
    /// The thread.
    pub tid: i32,
    /// Its process, if it is known.
    pub pid: Option<i32>,
    /// Its name, the empty text if it is not known.
    pub name: String,
}

/// One thread in the chain, and what it did while the thread of the hop before slept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// Its process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// The time that this hop accounts for.
    pub total_ns: i64,
    /// On a CPU.
    pub ran_ns: i64,
    /// Ready to run, without a CPU.
    pub queued_ns: i64,
    /// Who it had lost the CPU to for most of that time, where it mattered.
    pub taken_by: Option<Taker>,
    /// Asleep until somebody woke it.
    pub slept_ns: i64,
    /// In uninterruptible sleep: disk, page fault.
    pub disk_ns: i64,
    /// How most of its sleep ended.
    pub ended: Ended,
    /// The part of its sleep for which that is so.
    pub ended_ns: i64,
}

impl Hop {
    /// What is not known of the time: before a thread was seen, after its end.
    pub fn unknown_ns(&self) -> i64 {
        self.total_ns - self.ran_ns - self.queued_ns - self.slept_ns - self.disk_ns
    }
}

/// A wait, and the threads that explain it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// When the wait began, or the window, if that was later.
    pub start_ns: i64,
    /// Its length in the window.
    pub dur_ns: i64,
    /// The whole wait, where it reaches beyond the window.
    pub whole: Window,
    /// The CUDA call that it lies in.
    pub inside_call: Option<String>,
    /// The waiting thread itself, then whoever ended its sleep, and so on.
    pub hops: Vec<Hop>,
}

/// Pieces of time, in order.
type Pieces = Vec<(i64, i64)>;

/// Who ended a sleep, as far as a hop is grouped by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum EndedBy {
    Thread { tid: i32, pid: i32 },
    Interrupt,
    Unknown,
}

/// What a thread did in some pieces of time.
#[derive(Debug, Default)]
struct Doing {
    ran_ns: i64,
    queued_ns: i64,
    slept_ns: i64,
    disk_ns: i64,
    sleeps: HashMap<EndedBy, Pieces>,
}

impl Doing {
    fn of(thread: &Timeline, pieces: &Pieces) -> Self {
        let mut doing = Self::default();
        for (from, to) in pieces {
            thread.divide(*from, *to, |from, to, activity| match activity {
                Activity::Running => doing.ran_ns += to - from,
                Activity::Queued => doing.queued_ns += to - from,
                Activity::Blocked(index) => {
                    let wait = thread.waits()[index];
                    let by = match wait.waker {
                        Waker::Thread { tid, pid } => EndedBy::Thread { tid, pid },
                        Waker::Interrupt => EndedBy::Interrupt,
                        Waker::Unknown => EndedBy::Unknown,
                    };
                    match wait.blocked {
                        Blocked::Disk => {
                            doing.disk_ns += to - from;
                            return;
                        }
                        // Who is not there yet, or not any more, does not sleep.
                        Blocked::Unknown | Blocked::Ended if by == EndedBy::Unknown => return,
                        _ => {}
                    }
                    doing.slept_ns += to - from;
                    doing.sleeps.entry(by).or_default().push((from, to));
                }
            });
        }
        doing
    }

    /// The kind of ending that most of the sleep had, with its pieces.
    fn main_sleep(&self) -> Option<(EndedBy, &Pieces)> {
        self.sleeps
            .iter()
            .map(|(by, pieces)| (*by, pieces))
            .max_by_key(|(by, pieces)| (length(pieces), std::cmp::Reverse(*by)))
    }
}

fn length(pieces: &Pieces) -> i64 {
    pieces.iter().map(|(from, to)| to - from).sum()
}

/// The longest wait of the feeder in the window, followed.
pub(super) fn longest(
    trace: &Trace,
    job: &Job,
    roles: &Roles,
    names: &Names,
    window: Window,
) -> Result<Option<Chain>, AnalysisError> {
    let cut = |ns: i64| ns.clamp(window.start_ns, window.end_ns);
    let waits = job.threads.get(&job.feeder_tid).map(Timeline::waits);
    let longest = waits
        .unwrap_or_default()
        .iter()
        .filter(|wait| wait.blocked != Blocked::Ended)
        .map(|wait| (cut(wait.end_ns) - cut(wait.start_ns), wait))
        .filter(|(dur_ns, _)| *dur_ns > 0)
        .max_by_key(|(dur_ns, wait)| (*dur_ns, std::cmp::Reverse(wait.start_ns)));
    let Some((dur_ns, wait)) = longest else {
        return Ok(None);
    };
    let start_ns = cut(wait.start_ns);
    let mut hops = hops(job, roles, names, (start_ns, start_ns + dur_ns));
    let cut = Window {
        start_ns,
        end_ns: start_ns + dur_ns,
    };
    name_interrupts(trace, &mut hops, cut)?;
    name_takers(trace, &mut hops, names, cut)?;
    Ok(Some(Chain {
        start_ns,
        dur_ns,
        whole: Window {
            start_ns: wait.start_ns,
            end_ns: wait.end_ns,
        },
        inside_call: call_around(trace, job.feeder_tid, start_ns)?,
        hops,
    }))
}

/// The chain that begins with what the feeder did from `wait.0` to `wait.1`.
pub(super) fn hops(job: &Job, roles: &Roles, names: &Names, wait: (i64, i64)) -> Vec<Hop> {
    let enough_ns = ((wait.1 - wait.0) as f64 * EXPLAINED_SHARE) as i64;
    let mut hops: Vec<Hop> = Vec::new();
    let mut next = Some((job.feeder_tid, vec![wait]));
    while let Some((tid, pieces)) = next.take()
        && let Some(thread) = job.threads.get(&tid)
        && hops.len() < MOST_HOPS
    {
        let doing = Doing::of(thread, &pieces);
        let mut hop = Hop {
            pid: thread.pid(),
            tid,
            name: names.of(tid),
            total_ns: length(&pieces),
            ran_ns: doing.ran_ns,
            queued_ns: doing.queued_ns,
            taken_by: None,
            slept_ns: doing.slept_ns,
            disk_ns: doing.disk_ns,
            ended: Ended::Explained,
            ended_ns: 0,
        };
        if let Some((by, asleep)) = doing.main_sleep()
            && length(asleep) > enough_ns
        {
            let known = |tid: i32| tid == hop.tid || hops.iter().any(|hop| hop.tid == tid);
            hop.ended_ns = length(asleep);
            hop.ended = match by {
                EndedBy::Thread { tid, .. } if known(tid) => Ended::ByEarlierHop { tid },
                EndedBy::Thread { tid, pid } if job.threads.contains_key(&tid) => {
                    next = Some((tid, asleep.clone()));
                    Ended::ByThread { tid, pid }
                }
                EndedBy::Thread { tid, pid } => Ended::ByOutsider {
                    tid,
                    pid,
                    name: names.of(pid),
                },
                _ if is_helper_of_worker(roles, &hop) && !known(hop.pid) => {
                    next = Some((hop.pid, asleep.clone()));
                    Ended::WaitsWithTimeout
                }
                EndedBy::Interrupt => Ended::ByInterrupt {
                    context: String::new(),
                },
                EndedBy::Unknown => Ended::Unknown,
            };
        }
        hops.push(hop);
    }
    hops
}

/// A helper thread of a loader worker that waits with a timeout waits for its process: in Python,
/// for the interpreter's lock, which the main thread holds.
fn is_helper_of_worker(roles: &Roles, hop: &Hop) -> bool {
    hop.tid != hop.pid && roles.of(hop.pid) == Role::LoaderWorker
}

/// Says from which context the interrupts came.
fn name_interrupts(trace: &Trace, hops: &mut [Hop], wait: Window) -> Result<(), AnalysisError> {
    for hop in hops {
        if let Ended::ByInterrupt { context } = &mut hop.ended {
            *context = ask(trace, |c| {
                c.query_row(
                    include_str!("interrupts.sql"),
                    named_params! {
                        "tid": hop.tid, "start_ns": wait.start_ns, "end_ns": wait.end_ns
                    },
                    |row| row.get(0),
                )
            })?;
        }
    }
    Ok(())
}

/// Says who took the CPU from threads that were short of one.
fn name_takers(
    trace: &Trace,
    hops: &mut [Hop],
    names: &Names,
    wait: Window,
) -> Result<(), AnalysisError> {
    let enough_ns = (wait.dur_ns() as f64 * EXPLAINED_SHARE) as i64;
    for hop in hops.iter_mut().filter(|hop| hop.queued_ns > enough_ns) {
        let tid: Option<i32> = ask(trace, |c| {
            let mut statement = c.prepare(include_str!("takers.sql"))?;
            let mut rows = statement.query(named_params! {
                "tid": hop.tid, "start_ns": wait.start_ns, "end_ns": wait.end_ns
            })?;
            rows.next()?.map(|row| row.get(0)).transpose()
        })?;
        hop.taken_by = tid.map(|tid| Taker {
            tid,
            pid: names.pid_of(tid),
            name: names.of(tid),
        });
    }
    Ok(())
}

/// The CUDA call that a thread was in at a moment.
fn call_around(trace: &Trace, tid: i32, at_ns: i64) -> Result<Option<String>, AnalysisError> {
    ask(trace, |c| {
        let mut statement = c.prepare(include_str!("call_around.sql"))?;
        let mut rows = statement.query(named_params! { "tid": tid, "at_ns": at_ns })?;
        rows.next()?.map(|row| row.get(0)).transpose()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::{Correlation, correlate};
    use crate::roles::roles;
    use ingero_testkit::trace::draw;

    const MS: i64 = 1_000_000;

    fn of(text: &str, start_ms: i64, end_ms: i64) -> Correlation {
        let drawn = draw(text);
        let trace = drawn.open();
        let window = Window {
            start_ns: start_ms * MS,
            end_ns: end_ms * MS,
        };
        let info = trace.info().unwrap();
        correlate(&trace, &info, window, None, &roles(&trace).unwrap()).unwrap()
    }

    fn chain(text: &str, start_ms: i64, end_ms: i64) -> Chain {
        of(text, start_ms, end_ms).feeder.unwrap().chain.unwrap()
    }

    /// tid, ran, queued, slept, disk in milliseconds.
    fn shown(chain: &Chain) -> Vec<(i32, i64, i64, i64, i64)> {
        let hops = chain.hops.iter();
        hops.map(|hop| {
            (
                hop.tid,
                hop.ran_ns / MS,
                hop.queued_ns / MS,
                hop.slept_ns / MS,
                hop.disk_ns / MS,
            )
        })
        .collect()
    }

    // 100 |launch|  S 60 <200, Q 2         |launch
    // 200    |R 10|  S 40 <300   | R 20 |
    // 300    |R 5| D 25 |Q 5|R 15|
    const JOB: &str = "
        process 100 python
        process 200 pt_data_worker parent=100
        process 300 pt_data_worker parent=100
        thread 100 100: launch(10) (S1<200 launch(1))*5 S70<200+2 launch(8)
        thread 200 200: R30 S40<300 R30
        thread 300 300: R25 D25 Q5 R45";

    #[test]
    fn a_wait_is_followed_until_its_time_is_explained() {
        // From 20 to 92 ms the feeder waits; 200 sleeps from 30 to 70, 300 waits for a disk.
        let chain = chain(JOB, 0, 100);
        assert_eq!((chain.start_ns, chain.dur_ns), (20 * MS, 72 * MS));
        assert_eq!(
            shown(&chain),
            [(100, 0, 2, 70, 0), (200, 30, 0, 40, 0), (300, 15, 5, 0, 20),]
        );
        let ended: Vec<&Ended> = chain.hops.iter().map(|hop| &hop.ended).collect();
        assert_eq!(
            ended,
            [
                &Ended::ByThread { tid: 200, pid: 200 },
                &Ended::ByThread { tid: 300, pid: 300 },
                &Ended::Explained,
            ]
        );
        assert_eq!(chain.inside_call, None);
    }

    #[test]
    fn the_first_hop_covers_the_wait_and_each_hop_the_sleep_before_it() {
        for (start, end) in [(0, 100), (25, 60), (40, 100), (21, 22), (5, 95)] {
            let chain = chain(JOB, start, end);
            assert_eq!(chain.hops[0].total_ns, chain.dur_ns);
            for pair in chain.hops.windows(2) {
                assert_eq!(pair[1].total_ns, pair[0].ended_ns);
            }
            for hop in &chain.hops {
                assert_eq!(hop.unknown_ns(), 0, "{hop:?}");
            }
        }
    }

    #[test]
    fn a_wait_beyond_the_window_is_cut_and_says_so() {
        let chain = chain(JOB, 30, 60);
        assert_eq!((chain.start_ns, chain.dur_ns), (30 * MS, 30 * MS));
        assert_eq!(
            (chain.whole.start_ns, chain.whole.end_ns),
            (20 * MS, 92 * MS)
        );
    }

    #[test]
    fn who_ran_through_the_whole_window_is_known_to_have_run() {
        // No switch of 200 lies in the window.
        let correlation = of(
            "process 100 python
             process 200 pt_data_worker parent=100
             thread 100 100: launch(10) S190<200 (launch(1) S9<200)*10
             thread 200 200: R5 S1<100 R294",
            50,
            150,
        );
        let feeder = correlation.feeder.unwrap();
        assert_eq!(
            shown(&feeder.chain.unwrap()),
            [(100, 0, 0, 100, 0), (200, 100, 0, 0, 0)]
        );
        let waited = feeder.budget.seconds(ingero_diagnosis::Part::LoaderCompute);
        assert!((waited - 0.1).abs() < 1e-9, "{waited}");
    }

    #[test]
    fn interrupts_strangers_and_the_unknown_end_a_chain() {
        let ended = |sleep: &str| {
            let text = format!(
                "process 100 python
                 thread 100 100: launch(10) {sleep} (launch(1) R1)*5"
            );
            chain(&text, 0, 100).hops.remove(0).ended
        };
        assert_eq!(
            ended("S70<timer"),
            Ended::ByInterrupt {
                context: "hardirq".to_owned()
            }
        );
        assert_eq!(
            ended("S70<900"),
            Ended::ByOutsider {
                tid: 900,
                pid: 900,
                name: String::new()
            }
        );
        assert_eq!(ended("S70"), Ended::Unknown);
        assert_eq!(ended("D70"), Ended::Explained);
    }

    #[test]
    fn threads_that_take_turns_do_not_go_round() {
        let chain = chain(
            "process 100 python
             process 200 pt_data_worker parent=100
             thread 100 100: launch(10) S70<200 (launch(1) S9<200)*5
             thread 200 200: R20 S40<100 R70",
            0,
            80,
        );
        assert_eq!(shown(&chain), [(100, 0, 0, 70, 0), (200, 30, 0, 40, 0)]);
        assert_eq!(chain.hops[1].ended, Ended::ByEarlierHop { tid: 100 });
    }

    #[test]
    fn a_helper_that_waits_with_a_timeout_waits_for_its_process() {
        let chain = chain(
            "process 100 python
             process 200 pt_data_worker parent=100
             thread 100 100: launch(10) S70<201 (launch(1) S9<201)*5
             thread 200 200: R5 S1<100 R100
             thread 200 201: R10 (S5<timer)*13 R5 (S9<timer R1)*5",
            0,
            80,
        );
        assert_eq!(
            shown(&chain),
            [(100, 0, 0, 70, 0), (201, 5, 0, 65, 0), (200, 65, 0, 0, 0)]
        );
        assert_eq!(chain.hops[1].ended, Ended::WaitsWithTimeout);
    }

    #[test]
    fn a_feeder_that_never_left_its_cpu_has_no_chain() {
        let feeder = of(
            "process 100 python\nthread 100 100: (launch(1) sync(9))*10",
            0,
            100,
        )
        .feeder
        .unwrap();
        assert_eq!(feeder.chain, None);
        assert!((feeder.budget.total() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn whoever_took_the_cpu_is_named() {
        let chain = chain(
            "process 100 python
             process 300 logrotate
             thread 100 100: (launch(1) R1 Q9<300)*9 Q1<900
             thread 300 300: R100",
            0,
            100,
        );
        let taker = chain.hops[0].taken_by.clone().unwrap();
        assert_eq!((taker.tid, taker.pid), (300, Some(300)));
        assert_eq!(taker.name, "logrotate");
        assert_eq!(chain.hops[0].ended, Ended::Explained);
    }

    #[test]
    fn a_wait_inside_a_call_names_it() {
        let chain = chain(
            "process 100 python\nthread 100 100: (launch(1) sync(R1 S7<timer R1))*10",
            0,
            100,
        );
        assert_eq!(chain.inside_call.as_deref(), Some("cudaStreamSynchronize"));
    }
}
