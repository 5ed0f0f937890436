//! The kernel's side: loads and attaches the programs of `bpf/`, and owns their maps and rings.

use crate::wire::{
    self, Config, CpuTimeKey, CpuTimeValue, CurrentRun, IdleSwitches, Interrupts, PageAllocKey,
    Target, ThreadState,
};
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, RingBuf};
use aya::programs::{BtfTracePoint, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader};
use ingero_trace::Probe;
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// The compiled `bpf/ingero.bpf.c`, made by `scripts/build-bpf`.
pub(crate) static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/ingero.bpf.o");

/// Without these there is no recording.
const REQUIRED: &[&str] = &[
    "sched_process_fork",
    "sched_process_exec",
    "sched_process_exit",
    "task_rename",
    "sched_waking",
    "sched_wakeup",
    "sched_wakeup_new",
];
/// Without these it is not known whether a task woke another or was only interrupted.
const INTERRUPTS: &[&str] = &[
    "irq_handler_entry",
    "irq_handler_exit",
    "softirq_entry",
    "softirq_exit",
    "hrtimer_expire_entry",
    "hrtimer_expire_exit",
];
/// Without it, page allocations are not recorded.
pub(crate) const PAGE_ALLOC: &str = "mm_page_alloc";

/// Every program but those for CUDA calls.
#[cfg(test)]
pub(crate) fn program_names() -> impl Iterator<Item = &'static str> {
    let others = ["sched_switch", PAGE_ALLOC];
    REQUIRED.iter().chain(INTERRUPTS).copied().chain(others)
}

/// Why the programs could not be loaded, attached or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KernelError {
    #[error("cannot read the kernel's type information: {0}")]
    Btf(#[from] aya::BtfError),
    #[error("cannot create the maps of the kernel programs: {}", creation_failure(.0))]
    Load(#[from] aya::EbpfError),
    #[error(
        "the kernel refused the program {name}: {}. Please report it, with the output of `uname -r`, at \
         {}/issues",
        refusal(source),
        env!("CARGO_PKG_REPOSITORY")
    )]
    Program { name: String, source: ProgramError },
    #[error("the compiled kernel programs have no {0}")]
    Missing(String),
    #[error("cannot use the map {name}: {}", with_causes(source))]
    Map {
        name: &'static str,
        source: MapError,
    },
    #[error("cannot duplicate the descriptor of the map {name}: {source}")]
    Duplicate {
        name: &'static str,
        source: std::io::Error,
    },
}

/// Attached programs and their maps.
pub(crate) struct Kernel {
    ebpf: Ebpf,
    pub(crate) probes: Vec<Probe>,
    interrupts_known: bool,
    config: Array<MapData, Config>,
    pub(crate) targets: HashMap<MapData, u32, Target>,
    pub(crate) threads: HashMap<MapData, u32, ThreadState>,
    pub(crate) cpu_time: HashMap<MapData, CpuTimeKey, CpuTimeValue>,
    page_allocs: HashMap<MapData, PageAllocKey, u64>,
    current_run: PerCpuArray<MapData, CurrentRun>,
    idle_switches: PerCpuArray<MapData, IdleSwitches>,
    interrupts: PerCpuArray<MapData, Interrupts>,
    lost: Array<MapData, u64>,
    pub(crate) off_cpu_ring: RingBuf<MapData>,
    pub(crate) run_ring: RingBuf<MapData>,
    pub(crate) process_ring: RingBuf<MapData>,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel")
            .field("probes", &self.probes)
            .finish_non_exhaustive()
    }
}

