//! Parses entries: messages with their blocks, and changes of settings.

use serde::de::DeserializeSeed;
use serde_json::value::RawValue;

use crate::kernel::id::Json;
use crate::kernel::time::Now;

use super::entry::{Change, Entry};
use super::fields::{Elements, object};
use super::message::{
    Assistant, Bash, Block, BranchSummary, CompactionSummary, Content, Cost, Custom, Message, Stop,
    ToolResult, Usage, User,
};
use super::read::{ParseError, cleaned};
use super::wire::{Costs, Line, Piece, Said, Used};

/// Why an entry is invalid.
pub(super) enum Wrong {
    /// It is malformed, for this reason.
    Built(&'static str),
    /// The file has too many content blocks.
    Blocks,
}

impl Wrong {
    pub(super) const fn at(self, line: usize, limit: usize) -> ParseError {
        match self {
            Self::Built(why) => ParseError::Malformed { line, why },
            Self::Blocks => ParseError::TooManyBlocks { limit },
        }
    }
}

/// Parses entries and counts the parts it skips.
pub(super) struct Says {
    /// The remaining budget of content blocks.
    pub(super) blocks: usize,
    /// How many entries, messages and blocks were skipped.
    pub(super) unknown: u64,
}

impl Says {
    /// Returns whether the entry type is known.
    pub(super) fn knows(kind: &str) -> bool {
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
    pub(super) fn change(&mut self, line: &Line<'_>, at: Now, before: &[Entry]) -> Result<Change, Wrong> {
        Ok(match line.r#type.as_str() {
            "message" => {
                let raw = line.message.ok_or(Wrong::Built("it has no message"))?;
                let said = object(raw).ok_or(Wrong::Built("its message is not an object"))?;
                match self.message(&said, at)? {
                    Some(message) => Change::Message(message),
                    None => self.passed_over("message"),
                }
            }
            "model_change" => Change::Model { provider: line.provider.clone(), model: line.model_id.clone() },
            "thinking_level_change" => Change::Thinking { level: line.thinking_level.clone() },
            "compaction" => Change::Compaction {
                summary: line.summary.clone(),
                first_kept: first_kept(line, before),
                tokens_before: line.tokens_before,
            },
            "branch_summary" => {
                Change::BranchSummary { summary: line.summary.clone(), from: line.from_id.clone() }
            }
            "custom_message" => Change::CustomMessage {
                kind: line.custom_type.clone(),
                content: self.content(line.content)?,
                display: line.display,
            },
            "session_info" => Change::Name(cleaned(line.name.clone())),
            kind => self.passed_over(kind),
        })
    }

    fn passed_over(&mut self, kind: &str) -> Change {
        self.unknown += 1;
        Change::Other { kind: kind.chars().take(64).collect() }
    }

    /// Parses a message; `None` for an unknown role.
    fn message(&mut self, said: &Said<'_>, entry: Now) -> Result<Option<Message>, Wrong> {
        let at = said.timestamp.0.unwrap_or(entry);
        Ok(Some(match said.role.as_str() {
            "user" => Message::User(User { content: self.content(said.content)?, at }),
            "assistant" => Message::Assistant(Box::new(Assistant {
                blocks: self.blocks(said.content)?,
                api: said.api.clone(),
                provider: said.provider.clone(),
                model: said.model.clone(),
                usage: said.usage.and_then(usage).unwrap_or_default(),
                stop: Stop::read(&said.stop_reason),
                error: said.error_message.clone(),
                at,
            })),
            "toolResult" => Message::ToolResult(Box::new(ToolResult {
                call: said.tool_call_id.clone(),
                tool: said.tool_name.clone(),
                content: self.content(said.content)?,
                details: said.details.map(|raw| Json::new(raw.get())),
                is_error: said.is_error,
                at,
            })),
            "bashExecution" => Message::Bash(Box::new(Bash {
                command: said.command.clone(),
                output: said.output.clone(),
                exit_code: said.exit_code,
                cancelled: said.cancelled,
                truncated: said.truncated,
                full_output: said.full_output_path.clone(),
                excluded: said.exclude_from_context,
                at,
            })),
            // Versions 1 and 2 name the role `hookMessage`.
            "custom" | "hookMessage" => Message::Custom(Custom {
                kind: said.custom_type.clone(),
                content: self.content(said.content)?,
                display: said.display,
                at,
            }),
            "branchSummary" => Message::BranchSummary(BranchSummary {
                summary: said.summary.clone(),
                from: said.from_id.clone(),
                at,
            }),
            "compactionSummary" => Message::CompactionSummary(CompactionSummary {
                summary: said.summary.clone(),
                tokens_before: said.tokens_before,
                at,
            }),
            _ => return Ok(None),
        }))
    }

