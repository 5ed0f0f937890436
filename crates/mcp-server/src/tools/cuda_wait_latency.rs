//! `cuda_wait_latency`: what CUDA calls cost, and when the GPU was handed nothing.

use crate::arguments::{Asked, Lenient, Paging, WindowShown, ms, page, share};
use crate::schema;
use crate::session::Session;
use crate::table::Table;
use crate::tool::{self, Tool, ToolError};
use ingero_analysis::coverage::{Source, caveats};
use ingero_analysis::cuda_calls::{self, CallRow, CudaCalls, cuda_calls};
use ingero_analysis::roles::Roles;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) const TOOL: Tool = Tool {
    name: "cuda_wait_latency",
    title: "CUDA calls and gaps",
    description: "What CUDA calls cost on the host: per function the count, p50, p95, p99, \
        longest, total, the total without the time that the thread was off the CPU, bytes and \
        GB/s; and the gaps in which the feeder handed the GPU nothing: how many, how much of the \
        time, and the longest with their start. Use it to tell a GPU that is busy (long \
        synchronize calls, few gaps) from one that waits for the host (many or long gaps).",
    example: r#"{"start_ms": 0, "end_ms": 1000}"#,
    input: schema::input::<Arguments>,
    output: schema::output::<Answer>,
    run: |session, arguments| tool::run(session, arguments, answer),
};

const DEFAULT_LIMIT: u32 = 20;
/// Longest gaps listed. The totals count all of them.
const LONGEST_GAPS: u32 = 8;

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
    /// Only calls of this process, and its gaps. Default: calls of all, gaps of the main feeder.
    #[serde(default)]
    #[schemars(with = "Option<u32>")]
    pid: Lenient,
    /// Most functions to return, 1 to 200. Default 20.
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
    /// Calls in the window, cut to it, by time in them.
    calls: Table<Call>,
    #[serde(flatten)]
    paging: Paging,
    /// Missing if no process made calls that hand work to the GPU or wait for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    gaps: Option<Gaps>,
    /// What was not recorded, lost or estimated.
    caveats: Vec<String>,
    /// What to ask next.
    next: Vec<String>,
}

/// A function.
#[derive(Debug, Serialize, JsonSchema)]
struct Call {
    /// runtime, driver or nccl
    layer: String,
    /// name of the function
    call: String,
    /// of a copy: h2d is to the GPU, d2h from it
    direction: Option<String>,
    /// number of calls
    calls: i64,
    /// median
    p50_us: f64,
    /// 95 of 100 calls were not longer
    p95_us: f64,
    /// 99 of 100 calls were not longer
    p99_us: f64,
    /// the longest
    max_us: f64,
    /// when it began
    max_at_ms: f64,
    /// time in the calls
    total_ms: f64,
    /// without the time that the thread was off the CPU
    total_on_cpu_ms: f64,
    /// bytes copied or allocated
    bytes: Option<i64>,
    /// bytes copied per time in the call, in 10^9 bytes a second
    gb_per_s: Option<f64>,
    /// calls that returned an error
    failed: i64,
}

impl From<CallRow> for Call {
    fn from(row: CallRow) -> Self {
        let us = |ns: i64| (ns as f64 / 1e2).round() / 1e1;
        Self {
            layer: row.layer,
            call: row.call,
            direction: row.direction,
            calls: row.calls,
            p50_us: us(row.p50_ns),
            p95_us: us(row.p95_ns),
            p99_us: us(row.p99_ns),
            max_us: us(row.max_ns),
            max_at_ms: ms(row.max_at_ns),
            total_ms: ms(row.total_ns),
            total_on_cpu_ms: ms(row.total_ns - row.off_cpu_ns),
            bytes: row.bytes,
            gb_per_s: row.gb_per_s.map(|rate| (rate * 1e2).round() / 1e2),
            failed: row.failed,
        }
    }
}

/// Times in which the process was in no call that hands work to the GPU or waits for it.
#[derive(Debug, Serialize, JsonSchema)]
struct Gaps {
    /// The process.
    pid: i32,
    /// How many.
    count: i64,
    /// Their time together.
    total_ms: f64,
    /// Their part of the window, 0 to 1.
    share_of_window: f64,
    /// Time in those that began right after a call that waits until the GPU is done: there the
    /// GPU had nothing to do, if the process uses one stream. In the others it may have been
    /// working on what it was handed before.
    gpu_known_idle_ms: f64,
    /// The longest.
    longest: Table<Gap>,
}

