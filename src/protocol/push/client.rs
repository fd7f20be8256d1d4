//! The client side of the protocol: outgoing requests, incoming responses and events.
//!
//! It does not interpret event types: a client can skip unknown ones, and passes events on as the lines they arrived
//! in.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::PROTOCOL;

/// Maximum bytes of a message text.
pub const MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// A decoded line of the daemon.
#[derive(Debug, Clone)]
pub enum Incoming {
    /// The response to a request.
    Response(Response),
    /// An event of a session.
    Event(Box<Event>),
    /// An unknown kind of message, to be ignored.
    Unknown,
}

/// The response to a request.
#[derive(Debug, Clone)]
pub struct Response {
    /// The id of the request.
    pub request_id: String,
    /// The request's type.
    pub kind: String,
    /// The payload, or the error.
    pub outcome: Result<Value, ResponseError>,
}

/// The error of a refused request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, thiserror::Error)]
#[error("{message}{} ({code})", .detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default())]
pub struct ResponseError {
    /// The error code, for programs.
    pub code: String,
    /// The error message, for people.
    #[serde(default)]
    pub message: String,
    /// Whether a retry may succeed.
    #[serde(default)]
    pub retryable: bool,
    /// Details.
    #[serde(default)]
    pub detail: Option<String>,
}

/// An event of a session.
#[derive(Debug, Clone)]
pub struct Event {
    /// The session.
    pub session: String,
    /// The run it belongs to, if any.
    pub run: Option<String>,
    /// Its position.
    pub seq: u64,
    /// Its time in milliseconds since 1970.
    pub at: u64,
    /// Its type, known or not.
    pub kind: String,
    /// Its payload.
    pub payload: Value,
    /// The line as received.
    pub line: String,
}