    /// Parses texts and images: a string, or an array of blocks.
    fn content(&mut self, raw: Option<&RawValue>) -> Result<Vec<Content>, Wrong> {
        let pieces = match self.pieces(raw)? {
            Pieces::Text(text) => return Ok(vec![Content::Text(text)]),
            Pieces::List(pieces) => pieces,
        };
        let mut content = Vec::with_capacity(pieces.len());
        for raw in pieces {
            let Some(piece) = object::<Piece<'_>>(raw) else {
                self.unknown += 1;
                continue;
            };
            match piece.r#type.as_str() {
                "text" => content.push(Content::Text(piece.text)),
                "image" => content.push(Content::Image { mime: piece.mime_type, data: piece.data }),
                _ => self.unknown += 1,
            }
        }
        Ok(content)
    }

    /// Parses the blocks of an assistant message.
    fn blocks(&mut self, raw: Option<&RawValue>) -> Result<Vec<Block>, Wrong> {
        let pieces = match self.pieces(raw)? {
            Pieces::Text(text) => return Ok(vec![Block::Text(text)]),
            Pieces::List(pieces) => pieces,
        };
        let mut blocks = Vec::with_capacity(pieces.len());
        for raw in pieces {
            let Some(piece) = object::<Piece<'_>>(raw) else {
                self.unknown += 1;
                continue;
            };
            match piece.r#type.as_str() {
                "text" => blocks.push(Block::Text(piece.text)),
                "thinking" => blocks.push(Block::Thinking(piece.thinking)),
                "toolCall" => {
                    let args = piece.arguments.map(RawValue::get).filter(|args| args.starts_with('{'));
                    let args = Json::new(args.unwrap_or("{}"));
                    blocks.push(Block::ToolCall { id: piece.id, name: piece.name, args });
                }
                _ => self.unknown += 1,
            }
        }
        Ok(blocks)
    }

    fn pieces<'a>(&mut self, raw: Option<&'a RawValue>) -> Result<Pieces<'a>, Wrong> {
        let Some(raw) = raw.map(RawValue::get) else { return Ok(Pieces::List(Vec::new())) };
        if raw.starts_with('"') {
            let text = serde_json::from_str(raw);
            return text.map(Pieces::Text).map_err(|_| Wrong::Built("its content is not a valid string"));
        }
        if !raw.starts_with('[') {
            return Err(Wrong::Built("its content is neither a string nor an array"));
        }
        // The text is valid JSON, so only the block budget can fail.
        let mut from = serde_json::Deserializer::from_str(raw);
        let pieces = Elements(&mut self.blocks).deserialize(&mut from);
        pieces.map(Pieces::List).map_err(|_| Wrong::Blocks)
    }
}

/// The two forms of message content.
enum Pieces<'a> {
    Text(String),
    List(Vec<&'a RawValue>),
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
    let used: Used<'_> = object(raw)?;
    let sum = [used.input, used.output, used.cache_read, used.cache_write]
        .into_iter()
        .fold(0_u64, u64::saturating_add);
    Some(Usage {
        input: used.input,
        output: used.output,
        cache_read: used.cache_read,
        cache_write: used.cache_write,
        total: used.total_tokens.unwrap_or(sum),
        cost: used.cost.and_then(cost).unwrap_or_default(),
    })
}

fn cost(raw: &RawValue) -> Option<Cost> {
    let costs: Costs = object(raw)?;
    Some(Cost {
        input: costs.input,
        output: costs.output,
        cache_read: costs.cache_read,
        cache_write: costs.cache_write,
        total: costs.total,
    })
}
