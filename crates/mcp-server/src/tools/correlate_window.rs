//! `correlate_window`: what happened at one time.

mod shown;

use crate::arguments::{Asked, Lenient, WindowShown, ms};
use crate::schema;
use crate::session::Session;
use crate::table::Table;
use crate::tool::{self, Tool, ToolError};
use crate::tools::explain_bottleneck::feeds_a_gpu;
use ingero_analysis::correlate::{self, Chosen, Correlation, correlate, steady, worst};
use ingero_analysis::coverage::{Source, caveats, records_pages};
use ingero_analysis::forks::{self, Kinds};
use ingero_analysis::roles::{Feeder, Roles};
use ingero_analysis::{Page, Window};
use ingero_trace::TraceInfo;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shown::{CpusShown, Event, FeederShown, Hop, Other, Part, Process, Wait};

pub(crate) const TOOL: Tool = Tool {
    name: "correlate_window",
    title: "What happened at one time",
    description: "What happened in a window, or around the n-th worst CUDA wait or gap: how the \
        feeder (the thread that hands the GPU its work) spent it; its longest wait followed from \
        thread to thread, each with what it did while the one before slept (ran, waited for a \
        CPU, slept, waited for a disk) and who woke it; what every process did; forks, execs and \
        exits; and who else used the CPUs. Give start_ms and end_ms for a window, or worst (with \
        nth) to look for one, in that window if both are given, else between the first steps and the end of the job; without \
        arguments it shows the longest gap. Use it to see why the GPU had to wait at a moment that another tool named.",
    example: r#"{"worst": "gap", "nth": 2}"#,
    input: schema::input::<Arguments>,
    output: schema::output::<Answer>,
    run: |session, arguments| tool::run(session, arguments, answer),
};

