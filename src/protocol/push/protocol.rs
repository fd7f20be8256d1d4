//! The Push protocol as an implementation of [`Protocol`]. It is stateless: each line is decoded on its own.

use super::decode::{self, DecodeLimits, MalformedRequest, RequestError};
use super::encode;
use crate::kernel::command::PrivateEvent;
use crate::kernel::event::Event;
use crate::kernel::id::SessionId;
use crate::protocol::error::{Code, ErrorBody};
use crate::protocol::intent::{Intent, Malformed, Request, RequestTag};
use crate::protocol::reply::Reply;
use crate::protocol::{EventEncoding, Protocol};
use crate::record;
use crate::transport::canonical_json::JsonError;

/// The Push protocol.
#[derive(Debug, Clone)]
pub struct PushProtocol {
    limits: DecodeLimits,
    /// The protocols that a connection can switch to.
    other_protocols: Vec<&'static str>,
}

impl PushProtocol {
    /// Creates the protocol with the limits of its requests, and the names of the protocols that connections can switch to.
    pub const fn new(limits: DecodeLimits, other_protocols: Vec<&'static str>) -> Self {
        Self { limits, other_protocols }
    }

    /// Refuses a switch to a protocol that does not exist.
    fn check_switch(&self, request: Request) -> Result<Request, Malformed> {
        if let Intent::SwitchProtocol(switch) = &request.intent
            && !self.other_protocols.contains(&switch.protocol.as_str())
        {
            let allowed: Vec<_> = self.other_protocols.iter().map(|name| format!("\"{name}\"")).collect();
            let message = match allowed.is_empty() {
                true => "a WebSocket stays in the protocol of its path".to_owned(),
                false => format!("payload.protocol: must be {}", allowed.join(" or ")),
            };
            return Err(Malformed { tag: request.tag, error: ErrorBody::permanent(Code::InvalidRequest, message) });
        }
        Ok(request)
    }
}

impl Protocol for PushProtocol {
    /// A client speaks first.
    fn open(&self, _out: &mut Vec<u8>) {}

    fn decode(&self, frame: &[u8]) -> Result<Request, Malformed> {
        let request = decode::decode(frame, &self.limits).map_err(MalformedRequest::into_refusal)?;
        self.check_switch(request)
    }

    fn unreadable(&self, _frame: &[u8], why: &JsonError) -> Malformed {
        MalformedRequest::unreadable(RequestError::Unreadable { why: why.to_string() }).into_refusal()
    }

    fn too_long(&self, bytes: u64, limit: usize, _head: &[u8], _tail: &[u8]) -> Malformed {
        MalformedRequest::unreadable(RequestError::TooLong { bytes, limit }).into_refusal()
    }

    fn reply(&self, tag: &RequestTag, reply: Result<&Reply, &ErrorBody>, out: &mut Vec<u8>) {
        let (id, session) =
            (tag.request_id.as_deref().unwrap_or_default(), tag.session.as_ref().map(SessionId::as_str));
        match reply {
            Ok(reply) => encode::response_ok(id, &tag.kind_name, session, &encode::payload(reply), out),
            Err(error) => encode::response_error(id, &tag.kind_name, session, error, out),
        }
    }

    fn private_event(&self, session: &SessionId, event: &PrivateEvent, out: &mut Vec<u8>) {
        encode::private_line(session, event, out);
    }

    fn event_encoding(&self) -> EventEncoding {
        EventEncoding::Record
    }

    fn event(&self, session: &SessionId, event: &Event, out: &mut Vec<u8>) {
        record::event_line(session, event, out);
    }
}
