//! Renders a run as JUnit XML.
//!
//! Pure. The run is a test suite. Its test cases are the run itself, its acceptance criteria and its denials. At
//! least one case fails if and only if the exit code of the run is not 0. Untrusted text is sanitized, truncated and
//! escaped.

use std::fmt::Write;

use jiff::Timestamp;

use super::format::{denial_reason, outcome_name};
use super::report::{Check, Denial, Report};
use super::sanitize::sanitize;
use crate::kernel::event::{CheckResult, RunOutcome};

/// The longest output, in bytes.
const MAX_CONTENT_BYTES: usize = 64 * 1024;
/// The longest name or message, in bytes.
const MAX_ATTRIBUTE_BYTES: usize = 1024;

/// Returns the report of a run, also of one whose end was not received.
pub(crate) fn write(report: &Report) -> String {
    let cases = cases(report);
    let count = |wanted: fn(&CaseResult) -> bool| cases.iter().filter(|case| wanted(&case.result)).count();
    let (failures, errors, skipped) = (
        count(|verdict| matches!(verdict, CaseResult::Failed { .. })),
        count(|verdict| matches!(verdict, CaseResult::Unknown)),
        count(|verdict| matches!(verdict, CaseResult::Skipped { .. })),
    );
    let totals = format!(
        "tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\" time=\"{}\"",
        cases.len(),
        seconds(duration(report)),
    );
    let name = attribute(report.ids().1);
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(xml, "<testsuites name=\"push\" {totals}>");
    let _ = writeln!(xml, "  <testsuite name=\"{name}\" {totals}{}>", timestamp(report.times().0));
    properties(report, &mut xml);
    cases.iter().for_each(|case| case.write(&mut xml));
    if !report.assistant_text().is_empty() {
        let _ = writeln!(xml, "    <system-out>{}</system-out>", content(report.assistant_text()));
    }
    xml += "  </testsuite>\n</testsuites>\n";
    xml
}

/// One test case.
struct Case {
    class: &'static str,
    name: String,
    millis: Option<u64>,
    result: CaseResult,
}

/// The result of a test case.
enum CaseResult {
    /// It passed.
    Passed,
    /// It failed.
    Failed { failure_type: String, message: String, output: String },
    /// It was not run.
    Skipped { message: String },
    /// Its end was not received.
    Unknown,
}

impl Case {
    fn write(&self, xml: &mut String) {
        let _ = write!(
            xml,
            "    <testcase classname=\"{}\" name=\"{}\" time=\"{}\"",
            self.class,
            attribute(&self.name),
            seconds(self.millis)
        );
        let _ = match &self.result {
            CaseResult::Passed => writeln!(xml, "/>"),
            CaseResult::Failed { failure_type: sort, message, output } => writeln!(
                xml,
                ">\n      <failure type=\"{}\" message=\"{}\">{}</failure>\n    </testcase>",
                attribute(sort),
                attribute(message),
                content(output)
            ),
            CaseResult::Skipped { message } => {
                writeln!(xml, ">\n      <skipped message=\"{}\"/>\n    </testcase>", attribute(message))
            }
            CaseResult::Unknown => writeln!(
                xml,
                ">\n      <error type=\"unknown\" message=\"the outcome of the run is unknown: its end was not received\"/>\n    </testcase>"
            ),
        };
    }
}

fn cases(report: &Report) -> Vec<Case> {
    let mut cases = vec![run_case(report)];
    let results = report.completion().map(|completion| completion.checks.as_slice()).unwrap_or_default();
    let result_of = |check: &Check| results.iter().find(|result| result.id == check.id);
    cases.extend(report.checks().iter().map(|check| check_case(check, result_of(check))));
    cases.extend(report.denials().iter().map(denial_case));
    cases
}