impl Kernel {
    /// Loads and attaches everything but the CUDA probes. Nothing is recorded before
    /// [`Kernel::start`].
    pub(crate) fn load() -> Result<Self, KernelError> {
        let btf = Btf::from_sys_fs()?;
        let mut ebpf = EbpfLoader::new().btf(Some(&btf)).load(OBJECT)?;
        let mut probes = Vec::new();
        let mut attached = |name: &str| {
            probes.push(Probe {
                name: name.to_owned(),
                attached: true,
                reason: None,
            });
        };
        for name in REQUIRED {
            attach(&mut ebpf, name, name, &btf)?;
            attached(name);
        }
        // Before 5.18 the tracepoint has no fourth argument, and the verifier refuses to read it.
        if attach(&mut ebpf, "sched_switch", "sched_switch", &btf).is_ok() {
            attached("sched_switch");
        } else {
            attach(&mut ebpf, "sched_switch_before_5_18", "sched_switch", &btf)?;
            probes.push(Probe {
                name: "sched_switch".to_owned(),
                attached: true,
                reason: Some(
                    "this kernel does not tell the state at the switch: it is read a little late"
                        .to_owned(),
                ),
            });
        }
        let mut attach_optional = |name: &str| {
            let result = attach(&mut ebpf, name, name, &btf);
            let attached = result.is_ok();
            probes.push(Probe {
                name: name.to_owned(),
                attached,
                reason: result.err().map(|error| error.to_string()),
            });
            attached
        };
        let mut interrupts_known = true;
        for name in INTERRUPTS {
            interrupts_known &= attach_optional(name);
        }
        attach_optional(PAGE_ALLOC);
        Ok(Self {
            interrupts_known,
            config: map(shared(&ebpf, "config")?, "config")?,
            targets: map(shared(&ebpf, "targets")?, "targets")?,
            lost: map(shared(&ebpf, "lost")?, "lost")?,
            threads: map(own(&mut ebpf, "threads")?, "threads")?,
            cpu_time: map(own(&mut ebpf, "cpu_time")?, "cpu_time")?,
            page_allocs: map(own(&mut ebpf, "page_allocs")?, "page_allocs")?,
            current_run: map(own(&mut ebpf, "current_run")?, "current_run")?,
            idle_switches: map(own(&mut ebpf, "idle_switches")?, "idle_switches")?,
            interrupts: map(own(&mut ebpf, "interrupts")?, "interrupts")?,
            off_cpu_ring: map(own(&mut ebpf, "off_cpu_ring")?, "off_cpu_ring")?,
            run_ring: map(own(&mut ebpf, "run_ring")?, "run_ring")?,
            process_ring: map(own(&mut ebpf, "process_ring")?, "process_ring")?,
            probes,
            ebpf,
        })
    }

    /// The loaded object, for the CUDA module, which shares `targets`, `config` and `lost`.
    pub(crate) fn ebpf(&mut self) -> &mut Ebpf {
        &mut self.ebpf
    }

    /// Starts recording: stamps count from `start_ns`. With 0 every program returns at once.
    pub(crate) fn start(&mut self, start_ns: u64) -> Result<(), KernelError> {
        let config = Config {
            start_ns,
            interrupts_known: self.interrupts_known.into(),
            reserved: 0,
        };
        self.config.set(0, config, 0).map_err(in_map("config"))
    }

    /// Stops recording, and returns when no program runs any more.
    pub(crate) fn stop(&mut self) -> Result<(), KernelError> {
        self.start(0)?;
        wait_for_programs();
        Ok(())
    }

    /// Makes a process a target, unless it is one already. Returns whether it was new.
    pub(crate) fn add_target(&mut self, pid: i32, since_ns: u64) -> Result<bool, KernelError> {
        let target = Target {
            since_ns,
            exited: 0,
            reserved: 0,
        };
        insert_new(&mut self.targets, pid as u32, target).map_err(in_map("targets"))
    }

    /// Forgets a target.
    pub(crate) fn remove_target(&mut self, pid: i32) {
        // It may be gone already; both is right.
        let _ = self.targets.remove(&(pid as u32));
    }

    /// Notes a thread that was there before its process became a target.
    pub(crate) fn add_thread(
        &mut self,
        pid: i32,
        tid: i32,
        since_ns: u64,
    ) -> Result<bool, KernelError> {
        let thread = ThreadState {
            off_ns: since_ns,
            on_ns: 0,
            wake_ns: 0,
            enq_ns: 0,
            ran_ns: 0,
            pid,
            waker_pid: 0,
            waker_tid: 0,
            taker_tid: -1,
            prev_state: 0,
            cpu: -1,
            phase: wire::PHASE_UNKNOWN,
            waker_context: wire::WAKER_UNKNOWN,
        };
        insert_new(&mut self.threads, tid as u32, thread).map_err(in_map("threads"))
    }

