//! The Pi projection of a session: the state folded from the session's events, and the protocol events that each of
//! them produces.
//!
//! A single fold maintains the state and emits events. [`Projection::apply`] folds without output;
//! [`Projection::project`] folds and returns the events. Because both use the same fold, a projection rebuilt from the
//! journal cannot differ from one that followed the session live.

mod answer;
mod calls;
mod entry;
mod export;
mod fold;
mod open;
mod out;
mod parts;
mod running;
mod trouble;
mod ui;
mod write;

pub use answer::{Vote, vote};
pub use entry::{Entry, Role};
pub use export::{Heading, export_html};
pub use parts::{ForkMessage, ForkPoint, SessionEvent, Summary};

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::encode::Stats;
use crate::kernel::event::{Branch, CompactionReason, Event, Question};
use crate::kernel::id::{CallId, GateId, Json, MessageId, RunId, Seq};
use crate::kernel::time::Now;
use calls::Use;
use entry::Conversation;
use open::Open;
use out::Out;

/// The Pi view of one session.
#[derive(Debug, Default)]
pub struct Story {
    conversation: Conversation,
    /// The message that the model is writing.
    open: Option<Open>,
    /// Entries that arrived while the model was writing; they are added after its message.
    deferred: Vec<Entry>,
    turn: Turn,
    /// The tool calls that have no result yet.
    calls: BTreeMap<CallId, Use>,
    /// The calls that the model requested and that have not started.
    waiting: VecDeque<Waiting>,
    /// The position of the active run's first entry.
    run: Option<usize>,
    /// The messages queued behind the run.
    queue: Vec<Queued>,
    questions: BTreeMap<GateId, Question>,
    provider: String,
    model: String,
    used: Stats,
    /// The tokens of the conversation when the model last processed it.
    context: Option<u64>,
    compacting: Option<CompactionReason>,
    /// Whether a working message is displayed.
    busy: bool,
    changed: Changed,
    last_branch: Option<Seq>,
    last_seq: Seq,
}

/// When the settings that a session file records last changed; `None` if a setting is unchanged since the session
/// began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changed {
    /// The session's name.
    pub name: Option<Now>,
    /// The model.
    pub model: Option<Now>,
    /// The thinking level.
    pub thinking: Option<Now>,
}

/// The current turn of the model: its message and its tool results.
#[derive(Debug, Default)]
struct Turn {
    open: bool,
    message: Option<Arc<str>>,
    results: Vec<Arc<str>>,
    /// The entry of the turn's message.
    entry: Option<(Seq, u32)>,
}

/// A call that the model requested and that has not started.
#[derive(Debug)]
struct Waiting {
    id: String,
    tool: String,
    args: Json,
}

/// The preview of a message that is queued behind the run.
#[derive(Debug)]
struct Queued {
    message: MessageId,
    run: RunId,
    line: String,
}

impl Story {
    /// Folds an event without producing output.
    pub fn absorb(&mut self, event: &Event) {
        self.fold(event, &mut Out::silent());
    }

    /// Folds events and returns the protocol events they produce.
    ///
    /// Consecutive deltas of one text, or of the output of one tool, are coalesced into one update per batch.
    #[must_use = "the returned events must be sent"]
    pub fn tell<'a>(&mut self, events: impl IntoIterator<Item = &'a Event>) -> Vec<SessionEvent> {
        let mut out = Out::live();
        for event in events {
            self.fold(event, &mut out);
        }
        self.release(&mut out);
        out.finish()
    }

    /// Returns the position of the last folded event.
    pub const fn last_seq(&self) -> Seq {
        self.last_seq
    }

    /// Returns the position of the last branch event.
    pub const fn last_branch(&self) -> Option<Seq> {
        self.last_branch
    }

    /// Returns the visible messages, each as JSON.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        self.conversation.told().map(|entry| &*entry.json)
    }

    /// Returns the number of visible messages.
    pub fn message_count(&self) -> u64 {
        self.conversation.told().count() as u64
    }

    /// Returns every message of the current branch, including those that a summary replaces.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.conversation.all()
    }

    /// Returns the statistics of the session: visible messages; tokens and cost of the whole session.
    pub fn stats(&self) -> Stats {
        let mut stats = self.used;
        self.conversation.count(&mut stats);
        stats
    }

    /// Returns the text of the last assistant message that has one.
    pub fn last_text(&self) -> Option<String> {
        self.conversation.last_text()
    }

    /// Returns the messages that a fork can start from.
    pub fn fork_messages(&self) -> Vec<ForkMessage> {
        self.conversation.fork_messages()
    }

    /// Finds the fork point that excludes a message and everything after it.
    pub fn fork_point(&self, entry: &str) -> Option<ForkPoint> {
        self.conversation.fork_point(entry)
    }

    /// Returns the branch point just before an event.
    pub fn branch_before(&self, seq: Seq) -> Branch {
        self.conversation.branch_before(seq)
    }

    /// Returns when the settings that a session file records last changed.
    pub const fn changed(&self) -> Changed {
        self.changed
    }

    /// Returns the summary that replaces the older part of the conversation.
    pub fn summary(&self) -> Option<Summary> {
        self.conversation.summary()
    }

    /// Returns the tokens of the conversation when the model last processed it; unknown after a compaction.
    pub const fn context_tokens(&self) -> Option<u64> {
        self.context
    }

    /// Returns whether a run is active.
    pub const fn is_streaming(&self) -> bool {
        self.run.is_some()
    }

    /// Returns an open question.
    pub fn question(&self, gate: &GateId) -> Option<&Question> {
        self.questions.get(gate)
    }

    /// Returns the number of open questions.
    pub fn open_questions(&self) -> u64 {
        self.questions.len() as u64
    }

    /// Returns the UI requests of the open questions, for a new subscriber.
    pub fn requests(&self, now: Now) -> Vec<SessionEvent> {
        let mut out = Out::live();
        self.questions.values().for_each(|question| ui::ask(question, now, &mut out));
        out.finish()
    }
}
