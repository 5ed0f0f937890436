//! The row of `trace_info`: what the recording is and how far it has come.

/// Version of the tables that this crate writes.
pub const SCHEMA_VERSION: i32 = 1;

/// One probe of the recorder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Program or symbol, e.g. `sched_switch` or `libcudart.so.13:cudaMalloc`.
    pub name: String,
    /// Whether it was recording.
    pub attached: bool,
    /// Why it was not, or which limit it has.
    pub reason: Option<String>,
}

/// The recording. `ddl/trace_info.sql` describes the fields.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct TraceInfo {
    pub ts_ns: i64,
    pub schema_version: i32,
    pub trace_id: String,
    pub host: String,
    pub kernel: String,
    pub cpu_model: String,
    pub cores_online: i32,
    pub cores_affinity: Option<i32>,
    pub affinity_cpus: Option<String>,
    pub cgroup_quota_cores: Option<f64>,
    pub cores_usable: i32,
    pub smt_active: Option<bool>,
    pub memory_bytes: i64,
    pub gpus: String,
    pub driver_version: Option<String>,
    pub cuda_libraries: String,
    pub command: String,
    pub target_kind: String,
    pub target_pid: i32,
    pub start_utc_us: i64,
    pub duration_ns: i64,
    pub ended: bool,
    pub end_reason: Option<String>,
    pub exit_status: Option<i32>,
    pub recorder_version: String,
    pub recorder_cpu_ns: i64,
    pub probe_pair_cost_ns: Option<i64>,
    pub probes: Vec<Probe>,
}
