//! The protocol as a connection speaks it. A connection has no state: the command log and the projections of sessions are
//! shared by all connections.

use std::sync::Arc;

use bytes::Bytes;

use super::decode::{self, DecodeLimits};
use super::kind::Kind;
use super::projection::Projection;
use super::{encode, error_text};
use crate::kernel::command::PrivateEvent;
use crate::kernel::command_log::{AdmissionRefusal, ErrorFormatter};
use crate::kernel::event::Event;
use crate::kernel::id::SessionId;
use crate::protocol::command_protocol::{
    CommandLifecycle, CommandProtocol, CommandResponse, LifecycleStage, Notice, SessionProjection,
};
use crate::protocol::error::ErrorBody;
use crate::protocol::intent::{Malformed, Request, RequestTag};
use crate::protocol::operation_result::{OperationError, OperationResult};
use crate::protocol::reply::Reply;
use crate::protocol::{EventEncoding, Protocol};
use crate::transport::canonical_json::JsonError;

/// The Pi protocol.
#[derive(Debug, Clone, Copy)]
pub struct PiProtocol {
    limits: DecodeLimits,
    /// The transports that clients can use.
    transports: &'static [&'static str],
}

impl PiProtocol {
    /// Creates the protocol with the limits of its requests and the transports that clients can use.
    pub const fn new(limits: DecodeLimits, transports: &'static [&'static str]) -> Self {
        Self { limits, transports }
    }
}

impl Protocol for PiProtocol {
    fn open(&self, out: &mut Vec<u8>) {
        append_line(&encode::server_ready(env!("CARGO_PKG_VERSION"), self.transports), out);
    }

    fn decode(&self, frame: &[u8]) -> Result<Request, Malformed> {
        decode::decode(frame, &self.limits)
    }

    fn too_long(&self, bytes: u64, limit: usize, head: &[u8], tail: &[u8]) -> Malformed {
        decode::too_long(head, tail, bytes, limit, &self.limits)
    }

    fn unreadable(&self, frame: &[u8], why: &JsonError) -> Malformed {
        decode::unreadable(frame, why, &self.limits)
    }

    fn binary(&self) -> Malformed {
        decode::refuse(None, None, error_text::BINARY)
    }

    fn needs_request_ids(&self) -> bool {
        false
    }

    fn reply(&self, tag: &RequestTag, reply: Result<&Reply, &ErrorBody>, out: &mut Vec<u8>) {
        // Every request is a command, whose outcome the command log announces. What is refused before is answered here.
        if let Err(error) = reply {
            append_line(&encode::failure_response(tag.request_id.as_deref(), &tag.kind_name, &error.message), out);
        }
    }

    fn private_event(&self, _session: &SessionId, _event: &PrivateEvent, _out: &mut Vec<u8>) {}

    fn event_encoding(&self) -> EventEncoding {
        EventEncoding::Projected
    }

    fn event(&self, _session: &SessionId, _event: &Event, _out: &mut Vec<u8>) {}
}

impl CommandProtocol for PiProtocol {
    fn name(&self) -> &'static str {
        "pi"
    }

    fn max_message_chars(&self) -> usize {
        self.limits.message
    }

    fn projection(&self) -> Box<dyn SessionProjection> {
        Box::new(Projection::default())
    }

    fn result(&self, result: &OperationResult) -> Arc<str> {
        encode::result(result).into()
    }

    fn quotes_messages(&self, kind: &str) -> bool {
        matches!(Kind::parse(kind), Some(Kind::GetMessages | Kind::GetForkMessages | Kind::GetLastAssistantText))
    }

    fn operation_error(&self, error: &OperationError) -> String {
        error_text::operation_error(error)
    }

    fn refusal(&self, refusal: &AdmissionRefusal) -> String {
        error_text::refusal(refusal)
    }

    fn error_formatter(&self) -> ErrorFormatter {
        error_text::command_error
    }

    fn response(&self, response: &CommandResponse<'_>) -> Bytes {
        encode::response(response)
    }

    fn lifecycle(&self, command: &CommandLifecycle<'_>, stage: LifecycleStage<'_>) -> Bytes {
        encode::lifecycle(command, stage)
    }

    fn notice(&self, notice: &Notice) -> Bytes {
        match notice {
            Notice::SessionCreated(info) => encode::session_created(info),
            Notice::SessionDeleted(session) => encode::session_deleted(session),
            Notice::ShuttingDown { grace_ms } => encode::server_shutdown("graceful_shutdown", Some(*grace_ms)),
        }
    }

    fn rename_session(&self, session: &SessionId, label: &SessionId) -> Box<dyn Fn(&Bytes) -> Bytes + Send> {
        let (from, to) = (encode::event_head(session), encode::event_head(label));
        Box::new(move |line| match line.strip_prefix(from.as_slice()) {
            Some(rest) => [to.as_slice(), rest].concat().into(),
            None => line.clone(),
        })
    }
}

fn append_line(line: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(line);
    out.push(b'\n');
}
