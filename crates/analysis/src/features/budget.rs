//! The feeder's time budget: every moment of its active span is charged to what it was spent on,
//! and a wait is charged to what the thread that ended it was doing meanwhile.

use super::costs::Costs;
use super::readback::{Hideable, Readback};
use super::respawn::Start;
use super::timeline::{Activity, Blocked, Call, Timeline, Waker};
use crate::call_kind::CallKind;
use ingero_diagnosis::{Budget, Part};
use std::collections::{HashMap, HashSet};

/// How far a wait is followed from waker to waker.
const MAX_HOPS: u32 = 6;
/// A wait for a CPU inside a call that waits for the GPU held the job back only if the call
/// returned this soon after the thread had its CPU again; otherwise the GPU was still busy.
const RESUMED_AT_ONCE_NS: i64 = 100_000;
/// A launch that takes this long waited for room in the queue.
const BLOCKED_LAUNCH_NS: i64 = 200_000;
/// A call that waited this long found the GPU busy.
const GPU_WAS_BUSY_NS: i64 = 100_000;
/// A GPU that has at least this part of the host's time since it was last known to be busy still
/// to do when it is waited for, has fallen behind the host and had work all along.
const BACKLOG: f64 = 0.25;
/// A copy to the host that is only queued returns sooner than this.
const QUEUED_COPY_NS: i64 = 30_000;
/// A thread that computes for less than this between two CUDA calls is busy giving the GPU its
/// many small pieces of work: a framework takes 5 to 50 us for each.
const BETWEEN_CALLS_NS: i64 = 200_000;

const NS: f64 = 1e-9;

/// The threads of the job and who they are to the feeder.
#[derive(Debug, Default)]
pub(crate) struct Job {
    /// Every thread whose waits were recorded.
    pub(crate) threads: HashMap<i32, Timeline>,
    /// The feeder's process.
    pub(crate) feeder_pid: i32,
    /// The feeder.
    pub(crate) feeder_tid: i32,
    /// The processes that load data for it.
    pub(crate) loaders: HashSet<i32>,
    /// Threads of the feeder's process that receive batches for it.
    pub(crate) pin_threads: Vec<i32>,
    /// Times in which a new generation of loader workers was started, in order: from the
    /// feeder's last call before to the next work it gives the GPU.
    pub(crate) respawns: Vec<Start>,
    /// What the feeder's calls cost by themselves.
    pub(crate) costs: Costs,
}

/// Where the time went.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    /// All of it.
    pub(crate) budget: Budget,
    /// The part in which the GPU is not known to have had work.
    pub(crate) exposed: Budget,
    /// The part in which it certainly had none.
    pub(crate) gpu_idle_ns: i64,
    /// The exposed part of the time on a CPU that led up to copies to the device.
    pub(crate) prepare_s: f64,
    /// What is exposed in the times of [`Job::respawns`].
    pub(crate) respawn: Budget,
    /// What waiting for the GPU costs.
    pub(crate) hideable: Hideable,
}

/// Host time that may turn out to have been exposed.
#[derive(Debug, Default)]
struct Host {
    budget: Budget,
    respawn: Budget,
    prepare_s: f64,
}

impl Host {
    fn add_all(&mut self, other: &Self) {
        self.budget.add_all(&other.budget);
        self.respawn.add_all(&other.respawn);
        self.prepare_s += other.prepare_s;
    }

    /// The feeder's own work that could be done at another time.
    fn own_s(&self) -> f64 {
        self.budget.sum(&[Part::HostCompute, Part::Submit])
    }
}

/// Whether the GPU has work, as far as the calls tell.
#[allow(clippy::large_enum_variant)] // there is one of it, on the stack
enum Gpu {
    /// A call has waited for everything, and nothing was given to it since.
    Drained,
    /// Work was given to it: the host's time since then may have been hidden behind that work.
    Given {
        /// Host time up to the last call that gave it work.
        before: Host,
        /// Host time since that call.
        since: Host,
    },
}

impl Job {
    /// Charges `from_ns..to_ns` of the feeder.
    pub(crate) fn spend(&self, from_ns: i64, to_ns: i64) -> Spent {
        let mut spent = Spent::default();
        let Some(feeder) = self.threads.get(&self.feeder_tid) else {
            return spent;
        };
        // Before the first call nothing is known of the GPU; the span begins where it is given
        // work, so the first moments hardly matter.
        let mut gpu = Gpu::Drained;
        // On a CPU since the last call that gave the GPU work or waited for it.
        let mut computed_s = 0.0;
        let mut readback = Readback::default();
        feeder.divide_by_calls(from_ns, to_ns, |from, to, call| {
            let mut host = Host::default();
            match call {
                None => {
                    self.charge_gap(feeder, from, to, &mut host.budget);
                    computed_s += host.budget.sum(&[Part::HostCompute, Part::Submit]);
                }
                Some(call) => {
                    charge_call(feeder, from, to, call, &self.costs, &mut host.budget);
                    if call.kind == CallKind::CopyToDevice {
                        host.prepare_s = computed_s;
                    }
                    if !call.kind.is_aside() {
                        computed_s = 0.0;
                    }
                }
            }
            spent.budget.add_all(&host.budget);
            let gpu_wait_s = host.budget.seconds(Part::GpuWait);
            readback.piece(
                host.own_s(),
                seconds(from, to) - gpu_wait_s,
                gpu_wait_s,
                call,
            );
            if self.respawning(from, to) {
                host.respawn.add_all(&host.budget);
                host.respawn.add(Part::GpuWait, -gpu_wait_s);
            }
            step(&mut gpu, &mut spent, host, to - from, call);
        });
        if let Gpu::Given { before, since } = gpu {
            spent.expose(&before);
            spent.expose(&since);
        }
        spent.hideable = readback.finish();
        spent
    }

