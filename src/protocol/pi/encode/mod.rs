//! Encodes responses and events into lines: one compact JSON object each, without a newline.
//!
//! The output is valid under the schemas in `schemas/pi/`, provided that the kernel's JSON texts are valid JSON.

mod data;

pub(in crate::protocol::pi) use data::dollars;
pub use data::{Data, compaction, fork_messages, last_text, messages, no_data, result, session_stats};

use bytes::Bytes;
use serde::Serialize;

pub use super::timestamp::to_rfc3339;

use super::PROTOCOL;
use super::projection::PiEvent;
use crate::kernel::id::SessionId;
use crate::protocol::command_protocol::{CommandLifecycle, CommandResponse, LifecycleStage};
use crate::protocol::operation_result::{OperationResult, SessionInfo};
use crate::record::json;

/// Returns the line of a response.
pub fn response(response: &CommandResponse<'_>) -> Bytes {
    let mut out = Vec::with_capacity(response.body.len() + 128);
    out.push(b'{');
    if let Some(id) = response.id {
        out.extend_from_slice(b"\"id\":");
        json::string(&mut out, id);
        out.push(b',');
    }
    out.extend_from_slice(b"\"type\":\"response\",\"command\":");
    json::string(&mut out, response.command);
    out.extend_from_slice(if response.success { b",\"success\":true" } else { b",\"success\":false" });
    if !response.success {
        out.extend_from_slice(b",\"error\":");
        json::string(&mut out, response.body);
    } else if !response.body.is_empty() {
        out.extend_from_slice(b",\"data\":");
        out.extend_from_slice(response.body.as_bytes());
    }
    if let Some(version) = response.session_version {
        out.extend_from_slice(b",\"sessionVersion\":");
        json::number(&mut out, version);
    }
    if response.replayed {
        out.extend_from_slice(b",\"replayed\":true");
    }
    if response.timed_out {
        out.extend_from_slice(b",\"timedOut\":true");
    }
    out.push(b'}');
    out.into()
}

/// Returns the response to a message that is not a valid command.
pub fn failure_response(id: Option<&str>, command: &str, error: &str) -> Bytes {
    response(&CommandResponse {
        id,
        command,
        success: false,
        body: error,
        session_version: None,
        replayed: false,
        timed_out: false,
    })
}

/// Returns the first line of every connection; `transports` are the open ones.
pub fn server_ready(server_version: &str, transports: &[&str]) -> Bytes {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Ready<'a> {
        server_version: &'a str,
        protocol_version: &'a str,
        transports: &'a [&'a str],
    }
    announcement("server_ready", &Ready { server_version, protocol_version: PROTOCOL, transports })
}

/// Returns the `server_shutdown` line.
pub fn server_shutdown(reason: &str, timeout_ms: Option<u64>) -> Bytes {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Shutdown<'a> {
        reason: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    }
    announcement("server_shutdown", &Shutdown { reason, timeout_ms })
}

/// Returns the `session_created` line; `info` is as in the response of `create_session`.
pub fn session_created(info: &SessionInfo) -> Bytes {
    let created = result(&OperationResult::Created(Box::new(info.clone())));
    announcement_line("session_created", created.as_str().as_bytes())
}

/// Returns the `session_deleted` line.
pub fn session_deleted(session: &SessionId) -> Bytes {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Deleted<'a> {
        session_id: &'a str,
    }
    announcement("session_deleted", &Deleted { session_id: session.as_str() })
}

/// Returns the line of a command's lifecycle event.
pub fn lifecycle(command: &CommandLifecycle<'_>, step: LifecycleStage<'_>) -> Bytes {
    let name = match step {
        LifecycleStage::Accepted => "command_accepted",
        LifecycleStage::Started => "command_started",
        LifecycleStage::Finished { .. } => "command_finished",
    };
    let mut data = LifecycleData {
        command_id: command.command_id,
        command_type: command.command,
        session_id: command.session.map(SessionId::as_str),
        depends_on: command.depends_on,
        if_session_version: command.if_session_version,
        idempotency_key: command.idempotency_key,
        success: None,
        error: None,
        session_version: None,
        replayed: None,
    };
    if let LifecycleStage::Finished { error, session_version, replayed } = step {
        data.success = Some(error.is_none());
        data.error = error;
        data.session_version = session_version;
        data.replayed = replayed.then_some(true);
    }
    announcement(name, &data)
}

/// Returns the line of a session event.
pub fn event(session: &SessionId, event: &PiEvent) -> Bytes {
    let mut out = event_head(session);
    out.reserve_exact(event.body().len() + 1);
    out.extend_from_slice(event.body());
    out.push(b'}');
    out.into()
}

/// Returns the beginning of the lines of a session's events.
pub(super) fn event_head(session: &SessionId) -> Vec<u8> {
    let mut head = Vec::with_capacity(64);
    head.extend_from_slice(b"{\"type\":\"event\",\"sessionId\":");
    json::string(&mut head, session.as_str());
    head.extend_from_slice(b",\"event\":");
    head
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LifecycleData<'a> {
    command_id: &'a str,
    command_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    depends_on: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    if_session_version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    success: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed: Option<bool>,
}

fn announcement<T: Serialize>(name: &str, data: &T) -> Bytes {
    announcement_with(name, 192, |out| json::value(out, data))
}

fn announcement_line(name: &str, data: &[u8]) -> Bytes {
    announcement_with(name, data.len(), |out| out.extend_from_slice(data))
}

/// Returns a line whose data is about `length` bytes long.
fn announcement_with(name: &str, length: usize, write_data: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::with_capacity(length + 64);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\",\"data\":");
    write_data(&mut out);
    out.push(b'}');
    out.into()
}
