//! The items of a conversation: their entries in a request, and their estimated tokens.

use std::collections::BTreeMap;

use crate::agent::price;
use crate::kernel::event::{CallResult, Image, Intention, ToolOutcome};
use crate::kernel::id::{CallId, MessageId, Seq};
use crate::provider::model::{self, CallOutcome, Entry};
use crate::sandbox::output::Excerpt;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Its first event.
    pub(super) first_seq: Seq,
    /// The event that completed it.
    pub(super) last_seq: Seq,
    pub(super) content: ItemContent,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ItemContent {
    User {
        message: MessageId,
        note: Option<String>,
        text: String,
        images: Vec<Image>,
    },
    Assistant {
        provider_state: Option<String>,
        text: String,
        calls: Vec<Call>,
    },
    /// A command of the user outside the run.
    UserCommand {
        text: String,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) id: CallId,
    pub(super) tool: String,
    pub(super) args: String,
    /// The event that requested it.
    pub(super) requested_at: Seq,
    pub(super) result: Option<RecordedResult>,
}

/// The result of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RecordedResult {
    /// The event that completed the call.
    pub(super) completed_at: Seq,
    pub(super) text: String,
    pub(super) outcome: CallOutcome,
    /// Whether the policy of the run denied the call.
    pub(super) denied_by_policy: bool,
}

/// The limits on the calls of an item, in bytes for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    result: usize,
    args: usize,
}

impl Extent {
    /// No limit.
    pub(super) const FULL: Self = Self { result: usize::MAX, args: usize::MAX };
    /// Only the beginnings and ends of results.
    pub(super) const TRIMMED: Self = Self { result: TRIMMED_RESULT_BYTES, args: usize::MAX };

    /// Limits results to `bytes`, and omits longer arguments.
    pub(super) const fn limited(bytes: usize) -> Self {
        Self { result: bytes, args: bytes }
    }
}

impl ItemContent {
    pub(super) fn entries(&self, whole: &BTreeMap<MessageId, String>, extent: Extent) -> Vec<Entry> {
        match self {
            Self::User { message, note, text, images } => {
                let text = whole.get(message).unwrap_or(text);
                let text = match note {
                    Some(note) => format!("[{note}]\n\n{text}"),
                    None => text.clone(),
                };
                vec![Entry::User { text, images: images.clone() }]
            }
            Self::UserCommand { text } => vec![Entry::user(text.clone())],
            // An empty turn has no entry.
            Self::Assistant { text, calls, .. } if text.trim().is_empty() && calls.is_empty() => Vec::new(),
            Self::Assistant { provider_state, text, calls } => {
                let tool_calls = calls.iter().map(|call| model::ToolCall {
                    id: call.id.as_str().to_owned(),
                    tool: call.tool.clone(),
                    args: call.args_within(extent),
                });
                let (provider_state, text) = (provider_state.clone(), text.clone());
                let turn = Entry::Assistant { provider_state, text, calls: tool_calls.collect() };
                std::iter::once(turn).chain(calls.iter().map(|call| call.entry(extent))).collect()
            }
        }
    }

    /// Returns the entries for a summary request: images are only mentioned.
    pub(super) fn entries_for_summary(&self) -> Vec<Entry> {
        let mut entries = self.entries(&BTreeMap::new(), Extent::TRIMMED);
        for entry in &mut entries {
            if let Entry::User { text, images } = entry
                && !images.is_empty()
            {
                text.push_str(&format!("\n[attached images: {}]", images.len()));
                images.clear();
            }
        }
        entries
    }

    /// Returns the calls of the item.
    pub(super) fn calls(&self) -> &[Call] {
        match self {
            Self::Assistant { calls, .. } => calls,
            Self::User { .. } | Self::UserCommand { .. } => &[],
        }
    }

    /// Returns the sizes of its calls: of the result or of the arguments, whichever is larger.
    pub(super) fn result_sizes(&self) -> impl Iterator<Item = usize> {
        self.calls().iter().map(|call| call.result.as_ref().map_or(0, |result| result.text.len()).max(call.args.len()))
    }

