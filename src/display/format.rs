//! Formats the content of events as text.
//!
//! Pure. The results are not sanitized unless a function says so; the view sanitizes them.

use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::sanitize::sanitize_line;
use super::style::{Palette, Style};
use crate::kernel::event::{
    ApprovalScope, CallResult, CheckResult, Decision, GateDecision, GateQuestion, Intention, LossCause,
    ParticipantEvent, RecoveredPhase, RunOutcome, ToolOutcome,
};
use crate::kernel::gate::POLICY;
use crate::kernel::id::{Json, Seq};

/// Parses what a tool or a model wrote, which has no fixed type.
pub(crate) fn parse(json: &Json) -> Value {
    serde_json::from_str(json.as_str()).unwrap_or_default()
}

/// Returns a string field of such an object, or an empty string.
pub(crate) fn field(object: &Value, name: &str) -> String {
    object.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns what an approval asks for: its command if it has one, else its summary.
pub(crate) fn approval_subject(question: &GateQuestion, details: &Value) -> String {
    let command = field(details, "command");
    if command.is_empty() { question.summary.clone() } else { command }
}

/// Returns who denied an approval and why; sanitized.
pub(crate) fn denial_reason(by: &str, comment: &str) -> String {
    let comment = sanitize_line(comment);
    match by {
        "timeout" => "the approval timed out".to_owned(),
        "cancel" => "the run was cancelled".to_owned(),
        POLICY if comment.is_empty() => "approvals are denied in this run".to_owned(),
        POLICY => comment,
        by if comment.is_empty() => format!("denied by {}", sanitize_line(by)),
        by => format!("denied by {}: {comment}", sanitize_line(by)),
    }
}

/// Returns a vote on an approval as text; sanitized.
pub(crate) fn vote_message(decision: Decision, by: &str) -> String {
    let text = match decision {
        Decision::Approve => "one vote to approve",
        Decision::Deny => "one vote to deny",
    };
    format!("{text}{}", decided_by(by))
}

/// Returns an event of a participant as text; sanitized.
pub(crate) fn participant_message(event: &ParticipantEvent) -> String {
    let (who, what) = match event {
        ParticipantEvent::Joined { participant, .. } => (&participant.id, "joined the session"),
        ParticipantEvent::Left { participant, .. } => (participant, "left the session"),
        ParticipantEvent::Posted(message) => return format!("message: {}", sanitize_line(&message.kind)),
        ParticipantEvent::Audited { by } => return format!("everything was read by {}", sanitize_line(by)),
        ParticipantEvent::RolesChanged { participant, .. } => (participant, "has other roles"),
        ParticipantEvent::ApprovalGranted { participant, granted: true, .. } => (participant, "may approve"),
        ParticipantEvent::ApprovalGranted { participant, granted: false, .. } => (participant, "may no longer approve"),
    };
    format!("{} {what}", sanitize_line(who.as_str()))
}

/// Returns the decision of an approval as text, and its style; sanitized.
pub(crate) fn decision_message(decided: &GateDecision) -> (Style, String) {
    let (style, word) = match decided.decision {
        Decision::Approve => (Style::Good, "approved"),
        Decision::Deny => (Style::Bad, "denied"),
    };
    let mut text = word.to_owned();
    let choice = sanitize_line(decided.choice.as_deref().unwrap_or_default());
    if !choice.is_empty() {
        text += &format!(" ({choice})");
    }
    text += match decided.scope {
        ApprovalScope::Once => "",
        ApprovalScope::Run => " for this run",
        ApprovalScope::Session => " for this session",
        ApprovalScope::Always => " always in this repository",
    };
    if let Some(rule) = &decided.rule {
        text += &format!(" as {}", sanitize_line(rule));
    }
    text += &decided_by(&decided.by);
    let comment = sanitize_line(decided.comment.as_deref().unwrap_or_default());
    if !comment.is_empty() {
        text += &format!(": {comment}");
    }
    (style, text)
}

fn decided_by(by: &str) -> String {
    match by {
        "timeout" => " because the approval timed out".to_owned(),
        "cancel" => " because the run was cancelled".to_owned(),
        POLICY => " by the policy of the run".to_owned(),
        by => format!(" by {}", sanitize_line(by)),
    }
}

/// Returns a tool call as text, and the prompt to print before it if it is a shell command.
pub(crate) fn invocation(call: &Intention) -> (&'static str, String) {
    let tool = call.tool.strip_prefix("sandbox_").unwrap_or(&call.tool);
    let tool = tool.strip_suffix("_file").unwrap_or(tool).replace('_', " ");
    let args = parse(&call.args);
    let command = field(&args, "command");
    if !command.is_empty() {
        return ("$ ", command);
    }
    let named = ["pattern", "path", "url", "message"].map(|name| field(&args, name));
    if let Some(name) = named.iter().find_map(|text| text.trim().lines().next()) {
        return ("", format!("{tool} {name}"));
    }
    let bare = args.as_object().is_none_or(serde_json::Map::is_empty);
    ("", if bare { tool } else { format!("{tool} {args}") })
}

/// Returns the result of an acceptance check as a line; sanitized.
pub(crate) fn check_message(check: &CheckResult, palette: Palette) -> String {
    let (style, word) = if check.passed { (Style::Good, "passed") } else { (Style::Bad, "failed") };
    let code = match check.exit_code {
        Some(code) if !check.passed => format!(" (exit {code})"),
        Some(_) | None => String::new(),
    };
    let id = sanitize_line(&check.id);
    format!("check {id}: {}{code}\n", palette.paint(style, word))
}

/// Returns whether a tool call counts as an error.
pub(crate) const fn is_error(result: &CallResult) -> bool {
    match result.outcome {
        ToolOutcome::Succeeded | ToolOutcome::Skipped => false,
        ToolOutcome::Failed | ToolOutcome::Aborted => true,
    }
}

/// Returns the result of a tool call as text, and its style; sanitized.
pub(crate) fn tool_outcome(result: &CallResult) -> (Style, String) {
    let time = duration(result.millis);
    let fault = result.error.as_ref().map(|error| error.message.as_str()).unwrap_or_default();
    let failed = is_error(result);
    let mut text = match (result.outcome, result.exit_code) {
        (ToolOutcome::Skipped, _) => return (Style::Faint, "skipped".to_owned()),
        (ToolOutcome::Aborted, _) if fault.is_empty() => "interrupted".to_owned(),
        (ToolOutcome::Aborted, _) => return (Style::Bad, sanitize_line(fault)),
        (ToolOutcome::Succeeded | ToolOutcome::Failed, Some(code)) => format!("exit {code}, {time}"),
        (ToolOutcome::Failed, None) => format!("failed, {time}"),
        (ToolOutcome::Succeeded, None) => format!("done, {time}"),
    };
    // The exit code is printed already.
    let is_news = !fault.is_empty() && result.exit_code.is_none_or(|code| fault != format!("exit code {code}"));
    if failed && is_news {
        text += &format!(": {}", sanitize_line(fault));
    }
    (if failed { Style::Bad } else { Style::Faint }, text)
}

/// Returns the word for the outcome of a run.
pub(crate) const fn outcome_name(outcome: RunOutcome) -> &'static str {
    match outcome {
        RunOutcome::Success => "success",
        RunOutcome::Failed => "failed",
        RunOutcome::Cancelled => "cancelled",
        RunOutcome::Denied => "denied",
    }
}

