//! The items of a context: their entries in a request, and their estimated tokens.

use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;

use crate::agent::price;
use crate::kernel::conversation::{
    AssistantMessage, CallRequest, Interruption, Item, ItemContent, MessageEnd, UserCommand,
};
use crate::kernel::event::{CallResult, RunOutcome, RunReport, ToolOutcome};
use crate::kernel::gate::DENIED_BY_POLICY;
use crate::kernel::id::{MessageId, Seq};
use crate::provider::model::{self, CallOutcome, Entry};
use crate::sandbox::output::Excerpt;

/// An item of a conversation that the model sees; the messages of one turn are one item.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContextItem {
    item: Arc<Item>,
    /// The further messages of the same turn.
    more: Vec<Arc<Item>>,
    /// The text that is not in the item: the note before a message, or the description of a user command.
    description: Option<String>,
}

/// A requested call, with its result if it has one.
#[derive(Clone, Copy)]
struct Call<'a> {
    request: &'a CallRequest,
    result: Option<&'a CallResult>,
}

/// The limits on the calls of an item, in bytes for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallByteLimits {
    result: usize,
    args: usize,
}

impl CallByteLimits {
    /// No limit.
    pub(super) const FULL: Self = Self { result: usize::MAX, args: usize::MAX };
    /// Only the beginnings and ends of results.
    pub(super) const TRIMMED: Self = Self { result: TRIMMED_RESULT_BYTES, args: usize::MAX };

    /// Limits results to `bytes`, and omits longer arguments.
    pub(super) const fn limited(bytes: usize) -> Self {
        Self { result: bytes, args: bytes }
    }
}

impl ContextItem {
    /// Returns the view of an item; `None` if the model does not see it.
    pub(super) fn new(item: &Arc<Item>) -> Option<Self> {
        let description = match &item.content {
            ItemContent::UserMessage(message) => message.interruption.as_ref().map(interruption_note),
            ItemContent::AssistantMessage(message) if message.is_superseded() => return None,
            // A turn without output has been counted; the end of a run without an answer is a note.
            ItemContent::AssistantMessage(message) if !message.has_content() && message.usage.is_none() => return None,
            ItemContent::AssistantMessage(_) => None,
            ItemContent::UserCommand(command) if command.is_in_context() => Some(user_command_text(command)),
            ItemContent::UserCommand(_) | ItemContent::LostCall(_) => return None,
        };
        Some(Self { item: Arc::clone(item), more: Vec::new(), description })
    }

    /// Returns the view of items.
    pub(super) fn all(items: &[Arc<Item>]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::with_capacity(items.len());
        for item in items.iter().filter_map(Self::new) {
            // A message of the user may have arrived between two messages of a turn.
            let latest = all.iter_mut().rev().find(|item| item.turn().is_some());
            match latest.filter(|latest| item.turn().is_some() && item.turn() == latest.turn()) {
                Some(latest) => latest.more.push(item.item),
                None => all.push(item),
            }
        }
        all
    }

    /// Returns its first event.
    pub(super) fn first_seq(&self) -> Seq {
        self.item.first_seq
    }

    /// Returns the text of the user's message.
    pub(super) fn user_text(&self) -> Option<&str> {
        match &self.item.content {
            ItemContent::UserMessage(message) => Some(&message.text),
            ItemContent::AssistantMessage(_) | ItemContent::UserCommand(_) | ItemContent::LostCall(_) => None,
        }
    }

    /// Returns the text of the model's turn; the unfinished output of a run is marked.
    pub(super) fn assistant_text(&self) -> Option<String> {
        self.turn()?;
        let mut text: String = self.messages().map(AssistantMessage::text).collect();
        if self.is_interrupted() {
            text.push_str(INTERRUPTED);
        }
        Some(text)
    }

    /// Returns the entries of a request; `whole` holds unredacted texts of messages, which replace the stored ones.
    pub(super) fn entries(&self, whole: &BTreeMap<MessageId, String>, limits: CallByteLimits) -> Vec<Entry> {
        match &self.item.content {
            ItemContent::UserMessage(message) => {
                let text = whole.get(&message.message).unwrap_or(&message.text);
                let text = match &self.description {
                    Some(note) => format!("[{note}]\n\n{text}"),
                    None => text.clone(),
                };
                vec![Entry::User { text, images: message.images.clone() }]
            }
            ItemContent::UserCommand(_) | ItemContent::LostCall(_) => {
                vec![Entry::user(self.description.clone().unwrap_or_default())]
            }
            ItemContent::AssistantMessage(_) => {
                let text = self.assistant_text().unwrap_or_default();
                let calls = self.calls().map(|call| model::ToolCall {
                    id: call.request.id.as_str().to_owned(),
                    tool: call.request.tool.clone(),
                    args: args_within(call, limits),
                });
                let calls: Vec<_> = calls.collect();
                // An empty turn has no entry.
                if text.trim().is_empty() && calls.is_empty() {
                    return Vec::new();
                }
                let provider_state = self.messages().find_map(|message| message.provider_state.clone());
                let turn = Entry::Assistant { provider_state, text, calls };
                iter::once(turn).chain(self.calls().map(|call| result_entry(call, limits))).collect()
            }
        }
    }

