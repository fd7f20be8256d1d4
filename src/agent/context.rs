//! The conversation as a model receives it, folded from a session's events.
//!
//! It is folded from the journal when a turn starts. An interrupted text that was repeated appears once. The
//! unfinished output of a run is marked as interrupted. Results follow their calls, whatever arrived in between. A
//! branch restores the conversation at its point, with the summary that was valid there.

mod item;

use std::collections::{BTreeMap, VecDeque};

use super::RAISE_BUDGET;
use crate::kernel::event::{
    CallResult, Compaction, Event, EventKind, Image, Intention, PendingCall, Purpose, RunOutcome, RunReport,
    TokenUsage, TurnUsage, is_turn_interrupted,
};
use crate::kernel::gate::DENIED_BY_POLICY;
use crate::kernel::id::{CallId, MessageId, Seq};
use crate::provider::model::Entry;
use item::{Call, Extent, Item, ItemContent, RecordedResult, estimate_item_tokens, result_text, user_command_text};

/// A conversation.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Context {
    items: Vec<Item>,
    /// The summaries of older parts, the newest last.
    summaries: Vec<Summary>,
    /// The sequence number of the newest event.
    last_seq: Seq,
    /// Running commands of the user whose result the model receives.
    user_commands: BTreeMap<CallId, Intention>,
    /// The text of the turn in progress, and its first event.
    partial_text: String,
    partial_since: Option<Seq>,
    /// The calls of the last turn that have not started yet.
    pending: VecDeque<PendingCall>,
    /// A note for the model, sent with the next message.
    note: Option<String>,
    /// The number of items that the server last counted, and their tokens.
    counted_tokens: Option<(usize, u64)>,
}

/// A summary, which replaces everything before an event.
#[derive(Debug, PartialEq, Eq)]
struct Summary {
    /// The newest event when it was created.
    created_at: Seq,
    kept_from: Seq,
    text: String,
}

/// The level of detail of tool results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultDetail {
    /// Complete results.
    Full,
    /// Only the beginning and the end, except for the newest items.
    Trimmed,
    /// At most this many bytes of each result, the newest included; longer arguments are omitted.
    Limited(usize),
}

impl ResultDetail {
    /// Returns the limits of the item at index `at`, where the newest items start at index `newest`.
    const fn extent(self, at: usize, newest: usize) -> Extent {
        match self {
            Self::Trimmed if at < newest => Extent::TRIMMED,
            Self::Full | Self::Trimmed => Extent::FULL,
            Self::Limited(bytes) => Extent::limited(bytes),
        }
    }
}

impl Context {
    /// Adds one event.
    pub fn fold(&mut self, event: &Event) {
        self.last_seq = event.seq;
        match &event.kind {
            EventKind::RunStarted(message) => self.add_user_message(&message.message, &message.text, &message.images),
            EventKind::Steered(steering) => {
                // Steering takes precedence: the pending calls of the model are dropped.
                self.pending.clear();
                self.add_user_message(&steering.message, &steering.text, &steering.images);
            }
            EventKind::TextDelta { text } => {
                self.partial_since.get_or_insert(event.seq);
                self.partial_text.push_str(text);
            }
            EventKind::TurnUsage(usage) => self.end_turn(event.seq, usage),
            EventKind::CallIntended(intention) => self.add_call(event.seq, intention),
            EventKind::CallSettled(settlement) => self.set_result(settlement),
            EventKind::Branched { branch, by: _ } => self.rewind_to(branch.until),
            EventKind::Compacted(compaction) => self.compact(compaction),
            EventKind::RunRecovered { phase: _ } => self.discard_partial(),
            EventKind::Warned { code, .. } if is_turn_interrupted(code) => self.discard_partial(),
            EventKind::RunEnded(report) => self.end_run(event.seq, report),
            EventKind::EventsLost { after: _, cause: _ } => {
                self.discard_partial();
                self.note = Some("Part of this conversation is lost.".to_owned());
            }
            EventKind::VersionBumped { .. }
            | EventKind::Loaded { .. }
            | EventKind::Adjusted { .. }
            | EventKind::CompactionStarted { .. }
            | EventKind::CompactionFailed { .. }
            | EventKind::RetryStarted(_)
            | EventKind::RetryEnded { .. }
            | EventKind::SessionOpened(_)
            | EventKind::SessionRenamed { .. }
            | EventKind::SessionEnded { .. }
            | EventKind::MessageQueued(_)
            | EventKind::MessageUnqueued { .. }
            | EventKind::Status { .. }
            | EventKind::ThinkingDelta { .. }
            | EventKind::TextDone { .. }
            | EventKind::CallStarted { .. }
            | EventKind::CallOutput { .. }
            | EventKind::GateOpened(_)
            | EventKind::GateVoted { .. }
            | EventKind::GateSettled(_)
            | EventKind::Warned { .. }
            | EventKind::Failed { .. }
            | EventKind::RunStopping { .. }
            | EventKind::Unknown(_) => {}
        }
    }

