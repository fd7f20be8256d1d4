//! Protocol adapters: decode client frames into requests, and encode replies and events into frames.
//!
//! Requests, replies and errors are the words of no protocol. Each adapter is pure and depends on them, the kernel and
//! its records only. It does no I/O, reads no clock and mints no ids, and no adapter names another adapter.

pub mod error;
pub mod intent;
pub mod pi;
pub mod push;
pub mod reply;
pub mod transcript;

use crate::kernel::command::PrivateEvent;
use crate::kernel::event::Event;
use crate::kernel::id::SessionId;
use error::ErrorBody;
use intent::{Malformed, Request, RequestTag};
use reply::Reply;

/// A protocol that a connection can switch to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolName {
    /// Pi.
    Pi,
}

/// A protocol as one connection speaks it: a pure translation between frames and the requests, replies and events of
/// the daemon.
///
/// A frame is a text without line feeds. Methods that write frames append each of them with a line feed, and the
/// transport sends them as lines or as messages.
pub trait Protocol: Send + Sync {
    /// Appends what the daemon sends first.
    fn open(&self, out: &mut Vec<u8>);

    /// Decodes a frame.
    ///
    /// # Errors
    ///
    /// Returns what is refused, and why, if the frame is not a request.
    fn decode(&self, frame: &[u8]) -> Result<Request, Malformed>;

    /// Returns the refusal of a frame of `bytes` bytes, which exceeds the limit.
    fn too_long(&self, bytes: u64, limit: usize) -> Malformed;

    /// Appends the reply to a request. Its tag has an id.
    fn reply(&self, tag: &RequestTag, reply: Result<&Reply, &ErrorBody>, out: &mut Vec<u8>);

    /// Appends what concerns this subscriber of a session alone.
    fn private_event(&self, session: &SessionId, event: &PrivateEvent, out: &mut Vec<u8>);

    /// Returns how events are encoded.
    fn event_encoding(&self) -> EventEncoding;

    /// Appends the frames of an event: none, one or several. Not called if the encoding is the record.
    fn event(&self, session: &SessionId, event: &Event, out: &mut Vec<u8>);
}

/// How the events of a session are encoded for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventEncoding {
    /// As their records: the stored bytes are sent as they are.
    Record,
    /// By [`Protocol::event`]. Connections whose protocols have the same key share one encoding of each block.
    Shared(EncodingKey),
}

/// Names an encoding of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodingKey(pub &'static str);
