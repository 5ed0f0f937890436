//! What holds whatever a job did.

use super::chain::hops;
use crate::features::{Blocked, Job, Timeline, Wait, Waker};
use crate::names::Names;
use crate::roles::{Feeder, Roles, Worker};
use proptest::prelude::*;
use std::collections::HashMap;

/// What a thread does in turn: it runs, then waits: how long blocked and queued, why, and for whom.
type Turns = Vec<(i64, i64, i64, u8, u8)>;

fn turns() -> impl Strategy<Value = Turns> {
    prop::collection::vec((0_i64..50, 0_i64..80, 0_i64..20, 0_u8..4, 0_u8..8), 1..12)
}

/// Threads 100 and 101 of process 100, and 200 and 201 of process 200.
const TIDS: [i32; 4] = [100, 101, 200, 201];

fn timeline(tid: i32, turns: &Turns) -> Timeline {
    let mut now = 0;
    let waits = turns.iter().map(|(ran, blocked_for, queued, why, by)| {
        let start_ns = now + ran;
        let woken_ns = start_ns + blocked_for;
        now = woken_ns + queued;
        Wait {
            start_ns,
            woken_ns,
            end_ns: now,
            blocked: match why {
                0 => Blocked::Disk,
                1 => Blocked::Unknown,
                _ => Blocked::Sleeping,
            },
            waker: match by {
                0 => Waker::Unknown,
                1 => Waker::Interrupt,
                2 => Waker::Thread { tid: 999, pid: 999 },
                other => {
                    let tid = TIDS[usize::from(*other) % TIDS.len()];
                    let pid = tid / 100 * 100;
                    Waker::Thread { tid, pid }
                }
            },
        }
    });
    let waits: Vec<Wait> = waits.filter(|wait| wait.end_ns > wait.start_ns).collect();
    Timeline::new(tid / 100 * 100, waits, Vec::new())
}

fn job(of: &[Turns]) -> Job {
    let threads = TIDS.iter().zip(of);
    Job {
        threads: threads
            .map(|(tid, turns)| (*tid, timeline(*tid, turns)))
            .collect(),
        feeder_pid: 100,
        feeder_tid: 100,
        loaders: [200].into(),
        ..Job::default()
    }
}

fn roles() -> Roles {
    Roles {
        feeders: vec![Feeder {
            pid: 100,
            tid: 100,
            call_ns: 0,
            submissions: 0,
            waits: 1,
            first_ns: 0,
        }],
        workers: vec![Worker {
            pid: 200,
            feeder_pid: 100,
        }],
        pin_threads: Vec::new(),
    }
}

proptest! {
    #[test]
    fn the_budget_of_any_window_sums_to_it(
        of in prop::collection::vec(turns(), TIDS.len()),
        from in 0_i64..300,
        length in 1_i64..300,
    ) {
        let budget = job(&of).spend(from, from + length).budget;
        prop_assert!((budget.total() - length as f64 * 1e-9).abs() < 1e-12, "{budget:?}");
    }

    #[test]
    fn every_hop_accounts_for_the_sleep_before_it(
        of in prop::collection::vec(turns(), TIDS.len()),
        from in 0_i64..300,
        length in 1_i64..300,
    ) {
        let hops = hops(&job(&of), &roles(), &Names::default(), (from, from + length));
        prop_assert_eq!(hops[0].total_ns, length);
        for hop in &hops {
            prop_assert!(hop.unknown_ns() >= 0, "{:?}", hop);
            prop_assert!(hop.ended_ns <= hop.slept_ns, "{:?}", hop);
        }
        for pair in hops.windows(2) {
            prop_assert_eq!(pair[1].total_ns, pair[0].ended_ns);
            prop_assert!(pair[1].total_ns <= pair[0].total_ns);
        }
        let mut seen = HashMap::new();
        for hop in &hops {
            prop_assert_eq!(seen.insert(hop.tid, ()), None, "{:?}", hops);
        }
    }
}
