//! What the diagnosis reasons from: numbers about one window of one recording, and nothing else.

/// One part of the feeder's wall time. Every moment of it belongs to exactly one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// In a CUDA call that waits for the GPU: synchronize, copy to the host, a launch on a full queue.
    GpuWait,
    /// In a copy to the device, for as long as its bytes take.
    Copy,
    /// In other CUDA calls: launching, allocating.
    Submit,
    /// On a CPU, outside CUDA.
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
    pub const ALL: [Self; 14] = [
        Self::GpuWait,
        Self::Copy,
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
            Self::Submit => "launched kernels and made other CUDA calls",
            Self::HostCompute => "computed on a CPU between CUDA calls",
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
    /// Copies to the device.
    pub h2d_copies: u64,
    /// Bytes copied to the device.
    pub h2d_bytes: u64,
    /// Where the time of the span went.
    pub budget: Budget,
    /// The same for the time in which the GPU is not known to have had work.
    pub exposed: Budget,
    /// Seconds between the end of a full wait and the next call that gave the GPU work: it was idle.
    pub gpu_idle_lower_bound_s: f64,
    /// Seconds it computed before copies to the device while the GPU was idle: preparing what it
    /// copies, as far as can be seen from outside.
    pub prepare_s: f64,
    /// Times a loader worker woke a thread of the feeder's process.
    pub wakes_by_loader: u64,
    /// Times a thread of the feeder's process woke a loader worker.
    pub wakes_of_loader: u64,
    /// Bytes that its process read in the span, page cache and pipes included; `None` if it was
    /// not sampled.
    pub rchar_bytes: Option<u64>,
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
    /// While the job's threads competed, the share of the CPUs that the job itself used.
    pub job_share: f64,
    /// The share that processes outside the job used.
    pub other_share: f64,
    /// The share that was idle.
    pub idle_share: f64,
    /// Seconds that processes outside the job were on a CPU.
    pub other_run_s: f64,
    /// The busiest process outside the job: its name, pid and seconds.
    pub top_other: Option<(String, i32, f64)>,
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
