//! Renders an approval for the person who decides it.
//!
//! Pure. Control characters and invisible characters are escaped, and every part has a length limit.

use serde_json::Value;

use super::form::Form;
use super::format::{approval_subject, commit_stats, field, parse};
use super::sanitize::{escape, escape_line, sanitize_line};
use super::style::{Palette, Style};
use super::tool_results::format_file;
use crate::kernel::event::{Diff, GateQuestion};

/// How much of an approval is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DisplayLimits {
    /// Lines of a diff.
    diff: usize,
    /// Lines of a commit message.
    message: usize,
    /// Files of a commit.
    files: usize,
}

impl DisplayLimits {
    /// As much as fits on a screen.
    pub(crate) const DEFAULT: Self = Self { diff: 60, message: 20, files: 12 };
    /// As much as fits on a screen, without the diff.
    pub(crate) const WITHOUT_DIFF: Self = Self { diff: 0, ..Self::DEFAULT };
    /// Everything but the diff.
    pub(crate) const UNLIMITED_WITHOUT_DIFF: Self = Self { diff: 0, ..Self::UNLIMITED };
    /// Everything.
    pub(crate) const UNLIMITED: Self = Self { diff: usize::MAX, message: usize::MAX, files: usize::MAX };
}

/// Renders an approval. `called` is the tool invocation that was printed just before and is not repeated.
pub(crate) fn render(question: &GateQuestion, invocation: &str, palette: Palette, extent: DisplayLimits) -> String {
    let details = &parse(&question.details);
    let mut text = match question.kind.as_str() {
        "write" if extent.diff == 0 => line(&question.summary),
        "write" => line(&question.summary) + &render_diff(details, palette, extent.diff),
        "commit" => render_commit(question, details, palette, extent),
        "budget" => line(&question.summary),
        _ => {
            let subject = approval_subject(question, details);
            // The invocation above was sanitized and is not quoted. If escaping changes it, it is shown again here.
            let escaped = escape(&subject);
            if subject == invocation && escape_line(&subject) == subject {
                String::new()
            } else {
                quote(&escaped, usize::MAX)
            }
        }
    };
    for shown in Form::of(question).map(|form| form.lines()).unwrap_or_default() {
        text += &quote(&escape(&shown), extent.message);
    }
    let cwd = field(details, "cwd");
    if !matches!(cwd.as_str(), "" | ".") {
        text += &line(&format!("in {cwd}"));
    }
    for (name, said) in EXTRA_ACCESS {
        if details.get(name).and_then(Value::as_bool).unwrap_or_default() {
            text += &line(said);
        }
    }
    let addresses: Vec<&str> =
        details.get("addresses").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    if !addresses.is_empty() {
        text += &line(&format!("at {}", addresses.join(", ")));
    }
    if let Some(masked) = details.get("maskedValues").and_then(Value::as_u64).filter(|masked| *masked > 0) {
        let plural = if masked == 1 { "value is" } else { "values are" };
        text += &line(&format!("{masked} secret {plural} masked, each shown as [redacted]"));
    }
    let reason = escape_line(&field(details, "reason"));
    if !reason.is_empty() {
        text += &format!("  {}\n", palette.paint(Style::Faint, &reason));
    }
    for rule in question.grant_rule.as_deref().unwrap_or_default().lines() {
        let rule = format!("can be remembered as {}", escape_line(rule));
        text += &format!("  {}\n", palette.paint(Style::Faint, &rule));
    }
    let risk = sanitize_line(&field(details, "risk"));
    if matches!(risk.as_str(), "high" | "critical") {
        text += &format!("  {}\n", palette.paint(Style::Bad, &format!("risk: {risk}")));
    }
    text
}

