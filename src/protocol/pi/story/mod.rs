//! A session as this protocol tells it: the sum of its events, and what each of them adds.
//!
//! One fold keeps the conversation and tells what happens. Remembering alone ([`Story::absorb`]) writes nothing down but
//! the messages themselves; telling ([`Story::tell`]) is the same with somebody listening, so a story that was read
//! from the journal and one that was lived through cannot differ.

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

/// A session, told.
#[derive(Debug, Default)]
pub struct Story {
    conversation: Conversation,
    /// What the model is making.
    open: Option<Open>,
    /// What was said by others while the model was speaking: it comes behind.
    deferred: Vec<Entry>,
    turn: Turn,
    /// The uses of tools that are not settled.
    calls: BTreeMap<CallId, Use>,
    /// What the calls are named that the model wants and that were not begun.
    waiting: VecDeque<Waiting>,
    /// Where the active run's messages begin.
    run: Option<usize>,
    /// What waits behind the run.
    queue: Vec<Queued>,
    questions: BTreeMap<GateId, Question>,
    provider: String,
    model: String,
    used: Stats,
    /// How many tokens the conversation had when the model was last told it.
    context: Option<u64>,
    compacting: Option<CompactionReason>,
    /// Whether something stands where it is said what the run is busy with.
    busy: bool,
    changed: Changed,
    last_branch: Option<Seq>,
    last_seq: Seq,
}

/// When settings that a session file holds were changed last; never where they are as the session began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changed {
    /// The session's name.
    pub name: Option<Now>,
    /// Who answers.
    pub model: Option<Now>,
    /// How much it thinks.
    pub thinking: Option<Now>,
}

/// A turn of the model: what it said, and what came of what it wanted.
#[derive(Debug, Default)]
struct Turn {
    open: bool,
    message: Option<Arc<str>>,
    results: Vec<Arc<str>>,
    /// The entry of its message.
    entry: Option<(Seq, u32)>,
}

/// A call that the model wants and that was not begun.
#[derive(Debug)]
struct Waiting {
    id: String,
    tool: String,
    args: Json,
}

/// A message that waits behind the run.
#[derive(Debug)]
struct Queued {
    message: MessageId,
    run: RunId,
    line: String,
}

impl Story {
    /// Remembers an event.
    pub fn absorb(&mut self, event: &Event) {
        self.fold(event, &mut Out::silent());
    }

    /// Remembers some events and tells what they add.
    ///
    /// Pieces of one text, or of what one tool prints, that follow each other in a batch are told as one.
    #[must_use = "what is told is to be sent"]
    pub fn tell<'a>(&mut self, events: impl IntoIterator<Item = &'a Event>) -> Vec<SessionEvent> {
        let mut out = Out::live();
        for event in events {
            self.fold(event, &mut out);
        }
        self.release(&mut out);
        out.finish()
    }

    /// Returns the last event that it knows.
    pub const fn last_seq(&self) -> Seq {
        self.last_seq
    }

    /// Returns the last event that left a part of the conversation behind.
    pub const fn last_branch(&self) -> Option<Seq> {
        self.last_branch
    }

    /// Returns the conversation: each message as JSON.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        self.conversation.told().map(|entry| &*entry.json)
    }

    /// Returns how many messages the conversation has.
    pub fn message_count(&self) -> u64 {
        self.conversation.told().count() as u64
    }

    /// Returns every message of this line of the conversation, also those for which a summary stands.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.conversation.all()
    }

    /// Returns the session in numbers: messages as they are told, tokens and money of everything.
    pub fn stats(&self) -> Stats {
        let mut stats = self.used;
        self.conversation.count(&mut stats);
        stats
    }

    /// Returns what the model said last.
    pub fn last_text(&self) -> Option<String> {
        self.conversation.last_text()
    }

    /// Returns the messages from which a fork may begin.
    pub fn fork_messages(&self) -> Vec<ForkMessage> {
        self.conversation.fork_messages()
    }

    /// Finds where the fork begins that leaves a message out, and everything after it.
    pub fn fork_point(&self, entry: &str) -> Option<ForkPoint> {
        self.conversation.fork_point(entry)
    }

    /// Returns the point just before an event, as a branch begins there.
    pub fn branch_before(&self, seq: Seq) -> Branch {
        self.conversation.branch_before(seq)
    }

    /// Returns when the settings were changed that a session file holds.
    pub const fn changed(&self) -> Changed {
        self.changed
    }

    /// Returns the summary that stands for the older part of the conversation.
    pub fn summary(&self) -> Option<Summary> {
        self.conversation.summary()
    }

    /// Returns how many tokens the conversation had when the model was last told it; not known after a summary.
    pub const fn context_tokens(&self) -> Option<u64> {
        self.context
    }

    /// Tells whether a run is active.
    pub const fn is_streaming(&self) -> bool {
        self.run.is_some()
    }

    /// Returns a question that waits for an answer.
    pub fn question(&self, gate: &GateId) -> Option<&Question> {
        self.questions.get(gate)
    }

    /// Returns how many questions wait for an answer.
    pub fn open_questions(&self) -> u64 {
        self.questions.len() as u64
    }

    /// Tells the questions that wait for an answer, for somebody who begins to listen.
    pub fn requests(&self, now: Now) -> Vec<SessionEvent> {
        let mut out = Out::live();
        self.questions.values().for_each(|question| ui::ask(question, now, &mut out));
        out.finish()
    }
}
