//! Stored facts about a command: its identity and its outcome. Plain values without behaviour.

use std::borrow::Cow;
use std::sync::Arc;

use super::super::id::{Fingerprint, SessionId};
use super::super::time::Now;

/// The row id of a command: strictly increasing in order of admission, across restarts too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(pub u64);

/// The kind of a command, as its protocol names it; most are string literals.
pub type Kind = Cow<'static, str>;

/// The identity of a command, by which a repetition is recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRecord {
    /// Its row id.
    pub row: RowId,
    /// The id that its sender gave.
    pub id: Option<Arc<str>>,
    /// The idempotency key that its sender gave; keys are scoped by session, or to commands without one.
    pub key: Option<Arc<str>>,
    /// Its kind.
    pub kind: Kind,
    /// Its session.
    pub session: Option<SessionId>,
    /// A digest of everything that it asks for.
    pub fingerprint: Fingerprint,
    /// When it was admitted.
    pub admitted_at: Now,
}

/// The final outcome of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutcome {
    /// Whether the command succeeded.
    pub success: bool,
    /// Its result, or the text of its error; opaque to the log.
    pub body: ReplyBody,
    /// The version of its session after it, if there is one.
    pub version: Option<u64>,
    /// Whether it failed because it timed out.
    pub timed_out: bool,
}

/// The body of a command's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyBody {
    /// The body.
    Text(Arc<str>),
    /// The body had this many bytes and was too large to keep.
    TooLarge(u64),
    /// The body was removed: it mentioned a session that has been deleted since, or it was found damaged.
    Removed,
}

/// The outcome of a command, written as one unit: it is complete even if the admission was never written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomeRecord {
    /// The identity of the command.
    pub record: Arc<CommandRecord>,
    /// Its outcome.
    pub outcome: CommandOutcome,
    /// When it ended.
    pub at: Now,
}

/// A command as it was read from disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCommand {
    /// Its identity.
    pub record: CommandRecord,
    /// Its outcome and when it ended; `None` if it was admitted and its end is unknown.
    pub settled: Option<(CommandOutcome, Now)>,
}

impl CommandOutcome {
    /// Returns a successful outcome.
    pub fn succeeded(result: impl Into<Arc<str>>, version: Option<u64>) -> Self {
        Self { success: true, body: ReplyBody::Text(result.into()), version, timed_out: false }
    }

    /// Returns a failed outcome.
    pub fn failed(error: impl Into<Arc<str>>) -> Self {
        Self { success: false, body: ReplyBody::Text(error.into()), version: None, timed_out: false }
    }
}

impl ReplyBody {
    /// Returns the size of the text in bytes.
    pub fn len(&self) -> usize {
        self.text().map_or(0, str::len)
    }

    /// Returns whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the text, if it was kept.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::TooLarge(_) => None,
            Self::Removed => None,
        }
    }
}

/// Returns a session's id as a JSON string, quotes included.
///
/// A reply body that contains it mentions that session.
pub fn quoted_id(session: &SessionId) -> String {
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
