//! The n-th worst CUDA wait or gap of a feeder.

use crate::call_kind::CallKind;
use crate::cuda_calls::gaps;
use crate::cuda_functions::Functions;
use crate::features::{STEPS_TO_SKIP_WARM_UP, WARM_UP_STEPS};
use crate::roles::Feeder;
use crate::{AnalysisError, Window, ask};
use ingero_trace::Trace;
use ingero_trace::duckdb::{self, Connection, named_params};

/// What to look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worst {
    /// A CUDA call in which the feeder waited for the GPU.
    Wait,
    /// A time in which its process was in no call that hands work to the GPU or waits for it.
    Gap,
}

/// A wait or gap that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// From its start to its end, cut to where it was looked for.
    pub window: Window,
    /// How many there are.
    pub count: i64,
    /// The waiting call, or the one before the gap.
    pub call: Option<String>,
    /// The call that ended the gap; `None` for a wait, or where nothing followed.
    pub before_call: Option<String>,
    /// Of a gap: the GPU is known to have had nothing to do when it began.
    pub gpu_idle: bool,
}

/// The `nth` longest (1 is the longest) CUDA wait of the feeder, or gap of its process, in
/// `window`.
///
/// # Errors
/// If there are fewer, or the trace cannot be read.
pub fn worst(
    trace: &Trace,
    window: Window,
    feeder: &Feeder,
    what: Worst,
    nth: u32,
) -> Result<Chosen, AnalysisError> {
    let (found, count) = ask(trace, |c| match what {
        Worst::Wait => nth_wait(c, window, feeder, nth),
        Worst::Gap => nth_gap(c, window, feeder, nth),
    })?;
    let name = match what {
        Worst::Wait => "wait",
        Worst::Gap => "gap",
    };
    found.ok_or_else(|| match count {
        0 => AnalysisError::Argument {
            argument: "worst",
            value: name.to_owned(),
            problem: "was not found",
            allowed: format!(
                "thread {} of process {}, which feeds the GPU, has none in this window",
                feeder.tid, feeder.pid
            ),
            example: match what {
                Worst::Wait => "worst=gap".to_owned(),
                Worst::Gap => "start_ms=0 end_ms=1000".to_owned(),
            },
        },
        count => AnalysisError::Argument {
            argument: "nth",
            value: nth.to_string(),
            problem: "is more than there are",
            allowed: format!("in this window there are {count}"),
            example: "nth=1".to_owned(),
        },
    })
}

/// `window` without the first steps of the feeder, which warm up, and without the end of its
/// process after its last CUDA call: waits and gaps there are longer than any other and say
/// nothing about the job. Where there are few steps, they are kept.
///
/// # Errors
/// If the trace cannot be read.
pub fn steady(trace: &Trace, window: Window, feeder: &Feeder) -> Result<Window, AnalysisError> {
    ask(trace, |c| {
        let steps = Functions::of(c, feeder.pid, window.end_ns, |kind| {
            kind == CallKind::Launch || kind.waits()
        })?;
        c.query_row(
            include_str!("steady.sql"),
            named_params! {
                "start_ns": window.start_ns,
                "end_ns": window.end_ns,
                "pid": feeder.pid,
                "tid": feeder.tid,
                "calls": steps.calls(),
                "directions": steps.directions(),
                "launches": steps.flags(|kind| kind == CallKind::Launch),
                "warm_up_steps": WARM_UP_STEPS,
                "least_steps": STEPS_TO_SKIP_WARM_UP,
            },
            |row| {
                let (start_ns, end_ns): (Option<i64>, Option<i64>) = (row.get(0)?, row.get(1)?);
                Ok(Window {
                    start_ns: start_ns.unwrap_or(window.start_ns),
                    end_ns: end_ns.unwrap_or(window.end_ns).min(window.end_ns),
                })
            },
        )
    })
}

/// Whether a call of this kind is one in which a thread waits for the GPU.
fn is_wait(kind: CallKind) -> bool {
    kind.waits() || kind == CallKind::CopyToHostAsync
}

fn nth_wait(
    c: &Connection,
    window: Window,
    feeder: &Feeder,
    nth: u32,
) -> duckdb::Result<(Option<Chosen>, i64)> {
    let waiting = Functions::of(c, feeder.pid, window.end_ns, is_wait)?;
    let mut count = 0;
    let mut waits = c
        .prepare(include_str!("waits.sql"))?
        .query_map(
            named_params! {
                "start_ns": window.start_ns,
                "end_ns": window.end_ns,
                "tid": feeder.tid,
                "calls": waiting.calls(),
                "directions": waiting.directions(),
                "limit": nth,
            },
            |row| {
                count = row.get(3)?;
                Ok(Chosen {
                    window: Window {
                        start_ns: row.get(0)?,
                        end_ns: row.get(1)?,
                    },
                    count,
                    call: row.get(2)?,
                    before_call: None,
                    gpu_idle: false,
                })
            },
        )?
        .collect::<duckdb::Result<Vec<_>>>()?;
    let wait = (waits.len() == nth as usize).then(|| waits.pop()).flatten();
    Ok((wait, count))
}

