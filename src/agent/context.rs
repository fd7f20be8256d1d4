//! The conversation as a model receives it, folded from a session's events.
//!
//! It is folded from the journal when a turn starts. An interrupted text that was repeated appears once. The
//! unfinished output of a run is marked as interrupted. Results follow their calls, whatever arrived in between. A
//! branch restores the conversation at its point, with the summary that was valid there.

mod item;

use std::collections::{BTreeMap, VecDeque};

use super::RAISE_BUDGET;
use crate::kernel::event::{
    Compaction, Event, EventKind, Image, Intention, Outcome as RunOutcome, Purpose, RunReport, Settlement,
    TURN_CUT, Taken, Used, Wanted,
};
use crate::kernel::gate::DENIED_BY_POLICY;
use crate::kernel::id::{CallId, MessageId, Seq};
use crate::provider::model::Entry;
use item::{Call, Ended, Extent, Item, Said, aside, result, tokens_of};

/// A conversation.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Context {
    items: Vec<Item>,
    /// The summaries of older parts, the newest last.
    summaries: Vec<Summary>,
    /// The sequence number of the newest event.
    seen: Seq,
    /// Running commands of the user whose result the model receives.
    asides: BTreeMap<CallId, Intention>,
    /// The text of the turn in progress, and its first event.
    saying: String,
    saying_since: Option<Seq>,
    /// The calls of the last turn that have not started yet.
    pending: VecDeque<Wanted>,
    /// A note for the model, sent with the next message.
    note: Option<String>,
    /// The number of items that the server last counted, and their tokens.
    counted: Option<(usize, u64)>,
}

/// A summary, which replaces everything before an event.
#[derive(Debug, PartialEq, Eq)]
struct Summary {
    /// The newest event when it was created.
    at: Seq,
    kept_from: Seq,
    text: String,
}

/// The level of detail of tool results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Results {
    /// Complete results.
    Whole,
    /// Only the beginning and the end, except for the newest items.
    Trimmed,
    /// At most this many bytes of each result, the newest included; longer arguments are omitted.
    Within(usize),
}

impl Results {
    /// Returns the limits of the item at index `at`, where the newest items start at index `newest`.
    const fn extent(self, at: usize, newest: usize) -> Extent {
        match self {
            Self::Trimmed if at < newest => Extent::TRIMMED,
            Self::Whole | Self::Trimmed => Extent::WHOLE,
            Self::Within(bytes) => Extent::of(bytes),
        }
    }
}

impl Context {
    /// Adds one event.
    pub fn fold(&mut self, event: &Event) {
        self.seen = event.seq;
        match &event.kind {
            EventKind::RunStarted(message) => self.hear(&message.message, &message.text, &message.images),
            EventKind::Steered(steering) => {
                // Steering takes precedence: the pending calls of the model are dropped.
                self.pending.clear();
                self.hear(&steering.message, &steering.text, &steering.images);
            }
            EventKind::Said { text } => {
                self.saying_since.get_or_insert(event.seq);
                self.saying.push_str(text);
            }
            EventKind::TurnTaken(taken) => self.take(event.seq, taken),
            EventKind::CallIntended(intention) => self.intend(event.seq, intention),
            EventKind::CallSettled(settlement) => self.settle(settlement),
            EventKind::Branched { branch, by: _ } => self.go_back(branch.until),
            EventKind::Compacted(compaction) => self.compact(compaction),
            EventKind::RunRecovered { found: _ } => self.unsay(),
            EventKind::Warned { code, .. } if code == TURN_CUT => self.unsay(),
            EventKind::RunEnded(report) => self.end(event.seq, report),
            EventKind::Lost { after: _, cause: _ } => {
                self.unsay();
                self.note = Some("Part of this conversation is lost.".to_owned());
            }
            EventKind::Touched { .. }
            | EventKind::Loaded { .. }
            | EventKind::Adjusted { .. }
            | EventKind::CompactionBegan { .. }
            | EventKind::CompactionOver { .. }
            | EventKind::RetryBegan(_)
            | EventKind::RetryOver { .. }
            | EventKind::SessionOpened(_)
            | EventKind::SessionRenamed { .. }
            | EventKind::SessionEnded { .. }
            | EventKind::MessageQueued(_)
            | EventKind::MessageUnqueued { .. }
            | EventKind::Status { .. }
            | EventKind::Thought { .. }
            | EventKind::SayingDone { .. }
            | EventKind::CallStarted { .. }
            | EventKind::CallOutput { .. }
            | EventKind::GateOpened(_)
            | EventKind::GateVoted { .. }
            | EventKind::GateSettled(_)
            | EventKind::Warned { .. }
            | EventKind::Failed { .. }
            | EventKind::Stopping { .. } => {}
        }
    }

