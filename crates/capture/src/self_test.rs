//! Shows before the recording that every program fires: the recorder records itself for a moment.

use crate::cuda::CudaProbes;
use crate::kernel::{self, Kernel, KernelError};
use crate::processes::{self, LifeEvent};
use crate::wire::{self, OffCpuEvent, WireRecord as _};
use crate::{clock, error::RecordError};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

const SLEEPS: usize = 10;
const THREAD_NAME: &str = "ingero-probe";

/// Does what each program should see, and notes with the probe what it did not. Returns what a pair
/// of CUDA probes costs, in ns, if those work.
pub(crate) fn run(
    kernel: &mut Kernel,
    cuda: &mut Result<CudaProbes, String>,
) -> Result<Option<u64>, RecordError> {
    let own_pid = std::process::id() as i32;
    kernel.start(clock::monotonic_ns())?;
    kernel.add_target(own_pid, clock::monotonic_ns())?;
    let tid = act().map_err(RecordError::system(
        "start a thread and a process for the self-test",
    ))?;
    let calibrated = cuda.as_mut().map(CudaProbes::self_test_and_calibrate);
    let pair_cost_ns = match calibrated {
        Ok(Ok(cost_ns)) => Some(cost_ns),
        Ok(Err(error)) => {
            *cuda = Err(error.to_string());
            None
        }
        Err(_) => None,
    };
    kernel.stop()?;
    let seen = observe(kernel, own_pid, tid);
    kernel.clear()?;
    for (probe, problem) in seen.problems() {
        note(kernel, probe, problem);
    }
    check_interrupts(kernel)?;
    check_idle(kernel)?;
    Ok(pair_cost_ns)
}

/// Sleeps, renames and ends in a thread of its own, and runs a program. Returns the thread's tid.
fn act() -> std::io::Result<i32> {
    let sleeper = std::thread::Builder::new()
        .name(THREAD_NAME.to_owned())
        .spawn(|| {
            for _ in 0..SLEEPS {
                std::thread::sleep(Duration::from_millis(1));
            }
            // SAFETY: takes nothing and returns a number.
            unsafe { libc::gettid() }
        })?;
    Command::new("/bin/sh")
        .args(["-c", ":"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    sleeper
        .join()
        .map_err(|_| std::io::Error::other("the thread panicked"))
}

/// What arrived of it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Waits of the sleeping thread that ended.
    sleeps: usize,
    /// Those of them whose waking was seen, and whose wakeup was.
    wakings: usize,
    wakeups: usize,
    /// Whether the thread's first run was seen to follow its birth.
    born: bool,
    /// Whether the recorder was seen to allocate memory, as every new thread and process makes it do.
    pages: bool,
    life: BTreeMap<u32, usize>,
}

fn observe(kernel: &mut Kernel, own_pid: i32, tid: i32) -> Seen {
    let mut seen = Seen {
        pages: kernel
            .page_alloc_keys()
            .iter()
            .any(|key| key.pid == own_pid),
        ..Seen::default()
    };
    while let Some(item) = kernel.off_cpu_ring.next() {
        let Some(event) = OffCpuEvent::from_bytes(&item).filter(|event| event.tid == tid) else {
            continue;
        };
        let flag = |bit: u32| u32::from(event.flags) & bit != 0;
        seen.born |= flag(wire::OFF_CPU_NEW);
        if event.blocked_ns > 0 {
            seen.sleeps += 1;
            seen.wakings += usize::from(flag(wire::OFF_CPU_WAKER_KNOWN));
            seen.wakeups += usize::from(event.wake_ns > 0);
        }
    }
    while let Some(item) = kernel.process_ring.next() {
        let kind = match processes::decode_event(&item) {
            Some(LifeEvent::Exec(_)) => wire::PROCESS_EXEC,
            // A program that is started renames itself too: only the thread's own name counts.
            Some(LifeEvent::Plain(event))
                if event.kind == wire::PROCESS_RENAME && event.pid != own_pid =>
            {
                continue;
            }
            Some(LifeEvent::Plain(event)) => event.kind,
            None => continue,
        };
        *seen.life.entry(kind).or_default() += 1;
    }
    seen
}

impl Seen {
    /// The probes that missed something.
    fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        let mut expect = |probe, what: &str, expected: usize, seen: usize| {
            if seen < expected {
                problems.push((probe, format!("self-test: saw {seen} of {expected} {what}")));
            }
        };
        let life = |kind| self.life.get(&kind).copied().unwrap_or(0);
        expect("sched_switch", "sleeps", SLEEPS, self.sleeps);
        expect("sched_waking", "sleeps being woken", SLEEPS, self.wakings);
        expect("sched_wakeup", "sleeps being queued", SLEEPS, self.wakeups);
        expect(
            kernel::PAGE_ALLOC,
            "processes allocating memory",
            1,
            self.pages.into(),
        );
        expect(
            "sched_wakeup_new",
            "first runs of a thread",
            1,
            self.born.into(),
        );
        expect("sched_process_fork", "forks", 1, life(wire::PROCESS_FORK));
        expect(
            "sched_process_fork",
            "new threads",
            1,
            life(wire::PROCESS_THREAD),
        );
        expect("sched_process_exec", "execs", 1, life(wire::PROCESS_EXEC));
        expect("task_rename", "renames", 1, life(wire::PROCESS_RENAME));
        expect(
            "sched_process_exit",
            "ends of a process",
            1,
            life(wire::PROCESS_EXIT),
        );
        expect(
            "sched_process_exit",
            "ends of a thread",
            1,
            life(wire::PROCESS_THREAD_EXIT),
        );
        problems
    }
}

