//! Encodes events, snapshots and responses into lines: one compact JSON object and a newline.
//!
//! The output is valid under the schemas in `schemas/`, provided that the kernel's JSON texts are valid JSON.

mod payload;
mod search;
#[cfg(test)]
mod tests;

pub use payload::{Payload, payload, snapshot_payload};

use super::wire::response::ProtocolError;
use super::{EARLIEST_SEQ, EVENT_GAP};
use crate::kernel::command::{Gap, PrivateEvent, Snapshot};
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::time::Now;
use crate::protocol::error::ErrorBody;
use crate::record::encode::{EventHead, message_posted};
use crate::record::json;
use crate::record::wire::event::{SessionEnded, Warning};
use crate::record::wire::text;

/// Appends the line of an event for one client only.
pub fn private_line(session: &SessionId, private: &PrivateEvent, out: &mut Vec<u8>) {
    match private {
        PrivateEvent::Gap { seq, at, seen, gap } => gap_line(session, *seq, *at, *seen, *gap, out),
        PrivateEvent::Snapshot { seq, at, snapshot } | PrivateEvent::Summary { seq, at, snapshot, after: _ } => {
            snapshot_line(session, *seq, *at, snapshot, out);
        }
        PrivateEvent::Posted { seq, at, message } => {
            let head =
                EventHead { session, run: None, seq: *seq, at: *at, version: None, origin: None, audience: None };
            head.line("message_posted", out, |out| json::value(out, &message_posted(message, true)));
        }
        PrivateEvent::Deleted { seq, at, by } => {
            let head =
                EventHead { session, run: None, seq: *seq, at: *at, version: None, origin: None, audience: None };
            head.line("session_deleted", out, |out| json::value(out, &SessionEnded { by: text(by) }));
        }
    }
}

/// Appends the warning of a replay gap.
fn gap_line(session: &SessionId, seq: Seq, at: Now, seen: Seq, gap: Gap, out: &mut Vec<u8>) {
    let detail = match gap {
        Gap::None => None,
        Gap::Lost { earliest } => Some(format!("Requested lastSeenSeq={seen} but {EARLIEST_SEQ} {earliest}")),
        Gap::Foreign => Some(format!("Requested lastSeenSeq={seen} was never issued")),
    };
    let warning = Warning {
        code: text(EVENT_GAP),
        message: text("Replay gap detected; snapshot sent."),
        detail: detail.map(Into::into),
    };
    let head = EventHead { session, run: None, seq, at, version: None, origin: None, audience: None };
    head.line("warning", out, |out| json::value(out, &warning));
}

/// Appends a snapshot line.
fn snapshot_line(session: &SessionId, seq: Seq, at: Now, snapshot: &Snapshot, out: &mut Vec<u8>) {
    let payload = snapshot_payload(snapshot);
    let head = EventHead { session, run: None, seq, at, version: None, origin: None, audience: None };
    head.line("session_snapshot", out, |out| out.extend_from_slice(payload.as_str().as_bytes()));
}

/// Appends the line of a successful response.
pub fn response_ok(request_id: &str, type_name: &str, session: Option<&str>, payload: &Payload, out: &mut Vec<u8>) {
    let payload = payload.as_str().as_bytes();
    out.reserve(160 + request_id.len() + payload.len());
    response_head(out, request_id, type_name, session);
    out.extend_from_slice(b",\"ok\":true,\"payload\":");
    out.extend_from_slice(payload);
    out.extend_from_slice(b",\"error\":null}\n");
}

/// Appends the line of an error response.
pub fn response_error(request_id: &str, type_name: &str, session: Option<&str>, error: &ErrorBody, out: &mut Vec<u8>) {
    out.reserve(256);
    response_head(out, request_id, type_name, session);
    out.extend_from_slice(b",\"ok\":false,\"payload\":{},\"error\":");
    let error = ProtocolError {
        code: error.code.as_str(),
        message: &error.message,
        retryable: error.retryable,
        detail: error.detail.as_deref(),
    };
    json::value(out, &error);
    out.extend_from_slice(b"}\n");
}

fn response_head(out: &mut Vec<u8>, request_id: &str, type_name: &str, session: Option<&str>) {
    out.extend_from_slice(b"{\"v\":\"push.runtime.v1\",\"kind\":\"response\",\"requestId\":");
    json::string(out, request_id);
    out.extend_from_slice(b",\"type\":");
    json::string(out, type_name);
    if let Some(session) = session {
        out.extend_from_slice(b",\"sessionId\":");
        json::string(out, session);
    }
}
