//! Outgoing requests, each with the type of its reply.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::reply::{
    AckReply, ApprovalsReply, AttachReply, CompactReply, DeleteReply, GrantsReply, HelloReply, JournalReply,
    MetricsReply, QueueReply, QueuedReply, ReloadReply, RunReply, SearchReply, SessionPage, SessionSnapshot,
    StartReply, StatsReply, UserCommandReply,
};
use crate::protocol::push::PROTOCOL;

/// Maximum bytes of a message text.
pub const MESSAGE_BYTES: usize = 4 * 1024 * 1024;

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

/// One request, with the type of its reply.
pub struct Request<R = AckReply> {
    body: RequestBody,
    reply: PhantomData<fn() -> R>,
}

/// A request without the type of its reply.
pub struct RequestBody {
    kind: &'static str,
    session: Option<String>,
    payload: Map<String, Value>,
    retry_safety: RetrySafety,
}

impl fmt::Debug for RequestBody {
    // The payload may contain the user's environment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("kind", &self.kind).field("session", &self.session).finish()
    }
}

impl<R> fmt::Debug for Request<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.body.fmt(f)
    }
}

impl RequestBody {
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
}

impl<R: DeserializeOwned> Request<R> {
    fn new(kind: &'static str, retry_safety: RetrySafety) -> Self {
        Self { body: RequestBody { kind, session: None, payload: Map::new(), retry_safety }, reply: PhantomData }
    }

    fn of(kind: &'static str, session: &str, repeat: RetrySafety) -> Self {
        let mut request = Self::new(kind, repeat).with("sessionId", session);
        request.body.session = Some(session.to_owned());
        request
    }

    /// Reads the reply as another type.
    #[must_use]
    pub fn reading<T: DeserializeOwned>(self) -> Request<T> {
        Request { body: self.body, reply: PhantomData }
    }

    /// Adds a field to the payload.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.body.payload.insert(name.to_owned(), value.into());
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

    /// Adds the user's environment to the payload, if there is one to send.
    #[must_use]
    pub fn with_environment(self, environment: Option<&Environment>) -> Self {
        self.with_some("environment", environment.map(|environment| json!(environment)))
    }

    /// Returns the request without the type of its reply.
    pub const fn body(&self) -> &RequestBody {
        &self.body
    }

    /// Returns the request as a line without the newline.
    pub fn line(&self, request_id: &str) -> String {
        self.body.line(request_id)
    }
}

impl Request {
    /// Introduces the client.
    pub fn hello(version: &str) -> Request<HelloReply> {
        Request::new("hello", RetrySafety::Safe)
            .with("clientName", "push")
            .with("clientVersion", version)
            .with("capabilities", json!(["stream_tokens", "approvals", "replay_attach"]))
    }

    /// Starts a session; the idempotency key makes a retry return the same session.
    pub fn start_session(idempotency_key: &str) -> Request<StartReply> {
        Request::new("start_session", RetrySafety::Safe).with("idempotencyKey", idempotency_key)
    }

    /// Subscribes to a session from a position on.
    pub fn attach_session(session: &str, seen: u64) -> Request<AttachReply> {
        Request::of("attach_session", session, RetrySafety::Safe).with("lastSeenSeq", seen)
    }

    /// Ends the subscription to a session.
    pub fn detach_session(session: &str) -> Self {
        Self::of("detach_session", session, RetrySafety::Safe)
    }

    /// Subscribes to a session after `seen`; a snapshot follows the missed events.
    pub fn resume_session(session: &str, seen: u64) -> Request<AttachReply> {
        Request::of("resume_session", session, RetrySafety::Safe).with("lastSeenSeq", seen)
    }

    /// Starts a run; the message id is the idempotency key.
    pub fn send_user_message(session: &str, message_id: &str, text: &str) -> Request<RunReply> {
        Request::of("send_user_message", session, RetrySafety::Safe)
            .with("clientMessageId", message_id)
            .with("text", text)
    }

    /// Sends a message into the active run.
    pub fn steer(session: &str, message_id: &str, text: &str) -> Request<RunReply> {
        Request::of("steer", session, RetrySafety::Safe).with("clientMessageId", message_id).with("text", text)
    }

    /// Queues a message behind the active run.
    pub fn queue_message(session: &str, message_id: &str, text: &str) -> Request<QueuedReply> {
        Request::of("queue_message", session, RetrySafety::Safe).with("clientMessageId", message_id).with("text", text)
    }

    /// Lists the queued messages.
    pub fn list_queue(session: &str) -> Request<QueueReply> {
        Request::of("list_queue", session, RetrySafety::Safe)
    }

    /// Removes a queued message.
    pub fn remove_queued(session: &str, message_id: &str) -> Self {
        Self::of("remove_queued", session, RetrySafety::Unsafe).with("messageId", message_id)
    }

