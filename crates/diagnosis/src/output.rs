//! What a diagnosis says.

use schemars::JsonSchema;
use serde::Serialize;

/// A kind of bottleneck, or one of the states in which there is none to name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    /// More runnable loader workers than CPUs: they and the feeder wait for each other's CPU.
    WorkerOversub,
    /// Preparing batches takes more CPU time than the GPU leaves.
    LoaderCpuBound,
    /// Handing small batches from worker processes costs more than preparing them.
    LoaderIpcInmem,
    /// New loader workers are started again and again, and the GPU waits for their first batch.
    WorkerRespawn,
    /// Processes outside the job take the CPUs that it needs.
    ExternalContention,
    /// The host waits for the GPU before it prepares the GPU's next work.
    SyncEveryStep,
    /// The host cannot launch the GPU's many small kernels as fast as it runs them.
    LaunchBound,
    /// The main process computes between GPU calls.
    HostSerial,
    /// The host waits while data is copied to the GPU from memory that is not pinned.
    H2dPageable,
    /// GPU memory or pinned memory is allocated and freed in every step.
    AllocChurn,
    /// The CPU quota of the job's cgroup stops it while CPUs are idle.
    QuotaThrottle,
    /// The job's affinity mask keeps it to few CPUs while others are idle.
    AffinityConfined,
    /// The GPU is the limit: the host keeps it busy.
    HealthyGpuBound,
    /// The GPU was given next to no work.
    Idle,
    /// The recording does not hold enough to judge.
    Insufficient,
    /// The host costs 5% or more of the time and no rule holds.
    HostUnexplained,
}

impl Code {
    /// The code as it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WorkerOversub => "WORKER_OVERSUB",
            Self::LoaderCpuBound => "LOADER_CPU_BOUND",
            Self::LoaderIpcInmem => "LOADER_IPC_INMEM",
            Self::WorkerRespawn => "WORKER_RESPAWN",
            Self::ExternalContention => "EXTERNAL_CONTENTION",
            Self::SyncEveryStep => "SYNC_EVERY_STEP",
            Self::LaunchBound => "LAUNCH_BOUND",
            Self::HostSerial => "HOST_SERIAL",
            Self::H2dPageable => "H2D_PAGEABLE",
            Self::AllocChurn => "ALLOC_CHURN",
            Self::QuotaThrottle => "QUOTA_THROTTLE",
            Self::AffinityConfined => "AFFINITY_CONFINED",
            Self::HealthyGpuBound => "HEALTHY_GPU_BOUND",
            Self::Idle => "IDLE",
            Self::Insufficient => "INSUFFICIENT",
            Self::HostUnexplained => "HOST_UNEXPLAINED",
        }
    }

    /// The same in a few plain words.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::WorkerOversub => "too many loader workers for the CPUs",
            Self::LoaderCpuBound => "preparing the data takes too long",
            Self::LoaderIpcInmem => "handing over small batches between processes costs too much",
            Self::WorkerRespawn => "loader workers are started again and again",
            Self::ExternalContention => "processes outside the job take its CPUs",
            Self::SyncEveryStep => "the host waits for the GPU too often",
            Self::LaunchBound => "launching many small kernels takes too long",
            Self::HostSerial => "the main thread computes while the GPU waits",
            Self::H2dPageable => "copying from memory that is not pinned holds the host up",
            Self::AllocChurn => "memory is allocated and freed in every step",
            Self::QuotaThrottle => "a CPU quota stops the job",
            Self::AffinityConfined => "an affinity mask keeps the job to few CPUs",
            Self::HealthyGpuBound => "the GPU is the limit, the host is fine",
            Self::Idle => "the GPU was given next to no work",
            Self::Insufficient => "the recording does not hold enough to judge",
            Self::HostUnexplained => "the host slows the GPU down, and no known cause fits",
        }
    }
}

/// How sure a statement is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Something that matters was not recorded, or the evidence is thin.
    Low,
    /// The evidence fits, and another cause is not ruled out.
    Medium,
    /// The evidence fits and the look-alikes are ruled out.
    High,
}