/// The test case of the run itself; it passes if only acceptance criteria failed, because they have their own cases.
fn run_case(report: &Report) -> Case {
    let verdict = match report.completion() {
        None => CaseResult::Unknown,
        Some(end) if end.outcome == RunOutcome::Success => CaseResult::Passed,
        Some(end) if end.reason.as_deref() == Some("acceptance") && !report.checks().is_empty() => CaseResult::Passed,
        Some(end) => {
            let outcome = outcome_name(end.outcome);
            let failure_type = end.reason.as_deref().filter(|reason| !reason.is_empty()).unwrap_or(outcome).to_owned();
            let message = if end.summary.is_empty() { outcome.to_owned() } else { end.summary.clone() };
            let output = format!("exit code {}\n{message}", end.exit_code);
            CaseResult::Failed { failure_type, message, output }
        }
    };
    Case { class: "push.run", name: "run".to_owned(), millis: duration(report), result: verdict }
}

fn check_case(check: &Check, result: Option<&CheckResult>) -> Case {
    let verdict = match result {
        None => CaseResult::Skipped { message: "not checked, because the run ended before".to_owned() },
        Some(result) if result.passed => CaseResult::Passed,
        Some(result) => {
            let message = match result.exit_code {
                Some(code) => format!("exit code {code}"),
                None => "the check was stopped".to_owned(),
            };
            CaseResult::Failed { failure_type: "acceptance".to_owned(), message, output: result.output.clone() }
        }
    };
    let name = format!("{}: {}", check.id, check.command);
    Case { class: "push.acceptance", name, millis: check.millis, result: verdict }
}

fn denial_case(denial: &Denial) -> Case {
    let name = format!("{}: {}", denial.kind, denial.summary);
    let message = format!("{} ({})", denial_reason(&denial.by, &denial.reason), denial.id);
    Case { class: "push.approval", name, millis: None, result: CaseResult::Skipped { message } }
}

fn properties(report: &Report, xml: &mut String) {
    let (session, run) = report.ids();
    let mut pairs = vec![("sessionId", session.to_owned()), ("runId", run.to_owned())];
    if let Some(end) = report.completion() {
        pairs.push(("outcome", outcome_name(end.outcome).to_owned()));
        pairs.push(("exitCode", end.exit_code.to_string()));
    }
    let usage = report.usage().unwrap_or_default();
    for name in ["inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "costUsd"] {
        if let Some(value) = usage.get(name) {
            pairs.push((name, value.to_string()));
        }
    }
    *xml += "    <properties>\n";
    for (name, value) in pairs {
        let _ = writeln!(xml, "      <property name=\"{name}\" value=\"{}\"/>", attribute(&value));
    }
    *xml += "    </properties>\n";
}

fn duration(report: &Report) -> Option<u64> {
    let (began, ended) = report.times();
    Some(ended?.saturating_sub(began?))
}

fn seconds(millis: Option<u64>) -> String {
    let millis = millis.unwrap_or_default();
    format!("{}.{:03}", millis / 1000, millis % 1000)
}

/// Returns the start of the run as JUnit wants it: UTC without a zone.
fn timestamp(started: Option<u64>) -> String {
    let start = started.and_then(|millis| Timestamp::from_millisecond(millis.try_into().ok()?).ok());
    start.map_or_else(String::new, |start| format!(" timestamp=\"{}\"", start.strftime("%Y-%m-%dT%H:%M:%S")))
}

/// Returns untrusted text as the content of an element.
fn content(text: &str) -> String {
    escape(&truncate_middle(&sanitize(text), MAX_CONTENT_BYTES), "\n")
}

/// Returns untrusted text as an attribute value, where XML parsers turn a plain line break into a space.
fn attribute(text: &str) -> String {
    escape(&truncate_middle(&sanitize(text), MAX_ATTRIBUTE_BYTES), "&#10;")
}

fn escape(text: &str, line_break: &str) -> String {
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\n' => safe.push_str(line_break),
            // XML cannot represent these characters.
            '\u{fffe}' | '\u{ffff}' => {}
            _ if c.is_control() && c != '\t' => {}
            _ => safe.push(c),
        }
    }
    safe
}

/// Removes the middle of a text that is too long.
fn truncate_middle(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(longest / 4);
    let tail = text.floor_char_boundary(text.len() - longest / 4 * 3);
    format!("{}\n[{} bytes left out]\n{}", &text[..head], tail - head, &text[tail..])
}

#[cfg(test)]
#[path = "junit_tests.rs"]
mod tests;
