//! Errors of request decoding, and how they are answered.

use crate::kernel::id::SessionId;
use crate::protocol::error::{Code, ErrorBody};
use crate::protocol::intent::{Malformed, RequestTag};

/// A line that is not a valid request, with the readable parts of its envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MalformedRequest {
    /// The id to answer under; the daemon generates one if it is missing.
    pub request_id: Option<String>,
    /// The type as sent; the response says `unknown` if it is missing.
    pub type_name: Option<String>,
    /// The session id as sent.
    pub session: Option<String>,
    /// The error.
    pub problem: Box<RequestError>,
}

impl MalformedRequest {
    /// Makes the error of a line without a readable envelope.
    pub fn unreadable(problem: RequestError) -> Self {
        Self { request_id: None, type_name: None, session: None, problem: Box::new(problem) }
    }

    /// Returns the refusal of the line.
    pub fn into_refusal(self) -> Malformed {
        let error = self.error();
        let kind_name = self.type_name.unwrap_or_else(|| "unknown".to_owned());
        let session = self.session.map(SessionId::from);
        Malformed { tag: RequestTag { request_id: self.request_id, kind_name, session }, error }
    }

    /// Returns the error of the response.
    pub fn error(&self) -> ErrorBody {
        ErrorBody::permanent(self.problem.code(), self.problem.to_string())
    }
}

/// Why a request cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The line is not a request envelope.
    #[error("the line is not a request envelope")]
    NotAnEnvelope,
    /// The line exceeds the size limit.
    #[error("the line is {bytes} bytes long, and the limit is {limit} bytes")]
    TooLong {
        /// The length of the line in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: usize,
    },
    /// The line is not a canonical JSON object.
    #[error("the line is not valid: {why}")]
    Unreadable {
        /// The reason.
        why: String,
    },
    /// The protocol version is not supported.
    #[error("v: must be \"push.runtime.v1\"")]
    UnsupportedVersion,
    /// The request type is unknown.
    #[error("type: unknown request type {name:?}")]
    UnknownType {
        /// The type as sent.
        name: String,
    },
    /// A field is invalid.
    #[error("{field}: {error}")]
    Field {
        /// The path of the field.
        field: String,
        /// The reason.
        error: FieldError,
    },
    /// The envelope and the payload name different sessions.
    #[error("sessionId: the envelope and the payload name different sessions")]
    SessionMismatch,
    /// A new session needs a directory.
    #[error("payload: needs cwd or repo.rootPath")]
    MissingDirectory,
}

impl RequestError {
    /// Returns the protocol's error code.
    pub const fn code(&self) -> Code {
        match self {
            Self::NotAnEnvelope => Code::InvalidRequest,
            Self::TooLong { .. } => Code::InvalidRequest,
            Self::Unreadable { .. } => Code::InvalidRequest,
            Self::UnsupportedVersion => Code::UnsupportedProtocolVersion,
            Self::UnknownType { .. } => Code::UnsupportedRequestType,
            Self::Field { .. } => Code::InvalidRequest,
            Self::SessionMismatch => Code::InvalidRequest,
            Self::MissingDirectory => Code::InvalidRequest,
        }
    }
}

/// Why a field is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// It is required.
    #[error("is missing")]
    Missing,
    /// It has the wrong type.
    #[error("must be {expected}")]
    WrongType {
        /// The expected type.
        expected: &'static str,
    },
    /// It is empty.
    #[error("must not be empty")]
    Empty,
    /// It is too long.
    #[error("must not be longer than {bound}")]
    TooLong {
        /// The limit.
        bound: LengthLimit,
    },
    /// It has too many entries.
    #[error("must not have more than {limit} entries")]
    TooManyEntries {
        /// The limit.
        limit: usize,
    },
    /// It is not an allowed keyword.
    #[error("must be {allowed}")]
    UnknownWord {
        /// The allowed keywords.
        allowed: &'static str,
    },
    /// It contains a lone surrogate.
    #[error("must be well-formed Unicode")]
    NotUnicode,
    /// It is not base64 image data.
    #[error("must be base64-encoded image data")]
    NotBase64,
    /// The path is relative.
    #[error("must be an absolute path")]
    RelativePath,
    /// It contains NUL, which cannot be passed to a program.
    #[error("must not contain a NUL character")]
    ContainsNul,
    /// It is not a valid variable name.
    #[error("has a name that is empty or contains '=' or NUL")]
    BadVariableName,
}

/// A length limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LengthLimit {
    /// In bytes of UTF-8.
    Bytes(usize),
    /// In characters.
    Chars(usize),
}

impl LengthLimit {
    /// Returns whether a text is within the limit.
    pub fn allows(self, text: &str) -> bool {
        match self {
            Self::Bytes(limit) => text.len() <= limit,
            // A string has at most as many characters as bytes, so short strings need no counting.
            Self::Chars(limit) => text.len() <= limit || text.chars().count() <= limit,
        }
    }
}

impl std::fmt::Display for LengthLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(limit) => write!(f, "{limit} bytes"),
            Self::Chars(limit) => write!(f, "{limit} characters"),
        }
    }
}
