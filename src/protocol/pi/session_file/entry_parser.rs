//! Parses entries: messages with their blocks, and changes of settings.

use serde::de::DeserializeSeed;
use serde_json::value::RawValue;

use crate::kernel::id::Json;
use crate::kernel::time::Now;

use super::entry::{Change, Entry};
use super::fields::{Elements, object};
use super::message::{
    Assistant, Bash, Block, BranchSummary, CompactionSummary, Content, Cost, Custom, Message, StopReason, ToolResult,
    Usage, User,
};
use super::read::{ParseError, sanitize_name};
use super::wire::{Line, RawBlock, RawCost, RawMessage, RawUsage};

/// Why an entry is invalid.
pub(super) enum EntryError {
    /// It is malformed, for this reason.
    Malformed(&'static str),
    /// The file has too many content blocks.
    TooManyBlocks,
}

impl EntryError {
    pub(super) const fn into_parse_error(self, line: usize, limit: usize) -> ParseError {
        match self {
            Self::Malformed(why) => ParseError::Malformed { line, why },
            Self::TooManyBlocks => ParseError::TooManyBlocks { limit },
        }
    }
}

/// Parses entries and counts the parts it skips.
pub(super) struct EntryParser {
    /// The remaining budget of content blocks.
    pub(super) blocks_left: usize,
    /// How many entries, messages and blocks were skipped.
    pub(super) skipped: u64,
}

impl EntryParser {
    /// Returns whether the entry type is known.
    pub(super) fn is_known_type(kind: &str) -> bool {
        matches!(
            kind,
            "message"
                | "model_change"
                | "thinking_level_change"
                | "compaction"
                | "branch_summary"
                | "custom_message"
                | "session_info"
        )
    }

    /// Parses the content of an entry; `before` are the preceding entries.
    pub(super) fn parse_entry(&mut self, line: &Line<'_>, at: Now, before: &[Entry]) -> Result<Change, EntryError> {
        Ok(match line.r#type.as_str() {
            "message" => {
                let raw = line.message.ok_or(EntryError::Malformed("it has no message"))?;
                let fields = object(raw).ok_or(EntryError::Malformed("its message is not an object"))?;
                match self.parse_message(&fields, at)? {
                    Some(message) => Change::Message(message),
                    None => self.skip("message"),
                }
            }
            "model_change" => Change::Model { provider: line.provider.clone(), model: line.model_id.clone() },
            "thinking_level_change" => Change::Thinking { level: line.thinking_level.clone() },
            "compaction" => Change::Compaction {
                summary: line.summary.clone(),
                first_kept: first_kept(line, before),
                tokens_before: line.tokens_before,
            },
            "branch_summary" => Change::BranchSummary { summary: line.summary.clone(), from: line.from_id.clone() },
            "custom_message" => Change::CustomMessage {
                kind: line.custom_type.clone(),
                content: self.parse_content(line.content)?,
                display: line.display,
            },
            "session_info" => Change::Name(sanitize_name(line.name.clone())),
            kind => self.skip(kind),
        })
    }

    fn skip(&mut self, kind: &str) -> Change {
        self.skipped += 1;
        Change::Other { kind: kind.chars().take(64).collect() }
    }

    /// Parses a message; `None` for an unknown role.
    fn parse_message(&mut self, fields: &RawMessage<'_>, entry: Now) -> Result<Option<Message>, EntryError> {
        let at = fields.timestamp.0.unwrap_or(entry);
        Ok(Some(match fields.role.as_str() {
            "user" => Message::User(User { content: self.parse_content(fields.content)?, at }),
            "assistant" => Message::Assistant(Box::new(Assistant {
                blocks: self.parse_blocks(fields.content)?,
                api: fields.api.clone(),
                provider: fields.provider.clone(),
                model: fields.model.clone(),
                usage: fields.usage.and_then(usage).unwrap_or_default(),
                stop: StopReason::parse(&fields.stop_reason),
                error: fields.error_message.clone(),
                at,
            })),
            "toolResult" => Message::ToolResult(Box::new(ToolResult {
                call: fields.tool_call_id.clone(),
                tool: fields.tool_name.clone(),
                content: self.parse_content(fields.content)?,
                details: fields.details.map(|raw| Json::new(raw.get())),
                is_error: fields.is_error,
                at,
            })),
            "bashExecution" => Message::Bash(Box::new(Bash {
                command: fields.command.clone(),
                output: fields.output.clone(),
                exit_code: fields.exit_code,
                cancelled: fields.cancelled,
                truncated: fields.truncated,
                full_output: fields.full_output_path.clone(),
                excluded: fields.exclude_from_context,
                at,
            })),
            // Versions 1 and 2 name the role `hookMessage`.
            "custom" | "hookMessage" => Message::Custom(Custom {
                kind: fields.custom_type.clone(),
                content: self.parse_content(fields.content)?,
                display: fields.display,
                at,
            }),
            "branchSummary" => Message::BranchSummary(BranchSummary {
                summary: fields.summary.clone(),
                from: fields.from_id.clone(),
                at,
            }),
            "compactionSummary" => Message::CompactionSummary(CompactionSummary {
                summary: fields.summary.clone(),
                tokens_before: fields.tokens_before,
                at,
            }),
            _ => return Ok(None),
        }))
    }

