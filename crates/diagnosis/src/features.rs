//! What the diagnosis reasons from: numbers about one window of one recording, and nothing else.

/// One part of the feeder's wall time. Every moment of it belongs to exactly one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// In a CUDA call that waits for the GPU: synchronize, copy to the host, a launch on a full queue.
    GpuWait,
    /// In a copy to the device, for as long as its bytes take.
    Copy,
    /// In CUDA calls that allocate, register or free memory, without their wait for the GPU.
    Alloc,
    /// Giving the GPU work: in other CUDA calls, and on a CPU for at most 0.2 ms between two calls.
    Submit,
    /// On a CPU, outside CUDA, for longer.
    HostCompute,
    /// Runnable, without a CPU.
    CpuWait,
    /// Waiting for a loader worker that was on a CPU.
    LoaderCompute,
    /// Waiting for a loader worker that was runnable without a CPU.
    LoaderCpuWait,
    /// Waiting for a loader worker that waited for the disk.
    LoaderDisk,
    /// Waiting for a loader worker that slept, or whose doings are not known.
    LoaderSleep,
    /// Waiting for a thread of its own process that was on a CPU outside CUDA.
    OwnThread,
    /// Waiting for the disk.
    Disk,
    /// Waiting for a timer, the network, a process outside the job or an unknown waker.
    OtherWait,
    /// The cost of the recorder's probes.
    Recorder,
    /// Not known: the recording has a gap.
    Unknown,
}

impl Part {
    /// All parts, in the order in which a budget is shown.
    pub const ALL: [Self; 15] = [
        Self::GpuWait,
        Self::Copy,
        Self::Alloc,
        Self::Submit,
        Self::HostCompute,
        Self::CpuWait,
        Self::LoaderCompute,
        Self::LoaderCpuWait,
        Self::LoaderDisk,
        Self::LoaderSleep,
        Self::OwnThread,
        Self::Disk,
        Self::OtherWait,
        Self::Recorder,
        Self::Unknown,
    ];

    /// Stable name of the part.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GpuWait => "gpu_wait",
            Self::Copy => "copy_to_gpu",
            Self::Alloc => "cuda_alloc",
            Self::Submit => "cuda_submit",
            Self::HostCompute => "host_compute",
            Self::CpuWait => "cpu_wait",
            Self::LoaderCompute => "loader_compute",
            Self::LoaderCpuWait => "loader_cpu_wait",
            Self::LoaderDisk => "loader_disk",
            Self::LoaderSleep => "loader_sleep",
            Self::OwnThread => "own_thread",
            Self::Disk => "disk_wait",
            Self::OtherWait => "other_wait",
            Self::Recorder => "recorder",
            Self::Unknown => "unknown",
        }
    }

    /// What the feeder did in this part, for a person.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::GpuWait => "waited for the GPU inside a CUDA call",
            Self::Copy => "copied data to the GPU",
            Self::Alloc => "allocated or freed memory through CUDA",
            Self::Submit => {
                "launched kernels, with at most 0.2 ms of computing between two CUDA calls"
            }
            Self::HostCompute => "computed on a CPU for longer between CUDA calls",
            Self::CpuWait => "was ready to run but had no CPU",
            Self::LoaderCompute => "waited for a loader worker that was computing",
            Self::LoaderCpuWait => "waited for a loader worker that had no CPU",
            Self::LoaderDisk => "waited for a loader worker that waited for the disk",
            Self::LoaderSleep => "waited for a loader worker that was asleep itself",
            Self::OwnThread => "waited for another thread of its own process",
            Self::Disk => "waited for the disk",
            Self::OtherWait => "waited for a timer, the network or another process",
            Self::Recorder => "was held up by the recorder's probes",
            Self::Unknown => "not known: the recording has a gap",
        }
    }
}

/// Seconds for each part.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Budget([f64; Part::ALL.len()]);

impl Budget {
    /// Seconds of one part.
    pub fn seconds(&self, part: Part) -> f64 {
        self.0[part as usize]
    }

    /// Adds seconds to one part.
    pub fn add(&mut self, part: Part, seconds: f64) {
        self.0[part as usize] += seconds;
    }

    /// Adds every part of another budget.
    pub fn add_all(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// Seconds of several parts together.
    pub fn sum(&self, parts: &[Part]) -> f64 {
        parts.iter().map(|part| self.seconds(*part)).sum()
    }

    /// Seconds of all parts.
    pub fn total(&self) -> f64 {
        self.0.iter().sum()
    }
}

/// What the recorder could see in the window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recorded {
    /// CUDA runtime calls were probed.
    pub cuda: bool,
    /// Switches were recorded.
    pub switches: bool,
    /// Events that were lost in the window, by class.
    pub lost: Vec<(String, u64)>,
    /// What the recording as a whole does not hold, in sentences.
    pub caveats: Vec<String>,
}

/// The CPUs of the host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cores {
    /// Online on the host.
    pub online: u32,
    /// In the affinity mask of the target.
    pub affinity: Option<u32>,
    /// Quota of its cgroup, in cores.
    pub quota: Option<f64>,
    /// The smallest of the three, at least 1.
    pub usable: u32,
}

