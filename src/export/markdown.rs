//! Markdown for people. Output is fenced, so that it stays what it is.

use super::entry::{run_outcome_name, timestamp};
use super::{Approval, Block, Content, Entry, NoticeLevel, Renderer, RunSummary, Survey, ToolCall, dollars, grouped};
use crate::display::format::duration;
use crate::display::sanitize::{escape, sanitize, sanitize_line};

/// Writes Markdown.
#[derive(Debug, Default)]
pub struct MarkdownRenderer;

impl Renderer for MarkdownRenderer {
    fn begin(&mut self, survey: &Survey, out: &mut String) {
        let info = &survey.session;
        *out += &format!("# {}\n\n", escape_line(survey.title()));
        let mut row = |name: &str, value: String| {
            if !value.is_empty() {
                *out += &format!("- {name}: {value}\n");
            }
        };
        row("Session", code(&info.session_id));
        row("Forked from", info.parent_session_id.as_deref().map(code).unwrap_or_default());
        row("Directory", code(&info.cwd));
        row("Model", escape_line(&format!("{} {}", info.provider, info.model)));
        row("Started", info.started_at.map(timestamp).unwrap_or_default());
        row("Last event", info.updated_at.map(timestamp).unwrap_or_default());
        row("Runs", info.runs.total().to_string());
        let usage = &info.usage;
        let tokens = (usage.input_tokens, usage.output_tokens);
        row("Tokens", format!("{} in, {} out", grouped(tokens.0), grouped(tokens.1)));
        row("Cost", usage.cost_micro_usd.map(dollars).unwrap_or_default());
        if info.discarded_events > 0 {
            row("Not shown", format!("{} events of abandoned branches", grouped(info.discarded_events)));
        }
    }

    fn entry(&mut self, entry: &Entry, out: &mut String) {
        let at = timestamp(entry.at);
        match &entry.content {
            Content::UserMessage { text, by, delivery: _, images } => {
                let by = if by.is_empty() { String::new() } else { format!(" ({})", escape_line(by)) };
                *out += &format!("\n## User{by}, {at}\n\n{}\n", sanitize(text).trim_end());
                for image in images {
                    *out += &format!("\n*[image: {}]*\n", escape_line(&image.mime_type));
                }
            }
            Content::AssistantMessage { model, blocks, usage, interrupted } => {
                let model = if model.is_empty() { String::new() } else { format!(" ({})", escape_line(model)) };
                *out += &format!("\n## Assistant{model}, {at}\n");
                blocks.iter().for_each(|block| render_block(block, out));
                if *interrupted {
                    *out += "\n*interrupted*\n";
                }
                if let Some(usage) = usage.and_then(|usage| usage.text()) {
                    *out += &format!("\n*{usage}*\n");
                }
            }
            Content::UserCommand { call } => {
                *out += &format!("\n## User command, {at}\n");
                render_call(call, out);
            }
            Content::Approval { approval } => render_approval(approval, out),
            Content::RunEnded(run) => render_run(run, &at, out),
            Content::Summary { text, tokens_before } => {
                let tokens = grouped(*tokens_before);
                *out += &format!("\n## Summary of about {tokens} tokens, {at}\n\n{}\n", sanitize(text).trim_end());
            }
            Content::Notice { level, code: _, text } => {
                let level = match level {
                    NoticeLevel::Info => "",
                    NoticeLevel::Warning => "Warning: ",
                    NoticeLevel::Error => "Error: ",
                };
                *out += &format!("\n*{level}{}*\n", escape_line(text));
            }
        }
    }

    fn end(&mut self, _: &Survey, _: &mut String) {}
}

fn render_block(block: &Block, out: &mut String) {
    match block {
        Block::Thinking { text } => {
            out.push('\n');
            for line in sanitize(text).trim_end().lines() {
                *out += format!("> {line}").trim_end();
                out.push('\n');
            }
        }
        Block::Text { text } => *out += &format!("\n{}\n", sanitize(text).trim_end()),
        Block::ToolCall(call) => render_call(call, out),
    }
}

fn render_call(call: &ToolCall, out: &mut String) {
    if call.is_command {
        out.push('\n');
        fence("sh", &escape(&call.title), out);
    } else {
        *out += &format!("\n{}\n", code(&escape(&call.title)));
    }
    call.approvals.iter().for_each(|approval| render_approval(approval, out));
    if let Some(diff) = &call.diff {
        out.push('\n');
        fence("diff", &diff.text, out);
    }
    if !call.output.trim().is_empty() {
        out.push('\n');
        fence("text", &call.output, out);
    }
    if !call.result.is_empty() {
        *out += &format!("\n*{}*\n", escape_line(&call.result));
    }
}

fn render_approval(approval: &Approval, out: &mut String) {
    let result = if approval.result.is_empty() { "not decided" } else { &approval.result };
    let at = timestamp(approval.decision.as_ref().map_or(approval.asked_at, |vote| vote.at));
    *out += &format!("\n*Approval: {}: {}, {at}*\n", escape_line(&approval.question), escape_line(result));
}

fn render_run(run: &RunSummary, at: &str, out: &mut String) {
    *out += &format!("\n---\n\n**Run: {}**, {at}", run_outcome_name(run.outcome));
    for part in [run.duration_ms.map(duration), run.usage.text()].into_iter().flatten() {
        *out += &format!(", {part}");
    }
    *out += &format!("\n\n{}\n", escape_line(&run.summary));
    for check in &run.checks {
        let word = if check.passed { "passed" } else { "failed" };
        *out += &format!("\n- check {}: {word}\n", code(&check.id));
    }
}

/// Writes a fenced block. The fence is longer than any in the text.
fn fence(language: &str, text: &str, out: &mut String) {
    let text = sanitize(text);
    let ticks = "`".repeat(longest_ticks(&text).max(2) + 1);
    *out += &format!("{ticks}{language}\n{}\n{ticks}\n", text.trim_end_matches('\n'));
}

/// Returns a text as inline code, in one line.
fn code(text: &str) -> String {
    let text = sanitize_line(text);
    let ticks = "`".repeat(longest_ticks(&text) + 1);
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{ticks}{space}{text}{space}{ticks}")
}

fn longest_ticks(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or_default()
}

/// Returns a text in one line, without markup.
fn escape_line(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in sanitize_line(text).chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '|') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_longer_than_any_in_its_text() {
        let mut out = String::new();
        fence("text", "a\n````\nb", &mut out);
        assert_eq!(out, "`````text\na\n````\nb\n`````\n");
        assert_eq!(code("a`b``"), "``` a`b`` ```");
    }

    #[test]
    fn markup_in_one_line_texts_is_escaped() {
        assert_eq!(escape_line("a *b*\n<i>"), "a \\*b\\* \\<i\\>");
    }
}