    /// Replaces the older part by a summary.
    pub fn compact(&mut self, compaction: &Compaction) {
        let Compaction { summary, kept_from, tokens_before: _ } = compaction.clone();
        self.summaries.push(Summary { at: self.seen, kept_from, text: summary });
        self.counted = None;
    }

    /// Returns whether the conversation has no items.
    pub fn is_empty(&self) -> bool {
        self.told().is_empty()
    }

    /// Returns the pending calls of the model, in order.
    pub fn pending(&self) -> impl Iterator<Item = &Wanted> {
        self.pending.iter()
    }

    /// Returns how many of the newest calls since the last message, without a gap, the policy of the run denied.
    pub fn policy_denials(&self) -> usize {
        let since = self.items.iter().rev().take_while(|item| !matches!(item.said, Said::User { .. }));
        let results = since.flat_map(|item| item.said.calls().iter().rev()).map(|call| call.result.as_ref());
        results.take_while(|result| result.is_some_and(|result| result.denied_by_policy)).count()
    }

    /// Returns the last text of the model.
    pub fn last_said(&self) -> &str {
        let texts = self.told().iter().rev().filter_map(|item| match &item.said {
            Said::Assistant { text, .. } => Some(text.trim()),
            Said::User { .. } | Said::Aside { .. } => None,
        });
        texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
    }

    /// Returns the conversation for a request; `whole` holds unredacted texts of messages, which replace the stored
    /// ones.
    pub fn entries(&self, whole: &BTreeMap<MessageId, String>, results: Results) -> Vec<Entry> {
        let told = self.told();
        let newest = told.len().saturating_sub(UNTRIMMED);
        let items = told.iter().enumerate();
        let items = items.flat_map(|(at, item)| item.said.entries(whole, results.extent(at, newest)));
        let mut entries: Vec<_> = self.summary_entry().into_iter().chain(items).collect();
        // Servers treat a final assistant text as the prefix of the next one.
        if matches!(entries.last(), Some(Entry::Assistant { calls, .. }) if calls.is_empty()) {
            entries.push(Entry::user(RESTARTED.to_owned()));
        }
        entries
    }

    /// Estimates the number of tokens of the conversation, including the `fixed` ones of every request.
    pub fn tokens(&self, fixed: u64, results: Results) -> u64 {
        let told = self.told();
        let newest = told.len().saturating_sub(UNTRIMMED);
        let size = |(at, item): (usize, &Item)| item.said.tokens(results.extent(at, newest));
        let sum = |from: usize| told.iter().enumerate().skip(from).map(size).fold(0, u64::saturating_add);
        let summary = self.summaries.last().map_or(0, |summary| tokens_of(summary.text.len()));
        let estimated = fixed.saturating_add(summary).saturating_add(sum(0));
        match (self.counted, results) {
            // The counted request may have been trimmed, while this one would be complete.
            (Some((items, tokens)), Results::Whole) => tokens.saturating_add(sum(items)).max(estimated),
            (Some(_), Results::Trimmed | Results::Within(_)) | (None, _) => estimated,
        }
    }

    /// Finds the cut that keeps about `keep` tokens of the newest part; both sides must be non-empty.
    pub fn cut(&self, keep: u64) -> Option<Seq> {
        let told = self.told();
        let mut kept = 0;
        let mut first = told.len();
        while first > 1 {
            kept += told[first - 1].said.tokens(Extent::WHOLE);
            // The newest item is always kept.
            if kept > keep && first < told.len() {
                break;
            }
            first -= 1;
        }
        (first > 0).then(|| told.get(first).map(|item| item.since)).flatten()
    }

    /// Returns the sizes of the calls in the conversation: of the result or of the arguments, whichever is larger.
    pub fn results(&self) -> impl Iterator<Item = usize> {
        self.told().iter().flat_map(|item| item.said.results())
    }

