//! The conversation as a model receives it: a view of the conversation that the kernel folds.
//!
//! The part that a summary replaces is not sent. The unfinished output of a run is marked as interrupted. Results follow
//! their calls. A note before a message says how the previous run ended, unless it succeeded.

mod item;

use std::collections::BTreeMap;

use crate::kernel::conversation::{Conversation, CountedTokens, Summary};
use crate::kernel::event::{Compaction, PendingCall};
use crate::kernel::id::{MessageId, Seq};
use crate::provider::model::Entry;
use item::{CallByteLimits, ContextItem, estimate_item_tokens};

/// The context of a model.
#[derive(Debug, PartialEq, Eq)]
pub struct Context {
    /// What the model sees, as if there were no summary.
    items: Vec<ContextItem>,
    /// The summaries of older parts, the newest last.
    summaries: Vec<Summary>,
    /// The newest event.
    last_seq: Seq,
    /// The calls of the last turn that have not started yet.
    pending: Vec<PendingCall>,
    counted_tokens: Option<CountedTokens>,
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
    const fn call_limits(self, at: usize, newest: usize) -> CallByteLimits {
        match self {
            Self::Trimmed if at < newest => CallByteLimits::TRIMMED,
            Self::Full | Self::Trimmed => CallByteLimits::FULL,
            Self::Limited(bytes) => CallByteLimits::limited(bytes),
        }
    }
}

impl Context {
    /// Returns the view of a conversation.
    pub fn new(conversation: &Conversation) -> Self {
        Self {
            items: ContextItem::all(conversation.items()),
            summaries: conversation.summaries().to_vec(),
            last_seq: conversation.last_seq(),
            pending: conversation.pending().cloned().collect(),
            counted_tokens: conversation.counted_tokens(),
        }
    }

    /// Replaces the older part by a summary.
    pub fn compact(&mut self, compaction: &Compaction) {
        let (created_at, kept_from) = (self.last_seq, compaction.kept_from);
        let text = compaction.summary.as_str().into();
        self.summaries.push(Summary { created_at, kept_from, text, ..Summary::default() });
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
        let since = self.items.iter().rev().take_while(|item| item.user_text().is_none());
        since.flat_map(ContextItem::denials).take_while(|denied| *denied).count()
    }

    /// Returns the last text of the model.
    pub fn last_text(&self) -> String {
        let texts = self.visible_items().iter().rev().filter_map(ContextItem::assistant_text);
        let mut texts = texts.map(|text| text.trim().to_owned());
        texts.find(|text| !text.is_empty()).unwrap_or_default()
    }

    /// Returns the conversation for a request; `whole` holds unredacted texts of messages, which replace the stored
    /// ones.
    pub fn entries(&self, whole: &BTreeMap<MessageId, String>, results: ResultDetail) -> Vec<Entry> {
        let items = self.visible_items();
        let newest = items.len().saturating_sub(UNTRIMMED_ITEMS);
        let items = items.iter().enumerate();
        let items = items.flat_map(|(at, item)| item.entries(whole, results.call_limits(at, newest)));
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
        let size = |(at, item): (usize, &ContextItem)| item.tokens(results.call_limits(at, newest));
        let sum = |from: usize| items.iter().enumerate().skip(from).map(size).fold(0, u64::saturating_add);
        let summary = self.summaries.last().map_or(0, |summary| estimate_item_tokens(summary.text.len()));
        let estimated = fixed.saturating_add(summary).saturating_add(sum(0));
        match (self.counted_tokens, results) {
            // The counted request may have been trimmed, while this one would be complete.
            (Some(CountedTokens { turn, tokens }), ResultDetail::Full) => {
                let last = items.iter().position(|item| item.first_seq() == turn);
                tokens.saturating_add(sum(last.map_or(0, |last| last + 1))).max(estimated)
            }
            (Some(_), ResultDetail::Trimmed | ResultDetail::Limited(_)) | (None, _) => estimated,
        }
    }

    /// Finds the cut that keeps about `keep` tokens of the newest part; both sides must be non-empty.
    pub fn find_cut(&self, keep: u64) -> Option<Seq> {
        let items = self.visible_items();
        let mut tokens = 0;
        let mut first = items.len();
        while first > 1 {
            tokens += items[first - 1].tokens(CallByteLimits::FULL);
            // The newest item is always kept.
            if tokens > keep && first < items.len() {
                break;
            }
            first -= 1;
        }
        (first > 0).then(|| items.get(first).map(ContextItem::first_seq)).flatten()
    }

    /// Returns the sizes of the calls in the conversation: of the result or of the arguments, whichever is larger.
    pub fn result_sizes(&self) -> impl Iterator<Item = usize> {
        self.visible_items().iter().flat_map(ContextItem::result_sizes)
    }

    /// Estimates the number of tokens of the part before `kept_from`, as sent for its summary.
    pub fn tokens_before(&self, kept_from: Seq) -> u64 {
        let older = self.visible_items().iter().filter(|item| item.first_seq() < kept_from);
        let summary = self.summaries.last().map_or(0, |summary| estimate_item_tokens(summary.text.len()));
        older.map(|item| item.tokens(CallByteLimits::TRIMMED)).fold(summary, u64::saturating_add)
    }

    /// Returns the part before `kept_from` for its summary, as far as it fits into `max_tokens` tokens.
    ///
    /// The oldest items are omitted first, and the earlier summary last.
    pub fn entries_before(&self, kept_from: Seq, max_tokens: u64) -> Vec<Entry> {
        let older: Vec<_> = self.visible_items().iter().take_while(|item| item.first_seq() < kept_from).collect();
        let earlier = self.summary_entry();
        let summary = self.summaries.last().map_or(0, |summary| estimate_item_tokens(summary.text.len()));
        let earlier = earlier.filter(|_| summary <= max_tokens);
        let mut left = max_tokens.saturating_sub(if earlier.is_some() { summary } else { 0 });
        let fitting = older.iter().rev().take_while(|item| {
            let tokens = item.tokens(CallByteLimits::TRIMMED);
            let fits = tokens <= left;
            left = left.saturating_sub(tokens);
            fits
        });
        let fitting = fitting.count();
        let retained = older.iter().skip(older.len() - fitting).flat_map(|item| item.entries_for_summary());
        let left_out = (fitting < older.len()).then(|| Entry::user(OMITTED_NOTICE.to_owned()));
        let entries: Vec<_> = earlier.into_iter().chain(retained).collect();
        if entries.is_empty() { entries } else { left_out.into_iter().chain(entries).collect() }
    }

    /// Returns the text that replaces the part before `kept_from` if no summary of it can be made.
    pub fn omission_notice(&self, kept_from: Seq) -> String {
        let older = self.visible_items().iter().filter(|item| item.first_seq() < kept_from);
        let user_messages: Vec<_> = older.filter_map(ContextItem::user_text).map(excerpt).collect();
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
    fn visible_items(&self) -> &[ContextItem] {
        let kept_from = self.summaries.last().map_or(Seq::ZERO, |summary| summary.kept_from);
        let first = self.items.partition_point(|item| item.first_seq() < kept_from);
        self.items.get(first..).unwrap_or_default()
    }

    fn summary_entry(&self) -> Option<Entry> {
        let summary = self.summaries.last()?;
        Some(Entry::user(format!("{SUMMARY_HEADING}\n\n{}", summary.text)))
    }
}

/// Returns the beginning of a text on one line.
fn excerpt(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut = line.chars().count() > EXCERPT_CHARS;
    line.chars().take(EXCERPT_CHARS).chain(cut.then_some('…')).collect()
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
