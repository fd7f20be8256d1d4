//! The client side of the protocol: outgoing requests, incoming responses and events.
//!
//! Everything of the daemon is decoded into types here, so that its users name neither an event type nor a field of the
//! wire. Fields and event types of a newer daemon are skipped.

mod event;
mod reply;
mod request;

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

pub use event::{Event, EventContent};
pub use reply::{
    AckReply, ApprovalsReply, AttachReply, CompactReply, DeleteReply, ExcerptSegment, Grant, GrantsReply, HelloReply,
    IntegrityReply, JournalReply, LastRun, ListedApproval, Loss, MetricsReply, PiFile, QueueReply, QueuedMessage,
    QueuedReply, ReloadReply, Replay, RepositoryInfo, RunReply, SandboxReply, SearchHit, SearchReply, SessionCost,
    SessionItem, SessionMeta, SessionPage, SessionProblem, SessionSnapshot, SessionState, StartReply, StatsReply,
    StatsRow, ToolStats, UserCommandReply,
};
pub use request::{Environment, MESSAGE_BYTES, Request, RequestBody, RetrySafety};

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
    /// The payload, a JSON text to be read as the type of the request's reply, or the error.
    pub outcome: Result<String, ResponseError>,
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

/// A line that cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error("the daemon sent a line that is not a message of this protocol")]
pub struct DecodeError(#[source] serde_json::Error);

/// Decodes one line of the daemon.
pub fn decode_line(line: String) -> Result<Incoming, DecodeError> {
    if line.len() > LONG_LINE
        && let Some((head, payload)) = split_payload(&line)
        && let Ok(envelope) = serde_json::from_str::<Envelope<'_>>(&head)
        && envelope.kind == "event"
    {
        let content = event::decode_content(&envelope, payload, &line);
        if content.has_payload() {
            let (session, run) = (envelope.session_id.unwrap_or_default(), envelope.run_id);
            let (seq, at) = (envelope.seq, envelope.ts);
            return Ok(Incoming::Event(Box::new(Event { session, run, seq, at, content, line })));
        }
    }
    let envelope: Envelope<'_> = serde_json::from_str(&line).map_err(DecodeError)?;
    Ok(match envelope.kind.as_ref() {
        "response" => Incoming::Response(envelope.into_response()),
        "event" => {
            let content = event::decode_content(&envelope, envelope.payload.map_or("null", RawValue::get), &line);
            let (session, run) = (envelope.session_id.unwrap_or_default(), envelope.run_id);
            let (seq, at) = (envelope.seq, envelope.ts);
            Incoming::Event(Box::new(Event { session, run, seq, at, content, line }))
        }
        _ => Incoming::Unknown,
    })
}

/// From how many bytes on the payload of an event is cut out of its line.
const LONG_LINE: usize = 512;

/// Returns the envelope without the payload, and the payload, of a line that ends with it, as the lines of events do.
///
/// A parser that does not know the type yet would read the payload twice: to find its end, and to decode it. A quote
/// inside a string is escaped, so the mark is a key; any other line gives two parts of which one is not JSON.
fn split_payload(line: &str) -> Option<(String, &str)> {
    let mark = ",\"payload\":";
    let at = memchr::memmem::find(line.as_bytes(), mark.as_bytes())?;
    let payload = line[at + mark.len()..].strip_suffix('}')?;
    let mut head = String::with_capacity(at + 1);
    head.push_str(&line[..at]);
    head.push('}');
    Some((head, payload))
}

/// The envelope of a response or an event; its payload is decoded in a second step.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    r#type: Cow<'a, str>,
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
    #[serde(borrow, default)]
    payload: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<ResponseError>,
}

impl Envelope<'_> {
    fn into_response(self) -> Response {
        let payload = || self.payload.map_or("{}", RawValue::get).to_owned();
        let outcome = if self.ok { Ok(payload()) } else { Err(self.error.unwrap_or_else(missing_error)) };
        Response { request_id: self.request_id, outcome }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_its_payload_or_its_error() {
        let ok = r#"{"v":"push.runtime.v1","kind":"response","requestId":"r","type":"ping","ok":true,"payload":{"pong":true},"error":null}"#;
        let Ok(Incoming::Response(response)) = decode_line(ok.to_owned()) else { panic!("not a response") };
        assert_eq!(response.request_id, "r");
        assert_eq!(response.outcome.unwrap(), r#"{"pong":true}"#);

        let refused = r#"{"kind":"response","requestId":"r","type":"ping","ok":false,"payload":{},"error":{"code":"NO_ACTIVE_RUN","message":"no run","retryable":false,"more":1}}"#;
        let Ok(Incoming::Response(response)) = decode_line(refused.to_owned()) else { panic!("not a response") };
        let fault = response.outcome.unwrap_err();
        assert_eq!(fault.to_string(), "no run (NO_ACTIVE_RUN)");
    }

    #[test]
    fn an_unknown_kind_is_skipped_and_garbage_is_an_error() {
        assert!(matches!(decode_line(r#"{"kind":"tomorrow"}"#.to_owned()), Ok(Incoming::Unknown)));
        assert!(decode_line("garbage".to_owned()).is_err());
    }
}
