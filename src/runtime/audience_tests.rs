//! An event for an audience: no byte of it reaches anybody else, live, in replay or in an answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{DuplexStream, ReadHalf};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::connection_writer;
use super::lane::{LaneRequest, ReplyGuard};
use super::outbox::{EventForm, Outbox};
use super::protocols::{self, ProtocolRegistry};
use super::test_daemon::{Client, TIMEOUT, TestDaemon};
use crate::config::limits::Limits;
use crate::kernel::audience::Audience;
use crate::kernel::command::{Answer, Caller, Command, Post, PostRetention, Reply, Rights};
use crate::kernel::id::{ConnectionId, Json, ParticipantId, Seq, SessionId};
use crate::kernel::participant::{Authentication, Participant, ParticipantKind, Role};
use crate::kernel::refusal::Refusal;
use crate::provider::Starter;
use crate::transport::frames::FrameWriter;
use crate::transport::line::{Line, Lines};

const SECRET: &str = "only for the approvers";

/// A connection of a participant, or of the owner, that speaks the native protocol.
struct Reader {
    outbox: Arc<Outbox>,
    participant: Option<ParticipantId>,
    lines: Lines<ReadHalf<DuplexStream>>,
}

impl Reader {
    fn connect(daemon: &TestDaemon, number: u64, participant: Option<&str>) -> Self {
        let outbox = Outbox::new(ConnectionId(5_000 + number), EventForm::Record);
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let writer = FrameWriter::lines(tokio::io::split(theirs).1, TIMEOUT);
        let hub = Arc::clone(daemon.server.hub());
        let registry = ProtocolRegistry::new(Arc::clone(&daemon.server), protocols::BUILT_IN);
        let protocol = registry.native().protocol;
        tokio::spawn(connection_writer::run(hub, protocol, writer, Arc::clone(&outbox)));
        let lines = Lines::new(tokio::io::split(ours).0, 1 << 20);
        Self { outbox, participant: participant.map(ParticipantId::new), lines }
    }

    async fn send(&self, daemon: &TestDaemon, session: &str, command: Command) -> Reply {
        let lane = daemon.server.hub().lane(&SessionId::from(session)).await.unwrap().unwrap();
        let (sender, reply) = oneshot::channel();
        let (id, source) = (self.outbox.id(), "remote".to_owned());
        let request = LaneRequest {
            caller: Caller { id, source, participant: self.participant.clone(), rights: Rights::ALL, admission: None },
            command,
            if_version: None,
            starter: Starter::Person,
            reply_guard: ReplyGuard::new(|reply| drop(sender.send(reply))),
            outbox: Arc::clone(&self.outbox),
            environment: None,
            part: None,
        };
        assert!(lane.send_request(Box::new(request)).is_ok());
        timeout(TIMEOUT, reply).await.unwrap().unwrap().unwrap().result
    }

    async fn attach(&self, daemon: &TestDaemon, session: &str) {
        let attach = Command::Attach { seen: Seq::ZERO, rights: Rights::ALL };
        assert!(matches!(self.send(daemon, session, attach).await, Ok(Answer::Attached { .. })));
    }

    /// Returns the lines up to the public message that ends each step of the test.
    async fn until_public(&mut self, body: &str) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        while lines.last().is_none_or(|line| !line.contains(body)) {
            match timeout(TIMEOUT, self.lines.next()).await.unwrap().unwrap() {
                Some(Line::Whole(line)) => lines.push(String::from_utf8(line.to_vec()).unwrap()),
                other => panic!("no line: {other:?}"),
            }
        }
        lines
    }
}

fn participant(id: &str, role: Role) -> Command {
    Command::Join(Box::new(Participant {
        id: id.into(),
        kind: ParticipantKind::Human,
        name: id.into(),
        roles: BTreeSet::from([role]),
        capabilities: Rights::EMPTY,
        authentication: Authentication::Token { name: id.into() },
        approval_granted: false,
    }))
}

fn post(audience: Audience, body: &str, retention: PostRetention) -> Command {
    let (kind, body) = ("note".to_owned(), Json::new(json!(body).to_string()));
    Command::Post(Box::new(Post { audience, kind, body, retention }))
}

fn sees(lines: &[String]) -> bool {
    lines.iter().any(|line| line.contains(SECRET))
}

#[tokio::test]
async fn a_restricted_event_reaches_its_audience_only() {
    check_audiences(TestDaemon::new()).await;
}

#[tokio::test]
async fn a_restricted_event_reaches_its_audience_only_from_the_journal() {
    let (daemon, _disk) = TestDaemon::on_test_disk_with(Limits { ring_bytes: 1, ..Limits::default() });
    check_audiences(daemon).await;
}

