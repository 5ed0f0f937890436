//! When new loader workers were started while the job ran.

use super::NS;
use super::budget::Job;
use super::cpu::Life;
use super::timeline::Waker;
use std::collections::HashMap;

/// Handing over one batch can wake the receiver several times: wake-ups that are closer to each other
/// than this part of the time until the first one belong to one batch.
const WAKES_OF_ONE_BATCH: i64 = 4;

/// The start of new workers while the job ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    /// The feeder's last CUDA call before the first of them was forked.
    pub(crate) from_ns: i64,
    /// The next work that it gave the GPU, once one of them had handed something over.
    pub(crate) to_ns: i64,
    /// How much later than the first one they were forked, summed over them.
    pub(crate) later_ns: i64,
    /// How many they are.
    pub(crate) workers: i64,
}

/// The starts of new workers, in order. Workers that were forked after the same call of the feeder are
/// one start. One that had begun before the
/// feeder gave the GPU any work is the start of the job and no new one.
pub(super) fn starts(job: &Job, lives: &[Life]) -> Vec<Start> {
    let Some(feeder) = job.threads.get(&job.feeder_tid) else {
        return Vec::new();
    };
    let relevant: Vec<_> = feeder
        .calls()
        .iter()
        .filter(|call| !call.kind.is_aside())
        .collect();
    let handed_over = handovers(job);
    let mut starts: Vec<(Start, i64)> = Vec::new();
    let mut births: Vec<&Life> = lives
        .iter()
        .filter(|life| job.loaders.contains(&life.pid))
        .collect();
    births.sort_by_key(|life| life.born_ns);
    for life in births {
        let before = relevant.partition_point(|call| call.start_ns <= life.born_ns);
        let Some(last) = before.checked_sub(1).map(|index| relevant[index]) else {
            continue;
        };
        let from_ns = last.end_ns.min(life.born_ns);
        let handed_ns = handed_over
            .get(&life.pid)
            .and_then(|times| times.iter().min().copied())
            .unwrap_or(life.born_ns);
        let to_ns = relevant[before..]
            .iter()
            .find(|call| call.start_ns >= handed_ns && call.kind.enqueues())
            .map_or(i64::MAX, |call| call.start_ns);
        match starts.last_mut() {
            Some((start, first_ns)) if from_ns < start.to_ns => {
                start.to_ns = start.to_ns.min(to_ns);
                start.later_ns += life.born_ns - *first_ns;
                start.workers += 1;
            }
            _ => {
                let start = Start {
                    from_ns,
                    to_ns,
                    later_ns: 0,
                    workers: 1,
                };
                starts.push((start, life.born_ns));
            }
        }
    }
    starts.into_iter().map(|(start, _)| start).collect()
}

/// How long a worker usually takes from one batch to its next, in seconds: three of four such times
/// are not longer. `None` if none was seen.
pub(super) fn batch_interval_s(job: &Job, lives: &[Life]) -> Option<f64> {
    let handed_over = handovers(job);
    let mut intervals: Vec<i64> = Vec::new();
    for life in lives {
        let Some(times) = handed_over.get(&life.pid) else {
            continue;
        };
        let mut times = times.clone();
        times.sort_unstable();
        let one_batch_ns = (times[0] - life.born_ns) / WAKES_OF_ONE_BATCH;
        let between = times.windows(2).map(|pair| pair[1] - pair[0]);
        intervals.extend(between.filter(|interval| *interval > one_batch_ns));
    }
    intervals.sort_unstable();
    let interval = intervals.get(intervals.len() * 3 / 4)?;
    Some(*interval as f64 * NS)
}

/// When each loader woke the feeder or the thread that receives batches for it. Other threads
/// of its process, such as those that send indices, are woken before there is a batch.
fn handovers(job: &Job) -> HashMap<i32, Vec<i64>> {
    let mut all: HashMap<i32, Vec<i64>> = HashMap::new();
    let receivers = [job.feeder_tid, job.feeder_pid];
    let receivers = receivers.iter().chain(&job.pin_threads);
    for timeline in receivers.filter_map(|tid| job.threads.get(tid)) {
        for wait in timeline.waits() {
            if let Waker::Thread { pid, .. } = wait.waker
                && job.loaders.contains(&pid)
            {
                all.entry(pid).or_default().push(wait.woken_ns);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_kind::CallKind;
    use crate::features::timeline::{Blocked, Call, Timeline, Wait};

    const MS: i64 = 1_000_000;

    fn call(at_ms: i64, kind: CallKind) -> Call {
        Call {
            start_ns: at_ms * MS,
            end_ns: at_ms * MS + 1_000,
            kind,
            bytes: 0,
            failed: false,
            probe_pairs: 1,
        }
    }

    fn wake(at_ms: i64, pid: i32) -> Wait {
        Wait {
            start_ns: (at_ms - 1) * MS,
            woken_ns: at_ms * MS,
            end_ns: at_ms * MS,
            blocked: Blocked::Sleeping,
            waker: Waker::Thread { tid: pid, pid },
        }
    }

    #[test]
    fn workers_forked_before_one_batch_are_one_start() {
        // Two workers before the job's first launch, two at 100 ms, one at 200 ms.
        let mut calls = vec![call(20, CallKind::Launch), call(90, CallKind::Sync)];
        calls.extend([call(105, CallKind::OtherWork), call(150, CallKind::Launch)]);
        calls.extend([call(195, CallKind::Sync), call(230, CallKind::Launch)]);
        let feeder = Timeline::new(1, vec![wake(140, 12), wake(155, 13)], calls);
        let job = Job {
            threads: HashMap::from([(1, feeder)]),
            feeder_pid: 1,
            feeder_tid: 1,
            loaders: (10..15).collect(),
            ..Job::default()
        };
        let born = [(10, 5), (11, 6), (12, 100), (13, 102), (14, 200)];
        let lives = born.map(|(pid, ms)| Life {
            pid,
            born_ns: ms * MS,
            ended_ns: i64::MAX,
        });
        let start = |from_ns, to_ns, later_ns, workers| Start {
            from_ns,
            to_ns,
            later_ns,
            workers,
        };
        // Each of them handed something over once.
        assert_eq!(batch_interval_s(&job, &lives), None);
        assert_eq!(
            starts(&job, &lives),
            [
                // Not to 105 ms: no worker had anything to hand over yet.
                start(90 * MS + 1_000, 150 * MS, 2 * MS, 2),
                start(195 * MS + 1_000, 230 * MS, 0, 1)
            ]
        );
    }
}
