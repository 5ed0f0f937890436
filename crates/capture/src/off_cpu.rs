//! Waits that are written in pieces: what was written is remembered and not written again.

use crate::decode::{self, Split};
use crate::wire::{OffCpuEvent, ThreadState};
use ingero_trace::rows::OffCpu;
use std::collections::HashMap;

#[derive(Debug, Clone, Copy)]
struct Written {
    off_ns: u64,
    split: Split,
}

/// The pieces written so far of waits that go on.
#[derive(Debug, Default)]
pub(crate) struct OpenWaits {
    written: HashMap<i32, Written>,
}

impl OpenWaits {
    /// The row of a finished interval, without what earlier pieces told.
    pub(crate) fn finished(&mut self, event: &OffCpuEvent, start_ns: u64) -> OffCpu {
        let earlier = self.written.remove(&event.tid);
        let mut row = decode::off_cpu_row(event, start_ns);
        if let Some(earlier) = earlier.filter(|earlier| earlier.off_ns == event.off_ns) {
            continue_after(&mut row, split_of(event), earlier.split);
        }
        row
    }

    /// The row for the part of a thread's wait that was not written yet, up to `until_ns`.
    /// `None` if it is not waiting.
    pub(crate) fn open_piece(
        &mut self,
        thread: &ThreadState,
        tid: i32,
        until_ns: u64,
        start_ns: u64,
    ) -> Option<OffCpu> {
        let event = decode::open_interval(thread, tid, until_ns)?;
        let split = split_of(&event);
        let mut row = decode::off_cpu_row(&event, start_ns);
        row.open = true;
        let earlier = self
            .written
            .get(&tid)
            .filter(|earlier| earlier.off_ns == event.off_ns);
        if let Some(earlier) = earlier {
            if earlier.split.total_ns() >= split.total_ns() {
                return None;
            }
            continue_after(&mut row, split, earlier.split);
        }
        self.written.insert(
            tid,
            Written {
                off_ns: event.off_ns,
                split,
            },
        );
        Some(row)
    }

    /// Whether a piece of the wait that began at `off_ns` was written.
    pub(crate) fn has_piece(&self, tid: i32, off_ns: u64) -> bool {
        self.written
            .get(&tid)
            .is_some_and(|written| written.off_ns == off_ns)
    }
}

fn split_of(event: &OffCpuEvent) -> Split {
    Split {
        blocked_ns: event.blocked_ns,
        wake_ns: event.wake_ns,
        runq_ns: event.runq_ns,
    }
}

