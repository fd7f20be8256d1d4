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
mod message_json;
mod object_writer;
mod open_message;
mod parts;
mod runs;
mod session_projection;
mod ui;

pub use answer::vote;
pub use entry::{Entry, Role};
pub use export::export_html;
pub use parts::{ForkMessage, PiEvent, Stats, Summary};

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::kernel::conversation::Conversation;
use crate::kernel::event::{Branch, CompactionReason, Event, GateQuestion};
use crate::kernel::id::{CallId, GateId, MessageId, RunId, Seq};
use crate::kernel::time::Now;
use calls::ToolCallState;
use event_sink::EventSink;
use open_message::OpenMessage;

/// The Pi view of one session.
#[derive(Debug, Default)]
pub struct Projection {
    conversation: Conversation,
    /// The message that the model is writing, for updates.
    open_message: Option<OpenMessage>,
    /// Messages that arrived while the model was writing; they are emitted after its message.
    deferred: Vec<CompleteMessage>,
    turn: TurnState,
    /// The tool calls that have no result yet.
    calls: BTreeMap<CallId, ToolCallState>,
    /// Whether the turn has announced calls that are not requested yet.
    has_pending_calls: bool,
    /// The first event of the active run.
    run_start: Option<Seq>,
    /// The messages queued behind the run.
    queue: Vec<QueuedPreview>,
    questions: BTreeMap<GateId, GateQuestion>,
    usage: Stats,
    /// The tokens of the conversation when the model last processed it.
    context_tokens: Option<u64>,
    compacting: Option<CompactionReason>,
    /// Whether a working message is displayed.
    working_message_set: bool,
    setting_times: SettingTimes,
    last_branch: Option<Seq>,
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
}

/// A complete message, as JSON.
#[derive(Debug)]
enum CompleteMessage {
    /// Of the user.
    User(Arc<str>),
    /// Of a user command.
    UserCommand(Arc<str>),
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
    pub fn project<'a>(&mut self, events: impl IntoIterator<Item = &'a Event>) -> Vec<PiEvent> {
        let mut out = EventSink::recording();
        for event in events {
            self.fold(event, &mut out);
        }
        self.flush(&mut out);
        out.into_events()
    }

    /// Returns the position of the last folded event.
    pub const fn last_seq(&self) -> Seq {
        self.conversation.last_seq()
    }

    /// Returns the visible messages, each as JSON.
    pub fn messages(&self) -> impl Iterator<Item = Arc<str>> {
        entry::visible(&self.conversation).map(|entry| entry.json())
    }

    /// Returns every message of the current branch, including those that a summary replaces.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        entry::all(&self.conversation)
    }

    /// Returns the statistics of the session: visible messages; tokens and cost of the whole session.
    pub fn stats(&self) -> Stats {
        let mut stats = self.usage;
        entry::add_counts(&self.conversation, &mut stats);
        stats
    }

    /// Returns the text of the last assistant message that has one.
    pub fn last_text(&self) -> Option<String> {
        entry::last_text(&self.conversation)
    }

    /// Returns the messages that a fork can start from.
    pub fn fork_messages(&self) -> Vec<ForkMessage> {
        entry::fork_messages(&self.conversation)
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
        entry::summary(&self.conversation)
    }

    /// Returns an open question.
    pub fn question(&self, gate: &GateId) -> Option<&GateQuestion> {
        self.questions.get(gate)
    }

    /// Returns the UI requests of the open questions, for a new subscriber.
    pub fn open_requests(&self, now: Now) -> Vec<PiEvent> {
        let mut out = EventSink::recording();
        self.questions.values().for_each(|question| ui::emit_question(question, now, &mut out));
        out.into_events()
    }
}
