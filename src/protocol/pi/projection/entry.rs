//! The entries of a conversation: a view of the conversation that the kernel folds.
//!
//! A summary hides the entries before it but removes none, because a fork may start from one of them. The message that
//! the assistant is writing is not an entry yet, and what arrived meanwhile follows it.

use std::borrow::Cow;
use std::sync::Arc;

use super::message_json::{
    AssistantFields, StopReason, ToolResult, announced_call_id, bash_execution, summary_message, user_message,
    write_assistant, write_blocks,
};
use super::parts::{ForkMessage, Stats};
use crate::kernel::conversation::{
    AssistantMessage, Call, CallCompletion, CallOutcome, Conversation, Interruption, Item, ItemContent, MessageEnd,
    SkipReason, Summary, UserCommand, UserMessage,
};
use crate::kernel::event::{CallResult, Purpose, RunOutcome};
use crate::kernel::id::{Json, Seq};
use crate::kernel::time::Now;
use crate::protocol::command_protocol::ForkPoint;
use crate::protocol::pi::projection::parts;

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The position of its first event.
    pub seq: Seq,
    /// Its index among the entries of that event, from zero.
    pub part: u32,
    /// The position of the last event that changed it.
    pub last_seq: Seq,
    /// The time of its first event.
    pub at: Now,
    /// The role of its author.
    pub role: Role,
    /// The session file entry it was imported from; empty for an entry that the import made up.
    pub origin: Option<&'a str>,
    source: Source<'a>,
}

/// The role of a message's author.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The user.
    User,
    /// The model.
    Assistant {
        /// The number of tool calls it requested.
        calls: u64,
    },
    /// The result of a tool call that the model requested.
    ToolResult,
    /// A shell command of the user.
    BashExecution,
    /// A summary that replaces the entries before an event.
    CompactionSummary {
        /// The first event that stays visible.
        kept_from: Seq,
        /// The approximate tokens of the conversation before the compaction.
        tokens_before: u64,
    },
}

/// The content of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source<'a> {
    User(&'a UserMessage),
    Assistant(&'a AssistantMessage),
    /// The result of a call in the message that starts with this event.
    Result(Seq, &'a Call, &'a CallCompletion),
    UserCommand(&'a UserCommand),
    LostCall(&'a CallResult),
    Summary(&'a Summary),
}

impl<'a> Entry<'a> {
    /// Returns the entry id that clients use.
    pub fn id(&self) -> String {
        entry_id(self.seq, self.part)
    }

    /// Returns the message as JSON.
    pub fn json(&self) -> Arc<str> {
        match self.source {
            Source::User(user) => user_message(&user.text, &user.images, self.at),
            Source::Assistant(message) => {
                let mut out = Vec::with_capacity(message.text_len() + 400);
                let fields = AssistantFields {
                    provider: &message.provider,
                    model: &message.model,
                    usage: message.usage,
                    has_calls: message.calls().next().is_some(),
                    stop: stop_reason(&message.end),
                    at: self.at,
                };
                write_assistant(&mut out, fields, |out| write_blocks(out, self.seq, &message.blocks));
                String::from_utf8_lossy(&out).into()
            }
            Source::Result(message, call, completion) => result(message, call, completion, self.at),
            Source::UserCommand(command) => {
                bash_execution(&command.intention.args, &command.result, command.is_in_context(), self.at)
            }
            Source::LostCall(result) => match result.purpose {
                Purpose::UserCommand { in_context } => bash_execution(&Json::new("{}"), result, in_context, self.at),
                Purpose::Work | Purpose::Check(_) => {
                    ToolResult::new(result.call.as_str(), &result.tool, result).message(self.at)
                }
            },
            Source::Summary(summary) => summary_message(summary),
        }
    }

    /// Returns the text of a message of the user or of the assistant, or of a summary.
    pub fn text(&self) -> Cow<'a, str> {
        match self.source {
            Source::User(user) => Cow::Borrowed(&user.text),
            Source::Assistant(message) => message.text(),
            Source::Summary(summary) => Cow::Borrowed(&summary.text),
            Source::Result(..) | Source::UserCommand(_) | Source::LostCall(_) => Cow::Borrowed(""),
        }
    }

    fn new(item: &'a Item, role: Role, source: Source<'a>) -> Self {
        let Item { first_seq, last_seq, at, .. } = *item;
        Self { seq: first_seq, part: 0, last_seq, at, role, origin: item.origin.as_deref(), source }
    }

    fn of_summary(summary: &'a Summary) -> Self {
        let Summary { created_at: seq, at, kept_from, tokens_before, .. } = *summary;
        let (role, origin) = (Role::CompactionSummary { kept_from, tokens_before }, summary.origin.as_deref());
        Self { seq, part: 0, last_seq: seq, at, role, origin, source: Source::Summary(summary) }
    }

    const fn is_summary(&self) -> bool {
        matches!(self.role, Role::CompactionSummary { .. })
    }
}

/// Returns every entry, including those that a summary replaces.
pub(super) fn all(conversation: &Conversation) -> impl Iterator<Item = Entry<'_>> {
    let mut summaries = conversation.summaries().iter().peekable();
    let mut items = conversation.settled_items(Seq::ZERO).into_iter().peekable();
    let mut entries = Vec::new().into_iter();
    std::iter::from_fn(move || {
        loop {
            if let Some(entry) = entries.next() {
                return Some(entry);
            }
            let next = items.peek().map(|item| item.place());
            if let Some(summary) = summaries.next_if(|summary| next.is_none_or(|next| summary.place <= next)) {
                return Some(Entry::of_summary(summary));
            }
            entries = of_item(items.next()?).into_iter();
        }
    })
}

/// Returns the entries of the items from an event on, without summaries.
pub(super) fn since(conversation: &Conversation, first: Seq) -> impl Iterator<Item = Entry<'_>> {
    conversation.settled_items(first).into_iter().flat_map(of_item)
}

/// Returns the visible entries: the latest summary and the entries it does not replace.
pub(super) fn visible(conversation: &Conversation) -> impl Iterator<Item = Entry<'_>> {
    let summary = conversation.summaries().last();
    let kept_from = summary.map_or(Seq::ZERO, |summary| summary.kept_from);
    let kept = all(conversation).filter(move |entry| entry.seq >= kept_from && !entry.is_summary());
    summary.map(Entry::of_summary).into_iter().chain(kept)
}