    /// The state of a thread, not torn by a program that writes it meanwhile.
    pub(crate) fn thread(&self, tid: u32) -> Option<ThreadState> {
        read_stable(|| self.threads.get(&tid, 0).ok())
    }

    /// Tids of all threads with a state.
    pub(crate) fn thread_ids(&self) -> Vec<u32> {
        self.threads.keys().filter_map(Result::ok).collect()
    }

    /// What runs on each CPU, by number. A CPU that switches meanwhile reads as not seen yet.
    pub(crate) fn current_runs(&self) -> Result<Vec<CurrentRun>, KernelError> {
        let read = || self.current_run.get(&0, 0).map_err(in_map("current_run"));
        let (first, second) = (read()?, read()?);
        Ok(first
            .iter()
            .zip(second.iter())
            .map(|(first, second)| {
                if first == second {
                    *second
                } else {
                    CurrentRun {
                        since_ns: 0,
                        pid: 0,
                        tid: 0,
                    }
                }
            })
            .collect())
    }

    /// Switches into and out of idle, of all CPUs.
    pub(crate) fn idle_switches(&self) -> Result<IdleSwitches, KernelError> {
        let all = self
            .idle_switches
            .get(&0, 0)
            .map_err(in_map("idle_switches"))?;
        Ok(IdleSwitches {
            into_idle: all.iter().map(|cpu| cpu.into_idle).sum(),
            from_idle: all.iter().map(|cpu| cpu.from_idle).sum(),
        })
    }

    /// How many hardware interrupts, softirqs and timers were seen.
    pub(crate) fn interrupts(&self) -> Result<[u64; 3], KernelError> {
        let all = self.interrupts.get(&0, 0).map_err(in_map("interrupts"))?;
        Ok([
            all.iter().map(|cpu| cpu.hardirqs).sum(),
            all.iter().map(|cpu| cpu.softirqs).sum(),
            all.iter().map(|cpu| cpu.timers).sum(),
        ])
    }

    /// What page allocations are counted by, at the moment.
    pub(crate) fn page_alloc_keys(&self) -> Vec<PageAllocKey> {
        self.page_allocs.keys().filter_map(Result::ok).collect()
    }

    /// Takes out a count of page allocations, which no program may be adding to any more.
    pub(crate) fn take_page_allocs(&mut self, key: &PageAllocKey) -> Result<u64, KernelError> {
        let count = self.page_allocs.get(key, 0);
        let count = count.map_err(in_map("page_allocs"))?;
        self.page_allocs
            .remove(key)
            .map_err(in_map("page_allocs"))?;
        Ok(count)
    }

    /// Counts one allocation of a process without pages until no more fit. Returns how many did.
    #[cfg(test)]
    pub(crate) fn fill_page_allocs(&mut self) -> usize {
        let key = |bucket| PageAllocKey {
            pid: 0,
            bucket,
            page_order: 0,
            cpu: 0,
        };
        let mut fit = 0..;
        fit.find(|bucket| self.page_allocs.insert(key(*bucket), 1, 0).is_err())
            .map_or(0, |bucket| bucket as usize)
    }

    /// Events lost since the programs were loaded, of one class.
    pub(crate) fn lost(&self, class: u32) -> Result<u64, KernelError> {
        self.lost.get(&class, 0).map_err(in_map("lost"))
    }

    /// Forgets everything that was recorded so far, after [`Kernel::stop`].
    pub(crate) fn clear(&mut self) -> Result<(), KernelError> {
        for pid in self
            .targets
            .keys()
            .filter_map(Result::ok)
            .collect::<Vec<_>>()
        {
            self.remove_target(pid as i32);
        }
        for tid in self.thread_ids() {
            self.threads.remove(&tid).map_err(in_map("threads"))?;
        }
        for key in self
            .cpu_time
            .keys()
            .filter_map(Result::ok)
            .collect::<Vec<_>>()
        {
            self.cpu_time.remove(&key).map_err(in_map("cpu_time"))?;
        }
        for key in self.page_alloc_keys() {
            self.take_page_allocs(&key)?;
        }
        for ring in [
            &mut self.off_cpu_ring,
            &mut self.run_ring,
            &mut self.process_ring,
        ] {
            while ring.next().is_some() {}
        }
        Ok(())
    }