impl Event {
    /// Returns a string field of the payload; empty if there is none of that name.
    pub fn text(&self, name: &str) -> &str {
        self.payload.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns whether it belongs to an acceptance check; older daemons recorded that in `source`.
    pub fn is_acceptance_check(&self) -> bool {
        [self.text("purpose"), self.text("source")].contains(&"acceptance")
    }
}

/// A line that cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error("the daemon sent a line that is not a message of this protocol")]
pub struct DecodeError(#[source] serde_json::Error);

/// Decodes one line of the daemon.
pub fn decode_line(line: String) -> Result<Incoming, DecodeError> {
    let envelope: Envelope = serde_json::from_str(&line).map_err(DecodeError)?;
    Ok(match envelope.kind.as_str() {
        "response" => Incoming::Response(envelope.into_response()),
        "event" => Incoming::Event(Box::new(envelope.into_event(line))),
        _ => Incoming::Unknown,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    kind: String,
    #[serde(default)]
    r#type: String,
    #[serde(default)]
    request_id: String,
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    run_id: Option<String>,
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    ts: u64,
    #[serde(default)]
    ok: bool,
    #[serde(default)]
    payload: Value,
    #[serde(default)]
    error: Option<ResponseError>,
}

impl Envelope {
    fn into_response(self) -> Response {
        let outcome = if self.ok { Ok(self.payload) } else { Err(self.error.unwrap_or_else(missing_error)) };
        Response { request_id: self.request_id, kind: self.r#type, outcome }
    }

    fn into_event(self, line: String) -> Event {
        Event {
            session: self.session_id.unwrap_or_default(),
            run: self.run_id,
            seq: self.seq,
            at: self.ts,
            kind: self.r#type,
            payload: self.payload,
            line,
        }
    }
}

fn missing_error() -> ResponseError {
    ResponseError {
        code: "INTERNAL_ERROR".into(),
        message: "the daemon refused the request without giving a reason".into(),
        retryable: false,
        detail: None,
    }
}

/// Whether a request may be sent again when its response was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetrySafety {
    /// The request is idempotent.
    Safe,
    /// The request is not idempotent.
    Unsafe,
}

/// The user's environment variables, as requests carry them.
pub type Environment = BTreeMap<String, String>;

/// One request.
#[derive(Clone)]
pub struct Request {
    kind: &'static str,
    session: Option<String>,
    payload: Map<String, Value>,
    retry_safety: RetrySafety,
}

impl fmt::Debug for Request {
    // The payload may contain the user's environment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("kind", &self.kind).field("session", &self.session).finish()
    }
}

impl Request {
    fn new(kind: &'static str, retry_safety: RetrySafety) -> Self {
        Self { kind, session: None, payload: Map::new(), retry_safety }
    }

    fn of(kind: &'static str, session: &str, repeat: RetrySafety) -> Self {
        let mut request = Self::new(kind, repeat).with("sessionId", session);
        request.session = Some(session.to_owned());
        request
    }

    /// Adds a field to the payload.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.payload.insert(name.to_owned(), value.into());
        self
    }

    /// Adds a field to the payload unless it is `None`.
    #[must_use]
    pub fn with_some(self, name: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds the user's environment to the payload.
    #[must_use]
    pub fn with_environment(self, environment: &Environment) -> Self {
        self.with("environment", json!(environment))
    }

    /// Returns the request's type.
    pub const fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns whether the request may be sent again.
    pub const fn retry_safety(&self) -> RetrySafety {
        self.retry_safety
    }

    /// Returns the request as a line without the newline.
    pub fn line(&self, request_id: &str) -> String {
        let envelope = RequestLine {
            v: PROTOCOL,
            kind: "request",
            request_id,
            r#type: self.kind,
            session_id: self.session.as_deref(),
            payload: &self.payload,
        };
        // A map with string keys always serializes.
        serde_json::to_string(&envelope).unwrap_or_default()
    }

    /// Introduces the client.
    pub fn hello(version: &str) -> Self {
        Self::new("hello", RetrySafety::Safe)
            .with("clientName", "push")
            .with("clientVersion", version)
            .with("capabilities", json!(["stream_tokens", "approvals", "replay_attach"]))
    }

    /// Starts a session; the idempotency key makes a retry return the same session.
    pub fn start_session(idempotency_key: &str) -> Self {
        Self::new("start_session", RetrySafety::Safe).with("idempotencyKey", idempotency_key)
    }

    /// Subscribes to a session from a position on.
    pub fn attach_session(session: &str, seen: u64) -> Self {
        Self::of("attach_session", session, RetrySafety::Safe).with("lastSeenSeq", seen)
    }

    /// Starts a run; the message id is the idempotency key.
    pub fn send_user_message(session: &str, message_id: &str, text: &str) -> Self {
        Self::of("send_user_message", session, RetrySafety::Safe).with("clientMessageId", message_id).with("text", text)
    }

    /// Sends a message into the active run.
    pub fn steer(session: &str, message_id: &str, text: &str) -> Self {
        Self::of("steer", session, RetrySafety::Safe).with("clientMessageId", message_id).with("text", text)
    }

    /// Queues a message behind the active run.
    pub fn queue_message(session: &str, message_id: &str, text: &str) -> Self {
        Self::of("queue_message", session, RetrySafety::Safe).with("clientMessageId", message_id).with("text", text)
    }

    /// Lists the queued messages.
    pub fn list_queue(session: &str) -> Self {
        Self::of("list_queue", session, RetrySafety::Safe)
    }

    /// Removes a queued message.
    pub fn remove_queued(session: &str, message_id: &str) -> Self {
        Self::of("remove_queued", session, RetrySafety::Unsafe).with("messageId", message_id)
    }

    /// Votes on an approval.
    ///
    /// A retry after a lost response may be refused as settled: by the first attempt or by another client.
    pub fn submit_approval(session: &str, approval: &str, decision: &str) -> Self {
        Self::of("submit_approval", session, RetrySafety::Safe).with("approvalId", approval).with("decision", decision)
    }

    /// Stops a run, by default the active one.
    pub fn cancel_run(session: &str, run: Option<&str>) -> Self {
        Self::of("cancel_run", session, RetrySafety::Safe).with_some("runId", run).with("reason", "user_cancelled")
    }

    /// Requests the snapshot of a session.
    pub fn session_snapshot(session: &str) -> Self {
        Self::of("get_session_snapshot", session, RetrySafety::Safe)
    }

    /// Renames a session.
    pub fn rename_session(session: &str, name: &str) -> Self {
        Self::of("rename_session", session, RetrySafety::Safe).with("name", name)
    }

    /// Ends a session: it accepts no more messages.
    pub fn end_session(session: &str) -> Self {
        Self::of("end_session", session, RetrySafety::Unsafe)
    }

    /// Compacts the older part of a conversation into a summary.
    pub fn compact_session(session: &str, instructions: Option<&str>) -> Self {
        Self::of("compact_session", session, RetrySafety::Unsafe).with_some("instructions", instructions)
    }

    /// Captures the environment of the login shell again.
    pub fn reload() -> Self {
        Self::new("reload", RetrySafety::Safe)
    }

    /// Reports the size of a session and whether it can be deleted, without deleting it.
    pub fn delete_session_dry_run(session: &str) -> Self {
        Self::of("delete_session", session, RetrySafety::Safe).with("dryRun", true)
    }

    /// Deletes a session with all of its data.
    ///
    /// A retry after a lost response may be refused as unknown: the first attempt or another client deleted the
    /// session.
    pub fn delete_session(session: &str, with_pi_files: bool) -> Self {
        Self::of("delete_session", session, RetrySafety::Safe).with("withPiFiles", with_pi_files)
    }

    /// Checks the journal; with `full`, every event is verified.
    pub fn check_journal(full: bool) -> Self {
        Self::new("check_journal", RetrySafety::Safe).with("full", full)
    }

    /// Lists sessions, newest first.
    pub fn list_sessions(limit: u64) -> Self {
        Self::new("list_sessions", RetrySafety::Safe).with("limit", limit).with("includeEnded", true)
    }

    /// Lists open approvals, of one session or of all.
    pub fn list_approvals(session: Option<&str>) -> Self {
        match session {
            Some(session) => Self::of("list_approvals", session, RetrySafety::Safe),
            None => Self::new("list_approvals", RetrySafety::Safe),
        }
    }

    /// Lists the grants of all repositories.
    pub fn list_grants() -> Self {
        Self::new("list_grants", RetrySafety::Safe)
    }

    /// Revokes a grant.
    pub fn revoke_grant(id: &str) -> Self {
        Self::new("revoke_grant", RetrySafety::Unsafe).with("grantId", id)
    }

    /// Requests the daemon's metrics.
    pub fn metrics() -> Self {
        Self::new("get_metrics", RetrySafety::Safe)
    }

    /// Switches the connection to another protocol.
    pub fn switch_protocol(protocol: &str, cwd: Option<&str>) -> Self {
        Self::new("speak", RetrySafety::Unsafe).with("protocol", protocol).with_some("cwd", cwd)
    }

    /// Drains the daemon: it finishes its runs and exits.
    pub fn drain(grace_millis: Option<u64>) -> Self {
        Self::new("drain", RetrySafety::Unsafe).with_some("graceMs", grace_millis)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestLine<'a> {
    v: &'static str,
    kind: &'static str,
    request_id: &'a str,
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    payload: &'a Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_its_session_in_the_envelope_and_in_the_payload() {
        let line = Request::send_user_message("sess_1", "msg_1", "hi").line("req_1");
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            value,
            json!({"v": PROTOCOL, "kind": "request", "requestId": "req_1", "type": "send_user_message",
                "sessionId": "sess_1", "payload": {"sessionId": "sess_1", "clientMessageId": "msg_1", "text": "hi"}})
        );
    }

    #[test]
    fn a_request_does_not_show_the_environment_it_carries() {
        let environment = Environment::from([("TOKEN".to_owned(), "hunter2".to_owned())]);
        let request = Request::start_session("k").with_environment(&environment);
        assert!(request.line("req_1").contains("hunter2"));
        assert!(!format!("{request:?}").contains("hunter2"));
    }

    #[test]
    fn a_response_is_its_payload_or_its_error() {
        let ok = r#"{"v":"push.runtime.v1","kind":"response","requestId":"r","type":"ping","ok":true,"payload":{"pong":true},"error":null}"#;
        let Ok(Incoming::Response(response)) = decode_line(ok.to_owned()) else { panic!("not a response") };
        assert_eq!((response.request_id.as_str(), response.kind.as_str()), ("r", "ping"));
        assert_eq!(response.outcome, Ok(json!({"pong": true})));

        let refused = r#"{"kind":"response","requestId":"r","type":"ping","ok":false,"payload":{},"error":{"code":"NO_ACTIVE_RUN","message":"no run","retryable":false,"more":1}}"#;
        let Ok(Incoming::Response(response)) = decode_line(refused.to_owned()) else { panic!("not a response") };
        let error = response.outcome.unwrap_err();
        assert_eq!(error.to_string(), "no run (NO_ACTIVE_RUN)");
    }

    #[test]
    fn an_event_keeps_its_line_and_needs_no_run() {
        let line = r#"{"v":"push.runtime.v1","kind":"event","sessionId":"s","seq":7,"ts":9,"type":"of_tomorrow","payload":{"text":"x"}}"#;
        let Ok(Incoming::Event(event)) = decode_line(line.to_owned()) else { panic!("not an event") };
        assert_eq!((event.seq, event.at, event.run.as_deref(), event.text("text")), (7, 9, None, "x"));
        assert_eq!(event.line, line);
    }

    #[test]
    fn an_unknown_kind_is_skipped_and_garbage_is_an_error() {
        assert!(matches!(decode_line(r#"{"kind":"tomorrow"}"#.to_owned()), Ok(Incoming::Unknown)));
        assert!(decode_line("garbage".to_owned()).is_err());
    }
}
