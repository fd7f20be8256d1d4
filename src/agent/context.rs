//! The conversation as a model is told it: the sum of a session's events, like everything else.
//!
//! It is folded from the journal when a turn begins. A text that was cut and said again counts once; what a run left
//! unfinished is told as such; results stand with their calls, whatever was said in between.

use std::collections::{BTreeMap, VecDeque};

use super::{RAISE_BUDGET, price};
use crate::kernel::event::{
    Compaction, Ending, Event, EventKind, Intention, Outcome as RunOutcome, Purpose, RunReport, Settlement,
    TURN_CUT, Taken, Used, Wanted,
};
use crate::kernel::id::{CallId, MessageId, Seq};
use crate::provider::model::{self, Entry, Outcome};
use crate::sandbox::output::Excerpt;

/// A conversation.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Context {
    items: Vec<Item>,
    /// Stands for what is not told word by word.
    summary: Option<String>,
    /// What the model is saying, and since when.
    saying: String,
    saying_since: Option<Seq>,
    /// What the model wants used and was not begun, where not all of it could begin at once.
    pending: VecDeque<Wanted>,
    /// What the model should hear with the next message.
    note: Option<String>,
    /// How many tokens the conversation had up to and including this many items, as the server counted.
    counted: Option<(usize, u64)>,
}

#[derive(Debug, PartialEq, Eq)]
struct Item {
    /// The first event of it.
    since: Seq,
    said: Said,
}

#[derive(Debug, PartialEq, Eq)]
enum Said {
    User { message: MessageId, note: Option<String>, text: String },
    Assistant { carry: Option<String>, text: String, calls: Vec<Call> },
}

#[derive(Debug, PartialEq, Eq)]
struct Call {
    id: CallId,
    tool: String,
    args: String,
    result: Option<(String, Outcome)>,
}

/// How much of the older results is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Results {
    /// Everything.
    Whole,
    /// Only the beginning and the end, but for the newest turns.
    Trimmed,
}

