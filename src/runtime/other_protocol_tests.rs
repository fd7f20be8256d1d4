//! A third protocol on the connection driver, together with the native one in the same session.
//!
//! Its requests are words: `attach SESSION SEEN`, `prompt SESSION TEXT` and `cancel SESSION`. Its replies and events are
//! words as well, so that nothing of the records is sent.

use std::sync::Arc;

use serde_json::json;
use tokio::io::{AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::connection;
use super::test_daemon::{Client, TIMEOUT, TestDaemon};
use crate::config::limits::Limits;
use crate::kernel::command::PrivateEvent;
use crate::kernel::event::{Event, EventKind};
use crate::kernel::id::{ParticipantId, Seq, SessionId};
use crate::protocol::error::{Code, ErrorBody};
use crate::protocol::intent::{Attach, Intent, Malformed, Prompt, Request, RequestTag, SessionIntent, SnapshotMode};
use crate::protocol::reply::Reply;
use crate::protocol::{EncodingKey, EventEncoding, Protocol};
use crate::transport::frames::{FrameReader, FrameWriter};
use crate::transport::line::{Line, Lines};

/// The protocol of words.
struct Words;

fn tag(kind: &str, session: Option<&str>) -> RequestTag {
    RequestTag { request_id: None, kind_name: kind.to_owned(), session: session.map(SessionId::from) }
}

fn refuse(why: &str) -> Malformed {
    Malformed { tag: tag("unknown", None), error: ErrorBody::permanent(Code::InvalidRequest, why) }
}

impl Protocol for Words {
    fn open(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"welcome\n");
    }

    fn decode(&self, frame: &[u8]) -> Result<Request, Malformed> {
        let text = std::str::from_utf8(frame).map_err(|_| refuse("not UTF-8"))?;
        let mut words = text.splitn(3, ' ');
        let (Some(kind), Some(session)) = (words.next(), words.next()) else { return Err(refuse("no session")) };
        let rest = words.next().unwrap_or_default();
        let body = match kind {
            "attach" => SessionIntent::Attach(Box::new(Attach {
                seen: Seq::new(rest.parse().map_err(|_| refuse("not a position"))?),
                snapshot: SnapshotMode::AfterGap,
                token: None,
                read_only: false,
                environment: None,
            })),
            "prompt" => SessionIntent::Prompt(Box::new(Prompt {
                message: None,
                text: rest.to_owned(),
                images: Vec::new(),
                criteria: Vec::new(),
                time_limit: None,
                budget: Default::default(),
                rules: Vec::new(),
                environment: None,
            })),
            "cancel" => SessionIntent::Cancel { run: None, reason: "asked".to_owned() },
            _ => return Err(refuse("unknown word")),
        };
        Ok(Request { tag: tag(kind, Some(session)), intent: Intent::Session { id: session.into(), body } })
    }

    fn too_long(&self, _bytes: u64, _limit: usize) -> Malformed {
        refuse("too long")
    }

    fn reply(&self, tag: &RequestTag, reply: Result<&Reply, &ErrorBody>, out: &mut Vec<u8>) {
        let outcome = reply.map_or_else(|error| error.code.as_str(), |_| "ok");
        out.extend_from_slice(format!("{} {outcome}\n", tag.kind_name).as_bytes());
    }

    fn private_event(&self, _session: &SessionId, _event: &PrivateEvent, out: &mut Vec<u8>) {
        out.extend_from_slice(b"notice\n");
    }

    fn event_encoding(&self) -> EventEncoding {
        EventEncoding::Shared(EncodingKey("words"))
    }

    fn event(&self, _session: &SessionId, event: &Event, out: &mut Vec<u8>) {
        let word = if let EventKind::TextDelta { text } = &event.kind {
            text
        } else if matches!(event.kind, EventKind::RunStarted(_)) {
            "started"
        } else if matches!(event.kind, EventKind::RunEnded(_)) {
            "ended"
        } else {
            return;
        };
        out.extend_from_slice(format!("{} {word}\n", event.seq).as_bytes());
    }
}

