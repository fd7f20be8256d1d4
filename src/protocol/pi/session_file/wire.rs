//! The lines of a file as they are deserialized: the fields of all kinds, every one optional.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::fields::{Timestamp, loose};

/// A line: the header or an entry.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line<'a> {
    #[serde(default, deserialize_with = "loose")]
    pub(super) r#type: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) id: Option<String>,
    #[serde(default, deserialize_with = "loose")]
    pub(super) parent_id: Option<String>,
    #[serde(default)]
    pub(super) timestamp: Timestamp,
    #[serde(default, deserialize_with = "loose")]
    pub(super) version: Option<u64>,
    #[serde(default, deserialize_with = "loose")]
    pub(super) cwd: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) name: Option<String>,
    #[serde(default, deserialize_with = "loose")]
    pub(super) parent_session: Option<String>,
    #[serde(default, borrow)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "loose")]
    pub(super) provider: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) model_id: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) thinking_level: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) summary: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) first_kept_entry_id: Option<String>,
    #[serde(default, deserialize_with = "loose")]
    pub(super) first_kept_entry_index: Option<u64>,
    #[serde(default, deserialize_with = "loose")]
    pub(super) tokens_before: u64,
    #[serde(default, deserialize_with = "loose")]
    pub(super) from_id: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) custom_type: String,
    #[serde(default, borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "loose")]
    pub(super) display: bool,
}

/// A message of any role.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawMessage<'a> {
    #[serde(default, deserialize_with = "loose")]
    pub(super) role: String,
    #[serde(default, borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) timestamp: Timestamp,
    #[serde(default, deserialize_with = "loose")]
    pub(super) api: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) provider: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) model: String,
    #[serde(default, borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "loose")]
    pub(super) stop_reason: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) error_message: Option<String>,
    #[serde(default, deserialize_with = "loose")]
    pub(super) tool_call_id: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) tool_name: String,
    #[serde(default, borrow)]
    pub(super) details: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "loose")]
    pub(super) is_error: bool,
    #[serde(default, deserialize_with = "loose")]
    pub(super) command: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) output: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) exit_code: Option<i64>,
    #[serde(default, deserialize_with = "loose")]
    pub(super) cancelled: bool,
    #[serde(default, deserialize_with = "loose")]
    pub(super) truncated: bool,
    #[serde(default, deserialize_with = "loose")]
    pub(super) full_output_path: Option<String>,
    #[serde(default, deserialize_with = "loose")]
    pub(super) exclude_from_context: bool,
    #[serde(default, deserialize_with = "loose")]
    pub(super) custom_type: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) display: bool,
    #[serde(default, deserialize_with = "loose")]
    pub(super) summary: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) from_id: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) tokens_before: u64,
}

/// A block of a message.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawBlock<'a> {
    #[serde(default, deserialize_with = "loose")]
    pub(super) r#type: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) text: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) data: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) mime_type: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) thinking: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) id: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) name: String,
    #[serde(default, borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}

/// The usage of a turn.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawUsage<'a> {
    #[serde(default, deserialize_with = "loose")]
    pub(super) input: u64,
    #[serde(default, deserialize_with = "loose")]
    pub(super) output: u64,
    #[serde(default, deserialize_with = "loose")]
    pub(super) cache_read: u64,
    #[serde(default, deserialize_with = "loose")]
    pub(super) cache_write: u64,
    #[serde(default, deserialize_with = "loose")]
    pub(super) total_tokens: Option<u64>,
    #[serde(default, borrow)]
    pub(super) cost: Option<&'a RawValue>,
}

/// The cost of a turn.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawCost {
    #[serde(default, deserialize_with = "loose")]
    pub(super) input: f64,
    #[serde(default, deserialize_with = "loose")]
    pub(super) output: f64,
    #[serde(default, deserialize_with = "loose")]
    pub(super) cache_read: f64,
    #[serde(default, deserialize_with = "loose")]
    pub(super) cache_write: f64,
    #[serde(default, deserialize_with = "loose")]
    pub(super) total: f64,
}

/// The fields of a line that a file listing needs.
#[derive(Deserialize)]
pub(super) struct ListingLine {
    #[serde(default, deserialize_with = "loose")]
    pub(super) r#type: String,
    #[serde(default, deserialize_with = "loose")]
    pub(super) name: Option<String>,
    #[serde(default, deserialize_with = "loose")]
    pub(super) provider: Option<String>,
    #[serde(default, rename = "modelId", deserialize_with = "loose")]
    pub(super) model_id: Option<String>,
    #[serde(default, rename = "thinkingLevel", deserialize_with = "loose")]
    pub(super) thinking_level: Option<String>,
    #[serde(default, deserialize_with = "loose")]
    pub(super) message: ListingMessage,
}

/// The fields of a message that a file listing needs: the model of an assistant message.
#[derive(Deserialize, Default)]
pub(super) struct ListingMessage {
    #[serde(default, deserialize_with = "loose")]
    pub(super) provider: Option<String>,
    #[serde(default, deserialize_with = "loose")]
    pub(super) model: Option<String>,
}
