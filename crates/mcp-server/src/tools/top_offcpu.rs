//! `top_offcpu`: who was off the CPU, and why.

use crate::arguments::{Asked, Lenient, Paging, WindowShown, ms, page, share};
use crate::session::Session;
use crate::table::Table;
use crate::tool::{self, Tool, ToolError};
use crate::{schema, text};
use ingero_analysis::coverage::{Source, caveats};
use ingero_analysis::off_cpu::{self, OffCpuRow, Partner, off_cpu};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) const TOOL: Tool = Tool {
    name: "top_offcpu",
    title: "Time off the CPU",
    description: "Who was off the CPU and why: per process or thread the number of waits, their \
        total, mean, p99 and longest, split into waiting for a CPU that others used, wake-up \
        latency, sleeping (waiting for somebody), and disk; who woke it and who took its CPU. Use \
        it to tell a lack of CPUs from waiting for data or for a disk. Sleeping is normal for \
        idle threads: look at the feeder first.",
    example: r#"{"pid": 1234, "by": "thread", "rank_by": "waiting_for_cpu"}"#,
    input: schema::input::<Arguments>,
    output: schema::output::<Answer>,
    run: |session, arguments| tool::run(session, arguments, answer),
};

const DEFAULT_LIMIT: u32 = 10;

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
    /// One row per what. Default: thread if pid is given, process otherwise.
    by: Option<By>,
    /// What comes first. Default: total.
    #[serde(default)]
    rank_by: RankBy,
    /// Most rows to return, 1 to 200. Default 10.
    #[serde(default)]
    #[schemars(with = "Option<u32>", range(min = 1, max = 200))]
    limit: Lenient,
    /// next_cursor of the previous answer.
    cursor: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum By {
    Process,
    Thread,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum RankBy {
    /// all time off the CPU
    #[default]
    Total,
    /// queued for a CPU that others used
    WaitingForCpu,
    /// waiting for somebody
    Sleeping,
    /// disk and page faults
    Disk,
    /// the longest single wait
    Longest,
    /// the number of waits
    Waits,
}

impl From<RankBy> for off_cpu::RankBy {
    fn from(rank_by: RankBy) -> Self {
        match rank_by {
            RankBy::Total => Self::Total,
            RankBy::WaitingForCpu => Self::WaitingForCpu,
            RankBy::Sleeping => Self::Sleeping,
            RankBy::Disk => Self::Disk,
            RankBy::Longest => Self::Longest,
            RankBy::Waits => Self::Waits,
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Answer {
    /// The answer in a sentence.
    summary: String,
    window: WindowShown,
    /// What comes first.
    ranked_by: RankBy,
    /// Waits in the window, cut to it. The times of a process are sums over its threads, so they
    /// can exceed the window.
    waits: Table<Row>,
    #[serde(flatten)]
    paging: Paging,
    /// What was not recorded, lost or estimated.
    caveats: Vec<String>,
    /// What to ask next.
    next: Vec<String>,
}

/// A process or thread.
#[derive(Debug, Serialize, JsonSchema)]
struct Row {
    /// process id
    pid: i32,
    /// thread id
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<i32>,
    /// its last name
    name: String,
    /// times off the CPU
    waits: i64,
    /// their time together
    total_ms: f64,
    /// mean wait
    mean_ms: f64,
    /// 99 of 100 waits were not longer
    p99_ms: f64,
    /// the longest wait
    longest_ms: f64,
    /// when it began
    longest_at_ms: f64,
    /// queued while others ran
    waiting_for_cpu_ms: f64,
    /// from the wake-up to running, on a CPU that was free
    wakeup_latency_ms: f64,
    /// waiting for somebody
    sleeping_ms: f64,
    /// waiting for a disk or a page
    disk_ms: f64,
    /// stopped, parked or unknown
    other_ms: f64,
    /// who ended most of the waiting, with its part of it
    woken_by: Option<String>,
    /// who ran while it was queued, with its part of that time
    cpu_taken_by: Option<String>,
}

impl From<&OffCpuRow> for Row {
    fn from(row: &OffCpuRow) -> Self {
        Self {
            pid: row.pid,
            tid: row.tid,
            name: text::name(&row.name),
            waits: row.waits,
            total_ms: ms(row.total_ns),
            mean_ms: ms(row.mean_ns()),
            p99_ms: ms(row.p99_ns),
            longest_ms: ms(row.longest_ns),
            longest_at_ms: ms(row.longest_at_ns),
            waiting_for_cpu_ms: ms(row.runq_ns),
            wakeup_latency_ms: ms(row.wakeup_ns),
            sleeping_ms: ms(row.sleeping_ns),
            disk_ms: ms(row.disk_ns),
            other_ms: ms(row.other_ns()),
            woken_by: row.waker.as_ref().map(show_partner),
            cpu_taken_by: row.taker.as_ref().map(show_partner),
        }
    }
}

fn show_partner(partner: &Partner) -> String {
    let name = match (text::name(&partner.name), partner.tid) {
        (name, None) => format!("{name} (interrupt)"),
        (name, Some(0)) if name.is_empty() => "idle".to_owned(),
        (name, Some(_)) if name.is_empty() => "a thread outside the job".to_owned(),
        (name, Some(_)) => name,
    };
    let id = match (partner.pid, partner.tid) {
        (_, None | Some(0)) => String::new(),
        (Some(pid), Some(tid)) if pid != tid => format!(" pid {pid} tid {tid}"),
        (Some(pid), Some(_)) => format!(" pid {pid}"),
        (None, Some(tid)) => format!(" tid {tid}"),
    };
    format!("{name}{id}, {:.0}%", partner.share * 100.0)
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
    let default_by = if asked.pid.is_some() {
        By::Thread
    } else {
        By::Process
    };
    let by = match arguments.by.unwrap_or(default_by) {
        By::Process => off_cpu::By::Process,
        By::Thread => off_cpu::By::Thread,
    };
    let found = off_cpu(
        &session.trace,
        asked.window,
        asked.pid,
        by,
        arguments.rank_by.into(),
        page,
    )?;
    Ok(Answer {
        summary: summary(&found.rows, asked.window.dur_ns()),
        window: asked.window.into(),
        ranked_by: arguments.rank_by,
        paging: Paging::new(page, found.rows.len(), found.total_rows, asked.window)?,
        caveats: caveats(
            &session.trace,
            &asked.info,
            asked.window,
            &[Source::Scheduler],
        )?,
        next: next(&found.rows),
        waits: Table(found.rows.iter().map(Row::from).collect()),
    })
}

fn summary(rows: &[OffCpuRow], window_ns: i64) -> String {
    let Some(first) = rows.first() else {
        return "No thread of the job left a CPU in this window, or nothing was recorded in it."
            .to_owned();
    };
    let who = match first.tid {
        Some(tid) => format!(
            "Thread {tid} ({}) of process {}",
            text::name(&first.name),
            first.pid
        ),
        None => format!("Process {} ({})", first.pid, text::name(&first.name)),
    };
    let part = |ns| format!("{:.0}%", share(ns, first.total_ns) * 100.0);
    let mut summary = format!(
        "{who} comes first: {:.1} ms off the CPU in {} waits in a window of {:.1} ms, {} of it \
         waiting for a CPU, {} sleeping, {} disk.",
        ms(first.total_ns),
        first.waits,
        ms(window_ns),
        part(first.runq_ns),
        part(first.sleeping_ns),
        part(first.disk_ns)
    );
    if let Some(waker) = first.waker.as_ref().filter(|waker| waker.share >= 0.5) {
        summary += &format!(" Woken mostly by {}.", show_partner(waker));
    }
    summary
}

fn next(rows: &[OffCpuRow]) -> Vec<String> {
    let Some(first) = rows.first() else {
        return vec!["list_processes {} shows who ran at all".to_owned()];
    };
    let mut next = Vec::new();
    if first.tid.is_none() {
        next.push(format!(
            "top_offcpu {{\"pid\": {}}} shows its threads",
            first.pid
        ));
    }
    next.push(format!(
        "cuda_wait_latency {{\"start_ms\": {}, \"end_ms\": {}}} shows what the CUDA calls did during its longest wait",
        ms(first.longest_at_ns),
        ms(first.longest_at_ns + first.longest_ns.max(1_000_000))
    ));
    next
}