    /// Returns the entries for a summary request: images are only mentioned.
    pub(super) fn entries_for_summary(&self) -> Vec<Entry> {
        let mut entries = self.entries(&BTreeMap::new(), CallByteLimits::TRIMMED);
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

    /// Returns the sizes of its calls: of the result or of the arguments, whichever is larger.
    pub(super) fn result_sizes(&self) -> impl Iterator<Item = usize> {
        self.calls().map(|call| result_len(call).max(call.request.args.as_str().len()))
    }

    /// Returns, from the newest call to the oldest, whether the policy of the run denied it.
    pub(super) fn denials(&self) -> impl Iterator<Item = bool> {
        self.calls().rev().map(|call| {
            let error = call.result.and_then(|result| result.error.as_ref());
            error.is_some_and(|error| error.kind == DENIED_BY_POLICY)
        })
    }

    /// Estimates its tokens.
    pub(super) fn tokens(&self, limits: CallByteLimits) -> u64 {
        let described = self.description.as_ref().map_or(0, String::len);
        match &self.item.content {
            ItemContent::UserMessage(message) => {
                let pictures = IMAGE_TOKENS.saturating_mul(message.images.len() as u64);
                estimate_item_tokens(message.text.len() + described) + pictures
            }
            ItemContent::UserCommand(_) | ItemContent::LostCall(_) => estimate_item_tokens(described),
            ItemContent::AssistantMessage(_) => {
                let marker = if self.is_interrupted() { INTERRUPTED.len() } else { 0 };
                let own = self
                    .messages()
                    .map(|message| message.text_len() + message.provider_state.as_ref().map_or(0, String::len));
                let calls = self.calls().map(|call| {
                    args_len_within(call, limits) + call.request.tool.len() + result_len(call).min(limits.result)
                });
                estimate_item_tokens(own.sum::<usize>() + marker) + calls.map(estimate_item_tokens).sum::<u64>()
            }
        }
    }

    fn turn(&self) -> Option<Seq> {
        self.item.assistant().map(|message| message.turn)
    }

    /// Returns the messages of the turn.
    fn messages(&self) -> impl DoubleEndedIterator<Item = &AssistantMessage> {
        iter::once(&self.item).chain(&self.more).filter_map(|item| item.assistant())
    }

    /// Returns the calls of the turn that were requested.
    fn calls(&self) -> impl DoubleEndedIterator<Item = Call<'_>> {
        self.messages().flat_map(AssistantMessage::calls).filter_map(|call| {
            let result = call.completion.as_ref().and_then(|completion| completion.result());
            Some(Call { request: call.request.as_ref()?, result })
        })
    }

    /// Returns whether the run ended within the text of the turn.
    fn is_interrupted(&self) -> bool {
        let is_interrupted = |message: &AssistantMessage| match message.end {
            MessageEnd::Interrupted(_) => true,
            MessageEnd::Complete | MessageEnd::Superseded => false,
        };
        self.messages().any(is_interrupted) && self.messages().any(|message| message.text_len() > 0)
    }
}

/// Returns the arguments of a call, or an object that states their omission if they exceed the limit.
fn args_within(call: Call<'_>, limits: CallByteLimits) -> String {
    omitted_args(call, limits).unwrap_or_else(|| call.request.args.as_str().to_owned())
}

fn args_len_within(call: Call<'_>, limits: CallByteLimits) -> usize {
    omitted_args(call, limits).map_or(call.request.args.as_str().len(), |omitted| omitted.len())
}

fn omitted_args(call: Call<'_>, limits: CallByteLimits) -> Option<String> {
    let bytes = call.request.args.as_str().len();
    let omits = bytes > limits.args.max(MIN_OMITTED_ARGS);
    let object = || serde_json::json!({ "omitted": format!("{bytes} bytes omitted because they do not fit") });
    omits.then(|| object().to_string())
}

