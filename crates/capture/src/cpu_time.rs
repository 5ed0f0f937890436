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
        Self { start_ns, sums: BTreeMap::new(), credited: HashMap::new() }
    }

    /// Number of the bucket that is open at `now_ns`.
    pub(crate) fn bucket(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.start_ns) / BUCKET_NS
    }

    /// Adds what the kernel summed in a closed bucket.
    pub(crate) fn add_bucket(&mut self, key: CpuTimeKey, value: &CpuTimeValue) {
        self.add(u64::from(key.bucket), key.pid, value.run_ns, value.switches, || {
            wire::comm_text(&value.comm)
        });
    }

    /// Adds a run that crossed a border.
    pub(crate) fn add_run(&mut self, run: &RunEvent) {
        let from = self.counted_until(run.cpu, run.start_ns);
        // The ring may hand over an older run after a newer one was credited.
        if self.credited.get(&run.cpu).is_some_and(|credited| credited.since_ns <= run.start_ns) {
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
        self.credited.insert(cpu, Credited { since_ns: run.since_ns, until_ns });
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

    fn add(&mut self, bucket: u64, pid: i32, run_ns: u64, switches: u64, name: impl Fn() -> String) {
        let sum = self.sums.entry((bucket, pid)).or_default();
        sum.run_ns += run_ns;
        sum.switches += switches;
        if sum.name.is_empty() {
            sum.name = name();
        }
    }
}
