//! CPU time of every process in buckets of 100 ms.
//!
//! The kernel sums the runs that stay inside one bucket. A run that crosses a border arrives as an
//! event and is split here; one that still goes on is credited up to the last border, and what was
//! credited is left out when it ends.

use crate::wire::{self, CpuTimeKey, CpuTimeValue, CurrentRun, RunEvent};
use ingero_trace::rows::{CpuTime, Text};
use std::collections::{BTreeMap, HashMap};

/// Length of a bucket.
pub(crate) const BUCKET_NS: u64 = wire::BUCKET_NS as u64;

#[derive(Debug, Default)]
struct Sum {
    run_ns: u64,
    switches: u64,
    name: String,
}

/// A run that goes on, as far as it was counted.
#[derive(Debug, Clone, Copy)]
struct Credited {
    since_ns: u64,
    until_ns: u64,
}

/// Sums that were not written yet.
#[derive(Debug)]
pub(crate) struct CpuTimes {
    start_ns: u64,
    sums: BTreeMap<(u64, i32), Sum>,
    credited: HashMap<i32, Credited>,
}

impl CpuTimes {
    pub(crate) fn new(start_ns: u64) -> Self {
        Self {
            start_ns,
            sums: BTreeMap::new(),
            credited: HashMap::new(),
        }
    }

