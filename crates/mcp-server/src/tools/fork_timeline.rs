//! `fork_timeline`: the process tree over time.

use crate::arguments::{Asked, Lenient, Paging, WindowShown, ms, page, share};
use crate::session::Session;
use crate::table::Table;
use crate::tool::{self, Tool, ToolError};
use crate::{schema, text};
use ingero_analysis::coverage::{Source, caveats};
use ingero_analysis::forks::{self, Counts, Life};
use ingero_analysis::generations::{Generation, generations};
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

/// A generation.
#[derive(Debug, Serialize, JsonSchema)]
struct GenerationShown {
    /// of the recording, 1 is the first
    number: usize,
    /// the process that they work for
    feeder_pid: i32,
    /// how many
    workers: usize,
    /// when the first was forked
    start_ms: f64,
    /// from the first fork to the last
    forking_ms: f64,
    /// from the first fork until one of them first woke a thread that takes batches
    handover_after_ms: Option<f64>,
    /// from the first fork until the feeder next gave the GPU work after that, first batch included
    start_cost_ms: Option<f64>,
    /// from the first fork to the end of the last; null if one lived on
    lifetime_ms: Option<f64>,
    /// how it ended
    end: String,
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

impl GenerationShown {
    fn new(number: usize, generation: &Generation) -> Self {
        let workers = generation.workers.len();
        let end = match (generation.exited, generation.failed) {
            (0, _) => "alive".to_owned(),
            (exited, 0) if exited == workers => "all exited".to_owned(),
            (exited, 0) => format!("{exited} of {workers} exited"),
            (exited, failed) => format!("{exited} of {workers} exited, {failed} of them failed"),
        };
        Self {
            number,
            feeder_pid: generation.feeder_pid,
            workers,
            start_ms: ms(generation.first_fork_ns),
            forking_ms: ms(generation.last_fork_ns - generation.first_fork_ns),
            handover_after_ms: generation.handover_after_ns().map(ms),
            start_cost_ms: generation.start_cost_ns().map(ms),
            lifetime_ms: generation.lifetime_ns().map(ms),
            end,
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
            let (events, paging) = events(session, &asked, arguments.include_threads, page)?;
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
    threads: bool,
    page: Page,
) -> Result<(Table<Event>, Paging), ToolError> {
    let (rows, total) = forks::events(&session.trace, asked.window, asked.pid, threads, page)?;
    let paging = Paging::new(page, rows.len(), total, asked.window)?;
    Ok((Table(rows.into_iter().map(Event::from).collect()), paging))
}

/// The generations that lived in the window, each with its number in the recording.
fn generations_in(session: &Session, asked: &Asked) -> Result<Vec<(usize, Generation)>, ToolError> {
    let roles = session.roles(&asked.info)?;
    let all = generations(&session.trace, &roles)?;
    Ok((1..)
        .zip(all)
        .filter(|(_, generation)| {
            let ended_ns = generation.ended_ns.unwrap_or(i64::MAX);
            generation.first_fork_ns < asked.window.end_ns && ended_ns >= asked.window.start_ns
        })
        .filter(|(_, generation)| {
            asked
                .pid
                .is_none_or(|pid| pid == generation.feeder_pid || generation.workers.contains(&pid))
        })
        .collect())
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

/// "12 generations of 4 workers, each 0.8 s; start cost 210 ms median, 31% of the time", and what
/// of that cost is forking.
fn in_words(generations: &[&Generation], window: Window) -> String {
    let sizes = || {
        generations
            .iter()
            .map(|generation| generation.workers.len())
    };
    let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
    let mut words = match generations.len() {
        1 => "1 generation of ".to_owned(),
        count => format!("{count} generations of "),
    };
    words += &match (least, most) {
        (1, 1) => "1 worker".to_owned(),
        (least, most) if least == most => format!("{most} workers"),
        (least, most) => format!("{least} to {most} workers"),
    };
    if let Some(lifetime) = median(generations.iter().filter_map(|of| of.lifetime_ns())) {
        words += &format!(", each {:.1} s", lifetime as f64 / 1e9);
    }
    if let Some(cost) = median(generations.iter().filter_map(|of| of.start_cost_ns())) {
        let forking = generations
            .iter()
            .map(|of| of.last_fork_ns - of.first_fork_ns);
        words += &format!(
            "; start cost {:.0} ms median, {:.0}% of the time: {:.0} ms forking, then until the \
             first batch was there and the GPU got work",
            ms(cost),
            share(starting_ns(generations, window), window.dur_ns()) * 100.0,
            ms(median(forking).unwrap_or(0)),
        );
    }
    words
}

fn median(values: impl Iterator<Item = i64>) -> Option<i64> {
    let mut values: Vec<i64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// Time in the window in which at least one generation was being started.
fn starting_ns(generations: &[&Generation], window: Window) -> i64 {
    let mut until_ns = window.start_ns;
    let mut total_ns = 0;
    // By start: what two of them share counts once.
    for generation in generations {
        let Some(end_ns) = generation.next_submit_ns else {
            continue;
        };
        let from_ns = generation.first_fork_ns.max(until_ns);
        let end_ns = end_ns.min(window.end_ns);
        total_ns += (end_ns - from_ns).max(0);
        until_ns = until_ns.max(end_ns);
    }
    total_ns
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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn generation(start_ms: i64, cost_ms: i64, workers: i32) -> Generation {
        Generation {
            feeder_pid: 100,
            workers: (200..200 + workers).collect(),
            first_fork_ns: start_ms * MS,
            last_fork_ns: (start_ms + 5) * MS,
            first_handover_ns: Some((start_ms + cost_ms - 10) * MS),
            next_submit_ns: Some((start_ms + cost_ms) * MS),
            ended_ns: Some((start_ms + 800) * MS),
            exited: workers as usize,
            failed: 0,
        }
    }

    #[test]
    fn generations_are_told_in_a_line() {
        let window = Window {
            start_ns: 0,
            end_ns: 2_000 * MS,
        };
        let (first, second) = (generation(0, 300, 4), generation(1_000, 200, 4));
        assert_eq!(
            in_words(&[&first, &second], window),
            "2 generations of 4 workers, each 0.8 s; start cost 300 ms median, 25% of the time: 5 ms \
             forking, then until the first batch was there and the GPU got work"
        );
        // Of two that are started at the same time, the time counts once.
        let beside = Generation {
            ended_ns: None,
            next_submit_ns: Some(400 * MS),
            ..generation(100, 300, 1)
        };
        let words = in_words(&[&first, &beside], window);
        assert!(
            words.starts_with("2 generations of 1 to 4 workers, each 0.8 s; "),
            "{words}"
        );
        assert!(words.contains(" median, 20% of the time"), "{words}");
        let unseen = Generation {
            next_submit_ns: None,
            ended_ns: None,
            ..generation(0, 300, 1)
        };
        assert_eq!(in_words(&[&unseen], window), "1 generation of 1 worker");
    }

    #[test]
    fn the_end_of_a_generation_is_named() {
        let of = |exited, failed| {
            let generation = Generation {
                exited,
                failed,
                ..generation(0, 300, 4)
            };
            GenerationShown::new(1, &generation).end
        };
        assert_eq!(of(0, 0), "alive");
        assert_eq!(of(4, 0), "all exited");
        assert_eq!(of(3, 0), "3 of 4 exited");
        assert_eq!(of(4, 2), "4 of 4 exited, 2 of them failed");
    }
}
