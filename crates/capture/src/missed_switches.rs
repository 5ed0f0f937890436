//! Tests of what the kernel programs make of a switch that they do not see.

use crate::clock;
use crate::kernel::Kernel;
use crate::wire::{self, OffCpuEvent, ThreadState, WireRecord as _};
use ingero_testkit::{live_lock, needs_root_and_bpf};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// What the kernel's side knows of a thread that has gone to wait after this time.
fn waiting(kernel: &Mutex<Kernel>, tid: i32, after_ns: u64) -> ThreadState {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let state = kernel.lock().unwrap().thread(tid as u32);
        match state {
            Some(state) if state.phase == wire::PHASE_BLOCKED && state.off_ns > after_ns => {
                return state;
            }
            _ => assert!(Instant::now() < deadline, "the thread does not wait"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What was seen of a thread whose run began unseen.
struct Seen {
    waits: Vec<OffCpuEvent>,
    at_end: ThreadState,
    lost: u64,
}

/// A thread waits, runs and waits again. The recording is off while it gets its CPU: the thread itself
/// switches it on.
fn miss_a_switch() -> Seen {
    let mut kernel = Kernel::load().unwrap();
    let start_ns = clock::monotonic_ns();
    kernel.start(start_ns).unwrap();
    let own_pid = std::process::id() as i32;
    kernel.add_target(own_pid, start_ns).unwrap();
    let kernel = Mutex::new(kernel);
    let ((to_run, run), (to_end, end), (tell_tid, told_tid)) = (channel(), channel(), channel());
    std::thread::scope(|scope| {
        let kernel = &kernel;
        scope.spawn(move || {
            // SAFETY: takes nothing and returns a number.
            tell_tid.send(unsafe { libc::gettid() }).unwrap();
            let () = run.recv().unwrap();
            kernel.lock().unwrap().start(start_ns).unwrap();
            end.recv().unwrap()
        });
        let tid = told_tid.recv().unwrap();
        let first = waiting(kernel, tid, start_ns);
        kernel.lock().unwrap().stop().unwrap();
        to_run.send(()).unwrap();
        let at_end = waiting(kernel, tid, first.off_ns);
        let mut kernel = kernel.lock().unwrap();
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
    // Between switching the recording on and waiting, the thread may be preempted, and then is seen to go on.
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