/// Timers have certainly fired: the thread slept. Devices may have been silent.
fn check_interrupts(kernel: &mut Kernel) -> Result<(), KernelError> {
    let [_, _, timers] = kernel.interrupts()?;
    if timers == 0 {
        note(
            kernel,
            "hrtimer_expire_entry",
            "self-test: saw no timer".to_owned(),
        );
    }
    Ok(())
}

/// As many switches into idle as out of it, or the kernel skipped some of our runs.
pub(crate) fn check_idle(kernel: &mut Kernel) -> Result<(), KernelError> {
    let switches = kernel.idle_switches()?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    if idle_mismatch(switches.into_idle, switches.from_idle, cpus) {
        let problem = format!(
            "{} switches into idle but {} out of it: some switches were missed",
            switches.into_idle, switches.from_idle
        );
        note(kernel, "sched_switch", problem);
    }
    Ok(())
}

/// Each CPU may be idle at either end; beyond that the two differ by 10% at most.
fn idle_mismatch(into: u64, from: u64, cpus: u64) -> bool {
    into.abs_diff(from) > cpus.max(into.max(from) / 10)
}

fn note(kernel: &mut Kernel, name: &str, problem: String) {
    // What is not attached has a reason already.
    let mut attached = kernel.probes.iter_mut().filter(|probe| probe.attached);
    if let Some(probe) = attached.find(|probe| probe.name == name) {
        probe.reason = Some(match probe.reason.take() {
            Some(reason) if reason == problem => reason,
            Some(reason) => format!("{reason}; {problem}"),
            None => problem,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_sees_nothing_is_named() {
        let problems = Seen::default().problems();
        let probes: std::collections::BTreeSet<_> =
            problems.iter().map(|(probe, _)| *probe).collect();
        assert_eq!(probes.len(), 9, "each of the nine programs: {problems:?}");
    }

    #[test]
    fn idle_may_differ_by_the_number_of_cpus_or_a_tenth() {
        assert!(!idle_mismatch(0, 2, 2));
        assert!(idle_mismatch(0, 3, 2));
        assert!(!idle_mismatch(1000, 910, 2));
        assert!(idle_mismatch(1000, 890, 2));
    }
}
