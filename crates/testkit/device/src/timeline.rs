//! The device's timeline and what host threads do while they wait for it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

/// Entries of the launch queue; the launch after them blocks.
const QUEUE_ENTRIES: usize = 1024;
/// CPU time of a launch.
const LAUNCH_NS: u64 = 4_000;
/// Length of the first call of a process, which creates the context.
const CONTEXT: Duration = Duration::from_millis(300);
/// Copies between the device and pageable memory.
const PAGEABLE_BYTES_PER_US: u64 = 6_000;
/// Copies that the device makes by itself: pinned memory, device memory.
const DIRECT_BYTES_PER_US: u64 = 24_000;

/// Ends of the queued work in ns of the monotonic clock, in order.
static QUEUE: Mutex<VecDeque<u64>> = Mutex::new(VecDeque::new());
static CONTEXT_CREATED: Once = Once::new();

/// CLOCK_MONOTONIC in ns.
fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the result, and this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn spin_until(end_ns: u64) {
    while now_ns() < end_ns {
        std::hint::spin_loop();
    }
}

/// Uses the CPU for a while.
pub(crate) fn burn(duration_ns: u64) {
    spin_until(now_ns() + duration_ns);
}

/// Creates the context in the first call of a process.
pub(crate) fn ensure_context() {
    CONTEXT_CREATED.call_once(|| std::thread::sleep(CONTEXT));
}

fn queue() -> MutexGuard<'static, VecDeque<u64>> {
    // Nothing that holds the lock can leave the queue half changed.
    let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    let now = now_ns();
    while queue.front().is_some_and(|end| *end <= now) {
        queue.pop_front();
    }
    queue
}

/// Queues work of the given length; waits first while the queue is full.
fn enqueue(work_ns: u64) {
    loop {
        let mut queue = queue();
        if queue.len() < QUEUE_ENTRIES {
            let start = queue.back().copied().unwrap_or_else(now_ns);
            queue.push_back(start + work_ns);
            return;
        }
        let first_end = queue.front().copied();
        drop(queue);
        if let Some(end) = first_end {
            spin_until(end);
        }
    }
}

/// Launches a kernel that runs for `kernel_us` on the device.
pub(crate) fn launch(kernel_us: u32) {
    burn(LAUNCH_NS);
    enqueue(u64::from(kernel_us) * 1_000);
}

/// When all work queued so far ends; a time in the past if there is none.
pub(crate) fn queued_until_ns() -> u64 {
    queue().back().copied().unwrap_or(0)
}

/// Waits for the work that ends at `end_ns`, on the CPU.
pub(crate) fn wait_until(end_ns: u64) {
    spin_until(end_ns);
}

/// Waits until the device has nothing to do.
pub(crate) fn drain() {
    spin_until(queued_until_ns());
}

/// Copies between the device and pageable memory: the calling thread does it, after all queued work.
pub(crate) fn copy_pageable(bytes: usize) {
    drain();
    burn(bytes as u64 * 1_000 / PAGEABLE_BYTES_PER_US);
}

/// Queues a copy that the device makes.
pub(crate) fn copy_direct(bytes: usize) {
    enqueue(bytes as u64 * 1_000 / DIRECT_BYTES_PER_US);
}