/// Returns what an approval leaves to its session: the directory of a change or a command, and a risk that is not high.
pub(crate) fn context_lines(question: &GateQuestion, directory: &str) -> Vec<String> {
    let details = &parse(&question.details);
    let mut lines = Vec::new();
    if matches!(question.kind.as_str(), "exec" | "command" | "write" | "commit" | "git") && !directory.is_empty() {
        let is_above = !matches!(field(details, "cwd").as_str(), "" | ".");
        lines.push(format!("{} {}", if is_above { "below" } else { "in" }, escape_line(directory)));
    }
    let risk = sanitize_line(&field(details, "risk"));
    if matches!(risk.as_str(), "low" | "medium") {
        lines.push(format!("risk: {risk}"));
    }
    lines
}

/// Access beyond the sandbox policy, by the name of its field in the details.
const EXTRA_ACCESS: [(&str, &str); 3] = [
    ("outside", "outside the sandbox"),
    ("network", "with network access"),
    ("gitDirectory", "with write access to the git directory"),
];

/// Indents every line.
pub(crate) fn indent(text: &str) -> String {
    text.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("  {line}\n") }).collect()
}

/// Returns the first lines of untrusted text, each with a mark before it, so that it cannot pass for output of push.
fn quote(text: &str, longest: usize) -> String {
    truncate_lines(&text.lines().map(|line| format!("│ {line}\n")).collect::<String>(), longest)
}

/// Returns the first lines of a text, indented, with the number of lines that are left out.
pub(crate) fn truncate_lines(text: &str, longest: usize) -> String {
    let count = text.lines().count();
    let mut shown: String = text.lines().take(longest).map(|line| format!("  {line}\n")).collect();
    if count > longest {
        shown += &format!("  … {} more lines\n", count - longest);
    }
    shown
}

/// Returns a diff with coloured lines.
pub(crate) fn color_diff(difference: &str, longest: usize, palette: Palette) -> String {
    let lines = truncate_lines(&escape(difference), longest);
    let paint = |line: &str| {
        let style = match line.get(2..3) {
            Some("+") => Style::Good,
            Some("-") => Style::Bad,
            Some("@") => Style::Faint,
            Some(_) | None => return format!("{line}\n"),
        };
        format!("  {}\n", palette.paint(style, line.get(2..).unwrap_or_default()))
    };
    lines.lines().map(paint).collect()
}

/// Returns the diff of a completed call, with coloured lines.
pub(crate) fn render_result_diff(diff: &Diff, longest: usize, palette: Palette) -> String {
    let mut text = color_diff(&diff.text, longest, palette);
    if diff.truncated {
        text += "  … the diff is truncated\n";
    }
    text
}

/// Returns the diff in the details of an approval; empty if there is none.
pub(crate) fn question_diff(question: &GateQuestion) -> String {
    serde_json::from_str(question.details.as_str()).map_or_else(|_| String::new(), |details| field(&details, "diff"))
}

/// Returns the diff in the details of an approval, and whether it is truncated.
pub(crate) fn bounded_question_diff(question: &GateQuestion) -> Option<Diff> {
    let diff = diff_in(&parse(&question.details));
    (!diff.text.is_empty()).then_some(diff)
}

fn diff_in(details: &Value) -> Diff {
    let truncated = details.get("diffTruncated").and_then(Value::as_bool).unwrap_or_default();
    Diff { text: field(details, "diff"), truncated }
}

fn render_diff(details: &Value, palette: Palette, longest: usize) -> String {
    render_result_diff(&diff_in(details), longest, palette)
}

fn render_commit(question: &GateQuestion, details: &Value, palette: Palette, shown: DisplayLimits) -> String {
    let mut text = line(&commit_stats(details));
    let files = details.get("files").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for file in files.iter().take(shown.files) {
        text += &format!("  {}\n", palette.paint(Style::Faint, &escape_line(&format_file(file))));
    }
    if files.len() > shown.files {
        text += &format!("  … {} more files\n", files.len() - shown.files);
    }
    let message = field(details, "message");
    let message = if message.is_empty() { question.summary.clone() } else { message };
    text + &quote(&escape(message.trim()), shown.message)
}

