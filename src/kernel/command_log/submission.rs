//! Inputs: a command as its protocol describes it, and the results that the driver reports later.

use std::sync::Arc;

use super::super::id::{Fingerprint, SessionId};
use super::error::CommandError;
use super::record::{CommandOutcome, Kind};

/// The driver's number for one submission, unique in the lifetime of a command log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubmissionId(pub u64);

/// A command that a client sent.
#[derive(Debug, Clone)]
pub struct Submission {
    /// The number under which the driver expects the reply.
    pub ticket: SubmissionId,
    /// Its name.
    pub name: CommandName,
    /// Its idempotency key, scoped by session, or to commands without one.
    pub key: Option<Arc<str>>,
    /// Its kind.
    pub kind: Kind,
    /// Its session, which is also its lane.
    pub session: Option<SessionId>,
    /// A digest of everything that it asks for, without its name and key.
    pub fingerprint: Fingerprint,
    /// The ids of the commands that must succeed first.
    pub depends_on: Vec<Arc<str>>,
    /// How it is ordered in its lane.
    pub scheduling: Scheduling,
    /// The time limit, in milliseconds.
    pub time_limit: Option<u64>,
    /// How durably it is stored.
    pub persistence: Persistence,
    /// How the rate limiter counts it.
    pub rate_class: RateClass,
    /// Formats an error of the log as its protocol spells it.
    pub format_error: ErrorFormatter,
}

/// Formats an error of the command log as text.
pub type ErrorFormatter = fn(&CommandError) -> String;

/// The name of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandName {
    /// The id that its sender chose; it can be repeated and depended on.
    Client(Arc<str>),
    /// A generated name for a command without an id; nobody can refer to it.
    Generated(Arc<str>),
}

/// How a command is ordered in its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduling {
    /// It changes something: it runs when every earlier command of its lane has ended.
    Write,
    /// A write that may take long: while it runs, later reads run concurrently.
    LongWrite,
    /// It only reads: it runs when every earlier write has ended, or is a long write that is running.
    Read,
    /// It runs at once, concurrently with everything else: used to control a running command.
    Bypass,
}

/// How durably a command is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// It does not wait for the disk before it runs, and its driver commits its outcome in one batch with its effect,
    /// so that neither is stored without the other. An outcome without an effect is written before it is announced. Its
    /// admission is stored only while it waits for its turn.
    WithEffect,
    /// It runs at once, and its outcome is cached and written later: a stop must not wait for the disk.
    Relaxed,
    /// It only reads: its outcome is cached and not stored. After a restart it runs again.
    Cached,
}

/// How the rate limiter counts a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateClass {
    /// It counts, unless it is a repetition.
    Ordinary,
    /// It counts against a second limiter with the same limits, so that a flood of ordinary commands does not prevent
    /// a client from stopping or answering something.
    Control,
}

/// Every input that the command log can receive.
#[derive(Debug, Clone)]
pub enum Input {
    /// A client sent a command.
    Submit(Box<Submission>),
    /// A running command has ended. The input is ignored if the command has timed out.
    Finished(SubmissionId, CommandOutcome),
    /// A running command has ended, and its outcome is committed with its effect.
    FinishedWithEffect(SubmissionId, CommandOutcome),
    /// The outcome of an [`Effect::PersistOutcome`](super::Effect::PersistOutcome) is written.
    OutcomePersisted(SubmissionId),
    /// The outcome could not be written. The sender gets it nevertheless, and it is cached until a restart.
    OutcomeFailed(SubmissionId),
    /// The time of [`CommandLog::next_deadline`](super::CommandLog::next_deadline) has come.
    Deadline,
    /// A session is being deleted: its outcomes are removed, and new ones are not stored.
    SessionDeleted(SessionId),
    /// The server shuts down: nothing more is admitted.
    ShuttingDown,
}

impl CommandName {
    /// Returns the name.
    pub const fn text(&self) -> &Arc<str> {
        match self {
            Self::Client(text) => text,
            Self::Generated(text) => text,
        }
    }

    /// Returns the name if it is the sender's id.
    pub const fn client_id(&self) -> Option<&Arc<str>> {
        match self {
            Self::Client(text) => Some(text),
            Self::Generated(_) => None,
        }
    }
}
