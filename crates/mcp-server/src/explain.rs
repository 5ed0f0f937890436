//! The diagnosis for a person: the verdict first, then what it rests on.

use crate::session::Session;
use crate::text;
use crate::tool::ToolError;
use crate::tools::diagnose;
use ingero_analysis::Window;
use ingero_diagnosis::{Advice, Diagnosis, Finding};
use std::fmt::Write;

/// Width of the lines.
const WIDTH: usize = 96;

/// Diagnoses the whole recording.
pub(crate) fn explain(session: &Session) -> Result<String, ToolError> {
    let info = session.trace.info()?;
    let diagnosis = diagnose(session, Window::whole(&info), None)?;
    Ok(render(&diagnosis))
}

fn render(diagnosis: &Diagnosis) -> String {
    let mut page = Page::default();
    let verdict = &diagnosis.verdict;
    page.line(&format!(
        "{} ({} confidence): {}",
        verdict.code.name(),
        verdict.confidence.name(),
        verdict.code.meaning()
    ));
    page.line("");
    page.paragraph("", &diagnosis.summary);
    budget(&mut page, diagnosis);
    for finding in &diagnosis.findings {
        show_finding(&mut page, finding);
    }
    page.list("What limits this answer", &diagnosis.caveats);
    page.list("What to ask or do next", &diagnosis.next);
    page.0
}

fn budget(page: &mut Page, diagnosis: &Diagnosis) {
    if diagnosis.budget.is_empty() {
        return;
    }
    page.line("");
    match &diagnosis.feeder {
        Some(feeder) => page.line(&format!(
            "Where the time of the feeder went (thread {} of process {}, {}, {} steps from {:.1} to {:.1} s, without start-up)",
            feeder.tid,
            feeder.pid,
            text::name(&feeder.name),
            feeder.steps,
            feeder.from_ms / 1e3,
            feeder.to_ms / 1e3
        )),
        None => page.line("Where the time of the feeder went"),
    }
    let mut parts: Vec<_> = diagnosis.budget.iter().collect();
    parts.sort_by(|a, b| b.share.total_cmp(&a.share));
    for part in parts {
        page.line(&format!(
            "  {:>5.1}%  {:>8.2} s  {:<16} {}",
            part.share * 100.0,
            part.seconds,
            part.part,
            part.meaning
        ));
    }
}

fn show_finding(page: &mut Page, finding: &Finding) {
    page.line("");
    page.paragraph(
        "",
        &format!(
            "{} costs {:.0}% of the time ({:.2} s), {} confidence: {}",
            finding.code.name(),
            finding.share * 100.0,
            finding.seconds,
            finding.confidence.name(),
            finding.title
        ),
    );
    let evidence = finding.evidence.iter();
    let evidence: Vec<String> = evidence
        .map(|e| format!("{} [{}]", e.fact, e.tool))
        .collect();
    page.list("  What shows it", &evidence);
    let ruled_out = finding.ruled_out.iter();
    let ruled_out: Vec<String> = ruled_out
        .map(|r| format!("{}: {}", r.what, r.why))
        .collect();
    page.list("  What it is not", &ruled_out);
    for advice in &finding.advice {
        show_advice(page, advice);
    }
    page.list("  What would not help", &finding.would_not_help);
}

fn show_advice(page: &mut Page, advice: &Advice) {
    page.line("");
    page.paragraph("  Do: ", &advice.change);
    if let Some(snippet) = &advice.snippet {
        for line in snippet.lines() {
            page.line(&format!("        {line}"));
        }
    }
    page.paragraph("      because ", &advice.why);
    if let Some(gain) = advice.expected_speedup {
        page.paragraph("      expected: ", &gain.in_words());
    }
    page.paragraph("      check: ", &advice.check);
}

/// Text in lines. What comes from the trace is cleaned line by line.
#[derive(Debug, Default)]
struct Page(String);

impl Page {
    fn line(&mut self, line: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{}", text::clean(line).trim_end());
    }

    /// A paragraph that begins with `lead` and is indented as far.
    fn paragraph(&mut self, lead: &str, words: &str) {
        let indent = " ".repeat(lead.chars().count());
        let mut line = lead.to_owned();
        let mut used = line.chars().count();
        for word in words.split_whitespace() {
            let length = word.chars().count();
            if used > indent.len() && used + 1 + length > WIDTH {
                self.line(&line);
                line = indent.clone();
                used = indent.len();
            }
            if used > indent.len() {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
            used += length;
        }
        self.line(&line);
    }

    fn list(&mut self, title: &str, items: &[String]) {
        if items.is_empty() {
            return;
        }
        let indent = title.len() - title.trim_start().len();
        self.line("");
        self.line(title);
        for item in items {
            self.paragraph(&format!("{}  - ", " ".repeat(indent)), item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_wrap_and_stay_indented() {
        let mut page = Page::default();
        page.paragraph("  - ", &"word ".repeat(30));
        let lines: Vec<&str> = page.0.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("  - word word"));
        assert!(lines[1].starts_with("    word"));
        assert!(lines.iter().all(|line| line.len() <= WIDTH));
    }

    #[test]
    fn names_from_the_trace_cannot_break_the_page() {
        let mut page = Page::default();
        page.line("name \u{1b}[2Jwith\u{202e} tricks");
        assert_eq!(page.0, "name [2Jwith tricks\n");
    }
}
