//! What the answer shows, from what was found.

use crate::arguments::{mb, ms, share};
use crate::text;
use ingero_analysis::Window;
use ingero_analysis::correlate::{
    self, Chain, Correlation, Cpus, Ended, FeederInWindow, OtherProcess, ProcessInWindow, Taker,
    parts,
};
use ingero_analysis::forks;
use ingero_analysis::roles::{Role, Roles};
use ingero_diagnosis::Budget;
use ingero_trace::TraceInfo;
use schemars::JsonSchema;
use serde::Serialize;

/// The thread that hands the GPU its work.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct FeederShown {
    /// Its process.
    pid: i32,
    /// The thread.
    tid: i32,
    /// Its name.
    name: String,
}

impl From<&FeederInWindow> for FeederShown {
    fn from(feeder: &FeederInWindow) -> Self {
        Self {
            pid: feeder.pid,
            tid: feeder.tid,
            name: text::name(&feeder.name),
        }
    }
}

/// A part of the feeder's time.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Part {
    /// stable name of the part
    part: &'static str,
    /// part of the window, 0 to 1
    share: f64,
    /// its length
    ms: f64,
    /// what the feeder did in it
    meaning: &'static str,
}

pub(super) fn budget(budget: &Budget) -> Vec<Part> {
    let parts = parts(budget);
    let total_ns: i64 = parts.iter().map(|(_, ns)| ns).sum();
    parts
        .into_iter()
        .map(|(part, ns)| Part {
            part: part.name(),
            share: share(ns, total_ns),
            ms: ms(ns),
            meaning: part.meaning(),
        })
        .filter(|part| part.share > 0.0)
        .collect()
}

/// A wait of the feeder.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Wait {
    /// When it began, or the window.
    start_ms: f64,
    /// Its length in the window.
    ms: f64,
    /// The CUDA call that it lies in.
    #[serde(skip_serializing_if = "Option::is_none")]
    inside_call: Option<String>,
    /// Its whole length, where it reaches beyond the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    whole_ms: Option<f64>,
}

impl From<&Chain> for Wait {
    fn from(chain: &Chain) -> Self {
        let whole_ns = chain.whole.dur_ns();
        Self {
            start_ms: ms(chain.start_ns),
            ms: ms(chain.dur_ns),
            inside_call: chain.inside_call.clone(),
            whole_ms: (whole_ns > chain.dur_ns).then(|| ms(whole_ns)),
        }
    }
}

/// A thread, and what it did while the one before it slept.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Hop {
    /// process id
    pid: i32,
    /// thread id
    tid: i32,
    /// name of the thread
    name: String,
    /// feeder, pin_memory_thread, feeder_process (another thread of it), loader_worker, other, or
    /// outside_job
    role: &'static str,
    /// the time that is looked at: of the first row the wait, of the others the sleep of the row
    /// before that this thread ended
    ms: f64,
    /// on a CPU
    ran_ms: Option<f64>,
    /// ready to run, without a CPU
    waiting_for_cpu_ms: Option<f64>,
    /// asleep
    sleeping_ms: Option<f64>,
    /// waiting for a disk or a page
    disk_ms: Option<f64>,
    /// not known
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown_ms: Option<f64>,
    /// who ended most of the sleep; null if it hardly slept
    woken_by: Option<String>,
    /// who it lost the CPU to, for most of waiting_for_cpu_ms; others may have had it after that
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_taken_by: Option<String>,
}

/// The rows of the chain. A stranger that ended it has a row without times.
pub(super) fn hops(chain: &Chain, roles: &Roles) -> Vec<Hop> {
    let mut rows: Vec<Hop> = chain.hops.iter().map(|hop| row(hop, roles)).collect();
    if let Some(last) = chain.hops.last()
        && let Ended::ByOutsider { tid, pid, name } = &last.ended
    {
        rows.push(Hop {
            pid: *pid,
            tid: *tid,
            name: text::name(name),
            role: "outside_job",
            ms: ms(last.ended_ns),
            ran_ms: None,
            waiting_for_cpu_ms: None,
            sleeping_ms: None,
            disk_ms: None,
            unknown_ms: None,
            woken_by: None,
            cpu_taken_by: None,
        });
    }
    rows
}