fn nth_gap(
    c: &Connection,
    window: Window,
    feeder: &Feeder,
    nth: u32,
) -> duckdb::Result<(Option<Chosen>, i64)> {
    let Some(mut gaps) = gaps(c, window, feeder.pid, nth)? else {
        return Ok((None, 0));
    };
    let gap = (gaps.longest.len() == nth as usize).then(|| gaps.longest.pop());
    let chosen = gap.flatten().map(|gap| Chosen {
        window: Window {
            start_ns: gap.start_ns,
            end_ns: gap.start_ns + gap.dur_ns,
        },
        count: gaps.count,
        call: gap.after_call,
        before_call: gap.before_call,
        gpu_idle: gap.gpu_idle,
    });
    Ok((chosen, gaps.count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roles::roles;
    use ingero_testkit::trace::draw;

    const MS: i64 = 1_000_000;

    fn found(what: Worst, nth: u32, window_ms: (i64, i64)) -> Result<Chosen, String> {
        let drawn = draw(
            "process 100 python
             thread 100 100: malloc(100) launch(1) sync(9) S20 launch(1) sync(19) S30 launch(1) d2h(4)
             thread 100 101: sync(170)",
        );
        let trace = drawn.open();
        let roles = roles(&trace).unwrap();
        let window = Window {
            start_ns: window_ms.0 * MS,
            end_ns: window_ms.1 * MS,
        };
        worst(&trace, window, &roles.feeders[0], what, nth).map_err(|error| error.to_string())
    }

    #[test]
    fn waits_are_those_of_the_feeder_by_length() {
        // The allocation is longer and waits for nothing; the other thread does not feed.
        let waits: Vec<(i64, String)> = (1..=3)
            .map(|nth| found(Worst::Wait, nth, (0, 200)).unwrap())
            .map(|wait| (wait.window.dur_ns() / MS, wait.call.unwrap()))
            .collect();
        let sync = "cudaStreamSynchronize".to_owned();
        assert_eq!(
            waits,
            [(19, sync.clone()), (9, sync), (4, "cudaMemcpy".to_owned())]
        );
        assert_eq!(
            found(Worst::Wait, 4, (0, 200)).unwrap_err(),
            "nth=4 is more than there are: in this window there are 3, e.g. nth=1"
        );
        let part = found(Worst::Wait, 1, (135, 200)).unwrap();
        assert_eq!((part.window.dur_ns(), part.count), (15 * MS, 2));
    }

    #[test]
    fn gaps_are_those_of_the_process() {
        let trace = draw(
            "process 100 python
             thread 100 100: launch(1) sync(9) S20 launch(1) sync(19) S30 launch(1) d2h(4)",
        );
        let trace = trace.open();
        let roles = roles(&trace).unwrap();
        let whole = Window::whole(&trace.info().unwrap());
        let gap = worst(&trace, whole, &roles.feeders[0], Worst::Gap, 2).unwrap();
        assert_eq!(
            (gap.window.start_ns, gap.window.dur_ns()),
            (10 * MS, 20 * MS)
        );
        assert_eq!(gap.before_call.as_deref(), Some("cudaLaunchKernel"));
        assert!(gap.gpu_idle);
        let none = Window {
            start_ns: 2 * MS,
            end_ns: 9 * MS,
        };
        let error = worst(&trace, none, &roles.feeders[0], Worst::Gap, 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "worst=gap was not found: thread 100 of process 100, which feeds the GPU, has none in \
             this window, e.g. start_ms=0 end_ms=1000"
        );
    }

    fn steady_part(text: &str) -> Window {
        let drawn = draw(text);
        let trace = drawn.open();
        let roles = roles(&trace).unwrap();
        let whole = Window::whole(&trace.info().unwrap());
        steady(&trace, whole, &roles.feeders[0]).unwrap()
    }

    #[test]
    fn the_first_steps_are_left_out_where_there_are_enough() {
        // The third step ends with the wait after its launches: 5 + 5 + 4 ms.
        for (steps, start_ms) in [(9, 0), (12, 14)] {
            let steady = steady_part(&format!(
                "process 100 python\nthread 100 100: (launch(1) launch(1) sync(2) sync(1))*{steps}"
            ));
            assert_eq!(steady.start_ns, start_ms * MS);
            assert_eq!(steady.end_ns, steps * 5 * MS);
        }
    }

    #[test]
    fn the_end_of_the_process_is_left_out_but_not_a_hang() {
        for (exit, end_ms) in [("exit=0", 10), ("", 510)] {
            let steady = steady_part(&format!(
                "process 100 python {exit}
                 process 200 other
                 thread 100 100: (launch(1) sync(4))*2 R500
                 thread 200 200: R510"
            ));
            assert_eq!(steady.end_ns, end_ms * MS);
        }
    }
}
