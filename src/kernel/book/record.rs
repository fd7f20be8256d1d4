//! What is kept of a command: who it was, and what came of it. Plain values, no behaviour but their sizes.

use std::borrow::Cow;
use std::sync::Arc;

use super::super::id::{Fingerprint, SessionId};
use super::super::time::Now;

/// A command in the book's numbering: strictly rising in the order of admission, across restarts too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row(pub u64);

/// The word for what a command does; most are known when the program is built.
pub type Kind = Cow<'static, str>;

/// Who a command was: everything that a repetition of it is recognised by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number.
    pub row: Row,
    /// The id that its sender gave it.
    pub id: Option<Arc<str>>,
    /// The key under which its sender may repeat it; it counts within the session, or among those without one.
    pub key: Option<Arc<str>>,
    /// What it does.
    pub kind: Kind,
    /// The session that it concerns.
    pub session: Option<SessionId>,
    /// A digest of everything that it asks for.
    pub fingerprint: Fingerprint,
    /// When it was admitted.
    pub admitted: Now,
}

/// What came of a command, for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it did what it was asked for.
    pub success: bool,
    /// Its result, or the text of its error; the book carries it and never reads it.
    pub body: Body,
    /// The version of its session after it, where there is one.
    pub version: Option<u64>,
    /// Whether it failed because its time was over.
    pub timed_out: bool,
}

/// What a command answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// The answer.
    Text(Arc<str>),
    /// There was an answer of so many bytes, which was too large to keep.
    TooLarge(u64),
    /// There was an answer, and it is gone: it spoke of a session that was deleted since, or it was found damaged.
    Gone,
}

/// The end of a command, to be written down in one piece: it is complete also if its admission was never written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// Who it was.
    pub record: Arc<Record>,
    /// What came of it.
    pub outcome: Outcome,
    /// When.
    pub at: Now,
}

/// A command as it was found on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Who it was.
    pub record: Record,
    /// What came of it and when; `None` if it was admitted and its end is not known.
    pub settled: Option<(Outcome, Now)>,
}

impl Outcome {
    /// A command that succeeded.
    pub fn done(result: impl Into<Arc<str>>, version: Option<u64>) -> Self {
        Self { success: true, body: Body::Text(result.into()), version, timed_out: false }
    }

    /// A command that failed.
    pub fn failed(error: impl Into<Arc<str>>) -> Self {
        Self { success: false, body: Body::Text(error.into()), version: None, timed_out: false }
    }
}

impl Body {
    /// Returns how many bytes of memory its text takes.
    pub fn len(&self) -> usize {
        self.text().map_or(0, str::len)
    }

    /// Tells whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the answer, if it was kept.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::TooLarge(_) => None,
            Self::Gone => None,
        }
    }
}

/// Returns how a session's name stands inside a JSON text, quotes included.
///
/// An answer that contains it speaks of that session.
pub fn mention(session: &SessionId) -> String {
    let mut text = String::with_capacity(session.as_str().len() + 2);
    text.push('"');
    for letter in session.as_str().chars() {
        if matches!(letter, '"' | '\\') {
            text.push('\\');
        }
        text.push(letter);
    }
    text.push('"');
    text
}
