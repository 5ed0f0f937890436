//! `list_processes`: who ran.

use crate::arguments::{Asked, Lenient, Paging, WindowShown, mb, ms, page};
use crate::session::Session;
use crate::table::Table;
use crate::tool::{self, Tool, ToolError};
use crate::{schema, text};
use ingero_analysis::coverage::{Source, caveats};
use ingero_analysis::processes::{ProcessRow, processes};
use ingero_analysis::roles::{Role, Roles};
use ingero_trace::TraceInfo;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) const TOOL: Tool = Tool {
    name: "list_processes",
    title: "Processes of the job",
    description: "Who ran: every process of the recorded job with its parent, role (feeder: hands \
        the GPU its work; loader_worker: prepares data for it), lifetime, CPU time, time off the \
        CPU, time queued for a CPU, memory pages allocated, bytes read (from storage or not) and \
        CUDA calls, and the CPU cores that the job may use. Use it to learn the pids that other \
        tools take, to compare cores with workers, or to tell data in memory from data on disk.",
    example: r#"{"limit": 20}"#,
    input: schema::input::<Arguments>,
    output: schema::output::<Answer>,
    run: |session, arguments| tool::run(session, arguments, answer),
};

const DEFAULT_LIMIT: u32 = 20;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Start of the window in milliseconds since the recording's start. Default: its start.
    #[serde(default)]
    #[schemars(with = "Option<f64>")]
    start_ms: Lenient,
    /// End of the window in milliseconds since the recording's start. Default: its end.
    #[serde(default)]
    #[schemars(with = "Option<f64>")]
    end_ms: Lenient,
    /// Only this process.
    #[serde(default)]
    #[schemars(with = "Option<u32>")]
    pid: Lenient,
    /// Most rows to return, 1 to 200. Default 20.
    #[serde(default)]
    #[schemars(with = "Option<u32>", range(min = 1, max = 200))]
    limit: Lenient,
    /// next_cursor of the previous answer.
    cursor: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Answer {
    /// The answer in a sentence.
    summary: String,
    window: WindowShown,
    host: Host,
    /// Feeders first, then loader workers, then others; each by CPU time.
    processes: Table<Process>,
    #[serde(flatten)]
    paging: Paging,
    /// What was not recorded, lost or estimated.
    caveats: Vec<String>,
    /// What to ask next.
    next: Vec<String>,
}

/// The CPU cores of the host, and those that the job may use.
#[derive(Debug, Serialize, JsonSchema)]
struct Host {
    /// Cores online.
    cores_online: i32,
    /// Cores in the job's affinity mask.
    #[serde(skip_serializing_if = "Option::is_none")]
    cores_affinity: Option<i32>,
    /// The job's cgroup CPU quota, in cores. Missing without a quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup_quota_cores: Option<f64>,
    /// Cores that the job may use: the smallest of those.
    cores_usable: i32,
    /// Which of them limits.
    cores_usable_from: String,
    /// Whether cores are hardware threads that share a physical core.
    #[serde(skip_serializing_if = "Option::is_none")]
    cores_are_smt_siblings: Option<bool>,
}

impl Host {
    fn new(info: &TraceInfo) -> Self {
        let quota = info.cgroup_quota_cores.map(|quota| (quota as i32).max(1));
        let from = if quota == Some(info.cores_usable) && info.cores_usable < info.cores_online {
            "cgroup quota"
        } else if info.cores_affinity == Some(info.cores_usable)
            && info.cores_usable < info.cores_online
        {
            "affinity mask"
        } else {
            "cores online"
        };
        Self {
            cores_online: info.cores_online,
            cores_affinity: info.cores_affinity,
            cgroup_quota_cores: info.cgroup_quota_cores,
            cores_usable: info.cores_usable,
            cores_usable_from: from.to_owned(),
            cores_are_smt_siblings: info.smt_active,
        }
    }
}

/// A process. Times are sums over its threads, in the window.
#[derive(Debug, Serialize, JsonSchema)]
struct Process {
    /// process id
    pid: i32,
    /// of its parent
    parent_pid: Option<i32>,
    /// last name
    name: String,
    /// feeder, loader_worker or other
    role: &'static str,
    /// when it was forked; null if it was there before the recording
    start_ms: Option<f64>,
    /// when it exited; null if it lived to the window's end
    exit_ms: Option<f64>,
    /// threads so far
    threads: i64,
    /// time on a CPU
    cpu_ms: f64,
    /// time off the CPU: waiting, sleeping, queued
    off_cpu_ms: f64,
    /// part of off_cpu_ms spent queued for a CPU that others used
    waiting_for_cpu_ms: f64,
    /// memory pages allocated, in 10^6 bytes
    pages_mb: Option<f64>,
    /// bytes that reading calls returned, page cache and pipes included, in 10^6 bytes
    read_mb: Option<f64>,
    /// bytes fetched from storage, in 10^6 bytes
    storage_read_mb: Option<f64>,
    /// CUDA calls made
    cuda_calls: i64,
}

