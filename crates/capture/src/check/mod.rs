//! `check`: what this machine can record, what not, and what to do about it.
//!
//! Every item is tried where that is possible: the kernel programs are loaded and attached, and fire on what
//! the recorder itself does. Nothing is left behind.

mod gpu;
mod machine;
mod probes;
mod storage;

use crate::cli::Check;
use crate::launch;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

/// How well something can be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    /// In part, or at a higher cost.
    Limited,
    Missing,
}

/// One thing that a recording needs or holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Item {
    /// Does not change from version to version.
    id: &'static str,
    title: &'static str,
    /// Without it nothing can be recorded.
    required: bool,
    status: Status,
    /// What is there.
    found: String,
    /// What to do about it, or what it means where nothing can be done.
    advice: Option<String>,
}

impl Item {
    fn ok(id: &'static str, title: &'static str, found: impl Into<String>) -> Self {
        Self {
            id,
            title,
            required: false,
            status: Status::Ok,
            found: one_line(&found.into()),
            advice: None,
        }
    }

    fn limited(self, advice: impl Into<String>) -> Self {
        self.lacking(Status::Limited, advice)
    }

    fn missing(self, advice: impl Into<String>) -> Self {
        self.lacking(Status::Missing, advice)
    }

    fn lacking(self, status: Status, advice: impl Into<String>) -> Self {
        Self {
            status,
            advice: Some(one_line(&advice.into())),
            ..self
        }
    }

    fn required(self) -> Self {
        Self {
            required: true,
            ..self
        }
    }

    /// Whether it makes recording impossible.
    fn is_obstacle(&self) -> bool {
        self.required && self.status == Status::Missing
    }
}

/// Names of files are written by anybody: nothing in them moves the cursor or starts a line.
fn one_line(text: &str) -> String {
    text.replace(|character: char| character.is_control(), "?")
}

/// Everything that was found.
#[derive(Debug, Serialize)]
struct Report {
    /// Of the names and meanings of these fields.
    format: u32,
    recorder_version: &'static str,
    can_record: bool,
    summary: String,
    items: Vec<Item>,
}

/// Looks at the machine and tells. The status is 0 if it can record, with limits or without.
pub(crate) fn run(options: &Check) -> ExitCode {
    let report = Report::of(gather());
    let text = if options.json {
        report.json()
    } else {
        report.text()
    };
    // Whoever has stopped reading has read enough.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::from(u8::from(!report.can_record))
}

fn gather() -> Vec<Item> {
    let user = launch::sudo_user();
    let mut items = machine::items();
    items.push(machine::user(&user));
    let obstacle = items
        .iter()
        .find(|item| item.is_obstacle())
        .map(|item| item.title);
    items.extend(probes::items(obstacle));
    let user = user.ok().flatten();
    items.extend(gpu::items(&launch::environment(user.as_ref())));
    items.extend(storage::items());
    items
}

impl Report {
    fn of(items: Vec<Item>) -> Self {
        Self {
            format: 1,
            recorder_version: env!("CARGO_PKG_VERSION"),
            can_record: !items.iter().any(Item::is_obstacle),
            summary: summary(&items),
            items,
        }
    }

    /// One aligned line for each item, and the summary.
    fn text(&self) -> String {
        let width = self.items.iter().map(|item| item.title.len()).max();
        let width = width.unwrap_or(0);
        let mut text = String::new();
        for item in &self.items {
            let status = match item.status {
                Status::Ok => "ok",
                Status::Limited => "limited",
                Status::Missing => "missing",
            };
            // Writing into a string does not fail.
            let _ = write!(
                text,
                "{:width$}  {status:7}  {}",
                item.title,
                item.found,
                width = width
            );
            if let Some(advice) = &item.advice {
                let _ = write!(text, ": {advice}");
            }
            text.push('\n');
        }
        let _ = writeln!(text, "\n{}", self.summary);
        text
    }

    fn json(&self) -> String {
        #[allow(clippy::expect_used)] // texts, numbers and lists of them: nothing that could fail
        let json = serde_json::to_string_pretty(self).expect("a report is plain data");
        json + "\n"
    }
}

/// One sentence.
fn summary(items: &[Item]) -> String {
    if let Some(obstacle) = items.iter().find(|item| item.is_obstacle()) {
        let advice = obstacle.advice.as_deref().unwrap_or_default();
        return format!(
            "Nothing can be recorded here ({}, {}): {advice}.",
            obstacle.title, obstacle.found
        );
    }
    let with = |status| -> Vec<&str> {
        let lacking = items.iter().filter(|item| item.status == status);
        lacking.map(|item| item.title).collect()
    };
    let limits: Vec<String> = [
        ("limited", with(Status::Limited)),
        ("without", with(Status::Missing)),
    ]
    .into_iter()
    .filter(|(_, titles)| !titles.is_empty())
    .map(|(word, titles)| format!("{word}: {}", titles.join(", ")))
    .collect();
    if limits.is_empty() {
        return "Jobs can be recorded here, with everything that the recorder knows.".to_owned();
    }
    format!("Jobs can be recorded here ({}).", limits.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(items: Vec<Item>) -> (String, serde_json::Value) {
        let report = Report::of(items);
        (report.text(), serde_json::from_str(&report.json()).unwrap())
    }

    #[test]
    fn lines_are_aligned_and_the_object_says_the_same() {
        let (text, json) = report(vec![
            Item::ok("a", "short", "here").required(),
            Item::ok("b", "much longer", "half").limited("do this"),
            Item::ok("c", "c", "nothing").missing("do that"),
        ]);
        assert_eq!(
            text,
            "short        ok       here\n\
             much longer  limited  half: do this\n\
             c            missing  nothing: do that\n\
             \n\
             Jobs can be recorded here (limited: much longer; without: c).\n"
        );
        let item = serde_json::json!({
            "id": "b", "title": "much longer", "required": false, "status": "limited",
            "found": "half", "advice": "do this",
        });
        assert_eq!(json["items"][1], item);
        assert_eq!(json["items"][0]["advice"], serde_json::Value::Null);
        assert_eq!(json["can_record"], true);
        assert!(text.contains(json["summary"].as_str().unwrap()));
    }

    #[test]
    fn only_what_is_required_makes_recording_impossible() {
        let limited = Item::ok("a", "a", "half").required().limited("do this");
        let missing = Item::ok("b", "b", "nothing").missing("do that");
        assert!(Report::of(vec![limited.clone(), missing.clone()]).can_record);
        let report = Report::of(vec![limited, missing.required()]);
        assert!(!report.can_record);
        assert_eq!(
            report.summary,
            "Nothing can be recorded here (b, nothing): do that."
        );
        assert!(
            Report::of(vec![Item::ok("a", "a", "x")])
                .summary
                .contains("everything")
        );
    }

    #[test]
    fn a_name_cannot_forge_a_line() {
        let (text, json) = report(vec![
            Item::ok("a", "a", "x\ny  ok\u{1b}[2J").limited("z\r\nw"),
        ]);
        assert!(
            text.starts_with("a  limited  x?y  ok?[2J: z??w\n\n"),
            "{text:?}"
        );
        assert_eq!(json["items"][0]["found"], "x?y  ok?[2J");
    }
}
