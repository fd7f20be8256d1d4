//! The wire as a client sees it: requests going out, responses and events coming in.
//!
//! It judges nothing and knows no catalogue of events: what a client does not know it can skip, and what it passes
//! on it passes on as the line it was.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::PROTOCOL;

/// How many bytes the text of a message may have.
pub const MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// One line of the daemon.
#[derive(Debug, Clone)]
pub enum Incoming {
    /// The answer to a request.
    Response(Response),
    /// Something that happened to a session.
    Event(Box<Event>),
    /// A kind of message that this client does not know; to be ignored.
    Unknown,
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub struct Response {
    /// The request it answers.
    pub request_id: String,
    /// The request's type.
    pub kind: String,
    /// The payload, or why it was refused.
    pub outcome: Result<Value, Fault>,
}

/// Why the daemon refused.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, thiserror::Error)]
#[error("{message}{} ({code})", .detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default())]
pub struct Fault {
    /// A word for programs.
    pub code: String,
    /// A sentence for people.
    #[serde(default)]
    pub message: String,
    /// Whether trying again may help.
    #[serde(default)]
    pub retryable: bool,
    /// The particulars.
    #[serde(default)]
    pub detail: Option<String>,
}

/// Something that happened to a session.
#[derive(Debug, Clone)]
pub struct Event {
    /// The session.
    pub session: String,
    /// The run it belongs to, if any.
    pub run: Option<String>,
    /// Its position.
    pub seq: u64,
    /// When it was decided, in milliseconds since 1970.
    pub at: u64,
    /// Its type, known or not.
    pub kind: String,
    /// What it says.
    pub payload: Value,
    /// The line as it came.
    pub line: String,
}

impl Event {
    /// Returns a text of the payload; empty when it has none under that name.
    pub fn text(&self, name: &str) -> &str {
        self.payload.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Tells whether it is of an acceptance check; in the history of older daemons the source says so.
    pub fn is_of_check(&self) -> bool {
        [self.text("purpose"), self.text("source")].contains(&"acceptance")
    }
}

/// Why a line cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the daemon sent a line that is not of this protocol")]
pub struct Unreadable(#[source] serde_json::Error);

/// Reads one line of the daemon.
pub fn read(line: String) -> Result<Incoming, Unreadable> {
    let envelope: Envelope = serde_json::from_str(&line).map_err(Unreadable)?;
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
    error: Option<Fault>,
}

impl Envelope {
    fn into_response(self) -> Response {
        let outcome = if self.ok { Ok(self.payload) } else { Err(self.error.unwrap_or_else(unexplained)) };
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

fn unexplained() -> Fault {
    Fault {
        code: "INTERNAL_ERROR".into(),
        message: "the daemon refused without saying why".into(),
        retryable: false,
        detail: None,
    }
}

/// Whether a request may be sent again when its answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Asking twice has the effect of asking once.
    Safe,
    /// It has not.
    Never,
}

/// A user's environment, as it goes with requests.
pub type Environment = BTreeMap<String, String>;

/// One request.
#[derive(Clone)]
pub struct Request {
    kind: &'static str,
    session: Option<String>,
    payload: Map<String, Value>,
    repeat: Repeat,
}

impl fmt::Debug for Request {
    // The payload may hold the user's environment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("kind", &self.kind).field("session", &self.session).finish()
    }
}

impl Request {
    fn new(kind: &'static str, repeat: Repeat) -> Self {
        Self { kind, session: None, payload: Map::new(), repeat }
    }

    fn of(kind: &'static str, session: &str, repeat: Repeat) -> Self {
        let mut request = Self::new(kind, repeat).with("sessionId", session);
        request.session = Some(session.to_owned());
        request
    }

    /// Returns the request with one more field in its payload.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.payload.insert(name.to_owned(), value.into());
        self
    }

    /// Returns the request with one more field, if there is one.
    #[must_use]
    pub fn with_some(self, name: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Returns the request with the environment of the user who makes it.
    #[must_use]
    pub fn with_environment(self, environment: &Environment) -> Self {
        self.with("environment", json!(environment))
    }

    /// Returns the request's type.
    pub const fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns whether the request may be sent again.
    pub const fn repeat(&self) -> Repeat {
        self.repeat
    }

    /// Returns the request as a line, without its end.
    pub fn line(&self, request_id: &str) -> String {
        let envelope = Outgoing {
            v: PROTOCOL,
            kind: "request",
            request_id,
            r#type: self.kind,
            session_id: self.session.as_deref(),
            payload: &self.payload,
        };
        // A map with text for keys always has a JSON form.
        serde_json::to_string(&envelope).unwrap_or_default()
    }

    /// Says who is there.
    pub fn hello(version: &str) -> Self {
        Self::new("hello", Repeat::Safe)
            .with("clientName", "push")
            .with("clientVersion", version)
            .with("capabilities", json!(["stream_tokens", "approvals", "replay_attach"]))
    }

    /// Begins a session; with a key, asking twice begins one.
    pub fn start_session(idempotency_key: &str) -> Self {
        Self::new("start_session", Repeat::Safe).with("idempotencyKey", idempotency_key)
    }

    /// Listens to a session, from a position on.
    pub fn attach_session(session: &str, seen: u64) -> Self {
        Self::of("attach_session", session, Repeat::Safe).with("lastSeenSeq", seen)
    }

    /// Begins a run; the message's id is its idempotency key.
    pub fn send_user_message(session: &str, message_id: &str, text: &str) -> Self {
        Self::of("send_user_message", session, Repeat::Safe)
            .with("clientMessageId", message_id)
            .with("text", text)
    }

    /// Speaks into the active run.
    pub fn steer(session: &str, message_id: &str, text: &str) -> Self {
        Self::of("steer", session, Repeat::Safe).with("clientMessageId", message_id).with("text", text)
    }

    /// Begins a run when the active one is over.
    pub fn queue_message(session: &str, message_id: &str, text: &str) -> Self {
        Self::of("queue_message", session, Repeat::Safe)
            .with("clientMessageId", message_id)
            .with("text", text)
    }

    /// Asks what waits.
    pub fn list_queue(session: &str) -> Self {
        Self::of("list_queue", session, Repeat::Safe)
    }

    /// Takes a waiting message back.
    pub fn remove_queued(session: &str, message_id: &str) -> Self {
        Self::of("remove_queued", session, Repeat::Never).with("messageId", message_id)
    }

    /// Settles an approval.
    ///
    /// Sent again after a lost answer it may be refused as settled: the first one did it then, or somebody else.
    pub fn submit_approval(session: &str, approval: &str, decision: &str) -> Self {
        Self::of("submit_approval", session, Repeat::Safe)
            .with("approvalId", approval)
            .with("decision", decision)
    }

    /// Stops a run; the active one when not said.
    pub fn cancel_run(session: &str, run: Option<&str>) -> Self {
        Self::of("cancel_run", session, Repeat::Safe).with_some("runId", run).with("reason", "user_cancelled")
    }

    /// Asks what a client needs to draw a session.
    pub fn session_snapshot(session: &str) -> Self {
        Self::of("get_session_snapshot", session, Repeat::Safe)
    }

    /// Gives a session another name.
    pub fn rename_session(session: &str, name: &str) -> Self {
        Self::of("rename_session", session, Repeat::Safe).with("name", name)
    }

    /// Lets a session take no more messages.
    pub fn end_session(session: &str) -> Self {
        Self::of("end_session", session, Repeat::Never)
    }

    /// Has the older part of a conversation summarised.
    pub fn compact_session(session: &str, instructions: Option<&str>) -> Self {
        Self::of("compact_session", session, Repeat::Never).with_some("instructions", instructions)
    }

    /// Has the daemon capture the environment of the login shell anew.
    pub fn reload() -> Self {
        Self::new("reload", Repeat::Safe)
    }

    /// Asks how large a session is and whether it can be deleted, and leaves it.
    pub fn weigh_session(session: &str) -> Self {
        Self::of("delete_session", session, Repeat::Safe).with("dryRun", true)
    }

    /// Removes a session with everything of it.
    ///
    /// Sent again after a lost answer it may be refused as unknown: the first one did it then, or somebody else.
    pub fn delete_session(session: &str, with_pi_files: bool) -> Self {
        Self::of("delete_session", session, Repeat::Safe).with("withPiFiles", with_pi_files)
    }

    /// Asks whether everything is there that was ever kept; with `full`, every event is looked at.
    pub fn check_journal(full: bool) -> Self {
        Self::new("check_journal", Repeat::Safe).with("full", full)
    }

    /// Asks for sessions, newest first.
    pub fn list_sessions(limit: u64) -> Self {
        Self::new("list_sessions", Repeat::Safe).with("limit", limit).with("includeEnded", true)
    }

    /// Asks for open approvals, of one session or of all.
    pub fn list_approvals(session: Option<&str>) -> Self {
        match session {
            Some(session) => Self::of("list_approvals", session, Repeat::Safe),
            None => Self::new("list_approvals", Repeat::Safe),
        }
    }

    /// Asks what may go ahead unasked, in every repository.
    pub fn list_grants() -> Self {
        Self::new("list_grants", Repeat::Safe)
    }

    /// Has something asked about again that may go ahead unasked.
    pub fn revoke_grant(id: &str) -> Self {
        Self::new("revoke_grant", Repeat::Never).with("grantId", id)
    }

    /// Asks how the daemon is.
    pub fn metrics() -> Self {
        Self::new("get_metrics", Repeat::Safe)
    }

    /// Has the connection go on in another protocol.
    pub fn speak(protocol: &str, cwd: Option<&str>) -> Self {
        Self::new("speak", Repeat::Never).with("protocol", protocol).with_some("cwd", cwd)
    }

    /// Asks the daemon to finish and go.
    pub fn drain(grace_millis: Option<u64>) -> Self {
        Self::new("drain", Repeat::Never).with_some("graceMs", grace_millis)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Outgoing<'a> {
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
    fn a_response_is_its_payload_or_its_fault() {
        let ok = r#"{"v":"push.runtime.v1","kind":"response","requestId":"r","type":"ping","ok":true,"payload":{"pong":true},"error":null}"#;
        let Ok(Incoming::Response(response)) = read(ok.to_owned()) else { panic!("not a response") };
        assert_eq!((response.request_id.as_str(), response.kind.as_str()), ("r", "ping"));
        assert_eq!(response.outcome, Ok(json!({"pong": true})));

        let refused = r#"{"kind":"response","requestId":"r","type":"ping","ok":false,"payload":{},"error":{"code":"NO_ACTIVE_RUN","message":"no run","retryable":false,"more":1}}"#;
        let Ok(Incoming::Response(response)) = read(refused.to_owned()) else { panic!("not a response") };
        let fault = response.outcome.unwrap_err();
        assert_eq!(fault.to_string(), "no run (NO_ACTIVE_RUN)");
    }

    #[test]
    fn an_event_keeps_its_line_and_needs_no_run() {
        let line = r#"{"v":"push.runtime.v1","kind":"event","sessionId":"s","seq":7,"ts":9,"type":"of_tomorrow","payload":{"text":"x"}}"#;
        let Ok(Incoming::Event(event)) = read(line.to_owned()) else { panic!("not an event") };
        assert_eq!((event.seq, event.at, event.run.as_deref(), event.text("text")), (7, 9, None, "x"));
        assert_eq!(event.line, line);
    }

    #[test]
    fn an_unknown_kind_is_passed_over_and_garbage_is_an_error() {
        assert!(matches!(read(r#"{"kind":"tomorrow"}"#.to_owned()), Ok(Incoming::Unknown)));
        assert!(read("garbage".to_owned()).is_err());
    }
}
