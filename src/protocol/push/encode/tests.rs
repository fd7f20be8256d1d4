//! The exact encoding of lines that clients may depend on.

use super::*;
use crate::kernel::audience::Audience;
use crate::kernel::command::{Phase, Repetition, Replay, SessionStatus};
use crate::kernel::event::{Adjustment, DenialEffect, Event, EventKind, GateEvent, GateQuestion, Opening, RunOutcome};
use crate::kernel::gate::GateSubject;
use crate::kernel::id::Json;
use crate::kernel::quorum::Quorum;
use crate::kernel::refusal::Refusal;
use crate::protocol::error::{Code, from_refusal};
use crate::protocol::reply::{PendingApproval, Reply};
use crate::record::event_line;

#[test]
fn a_gap_warning_names_its_positions() {
    let mut out = Vec::new();
    gap_line(&"s".into(), Seq::new(9), Now(1), Seq::new(120), Gap::Lost { earliest: Seq::new(140) }, &mut out);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "{\"v\":\"push.runtime.v1\",\"kind\":\"event\",\"sessionId\":\"s\",\"seq\":9,\"ts\":1,\"type\":\"warning\",\
         \"payload\":{\"code\":\"EVENT_GAP\",\"message\":\"Replay gap detected; snapshot sent.\",\
         \"detail\":\"Requested lastSeenSeq=120 but earliest retained seq is 140\"}}\n"
    );
}

#[test]
fn a_snapshot_holds_the_session_state() {
    let snapshot = Snapshot {
        phase: Phase::Waiting,
        opening: Opening {
            mode: "m".into(),
            provider: "p".into(),
            sandbox: "l".into(),
            cwd: "/".into(),
            ..Opening::default()
        },
        name: Some("n".into()),
        run: Some("r".into()),
        question: None,
        open_gates: 0,
        last_text: "end".into(),
        last_message: String::new(),
        last_seq: Seq::new(5),
        opened_at: Now(1),
        updated_at: Now(2),
        last_run: Some(("r0".into(), RunOutcome::Denied, 3)),
        queued: 1,
        open: SessionStatus::Ended,
        version: 7,
        adjusted: Adjustment { model: Some("x".into()), ..Adjustment::default() },
    };
    let expected = r#"{"state":"awaiting_approval","activeRunId":"r","lastAssistantText":"end","pendingApproval":null,"meta":{"provider":"p","sandboxProvider":"l","model":"x","cwd":"/","name":"n","mode":"interactive"},"lastSeq":5,"queued":1,"ended":true,"lastRun":{"runId":"r0","outcome":"denied","exitCode":3},"openedAt":1,"updatedAt":2,"sessionVersion":7}"#;
    assert_eq!(snapshot_payload(&snapshot).as_str(), expected);
    let private = PrivateEvent::Snapshot { seq: Seq::new(6), at: Now(3), snapshot: Box::new(snapshot) };
    let mut out = Vec::new();
    private_line(&"s".into(), &private, &mut out);
    let envelope =
        r#"{"v":"push.runtime.v1","kind":"event","sessionId":"s","seq":6,"ts":3,"type":"session_snapshot","payload":"#;
    assert_eq!(String::from_utf8(out).unwrap(), format!("{envelope}{expected}}}\n"));
}

#[test]
fn responses_name_a_session_only_where_there_is_one() {
    let (mut ok, mut error) = (Vec::new(), Vec::new());
    response_ok("q\"", "ping", None, &payload(&Reply::Pong(Now(7))), &mut ok);
    assert_eq!(
        String::from_utf8(ok).unwrap(),
        "{\"v\":\"push.runtime.v1\",\"kind\":\"response\",\"requestId\":\"q\\\"\",\"type\":\"ping\",\"ok\":true,\
         \"payload\":{\"pong\":true,\"ts\":7},\"error\":null}\n"
    );
    let refusal = from_refusal(Refusal::NoActiveRun).with_detail("d");
    response_error("q", "cancel_run", Some("s"), &refusal, &mut error);
    assert_eq!(
        String::from_utf8(error).unwrap(),
        "{\"v\":\"push.runtime.v1\",\"kind\":\"response\",\"requestId\":\"q\",\"type\":\"cancel_run\",\
         \"sessionId\":\"s\",\"ok\":false,\"payload\":{},\"error\":{\"code\":\"NO_ACTIVE_RUN\",\
         \"message\":\"no such run is active in this session\",\"retryable\":false,\"detail\":\"d\"}}\n"
    );
    assert_eq!(ErrorBody::transient(Code::InternalError, "x").detail, None);
}

#[test]
fn repetitions_and_replays_are_marked() {
    let prompted = |repetition| payload(&Reply::Prompted { run: "r".into(), repetition });
    assert_eq!(prompted(Repetition::First).as_str(), r#"{"runId":"r","accepted":true}"#);
    assert_eq!(prompted(Repetition::Repeated).as_str(), r#"{"runId":"r","accepted":true,"repeated":true}"#);
    let attached = |phase, gap| {
        let replay = Replay { from: Seq::new(136), to: Seq::new(149), gap };
        payload(&Reply::Attached { session: "s".into(), phase, replay })
    };
    assert_eq!(
        attached(Phase::Running, Gap::None).as_str(),
        r#"{"sessionId":"s","state":"running","replay":{"fromSeq":136,"toSeq":149,"completed":true,"gap":false}}"#
    );
    assert_eq!(
        attached(Phase::Idle, Gap::Foreign).as_str(),
        r#"{"sessionId":"s","state":"idle","replay":{"fromSeq":136,"toSeq":149,"completed":false,"gap":true}}"#
    );
}

#[test]
fn a_pending_approval_is_its_event_with_session_and_run() {
    let mut question = question();
    question.quorum = Quorum::Any(2);
    let event = event_payload(&question);
    let pending = PendingApproval { session: "s".into(), run: Some("r".into()), question };
    let listed = payload(&Reply::Approvals { pending: vec![pending], revision: None });
    let ids = r#"{"sessionId":"s","runId":"r","#;
    assert_eq!(listed.as_str(), format!("{{\"approvals\":[{ids}{}]}}", &event[1..]));
    assert!(event.ends_with(r#""needed":2}"#), "{event}");
}

fn question() -> GateQuestion {
    GateQuestion {
        gate: "g".into(),
        subject: GateSubject::ToolCall { call: "c".into() },
        kind: "command".into(),
        title: "t".into(),
        summary: "s".into(),
        details: Json::new("{}"),
        choices: vec![],
        quorum: Quorum::Any(1),
        eligible: None,
        expires: Now(9),
        grant_rule: None,
        digest: None,
        on_denial: DenialEffect::EndRun,
    }
}

/// The payload of the event that opened the gate.
fn event_payload(question: &GateQuestion) -> String {
    let kind = EventKind::Gate(GateEvent::Opened(Box::new(question.clone())));
    let event = Event {
        seq: Seq::new(42),
        at: Now(1),
        run: Some("r".into()),
        version: None,
        origin: None,
        audience: Audience::All,
        kind,
    };
    let mut out = Vec::new();
    event_line(&"s".into(), &event, &mut out);
    let line = String::from_utf8(out).unwrap();
    let (_, payload) = line.split_once("\"payload\":").unwrap();
    payload.strip_suffix("}\n").unwrap().to_owned()
}
