//! Writes session files: the newest version, one line per entry, and nothing that the parser would refuse.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::kernel::id::Json;

use super::entry::{Change, Entry, Header, VERSION};
use super::message::{Block, Content, Cost, Message, Usage};
use super::to_rfc3339;

/// Why entries cannot be written as a session file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The id of an entry is empty or not unique.
    #[error("the entry id {id:?} is empty or not unique")]
    Id {
        /// The id.
        id: String,
    },
    /// The parent of an entry is not an earlier entry.
    #[error("the parent {parent:?} of the entry {id:?} is not an earlier entry")]
    Parent {
        /// The entry.
        id: String,
        /// The parent it names.
        parent: String,
    },
    /// The arguments or details of a tool call are not JSON.
    #[error("the entry {id:?} contains a value that is not JSON")]
    NotJson {
        /// The entry.
        id: String,
    },
    /// An entry of an unknown kind cannot be written.
    #[error("the entry {id:?} has a kind that cannot be written")]
    Unknown {
        /// The entry.
        id: String,
    },
}

/// Renders a whole file.
pub fn render(header: &Header, entries: &[Entry]) -> Result<Vec<u8>, WriteError> {
    let mut out = Vec::new();
    let line = HeaderLine {
        r#type: "session",
        version: VERSION,
        id: &header.id,
        timestamp: to_rfc3339(header.created),
        cwd: &header.cwd,
        parent_session: header.parent.as_deref(),
    };
    push_line(&mut out, &header.id, &line)?;
    out.extend(render_entries(entries, BTreeSet::new())?);
    Ok(out)
}

/// Renders entries that follow those whose ids are `known`.
pub fn render_entries<'a>(entries: &'a [Entry], mut known: BTreeSet<&'a str>) -> Result<Vec<u8>, WriteError> {
    let mut out = Vec::new();
    for entry in entries {
        if let Some(parent) = entry.parent.as_deref().filter(|parent| !known.contains(parent)) {
            return Err(WriteError::Parent { id: entry.id.clone(), parent: parent.to_owned() });
        }
        if entry.id.is_empty() || !known.insert(&entry.id) {
            return Err(WriteError::Id { id: entry.id.clone() });
        }
        push_line(&mut out, &entry.id, &entry_line(entry)?)?;
    }
    Ok(out)
}

fn push_line(out: &mut Vec<u8>, id: &str, line: &impl Serialize) -> Result<(), WriteError> {
    serde_json::to_writer(&mut *out, line).map_err(|_| WriteError::NotJson { id: id.to_owned() })?;
    out.push(b'\n');
    Ok(())
}