impl Context {
    /// Adds one event.
    pub fn fold(&mut self, event: &Event) {
        match &event.kind {
            EventKind::RunStarted(message) => self.hear(event.seq, &message.message, &message.text),
            EventKind::Steered(steering) => {
                // What was said into the run comes first: what the model wanted before does not count.
                self.pending.clear();
                self.hear(event.seq, &steering.message, &steering.text);
            }
            EventKind::Said { text } => {
                self.saying_since.get_or_insert(event.seq);
                self.saying.push_str(text);
            }
            EventKind::TurnTaken(taken) => self.take(event.seq, taken),
            EventKind::CallIntended(intention) => self.intend(event.seq, intention),
            EventKind::CallSettled(settlement) => self.settle(settlement),
            EventKind::Compacted(compaction) => self.compact(compaction),
            EventKind::RunRecovered { found: _ } => self.unsay(),
            EventKind::Warned { code, .. } if code == TURN_CUT => self.unsay(),
            EventKind::RunEnded(report) => self.end(event.seq, report),
            EventKind::Lost { after: _, cause: _ } => {
                self.unsay();
                self.note = Some("Part of this conversation is lost.".to_owned());
            }
            EventKind::Branched { .. }
            | EventKind::Touched { .. }
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

    /// Puts a summary in the place of the older part.
    pub fn compact(&mut self, compaction: &Compaction) {
        self.items.retain(|item| item.since >= compaction.kept_from);
        self.summary = Some(compaction.summary.clone());
        self.counted = None;
    }

    /// Returns the calls that the model wants next, in order.
    pub fn pending(&self) -> impl Iterator<Item = &Wanted> {
        self.pending.iter()
    }

    /// Returns what the model said last.
    pub fn last_said(&self) -> &str {
        let texts = self.items.iter().rev().filter_map(|item| match &item.said {
            Said::Assistant { text, .. } => Some(text.trim()),
            Said::User { .. } => None,
        });
        texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
    }

    /// Returns the conversation for a request, with the texts of messages as they were sent where they are given.
    pub fn entries(&self, whole: &BTreeMap<MessageId, String>, results: Results) -> Vec<Entry> {
        let newest = self.items.len().saturating_sub(UNTRIMMED);
        let items = self.items.iter().enumerate().flat_map(|(at, item)| {
            let trimmed = results == Results::Trimmed && at < newest;
            item.said.entries(whole, trimmed)
        });
        let mut entries: Vec<_> = self.summary_entry().into_iter().chain(items).collect();
        // Servers take words of the model at the end for the beginning of its next ones.
        if matches!(entries.last(), Some(Entry::Assistant { calls, .. }) if calls.is_empty()) {
            entries.push(Entry::User(RESTARTED.to_owned()));
        }
        entries
    }

    /// Estimates how many tokens the conversation has, besides `fixed` that are told every time.
    pub fn tokens(&self, fixed: u64, results: Results) -> u64 {
        let newest = self.items.len().saturating_sub(UNTRIMMED);
        let size = |(at, item): (usize, &Item)| item.said.tokens(results == Results::Trimmed && at < newest);
        let sum =
            |from: usize| self.items.iter().enumerate().skip(from).map(size).fold(0, u64::saturating_add);
        let summary = self.summary.as_ref().map_or(0, |summary| tokens_of(summary.len()));
        let estimated = fixed.saturating_add(summary).saturating_add(sum(0));
        match (self.counted, results) {
            // What was counted may have been told in part, and the next time it would be told whole.
            (Some((items, tokens)), Results::Whole) => tokens.saturating_add(sum(items)).max(estimated),
            (Some(_), Results::Trimmed) | (None, _) => estimated,
        }
    }

    /// Finds where to cut so that about `keep` tokens of the newest part stay; there must be something on both sides.
    pub fn cut(&self, keep: u64) -> Option<Seq> {
        let mut kept = 0;
        let mut first = self.items.len();
        while first > 1 {
            kept += self.items[first - 1].said.tokens(false);
            // The newest step stays, however long it is.
            if kept > keep && first < self.items.len() {
                break;
            }
            first -= 1;
        }
        (first > 0).then(|| self.items.get(first).map(|item| item.since)).flatten()
    }

    /// Returns the part before `kept_from`, for the summary of it.
    pub fn before(&self, kept_from: Seq) -> Vec<Entry> {
        let nothing = BTreeMap::new();
        let older = self.items.iter().filter(|item| item.since < kept_from);
        self.summary_entry()
            .into_iter()
            .chain(older.flat_map(|item| item.said.entries(&nothing, true)))
            .collect()
    }

    fn summary_entry(&self) -> Option<Entry> {
        self.summary.as_ref().map(|summary| Entry::User(format!("{SUMMARY}\n\n{summary}")))
    }

    fn hear(&mut self, since: Seq, message: &MessageId, text: &str) {
        let (message, text) = (message.clone(), text.to_owned());
        let said = Said::User { message, note: self.note.take(), text };
        self.items.push(Item { since, said });
    }

    fn take(&mut self, seq: Seq, taken: &Taken) {
        let since = self.saying_since.take().unwrap_or(seq);
        let text = std::mem::take(&mut self.saying);
        let said = Said::Assistant { carry: taken.carry.clone(), text, calls: Vec::new() };
        self.items.push(Item { since, said });
        self.pending = taken.pending.iter().cloned().collect();
        let Used { input, output, estimated, .. } = taken.used;
        // A server that does not count says nothing.
        self.counted = (input > 0 && !estimated).then_some((self.items.len(), input.saturating_add(output)));
    }

    fn intend(&mut self, seq: Seq, intention: &Intention) {
        if intention.purpose != Purpose::Work || intention.tool == RAISE_BUDGET {
            return;
        }
        // They are intended in their order and no other call comes between; how their arguments are kept may change.
        self.pending.pop_front();
        let call = Call {
            id: intention.call.clone(),
            tool: intention.tool.clone(),
            args: intention.args.as_str().to_owned(),
            result: None,
        };
        let latest = self.items.iter_mut().rev().find_map(|item| match &mut item.said {
            Said::Assistant { calls, .. } => Some(calls),
            Said::User { .. } => None,
        });
        match latest {
            Some(calls) => calls.push(call),
            None => {
                let said = Said::Assistant { carry: None, text: String::new(), calls: vec![call] };
                self.items.push(Item { since: seq, said });
            }
        }
    }

    fn settle(&mut self, settlement: &Settlement) {
        let calls = self.items.iter_mut().rev().filter_map(|item| match &mut item.said {
            Said::Assistant { calls, .. } => Some(calls),
            Said::User { .. } => None,
        });
        let call = calls.flatten().find(|call| call.id == settlement.call);
        if let Some(call) = call {
            call.result = Some(result(settlement));
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
            self.items.push(Item { since, said: Said::Assistant { carry: None, text, calls: Vec::new() } });
            self.unsay();
        }
        self.note = ending(report);
    }
}

impl Said {
    fn entries(&self, whole: &BTreeMap<MessageId, String>, trimmed: bool) -> Vec<Entry> {
        match self {
            Self::User { message, note, text } => {
                let text = whole.get(message).unwrap_or(text);
                vec![Entry::User(match note {
                    Some(note) => format!("[{note}]\n\n{text}"),
                    None => text.clone(),
                })]
            }
            // A turn of which nothing came says nothing.
            Self::Assistant { text, calls, .. } if text.trim().is_empty() && calls.is_empty() => Vec::new(),
            Self::Assistant { carry, text, calls } => {
                let wanted = calls.iter().map(|call| model::Wanted {
                    id: call.id.as_str().to_owned(),
                    tool: call.tool.clone(),
                    args: call.args.clone(),
                });
                let (carry, said) = (carry.clone(), text.clone());
                let turn = Entry::Assistant { carry, said, calls: wanted.collect() };
                std::iter::once(turn).chain(calls.iter().map(|call| call.entry(trimmed))).collect()
            }
        }
    }

    fn tokens(&self, trimmed: bool) -> u64 {
        match self {
            Self::User { note, text, .. } => tokens_of(text.len() + note.as_ref().map_or(0, String::len)),
            Self::Assistant { carry, text, calls } => {
                let own = text.len() + carry.as_ref().map_or(0, String::len);
                let calls = calls.iter().map(|call| {
                    let result = call.result.as_ref().map_or(0, |(text, _)| text.len());
                    call.args.len() + call.tool.len() + if trimmed { result.min(TRIMMED) } else { result }
                });
                tokens_of(own) + calls.map(tokens_of).sum::<u64>()
            }
        }
    }
}

impl Call {
    fn entry(&self, trimmed: bool) -> Entry {
        let (text, outcome) = match &self.result {
            Some((text, outcome)) => (text.as_str(), *outcome),
            None => ("nobody knows what came of it", Outcome::Failed),
        };
        let mut excerpt = Excerpt::new(if trimmed { TRIMMED } else { usize::MAX });
        excerpt.push(text);
        let (id, tool, text) = (self.id.as_str().to_owned(), self.tool.clone(), excerpt.finish());
        Entry::Result { id, tool, text, outcome }
    }
}

/// Says what came of a call, and what went wrong with it.
fn result(settlement: &Settlement) -> (String, Outcome) {
    let outcome = match settlement.ending {
        Ending::Done => Outcome::Fine,
        Ending::Failed | Ending::Skipped | Ending::Cut => Outcome::Failed,
    };
    let mut text = match (&settlement.fault, settlement.ending) {
        (Some(fault), _) => match &fault.detail {
            Some(detail) => format!("{}: {}\n{detail}\n", fault.kind, fault.message),
            None => format!("{}: {}\n", fault.kind, fault.message),
        },
        (None, Ending::Skipped) => "the user chose to go on without it\n".to_owned(),
        (None, Ending::Cut) => "it was cut short\n".to_owned(),
        (None, Ending::Failed) => "it failed\n".to_owned(),
        (None, Ending::Done) => String::new(),
    };
    text.push_str(&settlement.text);
    (text, outcome)
}

/// Says how a run ended, where the model would not know.
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

/// Estimates the tokens of so many bytes, with what a step of a conversation costs besides.
const fn tokens_of(bytes: usize) -> u64 {
    price::tokens_of(bytes) + 8
}

/// What a model is told that had said its last words when the daemon was restarted.
const RESTARTED: &str =
    "[The daemon was restarted. If everything is done, say so in one sentence; otherwise go on.]";
/// What stands before a summary.
const SUMMARY: &str = "Summary of the conversation so far, which is not repeated word by word:";
/// How many of the newest steps are told whole when results are trimmed.
const UNTRIMMED: usize = 6;
/// How much of a result is told when it is trimmed.
const TRIMMED: usize = 2_000;

#[cfg(test)]
#[path = "context_tests.rs"]
pub(super) mod tests;