    /// Whether a piece of the feeder's time lies in the start of a generation of workers.
    fn respawning(&self, from: i64, to: i64) -> bool {
        let middle = from + (to - from) / 2;
        let next = self.respawns.partition_point(|start| start.to_ns <= middle);
        self.respawns
            .get(next)
            .is_some_and(|start| start.from_ns <= middle)
    }

    /// Charges a piece of the feeder's time outside CUDA.
    fn charge_gap(&self, feeder: &Timeline, from: i64, to: i64, out: &mut Budget) {
        let own = between_calls(from, to, Part::HostCompute);
        feeder.divide(from, to, |from, to, activity| match activity {
            Activity::Running => out.add(own, seconds(from, to)),
            Activity::Queued => out.add(Part::CpuWait, seconds(from, to)),
            Activity::Blocked(index) => {
                let wait = feeder.waits()[index];
                match wait.blocked {
                    Blocked::Disk => out.add(Part::Disk, seconds(from, to)),
                    Blocked::Unknown | Blocked::Ended if wait.waker == Waker::Unknown => {
                        out.add(Part::Unknown, seconds(from, to));
                    }
                    _ => self.follow(wait.waker, from, to, 0, Part::OtherWait, out),
                }
            }
        });
    }

    /// Charges a wait to what its waker did meanwhile; to `otherwise` where that is not known.
    fn follow(
        &self,
        waker: Waker,
        from: i64,
        to: i64,
        hops: u32,
        otherwise: Part,
        out: &mut Budget,
    ) {
        let Waker::Thread { tid, .. } = waker else {
            return out.add(otherwise, seconds(from, to));
        };
        match self.threads.get(&tid) {
            Some(thread) if hops < MAX_HOPS && tid != self.feeder_tid => {
                self.charge_other(tid, thread, from, to, hops, otherwise, out);
            }
            _ => out.add(otherwise, seconds(from, to)),
        }
    }

    /// Charges a piece of time to what another thread than the feeder did in it.
    #[allow(clippy::too_many_arguments)] // who, when, and what is carried along
    fn charge_other(
        &self,
        tid: i32,
        thread: &Timeline,
        from: i64,
        to: i64,
        hops: u32,
        otherwise: Part,
        out: &mut Budget,
    ) {
        let loader = self.loaders.contains(&thread.pid());
        if !loader && thread.pid() != self.feeder_pid {
            return out.add(otherwise, seconds(from, to));
        }
        thread.divide(from, to, |from, to, activity| match activity {
            Activity::Running if loader => out.add(Part::LoaderCompute, seconds(from, to)),
            Activity::Running => {
                // Another thread of the process may be the one that gives the GPU its work, as
                // the threads that run a framework's backward pass do.
                thread.divide_by_calls(from, to, |from, to, call| match call {
                    Some(call) => charge_call(thread, from, to, call, &self.costs, out),
                    None => {
                        let part = between_calls(from, to, Part::OwnThread);
                        out.add(part, seconds(from, to));
                    }
                });
            }
            Activity::Queued => {
                let part = if loader {
                    Part::LoaderCpuWait
                } else {
                    Part::CpuWait
                };
                out.add(part, seconds(from, to));
            }
            Activity::Blocked(index) => {
                let wait = thread.waits()[index];
                let (disk, asleep) = if loader {
                    (Part::LoaderDisk, Part::LoaderSleep)
                } else {
                    (Part::Disk, otherwise)
                };
                match (wait.blocked, wait.waker) {
                    (Blocked::Disk, _) => out.add(disk, seconds(from, to)),
                    (_, Waker::Thread { .. }) => {
                        self.follow(wait.waker, from, to, hops + 1, asleep, out);
                    }
                    // A helper thread of a worker that waits with a timeout waits for its process:
                    // in Python, for the interpreter's lock, which the main thread holds.
                    _ => match self.threads.get(&thread.pid()) {
                        Some(main) if loader && tid != thread.pid() => {
                            self.charge_other(thread.pid(), main, from, to, hops, asleep, out);
                        }
                        _ => out.add(asleep, seconds(from, to)),
                    },
                }
            }
        });
    }
}

/// What computing between two CUDA calls is: a short piece belongs to giving the GPU its work.
fn between_calls(from: i64, to: i64, long: Part) -> Part {
    if to - from <= BETWEEN_CALLS_NS {
        Part::Submit
    } else {
        long
    }
}