fn entry_line(entry: &Entry) -> Result<EntryLine<'_>, WriteError> {
    let line = EntryLine {
        id: &entry.id,
        parent_id: entry.parent.as_deref(),
        timestamp: to_rfc3339(entry.at),
        ..EntryLine::default()
    };
    Ok(match &entry.change {
        Change::Message(message) => {
            let not_json = |_| WriteError::NotJson { id: entry.id.clone() };
            EntryLine { r#type: "message", message: Some(message_line(message).map_err(not_json)?), ..line }
        }
        Change::Model { provider, model } => {
            EntryLine { r#type: "model_change", provider: Some(provider), model_id: Some(model), ..line }
        }
        Change::Thinking { level } => {
            EntryLine { r#type: "thinking_level_change", thinking_level: Some(level), ..line }
        }
        Change::Compaction { summary, first_kept, tokens_before } => EntryLine {
            r#type: "compaction",
            summary: Some(summary),
            first_kept_entry_id: Some(first_kept),
            tokens_before: Some(*tokens_before),
            ..line
        },
        Change::BranchSummary { summary, from } => {
            EntryLine { r#type: "branch_summary", summary: Some(summary), from_id: Some(from), ..line }
        }
        Change::CustomMessage { kind, content, display } => EntryLine {
            r#type: "custom_message",
            custom_type: Some(kind),
            content: Some(content_lines(content)),
            display: Some(*display),
            ..line
        },
        Change::Name(name) => EntryLine { r#type: "session_info", name: Some(name.as_deref().unwrap_or("")), ..line },
        Change::Other { .. } => return Err(WriteError::Unknown { id: entry.id.clone() }),
    })
}

fn message_line(message: &Message) -> serde_json::Result<MessageLine<'_>> {
    let line = MessageLine { timestamp: message.at().0, ..MessageLine::default() };
    Ok(match message {
        Message::User(user) => MessageLine { role: "user", content: Some(content_lines(&user.content)), ..line },
        Message::Assistant(message) => MessageLine {
            role: "assistant",
            content: Some(block_lines(&message.blocks)?),
            api: Some(&message.api),
            provider: Some(&message.provider),
            model: Some(&message.model),
            usage: Some(usage_line(&message.usage)),
            stop_reason: Some(message.stop.as_str()),
            error_message: message.error.as_deref(),
            ..line
        },
        Message::ToolResult(result) => MessageLine {
            role: "toolResult",
            content: Some(content_lines(&result.content)),
            tool_call_id: Some(&result.call),
            tool_name: Some(&result.tool),
            details: result.details.as_ref().map(raw_json).transpose()?,
            is_error: Some(result.is_error),
            ..line
        },
        Message::Bash(bash) => MessageLine {
            role: "bashExecution",
            command: Some(&bash.command),
            output: Some(&bash.output),
            exit_code: bash.exit_code,
            cancelled: Some(bash.cancelled),
            truncated: Some(bash.truncated),
            full_output_path: bash.full_output.as_deref(),
            exclude_from_context: bash.excluded.then_some(true),
            ..line
        },
        Message::Custom(custom) => MessageLine {
            role: "custom",
            custom_type: Some(&custom.kind),
            content: Some(content_lines(&custom.content)),
            display: Some(custom.display),
            ..line
        },
        Message::BranchSummary(branch) => {
            MessageLine { role: "branchSummary", summary: Some(&branch.summary), from_id: Some(&branch.from), ..line }
        }
        Message::CompactionSummary(compaction) => MessageLine {
            role: "compactionSummary",
            summary: Some(&compaction.summary),
            tokens_before: Some(compaction.tokens_before),
            ..line
        },
    })
}

fn content_lines(content: &[Content]) -> Vec<BlockLine<'_>> {
    content.iter().map(content_line).collect()
}

fn content_line(content: &Content) -> BlockLine<'_> {
    match content {
        Content::Text(text) => BlockLine { r#type: "text", text: Some(text), ..BlockLine::default() },
        Content::Image { mime, data } => {
            BlockLine { r#type: "image", data: Some(data), mime_type: Some(mime), ..BlockLine::default() }
        }
    }
}

fn block_lines(blocks: &[Block]) -> serde_json::Result<Vec<BlockLine<'_>>> {
    let mut lines = Vec::with_capacity(blocks.len());
    for block in blocks {
        lines.push(match block {
            Block::Text(text) => BlockLine { r#type: "text", text: Some(text), ..BlockLine::default() },
            Block::Thinking(thinking) => {
                BlockLine { r#type: "thinking", thinking: Some(thinking), ..BlockLine::default() }
            }
            Block::ToolCall { id, name, args } => BlockLine {
                r#type: "toolCall",
                id: Some(id),
                name: Some(name),
                arguments: Some(raw_json(args)?),
                ..BlockLine::default()
            },
        });
    }
    Ok(lines)
}

/// Returns a JSON text verbatim if it is valid and on one line.
fn raw_json(json: &Json) -> serde_json::Result<&RawValue> {
    if json.as_str().contains(['\n', '\r']) {
        return Err(serde::ser::Error::custom("not on one line"));
    }
    serde_json::from_str(json.as_str())
}

const fn usage_line(usage: &Usage) -> UsageLine {
    let Cost { input, output, cache_read, cache_write, total } = usage.cost;
    UsageLine {
        input: usage.input,
        output: usage.output,
        cache_read: usage.cache_read,
        cache_write: usage.cache_write,
        total_tokens: usage.total,
        cost: CostLine { input, output, cache_read, cache_write, total },
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HeaderLine<'a> {
    r#type: &'static str,
    version: u32,
    id: &'a str,
    timestamp: String,
    cwd: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_session: Option<&'a str>,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct EntryLine<'a> {
    r#type: &'static str,
    id: &'a str,
    /// Always present; null for a root.
    parent_id: Option<&'a str>,
    timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<MessageLine<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_kept_entry_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_before: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Vec<BlockLine<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    display: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct MessageLine<'a> {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Vec<BlockLine<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<UsageLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_error: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    full_output_path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exclude_from_context: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    display: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_before: Option<u64>,
    timestamp: u64,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct BlockLine<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UsageLine {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    total_tokens: u64,
    cost: CostLine,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CostLine {
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: f64,
    total: f64,
}
