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
        let earlier = self.written.get(&tid).filter(|earlier| earlier.off_ns == event.off_ns);
        if let Some(earlier) = earlier {
            if earlier.split.total_ns() >= split.total_ns() {
                return None;
            }
            continue_after(&mut row, split, earlier.split);
        }
        self.written.insert(tid, Written { off_ns: event.off_ns, split });
        Some(row)
    }

    /// Whether a piece of the wait that began at `off_ns` was written.
    pub(crate) fn has_piece(&self, tid: i32, off_ns: u64) -> bool {
        self.written.get(&tid).is_some_and(|written| written.off_ns == off_ns)
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