fn result_entry(call: Call<'_>, limits: CallByteLimits) -> Entry {
    let mut excerpt = Excerpt::new(limits.result);
    let outcome = match call.result {
        Some(result) => {
            excerpt.push(&failure_text(result));
            excerpt.push(&result.text);
            match result.outcome {
                ToolOutcome::Succeeded => CallOutcome::Succeeded,
                ToolOutcome::Failed | ToolOutcome::Skipped | ToolOutcome::Aborted => CallOutcome::Failed,
            }
        }
        None => {
            excerpt.push("its outcome is unknown");
            CallOutcome::Failed
        }
    };
    let (id, tool, text) = (call.request.id.as_str().to_owned(), call.request.tool.clone(), excerpt.finish());
    Entry::Result { id, tool, text, outcome }
}

/// Returns the length of a call's result with its error, in bytes.
fn result_len(call: Call<'_>) -> usize {
    call.result.map_or(0, |result| failure_text(result).len() + result.text.len())
}

/// Returns the lines before the output of a call that did not succeed.
fn failure_text(result: &CallResult) -> String {
    match (&result.error, result.outcome) {
        (Some(error), _) => match &error.detail {
            Some(detail) => format!("{}: {}\n{detail}\n", error.kind, error.message),
            None => format!("{}: {}\n", error.kind, error.message),
        },
        (None, ToolOutcome::Skipped) => "the user skipped the call\n".to_owned(),
        (None, ToolOutcome::Aborted) => "it was interrupted\n".to_owned(),
        (None, ToolOutcome::Failed) => "it failed\n".to_owned(),
        (None, ToolOutcome::Succeeded) => String::new(),
    }
}

/// Describes a command of the user and its result for the model.
fn user_command_text(command: &UserCommand) -> String {
    let UserCommand { intention, result } = command;
    let args: serde_json::Value = serde_json::from_str(intention.args.as_str()).unwrap_or_default();
    let what = match args.get("command").and_then(serde_json::Value::as_str) {
        Some(command) => format!("`{command}`"),
        None => format!("{} {}", intention.tool, intention.args.as_str()),
    };
    let mut text = format!("[The user ran {what} outside the conversation");
    match (result.exit_code, result.outcome) {
        (Some(code), _) => text.push_str(&format!("; it exited with {code}]")),
        (None, ToolOutcome::Succeeded) => text.push(']'),
        (None, ToolOutcome::Failed | ToolOutcome::Skipped) => text.push_str("; it failed]"),
        (None, ToolOutcome::Aborted) => text.push_str("; it was stopped]"),
    }
    let mut excerpt = Excerpt::new(USER_COMMAND_BYTES);
    excerpt.push(&failure_text(result));
    excerpt.push(&result.text);
    let printed = excerpt.finish();
    if !printed.trim().is_empty() {
        text.push_str(&format!("\n{}", printed.trim_end()));
    }
    text
}

/// Describes what interrupted the conversation before a message.
fn interruption_note(interruption: &Interruption) -> String {
    match interruption {
        Interruption::RunEnded(report) => run_end_note(report),
        Interruption::EventsLost => "Part of this conversation is lost.".to_owned(),
    }
}

fn run_end_note(report: &RunReport) -> String {
    let how = match report.outcome {
        RunOutcome::Success => "succeeded",
        RunOutcome::Failed => "failed",
        RunOutcome::Cancelled => "was cancelled",
        RunOutcome::Denied => "was ended because a step was denied",
    };
    let mut note = format!("The previous run {how}: {}", report.summary);
    for check in report.checks.iter().filter(|check| !check.passed) {
        note.push_str(&format!("\ncheck {} failed:\n{}", check.id, check.output.trim_end()));
    }
    note
}

/// Estimates the number of tokens of this many bytes, including the overhead of an entry.
pub(super) const fn estimate_item_tokens(bytes: usize) -> u64 {
    price::estimate_tokens(bytes) + 8
}

/// What marks the unfinished output of a run.
const INTERRUPTED: &str = " [interrupted]";
/// The size of a trimmed result.
const TRIMMED_RESULT_BYTES: usize = 2_000;
/// Arguments up to this length are never omitted: the replacement is about as long.
const MIN_OMITTED_ARGS: usize = 64;
/// The maximum size of the output of a user command.
const USER_COMMAND_BYTES: usize = 16_000;
/// The approximate cost of an image: servers scale large ones down.
const IMAGE_TOKENS: u64 = 1_600;
