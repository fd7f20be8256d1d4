//! The state of the view, its inputs and its effects.

use std::collections::{BTreeMap, BTreeSet};

use crossterm::event::KeyEvent;

use super::activity::RunState;
use super::card::Card;
use super::client_task::{Call, CallError, CallReply};
use super::completion::Completion;
use super::composer::Composer;
use super::options::SwitchTarget;
use super::palette::Palette;
use super::scrolled::ScrolledView;
use super::text::theme::Theme;
use super::transcript::Transcript;
use crate::client::{Event, ListedApproval, Notice, SessionSnapshot};
use crate::display::approval::PendingApprovals;
use crate::display::usage::UsageTotal;

/// A time in milliseconds since 1970.
pub(crate) type Millis = u64;

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Input {
    /// A key was pressed.
    Key(KeyEvent),
    /// A text was pasted.
    Paste(String),
    /// The terminal gained or lost the focus.
    Focus(bool),
    /// The terminal has another size.
    Resize(u16, u16),
    /// An event of the session.
    Event(Box<Event>),
    /// The pending approvals of all sessions.
    Approvals(Vec<ListedApproval>),
    /// The connection changed.
    Notice(Notice),
    /// The reply to a request.
    Reply {
        /// The number of the request.
        number: u64,
        /// The reply.
        reply: Result<CallReply, CallError>,
    },
    /// The files of the session's directory, for completion.
    Files(Vec<String>),
    /// A signal that cancels the run.
    Interrupt,
    /// A signal that leaves.
    Detach,
    /// A signal that suspends.
    Suspend,
    /// Time has passed.
    Tick,
}

/// Something to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Send a request.
    Call(u64, Call),
    /// Leave the view.
    Leave(LeaveReason),
    /// Suspend the process.
    Suspend,
    /// List the files of a directory.
    ListFiles(String),
    /// Notify the user, who looks elsewhere.
    Notify(String),
    /// Draw everything again.
    Redraw,
    /// Show another session.
    Switch(SwitchTarget),
}

/// How the user left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaveReason {
    /// The run continues.
    Detached,
    /// By a signal that ends the program; the run continues.
    Signalled,
    /// With Ctrl-C twice.
    Interrupted,
}

/// Which part of the region receives keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Focus {
    /// The composer.
    Composer,
    /// The approval card.
    Card,
    /// The queued messages.
    Queue,
}

/// Whether the daemon is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connection {
    /// It is.
    Connected,
    /// The client reconnects.
    Reconnecting,
    /// The daemon was stopped on purpose.
    Stopped,
}

/// A message in the queue of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueEntry {
    /// Its id.
    pub(crate) id: String,
    /// Its text.
    pub(crate) text: String,
}

/// A request without a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingCall {
    /// The request.
    pub(crate) call: Call,
    /// What the user wrote; it returns to the composer if the request fails.
    pub(crate) draft: Option<String>,
    /// What follows the reply.
    pub(crate) next: FollowUp,
}

/// What follows the reply to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FollowUp {
    /// Nothing.
    None,
    /// The text of a message that was taken out of the queue is edited.
    Edit(String),
    /// The text of a message that was taken out of the queue is sent into the run.
    Steer(String),
    /// The reply is printed.
    Print,
}

/// What is known when the view starts.
#[derive(Debug)]
pub(crate) struct Setup {
    /// The styles.
    pub(crate) theme: Theme,
    /// The session.
    pub(crate) session: String,
    /// The session as users name it.
    pub(crate) handle: String,
    /// Its state.
    pub(crate) snapshot: SessionSnapshot,
    /// The run whose message the user typed on the command line; it is not shown again.
    pub(crate) own_run: Option<String>,
    /// Whether nothing can be sent.
    pub(crate) read_only: bool,
    /// Whether another session can be shown.
    pub(crate) can_switch: bool,
    /// Events up to this seq are history.
    pub(crate) history_end: u64,
    /// The size of the terminal.
    pub(crate) size: (u16, u16),
    /// Whether calls show all of their output.
    pub(crate) full_output: bool,
    /// The present time.
    pub(crate) now: Millis,
    /// Generates the id of a message.
    pub(crate) new_id: fn() -> String,
}