/// Returns the latest summary.
pub(super) fn summary(conversation: &Conversation) -> Option<parts::Summary> {
    let Summary { text, kept_from, tokens_before, .. } = conversation.summaries().last()?;
    let mut kept = all(conversation).filter(|entry| entry.seq >= *kept_from && !entry.is_summary());
    let first_kept_entry_id = kept.next().map_or_else(|| entry_id(*kept_from, 0), |entry| entry.id());
    Some(parts::Summary { summary: text.to_string(), first_kept_entry_id, tokens_before: *tokens_before })
}

/// Returns the messages that a fork can start from.
pub(super) fn fork_messages(conversation: &Conversation) -> Vec<ForkMessage> {
    let users = all(conversation).filter(|entry| entry.role == Role::User);
    users.map(|entry| ForkMessage { entry_id: entry.id(), text: entry.text().into_owned() }).collect()
}

/// Finds the fork point that excludes a user message.
pub(super) fn fork_point(conversation: &Conversation, id: &str) -> Option<ForkPoint> {
    let entry = all(conversation).find(|entry| entry.role == Role::User && entry.id() == id)?;
    Some(ForkPoint { text: entry.text().into_owned(), branch: conversation.branch_before(entry.seq) })
}

/// Returns the text of the last assistant message that has one.
pub(super) fn last_text(conversation: &Conversation) -> Option<String> {
    let texts = conversation
        .settled_items(Seq::ZERO)
        .into_iter()
        .rev()
        .filter_map(|item| item.assistant())
        .map(AssistantMessage::text);
    texts.map(Cow::into_owned).find(|text| !text.trim().is_empty())
}

/// Adds the counts of the visible entries.
pub(super) fn add_counts(conversation: &Conversation, stats: &mut Stats) {
    for entry in visible(conversation) {
        stats.total_messages += 1;
        match entry.role {
            Role::User => stats.user_messages += 1,
            Role::Assistant { calls } => {
                stats.assistant_messages += 1;
                stats.tool_calls += calls;
            }
            Role::ToolResult => stats.tool_results += 1,
            Role::BashExecution | Role::CompactionSummary { .. } => {}
        }
    }
}