fn row(hop: &correlate::Hop, roles: &Roles) -> Hop {
    Hop {
        pid: hop.pid,
        tid: hop.tid,
        name: text::name(&hop.name),
        role: role(hop, roles),
        ms: ms(hop.total_ns),
        ran_ms: Some(ms(hop.ran_ns)),
        waiting_for_cpu_ms: Some(ms(hop.queued_ns)),
        sleeping_ms: Some(ms(hop.slept_ns)),
        disk_ms: Some(ms(hop.disk_ns)),
        unknown_ms: (hop.unknown_ns() > 0).then(|| ms(hop.unknown_ns())),
        woken_by: woken_by(hop),
        cpu_taken_by: hop.taken_by.as_ref().map(show_taker),
    }
}

fn role(hop: &correlate::Hop, roles: &Roles) -> &'static str {
    let is_pin = |(pid, tid)| (pid, tid) == (hop.pid, hop.tid);
    if roles.feeders.iter().any(|feeder| feeder.tid == hop.tid) {
        Role::Feeder.name()
    } else if roles
        .pin_threads
        .iter()
        .any(|pin| is_pin((pin.pid, pin.tid)))
    {
        "pin_memory_thread"
    } else if roles.of(hop.pid) == Role::Feeder {
        "feeder_process"
    } else {
        roles.of(hop.pid).name()
    }
}

fn woken_by(hop: &correlate::Hop) -> Option<String> {
    let who = match &hop.ended {
        Ended::Explained => return None,
        Ended::ByThread { tid, .. } => format!("thread {tid}"),
        Ended::ByOutsider { tid, .. } => format!("thread {tid} outside the recorded job"),
        Ended::ByEarlierHop { tid } => format!("thread {tid}, named above: they take turns"),
        Ended::ByInterrupt { context } => in_words(context),
        Ended::WaitsWithTimeout => format!(
            "a timer, again and again, as a thread waits for a lock of its process: see its main thread {}",
            hop.pid
        ),
        Ended::Unknown => "nobody that was recorded".to_owned(),
    };
    Some(if hop.ended_ns < hop.slept_ns {
        format!("{who} ({} of {} ms)", ms(hop.ended_ns), ms(hop.slept_ns))
    } else {
        who
    })
}

fn show_taker(taker: &Taker) -> String {
    let name = text::name(&taker.name);
    match taker.pid {
        Some(pid) if pid == taker.tid => format!("{name} pid {pid}"),
        Some(pid) => format!("{name} pid {pid} tid {}", taker.tid),
        None => format!("thread {} outside the recorded job", taker.tid),
    }
}

/// What an interrupt in this context is.
fn in_words(context: &str) -> String {
    let what = match context {
        "softirq" => "a timer, the network or a disk",
        _ => "a timer or a device",
    };
    format!("an interrupt ({context}: {what})")
}

/// A process of the job. Times are sums over its threads, in the window.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Process {
    /// process id
    pid: i32,
    /// its name
    name: String,
    /// feeder, loader_worker or other
    role: &'static str,
    /// on a CPU
    cpu_ms: f64,
    /// ready to run, without a CPU
    waiting_for_cpu_ms: f64,
    /// asleep
    sleeping_ms: f64,
    /// waiting for a disk or a page
    disk_ms: f64,
    /// CUDA calls
    cuda_calls: i64,
    /// time in them
    cuda_ms: f64,
    /// memory pages allocated, in 10^6 bytes
    #[serde(skip_serializing_if = "Option::is_none")]
    pages_mb: Option<f64>,
}

impl Process {
    pub(super) fn new(process: &ProcessInWindow, pages_recorded: bool) -> Self {
        Self {
            pid: process.pid,
            name: text::name(&process.name),
            role: process.role.name(),
            cpu_ms: ms(process.ran_ns),
            waiting_for_cpu_ms: ms(process.queued_ns),
            sleeping_ms: ms(process.slept_ns),
            disk_ms: ms(process.disk_ns),
            cuda_calls: process.cuda_calls,
            cuda_ms: ms(process.cuda_ns),
            pages_mb: pages_recorded.then(|| mb(process.page_bytes)),
        }
    }
}

/// A fork, exec or exit.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Event {
    /// when
    at_ms: f64,
    /// fork, exec, rename or exit
    kind: String,
    /// process id
    pid: i32,
    /// its parent
    parent_pid: Option<i32>,
    /// name after the event
    name: String,
    /// exit code, or 128 + signal
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_status: Option<i32>,
}

impl From<forks::Event> for Event {
    fn from(event: forks::Event) -> Self {
        Self {
            at_ms: ms(event.ts_ns),
            kind: event.kind,
            pid: event.pid,
            parent_pid: event.parent_pid,
            name: text::name(&event.name),
            exit_status: event.exit_status,
        }
    }
}