/// Makes `row` the piece that follows `written`.
fn continue_after(row: &mut OffCpu, whole: Split, written: Split) {
    let left = whole.minus(written);
    row.ts_ns += written.total_ns() as i64;
    row.ran_ns = 0;
    row.blocked_ns = left.blocked_ns as i64;
    row.wake_ns = left.wake_ns as i64;
    row.runq_ns = left.runq_ns as i64;
    row.continued = true;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire;

    const START: u64 = 1000;
    const TID: i32 = 7;

    /// A thread that went off the CPU at 1100 after running for 50, in `phase`.
    fn thread(phase: u32) -> ThreadState {
        ThreadState {
            off_ns: 1100,
            on_ns: 1050,
            wake_ns: 0,
            enq_ns: 0,
            ran_ns: 50,
            pid: 6,
            waker_pid: 1,
            waker_tid: 2,
            taker_tid: 0,
            prev_state: 1,
            cpu: 3,
            phase,
            waker_context: wire::WAKER_TASK,
        }
    }

    /// The kernel's event when that wait ended.
    fn end(blocked_ns: u64, wake_ns: u64, runq_ns: u64) -> OffCpuEvent {
        OffCpuEvent {
            off_ns: 1100,
            ran_ns: 50,
            blocked_ns,
            wake_ns,
            runq_ns,
            pid: 6,
            tid: TID,
            waker_pid: 1,
            waker_tid: 2,
            taker_tid: 0,
            cpu: 1,
            prev_state: 1,
            flags: wire::OFF_CPU_WAKER_KNOWN as u16,
            waker_context: wire::WAKER_TASK as u16,
        }
    }

    fn parts(row: &OffCpu) -> (i64, i64, i64, i64, i64) {
        (
            row.ts_ns,
            row.ran_ns,
            row.blocked_ns,
            row.wake_ns,
            row.runq_ns,
        )
    }

    // off        flush     flush  wake enq  in
    // 1100.......1150......1200...1230.1240.1300
    // |blocked 50 |blocked 50|b 30 |w 10|runq 60|
    #[test]
    fn pieces_follow_each_other_and_sum_to_the_whole() {
        let mut waits = OpenWaits::default();
        let first = waits
            .open_piece(&thread(wire::PHASE_BLOCKED), TID, 1150, START)
            .unwrap();
        assert_eq!(parts(&first), (100, 50, 50, 0, 0));
        assert_eq!(
            (first.open, first.continued, first.waker_tid, first.cpu),
            (true, false, None, 3)
        );
        let second = waits
            .open_piece(&thread(wire::PHASE_BLOCKED), TID, 1200, START)
            .unwrap();
        assert_eq!(parts(&second), (150, 0, 50, 0, 0));
        assert_eq!((second.open, second.continued), (true, true));
        let last = waits.finished(&end(130, 10, 60), START);
        assert_eq!(parts(&last), (200, 0, 30, 10, 60));
        assert_eq!(
            (last.open, last.continued, last.waker_tid, last.cpu),
            (false, true, Some(2), 1)
        );
        // The next wait of the thread is a new one.
        let next = OffCpuEvent {
            off_ns: 1400,
            ..end(5, 0, 0)
        };
        assert_eq!(parts(&waits.finished(&next, START)), (400, 50, 5, 0, 0));
    }

    // off      wake enq   flush
    // 1100.....1120.1125..1150
    #[test]
    fn a_thread_that_was_woken_waits_for_a_cpu() {
        let woken = ThreadState {
            wake_ns: 1120,
            enq_ns: 1125,
            ..thread(wire::PHASE_BLOCKED)
        };
        let row = OpenWaits::default()
            .open_piece(&woken, TID, 1150, START)
            .unwrap();
        assert_eq!(parts(&row), (100, 50, 20, 5, 25));
        assert_eq!(row.waker_tid, Some(2));
    }

    #[test]
    fn a_preempted_thread_ignores_old_wake_stamps() {
        let preempted = ThreadState {
            wake_ns: 1120,
            enq_ns: 1125,
            ..thread(wire::PHASE_PREEMPTED)
        };
        let row = OpenWaits::default()
            .open_piece(&preempted, TID, 1150, START)
            .unwrap();
        assert_eq!(parts(&row), (100, 50, 0, 0, 50));
        assert_eq!((row.state.as_ref(), row.waker_tid), ("preempted", None));
    }

    #[test]
    fn a_thread_seen_neither_in_nor_out_is_clipped() {
        let unknown = ThreadState {
            ran_ns: 0,
            on_ns: 0,
            ..thread(wire::PHASE_UNKNOWN)
        };
        let row = OpenWaits::default()
            .open_piece(&unknown, TID, 1150, START)
            .unwrap();
        assert_eq!(parts(&row), (100, 0, 50, 0, 0));
        assert_eq!((row.state.as_ref(), row.clipped), ("unknown", true));
    }

    #[test]
    fn a_running_thread_and_a_wait_after_the_flush_have_no_piece() {
        let mut waits = OpenWaits::default();
        assert_eq!(
            waits.open_piece(&thread(wire::PHASE_RUNNING), TID, 1150, START),
            None
        );
        assert_eq!(
            waits.open_piece(&thread(wire::PHASE_BLOCKED), TID, 1100, START),
            None
        );
    }

    // The wake-up raced with the switch: at the flush it looked blocked, at the end all was run queue.
    #[test]
    fn a_late_truth_moves_no_time() {
        let mut waits = OpenWaits::default();
        let first = waits
            .open_piece(&thread(wire::PHASE_BLOCKED), TID, 1150, START)
            .unwrap();
        let last = waits.finished(&end(0, 0, 80), START);
        assert_eq!(
            first.blocked_ns + last.blocked_ns + last.wake_ns + last.runq_ns,
            80
        );
        assert_eq!(parts(&last), (150, 0, 0, 0, 30));
    }
}
