//! The errors of model requests: a closed list of kinds with one code each.

use std::fmt;
use std::time::Duration;

/// The reason why a model returned no turn or an incomplete one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// The kind of failure.
    pub kind: ModelErrorKind,
    /// Whether a later retry may succeed.
    pub retryable: bool,
    /// A message for people: what happened, and the remedy where one is known.
    pub message: String,
    /// The beginning of the server's response, where the message does not quote it.
    pub detail: Option<String>,
    /// The size of the model's context window in tokens, where the server reports it.
    pub window: Option<u32>,
    /// The delay before a retry that the server or the circuit breaker asks for.
    pub retry_after: Option<Duration>,
}

/// A kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModelErrorKind {
    /// A setting is missing or invalid; the message names it.
    NotConfigured,
    /// The server rejects the key, or none was sent.
    Unauthorized,
    /// The account has no credit left.
    OutOfCredit,
    /// The rate limit is exceeded.
    RateLimited,
    /// The server is overloaded.
    Overloaded,
    /// The server failed.
    Failed,
    /// No connection to the server can be made.
    Unreachable,
    /// The response ended before it was complete.
    Interrupted,
    /// The server sent nothing within the timeout.
    TimedOut,
    /// The response cannot be decoded, or it exceeds a limit.
    InvalidResponse,
    /// The server rejects the request.
    Refused,
    /// The server has no such model.
    ModelNotFound,
    /// The conversation does not fit into the model's context window.
    ContextTooLong,
    /// The circuit breaker is open: the server failed too often in a row.
    CircuitOpen,
    /// The server was still loading the model when the wait timed out.
    ModelLoading,
}

impl ModelErrorKind {
    /// All kinds, in the order of the documentation.
    pub const ALL: [Self; 15] = [
        Self::NotConfigured,
        Self::Unauthorized,
        Self::OutOfCredit,
        Self::RateLimited,
        Self::Overloaded,
        Self::Failed,
        Self::Unreachable,
        Self::Interrupted,
        Self::TimedOut,
        Self::InvalidResponse,
        Self::Refused,
        Self::ModelNotFound,
        Self::ContextTooLong,
        Self::CircuitOpen,
        Self::ModelLoading,
    ];

    /// Returns the error code on the wire.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotConfigured => "PROVIDER_NOT_CONFIGURED",
            Self::Unauthorized => "PROVIDER_UNAUTHORIZED",
            Self::OutOfCredit => "PROVIDER_OUT_OF_CREDIT",
            Self::RateLimited => "PROVIDER_RATE_LIMITED",
            Self::Overloaded => "PROVIDER_OVERLOADED",
            Self::Failed => "PROVIDER_FAILED",
            Self::Unreachable => "PROVIDER_UNREACHABLE",
            Self::Interrupted => "PROVIDER_INTERRUPTED",
            Self::TimedOut => "PROVIDER_TIMEOUT",
            Self::InvalidResponse => "PROVIDER_INVALID_RESPONSE",
            Self::Refused => "PROVIDER_REFUSED",
            Self::ModelNotFound => "MODEL_NOT_FOUND",
            Self::ContextTooLong => "CONTEXT_TOO_LONG",
            Self::CircuitOpen => "CIRCUIT_OPEN",
            Self::ModelLoading => "MODEL_LOADING",
        }
    }

    /// Returns whether a later retry may succeed.
    pub const fn retryable(self) -> bool {
        match self {
            Self::NotConfigured => false,
            Self::Unauthorized => false,
            Self::OutOfCredit => false,
            Self::RateLimited => true,
            Self::Overloaded => true,
            Self::Failed => true,
            Self::Unreachable => true,
            Self::Interrupted => true,
            Self::TimedOut => true,
            Self::InvalidResponse => false,
            Self::Refused => false,
            Self::ModelNotFound => false,
            Self::ContextTooLong => false,
            Self::CircuitOpen => true,
            Self::ModelLoading => true,
        }
    }

    /// Returns whether the server itself failed; the circuit breaker counts such failures.
    pub const fn is_outage(self) -> bool {
        match self {
            Self::Overloaded => true,
            Self::Failed => true,
            Self::Unreachable => true,
            Self::Interrupted => true,
            Self::TimedOut => true,
            Self::NotConfigured => false,
            Self::Unauthorized => false,
            Self::OutOfCredit => false,
            Self::RateLimited => false,
            Self::InvalidResponse => false,
            Self::Refused => false,
            Self::ModelNotFound => false,
            Self::ContextTooLong => false,
            Self::CircuitOpen => false,
            Self::ModelLoading => false,
        }
    }
}

impl fmt::Display for ModelErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl ModelError {
    /// Creates an error of a kind with a message for people.
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        let (retryable, message) = (kind.retryable(), message.into());
        Self { kind, retryable, message, detail: None, window: None, retry_after: None }
    }

    /// Adds the beginning of the server's response.
    #[must_use]
    pub fn with_detail(mut self, text: &str) -> Self {
        let text = text.trim();
        self.detail = (!text.is_empty()).then(|| excerpt(text, DETAIL_BYTES));
        self
    }

    /// Creates the error of a response that cannot be decoded.
    pub(super) fn invalid_response(message: impl Into<String>, body: &[u8]) -> Self {
        let head = body.get(..body.len().min(2 * DETAIL_BYTES)).unwrap_or_default();
        Self::new(ModelErrorKind::InvalidResponse, message).with_detail(&String::from_utf8_lossy(head))
    }

    /// Applies `hide` to every text of the error.
    pub(super) fn map_texts(mut self, hide: impl Fn(&str) -> String) -> Self {
        self.message = hide(&self.message);
        self.detail = self.detail.as_deref().map(hide);
        self
    }
}

/// Returns at most `bytes` bytes of a text, cut at a character boundary, with control characters replaced by
/// spaces.
pub(super) fn excerpt(text: &str, bytes: usize) -> String {
    let end = text.floor_char_boundary(bytes);
    let cut = if end < text.len() { "…" } else { "" };
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.get(..end).unwrap_or_default().chars().map(plain).chain(cut.chars()).collect()
}

/// How much of a server's response an error holds.
const DETAIL_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_has_a_code_of_its_own() {
        let codes: BTreeSet<&str> = ModelErrorKind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(codes.len(), ModelErrorKind::ALL.len());
    }

    #[test]
    fn an_excerpt_is_bounded_and_ends_at_a_character_boundary() {
        assert_eq!(excerpt("abc", 3), "abc");
        assert_eq!(excerpt("aé€", 3), "aé…");
        assert_eq!(excerpt("aé€", 2), "a…");
        assert_eq!(excerpt("a\nb\u{1b}[c", 9), "a b [c");
        let error = ModelError::invalid_response("nonsense", "€".repeat(5000).as_bytes());
        assert!(error.detail.unwrap().len() <= DETAIL_BYTES + "…".len());
    }
}