/// Charges a piece of time inside a CUDA call.
fn charge_call(
    thread: &Timeline,
    from: i64,
    to: i64,
    call: &Call,
    costs: &Costs,
    out: &mut Budget,
) {
    let mut on_cpu_ns = 0;
    let mut resumed_ns = call.start_ns;
    let mut waited = Vec::new();
    thread.divide(from, to, |from, to, activity| match activity {
        Activity::Running => on_cpu_ns += to - from,
        Activity::Queued => {
            waited.push((from, to));
            resumed_ns = to;
        }
        Activity::Blocked(_) => {
            let part = match call.kind {
                CallKind::Other => Part::Submit,
                CallKind::Alloc => Part::Alloc,
                _ => Part::GpuWait,
            };
            out.add(part, seconds(from, to));
        }
    });
    let waits_for_gpu = match call.kind {
        CallKind::Sync | CallKind::EventWait | CallKind::CopyToHost | CallKind::Free => true,
        CallKind::CopyToHostAsync => call.end_ns - call.start_ns >= QUEUED_COPY_NS,
        CallKind::Launch | CallKind::OtherWork => on_cpu_ns >= BLOCKED_LAUNCH_NS,
        CallKind::CopyToDevice | CallKind::Alloc | CallKind::Other => false,
    };
    let at_once = call.end_ns - resumed_ns <= RESUMED_AT_ONCE_NS;
    for (from, to) in waited {
        let part = if waits_for_gpu && !at_once {
            Part::GpuWait
        } else {
            Part::CpuWait
        };
        out.add(part, seconds(from, to));
    }
    let (own, own_ns) = match call.kind {
        CallKind::CopyToDevice => (Part::Copy, costs.copying_ns(call.bytes, on_cpu_ns)),
        CallKind::Free => (Part::Alloc, costs.freeing_ns(on_cpu_ns)),
        CallKind::Alloc => (Part::Alloc, on_cpu_ns),
        _ if waits_for_gpu => (Part::GpuWait, on_cpu_ns),
        _ => (Part::Submit, on_cpu_ns),
    };
    out.add(own, own_ns as f64 * NS);
    out.add(Part::GpuWait, (on_cpu_ns - own_ns) as f64 * NS);
}

impl Spent {
    fn expose(&mut self, host: &Host) {
        self.exposed.add_all(&host.budget);
        self.respawn.add_all(&host.respawn);
        self.prepare_s += host.prepare_s;
    }
}

/// Carries what is known of the GPU over one piece of the feeder's time, and decides what of the
/// host's time was exposed.
fn step(gpu: &mut Gpu, spent: &mut Spent, mut host: Host, length_ns: i64, call: Option<&Call>) {
    let gpu_wait_s = host.budget.seconds(Part::GpuWait);
    host.budget.add(Part::GpuWait, -gpu_wait_s);
    let ends_wait = |call: &Call| call.kind.waits() || call.kind == CallKind::CopyToHostAsync;
    if call.is_some_and(ends_wait) {
        // A wait for a CPU at the end of a wait for the GPU is no time that the GPU was busy: the
        // call returned as soon as it had the CPU. An upper bound, as the GPU may have worked on
        // for a part of it.
        let cpu_wait_s = host.budget.seconds(Part::CpuWait);
        host.budget.add(Part::CpuWait, -cpu_wait_s);
        spent.exposed.add(Part::CpuWait, cpu_wait_s);
    }
    // Copies vary in length by themselves.
    let found_busy =
        gpu_wait_s >= (GPU_WAS_BUSY_NS as f64 * NS).max(host.budget.seconds(Part::Copy));
    match gpu {
        Gpu::Drained => {
            // All host time is exposed, and the GPU idles until it is given work.
            spent.expose(&host);
            if call.is_none_or(|call| !call.kind.enqueues()) {
                spent.gpu_idle_ns += length_ns;
            }
        }
        Gpu::Given { before, since } => {
            since.add_all(&host);
            if found_busy {
                // The GPU was busy until now, so what the host did since it last gave it work was
                // hidden. So was the time before if work had piled up by then.
                if gpu_wait_s < BACKLOG * before.budget.total() {
                    spent.expose(before);
                }
                *before = Host::default();
                *since = Host::default();
            }
        }
    }
    let Some(call) = call else { return };
    match gpu {
        Gpu::Given { before, since } if call.kind.drains() => {
            spent.expose(before);
            spent.expose(since);
            *gpu = Gpu::Drained;
        }
        Gpu::Given { before, since } if call.kind.enqueues() => {
            before.add_all(since);
            *since = Host::default();
        }
        Gpu::Drained if call.kind.enqueues() && !call.kind.drains() => {
            *gpu = Gpu::Given {
                before: Host::default(),
                since: Host::default(),
            };
        }
        _ => {}
    }
}

fn seconds(from_ns: i64, to_ns: i64) -> f64 {
    (to_ns - from_ns) as f64 * NS
}