/// A client of the protocol.
struct WordClient {
    lines: Lines<ReadHalf<DuplexStream>>,
    to: WriteHalf<DuplexStream>,
}

impl WordClient {
    async fn connect(daemon: &TestDaemon) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (from, to) = tokio::io::split(theirs);
        let (reader, writer) = (FrameReader::lines(from, 1 << 16), FrameWriter::lines(to, TIMEOUT));
        // The listener of the test daemon numbers its own connections from 1 on.
        let id = ParticipantId(1000 + daemon.server.next_participant_id().0);
        let server = Arc::clone(&daemon.server);
        tokio::spawn(async move { connection::drive(&server, Arc::new(Words), id, reader, writer).await.is_none() });
        let (from, to) = tokio::io::split(ours);
        let mut client = Self { lines: Lines::new(from, 1 << 16), to };
        assert_eq!(client.line().await, "welcome");
        client
    }

    async fn send(&mut self, line: &str) {
        self.to.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn line(&mut self) -> String {
        match timeout(TIMEOUT, self.lines.next()).await.unwrap().unwrap() {
            Some(Line::Whole(line)) => String::from_utf8(line.to_vec()).unwrap(),
            other => panic!("no line: {other:?}"),
        }
    }

    /// Returns the lines up to the end of a run.
    async fn until_ended(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line: &String| !line.ends_with(" ended")) {
            lines.push(self.line().await);
        }
        lines
    }
}

#[tokio::test]
async fn a_third_protocol_shares_a_session_with_the_native_one() {
    share_a_session(TestDaemon::new()).await;
}

#[tokio::test]
async fn a_third_protocol_reads_what_has_left_the_ring_from_the_journal() {
    let (daemon, _disk) = TestDaemon::on_test_disk_with(Limits { ring_bytes: 1, ..Limits::default() });
    share_a_session(daemon).await;
}

async fn share_a_session(daemon: TestDaemon) {
    let mut native = daemon.client().await;
    let session = native.start().await;
    native.get("attach_session", json!({"sessionId": session})).await;
    let mut words = WordClient::connect(&daemon).await;
    words.send(&format!("attach {session} 0")).await;
    assert_eq!(words.line().await, "attach ok");
    words.send(&format!("prompt {session} speak")).await;
    let lines = words.until_ended().await;
    assert!(lines.contains(&"prompt ok".to_owned()), "{lines:?}");
    assert!(lines.iter().any(|line| line.ends_with(" said")), "{lines:?}");
    let shown = native.until("run_complete").await;
    let ended = shown.last().unwrap()["seq"].to_string();
    assert_eq!(lines.last(), Some(&format!("{ended} ended")), "both see the same numbers");
    // What one has missed, it reads later.
    native.run(&session, "speak").await;
    let second = words.until_ended().await;
    let mut late = WordClient::connect(&daemon).await;
    late.send(&format!("attach {session} 0")).await;
    assert_eq!(late.line().await, "attach ok");
    let first: Vec<String> = lines.into_iter().filter(|line| line != "prompt ok").collect();
    assert_eq!(late.until_ended().await, first);
    assert_eq!(late.until_ended().await, second);
    daemon.close().await;
}

#[tokio::test]
async fn a_bad_frame_of_a_third_protocol_is_answered_and_costs_nothing_else() {
    let daemon = TestDaemon::new();
    let mut native: Client = daemon.client().await;
    let session = native.start().await;
    let mut words = WordClient::connect(&daemon).await;
    for (line, reply) in [
        ("dance s".to_owned(), "unknown INVALID_REQUEST"),
        ("attach".to_owned(), "unknown INVALID_REQUEST"),
        ("prompt nobody hello".to_owned(), "prompt SESSION_NOT_FOUND"),
        (format!("cancel {session}"), "cancel NO_ACTIVE_RUN"),
        ("x".repeat(1 << 17), "unknown INVALID_REQUEST"),
    ] {
        words.send(&line).await;
        assert_eq!(words.line().await, reply, "{}", &line[..line.len().min(40)]);
    }
    assert_eq!(native.get("ping", json!({})).await["pong"], true);
    daemon.close().await;
}
