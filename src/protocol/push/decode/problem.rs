//! What is wrong with a line, and how the client is told.

use crate::protocol::push::error::{Code, ErrorBody};

/// A line that asks for nothing the daemon can do, with as much of its envelope as could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// The id to answer under; a fresh one is to be made when there is none.
    pub request_id: Option<String>,
    /// The type as it was sent; `unknown` is answered when there is none.
    pub type_name: Option<String>,
    /// The session as it was sent.
    pub session: Option<String>,
    /// What is wrong.
    pub problem: Box<Problem>,
}

impl Malformed {
    /// Says what is wrong with something that is no envelope at all.
    pub fn unreadable(problem: Problem) -> Self {
        Self { request_id: None, type_name: None, session: None, problem: Box::new(problem) }
    }

    /// Returns the type to answer under.
    pub fn answered_type(&self) -> &str {
        self.type_name.as_deref().unwrap_or("unknown")
    }

    /// Returns the error to answer.
    pub fn error(&self) -> ErrorBody {
        ErrorBody::lasting(self.problem.code(), self.problem.to_string())
    }
}

/// What is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The line is no object of the right shape.
    #[error("the line is not a request envelope")]
    NotAnEnvelope,
    /// The line is longer than this daemon reads.
    #[error("the line is {bytes} bytes long, and at most {limit} are read")]
    TooLong {
        /// How long it was.
        bytes: u64,
        /// How long it may be.
        limit: usize,
    },
    /// The line is no JSON object that may pass.
    #[error("the line cannot be read: {why}")]
    Unreadable {
        /// What is wrong with it.
        why: String,
    },
    /// The version is another.
    #[error("v: must be \"push.runtime.v1\"")]
    Version,
    /// The type is not known.
    #[error("type: this runtime knows no request {name:?}")]
    UnknownType {
        /// The type as it was sent.
        name: String,
    },
    /// One field is not what it must be.
    #[error("{field}: {fault}")]
    Field {
        /// Where it stands.
        field: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// The envelope and the payload disagree.
    #[error("sessionId: the envelope and the payload name different sessions")]
    TwoSessions,
    /// A session needs a directory.
    #[error("payload: needs cwd or repo.rootPath")]
    NoDirectory,
}

impl Problem {
    /// Returns the code of the protocol for it.
    pub const fn code(&self) -> Code {
        match self {
            Self::NotAnEnvelope => Code::InvalidRequest,
            Self::TooLong { .. } => Code::InvalidRequest,
            Self::Unreadable { .. } => Code::InvalidRequest,
            Self::Version => Code::UnsupportedProtocolVersion,
            Self::UnknownType { .. } => Code::UnsupportedRequestType,
            Self::Field { .. } => Code::InvalidRequest,
            Self::TwoSessions => Code::InvalidRequest,
            Self::NoDirectory => Code::InvalidRequest,
        }
    }
}

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It has to be said.
    #[error("is missing")]
    Missing,
    /// It is something else.
    #[error("must be {expected}")]
    Type {
        /// What it must be.
        expected: &'static str,
    },
    /// It says nothing.
    #[error("must not be empty")]
    Empty,
    /// It is too long.
    #[error("must not be longer than {bound}")]
    Long {
        /// How long it may be.
        bound: Bound,
    },
    /// It has too many entries.
    #[error("must not have more than {limit} entries")]
    Many {
        /// How many it may have.
        limit: usize,
    },
    /// The word is not one of those known.
    #[error("must be {allowed}")]
    Word {
        /// The words.
        allowed: &'static str,
    },
    /// It is half a character.
    #[error("must be well-formed Unicode")]
    NotUnicode,
    /// It is no picture that could be shown.
    #[error("must be base64 of a picture")]
    NotBase64,
    /// A path leads nowhere certain.
    #[error("must be an absolute path")]
    Relative,
    /// No program could be given that.
    #[error("must not contain a NUL character")]
    Nul,
    /// No environment has such a name.
    #[error("has a name that is empty or contains '=' or NUL")]
    VariableName,
}

/// How long a text may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// In bytes of UTF-8.
    Bytes(usize),
    /// In characters.
    Chars(usize),
}

impl Bound {
    /// Tells whether a text keeps to it.
    pub fn holds(self, text: &str) -> bool {
        match self {
            Self::Bytes(limit) => text.len() <= limit,
            // A text of few bytes has few characters: most are not counted.
            Self::Chars(limit) => text.len() <= limit || text.chars().count() <= limit,
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(limit) => write!(f, "{limit} bytes"),
            Self::Chars(limit) => write!(f, "{limit} characters"),
        }
    }
}
