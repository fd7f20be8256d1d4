//! Protocols: decode client frames into requests, and encode replies and events into frames.
//!
//! Requests, replies and errors are independent of any protocol. Each protocol is pure and depends on them, the kernel and
//! its records only. It does no I/O, reads no clock and mints no ids, and no protocol names another.

mod action;
pub mod command_protocol;
pub mod error;
pub mod intent;
pub mod operation;
pub mod operation_result;
pub mod participant_intent;
pub mod pi;
pub mod push;
pub mod reply;

/// The format of session files, which other programs read and write too.
pub use pi::session_file;

use std::time::Duration;

use crate::kernel::command::PrivateEvent;
use crate::kernel::event::Event;
use crate::kernel::id::SessionId;
use crate::kernel::time::Now;
use crate::transport::canonical_json::JsonError;
use error::ErrorBody;
use intent::{Malformed, Request, RequestTag};
use reply::Reply;

/// A protocol as one connection speaks it: a pure translation between frames and the requests, replies and events of
/// the daemon.
///
/// A frame is a text without line feeds. Methods that write frames append each of them with a line feed, and the
/// transport sends them as lines or as messages.
pub trait Protocol: Send + Sync {
    /// Appends what the daemon sends first.
    fn open(&self, out: &mut Vec<u8>);

    /// Returns whether frames are JSON objects. The driver checks such a frame before it is decoded, and rewrites it:
    /// valid UTF-8, nested to a limited depth, no duplicate keys, and no white space between tokens.
    fn is_json(&self) -> bool {
        true
    }

    /// Decodes a frame.
    ///
    /// # Errors
    ///
    /// Returns what is refused, and why, if the frame is not a request.
    fn decode(&self, frame: &[u8]) -> Result<Request, Malformed>;

    /// Returns the refusal of a frame that is not acceptable JSON.
    fn unreadable(&self, frame: &[u8], why: &JsonError) -> Malformed;

    /// Returns the refusal of a frame of `bytes` bytes, which exceeds the limit; `head` and `tail` are its first and last
    /// bytes.
    fn too_long(&self, bytes: u64, limit: usize, head: &[u8], tail: &[u8]) -> Malformed;

    /// Returns the refusal of a binary frame. Unless a protocol has its own, it is that of an empty frame.
    fn binary(&self) -> Malformed {
        self.unreadable(b"", &JsonError::NotJson { at: 0 })
    }

    /// Returns how often the driver calls [`Self::tick`]; by default never, and an idle connection needs no timer.
    fn tick_interval(&self) -> Option<Duration> {
        None
    }

    /// Appends what is due at a time whatever else happens, such as a heartbeat.
    fn tick(&self, _now: Now, _out: &mut Vec<u8>) {}

    /// Returns whether the daemon gives a request without an id one, under which it is answered.
    fn needs_request_ids(&self) -> bool {
        true
    }

    /// Returns whether a client on the network must present the attach token of a session, or have started it, before any
    /// other request to it. Otherwise the identity of its connection alone decides.
    fn needs_attach_tokens(&self) -> bool {
        true
    }

    /// Appends the reply to a request. Its tag has an id if the protocol needs request ids.
    fn reply(&self, tag: &RequestTag, reply: Result<&Reply, &ErrorBody>, out: &mut Vec<u8>);

    /// Appends what concerns this subscriber of a session alone.
    fn private_event(&self, session: &SessionId, event: &PrivateEvent, out: &mut Vec<u8>);

    /// Returns how events are encoded.
    fn event_encoding(&self) -> EventEncoding;

    /// Appends the frames of an event: none, one or several. Called for shared encodings only.
    fn event(&self, session: &SessionId, event: &Event, out: &mut Vec<u8>);
}

/// How the events of a session are encoded for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventEncoding {
    /// As their records: the stored bytes are sent as they are.
    Record,
    /// By [`Protocol::event`]. Connections whose protocols have the same key share one encoding of each block.
    Shared(EncodingKey),
    /// By a projection of the session, which all connections of the protocol share: a connection reads no feed.
    Projected,
}

/// Names an encoding of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodingKey(pub &'static str);