/// A gap.
#[derive(Debug, Serialize, JsonSchema)]
struct Gap {
    /// when it began
    start_ms: f64,
    /// its length
    dur_ms: f64,
    /// the call before it
    after_call: Option<String>,
    /// the call that ended it; null if the window or the process ended
    before_call: Option<String>,
    /// whether the GPU is known to have had nothing to do
    gpu_known_idle: bool,
}

fn show_gaps(gaps: &cuda_calls::Gaps, window_ns: i64) -> Gaps {
    let longest = gaps.longest.iter().map(|gap| Gap {
        start_ms: ms(gap.start_ns),
        dur_ms: ms(gap.dur_ns),
        after_call: gap.after_call.clone(),
        before_call: gap.before_call.clone(),
        gpu_known_idle: gap.gpu_idle,
    });
    Gaps {
        pid: gaps.pid,
        count: gaps.count,
        total_ms: ms(gaps.total_ns),
        share_of_window: share(gaps.total_ns, window_ns),
        gpu_known_idle_ms: ms(gaps.idle_ns),
        longest: Table(longest.collect()),
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
    let roles = session.roles(&asked.info)?;
    let found = cuda_calls(
        &session.trace,
        asked.window,
        asked.pid,
        &roles,
        LONGEST_GAPS,
    )?;
    let mut caveats = caveats(
        &session.trace,
        &asked.info,
        asked.window,
        &[Source::Cuda, Source::Scheduler],
    )?;
    caveats.extend(own_caveats(&found, &roles, asked.pid));
    let summary = summary(&found, asked.window.dur_ns());
    let next = next(&found);
    let total = found.calls.len() as i64;
    let shown = page.of(found.calls);
    let gaps = found
        .gaps
        .map(|gaps| show_gaps(&gaps, asked.window.dur_ns()));
    Ok(Answer {
        summary,
        window: asked.window.into(),
        paging: Paging::new(page, shown.len(), total, asked.window)?,
        calls: Table(shown.into_iter().map(Call::from).collect()),
        gaps,
        caveats,
        next,
    })
}

fn own_caveats(found: &CudaCalls, roles: &Roles, pid: Option<i32>) -> Vec<String> {
    let mut caveats = Vec::new();
    if pid.is_none() && roles.feeders.len() > 1 {
        let pids: Vec<String> = roles.feeders.iter().map(|f| f.pid.to_string()).collect();
        caveats.push(format!(
            "{} processes feed a GPU (pids {}): calls are of all, gaps of the first; give pid for another",
            pids.len(),
            pids.join(", ")
        ));
    }
    if found.gaps.is_some() {
        caveats.push(
            "what ran on the GPU was not recorded: a gap shows that it was handed nothing, not that it idled"
                .to_owned(),
        );
    }
    caveats
}

fn summary(found: &CudaCalls, window_ns: i64) -> String {
    let Some(first) = found.calls.first() else {
        return "No CUDA call was recorded in this window.".to_owned();
    };
    let calls: i64 = found.calls.iter().map(|row| row.calls).sum();
    let mut summary = format!(
        "{calls} CUDA calls; {} took the most time: {:.1} ms in {} calls, {:.1} ms of it on a CPU.",
        first.call,
        ms(first.total_ns),
        first.calls,
        ms(first.total_ns - first.off_cpu_ns)
    );
    if let Some(gaps) = &found.gaps {
        summary += &format!(
            " Process {} handed the GPU nothing for {:.1} ms ({:.0}% of the window) in {} gaps.",
            gaps.pid,
            ms(gaps.total_ns),
            share(gaps.total_ns, window_ns) * 100.0,
            gaps.count
        );
    }
    summary
}

fn next(found: &CudaCalls) -> Vec<String> {
    let mut next = Vec::new();
    if let Some(gaps) = &found.gaps
        && let Some(gap) = gaps.longest.first()
    {
        next.push(format!(
            "top_offcpu {{\"pid\": {}, \"start_ms\": {}, \"end_ms\": {}}} shows what the feeder waited for in the longest gap",
            gaps.pid,
            ms(gap.start_ns),
            ms(gap.start_ns + gap.dur_ns)
        ));
    }
    next.push("explain_bottleneck {} says what the GPU waited for".to_owned());
    next
}
