//! The JSON form of messages: of users, of the assistant, of results, of user commands and of summaries.

use std::sync::Arc;

use serde::Deserialize;

use super::object_writer::{ObjectWriter, object, write_text_content};
use crate::kernel::conversation::{Block, Summary};
use crate::kernel::event::{CallResult, Image, TokenUsage, ToolError, ToolOutcome};
use crate::kernel::id::{Json, Seq};
use crate::kernel::time::Now;
use crate::protocol::operation_result::ShellResult;
use crate::protocol::pi::encode::dollars;
use crate::protocol::pi::interface;
use crate::record::{json, wire};

/// Why a message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopReason<'a> {
    /// It is complete.
    Complete,
    /// The run was stopped, for this reason.
    Aborted(&'a str),
    /// The turn failed, with this error.
    Failed(&'a str),
}

/// The fields of an assistant message beside its content.
#[derive(Debug, Clone, Copy)]
pub(super) struct AssistantFields<'a> {
    pub(super) provider: &'a str,
    pub(super) model: &'a str,
    pub(super) usage: Option<TokenUsage>,
    pub(super) has_calls: bool,
    pub(super) stop: StopReason<'a>,
    pub(super) at: Now,
}

/// Writes an assistant message; `content` writes its content array.
pub(super) fn write_assistant(out: &mut Vec<u8>, fields: AssistantFields<'_>, content: impl FnOnce(&mut Vec<u8>)) {
    let (reason, message) = match fields.stop {
        StopReason::Complete if fields.has_calls => ("toolUse", None),
        StopReason::Complete => ("stop", None),
        StopReason::Aborted(why) => ("aborted", Some(why)),
        StopReason::Failed(why) => ("error", Some(why)),
    };
    ObjectWriter::new(out)
        .text("role", "assistant")
        .with("content", content)
        .text("api", interface(fields.provider))
        .text("provider", fields.provider)
        .text("model", fields.model)
        .with("usage", |out| write_usage(out, &fields.usage.unwrap_or_default()))
        .text("stopReason", reason)
        .optional_text("errorMessage", message)
        .number("timestamp", fields.at.0)
        .end();
}

/// Writes the content array of an assistant message that starts with an event.
pub(super) fn write_blocks(out: &mut Vec<u8>, first_seq: Seq, blocks: &[Block]) {
    out.push(b'[');
    for (at, block) in blocks.iter().filter(|block| block.is_shown()).enumerate() {
        if at > 0 {
            out.push(b',');
        }
        match block {
            Block::Thinking(text) => {
                ObjectWriter::new(out).text("type", "thinking").text("thinking", text).end();
            }
            Block::Text(text) => ObjectWriter::new(out).text("type", "text").text("text", &text.text).end(),
            Block::Call(call) => match (&call.announcement, &call.request) {
                (Some(announced), _) => {
                    let id = announced_call_id(first_seq, announced.index);
                    write_call(out, &id, &announced.call.tool, &announced.call.args);
                }
                (None, Some(request)) => write_call(out, request.id.as_str(), &request.tool, &request.args),
                (None, None) => out.extend_from_slice(b"{}"),
            },
        }
    }
    out.push(b']');
}

/// Writes a tool call block.
pub(super) fn write_call(out: &mut Vec<u8>, id: &str, tool: &str, args: &Json) {
    ObjectWriter::new(out)
        .text("type", "toolCall")
        .text("id", id)
        .text("name", tool)
        .with("arguments", |content| write_arguments(content, args))
        .end();
}

/// Returns the id of a call that was announced with its turn, before it had one.
pub(super) fn announced_call_id(message: Seq, index: u32) -> String {
    format!("call_{:x}_{index}", message.number())
}

/// Writes the arguments of a call, as their record has them, as an object; any other value is wrapped in one.
pub(super) fn write_arguments(out: &mut Vec<u8>, args: &Json) {
    let json = wire::raw(args);
    if json.get().starts_with('{') {
        out.extend_from_slice(json.get().as_bytes());
    } else {
        ObjectWriter::new(out).raw("value", json.get().as_bytes()).end();
    }
}

/// Returns a user's message.
pub(super) fn user_message(text: &str, images: &[Image], at: Now) -> Arc<str> {
    object(|message| {
        message
            .text("role", "user")
            .with("content", |out| {
                out.push(b'[');
                ObjectWriter::new(out).text("type", "text").text("text", text).end();
                for image in images {
                    out.push(b',');
                    ObjectWriter::new(out)
                        .text("type", "image")
                        .text("data", &image.data)
                        .text("mimeType", &image.mime)
                        .end();
                }
                out.push(b']');
            })
            .number("timestamp", at.0)
            .end();
    })
}

/// Returns the message of a summary.
pub(super) fn summary_message(summary: &Summary) -> Arc<str> {
    object(|message| {
        message
            .text("role", "compactionSummary")
            .text("summary", &summary.text)
            .number("tokensBefore", summary.tokens_before)
            .number("timestamp", summary.at.0)
            .end();
    })
}

/// The result of a call as the model receives it.
pub(super) struct ToolResult<'a> {
    pub(super) id: &'a str,
    pub(super) tool: &'a str,
    text: String,
    failed: bool,
    /// The details as JSON.
    details: Vec<u8>,
}