impl From<ProcessRow> for Process {
    fn from(row: ProcessRow) -> Self {
        Self {
            pid: row.pid,
            parent_pid: row.parent_pid,
            name: text::name(&row.name),
            role: row.role.name(),
            start_ms: row.forked_ns.map(ms),
            exit_ms: row.exit_ns.map(ms),
            threads: row.threads,
            cpu_ms: ms(row.cpu_ns),
            off_cpu_ms: ms(row.off_cpu_ns),
            waiting_for_cpu_ms: ms(row.runq_ns),
            pages_mb: row.page_bytes.map(mb),
            read_mb: row.read_bytes.map(mb),
            storage_read_mb: row.storage_read_bytes.map(mb),
            cuda_calls: row.cuda_calls,
        }
    }
}

fn answer(session: &Session, arguments: Arguments) -> Result<Answer, ToolError> {
    let mut asked = Asked::new(
        session,
        &arguments.start_ms,
        &arguments.end_ms,
        &arguments.pid,
    )?;
    let page = page(
        &mut asked,
        &arguments.limit,
        arguments.cursor.as_deref(),
        DEFAULT_LIMIT,
    )?;
    let Asked { info, window, pid } = &asked;
    let roles = session.roles(info)?;
    let all = processes(&session.trace, info, *window, *pid, &roles)?;
    let mut caveats = caveats(
        &session.trace,
        info,
        *window,
        &[
            Source::Scheduler,
            Source::Processes,
            Source::Cuda,
            Source::Pages,
        ],
    )?;
    caveats.extend(reused(&all));
    if cuts_a_bucket(info, asked.window.start_ns) || cuts_a_bucket(info, asked.window.end_ns) {
        caveats.push(
            "CPU time is kept in buckets of 100 ms: those that the window cuts count in proportion"
                .to_owned(),
        );
    }
    let summary = summary(info, &all, &roles);
    let next = next(&roles);
    let total = all.len() as i64;
    let shown = page.of(all);
    Ok(Answer {
        summary,
        window: asked.window.into(),
        host: Host::new(&asked.info),
        paging: Paging::new(page, shown.len(), total, asked.window)?,
        processes: Table(shown.into_iter().map(Process::from).collect()),
        caveats,
        next,
    })
}

/// Whether a border of the window lies inside of a bucket of CPU time.
fn cuts_a_bucket(info: &TraceInfo, border_ns: i64) -> bool {
    border_ns % 100_000_000 != 0 && border_ns != info.duration_ns
}

fn reused(all: &[ProcessRow]) -> Option<String> {
    let pids: Vec<String> = all
        .iter()
        .filter(|process| process.lives > 1)
        .take(10)
        .map(|process| process.pid.to_string())
        .collect();
    (!pids.is_empty()).then(|| {
        format!(
            "pid {} was used by several processes one after the other: their numbers are together; fork_timeline tells them apart",
            pids.join(", ")
        )
    })
}

fn summary(info: &TraceInfo, all: &[ProcessRow], roles: &Roles) -> String {
    let count = |role| all.iter().filter(|process| process.role == role).count();
    let mut summary = format!(
        "{} processes, {} of them loader workers, on {} usable cores of {}.",
        all.len(),
        count(Role::LoaderWorker),
        info.cores_usable,
        info.cores_online
    );
    match roles.feeders.first() {
        Some(feeder) => {
            summary += &format!(
                " Thread {} of process {} feeds the GPU",
                feeder.tid, feeder.pid
            );
            match roles.feeders.len() - 1 {
                0 => summary.push('.'),
                more => summary += &format!(", {more} other processes feed one too."),
            }
        }
        None => summary += " No process made a CUDA call that was recorded.",
    }
    for pin in &roles.pin_threads {
        summary += &format!(
            " Thread {} of process {} copies to pinned memory.",
            pin.tid, pin.pid
        );
    }
    summary
}

fn next(roles: &Roles) -> Vec<String> {
    match roles.feeders.first() {
        Some(feeder) => vec![
            format!(
                "top_offcpu {{\"pid\": {}}} shows what its threads waited for",
                feeder.pid
            ),
            "explain_bottleneck {} says what the GPU waited for".to_owned(),
        ],
        None => vec!["top_offcpu {} shows who waited and why".to_owned()],
    }
}
