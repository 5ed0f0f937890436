//! What one thread did, moment by moment: on a CPU or off it, and in which CUDA call.

use crate::call_kind::CallKind;

/// Why a thread was off the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// It slept until somebody woke it.
    Sleeping,
    /// It waited for the disk or another uninterruptible operation.
    Disk,
    /// The state at the switch is not known: the wait began before the recording, or the thread
    /// did not exist yet.
    Unknown,
    /// The thread had ended.
    Ended,
}

/// Who ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waker {
    /// A thread.
    Thread {
        /// The thread.
        tid: i32,
        /// Its process, 0 if unknown.
        pid: i32,
    },
    /// An interrupt: a timer, the network, a device.
    Interrupt,
    /// Not recorded, or nobody has yet.
    Unknown,
}

/// One wait: from `start_ns` blocked until `woken_ns`, then without a CPU until `end_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    /// Switched out.
    pub(crate) start_ns: i64,
    /// Ready to run: the wake-up latency counts as part of being blocked, and so does the way
    /// out of an idle CPU, since nobody competed.
    pub(crate) woken_ns: i64,
    /// Switched in.
    pub(crate) end_ns: i64,
    /// Why.
    pub(crate) blocked: Blocked,
    /// Who ended it.
    pub(crate) waker: Waker,
}

/// One CUDA call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    /// Its entry.
    pub(crate) start_ns: i64,
    /// Its return, or as far as is known.
    pub(crate) end_ns: i64,
    /// What it does.
    pub(crate) kind: CallKind,
    /// Bytes it moves.
    pub(crate) bytes: i64,
    /// It returned an error.
    pub(crate) failed: bool,
    /// Pairs of probes that fired in it: its own, and those of calls inside of it.
    pub(crate) probe_pairs: i64,
}

/// What a thread did in one piece of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activity {
    /// On a CPU.
    Running,
    /// Ready, and competing for a CPU.
    Queued,
    /// Blocked in the wait of this index.
    Blocked(usize),
}

/// The waits and calls of one thread, each in order and without overlap.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timeline {
    pid: i32,
    waits: Vec<Wait>,
    calls: Vec<Call>,
}

impl Timeline {
    /// A timeline of a thread of process `pid`. Calls inside another call (the runtime calls
    /// itself and the driver), which older recorders stored, are part of the outer one.
    pub(crate) fn new(pid: i32, mut waits: Vec<Wait>, mut calls: Vec<Call>) -> Self {
        waits.sort_by_key(|wait| wait.start_ns);
        calls.sort_by_key(|call| (call.start_ns, std::cmp::Reverse(call.end_ns)));
        let mut outer: Vec<Call> = Vec::with_capacity(calls.len());
        for call in calls {
            match outer.last_mut() {
                Some(last) if call.start_ns < last.end_ns => last.probe_pairs += call.probe_pairs,
                _ => outer.push(call),
            }
        }
        Self {
            pid,
            waits,
            calls: outer,
        }
    }

    /// The process of the thread.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Its waits.
    pub(crate) fn waits(&self) -> &[Wait] {
        &self.waits
    }

    /// Its calls.
    pub(crate) fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// The ends of its rounds: waits for the GPU after at least one launch. One is a step of the
    /// job, however many copies and waits the step has. Freeing memory waits too, but a step without
    /// a caching allocator frees many times.
    pub(crate) fn rounds(&self) -> impl Iterator<Item = i64> {
        let mut launched = false;
        self.calls.iter().filter_map(move |call| {
            launched |= call.kind == CallKind::Launch;
            let ends = call.kind.waits() && call.kind != CallKind::Free;
            (ends && std::mem::take(&mut launched)).then_some(call.end_ns)
        })
    }

