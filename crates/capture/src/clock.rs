//! The one clock of a recording.

/// CLOCK_MONOTONIC in ns, which is what `bpf_ktime_get_ns` tells in the kernel.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// UTC in microseconds since 1970.
pub(crate) fn utc_us() -> i64 {
    (clock_ns(libc::CLOCK_REALTIME) / 1000) as i64
}

/// CPU time of this process in ns.
pub(crate) fn own_cpu_ns() -> i64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID) as i64
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the result; these clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