    /// Estimates the number of tokens of the part before `kept_from`, as sent for its summary.
    pub fn tokens_before(&self, kept_from: Seq) -> u64 {
        let older = self.told().iter().filter(|item| item.since < kept_from);
        let summary = self.summaries.last().map_or(0, |summary| tokens_of(summary.text.len()));
        older.map(|item| item.said.tokens(Extent::TRIMMED)).fold(summary, u64::saturating_add)
    }

    /// Returns the part before `kept_from` for its summary, as far as it fits into `room` tokens.
    ///
    /// The oldest items are omitted first, and the earlier summary last.
    pub fn before(&self, kept_from: Seq, room: u64) -> Vec<Entry> {
        let older: Vec<_> = self.told().iter().take_while(|item| item.since < kept_from).collect();
        let earlier = self.summary_entry();
        let summary = self.summaries.last().map_or(0, |summary| tokens_of(summary.text.len()));
        let earlier = earlier.filter(|_| summary <= room);
        let mut left = room.saturating_sub(if earlier.is_some() { summary } else { 0 });
        let fitting = older.iter().rev().take_while(|item| {
            let tokens = item.said.tokens(Extent::TRIMMED);
            let fits = tokens <= left;
            left = left.saturating_sub(tokens);
            fits
        });
        let fitting = fitting.count();
        let kept = older.iter().skip(older.len() - fitting).flat_map(|item| item.said.entries_for_summary());
        let left_out = (fitting < older.len()).then(|| Entry::user(LEFT_OUT.to_owned()));
        let entries: Vec<_> = earlier.into_iter().chain(kept).collect();
        if entries.is_empty() { entries } else { left_out.into_iter().chain(entries).collect() }
    }

    /// Returns the text that replaces the part before `kept_from` if no summary of it can be made.
    pub fn left_out(&self, kept_from: Seq) -> String {
        let older = self.told().iter().filter(|item| item.since < kept_from);
        let asked: Vec<_> = older
            .filter_map(|item| match &item.said {
                Said::User { text, .. } => Some(beginning(text)),
                Said::Assistant { .. } | Said::Aside { .. } => None,
            })
            .collect();
        let newest = asked.len().saturating_sub(BEGINNINGS);
        let asked: String = asked.iter().skip(newest).map(|text| format!("\n- {text}")).collect();
        // An earlier text of this kind says nothing of the conversation; the last summary that a model wrote does.
        let written = self.summaries.iter().rev().find(|summary| !summary.text.starts_with(LEFT_OUT));
        let earlier = written.map(|summary| beginning(&summary.text));
        let earlier = earlier.map_or_else(String::new, |text| format!("\nThe summary before began: {text}"));
        let began = if asked.is_empty() { "" } else { "\nThe user's messages in it began:" };
        format!("{LEFT_OUT}{earlier}{began}{asked}")
    }

    /// Returns the items that no summary replaces.
    fn told(&self) -> &[Item] {
        let kept_from = self.summaries.last().map_or(Seq::ZERO, |summary| summary.kept_from);
        let first = self.items.partition_point(|item| item.since < kept_from);
        self.items.get(first..).unwrap_or_default()
    }

    fn summary_entry(&self) -> Option<Entry> {
        let summary = self.summaries.last()?;
        Some(Entry::user(format!("{SUMMARY}\n\n{}", summary.text)))
    }

    fn add(&mut self, since: Seq, said: Said) {
        self.items.push(Item { since, till: self.seen, said });
    }

    fn hear(&mut self, message: &MessageId, text: &str, images: &[Image]) {
        let (message, text, images) = (message.clone(), text.to_owned(), images.to_vec());
        let note = self.note.take();
        self.add(self.seen, Said::User { message, note, text, images });
    }

    /// Removes everything after an event.
    fn go_back(&mut self, until: Seq) {
        self.items.retain(|item| item.till <= until);
        self.summaries.retain(|summary| summary.at <= until);
        let calls = self.items.iter_mut().filter_map(|item| match &mut item.said {
            Said::Assistant { calls, .. } => Some(calls),
            Said::User { .. } | Said::Aside { .. } => None,
        });
        for calls in calls {
            calls.retain(|call| call.since <= until);
            for call in calls {
                call.result = call.result.take().filter(|result| result.since <= until);
            }
        }
        self.unsay();
        self.pending.clear();
        self.note = None;
        self.counted = None;
    }

