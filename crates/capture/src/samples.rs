//! Samples from `/proc`, ten a second.

use crate::cgroup::Quota;
use crate::procfs;
use ingero_trace::rows::{ProcessSample, SystemSample};

/// One sample of a target process, or `None` if it has ended.
pub(crate) fn process(pid: i32, ts_ns: i64) -> Option<ProcessSample> {
    let stat = procfs::stat(pid)?;
    // Unreadable for a process that is just ending.
    let io = procfs::read_lossy(format!("/proc/{pid}/io"))?;
    let bytes = |name: &str| procfs::field(&io, name)?.parse::<i64>().ok();
    Some(ProcessSample {
        ts_ns,
        pid,
        rchar_bytes: bytes("rchar")?,
        read_bytes: bytes("read_bytes")?,
        minflt: stat.minflt,
        majflt: stat.majflt,
        threads: stat.threads,
        rss_bytes: stat.rss_pages * page_bytes(),
    })
}

/// One sample of the host. `quota` is what limits the target's CPUs, if anything does.
pub(crate) fn system(ts_ns: i64, quota: Option<&Quota>) -> Option<SystemSample> {
    let cpus = parse_proc_stat(&procfs::read_lossy("/proc/stat")?)?;
    let memory = procfs::read_lossy("/proc/meminfo")?;
    let bytes = |name: &str| meminfo_bytes(&memory, name);
    let throttling = quota.and_then(Quota::throttling);
    Some(SystemSample {
        ts_ns,
        runnable: cpus.runnable,
        cpu_busy_ns: cpus.busy_ticks * tick_ns(),
        cpu_iowait_ns: cpus.iowait_ticks * tick_ns(),
        cpu_steal_ns: cpus.steal_ticks * tick_ns(),
        mem_available_bytes: bytes("MemAvailable")?,
        swap_used_bytes: bytes("SwapTotal")? - bytes("SwapFree")?,
        psi_cpu_some_us: pressure_us("cpu"),
        psi_memory_some_us: pressure_us("memory"),
        psi_io_some_us: pressure_us("io"),
        cgroup_periods: throttling.map(|counters| counters.periods),
        cgroup_throttled: throttling.map(|counters| counters.throttled),
        cgroup_throttled_us: throttling.map(|counters| counters.throttled_us),
    })
}

/// A value of `/proc/meminfo`, which counts in KiB.
pub(crate) fn meminfo_bytes(meminfo: &str, name: &str) -> Option<i64> {
    let kib: i64 = procfs::field(meminfo, name)?
        .strip_suffix("kB")?
        .trim()
        .parse()
        .ok()?;
    Some(kib * 1024)
}

#[derive(Debug, PartialEq, Eq)]
struct Cpus {
    busy_ticks: i64,
    iowait_ticks: i64,
    steal_ticks: i64,
    runnable: i32,
}

fn parse_proc_stat(text: &str) -> Option<Cpus> {
    let total: Vec<i64> = text
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_ascii_whitespace()
        .map_while(|ticks| ticks.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user time.
    let &[user, nice, system, _idle, iowait, irq, softirq, steal, ..] = total.as_slice() else {
        return None;
    };
    let runnable = text
        .lines()
        .find_map(|line| line.strip_prefix("procs_running "))?;
    Some(Cpus {
        busy_ticks: user + nice + system + irq + softirq,
        iowait_ticks: iowait,
        steal_ticks: steal,
        runnable: runnable.trim().parse().ok()?,
    })
}

/// Total of the line `some` of a pressure file; `None` where the kernel has none.
fn pressure_us(resource: &str) -> Option<i64> {
    parse_pressure(&procfs::read_lossy(format!("/proc/pressure/{resource}"))?)
}

fn parse_pressure(text: &str) -> Option<i64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.rsplit_once("total=")?.1.trim().parse().ok()
}

fn tick_ns() -> i64 {
    1_000_000_000 / sysconf(libc::_SC_CLK_TCK)
}

/// Size of a memory page.
pub(crate) fn page_bytes() -> i64 {
    sysconf(libc::_SC_PAGESIZE)
}

fn sysconf(name: libc::c_int) -> i64 {
    // SAFETY: takes a number and returns one; both names are known to every Linux.
    unsafe { libc::sysconf(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_stat() {
        let text = "cpu  10 1 20 400 5 2 3 7 9 0\ncpu0 1 1 1 1\nctxt 5\nprocs_running 3\nprocs_blocked 0\n";
        assert_eq!(
            parse_proc_stat(text),
            Some(Cpus {
                busy_ticks: 36,
                iowait_ticks: 5,
                steal_ticks: 7,
                runnable: 3
            })
        );
        assert_eq!(parse_proc_stat("cpu  1 2\n"), None);
    }

    #[test]
    fn pressure_and_meminfo() {
        assert_eq!(
            parse_pressure("some avg10=0.00 avg60=0.00 avg300=0.00 total=77\nfull total=1\n"),
            Some(77)
        );
        assert_eq!(
            meminfo_bytes("MemTotal:   2 kB\nMemFree: 1 kB\n", "MemTotal"),
            Some(2048)
        );
    }

    #[test]
    fn this_process_and_host_have_samples() {
        let own = process(std::process::id() as i32, 5).unwrap();
        assert!(own.threads >= 1 && own.rss_bytes > 0 && own.ts_ns == 5);
        let host = system(6, None).unwrap();
        assert!(host.runnable >= 1 && host.cpu_busy_ns > 0 && host.mem_available_bytes > 0);
        assert_eq!(host.cgroup_periods, None);
    }
}