    /// Votes on an approval.
    ///
    /// A retry after a lost response may be refused as settled: by the first attempt or by another client. The fields
    /// `scope`, `rule`, `choice`, `comment` and `answer` are added with [`with`](Self::with).
    pub fn submit_approval(session: &str, approval: &str, decision: &str) -> Self {
        Self::of("submit_approval", session, RetrySafety::Safe).with("approvalId", approval).with("decision", decision)
    }

    /// Stops a run, by default the active one.
    pub fn cancel_run(session: &str, run: Option<&str>) -> Self {
        Self::of("cancel_run", session, RetrySafety::Safe).with_some("runId", run).with("reason", "user_cancelled")
    }

    /// Runs a command of the user's own in the directory of a session, beside any run.
    ///
    /// It is not idempotent: after a lost response, the events tell whether the command was started.
    pub fn run_user_command(session: &str, command: &str) -> Request<UserCommandReply> {
        Request::of("run_user_command", session, RetrySafety::Unsafe).with("command", command)
    }

    /// Stops a command of the user, by default all of a session.
    pub fn stop_user_command(session: &str, call: Option<&str>) -> Self {
        Self::of("stop_user_command", session, RetrySafety::Safe).with_some("callId", call)
    }

    /// Requests the snapshot of a session.
    pub fn session_snapshot(session: &str) -> Request<SessionSnapshot> {
        Request::of("get_session_snapshot", session, RetrySafety::Safe)
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
    pub fn compact_session(session: &str, instructions: Option<&str>) -> Request<CompactReply> {
        Request::of("compact_session", session, RetrySafety::Unsafe).with_some("instructions", instructions)
    }

    /// Forks a session; the idempotency key makes a retry return the same fork.
    pub fn fork_session(session: &str, idempotency_key: &str) -> Request<StartReply> {
        Request::of("fork_session", session, RetrySafety::Safe).with("idempotencyKey", idempotency_key)
    }

    /// Captures the environment of the login shell again.
    pub fn reload() -> Request<ReloadReply> {
        Request::new("reload", RetrySafety::Safe)
    }

    /// Reports the size of a session and whether it can be deleted, without deleting it.
    pub fn delete_session_dry_run(session: &str) -> Request<DeleteReply> {
        Request::of("delete_session", session, RetrySafety::Safe).with("dryRun", true)
    }

    /// Deletes a session with all of its data.
    ///
    /// A retry after a lost response may be refused as unknown: the first attempt or another client deleted the
    /// session.
    pub fn delete_session(session: &str, with_pi_files: bool) -> Request<DeleteReply> {
        Request::of("delete_session", session, RetrySafety::Safe).with("withPiFiles", with_pi_files)
    }

    /// Checks the journal; with `full`, every event is verified.
    pub fn check_journal(full: bool) -> Request<JournalReply> {
        Request::new("check_journal", RetrySafety::Safe).with("full", full)
    }

    /// Lists sessions, newest first.
    pub fn list_sessions(limit: u64) -> Request<SessionPage> {
        Request::new("list_sessions", RetrySafety::Safe).with("limit", limit).with("includeEnded", true)
    }

    /// Lists open approvals, of one session or of all.
    pub fn list_approvals(session: Option<&str>) -> Request<ApprovalsReply> {
        match session {
            Some(session) => Request::of("list_approvals", session, RetrySafety::Safe),
            None => Request::new("list_approvals", RetrySafety::Safe),
        }
    }

    /// Lists open approvals of all sessions as soon as the list has another revision than `known`; at once for 0.
    pub fn await_approvals(known: u64) -> Request<ApprovalsReply> {
        Self::list_approvals(None).with("knownRevision", known)
    }

    /// Searches the text of all sessions. `kinds`, `since`, `directory` and `limit` are added with [`with`](Self::with).
    pub fn search(text: &str) -> Request<SearchReply> {
        Request::new("search", RetrySafety::Safe).with("text", text)
    }

    /// Requests the figures of all sessions. `since` and `directory` are added with [`with`](Self::with).
    pub fn stats() -> Request<StatsReply> {
        Request::new("get_stats", RetrySafety::Safe)
    }

    /// Lists the grants of all repositories.
    pub fn list_grants() -> Request<GrantsReply> {
        Request::new("list_grants", RetrySafety::Safe)
    }

    /// Revokes a grant.
    pub fn revoke_grant(id: &str) -> Self {
        Self::new("revoke_grant", RetrySafety::Unsafe).with("grantId", id)
    }

    /// Requests the daemon's metrics.
    pub fn metrics() -> Request<MetricsReply> {
        Request::new("get_metrics", RetrySafety::Safe)
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
        let request = Request::start_session("k").with_environment(Some(&environment));
        assert!(request.line("req_1").contains("hunter2"));
        assert!(!format!("{request:?}").contains("hunter2"));
    }
}