    /// Divides `from_ns..to_ns` by what the thread did, in order and without a gap.
    pub(crate) fn divide(
        &self,
        from_ns: i64,
        to_ns: i64,
        mut each: impl FnMut(i64, i64, Activity),
    ) {
        let mut now = from_ns;
        let first = self.waits.partition_point(|wait| wait.end_ns <= from_ns);
        for (index, wait) in self.waits.iter().enumerate().skip(first) {
            if wait.start_ns >= to_ns {
                break;
            }
            for (until, activity) in [
                (wait.start_ns, Activity::Running),
                (wait.woken_ns, Activity::Blocked(index)),
                (wait.end_ns, Activity::Queued),
            ] {
                let until = until.min(to_ns);
                if until > now {
                    each(now, until, activity);
                    now = until;
                }
            }
        }
        if to_ns > now {
            each(now, to_ns, Activity::Running);
        }
    }

    /// Divides `from_ns..to_ns` by the calls the thread was in, in order and without a gap.
    pub(crate) fn divide_by_calls(
        &self,
        from_ns: i64,
        to_ns: i64,
        mut each: impl FnMut(i64, i64, Option<&Call>),
    ) {
        let mut now = from_ns;
        let first = self.calls.partition_point(|call| call.end_ns <= from_ns);
        for call in &self.calls[first..] {
            if call.start_ns >= to_ns {
                break;
            }
            if call.start_ns > now {
                each(now, call.start_ns, None);
                now = call.start_ns;
            }
            let until = call.end_ns.min(to_ns);
            // A call of no length is still a call: the GPU may have work after it.
            each(now, until, Some(call));
            now = until;
        }
        if to_ns > now {
            each(now, to_ns, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(start_ns: i64, woken_ns: i64, end_ns: i64) -> Wait {
        Wait {
            start_ns,
            woken_ns,
            end_ns,
            blocked: Blocked::Sleeping,
            waker: Waker::Unknown,
        }
    }

    fn call(start_ns: i64, end_ns: i64) -> Call {
        Call {
            start_ns,
            end_ns,
            kind: CallKind::Launch,
            bytes: 0,
            failed: false,
            probe_pairs: 1,
        }
    }

    #[test]
    fn a_window_is_divided_without_a_gap() {
        //  0    10      20  25        40
        //  run  blocked  q   run
        let timeline = Timeline::new(1, vec![wait(10, 20, 25)], vec![]);
        let mut parts = Vec::new();
        timeline.divide(5, 40, |from, to, activity| parts.push((from, to, activity)));
        assert_eq!(
            parts,
            [
                (5, 10, Activity::Running),
                (10, 20, Activity::Blocked(0)),
                (20, 25, Activity::Queued),
                (25, 40, Activity::Running),
            ]
        );
        parts.clear();
        timeline.divide(12, 22, |from, to, activity| {
            parts.push((from, to, activity))
        });
        assert_eq!(
            parts,
            [(12, 20, Activity::Blocked(0)), (20, 22, Activity::Queued)]
        );
    }

    #[test]
    fn a_step_ends_when_it_is_waited_for_and_not_with_each_buffer_it_frees() {
        let kinds = [
            CallKind::Launch,
            CallKind::Free,
            CallKind::Launch,
            CallKind::Free,
        ];
        let step = kinds.into_iter().chain([CallKind::Launch, CallKind::Sync]);
        let steps = step.clone().chain(step).enumerate();
        let calls = steps.map(|(index, kind)| Call {
            kind,
            ..call(10 * index as i64, 10 * index as i64 + 5)
        });
        let timeline = Timeline::new(1, vec![], calls.collect());
        assert_eq!(timeline.rounds().collect::<Vec<_>>(), [55, 115]);
    }

    #[test]
    fn nested_calls_count_once() {
        let timeline = Timeline::new(1, vec![], vec![call(10, 20), call(12, 18), call(20, 30)]);
        let mut inside = 0;
        timeline.divide_by_calls(0, 40, |from, to, call| {
            inside += if call.is_some() { to - from } else { 0 };
        });
        assert_eq!((timeline.calls().len(), inside), (2, 20));
        assert_eq!(timeline.calls()[0].probe_pairs, 2, "each was probed");
    }
}