    /// Replaces the older part by a summary.
    pub fn compact(&mut self, compaction: &Compaction) {
        let Compaction { summary, kept_from, tokens_before: _ } = compaction.clone();
        self.summaries.push(Summary { created_at: self.last_seq, kept_from, text: summary });
        self.counted_tokens = None;
    }

    /// Returns whether the conversation has no items.
    pub fn is_empty(&self) -> bool {
        self.visible_items().is_empty()
    }

    /// Returns the pending calls of the model, in order.
    pub fn pending(&self) -> impl Iterator<Item = &PendingCall> {
        self.pending.iter()
    }

    /// Returns how many of the newest calls since the last message, without a gap, the policy of the run denied.
    pub fn policy_denials(&self) -> usize {
        let since = self.items.iter().rev().take_while(|item| !matches!(item.content, ItemContent::User { .. }));
        let results = since.flat_map(|item| item.content.calls().iter().rev()).map(|call| call.result.as_ref());
        results.take_while(|result| result.is_some_and(|result| result.denied_by_policy)).count()
    }

    /// Returns the last text of the model.
    pub fn last_text(&self) -> &str {
        let texts = self.visible_items().iter().rev().filter_map(|item| match &item.content {
            ItemContent::Assistant { text, .. } => Some(text.trim()),
            ItemContent::User { .. } | ItemContent::UserCommand { .. } => None,
        });
        texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
    }

    /// Returns the conversation for a request; `whole` holds unredacted texts of messages, which replace the stored
    /// ones.
    pub fn entries(&self, whole: &BTreeMap<MessageId, String>, results: ResultDetail) -> Vec<Entry> {
        let items = self.visible_items();
        let newest = items.len().saturating_sub(UNTRIMMED_ITEMS);
        let items = items.iter().enumerate();
        let items = items.flat_map(|(at, item)| item.content.entries(whole, results.extent(at, newest)));
        let mut entries: Vec<_> = self.summary_entry().into_iter().chain(items).collect();
        // Servers treat a final assistant text as the prefix of the next one.
        if matches!(entries.last(), Some(Entry::Assistant { calls, .. }) if calls.is_empty()) {
            entries.push(Entry::user(RESTARTED_PROMPT.to_owned()));
        }
        entries
    }

    /// Estimates the number of tokens of the conversation, including the `fixed` ones of every request.
    pub fn tokens(&self, fixed: u64, results: ResultDetail) -> u64 {
        let items = self.visible_items();
        let newest = items.len().saturating_sub(UNTRIMMED_ITEMS);
        let size = |(at, item): (usize, &Item)| item.content.tokens(results.extent(at, newest));
        let sum = |from: usize| items.iter().enumerate().skip(from).map(size).fold(0, u64::saturating_add);
        let summary = self.summaries.last().map_or(0, |summary| estimate_item_tokens(summary.text.len()));
        let estimated = fixed.saturating_add(summary).saturating_add(sum(0));
        match (self.counted_tokens, results) {
            // The counted request may have been trimmed, while this one would be complete.
            (Some((items, tokens)), ResultDetail::Full) => tokens.saturating_add(sum(items)).max(estimated),
            (Some(_), ResultDetail::Trimmed | ResultDetail::Limited(_)) | (None, _) => estimated,
        }
    }

    /// Finds the cut that keeps about `keep` tokens of the newest part; both sides must be non-empty.
    pub fn find_cut(&self, keep: u64) -> Option<Seq> {
        let items = self.visible_items();
        let mut tokens = 0;
        let mut first = items.len();
        while first > 1 {
            tokens += items[first - 1].content.tokens(Extent::FULL);
            // The newest item is always kept.
            if tokens > keep && first < items.len() {
                break;
            }
            first -= 1;
        }
        (first > 0).then(|| items.get(first).map(|item| item.first_seq)).flatten()
    }

    /// Returns the sizes of the calls in the conversation: of the result or of the arguments, whichever is larger.
    pub fn result_sizes(&self) -> impl Iterator<Item = usize> {
        self.visible_items().iter().flat_map(|item| item.content.result_sizes())
    }

    /// Estimates the number of tokens of the part before `kept_from`, as sent for its summary.
    pub fn tokens_before(&self, kept_from: Seq) -> u64 {
        let older = self.visible_items().iter().filter(|item| item.first_seq < kept_from);
        let summary = self.summaries.last().map_or(0, |summary| estimate_item_tokens(summary.text.len()));
        older.map(|item| item.content.tokens(Extent::TRIMMED)).fold(summary, u64::saturating_add)
    }

