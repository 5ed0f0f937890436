//! From the kernel's events to rows: pure functions.

use crate::wire::{self, OffCpuEvent, ThreadState};
use ingero_trace::rows::{OffCpu, Text};

/// Parts of an interval off the CPU, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) blocked_ns: u64,
    pub(crate) wake_ns: u64,
    pub(crate) runq_ns: u64,
}

impl Split {
    pub(crate) fn total_ns(self) -> u64 {
        self.blocked_ns + self.wake_ns + self.runq_ns
    }

    /// What is left after `written`, an earlier piece of the same interval: always the exact
    /// difference in total, and no part is negative, even where a later wake-up moved the parts.
    pub(crate) fn minus(self, written: Split) -> Split {
        let mut excess = 0;
        let mut part = |whole: u64, written: u64| {
            excess += written.saturating_sub(whole);
            whole.saturating_sub(written)
        };
        let mut left = Split {
            blocked_ns: part(self.blocked_ns, written.blocked_ns),
            wake_ns: part(self.wake_ns, written.wake_ns),
            runq_ns: part(self.runq_ns, written.runq_ns),
        };
        for part in [&mut left.runq_ns, &mut left.wake_ns, &mut left.blocked_ns] {
            let taken = excess.min(*part);
            *part -= taken;
            excess -= taken;
        }
        left
    }
}

/// What a thread's state says about the interval that goes on at `until_ns`, by the rules that
/// `bpf/sched.bpf.c` applies when it ends. `None` if the thread is on a CPU.
pub(crate) fn open_interval(thread: &ThreadState, tid: i32, until_ns: u64) -> Option<OffCpuEvent> {
    let off = thread.off_ns;
    if thread.phase == wire::PHASE_RUNNING || off >= until_ns {
        return None;
    }
    let mut flags = 0;
    let mut split = Split::default();
    match thread.phase {
        wire::PHASE_PREEMPTED => {
            flags |= wire::OFF_CPU_PREEMPTED;
            split.runq_ns = until_ns - off;
        }
        wire::PHASE_NEW => {
            flags |= wire::OFF_CPU_NEW | wire::OFF_CPU_WAKER_KNOWN;
            split.runq_ns = until_ns - off;
        }
        phase => {
            if phase == wire::PHASE_UNKNOWN {
                flags |= wire::OFF_CPU_CLIPPED;
            }
            // A wake-up just before the switch-out may have been used up by it: only the end tells.
            if thread.wake_ns >= off && thread.wake_ns <= until_ns {
                flags |= wire::OFF_CPU_WAKER_KNOWN;
                let queued = thread.enq_ns.clamp(thread.wake_ns, until_ns);
                split.blocked_ns = thread.wake_ns - off;
                split.wake_ns = queued - thread.wake_ns;
                split.runq_ns = until_ns - queued;
            } else {
                split.blocked_ns = until_ns - off;
            }
        }
    }
    Some(OffCpuEvent {
        off_ns: off,
        ran_ns: thread.ran_ns,
        blocked_ns: split.blocked_ns,
        wake_ns: split.wake_ns,
        runq_ns: split.runq_ns,
        pid: thread.pid,
        tid,
        waker_pid: thread.waker_pid,
        waker_tid: thread.waker_tid,
        taker_tid: thread.taker_tid,
        cpu: thread.cpu,
        prev_state: thread.prev_state,
        flags: flags as u16,
        waker_context: thread.waker_context as u16,
    })
}

/// The row of an interval, whole and not continued.
pub(crate) fn off_cpu_row(event: &OffCpuEvent, start_ns: u64) -> OffCpu {
    let flag = |bit: u32| u32::from(event.flags) & bit != 0;
    let clipped = flag(wire::OFF_CPU_CLIPPED);
    let waker_known = flag(wire::OFF_CPU_WAKER_KNOWN);
    OffCpu {
        ts_ns: event.off_ns as i64 - start_ns as i64,
        pid: event.pid,
        tid: event.tid,
        cpu: event.cpu as i16,
        ran_ns: event.ran_ns as i64,
        blocked_ns: event.blocked_ns as i64,
        wake_ns: event.wake_ns as i64,
        runq_ns: event.runq_ns as i64,
        idle_before: flag(wire::OFF_CPU_IDLE_BEFORE),
        state: Text::Borrowed(if clipped || flag(wire::OFF_CPU_NEW) {
            "unknown"
        } else if flag(wire::OFF_CPU_DEAD) {
            "dead"
        } else if flag(wire::OFF_CPU_PREEMPTED) {
            "preempted"
        } else {
            state_name(event.prev_state)
        }),
        waker_tid: waker_known.then_some(event.waker_tid),
        waker_pid: waker_known.then_some(event.waker_pid),
        waker_context: if waker_known {
            waker_context_name(u32::from(event.waker_context)).map(Text::Borrowed)
        } else {
            None
        },
        taker_tid: (event.taker_tid >= 0).then_some(event.taker_tid),
        clipped,
        open: false,
        continued: false,
    }
}

