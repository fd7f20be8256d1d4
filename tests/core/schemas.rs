//! The schemas accept everything that is sent, refuse everything else, and an event round-trips through its line.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::events::{Events, KINDS, Shape};
use crate::support::samples::{BROKEN, BROKEN_REQUESTS, REQUESTS, SPECIFIED};
use crate::support::schemas::{FILES, check_line, validate_line};
use pushd::kernel::command::{
    Gap, Phase, PrivateEvent, QueueEntry, Repetition, Replay, Rights, SessionStatus, Snapshot,
};
use pushd::kernel::event::{Adjustment, Event, RunOutcome};
use pushd::kernel::id::{RunId, Seq, SessionId};
use pushd::kernel::participant::{self, Authentication, Participant, ParticipantKind, Presence};
use pushd::kernel::refusal::Refusal;
use pushd::kernel::time::Now;
use pushd::protocol::error::{Code, ErrorBody, from_refusal};
use pushd::protocol::intent::SearchKind;
use pushd::protocol::push::decode::{DecodeLimits, decode};
use pushd::protocol::push::encode;
use pushd::protocol::reply::{
    Completion, ExcerptSegment, GrantRow, IndexCoverage, IntegrityReport, JournalCheck, LossRow, MessagePage,
    MessageRow, Metrics, PendingApproval, ProblemRow, ProviderRow, Reply, Role, SearchHit, SearchResults,
    SessionFileRow, StatsReport, StatsRow, ToolRow,
};
use pushd::record::summary::{self, SessionRow};
use pushd::record::{self, RecordError, decode_event};

const SEEDS: u64 = 400;

#[test]
fn every_event_round_trips_through_its_line() {
    for seed in 0..SEEDS {
        let mut events = Events::new(seed, Shape::Anything);
        let session = SessionId::from(events.text());
        for kind in 0..KINDS {
            let event = events.event(kind);
            let line = line_of(&session, &event);
            let read = decode_event(line.as_bytes());
            assert_eq!(read.expect(&line), event, "seed {seed}: {line}");
            let read = decode_event(line.trim_end_matches('\n').as_bytes());
            assert_eq!(read.expect(&line), event, "seed {seed}: the newline is not part of the event");
            assert_eq!(line.matches(['\n', '\r']).count(), 1, "seed {seed}: {line:?}");
        }
    }
}

#[test]
fn every_published_event_is_valid() {
    for seed in 0..SEEDS / 4 {
        let mut events = Events::new(seed, Shape::Shown);
        let session = SessionId::from(events.name());
        for kind in 0..KINDS {
            let event = events.event(kind);
            check_line(&line_of(&session, &event));
            check_line(&line_of(&session, &Event { origin: Some("a1b2c3d4".into()), ..event }));
        }
    }
}

#[test]
fn every_private_line_is_valid() {
    for seed in 0..SEEDS / 4 {
        let mut events = Events::new(seed, Shape::Shown);
        let snapshot = snapshot(&mut events);
        let session = SessionId::from("s");
        let mut out = Vec::new();
        for gap in [Gap::None, Gap::Foreign, Gap::Lost { earliest: Seq::new(140) }] {
            let private = PrivateEvent::Gap { seq: Seq::new(7), at: Now(8), seen: Seq::new(120), gap };
            encode::private_line(&session, &private, &mut out);
        }
        let same = snapshot.clone();
        let private = PrivateEvent::Snapshot { seq: Seq::new(9), at: Now(10), snapshot: Box::new(snapshot) };
        encode::private_line(&session, &private, &mut out);
        let snapshot = Box::new(same);
        let private = PrivateEvent::Summary { seq: Seq::new(10), at: Now(11), after: Seq::new(9), snapshot };
        encode::private_line(&session, &private, &mut out);
        let private = PrivateEvent::Deleted { seq: Seq::new(11), at: Now(12), by: events.name() };
        encode::private_line(&session, &private, &mut out);
        let lines = String::from_utf8(out).unwrap();
        assert_eq!(lines.lines().count(), 6);
        lines.lines().for_each(check_line);
    }
}