impl Confidence {
    /// One step less sure.
    pub const fn lowered(self) -> Self {
        match self {
            Self::High => Self::Medium,
            Self::Medium | Self::Low => Self::Low,
        }
    }

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// The answer in one word.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Verdict {
    /// What it is.
    pub code: Code,
    /// How sure that is.
    pub confidence: Confidence,
}

/// A fact, and the tool call that shows it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Evidence {
    /// The fact, with its number.
    pub fact: String,
    /// The tool that shows it.
    pub tool: String,
}

/// A look-alike that it is not.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RuledOut {
    /// What it is not.
    pub what: String,
    /// Why not.
    pub why: String,
}

/// How many times faster the job can get: between these two, as far as the budget tells.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Gain {
    /// At least.
    pub low: f64,
    /// At most.
    pub high: f64,
}

impl Gain {
    /// When a part `share` of the wall time goes away: all of it at best, half of it for sure.
    pub(crate) fn of(share: f64) -> Self {
        Self {
            low: speedup(share / 2.0),
            high: speedup(share),
        }
    }

    /// When a part `share` of the wall time may go away: all of it at best, and perhaps nothing.
    pub(crate) fn up_to(share: f64) -> Self {
        Self {
            low: 1.0,
            high: speedup(share),
        }
    }

    /// As a person says it.
    pub fn in_words(self) -> String {
        // Beyond this the bound says only that hardly anything else takes time.
        const NO_BOUND: f64 = 50.0;
        if self.high >= NO_BOUND {
            "up to 50 times as fast, or more".to_owned()
        } else if self.low < 1.05 {
            format!("up to {:.1} times as fast", self.high)
        } else {
            format!("{:.1} to {:.1} times as fast", self.low, self.high)
        }
    }
}

/// The speed-up when `share` of the wall time goes away.
pub(crate) fn speedup(share: f64) -> f64 {
    1.0 / (1.0 - share.clamp(0.0, 0.99))
}

/// A change to make.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Advice {
    /// What to change, with the concrete value.
    pub change: String,
    /// Why this value.
    pub why: String,
    /// The line to change, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snippet: Option<String>,
    /// Speed-up of the job, 1 is none; absent where the recording cannot tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_speedup: Option<Gain>,
    /// How to see whether it worked.
    pub check: String,
}

/// One cause, with what it costs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// The kind.
    pub code: Code,
    /// The cause in one sentence.
    pub title: String,
    /// How sure that is.
    pub confidence: Confidence,
    /// Part of the feeder's wall time that it explains, 0 to 1.
    pub share: f64,
    /// That part in seconds.
    pub seconds: f64,
    /// What shows it.
    pub evidence: Vec<Evidence>,
    /// What it is not.
    pub ruled_out: Vec<RuledOut>,
    /// What to do, the best first.
    pub advice: Vec<Advice>,
    /// What would not help, though it is often suggested.
    pub would_not_help: Vec<String>,
}

/// One part of the feeder's time.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BudgetPart {
    /// Stable name of the part.
    pub part: String,
    /// Part of the feeder's wall time, 0 to 1; all together are 1.
    pub share: f64,
    /// That part in seconds.
    pub seconds: f64,
    /// What the feeder did in it.
    pub meaning: String,
}

/// The thread that the budget is of.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FeederSummary {
    /// Its process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// Start of the time that was judged, ms since the trace's start.
    pub from_ms: f64,
    /// Its end.
    pub to_ms: f64,
    /// Steps (rounds of work given to the GPU and waited for) in that time.
    pub steps: u64,
    /// Part of that time in which the GPU certainly had nothing to do, 0 to 1; a lower bound.
    pub gpu_idle_share_at_least: f64,
}

/// The diagnosis.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Diagnosis {
    /// The answer in a few sentences.
    pub summary: String,
    /// The answer in one word.
    pub verdict: Verdict,
    /// The causes, the costliest first.
    pub findings: Vec<Finding>,
    /// Where the time of the feeder went; absent parts took none.
    pub budget: Vec<BudgetPart>,
    /// Whose time that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feeder: Option<FeederSummary>,
    /// What limits the answer.
    pub caveats: Vec<String>,
    /// What to ask or do next.
    pub next: Vec<String>,
}
