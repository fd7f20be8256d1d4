//! Encodes responses and events into lines: one compact JSON object each, without a newline.
//!
//! The output is valid under the schemas in `schemas/pi/`, provided that the kernel's JSON texts are valid JSON.

mod data;
mod row;

pub(in crate::protocol::pi) use data::dollars;
pub use data::{
    Data, bash, commands, compaction, context_usage, conversation_switched, created, cycled_model, cycled_thinking,
    deleted, exported, files, fork_messages, forked, health, last_text, messages, metrics, model_set, models, no_data,
    session_stats, sessions, skills, state, stored_sessions, switched, tools,
};
pub use row::{
    BashCircuit, BashResult, Circuit, CommandRow, ContextUsage, FileRow, Health, Metrics, ModelCost, ModelRow,
    RejectionCounts, SessionInfo, SkillRow, Stats, StoreMetrics, StoredSession, ToolRow,
};

use bytes::Bytes;
use serde::Serialize;

pub use super::timestamp::to_rfc3339;

use super::PROTOCOL;
use super::decode::MalformedRequest;
use super::projection::SessionEvent;
use crate::kernel::id::SessionId;
use crate::record::json;

/// The response to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response<'a> {
    /// The id of the request.
    pub id: Option<&'a str>,
    /// The command's type.
    pub command: &'a str,
    /// Whether the command succeeded.
    pub success: bool,
    /// The result as JSON, or empty; the error text of a failed command.
    pub body: &'a str,
    /// The session's version after the command.
    pub session_version: Option<u64>,
    /// Whether this repeats an earlier response.
    pub replayed: bool,
    /// Whether the command timed out.
    pub timed_out: bool,
}

/// Returns the line of a response.
pub fn response(response: &Response<'_>) -> Bytes {
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

/// Returns the response to a line that is not a valid command.
pub fn malformed_response(malformed: &MalformedRequest) -> Bytes {
    failure_response(malformed.id.as_deref(), &malformed.command, &malformed.error)
}

/// Returns the response to a command that was not admitted.
pub fn failure_response(id: Option<&str>, command: &str, error: &str) -> Bytes {
    response(&Response {
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
pub fn session_created(session: &SessionId, info: &SessionInfo) -> Bytes {
    announcement_of_json("session_created", created(session, info).as_str())
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

/// The lifecycle stage of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifecycleStage<'a> {
    /// It was admitted.
    Accepted,
    /// It is running.
    Started,
    /// It has finished.
    Finished {
        /// The error, if it failed.
        error: Option<&'a str>,
        /// The session's version after the command.
        session_version: Option<u64>,
        /// Whether the outcome is that of an earlier command.
        replayed: bool,
    },
}

/// A command as lifecycle events describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandLifecycle<'a> {
    /// Its id, or the one the server assigned.
    pub command_id: &'a str,
    /// Its type.
    pub command: &'a str,
    /// The session it names.
    pub session: Option<&'a SessionId>,
    /// The ids of its dependencies.
    pub depends_on: &'a [String],
    /// The session version it requires.
    pub if_session_version: Option<u64>,
    /// Its idempotency key.
    pub idempotency_key: Option<&'a str>,
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
pub fn event(session: &SessionId, event: &SessionEvent) -> Bytes {
    let mut out = Vec::with_capacity(event.body().len() + 64);
    out.extend_from_slice(b"{\"type\":\"event\",\"sessionId\":");
    json::string(&mut out, session.as_str());
    out.extend_from_slice(b",\"event\":");
    out.extend_from_slice(event.body());
    out.push(b'}');
    out.into()
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
    let mut text = Vec::new();
    json::value(&mut text, data);
    announcement_line(name, &text)
}

fn announcement_of_json(name: &str, data: &str) -> Bytes {
    announcement_line(name, data.as_bytes())
}

fn announcement_line(name: &str, data: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(data.len() + 64);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\",\"data\":");
    out.extend_from_slice(data);
    out.push(b'}');
    out.into()
}
