//! Renders tool calls, their diffs and their approvals.

use super::escape::{command, text};
use super::time;
use crate::export::{Approval, ToolCall};
use crate::kernel::event::{Decision, ToolOutcome};

/// Output of more lines than this is folded.
const LINES_UNFOLDED: usize = 12;

/// Renders a call with its approvals, its diff and its output.
pub(super) fn render_call(call: &ToolCall, out: &mut String) {
    let class = match call.outcome {
        Some(ToolOutcome::Failed | ToolOutcome::Aborted) => "call failed",
        Some(ToolOutcome::Succeeded | ToolOutcome::Skipped) => "call",
        None => "call open",
    };
    *out += &format!("<section class=\"{class}\">\n<p class=\"title\">");
    if call.is_command {
        *out += &format!("<span class=\"prompt\">$ </span><code>{}</code>", command(&call.title));
    } else {
        *out += &format!("<code>{}</code>", command(&call.title));
    }
    if !call.result.is_empty() {
        *out += &format!(" <span class=\"result\">{}</span>", text(&call.result));
    }
    *out += "</p>\n";
    call.approvals.iter().for_each(|approval| render_approval(approval, out));
    if let Some(diff) = &call.diff {
        let lines = diff.text.lines().count();
        fold("Diff", lines, lines <= LINES_UNFOLDED * 4, out, |out| render_diff(&diff.text, out));
        if diff.truncated {
            *out += "<p class=\"note\">the diff is cut off here</p>\n";
        }
    }
    let output = call.output.trim_end();
    if !output.is_empty() {
        let lines = output.lines().count();
        fold("Output", lines, lines <= LINES_UNFOLDED, out, |out| *out += &format!("<pre>{}</pre>\n", text(output)));
    }
    if !call.is_command && call.args.as_str() != "{}" {
        let args = pretty(call.args.as_str());
        *out += &format!("<details><summary>Arguments</summary><pre>{}</pre></details>\n", text(&args));
    }
    *out += "</section>\n";
}

fn fold(name: &str, lines: usize, is_open: bool, out: &mut String, content: impl FnOnce(&mut String)) {
    let open = if is_open { " open" } else { "" };
    let lines = crate::display::format::count(u64::try_from(lines).unwrap_or(u64::MAX), "line");
    *out += &format!("<details{open}><summary>{name} <span class=\"by\">{lines}</span></summary>");
    content(out);
    *out += "</details>\n";
}

/// Renders an approval: what was asked, who decided it and when.
pub(super) fn render_approval(approval: &Approval, out: &mut String) {
    let (class, decided) = match &approval.decision {
        Some(vote) => match vote.decision {
            Decision::Approve => ("approved", Some(vote)),
            Decision::Deny => ("denied", Some(vote)),
        },
        None => ("pending", None),
    };
    *out += &format!("<div class=\"approval {class}\"><p class=\"question\">{}</p>", command(&approval.question));
    for vote in &approval.votes {
        let word = match vote.decision {
            Decision::Approve => "vote to approve",
            Decision::Deny => "vote to deny",
        };
        *out += &format!("<p>{word} by {} {}</p>", text(&vote.by), time(vote.at));
    }
    match decided {
        Some(vote) => *out += &format!("<p class=\"decision\">{} {}</p>", text(&approval.result), time(vote.at)),
        None => *out += &format!("<p class=\"decision\">not decided, asked {}</p>", time(approval.asked_at)),
    }
    *out += "</div>\n";
}

/// Renders a unified diff, line by line.
pub(super) fn render_diff(diff: &str, out: &mut String) {
    *out += "<pre class=\"diff\">";
    // A line break belongs to the block of its line, where it adds no empty line.
    for line in diff.lines() {
        let shown = text(line);
        let is_header = ["diff ", "index ", "--- ", "+++ "].iter().any(|start| line.starts_with(start));
        *out += &match line.as_bytes().first() {
            _ if is_header => format!("<span class=\"file\">{shown}\n</span>"),
            Some(b'@') => format!("<span class=\"hunk\">{shown}\n</span>"),
            Some(b'+') => format!("<ins>{shown}\n</ins>"),
            Some(b'-') => format!("<del>{shown}\n</del>"),
            _ => format!("{shown}\n"),
        };
    }
    *out += "</pre>\n";
}

/// Returns JSON with indentation; anything else unchanged.
fn pretty(json: &str) -> String {
    let value: Result<serde_json::Value, _> = serde_json::from_str(json);
    value.ok().and_then(|value| serde_json::to_string_pretty(&value).ok()).unwrap_or_else(|| json.to_owned())
}