    fn take(&mut self, seq: Seq, taken: &Taken) {
        let since = self.saying_since.take().unwrap_or(seq);
        let text = std::mem::take(&mut self.saying);
        let said = Said::Assistant { carry: taken.carry.clone(), text, calls: Vec::new() };
        // A steering message that arrived during the text follows the text.
        let at = self.items.partition_point(|item| item.since < since);
        self.items.insert(at, Item { since, till: self.seen, said });
        self.pending = taken.pending.iter().cloned().collect();
        let Used { input, output, estimated, .. } = taken.used;
        // A server that does not count tokens reports zero.
        let left_out = self.items.len() - self.told().len();
        let counted = (at + 1).saturating_sub(left_out);
        self.counted = (input > 0 && !estimated).then_some((counted, input.saturating_add(output)));
    }

    fn intend(&mut self, seq: Seq, intention: &Intention) {
        if intention.purpose == (Purpose::Aside { told: true }) {
            self.asides.insert(intention.call.clone(), intention.clone());
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
            since: seq,
            result: None,
        };
        let latest = self.items.iter_mut().rev().find_map(|item| match &mut item.said {
            Said::Assistant { calls, .. } => Some(calls),
            Said::User { .. } | Said::Aside { .. } => None,
        });
        match latest {
            Some(calls) => calls.push(call),
            None => {
                self.add(seq, Said::Assistant { carry: None, text: String::new(), calls: vec![call] });
            }
        }
    }

    fn settle(&mut self, settlement: &Settlement) {
        if let Some(intention) = self.asides.remove(&settlement.call) {
            return self.add(self.seen, Said::Aside { text: aside(&intention, settlement) });
        }
        let calls = self.items.iter_mut().rev().filter_map(|item| match &mut item.said {
            Said::Assistant { calls, .. } => Some(calls),
            Said::User { .. } | Said::Aside { .. } => None,
        });
        let call = calls.flatten().find(|call| call.id == settlement.call);
        if let Some(call) = call {
            let (text, outcome) = result(settlement);
            let fault = settlement.fault.as_ref();
            let denied_by_policy = fault.is_some_and(|fault| fault.kind == DENIED_BY_POLICY);
            call.result = Some(Ended { since: self.seen, text, outcome, denied_by_policy });
        }
    }

    fn unsay(&mut self) {
        self.saying.clear();
        self.saying_since = None;
    }

    fn end(&mut self, seq: Seq, report: &RunReport) {
        self.pending.clear();
        if !self.saying.is_empty() {
            let since = self.saying_since.unwrap_or(seq);
            let text = format!("{} [interrupted]", self.saying);
            self.add(since, Said::Assistant { carry: None, text, calls: Vec::new() });
            self.unsay();
        }
        self.note = ending(report);
    }
}

/// Returns the beginning of a text on one line.
fn beginning(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut = line.chars().count() > BEGINNING;
    line.chars().take(BEGINNING).chain(cut.then_some('…')).collect()
}

/// Returns a note on the end of a run, unless it succeeded.
fn ending(report: &RunReport) -> Option<String> {
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
    let mut note = format!("The run before {how}: {}", report.summary);
    for check in checks {
        note.push('\n');
        note.push_str(&check);
    }
    Some(note)
}

/// The prompt after a restart if the conversation ends with a text of the model.
const RESTARTED: &str =
    "[The daemon was restarted. If everything is done, say so in one sentence; otherwise go on.]";
/// The heading of a summary.
const SUMMARY: &str = "Summary of the conversation so far, which is not repeated word by word:";
/// The notice in place of a part that did not fit.
const LEFT_OUT: &str = "[The older part of this conversation is left out: it does not fit into the context window of the model.]";
/// How many excerpts of messages an omission notice contains, and their maximum length in characters.
const BEGINNINGS: usize = 5;
const BEGINNING: usize = 200;
/// How many of the newest items keep complete results when results are trimmed.
const UNTRIMMED: usize = 6;

#[cfg(test)]
#[path = "context_tests.rs"]
pub(super) mod tests;