impl<'a> ToolResult<'a> {
    /// Returns the result of a settled call.
    pub(super) fn new(id: &'a str, tool: &'a str, result: &CallResult) -> Self {
        let failed = result.outcome != ToolOutcome::Succeeded;
        Self { id, tool, text: result_text(result), failed, details: result_details(result) }
    }

    /// Returns the result of a call that was not executed.
    pub(super) fn skipped(id: &'a str, tool: &'a str, why: &str) -> Self {
        let (text, details) = (format!("not executed: {why}"), b"{\"durationMs\":0}".to_vec());
        Self { id, tool, text, failed: true, details }
    }

    /// Returns its message.
    pub(super) fn message(&self, at: Now) -> Arc<str> {
        object(|message| {
            message
                .text("role", "toolResult")
                .text("toolCallId", self.id)
                .text("toolName", self.tool)
                .with("content", |out| write_text_content(out, &self.text))
                .raw("details", &self.details)
                .flag("isError", self.failed)
                .number("timestamp", at.0)
                .end();
        })
    }

    /// Writes the fields of the end of its execution.
    pub(super) fn write_end(&self, event: ObjectWriter<'_>) {
        event
            .text("toolCallId", self.id)
            .text("toolName", self.tool)
            .with("result", |out| {
                ObjectWriter::new(out)
                    .with("content", |out| write_text_content(out, &self.text))
                    .raw("details", &self.details)
                    .end();
            })
            .flag("isError", self.failed)
            .end();
    }
}

/// Returns the message of a user command.
pub(super) fn bash_execution(args: &Json, result: &CallResult, in_context: bool, at: Now) -> Arc<str> {
    let ShellResult { exit_code, output, cancelled } = ShellResult::of(result);
    object(|message| {
        let message = message.text("role", "bashExecution").text("command", &command(args)).text("output", &output);
        let message = match exit_code {
            Some(code) => message.raw("exitCode", code.to_string().as_bytes()),
            None => message.raw("exitCode", b"null"),
        };
        let message = message.flag("cancelled", cancelled).flag("truncated", output.contains(TRUNCATION_MARKER));
        let message = if in_context { message } else { message.flag("excludeFromContext", true) };
        message.number("timestamp", at.0).end();
    })
}

/// Returns the text of a result, with its error.
fn result_text(settlement: &CallResult) -> String {
    let wrong = match (&settlement.error, settlement.outcome) {
        (Some(ToolError { kind, message, detail: Some(detail), .. }), _) => {
            format!("{kind}: {message}\n{detail}")
        }
        (Some(ToolError { kind, message, detail: None, .. }), _) => format!("{kind}: {message}"),
        // The output describes the failure.
        (None, ToolOutcome::Failed) if !settlement.text.is_empty() => return settlement.text.clone(),
        (None, ToolOutcome::Failed) => "it failed".to_owned(),
        (None, ToolOutcome::Skipped) => "the user skipped the call".to_owned(),
        (None, ToolOutcome::Aborted) => "it was interrupted".to_owned(),
        (None, ToolOutcome::Succeeded) => return settlement.text.clone(),
    };
    if settlement.text.is_empty() { wrong } else { format!("{wrong}\n{}", settlement.text) }
}

fn result_details(settlement: &CallResult) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = ObjectWriter::new(&mut out).number("durationMs", settlement.millis);
    if let Some(code) = settlement.exit_code {
        object = object.raw("exitCode", code.to_string().as_bytes());
    }
    if let Some(error) = &settlement.error {
        object = object.with("fault", |out| {
            ObjectWriter::new(out)
                .text("kind", &error.kind)
                .text("message", &error.message)
                .optional_text("detail", error.detail.as_deref())
                .flag("retryable", error.retryable)
                .end();
        });
    }
    object.end();
    out
}

/// Returns the command from the arguments of a shell call.
fn command(args: &Json) -> String {
    #[derive(Deserialize)]
    struct Args {
        command: String,
    }
    let args = wire::raw(args);
    serde_json::from_str(args.get()).map_or_else(|_| args.get().to_owned(), |args: Args| args.command)
}

fn write_usage(out: &mut Vec<u8>, used: &TokenUsage) {
    let plain = used.input.saturating_sub(used.cache_read).saturating_sub(used.cache_write);
    ObjectWriter::new(out)
        .number("input", plain)
        .number("output", used.output)
        .number("cacheRead", used.cache_read)
        .number("cacheWrite", used.cache_write)
        .number("totalTokens", used.input.saturating_add(used.output))
        .with("cost", |out| {
            // Only the total cost is known, not its parts.
            let mut total = Vec::new();
            json::value(&mut total, &dollars(used.cost.unwrap_or(0)));
            ObjectWriter::new(out)
                .number("input", 0)
                .number("output", 0)
                .number("cacheRead", 0)
                .number("cacheWrite", 0)
                .raw("total", &total)
                .end();
        })
        .end();
}

/// The end of the marker line that replaces omitted output.
const TRUNCATION_MARKER: &str = " left out ...]\n";