/// The state of the view.
#[derive(Debug)]
pub(crate) struct Model {
    /// The styles.
    pub(crate) theme: Theme,
    /// The session.
    pub(crate) session: String,
    /// The session as users name it.
    pub(crate) handle: String,
    /// Its display name.
    pub(crate) name: Option<String>,
    /// The provider and the model.
    pub(crate) provider: String,
    /// The directory of the session.
    pub(crate) cwd: String,
    /// Whether nothing can be sent.
    pub(crate) read_only: bool,
    /// Whether another session can be shown.
    pub(crate) can_switch: bool,
    /// The list of sessions and commands, while it is shown.
    pub(crate) palette: Option<Palette>,
    /// The scrolled view, while it is shown in place of everything else.
    pub(crate) scrolled: Option<ScrolledView>,
    /// Whether the session accepts no more messages.
    pub(crate) ended: bool,
    /// The conversation.
    pub(crate) transcript: Transcript,
    /// The run whose message is not shown.
    pub(crate) own_run: Option<String>,
    /// The approvals that were decided.
    pub(crate) decided: BTreeSet<String>,
    /// The active run.
    pub(crate) run: Option<RunState>,
    /// Tokens and cost of the session, as far as its events were seen.
    pub(crate) usage: UsageTotal,
    /// The pending approvals.
    pub(crate) approvals: PendingApprovals,
    /// The card of the oldest one.
    pub(crate) card: Option<Card>,
    /// The ids of the pending approvals of other sessions.
    pub(crate) other_approvals: BTreeSet<String>,
    /// The queued messages.
    pub(crate) queue: Vec<QueueEntry>,
    /// The selected queued message.
    pub(crate) selected: usize,
    /// Requests without a reply.
    pub(crate) pending: BTreeMap<u64, PendingCall>,
    /// The number of the next request.
    pub(crate) next_call: u64,
    /// The message that is being written.
    pub(crate) composer: Composer,
    /// The completion of the word before the cursor.
    pub(crate) completion: Option<Completion>,
    /// The files of the directory, once they are listed.
    pub(crate) files: Option<Vec<String>>,
    /// Which part receives keys.
    pub(crate) focus: Focus,
    /// Whether the terminal has the focus, as far as it reports that.
    pub(crate) is_watched: bool,
    /// Whether the daemon is connected.
    pub(crate) connection: Connection,
    /// When the size changed last.
    pub(crate) resized_at: Millis,
    /// When a key was pressed last.
    pub(crate) typed_at: Millis,
    /// When Ctrl-C was pressed last.
    pub(crate) interrupted_at: Option<Millis>,
    /// A message for the user that disappears.
    pub(crate) hint: Option<(String, Millis)>,
    /// The last error of the run, which its summary often repeats.
    pub(crate) last_error: String,
    /// The view ends as soon as no request is pending.
    pub(crate) leaving: Option<(LeaveReason, Millis)>,
    /// Events up to this seq are history.
    pub(crate) history_end: u64,
    /// The last event.
    pub(crate) last_seq: u64,
    /// The size of the terminal.
    pub(crate) size: (u16, u16),
    /// The present time.
    pub(crate) now: Millis,
    /// Generates the id of a message.
    pub(crate) new_id: fn() -> String,
}

impl Model {
    /// Starts with the state of a session.
    pub(crate) fn new(setup: Setup) -> Self {
        let meta = setup.snapshot.meta;
        let provider = match &meta.model {
            Some(model) => format!("{}/{model}", meta.provider),
            None => meta.provider.clone(),
        };
        let run = setup.snapshot.active_run_id.map(|id| RunState::new(&id, setup.now));
        Self {
            theme: setup.theme,
            session: setup.session,
            handle: setup.handle,
            name: meta.name,
            provider,
            cwd: meta.cwd,
            read_only: setup.read_only,
            can_switch: setup.can_switch,
            palette: None,
            scrolled: None,
            ended: setup.snapshot.ended,
            transcript: Transcript::new(setup.theme, setup.size.0, setup.full_output),
            own_run: setup.own_run,
            decided: BTreeSet::new(),
            run,
            usage: UsageTotal::default(),
            approvals: PendingApprovals::default(),
            card: None,
            other_approvals: BTreeSet::new(),
            queue: Vec::new(),
            selected: 0,
            pending: BTreeMap::new(),
            next_call: 1,
            composer: Composer::default(),
            completion: None,
            files: None,
            focus: Focus::Composer,
            is_watched: true,
            connection: Connection::Connected,
            resized_at: 0,
            typed_at: 0,
            interrupted_at: None,
            hint: None,
            last_error: String::new(),
            leaving: None,
            history_end: setup.history_end,
            last_seq: 0,
            size: setup.size,
            now: setup.now,
            new_id: setup.new_id,
        }
    }

    /// Returns whether all events of the history have arrived.
    pub(crate) const fn is_live(&self) -> bool {
        self.last_seq >= self.history_end
    }

    /// Returns whether the keys are shown: a question mark alone asks for them.
    pub(crate) fn shows_keys(&self) -> bool {
        self.composer.before_cursor() == "?" && self.composer.message() == "?"
    }

    /// Returns whether the user is typing.
    pub(crate) const fn is_typing(&self) -> bool {
        self.now < self.typing_end()
    }

    /// Returns until when the user counts as typing.
    pub(crate) const fn typing_end(&self) -> Millis {
        self.typed_at + TYPING_MILLIS
    }

    /// Returns whether the size changes: after a new one further ones are expected.
    pub(crate) const fn is_resizing(&self) -> bool {
        self.now < self.resize_end()
    }

    /// Returns until when further sizes are expected.
    pub(crate) const fn resize_end(&self) -> Millis {
        self.resized_at + RESIZE_MILLIS
    }

    /// Shows a message for a few seconds.
    pub(crate) fn show_hint(&mut self, text: impl Into<String>) {
        self.hint = Some((text.into(), self.now + HINT_MILLIS));
    }

    /// Sends a request; `draft` returns to the composer if it fails.
    pub(crate) fn call(&mut self, call: Call, draft: Option<String>) -> Effect {
        self.call_then(call, draft, FollowUp::None)
    }

    /// Sends a request; `next` follows its reply.
    pub(crate) fn call_then(&mut self, call: Call, draft: Option<String>, next: FollowUp) -> Effect {
        let number = self.next_call;
        self.next_call += 1;
        self.pending.insert(number, PendingCall { call: call.clone(), draft, next });
        Effect::Call(number, call)
    }
}

/// For how long after a key the user counts as typing.
const TYPING_MILLIS: Millis = 3000;
/// For how long after a new size further ones are expected.
const RESIZE_MILLIS: Millis = 1000;
/// How long a message for the user is shown.
const HINT_MILLIS: Millis = 4000;
