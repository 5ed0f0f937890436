//! The part of the recording that a question is about.

use crate::{AnalysisError, ask};
use ingero_trace::{Trace, TraceInfo, duckdb};

const NS_PER_MS: f64 = 1e6;

/// A part of the recording, from `start_ns` up to but not including `end_ns`.
///
/// A row belongs to a window if it overlaps it, and its times are cut to the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Its start.
    pub start_ns: i64,
    /// Its end.
    pub end_ns: i64,
}

impl Window {
    /// The whole recording, as far as it has come.
    pub fn whole(info: &TraceInfo) -> Self {
        Self {
            start_ns: 0,
            end_ns: info.duration_ns,
        }
    }

    /// The window between two times in milliseconds; without them from the start and to the end.
    /// An end behind the recording's end is taken as its end.
    ///
    /// # Errors
    /// If the window is empty, turned around or lies outside the recording.
    pub fn from_ms(
        info: &TraceInfo,
        start_ms: Option<f64>,
        end_ms: Option<f64>,
    ) -> Result<Self, AnalysisError> {
        let last_ms = info.duration_ns as f64 / NS_PER_MS;
        let refuse = |argument, value: f64, problem, allowed| {
            Err(AnalysisError::Argument {
                argument,
                value: value.to_string(),
                problem,
                allowed,
                example: format!("start_ms=0 end_ms={:.0}", last_ms.ceil()),
            })
        };
        let inside = format!("the recording lasts from 0 to {last_ms:.3} ms");
        for (argument, value) in [("start_ms", start_ms), ("end_ms", end_ms)] {
            match value {
                Some(ms) if !ms.is_finite() || ms < 0.0 => {
                    return refuse(argument, ms, "is no time in the recording", inside);
                }
                _ => {}
            }
        }
        let start = start_ms.unwrap_or(0.0);
        if start > 0.0 && start >= last_ms {
            return refuse(
                "start_ms",
                start,
                "is after the end of the recording",
                inside,
            );
        }
        let end = end_ms.unwrap_or(last_ms).min(last_ms);
        let to_ns = |ms: f64| (ms * NS_PER_MS).round() as i64;
        let window = Self {
            start_ns: to_ns(start),
            end_ns: to_ns(end).min(info.duration_ns),
        };
        // Only a recording without length has an empty window, if none was asked for.
        if window.end_ns < window.start_ns || (window.dur_ns() == 0 && end_ms.is_some()) {
            let allowed = format!("end_ms must be greater, and {inside}");
            return refuse("start_ms", start, "is not before end_ms", allowed);
        }
        Ok(window)
    }

    /// Its length.
    pub fn dur_ns(self) -> i64 {
        self.end_ns - self.start_ns
    }
}

/// Refuses a pid that is not a process of the recorded job.
///
/// # Errors
/// If the job had no such process; the message names some that it had.
pub fn known_pid(trace: &Trace, pid: i32) -> Result<(), AnalysisError> {
    let known: Vec<i32> = ask(trace, |c| {
        c.prepare(include_str!("known_pids.sql"))?
            .query_map([], |row| row.get(0))?
            .collect::<duckdb::Result<_>>()
    })?;
    if known.contains(&pid) {
        return Ok(());
    }
    let some: Vec<String> = known.iter().take(20).map(i32::to_string).collect();
    let more = if known.len() > some.len() {
        ", ..."
    } else {
        ""
    };
    Err(AnalysisError::Argument {
        argument: "pid",
        value: pid.to_string(),
        problem: "is no process of the recorded job",
        allowed: format!("its processes are {}{more}", some.join(", ")),
        example: format!("pid={}", some.first().map_or("1", String::as_str)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingero_testkit::trace::info;

    fn window(start_ms: Option<f64>, end_ms: Option<f64>) -> Result<Window, String> {
        Window::from_ms(&info(8_000_000_000), start_ms, end_ms).map_err(|error| error.to_string())
    }

    #[test]
    fn a_window_is_cut_to_the_recording() {
        let whole = Window {
            start_ns: 0,
            end_ns: 8_000_000_000,
        };
        assert_eq!(window(None, None), Ok(whole));
        assert_eq!(window(Some(0.0), Some(9_000.0)), Ok(whole));
        assert_eq!(
            window(Some(1.5), Some(2.25)),
            Ok(Window {
                start_ns: 1_500_000,
                end_ns: 2_250_000
            })
        );
    }

    #[test]
    fn a_wrong_window_names_the_value_the_range_and_an_example() {
        assert_eq!(
            window(Some(9_000.0), None).unwrap_err(),
            "start_ms=9000 is after the end of the recording: the recording lasts from 0 to \
             8000.000 ms, e.g. start_ms=0 end_ms=8000"
        );
        assert!(
            window(Some(-1.0), None)
                .unwrap_err()
                .starts_with("start_ms=-1 ")
        );
        assert!(
            window(None, Some(f64::NAN))
                .unwrap_err()
                .starts_with("end_ms=NaN ")
        );
        for (start, end) in [(500.0, 400.0), (500.0, 500.0), (500.0, 500.000_000_1)] {
            assert!(
                window(Some(start), Some(end))
                    .unwrap_err()
                    .starts_with("start_ms=500 is not before end_ms: ")
            );
        }
    }

    #[test]
    fn a_recording_without_length_has_an_empty_window() {
        let empty = Window::from_ms(&info(0), None, None).unwrap();
        assert_eq!(empty.dur_ns(), 0);
    }
}