#[test]
fn every_response_is_valid() {
    for seed in 0..SEEDS / 4 {
        for (kind, reply) in replies(&mut Events::new(seed, Shape::Shown)) {
            for session in [None, Some("sess_1")] {
                let mut line = Vec::new();
                encode::response_ok("req_1", kind, session, &encode::payload(&reply), &mut line);
                check_line(std::str::from_utf8(&line).unwrap());
            }
        }
    }
    for code in Code::ALL {
        let error = ErrorBody::transient(code, "no").with_detail("because");
        let mut line = Vec::new();
        encode::response_error("req_1", "whatever", None, &error, &mut line);
        check_line(std::str::from_utf8(&line).unwrap());
    }
    let mut line = Vec::new();
    encode::response_error("req_1", "cancel_run", Some("s"), &from_refusal(Refusal::NoActiveRun), &mut line);
    check_line(std::str::from_utf8(&line).unwrap());
}

#[test]
fn every_kind_of_response_is_among_those_checked() {
    let (_, text) = FILES[2];
    let schema: serde_json::Value = serde_json::from_str(text).unwrap();
    let listed: Vec<&String> = schema["$defs"].as_object().unwrap().keys().collect();
    let mut checked: Vec<&str> = replies(&mut Events::new(0, Shape::Shown)).into_iter().map(|(kind, _)| kind).collect();
    checked.sort_unstable();
    assert_eq!(listed, checked);
}