/// Rows of the lists. What comes first matters most, and other tools list the rest.
const MOST_PROCESSES: usize = 8;
const MOST_EVENTS: u32 = 8;
const MOST_OTHERS: usize = 5;
/// How far down the worst waits and gaps can be counted.
const LARGEST_NTH: u32 = 1_000;

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
    /// Instead of the window itself, show a wait or gap in it. Default: gap, if no window is given.
    worst: Option<Worst>,
    /// With worst: which one, 1 is the longest. Default 1.
    #[serde(default)]
    #[schemars(with = "Option<u32>", range(min = 1, max = 1000))]
    nth: Lenient,
    /// The process whose feeder to show, where several feed a GPU. Default: the main one.
    #[serde(default)]
    #[schemars(with = "Option<u32>")]
    pid: Lenient,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Worst {
    /// a CUDA call of the feeder that waited for the GPU
    Wait,
    /// a time in which the GPU was handed nothing
    Gap,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Answer {
    /// The answer in a few sentences.
    summary: String,
    window: WindowShown,
    /// Why this window.
    chosen: String,
    /// Missing if no process gave a GPU work.
    #[serde(skip_serializing_if = "Option::is_none")]
    feeder: Option<FeederShown>,
    /// Where the time of the feeder went in the window; parts below 0.1% are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<Table<Part>>,
    /// Its longest wait. Missing if it was on a CPU all the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    wait: Option<Wait>,
    /// That wait explained: the feeder, then whoever ended most of its sleep, and so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    chain: Option<Table<Hop>>,
    /// Processes of the job: the feeder's first, then the busiest.
    processes: Table<Process>,
    /// How many lived in the window, listed or not.
    processes_total: usize,
    /// Forks, execs and exits, in order, the first ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<Table<Event>>,
    /// How many there were, listed or not.
    events_total: i64,
    cpus: CpusShown,
    /// The busiest processes outside the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_processes: Option<Table<Other>>,
    /// What was not recorded, lost or estimated.
    caveats: Vec<String>,
    /// What to ask next.
    next: Vec<String>,
}

fn answer(session: &Session, arguments: Arguments) -> Result<Answer, ToolError> {
    let asked = Asked::new(
        session,
        &arguments.start_ms,
        &arguments.end_ms,
        &arguments.pid,
    )?;
    let nth = arguments.nth.whole("nth", 1..=LARGEST_NTH)?;
    let Asked { info, window, pid } = asked;
    let roles = session.roles(&info)?;
    if let Some(pid) = pid {
        feeds_a_gpu(&roles, pid)?;
    }
    let window_given = arguments.start_ms.number("start_ms")?.is_some()
        || arguments.end_ms.number("end_ms")?.is_some();
    let worst = match (arguments.worst, nth) {
        (None, Some(nth)) => {
            return Err(ToolError::Arguments(format!(
                "nth={nth} counts the worst waits or gaps: give worst=\"wait\" or worst=\"gap\" with it"
            )));
        }
        (None, None) if !window_given => Some(Worst::Gap),
        (worst, _) => worst,
    };
    let (window, chosen) = match worst {
        Some(what) => {
            let feeder = feeder(&roles, pid)?;
            let within = if window_given {
                window
            } else {
                steady(&session.trace, window, feeder)?
            };
            let nth = nth.unwrap_or(1);
            let found = find(session, within, feeder, what, nth)?;
            let warm_up = within.start_ns > window.start_ns;
            let chosen = why(what, nth, &found, feeder, within, warm_up);
            (found.window, chosen)
        }
        None => (window, "the window that was asked for".to_owned()),
    };
    let found = correlate(&session.trace, &info, window, pid, &roles)?;
    let (events, events_total) = forks::events(
        &session.trace,
        window,
        None,
        Kinds::Lives,
        Page::first(MOST_EVENTS),
    )?;
    let pages = records_pages(&info);
    let mut sources = vec![Source::Scheduler, Source::Processes, Source::Cuda];
    sources.extend(pages.then_some(Source::Pages));
    let mut caveats = caveats(&session.trace, &info, window, &sources)?;
    caveats.extend(own_caveats(&found, &roles, pid, window, &info));
    let summary = shown::summary(&found, &roles, window);
    let next = next(&found, window, worst);
    let chain = found
        .feeder
        .as_ref()
        .and_then(|feeder| feeder.chain.as_ref());
    Ok(Answer {
        summary,
        window: window.into(),
        chosen,
        budget: found
            .feeder
            .as_ref()
            .map(|feeder| Table(shown::budget(&feeder.budget))),
        wait: chain.map(Wait::from),
        chain: chain.map(|chain| Table(shown::hops(chain, &roles))),
        feeder: found.feeder.as_ref().map(FeederShown::from),
        processes_total: found.processes.len(),
        processes: Table(
            found
                .processes
                .iter()
                .take(MOST_PROCESSES)
                .map(|process| Process::new(process, pages))
                .collect(),
        ),
        events: (events_total > 0).then(|| Table(events.into_iter().map(Event::from).collect())),
        events_total,
        cpus: CpusShown::new(&found.cpus, &info, window),
        other_processes: (!found.others.is_empty()).then(|| {
            let others = found.others.iter().take(MOST_OTHERS);
            Table(others.map(Other::from).collect())
        }),
        caveats,
        next,
    })
}

/// The feeder to look at.
fn feeder(roles: &Roles, pid: Option<i32>) -> Result<&Feeder, ToolError> {
    let mut feeders = roles.feeders.iter();
    feeders
        .find(|feeder| pid.is_none_or(|pid| pid == feeder.pid))
        .ok_or_else(|| {
            ToolError::Arguments(
                "no process of this recording gave a GPU work, so there are no CUDA waits and gaps: \
                 give start_ms and end_ms"
                    .to_owned(),
            )
        })
}

fn find(
    session: &Session,
    window: Window,
    feeder: &Feeder,
    what: Worst,
    nth: u32,
) -> Result<Chosen, ToolError> {
    let what = match what {
        Worst::Wait => correlate::Worst::Wait,
        Worst::Gap => correlate::Worst::Gap,
    };
    Ok(worst(&session.trace, window, feeder, what, nth)?)
}

fn why(
    what: Worst,
    nth: u32,
    found: &Chosen,
    feeder: &Feeder,
    within: Window,
    warm_up: bool,
) -> String {
    let rank = match nth {
        1 => "the longest".to_owned(),
        nth => format!("number {nth} by length"),
    };
    let count = found.count;
    let call = |name: &Option<String>| name.clone().unwrap_or_default();
    let looked = format!(
        "from {}{} to {} ms",
        ms(within.start_ns),
        if warm_up {
            " (after the first steps, which warm up)"
        } else {
            ""
        },
        ms(within.end_ns)
    );
    match what {
        Worst::Wait => format!(
            "{rank} of {count} CUDA calls in which the feeder waited for the GPU, {looked}: {}",
            call(&found.call)
        ),
        Worst::Gap => {
            let end = match &found.before_call {
                Some(before) => format!("before {before}"),
                None => "and no call after it".to_owned(),
            };
            let idle = if found.gpu_idle {
                "; the GPU is known to have had nothing to do"
            } else {
                ""
            };
            format!(
                "{rank} of {count} gaps in which process {} handed the GPU nothing, {looked}: after {}, {end}{idle}",
                feeder.pid,
                call(&found.call)
            )
        }
    }
}

fn own_caveats(
    found: &Correlation,
    roles: &Roles,
    pid: Option<i32>,
    window: Window,
    info: &TraceInfo,
) -> Vec<String> {
    const BUCKET_NS: i64 = 100_000_000;
    let mut caveats = Vec::new();
    if let Some(feeder) = &found.feeder
        && pid.is_none()
        && roles.feeders.len() > 1
    {
        caveats.push(format!(
            "{} processes feed a GPU: this is about process {}, give pid for another",
            roles.feeders.len(),
            feeder.pid
        ));
    }
    let cuts = |border_ns: i64| border_ns % BUCKET_NS != 0 && border_ns != info.duration_ns;
    if cuts(window.start_ns) || cuts(window.end_ns) {
        caveats.push(
            "cpus and other_processes come from buckets of 100 ms: those that the window cuts count in proportion"
                .to_owned(),
        );
    }
    caveats
}

fn next(found: &Correlation, window: Window, worst: Option<Worst>) -> Vec<String> {
    let mut next = Vec::new();
    let chain = found
        .feeder
        .as_ref()
        .and_then(|feeder| feeder.chain.as_ref());
    if let Some(last) = chain.and_then(|chain| chain.hops.last()) {
        next.push(format!(
            "top_offcpu {{\"pid\": {}, \"start_ms\": {}, \"end_ms\": {}}} shows all waits of the process that the chain ends with",
            last.pid,
            ms(window.start_ns),
            ms(window.end_ns)
        ));
    }
    next.push(match worst {
        Some(_) => {
            "explain_bottleneck {} says whether this is what costs the job its time".to_owned()
        }
        None => "correlate_window {\"worst\": \"gap\"} shows the longest time in which the GPU was handed nothing".to_owned(),
    });
    next
}
