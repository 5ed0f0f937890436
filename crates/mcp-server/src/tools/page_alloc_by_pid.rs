//! `page_alloc_by_pid`: who allocated memory pages.

use crate::arguments::{Asked, Lenient, Paging, WindowShown, mb, ms, page, share};
use crate::session::Session;
use crate::table::Table;
use crate::tool::{self, Tool, ToolError};
use crate::{schema, text};
use ingero_analysis::Window;
use ingero_analysis::coverage::{Source, caveats, records_pages};
use ingero_analysis::pages::{PagesRow, pages};
use ingero_analysis::roles::Roles;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) const TOOL: Tool = Tool {
    name: "page_alloc_by_pid",
    title: "Memory pages allocated",
    description: "Who allocated memory pages: per process of the job the number of allocations, \
        their size, the rate over its lifetime, the second with the most and when it was, first \
        and last. Pages are counted when the kernel hands them out, page cache and kernel memory \
        included, and not when they are freed: it is what memory management has to do, not the \
        memory in use. Use it to find out who copies or rebuilds data all the time, or what \
        starting workers costs in memory.",
    example: r#"{"start_ms": 0, "end_ms": 10000, "limit": 10}"#,
    input: schema::input::<Arguments>,
    output: schema::output::<Answer>,
    run: |session, arguments| tool::run(session, arguments, answer),
};

const DEFAULT_LIMIT: u32 = 20;
const NS_PER_S: i64 = 1_000_000_000;

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
    /// All processes together, in 10^6 bytes. Missing if it was not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_mb: Option<f64>,
    /// The processes that allocated pages in the window, by their size.
    processes: Table<Process>,
    #[serde(flatten)]
    paging: Paging,
    /// What was not recorded, lost or estimated.
    caveats: Vec<String>,
    /// What to ask next.
    next: Vec<String>,
}

/// A process.
#[derive(Debug, Serialize, JsonSchema)]
struct Process {
    /// process id
    pid: i32,
    /// last name
    name: String,
    /// feeder, loader_worker or other
    role: &'static str,
    /// allocations of one page or several in a row
    allocations: i64,
    /// their size, in 10^6 bytes
    mb: f64,
    /// size per second of its life in the window; null if its life was not recorded
    mb_per_s: Option<f64>,
    /// the most in any second
    peak_mb_in_1_s: f64,
    /// when that second began
    peak_at_ms: f64,
    /// the first allocation
    first_ms: f64,
    /// the last one
    last_ms: f64,
}

impl Process {
    fn new(row: &PagesRow, roles: &Roles) -> Self {
        Self {
            pid: row.pid,
            name: text::name(&row.name),
            role: roles.of(row.pid).name(),
            allocations: row.allocations,
            mb: mb(row.bytes),
            mb_per_s: row.bytes_per_s().map(|rate| mb(rate as i64)),
            peak_mb_in_1_s: mb(row.peak_bytes),
            peak_at_ms: ms(row.peak_at_ns),
            first_ms: ms(row.first_ns),
            last_ms: ms(row.last_ns),
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
    let Asked { info, window, pid } = asked;
    let recorded = records_pages(&info);
    let roles = session.roles(&info)?;
    let all = pages(&session.trace, window, pid)?;
    let total_bytes: i64 = all.iter().map(|row| row.bytes).sum();
    let mut caveats = caveats(
        &session.trace,
        &info,
        window,
        &[Source::Pages, Source::Processes],
    )?;
    if recorded && cuts_a_bucket(window, info.duration_ns) {
        caveats.push(
            "pages are kept in buckets of 10 ms: those that the window cuts count in proportion"
                .to_owned(),
        );
    }
    let summary = if recorded {
        summary(&all, total_bytes, window, &roles)
    } else {
        "Page allocations were not recorded in this trace.".to_owned()
    };
    let next = next(&all, window);
    let total = all.len() as i64;
    let shown = page.of(all);
    Ok(Answer {
        summary,
        window: window.into(),
        total_mb: recorded.then(|| mb(total_bytes)),
        paging: Paging::new(page, shown.len(), total, window)?,
        processes: Table(shown.iter().map(|row| Process::new(row, &roles)).collect()),
        caveats,
        next,
    })
}

/// Whether a border of the window lies inside of a bucket.
fn cuts_a_bucket(window: Window, recorded_ns: i64) -> bool {
    const BUCKET_NS: i64 = 10_000_000;
    window.start_ns % BUCKET_NS != 0
        || (window.end_ns % BUCKET_NS != 0 && window.end_ns != recorded_ns)
}

fn summary(all: &[PagesRow], total_bytes: i64, window: Window, roles: &Roles) -> String {
    let Some(first) = all.first() else {
        return "No process of the job allocated pages in this window.".to_owned();
    };
    let peak = format!(
        "at most {:.1} MB in a second, from {:.0} ms on",
        mb(first.peak_bytes),
        ms(first.peak_at_ns)
    );
    format!(
        "{} processes allocated {:.1} MB of pages in {:.1} s. Process {} ({}, {}) comes first: \
         {:.1} MB ({:.0}%), {peak}.",
        all.len(),
        mb(total_bytes),
        window.dur_ns() as f64 / NS_PER_S as f64,
        first.pid,
        text::name(&first.name),
        roles.of(first.pid).name(),
        mb(first.bytes),
        share(first.bytes, total_bytes) * 100.0,
    )
}

fn next(all: &[PagesRow], window: Window) -> Vec<String> {
    let Some(first) = all.first() else {
        return vec!["list_processes {} shows who ran, and what each process read".to_owned()];
    };
    let end_ns = (first.peak_at_ns + NS_PER_S).min(window.end_ns);
    vec![
        format!(
            "correlate_window {{\"start_ms\": {}, \"end_ms\": {}}} shows what happened in its peak second",
            ms(first.peak_at_ns),
            ms(end_ns)
        ),
        "list_processes {} compares pages with what each process read".to_owned(),
    ]
}
