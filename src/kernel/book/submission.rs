//! Inputs: a command as its protocol adapter describes it, and the results that the driver reports later.

use std::sync::Arc;

use super::super::id::{Fingerprint, SessionId};
use super::fault::BookFault;
use super::record::{Kind, Outcome};

/// The driver's number for one submission, unique in the lifetime of a command log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A command that a client sent.
#[derive(Debug, Clone)]
pub struct Submission {
    /// The number under which the driver expects the reply.
    pub ticket: Ticket,
    /// Its name.
    pub name: Name,
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
    pub order: Order,
    /// The time limit, in milliseconds.
    pub time_limit: Option<u64>,
    /// How durably it is stored.
    pub keeping: Keeping,
    /// How the rate limiter counts it.
    pub counting: Counting,
    /// Formats an error of the log in the words of its protocol.
    pub spell: Spell,
}

/// Formats an error of the command log as text.
pub type Spell = fn(&BookFault) -> String;

/// The name of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// The id that its sender chose; it can be repeated and depended on.
    Given(Arc<str>),
    /// A generated name for a command without an id; nobody can refer to it.
    Made(Arc<str>),
}

/// How a command is ordered in its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// It changes something: it runs when every earlier command of its lane has ended.
    Waits,
    /// A write that may take long: while it runs, later reads run concurrently.
    Long,
    /// It only reads: it runs when every earlier write has ended, or is a long write that is running.
    Reads,
    /// It runs at once, concurrently with everything else: used to control a running command.
    Overtakes,
}

/// How durably a command is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// Its admission is on disk before it runs, and its outcome is written before it is announced.
    Durable,
    /// It runs at once, and its outcome is cached and written later. A read may run again after a crash, and a stop
    /// must not wait for the disk.
    Light,
}

/// How the rate limiter counts a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// It counts, unless it is a repetition.
    Counted,
    /// It counts against a second limiter with the same limits, so that a flood of ordinary commands does not prevent
    /// a client from stopping or answering something.
    Control,
    /// It does not count.
    Free,
}

/// Every input that the command log can receive.
#[derive(Debug, Clone)]
pub enum Input {
    /// A client sent a command.
    Submit(Box<Submission>),
    /// The admission of an [`Effect::PersistAdmission`](super::Effect::PersistAdmission) is on disk.
    Kept(Ticket),
    /// The admission could not be persisted: the command fails without having run, and may be sent again.
    NotKept(Ticket),
    /// A running command has ended. The input is ignored if the command has timed out.
    Finished(Ticket, Outcome),
    /// The outcome of an [`Effect::PersistOutcome`](super::Effect::PersistOutcome) is written.
    Settled(Ticket),
    /// The outcome could not be written. The sender gets it nevertheless, and it is cached until a restart.
    NotSettled(Ticket),
    /// The time of [`CommandLog::next_deadline`](super::CommandLog::next_deadline) has come.
    Deadline,
    /// A session is being deleted: its outcomes are removed, and new ones are not stored.
    Erased(SessionId),
    /// The server shuts down: nothing more is admitted.
    ShuttingDown,
}

impl Name {
    /// Returns the name.
    pub const fn text(&self) -> &Arc<str> {
        match self {
            Self::Given(text) => text,
            Self::Made(text) => text,
        }
    }

    /// Returns the name if it is the sender's id.
    pub const fn given(&self) -> Option<&Arc<str>> {
        match self {
            Self::Given(text) => Some(text),
            Self::Made(_) => None,
        }
    }
}