async fn check_audiences(daemon: TestDaemon) {
    let mut native = daemon.client().await;
    let session = native.start().await;
    native.get("attach_session", json!({"sessionId": session})).await;
    let owner = Reader::connect(&daemon, 0, None);
    for (id, role) in [("ann", Role::Approver), ("bob", Role::Driver), ("cid", Role::Driver)] {
        assert_eq!(owner.send(&daemon, &session, participant(id, role)).await, Ok(Answer::ParticipantChanged));
    }
    let mut ann = Reader::connect(&daemon, 1, Some("ann"));
    let mut bob = Reader::connect(&daemon, 2, Some("bob"));
    for reader in [&ann, &bob] {
        reader.attach(&daemon, &session).await;
    }
    let approvers = || Audience::Role(Role::Approver);
    let named = Audience::Participants(BTreeSet::from(["ann".into()]));
    for (audience, retention) in [
        (approvers(), PostRetention::Journaled),
        (named, PostRetention::Journaled),
        (approvers(), PostRetention::Ephemeral),
    ] {
        assert_eq!(bob.send(&daemon, &session, post(audience, SECRET, retention)).await, Ok(Answer::Posted));
    }
    let public = post(Audience::All, "for all", PostRetention::Journaled);
    assert_eq!(bob.send(&daemon, &session, public).await, Ok(Answer::Posted));
    let seen = ann.until_public("for all").await;
    assert_eq!(seen.iter().filter(|line| line.contains(SECRET)).count(), 3, "{seen:?}");
    assert!(!sees(&bob.until_public("for all").await), "the sender is not in the audience");
    assert!(!native_sees(&mut native).await, "the owner is no exception");

    // In replay, with the roles of now.
    let mut late = Reader::connect(&daemon, 3, Some("cid"));
    late.attach(&daemon, &session).await;
    assert!(!sees(&late.until_public("for all").await));
    let roles = BTreeSet::from([Role::Approver]);
    let promote = Command::ChangeRoles { participant: "cid".into(), roles, capabilities: Rights::EMPTY };
    assert_eq!(owner.send(&daemon, &session, promote).await, Ok(Answer::ParticipantChanged));
    assert!(!sees(&late.until_public("participant_roles_changed").await), "the past comes with a replay");
    late.attach(&daemon, &session).await;
    let seen = late.until_public("participant_roles_changed").await;
    assert_eq!(seen.iter().filter(|line| line.contains(SECRET)).count(), 1, "for the role, not for ann: {seen:?}");
    assert!(!seen.iter().any(|line| line.contains("\"ephemeral\":true")), "it was stored");

    // In answers.
    for (kind, payload) in [
        ("get_session_snapshot", json!({"sessionId": session})),
        ("list_sessions", json!({})),
        ("get_session_messages", json!({"sessionId": session})),
    ] {
        let answer = native.get(kind, payload).await;
        assert!(!answer.to_string().contains(SECRET), "{kind}: {answer}");
    }

    // The owner sees everything only on record.
    native.get("attach_session", json!({"sessionId": session, "asOwner": true})).await;
    let shown = native.until("session_audited").await;
    assert_eq!(shown.iter().filter(|line| line.to_string().contains(SECRET)).count(), 2, "{shown:?}");
    let audited = ann.until_public("session_audited").await;
    assert!(audited.last().unwrap().contains("\"by\":\"cli\""), "{audited:?}");
    native.get("attach_session", json!({"sessionId": session})).await;
    assert!(!native.until("session_audited").await.iter().any(|line| line.to_string().contains(SECRET)));
    daemon.close().await;
}

#[tokio::test]
async fn the_end_of_a_replay_is_marked_also_where_its_last_event_is_for_others() {
    let daemon = TestDaemon::new();
    let mut native = daemon.client().await;
    let session = native.start().await;
    let owner = Reader::connect(&daemon, 0, None);
    let restricted = post(Audience::Role(Role::Approver), SECRET, PostRetention::Journaled);
    assert_eq!(owner.send(&daemon, &session, restricted).await, Ok(Answer::Posted));
    native.until("session_started").await;
    for _ in 0..2 {
        let attached = native.get("resume_session", json!({"sessionId": session})).await;
        let shown = native.until("session_snapshot").await;
        let seen: Vec<_> = shown.iter().map(|event| event["type"].clone()).collect();
        assert_eq!(seen, ["session_started", "session_snapshot"], "nothing but the end follows");
        assert!(shown[0]["seq"].as_u64() < attached["replay"]["toSeq"].as_u64(), "the newest event is not shown");
    }
    daemon.close().await;
}

#[tokio::test]
async fn messages_are_read_by_participants_only() {
    let daemon = TestDaemon::new();
    let session = daemon.client().await.start().await;
    let lane = daemon.server.hub().lane(&SessionId::from(session.clone())).await.unwrap().unwrap();
    let owner = Reader::connect(&daemon, 0, None);
    assert_eq!(owner.send(&daemon, &session, participant("ann", Role::Observer)).await, Ok(Answer::ParticipantChanged));
    let caller = |id: &str| Caller { participant: Some(id.into()), ..Caller::owner(ConnectionId(9), "app".to_owned()) };
    assert!(matches!(lane.conversation(&caller("ann"), Seq::ZERO).await, Some(Ok(_))));
    assert_eq!(lane.conversation(&caller("eve"), Seq::ZERO).await, Some(Err(Refusal::NotPermitted)));
    daemon.close().await;
}

async fn native_sees(native: &mut Client) -> bool {
    loop {
        let shown: Vec<Value> = native.until("message_posted").await;
        if shown.iter().any(|line| line.to_string().contains(SECRET)) {
            return true;
        }
        if shown.iter().any(|line| line.to_string().contains("for all")) {
            return false;
        }
    }
}
