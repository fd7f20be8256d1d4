//! A third protocol in one file, in one session together with Push and Pi.
//!
//! Its requests are words: `attach SESSION SEEN`, `prompt SESSION TEXT`, `join SESSION ROLE NAME`,
//! `post SESSION AUDIENCE TEXT`,
//! `ask SESSION all|approver`, `yes SESSION GATE` and `cancel SESSION`. Its replies and events are words as well, so that
//! nothing of the records is sent.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod audiences;
mod scenarios;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use pushd::config::limits::Limits;
use pushd::config::listener::{HTTP_PORT, ListenerSettings, WebListener, WebScope};
use pushd::config::paths::Paths;
use pushd::kernel::audience::Audience;
use pushd::kernel::command::{Post, PostRetention, PrivateEvent, Rights};
use pushd::kernel::event::{ApprovalScope, Decision, Event, EventKind, GateEvent, ParticipantEvent, RunEvent};
use pushd::kernel::id::{Json, Seq, SessionId};
use pushd::kernel::participant::{ParticipantKind, Role};
use pushd::kernel::quorum::Quorum;
use pushd::kernel::time::Now;
use pushd::protocol::error::{Code, ErrorBody};
use pushd::protocol::intent::{
    ApprovalDecision, Attach, Intent, Join, Malformed, OpenGate, ParticipantIntent, Prompt, Request, RequestTag,
    SessionIntent, SnapshotMode,
};
use pushd::protocol::reply::Reply;
use pushd::protocol::{EncodingKey, EventEncoding, Protocol};
use pushd::provider::dialect;
use pushd::runtime::protocols::{BUILT_IN, ProtocolEntry, ProtocolInstance};
use pushd::runtime::{Config, RunError};
use pushd::tools::ToolSet;
use pushd::transport::canonical_json::JsonError;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::daemon::{Client, TIMEOUT};

/// The protocols of the product and this one.
const PROTOCOLS: [ProtocolEntry; 3] = [
    BUILT_IN[0],
    ProtocolEntry {
        name: "words with heartbeats",
        paths: &[],
        frame_bytes: |_| 1 << 16,
        has_request_id: |_| false,
        create: |_| ProtocolInstance::Requests(Arc::new(Words { heartbeat: Some(Duration::from_millis(5)) })),
    },
    ProtocolEntry {
        name: "words",
        paths: &["/words"],
        frame_bytes: |_| 1 << 16,
        has_request_id: |_| false,
        create: |_| ProtocolInstance::Requests(Arc::new(Words { heartbeat: None })),
    },
];

/// The protocol of words.
struct Words {
    heartbeat: Option<Duration>,
}

fn tag(kind: &str, session: Option<&str>) -> RequestTag {
    RequestTag { request_id: None, kind_name: kind.to_owned(), session: session.map(SessionId::from) }
}

fn refuse(why: &str) -> Malformed {
    Malformed { tag: tag("unknown", None), error: ErrorBody::permanent(Code::InvalidRequest, why) }
}

fn role(word: &str) -> Option<Role> {
    match word {
        "approver" => Some(Role::Approver),
        "driver" => Some(Role::Driver),
        _ => None,
    }
}