    /// Returns the part before `kept_from` for its summary, as far as it fits into `max_tokens` tokens.
    ///
    /// The oldest items are omitted first, and the earlier summary last.
    pub fn entries_before(&self, kept_from: Seq, max_tokens: u64) -> Vec<Entry> {
        let older: Vec<_> = self.visible_items().iter().take_while(|item| item.first_seq < kept_from).collect();
        let earlier = self.summary_entry();
        let summary = self.summaries.last().map_or(0, |summary| estimate_item_tokens(summary.text.len()));
        let earlier = earlier.filter(|_| summary <= max_tokens);
        let mut left = max_tokens.saturating_sub(if earlier.is_some() { summary } else { 0 });
        let fitting = older.iter().rev().take_while(|item| {
            let tokens = item.content.tokens(Extent::TRIMMED);
            let fits = tokens <= left;
            left = left.saturating_sub(tokens);
            fits
        });
        let fitting = fitting.count();
        let retained = older.iter().skip(older.len() - fitting).flat_map(|item| item.content.entries_for_summary());
        let left_out = (fitting < older.len()).then(|| Entry::user(OMITTED_NOTICE.to_owned()));
        let entries: Vec<_> = earlier.into_iter().chain(retained).collect();
        if entries.is_empty() { entries } else { left_out.into_iter().chain(entries).collect() }
    }

    /// Returns the text that replaces the part before `kept_from` if no summary of it can be made.
    pub fn omission_notice(&self, kept_from: Seq) -> String {
        let older = self.visible_items().iter().filter(|item| item.first_seq < kept_from);
        let user_messages: Vec<_> = older
            .filter_map(|item| match &item.content {
                ItemContent::User { text, .. } => Some(excerpt(text)),
                ItemContent::Assistant { .. } | ItemContent::UserCommand { .. } => None,
            })
            .collect();
        let newest = user_messages.len().saturating_sub(MAX_EXCERPTS);
        let user_messages: String = user_messages.iter().skip(newest).map(|text| format!("\n- {text}")).collect();
        // An earlier text of this kind says nothing of the conversation; the last summary that a model wrote does.
        let written = self.summaries.iter().rev().find(|summary| !summary.text.starts_with(OMITTED_NOTICE));
        let earlier = written.map(|summary| excerpt(&summary.text));
        let earlier = earlier.map_or_else(String::new, |text| format!("\nThe previous summary begins: {text}"));
        let began = if user_messages.is_empty() { "" } else { "\nThe user's messages in it begin:" };
        format!("{OMITTED_NOTICE}{earlier}{began}{user_messages}")
    }

    /// Returns the items that no summary replaces.
    fn visible_items(&self) -> &[Item] {
        let kept_from = self.summaries.last().map_or(Seq::ZERO, |summary| summary.kept_from);
        let first = self.items.partition_point(|item| item.first_seq < kept_from);
        self.items.get(first..).unwrap_or_default()
    }

    fn summary_entry(&self) -> Option<Entry> {
        let summary = self.summaries.last()?;
        Some(Entry::user(format!("{SUMMARY_HEADING}\n\n{}", summary.text)))
    }

    fn add(&mut self, since: Seq, content: ItemContent) {
        self.items.push(Item { first_seq: since, last_seq: self.last_seq, content });
    }

    fn add_user_message(&mut self, message: &MessageId, text: &str, images: &[Image]) {
        let (message, text, images) = (message.clone(), text.to_owned(), images.to_vec());
        let note = self.note.take();
        self.add(self.last_seq, ItemContent::User { message, note, text, images });
    }

    /// Removes everything after an event.
    fn rewind_to(&mut self, until: Seq) {
        self.items.retain(|item| item.last_seq <= until);
        self.summaries.retain(|summary| summary.created_at <= until);
        let calls = self.items.iter_mut().filter_map(|item| match &mut item.content {
            ItemContent::Assistant { calls, .. } => Some(calls),
            ItemContent::User { .. } | ItemContent::UserCommand { .. } => None,
        });
        for calls in calls {
            calls.retain(|call| call.requested_at <= until);
            for call in calls {
                call.result = call.result.take().filter(|result| result.completed_at <= until);
            }
        }
        self.discard_partial();
        self.pending.clear();
        self.note = None;
        self.counted_tokens = None;
    }

    fn end_turn(&mut self, seq: Seq, usage: &TurnUsage) {
        let since = self.partial_since.take().unwrap_or(seq);
        let text = std::mem::take(&mut self.partial_text);
        let content = ItemContent::Assistant { provider_state: usage.provider_state.clone(), text, calls: Vec::new() };
        // A steering message that arrived during the text follows the text.
        let at = self.items.partition_point(|item| item.first_seq < since);
        self.items.insert(at, Item { first_seq: since, last_seq: self.last_seq, content });
        self.pending = usage.pending.iter().cloned().collect();
        let TokenUsage { input, output, estimated, .. } = usage.usage;
        // A server that does not count tokens reports zero.
        let left_out = self.items.len() - self.visible_items().len();
        let counted = (at + 1).saturating_sub(left_out);
        self.counted_tokens = (input > 0 && !estimated).then_some((counted, input.saturating_add(output)));
    }