/// The kernel's state bits of a task that went off the CPU by itself.
fn state_name(bits: u32) -> &'static str {
    const INTERRUPTIBLE: u32 = 0x1;
    const UNINTERRUPTIBLE: u32 = 0x2;
    const STOPPED_OR_TRACED: u32 = 0x4 | 0x8;
    const PARKED: u32 = 0x40;
    const NO_LOAD: u32 = 0x400;
    if bits & INTERRUPTIBLE != 0 {
        "sleeping"
    } else if bits & UNINTERRUPTIBLE != 0 {
        if bits & NO_LOAD != 0 { "idle" } else { "disk" }
    } else if bits & STOPPED_OR_TRACED != 0 {
        "stopped"
    } else if bits & PARKED != 0 {
        "parked"
    } else {
        "unknown"
    }
}

fn waker_context_name(context: u32) -> Option<&'static str> {
    match context {
        wire::WAKER_TASK => Some("task"),
        wire::WAKER_SOFTIRQ => Some("softirq"),
        wire::WAKER_HARDIRQ => Some("hardirq"),
        wire::WAKER_IDLE => Some("idle"),
        _ => None,
    }
}

/// The exit status as a shell shows it: the code, or 128 + signal.
pub(crate) fn exit_status(wait_code: i32) -> i32 {
    let signal = wait_code & 0x7f;
    if signal != 0 {
        128 + signal
    } else {
        (wait_code >> 8) & 0xff
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{CpuTimeValue, ExecEvent, ProcessEvent, WireRecord};
    use proptest::prelude::*;

    /// A field's bytes as the kernel lays them out, which is little-endian where these tests run.
    fn number(bytes: &[u8], at: usize, size: usize) -> i128 {
        bytes[at..at + size]
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | i128::from(*byte))
    }

    proptest! {
        #[test]
        fn records_of_any_bytes_are_read_field_by_field(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let event = OffCpuEvent::from_bytes(&bytes);
            prop_assert_eq!(event.is_some(), bytes.len() >= 72);
            if let Some(event) = event {
                prop_assert_eq!(i128::from(event.off_ns), number(&bytes, 0, 8));
                prop_assert_eq!(i128::from(event.runq_ns), number(&bytes, 32, 8));
                prop_assert_eq!(i128::from(event.pid as u32), number(&bytes, 40, 4));
                prop_assert_eq!(i128::from(event.cpu as u32), number(&bytes, 60, 4));
                prop_assert_eq!(i128::from(event.prev_state), number(&bytes, 64, 4));
                prop_assert_eq!(i128::from(event.flags), number(&bytes, 68, 2));
                prop_assert_eq!(i128::from(event.waker_context), number(&bytes, 70, 2));
                // A row can be made of anything.
                let _ = off_cpu_row(&event, 5);
            }
            prop_assert_eq!(ProcessEvent::from_bytes(&bytes).is_some(), bytes.len() >= 48);
            prop_assert_eq!(CpuTimeValue::from_bytes(&bytes).is_some(), bytes.len() >= 32);
            prop_assert!(ExecEvent::from_bytes(&bytes).is_none());
            let _ = crate::processes::decode_event(&bytes);
        }

        #[test]
        fn what_is_left_after_a_piece_is_exactly_the_rest(
            whole in [0u64..1000, 0u64..1000, 0u64..1000],
            written in [0u64..1000, 0u64..1000, 0u64..1000],
        ) {
            let split = |[blocked_ns, wake_ns, runq_ns]: [u64; 3]| Split { blocked_ns, wake_ns, runq_ns };
            let (whole, written) = (split(whole), split(written));
            prop_assume!(written.total_ns() <= whole.total_ns());
            prop_assert_eq!(whole.minus(written).total_ns(), whole.total_ns() - written.total_ns());
        }
    }

    #[test]
    fn state_bits_have_names() {
        for (bits, name) in [
            (0x1, "sleeping"),
            (0x2, "disk"),
            (0x402, "idle"),
            (0x4, "stopped"),
            (0x8, "stopped"),
            (0x40, "parked"),
            (0x102, "disk"),
            (0x2001, "sleeping"),
            (0x8000, "unknown"),
        ] {
            assert_eq!(state_name(bits), name, "{bits:#x}");
        }
    }

    #[test]
    fn exit_codes() {
        assert_eq!(exit_status(0), 0);
        assert_eq!(exit_status(7 << 8), 7);
        assert_eq!(exit_status(9), 137);
        assert_eq!(exit_status(11 | 0x80), 139, "with a core dump");
    }
}