impl Protocol for Words {
    fn open(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"welcome\n");
    }

    fn is_json(&self) -> bool {
        false
    }

    fn unreadable(&self, _frame: &[u8], why: &JsonError) -> Malformed {
        refuse(&why.to_string())
    }

    fn tick_interval(&self) -> Option<Duration> {
        self.heartbeat
    }

    fn tick(&self, now: Now, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("alive {}\n", now.0).as_bytes());
    }

    fn decode(&self, frame: &[u8]) -> Result<Request, Malformed> {
        let text = std::str::from_utf8(frame).map_err(|_| refuse("not UTF-8"))?;
        let mut words = text.splitn(3, ' ');
        let (Some(kind), Some(session)) = (words.next(), words.next()) else { return Err(refuse("no session")) };
        let rest = words.next().unwrap_or_default();
        let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
        let body = match kind {
            "attach" => SessionIntent::Attach(Box::new(Attach {
                seen: Seq::new(rest.parse().map_err(|_| refuse("not a position"))?),
                snapshot: SnapshotMode::AfterGap,
                token: None,
                read_only: false,
                as_owner: false,
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
            "join" => SessionIntent::Participant(ParticipantIntent::Join(Box::new(Join {
                participant: second.into(),
                kind: ParticipantKind::Human,
                name: second.to_owned(),
                roles: role(first).into_iter().collect(),
                capabilities: Rights::EMPTY,
            }))),
            // To `all`, the holders of a role or a participant; with `!` it is not stored.
            "post" => SessionIntent::Participant(ParticipantIntent::Post(Box::new(Post {
                audience: match (first.trim_end_matches('!'), role(first.trim_end_matches('!'))) {
                    ("all", _) => Audience::All,
                    (_, Some(role)) => Audience::Role(role),
                    (name, None) => Audience::Participants([name.into()].into()),
                },
                kind: "note".to_owned(),
                body: Json::new(json!(second).to_string()),
                retention: if first.ends_with('!') { PostRetention::Ephemeral } else { PostRetention::Journaled },
            }))),
            "ask" => SessionIntent::Participant(ParticipantIntent::OpenGate(Box::new(OpenGate {
                kind: "merge".to_owned(),
                title: "Merge?".to_owned(),
                summary: rest.to_owned(),
                details: Json::new("{}"),
                choices: Vec::new(),
                quorum: match rest {
                    "all" => Quorum::Any(2),
                    _ => Quorum::Role { role: Role::Approver, count: 1 },
                },
                eligible: None,
                timeout_millis: None,
            }))),
            "yes" => SessionIntent::Decide(Box::new(ApprovalDecision {
                gate: rest.into(),
                run: None,
                decision: Decision::Approve,
                choice: None,
                comment: None,
                scope: ApprovalScope::Once,
                rule: None,
                answer: None,
                environment: None,
            })),
            _ => return Err(refuse("unknown word")),
        };
        Ok(Request { tag: tag(kind, Some(session)), intent: Intent::Session { id: session.into(), body } })
    }

    fn needs_attach_tokens(&self) -> bool {
        false
    }

    fn too_long(&self, _bytes: u64, _limit: usize, _head: &[u8], _tail: &[u8]) -> Malformed {
        refuse("too long")
    }

    fn reply(&self, tag: &RequestTag, reply: Result<&Reply, &ErrorBody>, out: &mut Vec<u8>) {
        let outcome = match reply {
            Ok(Reply::GateOpened(gate)) => gate.as_str(),
            Ok(_) => "ok",
            Err(error) => error.code.as_str(),
        };
        out.extend_from_slice(format!("{} {outcome}\n", tag.kind_name).as_bytes());
    }

    fn private_event(&self, _session: &SessionId, event: &PrivateEvent, out: &mut Vec<u8>) {
        let text = if let PrivateEvent::Posted { message, .. } = event { message.body.as_str() } else { "" };
        out.extend_from_slice(format!("notice {text}\n").as_bytes());
    }

    fn event_encoding(&self) -> EventEncoding {
        EventEncoding::Shared(EncodingKey("words"))
    }

    fn event(&self, _session: &SessionId, event: &Event, out: &mut Vec<u8>) {
        let word = if let EventKind::Run(RunEvent::TextDelta { text }) = &event.kind {
            text
        } else if matches!(event.kind, EventKind::Run(RunEvent::Started(_))) {
            "started"
        } else if matches!(event.kind, EventKind::Run(RunEvent::Ended(_))) {
            "ended"
        } else if let EventKind::Participant(ParticipantEvent::Posted(message)) = &event.kind {
            message.body.as_str()
        } else if matches!(event.kind, EventKind::Gate(GateEvent::Settled(_))) {
            "settled"
        } else {
            return;
        };
        out.extend_from_slice(format!("{} {word}\n", event.seq).as_bytes());
    }
}

/// A daemon in this process.
struct WordDaemon {
    home: TempDir,
    socket: PathBuf,
    runtime: tokio::runtime::Runtime,
    daemon: tokio::task::JoinHandle<Result<(), RunError>>,
}

impl WordDaemon {
    fn start(limits: Limits) -> Self {
        let home = tempfile::tempdir().unwrap();
        let variable = |name: &str| (name == "HOME").then(|| home.path().as_os_str().to_owned());
        let paths = Paths::from_environment(&variable).unwrap();
        let socket = paths.socket.clone();
        let settings = ListenerSettings { listen: ([127, 0, 0, 1], 0).into(), ..ListenerSettings::closed(HTTP_PORT) };
        let config = Config {
            paths,
            limits,
            homes: vec![home.path().to_owned()],
            toolchains: Vec::new(),
            listeners: vec![WebListener { scope: WebScope::All, settings }],
            protocols: &PROTOCOLS,
            tools: ToolSet::builtin(),
            dialects: dialect::BUILT_IN,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (ready, is_ready) = mpsc::channel();
        let daemon = runtime.spawn(pushd::runtime::run(config, move || ready.send(()).unwrap()));
        is_ready.recv_timeout(TIMEOUT).expect("the daemon listens");
        Self { home, socket, runtime, daemon }
    }

    fn stop(self) {
        Client::connect(&self.socket).get("drain", json!({}));
        self.runtime.block_on(self.daemon).unwrap().unwrap();
    }
}

/// A connection of the local socket that has switched to another protocol.
struct SwitchedClient {
    lines: BufReader<UnixStream>,
    stream: UnixStream,
}

impl SwitchedClient {
    fn connect(socket: &Path, protocol: &str) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut client = Self { lines: BufReader::new(stream.try_clone().unwrap()), stream };
        let request = json!({"v": "push.runtime.v1", "kind": "request", "requestId": "r", "type": "speak",
            "payload": {"protocol": protocol}});
        client.send(&request.to_string());
        let reply: Value = serde_json::from_str(&client.line()).unwrap();
        assert_eq!(reply["ok"], true, "{reply}");
        client
    }

    fn words(socket: &Path) -> Self {
        let mut client = Self::connect(socket, "words");
        assert_eq!(client.line(), "welcome");
        client
    }

    fn send(&mut self, line: &str) {
        self.stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Returns the lines up to one that satisfies a condition, which is the last.
    fn until(&mut self, is_last: impl Fn(&str) -> bool) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line: &String| !is_last(line)) {
            lines.push(self.line());
        }
        lines
    }

    fn until_ended(&mut self) -> Vec<String> {
        self.until(|line| line.ends_with(" ended"))
    }
}