    /// Number of the bucket that is open at `now_ns`.
    pub(crate) fn bucket(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.start_ns) / BUCKET_NS
    }

    /// Adds what the kernel summed in a closed bucket.
    pub(crate) fn add_bucket(&mut self, key: CpuTimeKey, value: &CpuTimeValue) {
        self.add(
            u64::from(key.bucket),
            key.pid,
            value.run_ns,
            value.switches,
            || wire::comm_text(&value.comm),
        );
    }

    /// Adds a run that crossed a border.
    pub(crate) fn add_run(&mut self, run: &RunEvent) {
        let from = self.counted_until(run.cpu, run.start_ns);
        // The ring may hand over an older run after a newer one was credited.
        if self
            .credited
            .get(&run.cpu)
            .is_some_and(|credited| credited.since_ns <= run.start_ns)
        {
            self.credited.remove(&run.cpu);
        }
        self.add_span(run.pid, from, run.end_ns, || wire::comm_text(&run.comm));
        let bucket = self.bucket(run.end_ns);
        self.add(bucket, run.pid, 0, 1, || wire::comm_text(&run.comm));
    }

    /// Counts a run that still goes on, up to `until_ns`.
    pub(crate) fn credit_running(&mut self, cpu: i32, run: CurrentRun, until_ns: u64, name: &str) {
        if run.tid == 0 || run.since_ns == 0 || run.since_ns >= until_ns {
            return;
        }
        let from = self.counted_until(cpu, run.since_ns);
        if from >= until_ns {
            return;
        }
        self.add_span(run.pid, from, until_ns, || name.to_owned());
        self.credited.insert(
            cpu,
            Credited {
                since_ns: run.since_ns,
                until_ns,
            },
        );
    }

    /// The rows of all buckets before `bucket`.
    pub(crate) fn take_before(&mut self, bucket: u64) -> Vec<CpuTime> {
        let later = self.sums.split_off(&(bucket, i32::MIN));
        std::mem::replace(&mut self.sums, later)
            .into_iter()
            .map(|((bucket, pid), sum)| CpuTime {
                ts_ns: (bucket * BUCKET_NS) as i64,
                pid,
                name: Text::Owned(sum.name),
                run_ns: sum.run_ns as i64,
                switches: sum.switches as i64,
            })
            .collect()
    }

    /// Up to when the run on `cpu` that began at `since_ns` is counted already.
    fn counted_until(&self, cpu: i32, since_ns: u64) -> u64 {
        match self.credited.get(&cpu) {
            Some(credited) if credited.since_ns == since_ns => credited.until_ns,
            _ => since_ns,
        }
    }

    fn add_span(&mut self, pid: i32, from_ns: u64, to_ns: u64, name: impl Fn() -> String) {
        let mut from = from_ns.max(self.start_ns);
        while from < to_ns {
            let bucket = self.bucket(from);
            let border = self.start_ns + (bucket + 1) * BUCKET_NS;
            let until = border.min(to_ns);
            self.add(bucket, pid, until - from, 0, &name);
            from = until;
        }
    }

    fn add(
        &mut self,
        bucket: u64,
        pid: i32,
        run_ns: u64,
        switches: u64,
        name: impl Fn() -> String,
    ) {
        let sum = self.sums.entry((bucket, pid)).or_default();
        sum.run_ns += run_ns;
        sum.switches += switches;
        if sum.name.is_empty() {
            sum.name = name();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: u64 = 5_000;
    const MS: u64 = 1_000_000;

    fn run(cpu: i32, start_ms: u64, end_ms: u64) -> RunEvent {
        RunEvent {
            start_ns: START + start_ms * MS,
            end_ns: START + end_ms * MS,
            pid: 9,
            cpu,
            comm: *b"spin\0\0\0\0\0\0\0\0\0\0\0\0",
        }
    }

    fn current(since_ms: u64) -> CurrentRun {
        CurrentRun {
            since_ns: START + since_ms * MS,
            pid: 9,
            tid: 9,
        }
    }

    fn rows(times: &mut CpuTimes, before: u64) -> Vec<(i64, i64, i64)> {
        times
            .take_before(before)
            .into_iter()
            .map(|row| {
                assert_eq!((row.pid, row.name.as_ref()), (9, "spin"));
                (row.ts_ns / 1_000_000, row.run_ns / 1_000_000, row.switches)
            })
            .collect()
    }

    // |0      100     200     300|
    //     [50.............230]
    #[test]
    fn a_run_is_split_at_the_borders() {
        let mut times = CpuTimes::new(START);
        times.add_run(&run(0, 50, 230));
        assert_eq!(rows(&mut times, 2), [(0, 50, 0), (100, 100, 0)]);
        assert_eq!(rows(&mut times, 9), [(200, 30, 1)]);
    }

    // [50...........|200 credited......|330 ends
    #[test]
    fn what_was_credited_is_not_counted_again() {
        let mut times = CpuTimes::new(START);
        times.credit_running(0, current(50), START + 200 * MS, "spin");
        assert_eq!(rows(&mut times, 2), [(0, 50, 0), (100, 100, 0)]);
        times.credit_running(0, current(50), START + 300 * MS, "spin");
        assert_eq!(rows(&mut times, 3), [(200, 100, 0)]);
        times.add_run(&run(0, 50, 330));
        assert_eq!(rows(&mut times, 9), [(300, 30, 1)]);
    }

    #[test]
    fn a_credit_is_for_one_run_on_one_cpu() {
        let mut times = CpuTimes::new(START);
        times.credit_running(0, current(150), START + 200 * MS, "spin");
        // An older run of the same CPU arrives late, and one of another CPU.
        times.add_run(&run(0, 20, 150));
        times.add_run(&run(1, 150, 250));
        assert_eq!(
            rows(&mut times, 9),
            [(0, 80, 0), (100, 150, 1), (200, 50, 1)]
        );
        times.add_run(&run(0, 150, 210));
        assert_eq!(rows(&mut times, 9), [(200, 10, 1)]);
    }

    #[test]
    fn the_idle_task_and_unseen_cpus_are_nobody() {
        let mut times = CpuTimes::new(START);
        times.credit_running(
            0,
            CurrentRun {
                since_ns: START,
                pid: 0,
                tid: 0,
            },
            START + 200 * MS,
            "",
        );
        times.credit_running(
            0,
            CurrentRun {
                since_ns: 0,
                pid: 9,
                tid: 9,
            },
            START + 200 * MS,
            "spin",
        );
        assert!(times.take_before(9).is_empty());
    }

    proptest! {
        // Runs of one CPU one after the other, with a flush after any of them: nothing is lost or doubled.
        #[test]
        fn the_sum_is_that_of_the_runs(lengths in prop::collection::vec((1u64..500, any::<bool>()), 1..20)) {
            let mut times = CpuTimes::new(START);
            let (mut at, mut total) = (0, 0);
            for (length, flush) in &lengths {
                let end = at + length;
                if *flush {
                    let border = (at + length / 2) / 100 * 100;
                    times.credit_running(0, current(at), START + border * MS, "spin");
                    total += times.take_before(border / 100).iter().map(|row| row.run_ns).sum::<i64>();
                }
                times.add_run(&run(0, at, end));
                at = end;
            }
            total += times.take_before(u64::MAX).iter().map(|row| row.run_ns).sum::<i64>();
            prop_assert_eq!(total as u64, at * MS);
        }
    }
}