/// The thread that makes the job's CUDA calls, in its active span: from the fourth step (or the
/// first launch, when there are few) to its last CUDA call in the window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Feeder {
    /// Its process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// Start of the active span, ms since the trace's start.
    pub span_start_ms: f64,
    /// Its length in seconds.
    pub span_s: f64,
    /// From the first CUDA call of the process to the end of the window, in seconds.
    pub since_first_call_s: f64,
    /// Rounds of launches followed by a wait for the GPU, or of copies to the device when there are few.
    pub steps: u64,
    /// Launches of kernels and graphs.
    pub launches: u64,
    /// Copies to the device.
    pub h2d_copies: u64,
    /// Bytes copied to the device.
    pub h2d_bytes: u64,
    /// Copies to the device that returned only when the bytes had left the host's memory.
    pub blocking_copies: u64,
    /// Bytes in them.
    pub blocking_copy_bytes: u64,
    /// Calls that allocate or register memory.
    pub allocations: u64,
    /// Calls that free memory and wait for the GPU.
    pub frees: u64,
    /// Allocations that failed.
    pub failed_allocations: u64,
    /// Where the time of the span went.
    pub budget: Budget,
    /// The same for the time in which the GPU is not known to have had work.
    pub exposed: Budget,
    /// Seconds between the end of a full wait and the next call that gave the GPU work: it was idle.
    pub gpu_idle_lower_bound_s: f64,
    /// Seconds it computed before copies to the device while the GPU was idle: preparing what it
    /// copies, as far as can be seen from outside.
    pub prepare_s: f64,
    /// What waiting for the GPU costs because the host has work to do afterwards.
    pub readbacks: Readbacks,
    /// Starts of a new generation of loader workers.
    pub respawns: u64,
    /// Seconds a loader worker usually takes from one batch to its next; `None` if not seen.
    pub batch_interval_s: Option<f64>,
    /// How much later than the first one the workers of a start were forked, on average, summed
    /// over the starts, in seconds.
    pub respawn_later_s: f64,
    /// What of `exposed` lies between the feeder's last CUDA call before such a start and the
    /// next work it gave the GPU.
    pub respawn: Budget,
    /// Times a loader worker woke a thread of the feeder's process.
    pub wakes_by_loader: u64,
    /// Times a thread of the feeder's process woke a loader worker.
    pub wakes_of_loader: u64,
    /// Bytes that its process read in the span, page cache and pipes included; `None` if it was
    /// not sampled.
    pub rchar_bytes: Option<u64>,
}

/// Waits of the feeder for the GPU, after which the GPU idled while the host worked.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Readbacks {
    /// How many.
    pub waits: u64,
    /// Host work after them, before the GPU was given work again, where most of it would have
    /// fitted into the wait before, in seconds.
    pub own_s: f64,
    /// What of it would have fitted.
    pub hideable_s: f64,
    /// The same with all the host's work until the next wait.
    pub hideable_most_s: f64,
}

/// The processes that prepare data for the feeder.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Loader {
    /// The most that lived at once.
    pub workers: u32,
    /// Seconds lived in the span, summed over processes.
    pub alive_s: f64,
    /// Seconds on a CPU.
    pub run_s: f64,
    /// Seconds runnable without a CPU, competing for one.
    pub runq_s: f64,
    /// Seconds waiting for the disk.
    pub disk_s: f64,
    /// Bytes they read in the span, page cache and pipes included; `None` if none was sampled.
    pub rchar_bytes: Option<u64>,
}

/// Who used the CPUs in the span.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Contention {
    /// Seconds the job's processes were on a CPU.
    pub job_run_s: f64,
    /// Seconds its threads competed for one.
    pub job_runq_s: f64,
    /// While the job's threads competed, the share of the CPUs in their mask that the job used.
    pub job_share: f64,
    /// The share that processes outside the job used.
    pub other_share: f64,
    /// The share that was idle.
    pub idle_share: f64,
    /// The share of the CPUs outside the mask that was idle; `None` if there are none.
    pub outside_idle_share: Option<f64>,
    /// Of the time that threads of the job were preempted, the part in which a thread outside the
    /// job had taken the CPU; `None` if none was preempted.
    pub preempted_by_others: Option<f64>,
    /// Seconds that processes outside the job were on a CPU, as far as those outside its mask could
    /// not take them.
    pub other_run_s: f64,
    /// The busiest programs outside the job, the busiest first.
    pub top_others: Vec<Neighbour>,
    /// What the job's cgroup was throttled; `None` without a quota.
    pub throttled: Option<Throttled>,
}

/// Processes of one name outside the job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Neighbour {
    /// Their name.
    pub name: String,
    /// How many ran.
    pub processes: u32,
    /// One of them, the busiest.
    pub pid: i32,
    /// Seconds they were on a CPU, together.
    pub run_s: f64,
}

/// Enforcement of a CPU quota in the span.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Throttled {
    /// Enforcement periods.
    pub periods: u64,
    /// Those in which the cgroup was throttled.
    pub throttled: u64,
    /// Seconds it was throttled, summed over its CPUs.
    pub seconds: f64,
}

/// Everything that the diagnosis knows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Features {
    /// Start of the window, ms since the trace's start.
    pub window_start_ms: f64,
    /// Its end.
    pub window_end_ms: f64,
    /// What was recorded.
    pub recorded: Recorded,
    /// The CPUs.
    pub cores: Cores,
    /// The feeder; `None` if no process made a CUDA call.
    pub feeder: Option<Feeder>,
    /// Its loader workers; `None` if none was seen.
    pub loader: Option<Loader>,
    /// Competition for the CPUs.
    pub contention: Contention,
}
