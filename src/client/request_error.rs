//! Why a request failed.

use super::start::UnreachableError;
use crate::protocol::push::client::ResponseError;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The daemon refused the request.
    #[error(transparent)]
    Refused(#[from] ResponseError),
    /// The daemon cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] UnreachableError),
    /// The request is longer than a protocol line may be; it was not sent.
    #[error(
        "the request has {bytes} bytes and the limit is {limit}; write the text to a file and name its path in the message, without @"
    )]
    TooLong {
        /// The length of the request.
        bytes: usize,
        /// The longest request that can be sent.
        limit: usize,
    },
    /// The connection was lost before the reply, and repeating the request could execute it twice.
    #[error("the connection was lost before the reply to {kind}; the request may or may not have been executed")]
    NoReply {
        /// The type of the request.
        kind: &'static str,
    },
    /// The reply is not one of this version of the protocol.
    #[error("cannot read the reply of pushd to {kind}; `push daemon restart` starts the version of this client")]
    UnreadableReply {
        /// The type of the request.
        kind: &'static str,
        /// The cause.
        source: serde_json::Error,
    },
}

impl RequestError {
    /// Returns the error code if the daemon refused the request.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(fault) => Some(&fault.code),
            Self::Unreachable(_) | Self::TooLong { .. } | Self::NoReply { .. } | Self::UnreadableReply { .. } => None,
        }
    }
}