fn line(text: &str) -> String {
    format!("  {}\n", escape_line(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::test_events::question;

    #[test]
    fn a_write_shows_a_truncated_and_sanitized_diff() {
        let diff = format!(
            "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n+new\u{1b}[2J\n{}",
            "+x\n".repeat(DisplayLimits::DEFAULT.diff)
        );
        let payload = question(json!({"kind": "write", "summary": "change f: 61 insertions, 1 deletions",
            "details": {"diff": diff, "diffTruncated": true, "risk": "medium"}}));
        let shown = render(&payload, "", Palette::Plain, DisplayLimits::DEFAULT);
        assert!(shown.starts_with("  change f: 61 insertions, 1 deletions\n  --- a/f\n"), "{shown}");
        assert!(shown.contains("  -old\n  +new<U+001B>[2J\n  +x\n"), "{shown}");
        assert!(shown.contains("  … 5 more lines\n  … the diff is truncated"), "{shown}");
        assert!(!shown.contains('\u{1b}') && !shown.contains("risk"), "{shown}");
        assert!(render(&payload, "", Palette::Plain, DisplayLimits::UNLIMITED).lines().count() > shown.lines().count());
        let painted = render(&payload, "", Palette::Colored, DisplayLimits::DEFAULT);
        assert!(painted.contains("  \u{1b}[31m-old\u{1b}[0m\n  \u{1b}[32m+new<U+001B>[2J\u{1b}[0m\n"), "{painted}");
    }

    #[test]
    fn a_form_shows_its_options() {
        let form = json!({"method": "select", "title": "Which?", "options": ["red", "blue\u{1b}[2J"]});
        let payload =
            question(json!({"kind": "question", "summary": "Which?\nof the doors", "details": {}, "form": form}));
        assert_eq!(
            render(&payload, "", Palette::Plain, DisplayLimits::DEFAULT),
            "  │ Which?\n  │ of the doors\n  │ 1. red\n  │ 2. blue<U+001B>[2J\n"
        );
    }

    #[test]
    fn a_commit_shows_its_counts_files_and_message() {
        let payload = question(
            json!({"kind": "commit", "summary": "Add", "details": {"filesChanged": 2, "insertions": 3,
            "deletions": 1, "files": ["a\u{1b}[2J", {"path": "b", "insertions": 3, "deletions": 1}], "message": "Add\n\nBecause.\n"}}),
        );
        assert_eq!(
            render(&payload, "Add", Palette::Plain, DisplayLimits::DEFAULT),
            "  2 files changed, 3 insertions, 1 deletion\n  a<U+001B>[2J\n  b (+3 -1)\n  │ Add\n  │ \n  │ Because.\n"
        );
    }

    #[test]
    fn a_command_is_not_repeated_but_its_directory_and_risk_are_shown() {
        let payload =
            question(json!({"kind": "exec", "summary": "sudo rm", "details": {"command": "sudo rm", "cwd": "sub",
            "risk": "critical"}}));
        assert_eq!(render(&payload, "sudo rm", Palette::Plain, DisplayLimits::DEFAULT), "  in sub\n  risk: critical\n");
        assert!(render(&payload, "", Palette::Plain, DisplayLimits::DEFAULT).starts_with("  │ sudo rm\n"));
        let why = question(
            json!({"kind": "exec", "summary": "s", "remember": "allow: exec(make)", "details": {"command": "make",
            "outside": true, "reason": "the preset asks"}}),
        );
        let shown = "  │ make\n  outside the sandbox\n  the preset asks\n  can be remembered as allow: exec(make)\n";
        assert_eq!(render(&why, "", Palette::Plain, DisplayLimits::DEFAULT), shown);
        let hiding = question(json!({"kind": "exec", "summary": "s", "details": {"command": "ls\u{1b}[8m; rm x"}}));
        assert_eq!(
            render(&hiding, "ls\u{1b}[8m; rm x", Palette::Plain, DisplayLimits::DEFAULT),
            "  │ ls<U+001B>[8m; rm x\n"
        );
    }
}
