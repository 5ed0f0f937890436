//! Arguments that most tools share, read as leniently as assistants write them.

use crate::session::Session;
use crate::tool::ToolError;
use ingero_analysis::{Page, Window, known_pid};
use ingero_trace::TraceInfo;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ops::RangeInclusive;

/// A number as assistants send it: `5`, `5.0` or `"5"`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Lenient(Option<Value>);

impl Lenient {
    /// The number, if one was given.
    pub(crate) fn number(&self, argument: &str) -> Result<Option<f64>, ToolError> {
        let number = match &self.0 {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Number(number)) => number.as_f64(),
            Some(Value::String(text)) => text.trim().parse().ok(),
            Some(_) => None,
        };
        match number {
            Some(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(ToolError::Arguments(format!(
                "{argument}={} is no number",
                self.0.clone().unwrap_or_default()
            ))),
        }
    }

    /// The whole number, if one was given.
    pub(crate) fn whole(
        &self,
        argument: &str,
        range: RangeInclusive<u32>,
    ) -> Result<Option<u32>, ToolError> {
        let Some(number) = self.number(argument)? else {
            return Ok(None);
        };
        if number.fract() != 0.0
            || number < f64::from(*range.start())
            || number > f64::from(*range.end())
        {
            return Err(ToolError::Arguments(format!(
                "{argument}={number} must be a whole number from {} to {}",
                range.start(),
                range.end()
            )));
        }
        Ok(Some(number as u32))
    }
}

/// The part of the recording that an answer is about.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WindowShown {
    /// Its start, in milliseconds since the recording's start.
    pub(crate) start_ms: f64,
    /// Its end, in milliseconds since the recording's start.
    pub(crate) end_ms: f64,
}

impl From<Window> for WindowShown {
    fn from(window: Window) -> Self {
        Self {
            start_ms: ms(window.start_ns),
            end_ms: ms(window.end_ns),
        }
    }
}

/// Milliseconds, to the microsecond.
pub(crate) fn ms(ns: i64) -> f64 {
    (ns as f64 / 1e3).round() / 1e3
}

/// 10^6 bytes, to the thousand bytes.
pub(crate) fn mb(bytes: i64) -> f64 {
    (bytes as f64 / 1e3).round() / 1e3
}

/// A part of a whole, 0 to 1, to the tenth of a percent.
pub(crate) fn share(part_ns: i64, whole_ns: i64) -> f64 {
    if whole_ns == 0 {
        return 0.0;
    }
    (part_ns as f64 / whole_ns as f64 * 1e3).round() / 1e3
}

/// The window of a question, and the recording as it was when it was asked.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) info: TraceInfo,
    pub(crate) window: Window,
    pub(crate) pid: Option<i32>,
}

impl Asked {
    /// Reads the window and the process.
    pub(crate) fn new(
        session: &Session,
        start_ms: &Lenient,
        end_ms: &Lenient,
        pid: &Lenient,
    ) -> Result<Self, ToolError> {
        let info = session.trace.info()?;
        let window = Window::from_ms(
            &info,
            start_ms.number("start_ms")?,
            end_ms.number("end_ms")?,
        )?;
        // Pids are positive i32.
        let pid = pid.whole("pid", 1..=i32::MAX as u32)?.map(|pid| pid as i32);
        if let Some(pid) = pid {
            known_pid(&session.trace, pid)?;
        }
        Ok(Self { info, window, pid })
    }
}

/// Where a page begins, and where the first page ended the window: a recording that grows must
/// not change the list between two pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cursor {
    offset: u32,
    end_ns: i64,
}

impl Cursor {
    fn read(text: &str) -> Option<Self> {
        let (offset, end_ns) = text.split_once('.')?;
        Some(Self {
            offset: offset.parse().ok()?,
            end_ns: end_ns.parse().ok()?,
        })
    }

    fn write(self) -> String {
        format!("{}.{}", self.offset, self.end_ns)
    }
}

/// The page that `limit` and `cursor` ask for. A cursor also sets the end of the window.
pub(crate) fn page(
    asked: &mut Asked,
    limit: &Lenient,
    cursor: Option<&str>,
    default_limit: u32,
) -> Result<Page, ToolError> {
    let limit = limit
        .whole("limit", 1..=LARGEST_LIMIT)?
        .unwrap_or(default_limit);
    let Some(text) = cursor else {
        return Ok(Page::first(limit));
    };
    let recorded = asked.info.duration_ns;
    match Cursor::read(text) {
        Some(cursor) if cursor.end_ns > asked.window.start_ns && cursor.end_ns <= recorded => {
            asked.window.end_ns = cursor.end_ns;
            Ok(Page {
                limit,
                offset: cursor.offset,
            })
        }
        _ => Err(ToolError::Arguments(format!(
            "cursor={text:?} is none that an earlier answer gave as next_cursor for this window"
        ))),
    }
}

/// Most rows of one answer.
pub(crate) const LARGEST_LIMIT: u32 = 200;

/// How much of a list an answer holds.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Paging {
    /// Rows on all pages.
    pub(crate) total_rows: i64,
    /// Whether rows follow on a next page.
    pub(crate) truncated: bool,
    /// Give this as cursor, with the same other arguments, for the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

impl Paging {
    /// After `shown` rows of `page`.
    pub(crate) fn new(
        page: Page,
        shown: usize,
        total_rows: i64,
        window: Window,
    ) -> Result<Self, ToolError> {
        if shown == 0 && page.offset > 0 {
            return Err(ToolError::Arguments(format!(
                "the cursor points to row {}, behind the end of the list",
                page.offset
            )));
        }
        let next = page.offset + shown as u32;
        let truncated = i64::from(next) < total_rows;
        Ok(Self {
            total_rows,
            truncated,
            next_cursor: truncated.then(|| {
                Cursor {
                    offset: next,
                    end_ns: window.end_ns,
                }
                .write()
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lenient(value: Value) -> Lenient {
        Lenient(Some(value))
    }

    #[test]
    fn numbers_are_read_as_assistants_send_them() {
        for five in [json!(5), json!(5.0), json!("5"), json!(" 5.0 ")] {
            assert_eq!(lenient(five).whole("limit", 1..=9).unwrap(), Some(5));
        }
        assert_eq!(Lenient::default().number("start_ms").unwrap(), None);
        assert_eq!(lenient(Value::Null).number("start_ms").unwrap(), None);
        assert_eq!(lenient(json!("1.5")).number("start_ms").unwrap(), Some(1.5));
    }

    #[test]
    fn what_is_no_number_is_named() {
        for (bad, message) in [
            (json!("soon"), "limit=\"soon\" is no number"),
            (json!([5]), "limit=[5] is no number"),
            (json!("NaN"), "limit=\"NaN\" is no number"),
            (json!(2.5), "limit=2.5 must be a whole number from 1 to 9"),
            (json!(10), "limit=10 must be a whole number from 1 to 9"),
        ] {
            let error = lenient(bad).whole("limit", 1..=9).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn cursors_are_read_back() {
        let cursor = Cursor {
            offset: 20,
            end_ns: 5_000_000_000,
        };
        assert_eq!(Cursor::read(&cursor.write()), Some(cursor));
        for bad in ["", "20", "x.5", "20.y", "-1.5"] {
            assert_eq!(Cursor::read(bad), None, "{bad}");
        }
    }
}
