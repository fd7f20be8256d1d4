//! Events: what has happened to a session. Only events are journaled, sent to subscribers and folded into the state.
//!
//! They are grouped into families, so that code that does not care about a family matches it with one arm.

mod commit_class;
mod context;
mod gate;
mod notice;
mod participant;
mod run;
mod session;
mod tool;

use super::audience::Audience;
use super::id::{RunId, Seq};
use super::time::Now;
pub use commit_class::CommitClass;
pub use context::{Branch, Compaction, CompactionFailure, CompactionReason, ContextEvent};
pub use gate::{ApprovalScope, Decision, DenialEffect, GateDecision, GateEvent, GateQuestion};
pub use notice::{LossCause, NoticeEvent, TURN_INTERRUPTED, UnknownEvent, is_turn_interrupted};
pub use participant::{ParticipantEvent, PostedMessage};
pub use run::{
    Budget, CheckResult, Criterion, Image, Message, PendingCall, QueuedMessage, RecoveredPhase, Retry, RunEvent,
    RunOutcome, RunReport, Steering, TokenUsage, TurnUsage,
};
pub use session::{Adjustment, Opening, SessionEvent, WorkspaceIdentity};
pub use tool::{
    CallResult, Diff, Intention, OutputStream, Purpose, STOPPED_WITH_DAEMON, ToolError, ToolEvent, ToolOutcome,
};

/// One event with its position in the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The sequence number: strictly increasing within the session, never reused.
    pub seq: Seq,
    /// When the event was recorded; for an imported event, when it happened.
    pub at: Now,
    /// The run it belongs to, if any.
    pub run: Option<RunId>,
    /// The session's version from here on. The first event of a command that changes the session carries it.
    pub version: Option<u64>,
    /// The session file entry that the event was imported from; empty if the import added the event itself.
    pub origin: Option<String>,
    /// Who may see it.
    pub audience: Audience,
    /// The kind of event and its data.
    pub kind: EventKind,
}

/// The kind of an event and its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// An event of the session itself: its opening, its end, its settings.
    Session(SessionEvent),
    /// An event of a run: its messages, its text, its turns and its end.
    Run(RunEvent),
    /// An event of a tool call.
    Tool(ToolEvent),
    /// An event of a gate.
    Gate(GateEvent),
    /// An event of a participant.
    Participant(ParticipantEvent),
    /// A change of the conversation that the model receives.
    Context(ContextEvent),
    /// Something for people or for the record, which changes nothing.
    Notice(NoticeEvent),
}