    fn add_call(&mut self, seq: Seq, intention: &Intention) {
        if intention.purpose == (Purpose::UserCommand { in_context: true }) {
            self.user_commands.insert(intention.call.clone(), intention.clone());
        }
        if intention.purpose != Purpose::Work || intention.tool == RAISE_BUDGET {
            return;
        }
        // Calls are requested in order and without others in between; their arguments may differ by redaction.
        self.pending.pop_front();
        let call = Call {
            id: intention.call.clone(),
            tool: intention.tool.clone(),
            args: intention.args.as_str().to_owned(),
            requested_at: seq,
            result: None,
        };
        let latest = self.items.iter_mut().rev().find_map(|item| match &mut item.content {
            ItemContent::Assistant { calls, .. } => Some(calls),
            ItemContent::User { .. } | ItemContent::UserCommand { .. } => None,
        });
        match latest {
            Some(calls) => calls.push(call),
            None => {
                self.add(seq, ItemContent::Assistant { provider_state: None, text: String::new(), calls: vec![call] });
            }
        }
    }

    fn set_result(&mut self, settlement: &CallResult) {
        if let Some(intention) = self.user_commands.remove(&settlement.call) {
            return self
                .add(self.last_seq, ItemContent::UserCommand { text: user_command_text(&intention, settlement) });
        }
        let calls = self.items.iter_mut().rev().filter_map(|item| match &mut item.content {
            ItemContent::Assistant { calls, .. } => Some(calls),
            ItemContent::User { .. } | ItemContent::UserCommand { .. } => None,
        });
        let call = calls.flatten().find(|call| call.id == settlement.call);
        if let Some(call) = call {
            let (text, outcome) = result_text(settlement);
            let error = settlement.error.as_ref();
            let denied_by_policy = error.is_some_and(|error| error.kind == DENIED_BY_POLICY);
            call.result = Some(RecordedResult { completed_at: self.last_seq, text, outcome, denied_by_policy });
        }
    }

    fn discard_partial(&mut self) {
        self.partial_text.clear();
        self.partial_since = None;
    }

    fn end_run(&mut self, seq: Seq, report: &RunReport) {
        self.pending.clear();
        if !self.partial_text.is_empty() {
            let since = self.partial_since.unwrap_or(seq);
            let text = format!("{} [interrupted]", self.partial_text);
            self.add(since, ItemContent::Assistant { provider_state: None, text, calls: Vec::new() });
            self.discard_partial();
        }
        self.note = run_end_note(report);
    }
}

/// Returns the beginning of a text on one line.
fn excerpt(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut = line.chars().count() > EXCERPT_CHARS;
    line.chars().take(EXCERPT_CHARS).chain(cut.then_some('…')).collect()
}

/// Returns a note on the end of a run, unless it succeeded.
fn run_end_note(report: &RunReport) -> Option<String> {
    let checks: Vec<_> = report
        .checks
        .iter()
        .filter(|check| !check.passed)
        .map(|check| format!("check {} failed:\n{}", check.id, check.output.trim_end()))
        .collect();
    let how = match report.outcome {
        RunOutcome::Success => return None,
        RunOutcome::Failed => "failed",
        RunOutcome::Cancelled => "was cancelled",
        RunOutcome::Denied => "was ended because a step was denied",
    };
    let mut note = format!("The previous run {how}: {}", report.summary);
    for check in checks {
        note.push('\n');
        note.push_str(&check);
    }
    Some(note)
}

/// The prompt after a restart if the conversation ends with a text of the model.
const RESTARTED_PROMPT: &str =
    "[The daemon was restarted. If everything is done, say so in one sentence; otherwise go on.]";
/// The heading of a summary.
const SUMMARY_HEADING: &str = "Summary of the conversation so far, which is not repeated word by word:";
/// The notice in place of a part that did not fit.
const OMITTED_NOTICE: &str =
    "[The older part of this conversation is left out: it does not fit into the context window of the model.]";
/// How many excerpts of messages an omission notice contains, and their maximum length in characters.
const MAX_EXCERPTS: usize = 5;
const EXCERPT_CHARS: usize = 200;
/// How many of the newest items keep complete results when results are trimmed.
const UNTRIMMED_ITEMS: usize = 6;

#[cfg(test)]
#[path = "context_tests.rs"]
pub(super) mod tests;
