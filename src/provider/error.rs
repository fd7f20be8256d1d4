//! What can go wrong between us and a model, as a closed list of kinds with one code each.

use std::fmt;
use std::time::Duration;

/// Why a model gave no turn, or not the whole of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// What kind of failure it is.
    pub kind: Kind,
    /// Whether asking again later may help.
    pub retryable: bool,
    /// A sentence for people: what happened, and what to do where that is known.
    pub message: String,
    /// The beginning of what the server said, where it said something.
    pub detail: Option<String>,
    /// When the server, or the circuit breaker, wants to be asked again.
    pub retry_after: Option<Duration>,
}

/// A kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Something must be set first; the message says what.
    NotConfigured,
    /// The server refuses the key, or there is none.
    Unauthorized,
    /// The account has no credit left.
    OutOfCredit,
    /// The server wants fewer requests.
    RateLimited,
    /// The server has too much to do.
    Overloaded,
    /// The server failed.
    Failed,
    /// Nobody answers there.
    Unreachable,
    /// The answer ended in the middle.
    Cut,
    /// The answer did not come, or stopped coming.
    Silent,
    /// The answer makes no sense, or is larger than any answer may be.
    Garbage,
    /// The server refuses the request as it is.
    Refused,
    /// The server has no such model.
    ModelNotFound,
    /// The conversation is longer than the model can take.
    ContextTooLong,
    /// The server failed too often in a row and is left alone for a while.
    CircuitOpen,
    /// The server has been loading the model for longer than is waited.
    ModelLoading,
}

impl Kind {
    /// All kinds, in the order in which they are documented.
    pub const ALL: [Self; 15] = [
        Self::NotConfigured,
        Self::Unauthorized,
        Self::OutOfCredit,
        Self::RateLimited,
        Self::Overloaded,
        Self::Failed,
        Self::Unreachable,
        Self::Cut,
        Self::Silent,
        Self::Garbage,
        Self::Refused,
        Self::ModelNotFound,
        Self::ContextTooLong,
        Self::CircuitOpen,
        Self::ModelLoading,
    ];

    /// Returns the word for programs.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotConfigured => "PROVIDER_NOT_CONFIGURED",
            Self::Unauthorized => "PROVIDER_UNAUTHORIZED",
            Self::OutOfCredit => "PROVIDER_OUT_OF_CREDIT",
            Self::RateLimited => "PROVIDER_RATE_LIMITED",
            Self::Overloaded => "PROVIDER_OVERLOADED",
            Self::Failed => "PROVIDER_FAILED",
            Self::Unreachable => "PROVIDER_UNREACHABLE",
            Self::Cut => "PROVIDER_CUT",
            Self::Silent => "PROVIDER_SILENT",
            Self::Garbage => "PROVIDER_GARBAGE",
            Self::Refused => "PROVIDER_REFUSED",
            Self::ModelNotFound => "MODEL_NOT_FOUND",
            Self::ContextTooLong => "CONTEXT_TOO_LONG",
            Self::CircuitOpen => "PROVIDER_CIRCUIT_OPEN",
            Self::ModelLoading => "MODEL_LOADING",
        }
    }

    /// Returns whether asking again later may help.
    pub const fn retryable(self) -> bool {
        match self {
            Self::NotConfigured => false,
            Self::Unauthorized => false,
            Self::OutOfCredit => false,
            Self::RateLimited => true,
            Self::Overloaded => true,
            Self::Failed => true,
            Self::Unreachable => true,
            Self::Cut => true,
            Self::Silent => true,
            Self::Garbage => false,
            Self::Refused => false,
            Self::ModelNotFound => false,
            Self::ContextTooLong => false,
            Self::CircuitOpen => true,
            Self::ModelLoading => true,
        }
    }

    /// Returns whether it is the server's own trouble, of which many in a row mean that it is down.
    pub const fn outage(self) -> bool {
        match self {
            Self::Overloaded => true,
            Self::Failed => true,
            Self::Unreachable => true,
            Self::Cut => true,
            Self::Silent => true,
            Self::NotConfigured => false,
            Self::Unauthorized => false,
            Self::OutOfCredit => false,
            Self::RateLimited => false,
            Self::Garbage => false,
            Self::Refused => false,
            Self::ModelNotFound => false,
            Self::ContextTooLong => false,
            Self::CircuitOpen => false,
            Self::ModelLoading => false,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl ModelError {
    /// Makes an error of a kind with a sentence for people.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, retryable: kind.retryable(), message: message.into(), detail: None, retry_after: None }
    }

    /// Adds what the server said, as much of it as is kept.
    #[must_use]
    pub fn with_detail(mut self, said: &str) -> Self {
        let said = said.trim();
        self.detail = (!said.is_empty()).then(|| excerpt(said, DETAIL_BYTES));
        self
    }

    /// Makes the answer's nonsense an error.
    pub(super) fn garbage(message: impl Into<String>, said: &[u8]) -> Self {
        let head = said.get(..said.len().min(2 * DETAIL_BYTES)).unwrap_or_default();
        Self::new(Kind::Garbage, message).with_detail(&String::from_utf8_lossy(head))
    }

    /// Applies `hide` to every text that is shown.
    pub(super) fn map_texts(mut self, hide: impl Fn(&str) -> String) -> Self {
        self.message = hide(&self.message);
        self.detail = self.detail.as_deref().map(hide);
        self
    }
}

/// Returns the beginning of a text, cut where a character ends, without control characters.
pub(super) fn excerpt(text: &str, bytes: usize) -> String {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let cut = if end < text.len() { "…" } else { "" };
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.get(..end).unwrap_or_default().chars().map(plain).chain(cut.chars()).collect()
}

/// How much of what a server said is kept.
const DETAIL_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_has_a_code_of_its_own() {
        let codes: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(codes.len(), Kind::ALL.len());
    }

    #[test]
    fn an_excerpt_is_bounded_and_cut_between_characters() {
        assert_eq!(excerpt("abc", 3), "abc");
        assert_eq!(excerpt("aé€", 3), "aé…");
        assert_eq!(excerpt("aé€", 2), "a…");
        assert_eq!(excerpt("a\nb\u{1b}[c", 9), "a b [c");
        let error = ModelError::garbage("nonsense", "€".repeat(5000).as_bytes());
        assert!(error.detail.unwrap().len() <= DETAIL_BYTES + "…".len());
    }
}
