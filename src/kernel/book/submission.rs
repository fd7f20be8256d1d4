//! What comes in: a command as its protocol's adapter describes it, and what the driver has to tell of it later.

use std::sync::Arc;

use super::super::id::{Fingerprint, SessionId};
use super::fault::BookFault;
use super::record::{Kind, Outcome};

/// The driver's number for one submission; it is never used twice in the life of a book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A command that somebody sent.
#[derive(Debug, Clone)]
pub struct Submission {
    /// How the driver finds whoever waits for it.
    pub ticket: Ticket,
    /// What it is called.
    pub name: Name,
    /// The key under which it may be repeated; it counts within the session, or among commands without one.
    pub key: Option<Arc<str>>,
    /// What it does.
    pub kind: Kind,
    /// The session that it concerns, which is also the lane that it runs in.
    pub session: Option<SessionId>,
    /// A digest of everything that it asks for, its name and key left out.
    pub fingerprint: Fingerprint,
    /// The ids of commands that must succeed before it runs.
    pub depends_on: Vec<Arc<str>>,
    /// Whether it takes its turn in its lane.
    pub order: Order,
    /// How many milliseconds it may run.
    pub time_limit: Option<u64>,
    /// How well it is kept.
    pub keeping: Keeping,
    /// Whether it counts against the limits of the rate.
    pub counting: Counting,
    /// How its protocol words what the book has to say of it.
    pub spell: Spell,
}

/// Words a fault as the text of an error.
pub type Spell = fn(&BookFault) -> String;

/// What a command is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// Its sender's id for it, by which it can be repeated and depended on.
    Given(Arc<str>),
    /// A name that the driver made up, because its sender gave none; nobody can refer to it.
    Made(Arc<str>),
}

/// Whether a command takes its turn in its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// It changes something: it runs when everything that came before it in its lane is over.
    Waits,
    /// The same, and it may take long: while it runs, reads that came after it run beside it.
    Long,
    /// It only reads: it runs when every change that came before it is over, or is a long one that is running.
    Reads,
    /// It runs at once, beside whatever runs: what controls something that runs.
    Overtakes,
}

/// How well a command is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// Its admission is on disk before it runs, and its outcome is written before anybody hears of it.
    Durable,
    /// It runs at once, and its outcome is remembered and written some time later: what only reads may be run again
    /// after a crash, and what stops something must wait for no disk.
    Light,
}

/// Whether a command counts against the limits of the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// It does, unless it turns out to be a repetition.
    Counted,
    /// It counts against the same limits, among control commands alone: a flood of others does not keep anybody from
    /// stopping or answering something.
    Control,
    /// It does not.
    Free,
}

/// What happens to the book.
#[derive(Debug, Clone)]
pub enum Input {
    /// Somebody sent a command.
    Submit(Box<Submission>),
    /// The admission that an [`Effect::Keep`](super::Effect::Keep) asked for is on disk.
    Kept(Ticket),
    /// It is not and will not be: the command fails without having run, and may be sent again.
    NotKept(Ticket),
    /// A command that was run has ended. One that nobody waits for any more is ignored.
    Finished(Ticket, Outcome),
    /// The outcome that an [`Effect::Settle`](super::Effect::Settle) asked to write is written.
    Settled(Ticket),
    /// It is not and will not be; its sender hears it all the same, and it is remembered until a restart.
    NotSettled(Ticket),
    /// The moment of [`Book::next_deadline`](super::Book::next_deadline) has come.
    Deadline,
    /// Everything of a session is being deleted: its outcomes are forgotten, and those that come are not kept.
    Erased(SessionId),
    /// Nothing more is admitted.
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

    /// Returns the name if others can refer to it.
    pub const fn given(&self) -> Option<&Arc<str>> {
        match self {
            Self::Given(text) => Some(text),
            Self::Made(_) => None,
        }
    }
}