#[test]
fn requests_of_the_specification_are_valid_and_decoded() {
    let limits = DecodeLimits::default();
    for &(kind, payload) in REQUESTS {
        for (envelope, payload) in [
            (r#""sessionId":"sess_01HXYZ","#, payload.to_owned()),
            (r#""sessionId":null,"#, with_session(payload)),
            ("", with_session(payload)),
        ] {
            let line = format!(
                r#"{{"v":"push.runtime.v1","kind":"request","requestId":"req_01HXYZ","type":"{kind}",{envelope}"payload":{payload}}}"#
            );
            check_line(&line);
            let request = decode(line.as_bytes(), &limits).unwrap_or_else(|problem| panic!("{line}: {problem:?}"));
            assert_eq!(request.tag.kind_name, kind);
        }
    }
}

#[test]
fn responses_and_events_as_the_specification_shows_them_are_valid() {
    SPECIFIED.iter().for_each(|line| check_line(line));
}

#[test]
fn broken_lines_are_not_valid() {
    assert!(BROKEN.len() >= 40);
    for (good, from, to) in BROKEN {
        let line = SPECIFIED
            .iter()
            .find(|line| line.contains(&format!(r#""type":"{good}""#)))
            .unwrap_or_else(|| panic!("no line of type {good}"));
        assert!(line.contains(from), "{good} has no {from}: {line}");
        let broken = line.replacen(from, to, 1);
        assert!(validate_line(&broken).is_err(), "{good} with {to:?} for {from:?} is still valid: {broken}");
    }
    for line in ["", "[]", "{}", "null", r#"{"v":"push.runtime.v1"}"#, r#"{"v":"push.runtime.v1","kind":"other"}"#] {
        assert!(validate_line(line).is_err(), "{line}");
    }
}

#[test]
fn broken_requests_are_neither_valid_nor_decoded() {
    for (kind, payload) in BROKEN_REQUESTS {
        let line = format!(
            r#"{{"v":"push.runtime.v1","kind":"request","requestId":"q","type":"{kind}","payload":{payload}}}"#
        );
        assert!(validate_line(&line).is_err(), "{line}");
        assert!(decode(line.as_bytes(), &DecodeLimits::default()).is_err(), "{line}");
    }
}

#[test]
fn the_examples_of_the_page_are_valid() {
    let mut checked = 0;
    for (section, names, blocks) in examples(include_str!("../../docs/protocols/push.md")) {
        for (at, block) in blocks.iter().enumerate() {
            let name = |line: usize| names[if blocks.len() > 1 { at } else { line.min(names.len() - 1) }];
            match (section, block.as_slice()) {
                ("Requests", [request, response]) => {
                    let line = format!(
                        r#"{{"v":"push.runtime.v1","kind":"request","type":"{}","sessionId":"s","payload":{request}}}"#,
                        name(0)
                    );
                    check_line(&line);
                    let line = format!(
                        r#"{{"v":"push.runtime.v1","kind":"response","requestId":"q","type":"{}","ok":true,"payload":{response},"error":null}}"#,
                        name(0)
                    );
                    check_line(&line);
                }
                ("Events", lines) => {
                    for (at, payload) in lines.iter().enumerate() {
                        let line = |run: &str| {
                            format!(
                                r#"{{"v":"push.runtime.v1","kind":"event","sessionId":"s",{run}"seq":1,"ts":2,"type":"{}","payload":{payload}}}"#,
                                name(at)
                            )
                        };
                        if validate_line(&line(r#""runId":"r","#)).is_err() {
                            check_line(&line(""));
                        }
                    }
                }
                ("Envelopes", lines) => lines.iter().for_each(|line| check_line(line)),
                (section, lines) => assert_eq!((section, lines.len()), ("Errors", 1), "{lines:?}"),
            }
            checked += block.len();
        }
    }
    assert!(checked > 50, "{checked} examples were found");
}

#[test]
fn a_schema_names_no_host_and_is_called_as_its_file() {
    for (name, text) in FILES {
        let schema: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(schema["$id"], name);
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(text.matches("://").count(), 1, "{name}");
    }
}

#[test]
fn a_record_that_is_not_one_is_refused() {
    let head = r#"{"v":"push.runtime.v1","kind":"event","sessionId":"s","seq":1,"ts":2,"#;
    for (rest, refused) in [
        ("", "envelope"),
        (r#""type":"assistant_token","payload":{}}"#, "payload"),
        (r#""type":"message_queued","payload":{"messageId":"m","text":"","by":"b","fingerprint":"0"}}"#, "field"),
        (r#""type":"user_message","payload":{"messageId":"m","text":"","by":"b","fingerprint":"xyz"}}"#, "field"),
        (r#""type":"tool_call","payload":{"source":"acceptance","toolName":"t","args":{},"callId":"c"}}"#, "field"),
        (r#""type":"status","payload":{"source":"s","phase":"p","callId":"c"}}"#, "field"),
    ] {
        let line = format!("{head}{rest}");
        let found = match decode_event(line.as_bytes()).expect_err(&line) {
            RecordError::Envelope(_) => "envelope",
            RecordError::Payload { .. } => "payload",
            RecordError::Field { .. } => "field",
        };
        assert_eq!(found, refused, "{line}");
    }
}

/// A section, the names in a heading, and the blocks below it.
type PageSection<'a> = (&'a str, Vec<&'a str>, Vec<Vec<&'a str>>);

/// Extracts the code blocks of a page, each with its section and the names in its heading.
fn examples(page: &str) -> Vec<PageSection<'_>> {
    let mut found = Vec::new();
    for section in page.split("\n## ").skip(1) {
        let title = section.lines().next().unwrap();
        for part in section.split("\n### ") {
            let names = part.lines().next().unwrap().split('`').skip(1).step_by(2).collect();
            let blocks: Vec<Vec<&str>> = part
                .split("```json\n")
                .skip(1)
                .map(|block| block.split_once("\n```").unwrap().0.lines().collect())
                .collect();
            if !blocks.is_empty() {
                found.push((title, names, blocks));
            }
        }
    }
    found
}

fn line_of(session: &SessionId, event: &Event) -> String {
    let mut out = Vec::new();
    record::event_line(session, event, &mut out);
    String::from_utf8(out).unwrap()
}

fn snapshot(events: &mut Events) -> Snapshot {
    let phases = [Phase::Idle, Phase::Running, Phase::Waiting, Phase::Completed, Phase::Failed, Phase::Cancelled];
    Snapshot {
        phase: phases[events.below(6) as usize],
        opening: events.opening(),
        name: events.maybe(Events::name),
        run: events.maybe(Events::name).map(Into::into),
        question: events.maybe(Events::question),
        open_gates: 1,
        last_text: events.text(),
        last_message: events.text(),
        last_seq: Seq::new(events.below(9)),
        opened_at: Now(1),
        updated_at: Now(2),
        last_run: events.maybe(Events::name).map(|run| (run.into(), RunOutcome::Failed, 4)),
        queued: events.below(3) as usize,
        open: if events.below(2) == 0 { SessionStatus::Open } else { SessionStatus::Ended },
        version: events.below(3),
        adjusted: Adjustment { model: events.maybe(Events::name), ..Adjustment::default() },
    }
}

fn replies(events: &mut Events) -> Vec<(&'static str, Reply)> {
    let session = SessionId::from(events.name());
    let (run, message) = (RunId::from(events.name()), events.name().into());
    let snapshot = snapshot(events);
    let row = SessionRow::of(&session, &snapshot);
    let replay = Replay { from: Seq::new(1), to: Seq::ZERO, gap: Gap::None };
    let row_of = |role| MessageRow {
        seq: Seq::new(1),
        at: Now(2),
        role,
        message: "m".into(),
        run: Some("r".into()).filter(|_| role == Role::User),
        text: String::new(),
    };
    let page = MessagePage {
        messages: vec![row_of(Role::User), row_of(Role::Assistant)],
        next_after: Seq::new(1),
        done: events.below(2) == 0,
    };
    let question = events.question();
    let pending = PendingApproval { session: session.clone(), run: Some("r".into()), question };
    let provider = ProviderRow { name: "playbook".into(), models: vec!["m".into()], configured: true, default: false };
    let grant =
        GrantRow { id: "grant_1".into(), repository: "/r".into(), rule: events.text(), by: "cli".into(), at: Now(3) };
    let waiting = QueueEntry { message: "m".into(), run: "r".into(), text: events.text() };
    let metrics = Metrics {
        pid: 1,
        version: "0.1.0".into(),
        socket: "/s".into(),
        http: events.maybe(|_| "127.0.0.1:3140".into()),
        pi: events.maybe(|_| "127.0.0.1:3141".into()),
        ..Metrics::default()
    };
    let check = journal_check(events);
    let gone = Replay { gap: Gap::Foreign, ..replay };
    vec![
        ("hello", Reply::Hello { version: "0.1.0", home: events.maybe(|_| "/home/me".into()) }),
        ("ping", Reply::Pong(Now(1))),
        (
            "fork_session",
            Reply::Started {
                session: session.clone(),
                phase: Phase::Completed,
                token: "att_2".into(),
                repetition: Repetition::First,
            },
        ),
        (
            "start_session",
            Reply::Started {
                session: session.clone(),
                phase: Phase::Idle,
                token: "att_1".into(),
                repetition: Repetition::Repeated,
            },
        ),
        (
            "list_sessions",
            Reply::Sessions { items: vec![summary::session_item(&row)], next_cursor: events.maybe(|_| "next".into()) },
        ),
        ("attach_session", Reply::Attached { session: session.clone(), phase: Phase::Running, replay }),
        ("resume_session", Reply::Attached { session, phase: Phase::Failed, replay: gone }),
        ("detach_session", Reply::Done(Completion::Detached)),
        ("send_user_message", Reply::Prompted { run: run.clone(), repetition: Repetition::Repeated }),
        ("queue_message", Reply::Queued { message, run: run.clone(), position: 0 }),
        ("list_queue", Reply::Queue(vec![waiting])),
        ("list_participants", Reply::Participants(participants(events))),
        ("remove_queued", Reply::Done(Completion::Unqueued)),
        ("steer", Reply::Steered(run)),
        ("submit_approval", Reply::Done(Completion::Accepted)),
        ("cancel_run", Reply::Done(Completion::Accepted)),
        ("get_session_snapshot", Reply::Snapshot(Box::new(snapshot))),
        ("get_session_messages", Reply::Messages(page)),
        ("rename_session", Reply::Done(Completion::Renamed)),
        ("end_session", Reply::Done(Completion::Ended)),
        ("run_user_command", Reply::UserCommandStarted("call_01".into())),
        ("stop_user_command", Reply::Done(Completion::Accepted)),
        ("compact_session", Reply::Compacting(Seq::new(events.below(99)))),
        ("list_approvals", Reply::Approvals { pending: vec![pending], revision: Some(7) }),
        ("search", Reply::SearchResults(search_results(events))),
        ("get_stats", Reply::Stats(Box::new(stats_report(events)))),
        ("list_grants", Reply::Grants(vec![grant])),
        ("revoke_grant", Reply::Done(Completion::Revoked)),
        ("list_providers", Reply::Providers(vec![provider])),
        ("get_metrics", Reply::Metrics(Box::new(metrics))),
        (
            "delete_session",
            Reply::Deleted { deleted: events.below(2) == 0, bytes: events.below(9), files: pi_files(events) },
        ),
        ("check_journal", Reply::JournalCheck(Box::new(check))),
        ("drain", Reply::Done(Completion::Draining)),
        ("reload", Reply::Reloaded { variables: 40, warning: (events.below(2) == 0).then(|| "no shell".into()) }),
        ("speak", Reply::Done(Completion::ProtocolSwitched)),
    ]
}

fn search_results(events: &mut Events) -> SearchResults {
    let hit = SearchHit {
        session: "sess_01".into(),
        name: events.maybe(|events| events.text()),
        cwd: events.text(),
        kind: SearchKind::Tool,
        seq: Seq::new(events.below(99)),
        at: Now(events.below(99)),
        excerpt: [false, true].map(|is_match| ExcerptSegment { text: events.text(), is_match }).into(),
    };
    SearchResults { hits: vec![hit], coverage: IndexCoverage { complete: events.below(2) == 0, missing: 3 } }
}

fn stats_report(events: &mut Events) -> StatsReport {
    let row = StatsRow {
        day: "2026-01-31".into(),
        directory: events.text(),
        model: events.text(),
        turns: events.below(99),
        ..StatsRow::default()
    };
    let tools = vec![ToolRow { tool: events.text(), calls: 2, failures: 1 }];
    let sessions = (events.below(2) == 0).then(|| vec![(events.name().into(), events.below(99))]);
    StatsReport { rows: vec![row], tools, sessions, coverage: IndexCoverage { complete: true, missing: 0 } }
}

fn participants(events: &mut Events) -> Vec<(Participant, Presence)> {
    let authentication = match events.below(2) {
        0 => Authentication::LocalUser,
        _ => Authentication::Token { name: events.text() },
    };
    let participant = Participant {
        id: events.name().into(),
        kind: ParticipantKind::Agent,
        name: events.text(),
        roles: participant::Role::ALL.into(),
        capabilities: Rights::of(&Rights::CAPABILITIES),
        authentication,
        approval_granted: events.below(2) == 0,
    };
    vec![(participant.clone(), Presence::Online), (participant, Presence::Offline)]
}

fn pi_files(events: &mut Events) -> Vec<SessionFileRow> {
    let row = |created| SessionFileRow {
        path: "/home/ann/.pi/agent/sessions/a.jsonl".into(),
        bytes: 9,
        created,
        removed: created,
        problem: (!created).then(|| "it is a link".into()),
    };
    (0..events.below(3)).map(|index| row(index == 0)).collect()
}

fn journal_check(events: &mut Events) -> JournalCheck {
    let mut loss = |session: Option<SessionId>| LossRow {
        at: Now(1),
        session,
        after: Seq::new(events.below(9)),
        until: Seq::new(9),
        cause: "damage".into(),
        detail: events.maybe(Events::name),
    };
    let (known, unknown) = (loss(Some("s".into())), loss(None));
    let problem = ProblemRow { session: "s".into(), what: events.name() };
    let proof = IntegrityReport { found: vec![known.clone()], problems: vec![problem], ..IntegrityReport::default() };
    let proof = Some(proof).filter(|_| events.below(2) == 0);
    JournalCheck { schema: 1001, losses: vec![known, unknown], integrity: proof, ..JournalCheck::default() }
}

fn with_session(payload: &str) -> String {
    if payload.contains(r#""sessionId""#) {
        return payload.to_owned();
    }
    let rest = payload.strip_prefix('{').unwrap();
    let comma = if rest == "}" { "" } else { "," };
    format!(r#"{{"sessionId":"sess_01HXYZ"{comma}{rest}"#)
}
