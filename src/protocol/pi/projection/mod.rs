//! The Pi projection of a session: the state folded from the session's events, and the protocol events that each of
//! them produces.
//!
//! A single fold maintains the state and emits events. [`Projection::apply`] folds without output;
//! [`Projection::project`] folds and returns the events. Because both use the same fold, a projection rebuilt from the
//! journal cannot differ from one that followed the session live.

mod answer;
mod calls;
mod compaction_retry;
mod entry;
mod event_sink;
mod export;
mod fold;
mod object_writer;
mod open_message;
mod parts;
mod runs;
mod ui;

pub use answer::{Vote, vote};
pub use entry::{Entry, Role};
pub use export::{Heading, export_html};
pub use parts::{ForkMessage, ForkPoint, SessionEvent, Summary};

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::encode::Stats;
use crate::kernel::event::{Branch, CompactionReason, Event, GateQuestion};
use crate::kernel::id::{CallId, GateId, Json, MessageId, RunId, Seq};
use crate::kernel::time::Now;
use calls::ToolCallState;
use entry::Conversation;
use event_sink::EventSink;
use open_message::OpenMessage;

/// The Pi view of one session.
#[derive(Debug, Default)]
pub struct Projection {
    conversation: Conversation,
    /// The message that the model is writing.
    open_message: Option<OpenMessage>,
    /// Entries that arrived while the model was writing; they are added after its message.
    deferred: Vec<Entry>,
    turn: TurnState,
    /// The tool calls that have no result yet.
    calls: BTreeMap<CallId, ToolCallState>,
    /// The calls that the model requested and that have not started.
    unstarted: VecDeque<UnstartedCall>,
    /// The position of the active run's first entry.
    run_start: Option<usize>,
    /// The messages queued behind the run.
    queue: Vec<QueuedPreview>,
    questions: BTreeMap<GateId, GateQuestion>,
    provider: String,
    model: String,
    usage: Stats,
    /// The tokens of the conversation when the model last processed it.
    context_tokens: Option<u64>,
    compacting: Option<CompactionReason>,
    /// Whether a working message is displayed.
    working_message_set: bool,
    setting_times: SettingTimes,
    last_branch: Option<Seq>,
    last_seq: Seq,
}

/// When the settings that a session file records last changed; `None` if a setting is unchanged since the session
/// began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SettingTimes {
    /// The session's name.
    pub name: Option<Now>,
    /// The model.
    pub model: Option<Now>,
    /// The thinking level.
    pub thinking: Option<Now>,
}

/// The current turn of the model: its message and its tool results.
#[derive(Debug, Default)]
struct TurnState {
    started: bool,
    message: Option<Arc<str>>,
    results: Vec<Arc<str>>,
    /// The entry of the turn's message.
    entry: Option<(Seq, u32)>,
}

/// A call that the model requested and that has not started.
#[derive(Debug)]
struct UnstartedCall {
    id: String,
    tool: String,
    args: Json,
}

/// The preview of a message that is queued behind the run.
#[derive(Debug)]
struct QueuedPreview {
    message: MessageId,
    run: RunId,
    preview: String,
}

impl Projection {
    /// Folds an event without producing output.
    pub fn apply(&mut self, event: &Event) {
        self.fold(event, &mut EventSink::discarding());
    }

    /// Folds events and returns the protocol events they produce.
    ///
    /// Consecutive deltas of one text, or of the output of one tool, are coalesced into one update per batch.
    #[must_use = "the returned events must be sent"]
    pub fn project<'a>(&mut self, events: impl IntoIterator<Item = &'a Event>) -> Vec<SessionEvent> {
        let mut out = EventSink::recording();
        for event in events {
            self.fold(event, &mut out);
        }
        self.flush(&mut out);
        out.into_events()
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
        self.conversation.visible().map(|entry| &*entry.json)
    }

    /// Returns the number of visible messages.
    pub fn message_count(&self) -> u64 {
        self.conversation.visible().count() as u64
    }

    /// Returns every message of the current branch, including those that a summary replaces.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.conversation.all()
    }

    /// Returns the statistics of the session: visible messages; tokens and cost of the whole session.
    pub fn stats(&self) -> Stats {
        let mut stats = self.usage;
        self.conversation.add_counts(&mut stats);
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
    pub const fn setting_times(&self) -> SettingTimes {
        self.setting_times
    }

    /// Returns the summary that replaces the older part of the conversation.
    pub fn summary(&self) -> Option<Summary> {
        self.conversation.summary()
    }

    /// Returns the tokens of the conversation when the model last processed it; unknown after a compaction.
    pub const fn context_tokens(&self) -> Option<u64> {
        self.context_tokens
    }

    /// Returns whether a run is active.
    pub const fn is_streaming(&self) -> bool {
        self.run_start.is_some()
    }

    /// Returns an open question.
    pub fn question(&self, gate: &GateId) -> Option<&GateQuestion> {
        self.questions.get(gate)
    }

    /// Returns the number of open questions.
    pub fn open_questions(&self) -> u64 {
        self.questions.len() as u64
    }

    /// Returns the UI requests of the open questions, for a new subscriber.
    pub fn open_requests(&self, now: Now) -> Vec<SessionEvent> {
        let mut out = EventSink::recording();
        self.questions.values().for_each(|question| ui::emit_question(question, now, &mut out));
        out.into_events()
    }
}
