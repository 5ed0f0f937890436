//! Tests of what the kernel programs make of a switch that they do not see.

use crate::clock;
use crate::kernel::Kernel;
use crate::wire::{self, OffCpuEvent, ThreadState, WireRecord as _};
use ingero_testkit::{live_lock, needs_root_and_bpf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Naps until `condition` holds. A thread of its own would be a switch more.
fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn blocked_since(kernel: &Kernel, tid: i32, after_ns: u64) -> ThreadState {
    eventually("the thread waits", || {
        kernel
            .thread(tid as u32)
            .filter(|state| state.phase == wire::PHASE_BLOCKED && state.off_ns > after_ns)
    })
}

/// What was seen of a thread whose run began unseen.
struct Seen {
    waits: Vec<OffCpuEvent>,
    at_end: ThreadState,
    lost: u64,
}

/// A thread waits, runs and waits again. The recording is off while it gets its CPU.
fn miss_a_switch() -> Seen {
    let mut kernel = Kernel::load().unwrap();
    let start_ns = clock::monotonic_ns();
    kernel.start(start_ns).unwrap();
    kernel
        .add_target(std::process::id() as i32, start_ns)
        .unwrap();
    let (running, go_on) = (AtomicBool::new(false), AtomicBool::new(false));
    let wait = |receiver: Receiver<()>| receiver.recv().unwrap();
    let ((to_start, started), (to_end, ended)) = (channel(), channel());
    let (tell_tid, told_tid) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: takes nothing and returns a number.
            tell_tid.send(unsafe { libc::gettid() }).unwrap();
            wait(started);
            running.store(true, Ordering::SeqCst);
            while !go_on.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
            wait(ended);
        });
        let tid = told_tid.recv().unwrap();
        let first = blocked_since(&kernel, tid, start_ns);
        kernel.stop().unwrap();
        to_start.send(()).unwrap();
        eventually("the thread runs", || {
            running.load(Ordering::SeqCst).then_some(())
        });
        kernel.start(start_ns).unwrap();
        go_on.store(true, Ordering::SeqCst);
        let at_end = blocked_since(&kernel, tid, first.off_ns);
        kernel.stop().unwrap();
        to_end.send(()).unwrap();
        let mut waits = Vec::new();
        while let Some(item) = kernel.off_cpu_ring.next() {
            let event = OffCpuEvent::from_bytes(&item).unwrap();
            if event.tid == tid && event.off_ns >= first.off_ns {
                waits.push(event);
            }
        }
        Seen {
            waits,
            at_end,
            lost: kernel.lost(wire::LOST_SWITCH_IN).unwrap(),
        }
    })
}

#[test]
fn a_run_that_was_not_seen_to_begin_is_counted_and_leaves_no_hole() {
    if !needs_root_and_bpf("a_run_that_was_not_seen_to_begin_is_counted_and_leaves_no_hole") {
        return;
    }
    let _lock = live_lock();
    // On a busy machine the thread may be preempted while it spins, and then it is seen to go on.
    const ATTEMPTS: usize = 20;
    let seen = (0..ATTEMPTS)
        .map(|_| miss_a_switch())
        .find(|seen| seen.lost > 0 && seen.waits.len() == 1);
    let seen = seen.unwrap_or_else(|| panic!("every switch was seen in {ATTEMPTS} attempts"));
    let [wait] = seen.waits[..] else {
        unreachable!("asked for above")
    };
    let waited_ns = wait.blocked_ns + wait.wake_ns + wait.runq_ns;
    assert_eq!(
        wait.off_ns + waited_ns,
        seen.at_end.off_ns - seen.at_end.ran_ns,
        "the run begins where the wait ends: {wait:?}, {:?}",
        seen.at_end
    );
}