/// Returns why a message ended.
pub(super) fn stop_reason(end: &MessageEnd) -> StopReason<'_> {
    match end {
        MessageEnd::Complete | MessageEnd::Superseded => StopReason::Complete,
        MessageEnd::Interrupted(Interruption::EventsLost) => StopReason::Failed("the end of the run is lost"),
        MessageEnd::Interrupted(Interruption::RunEnded(report)) => match report.outcome {
            RunOutcome::Success => StopReason::Complete,
            RunOutcome::Cancelled | RunOutcome::Denied => StopReason::Aborted(&report.summary),
            RunOutcome::Failed => StopReason::Failed(&report.summary),
        },
    }
}

/// Returns why a call was not executed.
pub(super) const fn skip_text(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::Steered => "a user message arrived first",
        SkipReason::RunEnded => "the run ended first",
    }
}

/// Returns the entries of an item: a message is followed by the results of its calls, in the order of completion.
fn of_item(item: &Item) -> Vec<Entry<'_>> {
    match &item.content {
        ItemContent::UserMessage(user) => vec![Entry::new(item, Role::User, Source::User(user))],
        ItemContent::UserCommand(command) => {
            vec![Entry::new(item, Role::BashExecution, Source::UserCommand(command))]
        }
        ItemContent::LostCall(result) => {
            let role = match result.purpose {
                Purpose::UserCommand { .. } => Role::BashExecution,
                Purpose::Work | Purpose::Check(_) => Role::ToolResult,
            };
            vec![Entry::new(item, role, Source::LostCall(result))]
        }
        ItemContent::AssistantMessage(message) if is_shown(message) => {
            let role = Role::Assistant { calls: message.calls().count() as u64 };
            let mut entries = vec![Entry::new(item, role, Source::Assistant(message))];
            entries.extend(results(item.first_seq, message));
            entries[1..].sort_by_key(|entry| entry.seq);
            entries
        }
        ItemContent::AssistantMessage(_) => Vec::new(),
    }
}

/// Returns whether a message is an entry. One without content is, if it is the end of a run without an answer.
fn is_shown(message: &AssistantMessage) -> bool {
    match message.end {
        MessageEnd::Complete => message.has_content(),
        MessageEnd::Interrupted(_) => message.has_content() || message.blocks.is_empty(),
        MessageEnd::Superseded => false,
    }
}

/// Returns the results of a message's calls, in the order of the calls.
fn results(first_seq: Seq, message: &AssistantMessage) -> impl Iterator<Item = Entry<'_>> {
    let mut skipped = 0;
    let completed = message.calls().filter_map(|call| Some((call, call.completion.as_ref()?)));
    completed.map(move |(call, completion)| {
        let CallCompletion { seq, at, .. } = *completion;
        let part = match completion.outcome {
            CallOutcome::Settled(_) => 0,
            CallOutcome::Skipped(_) => {
                skipped += 1;
                skipped
            }
        };
        let (role, origin) = (Role::ToolResult, completion.origin.as_deref());
        let source = Source::Result(first_seq, call, completion);
        Entry { seq, part, last_seq: seq, at, role, origin, source }
    })
}

fn result(message: Seq, call: &Call, completion: &CallCompletion, at: Now) -> Arc<str> {
    let (announced, request) = (call.announcement.as_ref(), call.request.as_ref());
    let id = announced.map(|announced| announced_call_id(message, announced.index));
    let id = id.or_else(|| Some(request?.id.as_str().to_owned())).unwrap_or_default();
    let tool = request.map(|request| &request.tool).or_else(|| announced.map(|announced| &announced.call.tool));
    let tool = tool.map(String::as_str).unwrap_or_default();
    match &completion.outcome {
        CallOutcome::Settled(result) => ToolResult::new(&id, tool, result).message(at),
        CallOutcome::Skipped(reason) => ToolResult::skipped(&id, tool, skip_text(*reason)).message(at),
    }
}

fn entry_id(seq: Seq, part: u32) -> String {
    match part {
        0 => format!("{:08x}", seq.number()),
        part => format!("{:08x}-{part}", seq.number()),
    }
}