/// Returns how many columns of a terminal a sanitized text fills.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Pads a sanitized text with spaces to a number of columns.
pub(crate) fn pad(text: &str, columns: usize) -> String {
    format!("{text}{:1$}", "", columns.saturating_sub(width(text)))
}

/// Truncates a sanitized text to a number of columns, with an ellipsis at the end.
pub(crate) fn truncate(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut left = columns.saturating_sub(1);
    let fits = |letter: &char| {
        let rest = left.checked_sub(letter.width().unwrap_or_default());
        left = rest.unwrap_or_default();
        rest.is_some()
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

/// Formats a duration.
pub(crate) fn duration(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0 => format!("{millis}ms"),
        1..60 => format!("{seconds}.{}s", millis % 1000 / 100),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// Describes the state of a run after a restart of the daemon.
pub(crate) fn recovery_message(phase: RecoveredPhase) -> String {
    let now = match phase {
        RecoveredPhase::Waiting => "the run still waits for an approval",
        RecoveredPhase::Unknown => "the result of the interrupted step is unknown",
        RecoveredPhase::Stopping => "the run is being stopped",
        RecoveredPhase::Working => "the run continues",
    };
    format!("the daemon was restarted: {now}")
}

/// Describes which events are lost and why.
pub(crate) fn loss_message(after: Seq, last: u64, cause: LossCause) -> String {
    let first = after.next();
    let why = match cause {
        LossCause::PowerLoss => "they were not on disk when the machine stopped",
        LossCause::Retention => "they were removed by the configured retention",
        LossCause::Damage => "the journal was damaged",
    };
    format!("events {first} to {last} are lost: {why}")
}

/// Formats a count with its noun.
pub(crate) fn count(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

/// Formats the statistics of a commit.
pub(crate) fn commit_stats(object: &Value) -> String {
    let number = |name: &str| object.get(name).and_then(Value::as_u64).unwrap_or_default();
    let files = count(number("filesChanged"), "file");
    let (more, less) = (count(number("insertions"), "insertion"), count(number("deletions"), "deletion"));
    format!("{files} changed, {more}, {less}")
}

/// Formats a number of bytes.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut tenths = u128::from(bytes) * 10;
    while tenths >= 10_240 && unit + 1 < units.len() {
        tenths /= 1024;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{}.{} {}", tenths / 10, tenths % 10, units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_truncated_and_padded_by_columns() {
        for (text, columns, truncated) in [
            ("abcdef", 4, "abc…"),
            ("äöü", 3, "äöü"),
            ("漢字漢字", 8, "漢字漢字"),
            ("漢字漢字", 7, "漢字漢…"),
            ("漢字漢字", 6, "漢字…"),
            ("e\u{301}e\u{301}e\u{301}", 3, "e\u{301}e\u{301}e\u{301}"),
            ("e\u{301}e\u{301}e\u{301}", 2, "e\u{301}…"),
            ("🙂🙂", 3, "🙂…"),
            ("ab", 0, "…"),
        ] {
            assert_eq!(truncate(text, columns), truncated, "{text} {columns}");
        }
        assert_eq!(
            ["ab", "漢字", "e\u{301}", "longer"].map(|text| pad(text, 5)),
            ["ab   ", "漢字 ", "e\u{301}    ", "longer"]
        );
    }

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!([0, 1023, 1024, 1536, 5 << 20].map(size), ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 MiB"]);
    }

    #[test]
    fn counts_have_singular_and_plural() {
        let extent = commit_stats(&serde_json::json!({"filesChanged": 1, "insertions": 2, "deletions": 0}));
        assert_eq!(extent, "1 file changed, 2 insertions, 0 deletions");
    }

    #[test]
    fn durations_are_formatted_by_magnitude() {
        for (millis, text) in
            [(0, "0ms"), (950, "950ms"), (1000, "1.0s"), (59_999, "59.9s"), (60_000, "1m00s"), (3_723_000, "1h02m")]
        {
            assert_eq!(duration(millis), text);
        }
    }
}