    /// Parses texts and images.
    fn parse_content(&mut self, raw: Option<&RawValue>) -> Result<Vec<Content>, EntryError> {
        self.parse_elements(raw, Content::Text, |block| match block.r#type.as_str() {
            "text" => Some(Content::Text(block.text)),
            "image" => Some(Content::Image { mime: block.mime_type, data: block.data }),
            _ => None,
        })
    }

    /// Parses the blocks of an assistant message.
    fn parse_blocks(&mut self, raw: Option<&RawValue>) -> Result<Vec<Block>, EntryError> {
        self.parse_elements(raw, Block::Text, |block| match block.r#type.as_str() {
            "text" => Some(Block::Text(block.text)),
            "thinking" => Some(Block::Thinking(block.thinking)),
            "toolCall" => {
                let args = block.arguments.map(RawValue::get).filter(|args| args.starts_with('{'));
                let args = Json::new(args.unwrap_or("{}"));
                Some(Block::ToolCall { id: block.id, name: block.name, args })
            }
            _ => None,
        })
    }

    /// Parses the content of a message: a string, or an array of blocks. Unknown blocks are skipped and counted.
    fn parse_elements<T>(
        &mut self,
        raw: Option<&RawValue>,
        from_text: fn(String) -> T,
        from_block: fn(RawBlock<'_>) -> Option<T>,
    ) -> Result<Vec<T>, EntryError> {
        let Some(raw) = raw.map(RawValue::get) else { return Ok(Vec::new()) };
        if raw.starts_with('"') {
            let text = serde_json::from_str(raw);
            return text
                .map(|text| vec![from_text(text)])
                .map_err(|_| EntryError::Malformed("its content is not a valid string"));
        }
        if !raw.starts_with('[') {
            return Err(EntryError::Malformed("its content is neither a string nor an array"));
        }
        // The text is valid JSON, so only the block budget can fail.
        let mut from = serde_json::Deserializer::from_str(raw);
        let elements = Elements(&mut self.blocks_left).deserialize(&mut from);
        let elements = elements.map_err(|_| EntryError::TooManyBlocks)?;
        let count = elements.len();
        let parsed: Vec<T> = elements.into_iter().filter_map(|raw| object(raw).and_then(from_block)).collect();
        self.skipped += (count - parsed.len()) as u64;
        Ok(parsed)
    }
}

/// Returns the first entry that a compaction keeps. Version 1 stores a line index that counts the header.
fn first_kept(line: &Line<'_>, before: &[Entry]) -> String {
    if let Some(id) = &line.first_kept_entry_id {
        return id.clone();
    }
    let index = line.first_kept_entry_index.and_then(|index| usize::try_from(index).ok());
    let kept = index.and_then(|index| before.get(index.saturating_sub(1)));
    kept.map(|entry| entry.id.clone()).unwrap_or_default()
}

fn usage(raw: &RawValue) -> Option<Usage> {
    let fields: RawUsage<'_> = object(raw)?;
    let sum = [fields.input, fields.output, fields.cache_read, fields.cache_write]
        .into_iter()
        .fold(0_u64, u64::saturating_add);
    Some(Usage {
        input: fields.input,
        output: fields.output,
        cache_read: fields.cache_read,
        cache_write: fields.cache_write,
        total: fields.total_tokens.unwrap_or(sum),
        cost: fields.cost.and_then(cost).unwrap_or_default(),
    })
}

fn cost(raw: &RawValue) -> Option<Cost> {
    let costs: RawCost = object(raw)?;
    Some(Cost {
        input: costs.input,
        output: costs.output,
        cache_read: costs.cache_read,
        cache_write: costs.cache_write,
        total: costs.total,
    })
}