/// Who used the CPUs of the host.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CpusShown {
    /// CPUs online.
    online: i32,
    /// CPUs that the job may use.
    usable: i32,
    /// CPUs that the job used, on average.
    job_used: f64,
    /// CPUs that all other processes used, on average.
    others_used: f64,
}

impl CpusShown {
    pub(super) fn new(cpus: &Cpus, info: &TraceInfo, window: Window) -> Self {
        let used = |ns: i64| ns as f64 / window.dur_ns().max(1) as f64;
        Self {
            online: info.cores_online,
            usable: info.cores_usable,
            job_used: used(cpus.job_ns),
            others_used: used(cpus.others_ns),
        }
    }
}

/// A process outside the job.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Other {
    /// process id
    pid: i32,
    /// its name
    name: String,
    /// on a CPU
    cpu_ms: f64,
}

impl From<&OtherProcess> for Other {
    fn from(other: &OtherProcess) -> Self {
        Self {
            pid: other.pid,
            name: text::name(&other.name),
            cpu_ms: ms(other.ran_ns),
        }
    }
}

/// What is a smaller part of the window is not worth a sentence.
const LEAST_SHARE: f64 = 0.01;

/// The answer in a few sentences.
pub(super) fn summary(found: &Correlation, roles: &Roles, window: Window) -> String {
    let Some(feeder) = &found.feeder else {
        return format!(
            "No process of this recording gave a GPU work. {} processes lived in these {}.",
            found.processes.len(),
            millis(window.dur_ns())
        );
    };
    let parts = parts(&feeder.budget);
    let total_ns: i64 = parts.iter().map(|(_, ns)| ns).sum();
    let largest: Vec<String> = parts
        .iter()
        .take(2)
        .map(|(part, ns)| (part, share(*ns, total_ns)))
        .filter(|(_, share)| *share >= LEAST_SHARE)
        .map(|(part, share)| format!("{} ({:.0}%)", part.meaning(), share * 100.0))
        .collect();
    let wait = match &feeder.chain {
        Some(chain) if share(chain.dur_ns, window.dur_ns()) >= LEAST_SHARE => {
            explained(chain, roles)
        }
        Some(chain) => format!(
            "It hardly waited: its longest wait took {}.",
            millis(chain.dur_ns)
        ),
        None => "It was on a CPU all the time.".to_owned(),
    };
    format!(
        "In these {} the feeder, thread {} of process {}, mostly {}. {wait}",
        millis(window.dur_ns()),
        feeder.tid,
        feeder.pid,
        largest.join(" and ")
    )
}

/// Milliseconds for a sentence: short times with more digits.
fn millis(ns: i64) -> String {
    if ns < 10_000_000 {
        format!("{} ms", ms(ns))
    } else {
        format!("{:.1} ms", ms(ns))
    }
}

/// The feeder's longest wait, and what explains it.
fn explained(chain: &Chain, roles: &Roles) -> String {
    let mut words = format!(
        "Its longest wait took {} from {} on",
        millis(chain.dur_ns),
        millis(chain.start_ns)
    );
    if let Some(call) = &chain.inside_call {
        words += &format!(", inside {call}");
    }
    let Some(last) = chain.hops.last() else {
        return words + ".";
    };
    let who = if chain.hops.len() == 1 {
        "it".to_owned()
    } else {
        format!(
            "thread {} of process {} ({}, {})",
            last.tid,
            last.pid,
            text::name(&last.name),
            role(last, roles)
        )
    };
    let doing = [
        (last.ran_ns, "was on a CPU"),
        (last.queued_ns, "was ready to run but had no CPU"),
        (last.disk_ns, "waited for the disk"),
        (last.slept_ns, "slept"),
        (last.unknown_ns(), "did what is not known"),
    ];
    let longest = doing.into_iter().max_by_key(|(ns, _)| *ns);
    let (ns, what) = longest.unwrap_or_default();
    let woken = match woken_by(last) {
        Some(by) if what == "slept" => format!(", until it was woken by {by}"),
        _ => String::new(),
    };
    let taken = match &last.taken_by {
        Some(taker) if ns == last.queued_ns => format!(
            ", having lost it to {} (cpus and other_processes show who used the CPUs)",
            show_taker(taker)
        ),
        _ => String::new(),
    };
    format!(
        "{words}: {who} {what} for {} of {}{woken}{taken}.",
        millis(ns),
        millis(last.total_ns)
    )
}