    /// Descriptors that become readable when a ring fills quickly.
    pub(crate) fn ring_fds(&self) -> [RawFd; 3] {
        [&self.off_cpu_ring, &self.run_ring, &self.process_ring].map(AsRawFd::as_raw_fd)
    }
}

/// Which map failed first is chance: they are created in no order.
fn creation_failure(error: &aya::EbpfError) -> String {
    match error {
        aya::EbpfError::MapError(MapError::CreateError { io_error, .. }) => io_error.to_string(),
        other => with_causes(other),
    }
}

/// An error with what caused it, which not every error tells by itself.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let told = error.to_string();
        if !text.contains(&told) {
            text = format!("{text}: {told}");
        }
        cause = error.source();
    }
    text
}

/// What the kernel said, in a line: the verifier's whole log can be megabytes, and ends with the reason.
fn refusal(error: &ProgramError) -> String {
    let ProgramError::LoadError {
        io_error,
        verifier_log,
    } = error
    else {
        return error.to_string();
    };
    let log = verifier_log.to_string();
    let is_reason = |line: &&str| {
        let statistics = ["processed ", "verification time ", "stack depth "];
        !line.trim().is_empty() && !statistics.iter().any(|start| line.starts_with(start))
    };
    match log.lines().rev().find(is_reason) {
        Some(reason) => format!("{io_error}: {reason}"),
        None => io_error.to_string(),
    }
}

fn attach(ebpf: &mut Ebpf, program: &str, tracepoint: &str, btf: &Btf) -> Result<(), KernelError> {
    let refused = |source| KernelError::Program {
        name: program.to_owned(),
        source,
    };
    let probe: &mut BtfTracePoint = ebpf
        .program_mut(program)
        .ok_or_else(|| KernelError::Missing(format!("program {program}")))?
        .try_into()
        .map_err(refused)?;
    probe.load(tracepoint, btf).map_err(refused)?;
    probe.attach().map_err(refused)?;
    Ok(())
}

/// A second handle on a map that stays with the object.
pub(crate) fn shared(ebpf: &Ebpf, name: &'static str) -> Result<Map, KernelError> {
    let map = ebpf
        .map(name)
        .ok_or_else(|| KernelError::Missing(format!("map {name}")))?;
    let (Map::Array(data) | Map::HashMap(data)) = map else {
        return Err(KernelError::Missing(format!("map {name} of a shared kind")));
    };
    let fd = data
        .fd()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|source| KernelError::Duplicate { name, source })?;
    MapData::from_fd(fd)
        .and_then(Map::from_map_data)
        .map_err(in_map(name))
}

fn own(ebpf: &mut Ebpf, name: &'static str) -> Result<Map, KernelError> {
    ebpf.take_map(name)
        .ok_or_else(|| KernelError::Missing(format!("map {name}")))
}

/// The map as the type that its program declares.
pub(crate) fn map<T: TryFrom<Map, Error = MapError>>(
    map: Map,
    name: &'static str,
) -> Result<T, KernelError> {
    T::try_from(map).map_err(in_map(name))
}

fn in_map(name: &'static str) -> impl Fn(MapError) -> KernelError {
    move |source| KernelError::Map { name, source }
}

/// Inserts unless the key is there. Returns whether it was inserted.
fn insert_new<V: aya::Pod>(
    map: &mut HashMap<MapData, u32, V>,
    key: u32,
    value: V,
) -> Result<bool, MapError> {
    const BPF_NOEXIST: u64 = 1;
    match map.insert(key, value, BPF_NOEXIST) {
        Ok(()) => Ok(true),
        Err(MapError::SyscallError(error))
            if error.io_error.raw_os_error() == Some(libc::EEXIST) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// A value read twice alike: a program that writes it needs nanoseconds, a read microseconds.
fn read_stable<V: PartialEq>(read: impl Fn() -> Option<V>) -> Option<V> {
    let mut last = read()?;
    loop {
        let next = read()?;
        if last == next {
            return Some(next);
        }
        last = next;
    }
}

/// Returns when every program that was running has ended.
pub(crate) fn wait_for_programs() {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: membarrier takes numbers only.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if result != 0 {
        // Kernels with nohz_full refuse it. No program runs for as long as this.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
