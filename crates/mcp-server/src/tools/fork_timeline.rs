//! `fork_timeline`: the process tree over time.

mod generations;

use crate::arguments::{Asked, Lenient, Paging, WindowShown, ms, page};
use crate::session::Session;
use crate::table::Table;
use crate::tool::{self, Tool, ToolError};
use crate::{schema, text};
use generations::{GenerationShown, generations_in, in_words};
use ingero_analysis::coverage::{Source, caveats};
use ingero_analysis::forks::{self, Counts, Kinds, Life};
use ingero_analysis::generations::Generation;
use ingero_analysis::{Page, Window};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) const TOOL: Tool = Tool {
    name: "fork_timeline",
    title: "Forks and exits over time",
    description: "The process tree over time: who forked whom, when each process began and ended, \
        its exit status; generations of loader workers (those started together), with what \
        starting them cost until the GPU got work again; and how many threads were started. With \
        show=events the single events in order. Use it to find workers that are started again for \
        every epoch, programs that the job runs, or processes that died.",
    example: r#"{"show": "events", "limit": 50}"#,
    input: schema::input::<Arguments>,
    output: schema::output::<Answer>,
    run: |session, arguments| tool::run(session, arguments, answer),
};

const DEFAULT_LIMIT: u32 = 25;
/// Generations listed; `generations_total` counts all.
const MOST_GENERATIONS: usize = 10;

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
    /// Only this process and its children.
    #[serde(default)]
    #[schemars(with = "Option<u32>")]
    pid: Lenient,
    /// What to list. Default: processes.
    #[serde(default)]
    show: Show,
    /// With show=events: also the starts and ends of threads. Default: false.
    #[serde(default)]
    include_threads: bool,
    /// Most rows to return, 1 to 200. Default 25.
    #[serde(default)]
    #[schemars(with = "Option<u32>", range(min = 1, max = 200))]
    limit: Lenient,
    /// next_cursor of the previous answer.
    cursor: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Show {
    /// one row per process, oldest first
    #[default]
    Processes,
    /// one row per event, in order
    Events,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Answer {
    /// The answer in a sentence.
    summary: String,
    window: WindowShown,
    counts: CountsShown,
    /// Loader workers that were started in one burst and lived at the same time, the first ones
    /// in the window.
    generations: Table<GenerationShown>,
    /// Generations in the window, listed or not.
    generations_total: usize,
    /// With show=processes: processes that lived in the window, oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    processes: Option<Table<Process>>,
    /// With show=events: what happened in the window, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<Table<Event>>,
    #[serde(flatten)]
    paging: Paging,
    /// What was not recorded, lost or estimated.
    caveats: Vec<String>,
    /// What to ask next.
    next: Vec<String>,
}

/// Events in the window by kind. Threads are counted apart from processes.
#[derive(Debug, Serialize, JsonSchema)]
struct CountsShown {
    /// Processes started.
    forks: i64,
    /// Programs executed.
    execs: i64,
    /// Processes ended.
    exits: i64,
    /// Threads started.
    threads_started: i64,
    /// Threads ended.
    threads_ended: i64,
}

/// A process.
#[derive(Debug, Serialize, JsonSchema)]
struct Process {
    /// process id
    pid: i32,
    /// who forked it
    parent_pid: Option<i32>,
    /// last name
    name: String,
    /// when it was forked; null if it was there before the recording
    start_ms: Option<f64>,
    /// when it exited; null if it lived to the window's end
    exit_ms: Option<f64>,
    /// from fork to exit
    lifetime_ms: Option<f64>,
    /// exit code, or 128 + signal
    exit_status: Option<i32>,
    /// programs executed
    execs: i64,
    /// threads started
    threads_started: i64,
}

/// An event.
#[derive(Debug, Serialize, JsonSchema)]
struct Event {
    /// when
    at_ms: f64,
    /// existing (there when the recording began), fork, exec, rename, exit, thread or thread_exit
    kind: String,
    /// process id
    pid: i32,
    /// thread id
    tid: i32,
    /// its parent
    parent_pid: Option<i32>,
    /// name after the event
    name: String,
    /// after an exec, secrets masked
    #[serde(skip_serializing_if = "Option::is_none")]
    command_line: Option<String>,
    /// exit code, or 128 + signal
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_status: Option<i32>,
}

impl From<Counts> for CountsShown {
    fn from(counts: Counts) -> Self {
        Self {
            forks: counts.forks,
            execs: counts.execs,
            exits: counts.exits,
            threads_started: counts.threads,
            threads_ended: counts.thread_exits,
        }
    }
}

impl From<Life> for Process {
    fn from(life: Life) -> Self {
        Self {
            pid: life.pid,
            parent_pid: life.parent_pid,
            name: text::name(&life.name),
            start_ms: life.forked_ns.map(ms),
            exit_ms: life.exit_ns.map(ms),
            lifetime_ms: life.lifetime_ns().map(ms),
            exit_status: life.exit_status,
            execs: life.execs,
            threads_started: life.threads_started,
        }
    }
}

impl From<forks::Event> for Event {
    fn from(event: forks::Event) -> Self {
        Self {
            at_ms: ms(event.ts_ns),
            kind: event.kind,
            pid: event.pid,
            tid: event.tid,
            parent_pid: event.parent_pid,
            name: text::name(&event.name),
            command_line: event.command_line.as_deref().map(text::command_line),
            exit_status: event.exit_status,
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
    let (trace, window, pid) = (&session.trace, asked.window, asked.pid);
    let counts = forks::counts(trace, window, pid)?;
    let lives = forks::lives(trace, window, pid)?;
    let generations = generations_in(session, &asked)?;
    let summary = summary(&counts, &lives, &generations, window);
    let lived = lives.len() as i64;
    let (processes, events, paging) = match arguments.show {
        Show::Processes => {
            let shown = page.of(lives);
            let paging = Paging::new(page, shown.len(), lived, window)?;
            (
                Some(Table(shown.into_iter().map(Process::from).collect())),
                None,
                paging,
            )
        }
        Show::Events => {
            let (events, paging) = events(
                session,
                &asked,
                if arguments.include_threads {
                    Kinds::All
                } else {
                    Kinds::Processes
                },
                page,
            )?;
            (None, Some(events), paging)
        }
    };
    let shown = generations.iter().take(MOST_GENERATIONS);
    let shown = shown.map(|(number, generation)| GenerationShown::new(*number, generation));
    Ok(Answer {
        summary,
        window: window.into(),
        counts: counts.into(),
        generations: Table(shown.collect()),
        generations_total: generations.len(),
        processes,
        events,
        paging,
        caveats: caveats(trace, &asked.info, window, &[Source::Processes])?,
        next: next(arguments.show, window, &generations),
    })
}

fn events(
    session: &Session,
    asked: &Asked,
    kinds: Kinds,
    page: Page,
) -> Result<(Table<Event>, Paging), ToolError> {
    let (rows, total) = forks::events(&session.trace, asked.window, asked.pid, kinds, page)?;
    let paging = Paging::new(page, rows.len(), total, asked.window)?;
    Ok((Table(rows.into_iter().map(Event::from).collect()), paging))
}

fn summary(
    counts: &Counts,
    lives: &[Life],
    generations: &[(usize, Generation)],
    window: Window,
) -> String {
    let failed = lives
        .iter()
        .filter(|life| life.exit_status.is_some_and(|status| status != 0));
    let mut summary = format!(
        "{} processes lived in this window: {} forks, {} execs, {} exits; {} threads were started.",
        lives.len(),
        counts.forks,
        counts.execs,
        counts.exits,
        counts.threads
    );
    match failed.count() {
        0 => {}
        failed => summary += &format!(" {failed} exited with an error or by a signal."),
    }
    if !generations.is_empty() {
        let generations: Vec<&Generation> = generations.iter().map(|(_, of)| of).collect();
        summary += &format!(" {}.", in_words(&generations, window));
    }
    summary
}

fn next(show: Show, window: Window, generations: &[(usize, Generation)]) -> Vec<String> {
    let span = format!(
        "\"start_ms\": {}, \"end_ms\": {}",
        ms(window.start_ns),
        ms(window.end_ns)
    );
    let mut next = vec![format!(
        "list_processes {{{span}}} shows what these processes did"
    )];
    let costliest = generations.iter().max_by_key(|(_, of)| of.start_cost_ns());
    if let Some((number, generation)) = costliest
        && let Some(end_ns) = generation.next_submit_ns
    {
        next.push(format!(
            "correlate_window {{\"start_ms\": {}, \"end_ms\": {}}} shows what happened while generation {number}, the costliest, was started",
            ms(generation.first_fork_ns),
            ms(end_ns)
        ));
    }
    if show == Show::Processes {
        next.push(format!(
            "fork_timeline {{\"show\": \"events\", {span}}} lists the events in order"
        ));
    }
    next
}
