//! What a fork inherits: complete messages that the forking participant may see, within limits.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use serde_json::{Value, json};

use pushd::kernel::audience::{Audience, Viewer};
use pushd::kernel::conversation::Conversation;
use pushd::kernel::event::{Event, EventKind, RunEvent};
use pushd::kernel::fork::Inheritance;
use pushd::kernel::id::ParticipantId;
use pushd::kernel::limits::Limits;
use pushd::kernel::refusal::Refusal;
use pushd::record;

#[test]
fn an_event_for_others_is_not_inherited() {
    let mut events = talk();
    events[0].audience = Audience::Participants(BTreeSet::from([ParticipantId::new("ann")]));
    let ann = Viewer::Participant { id: ParticipantId::new("ann"), roles: BTreeSet::new() };
    let seen = |viewer: Viewer| inherit(&events, viewer, Limits::default()).unwrap();
    assert!(seen(ann).iter().any(|event| event.seq == events[0].seq), "it was for her");
    for viewer in [Viewer::Owner, Viewer::Nobody] {
        let inherited = seen(viewer);
        assert!(!inherited.iter().any(|event| event.seq == events[0].seq), "{inherited:?}");
    }
    assert_eq!(seen(Viewer::Nobody), []);
}

#[test]
fn a_text_costs_two_deltas_and_is_the_same() {
    let events = talk();
    let inherited = inherit(&events, Viewer::Owner, Limits::default()).unwrap();
    let deltas = |events: &[Event]| events.iter().filter(|event| is_delta(event)).count();
    assert_eq!((deltas(&events), deltas(&inherited)), (9, 2));
    assert_eq!(fold(&inherited).messages(), fold(&events).messages());
    assert_eq!(fold(&inherited).items(), fold(&events).items());
}

#[test]
fn an_incomplete_text_and_an_unfinished_command_are_not_inherited() {
    let mut events = talk();
    let user_command =
        json!({"callId": "c", "toolName": "sandbox_exec", "source": "sandbox", "args": {}, "purpose": "user"});
    events.push(event(20, "tool_call", None, &user_command));
    events.push(event(21, "user_message", Some("r2"), &message("more")));
    events.push(event(22, "assistant_token", Some("r2"), &json!({"text": "Not yet"})));
    let inherited = inherit(&events, Viewer::Owner, Limits::default()).unwrap();
    assert_eq!(inherited.last().unwrap().seq.number(), 21);
    assert!(!inherited.iter().any(|event| event.seq.number() == 20), "{inherited:?}");
}

#[test]
fn what_a_summary_replaces_is_left_out_if_everything_is_too_much() {
    let mut events = talk();
    events.push(event(
        20,
        "context_compacted",
        None,
        &json!({"summary": "short", "keptFromSeq": 19, "tokensBefore": 9}),
    ));
    let whole = inherit(&events, Viewer::Owner, Limits::default()).unwrap();
    assert_eq!(whole.len(), 6);
    let narrow = Limits { import_bytes: 20, ..Limits::default() };
    let numbers: Vec<_> =
        inherit(&events, Viewer::Owner, narrow).unwrap().iter().map(|event| event.seq.number()).collect();
    assert_eq!(numbers, [20], "the summary stays");
    events.truncate(events.len() - 1);
    assert_eq!(inherit(&events, Viewer::Owner, narrow), Err(Refusal::ImportTooLarge));
}

fn inherit(events: &[Event], viewer: Viewer, limits: Limits) -> Result<Vec<Event>, Refusal> {
    let mut inheritance = Inheritance::new(viewer, limits);
    events.iter().for_each(|event| inheritance.add(event.clone()));
    inheritance.finish()
}

fn fold(events: &[Event]) -> Conversation {
    let mut conversation = Conversation::default();
    events.iter().for_each(|event| conversation.fold(event));
    conversation
}

const fn is_delta(event: &Event) -> bool {
    matches!(event.kind, EventKind::Run(RunEvent::TextDelta { .. }))
}

/// A message, an answer in nine parts, and the end of the run.
fn talk() -> Vec<Event> {
    let mut events = vec![
        event(2, "user_message", Some("r"), &message("a long question")),
        event(3, "status", Some("r"), &json!({"source": "daemon", "phase": "working"})),
    ];
    events.extend((4..13).map(|seq| event(seq, "assistant_token", Some("r"), &json!({"text": "word "}))));
    events.push(event(13, "assistant_done", Some("r"), &json!({"messageId": "a"})));
    let end = json!({"runId": "r", "outcome": "success", "summary": "", "headless": {"exitCodeHint": 0}});
    events.push(event(14, "run_complete", Some("r"), &end));
    events
}

fn message(text: &str) -> Value {
    json!({"messageId": text, "text": text, "preview": text, "by": "cli", "fingerprint": "0"})
}

fn event(seq: u64, kind: &str, run: Option<&str>, payload: &Value) -> Event {
    let mut line = json!({
        "v": "push.runtime.v1", "kind": "event", "sessionId": "s", "seq": seq, "ts": seq, "type": kind,
        "payload": payload,
    });
    if let Some(run) = run {
        line["runId"] = run.into();
    }
    record::decode_event(line.to_string().as_bytes()).unwrap()
}