    pub(super) fn tokens(&self, extent: Extent) -> u64 {
        match self {
            Self::User { note, text, images, .. } => {
                let pictures = IMAGE_TOKENS.saturating_mul(images.len() as u64);
                estimate_item_tokens(text.len() + note.as_ref().map_or(0, String::len)) + pictures
            }
            Self::UserCommand { text } => estimate_item_tokens(text.len()),
            Self::Assistant { provider_state, text, calls } => {
                let own = text.len() + provider_state.as_ref().map_or(0, String::len);
                let calls = calls.iter().map(|call| {
                    let result = call.result.as_ref().map_or(0, |result| result.text.len());
                    call.args_within(extent).len() + call.tool.len() + result.min(extent.result)
                });
                estimate_item_tokens(own) + calls.map(estimate_item_tokens).sum::<u64>()
            }
        }
    }
}

impl Call {
    /// Returns the arguments, or an object that states their omission if they exceed the limit.
    fn args_within(&self, extent: Extent) -> String {
        let bytes = self.args.len();
        if bytes <= extent.args.max(MIN_OMITTED_ARGS) {
            return self.args.clone();
        }
        serde_json::json!({ "omitted": format!("{bytes} bytes omitted because they do not fit") }).to_string()
    }

    fn entry(&self, extent: Extent) -> Entry {
        let (text, outcome) = match &self.result {
            Some(result) => (result.text.as_str(), result.outcome),
            None => ("its outcome is unknown", CallOutcome::Failed),
        };
        let mut excerpt = Excerpt::new(extent.result);
        excerpt.push(text);
        let (id, tool, text) = (self.id.as_str().to_owned(), self.tool.clone(), excerpt.finish());
        Entry::Result { id, tool, text, outcome }
    }
}

/// Describes a command of the user and its result for the model.
pub(super) fn user_command_text(intention: &Intention, settlement: &CallResult) -> String {
    let args: serde_json::Value = serde_json::from_str(intention.args.as_str()).unwrap_or_default();
    let what = match args.get("command").and_then(serde_json::Value::as_str) {
        Some(command) => format!("`{command}`"),
        None => format!("{} {}", intention.tool, intention.args.as_str()),
    };
    let mut text = format!("[The user ran {what} outside the conversation");
    match (settlement.exit_code, settlement.outcome) {
        (Some(code), _) => text.push_str(&format!("; it exited with {code}]")),
        (None, ToolOutcome::Succeeded) => text.push(']'),
        (None, ToolOutcome::Failed | ToolOutcome::Skipped) => text.push_str("; it failed]"),
        (None, ToolOutcome::Aborted) => text.push_str("; it was stopped]"),
    }
    let mut excerpt = Excerpt::new(USER_COMMAND_BYTES);
    excerpt.push(&result_text(settlement).0);
    let printed = excerpt.finish();
    if !printed.trim().is_empty() {
        text.push_str(&format!("\n{}", printed.trim_end()));
    }
    text
}

/// Returns the text of a call's result, with its error, and its outcome.
pub(super) fn result_text(settlement: &CallResult) -> (String, CallOutcome) {
    let outcome = match settlement.outcome {
        ToolOutcome::Succeeded => CallOutcome::Succeeded,
        ToolOutcome::Failed | ToolOutcome::Skipped | ToolOutcome::Aborted => CallOutcome::Failed,
    };
    let mut text = match (&settlement.error, settlement.outcome) {
        (Some(error), _) => match &error.detail {
            Some(detail) => format!("{}: {}\n{detail}\n", error.kind, error.message),
            None => format!("{}: {}\n", error.kind, error.message),
        },
        (None, ToolOutcome::Skipped) => "the user skipped the call\n".to_owned(),
        (None, ToolOutcome::Aborted) => "it was interrupted\n".to_owned(),
        (None, ToolOutcome::Failed) => "it failed\n".to_owned(),
        (None, ToolOutcome::Succeeded) => String::new(),
    };
    text.push_str(&settlement.text);
    (text, outcome)
}

/// Estimates the number of tokens of this many bytes, including the overhead of an entry.
pub(super) const fn estimate_item_tokens(bytes: usize) -> u64 {
    price::estimate_tokens(bytes) + 8
}

/// The size of a trimmed result.
const TRIMMED_RESULT_BYTES: usize = 2_000;
/// Arguments up to this length are never omitted: the replacement is about as long.
const MIN_OMITTED_ARGS: usize = 64;
/// The maximum size of the output of a user command.
const USER_COMMAND_BYTES: usize = 16_000;
/// The approximate cost of an image: servers scale large ones down.
const IMAGE_TOKENS: u64 = 1_600;
