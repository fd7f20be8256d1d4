//! Random histories: every line is valid, the result does not depend on the batches, and a client that only receives
//! events has the same messages as one that requests them.

use std::collections::BTreeSet;

use pushd::kernel::event::{ContextEvent, Event, EventKind, GateEvent, RunEvent, ToolEvent};
use pushd::kernel::id::{Json, Seq, SessionId};
use pushd::kernel::time::Now;
use pushd::protocol::command_protocol::SessionProjection;
use pushd::protocol::pi::encode;
use pushd::protocol::pi::projection::Projection;
use pushd::record::{decode_event, event_line};
use serde_json::Value;

use crate::pi_adapter::event_source::read;
use crate::pi_adapter::listener::ReceivingClient;
use crate::pi_adapter::session::RandomSession;
use crate::support::events::{Events, KINDS, Shape};
use crate::support::random::Random;

/// How many histories of each kind are tested, unless `PUSH_WALKS` is set.
const WALKS: u64 = 80;

#[test]
fn plausible_histories_are_projected_in_order_and_received_messages_equal_requested_ones() {
    for seed in seeds() {
        let mut random = Random::new(seed);
        let events = RandomSession::generate(&mut random, 120);
        let mut projection = Projection::default();
        let mut receiver = ReceivingClient::default();
        for batch in batches(&events, &mut random) {
            for projected in projection.project(batch) {
                receiver.receive(&read(&projected)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            }
        }
        let changed = events.iter().any(|event| {
            matches!(
                event.kind,
                EventKind::Context(ContextEvent::Branched { .. }) | EventKind::Context(ContextEvent::Compacted(_))
            )
        });
        if !changed {
            let requested: BTreeSet<String> = projection.messages().map(|message| normalized(&message)).collect();
            assert_eq!(receiver.messages(), requested, "seed {seed}");
        }
        check_same(seed, &projection, &events, &mut random);
        let mut restored = Projection::default();
        events.iter().map(stored).for_each(|event| restored.apply(&event));
        assert!(restored.entries().eq(projection.entries()), "seed {seed}: restored");
        assert!(restored.messages().eq(projection.messages()), "seed {seed}: restored");
    }
}

#[test]
fn any_history_is_projected_to_valid_lines() {
    for seed in seeds() {
        let mut random = Random::new(seed);
        let mut source = Events::new(seed, Shape::Shown);
        let events = numbered((0..80).map(|_| source.event(random.below(KINDS))));
        let mut projection = Projection::default();
        for batch in batches(&events, &mut random) {
            for projected in projection.project(batch) {
                read(&projected);
            }
        }
        for request in projection.open_requests(Now(5)) {
            read(&request);
        }
        check_same(seed, &projection, &events, &mut random);
    }
}

#[test]
fn no_content_of_an_event_breaks_a_projection() {
    for seed in seeds() {
        let mut random = Random::new(seed);
        let mut source = Events::new(seed, Shape::Anything);
        let events = numbered((0..80).map(|_| source.event(random.below(KINDS))));
        let mut projection = Projection::default();
        for projected in projection.project(&events) {
            let body: Value = serde_json::from_slice(projected.body()).unwrap();
            assert_eq!(body["type"], projected.name(), "seed {seed}");
        }
        check_same(seed, &projection, &events, &mut random);
    }
}

#[test]
fn values_that_are_not_one_line_of_json_are_projected_as_their_records_have_them() {
    let broken = ["{\n\"a\":\r\n1}", "{}}\n{\"type\":\"event\"", "{\"a\":", "", "[1,\n2]"];
    let mut forged = 0;
    for seed in seeds() {
        let mut random = Random::new(seed);
        let mut events = RandomSession::generate(&mut random, 120);
        for event in &mut events {
            let json = Json::new(broken[random.below(broken.len() as u64) as usize]);
            if let EventKind::Run(RunEvent::TurnUsage(usage)) = &mut event.kind {
                usage.pending.iter_mut().for_each(|call| call.args = json.clone());
            } else if let EventKind::Tool(ToolEvent::Intended(intention)) = &mut event.kind {
                intention.args = json;
            } else if let EventKind::Gate(GateEvent::Opened(question)) = &mut event.kind {
                // The details of a question are always an object.
                question.details = Json::new(broken[0]);
            } else {
                continue;
            }
            forged += 1;
        }
        let stored = events.iter().map(stored).collect::<Vec<_>>();
        let (mut live, mut restored) = (Projection::default(), Projection::default());
        let (live_events, restored_events) = (live.project(&events), restored.project(&stored));
        for projected in &live_events {
            assert!(!projected.body().contains(&b'\n'), "seed {seed}");
            assert!(serde_json::from_slice::<Value>(projected.body()).is_ok(), "seed {seed}");
        }
        for (live, restored) in live_events.iter().zip(&restored_events) {
            assert_eq!(live, restored, "seed {seed}");
        }
        assert_eq!(live_events.len(), restored_events.len(), "seed {seed}");
        assert_eq!(encode::messages(live.messages()), encode::messages(restored.messages()), "seed {seed}");
    }
    assert!(forged > 0, "the histories hold values");
}

/// Returns an event as a restart reads it from its record.
fn stored(event: &Event) -> Event {
    let mut line = Vec::new();
    event_line(&SessionId::from("s"), event, &mut line);
    decode_event(line.trim_ascii_end()).expect("a record is readable")
}

#[test]
fn every_kind_of_event_is_projected() {
    let mut names = BTreeSet::new();
    let mut methods = BTreeSet::new();
    for seed in seeds() {
        let mut random = Random::new(seed);
        let events = RandomSession::generate(&mut random, 120);
        for projected in Projection::default().project(&events) {
            names.insert(projected.name());
            if projected.name() == "extension_ui_request" {
                methods.insert(read(&projected)["method"].as_str().unwrap().to_owned());
            }
        }
    }
    let expected = [
        "agent_end",
        "agent_start",
        "auto_compaction_end",
        "auto_compaction_start",
        "auto_retry_end",
        "auto_retry_start",
        "extension_ui_request",
        "message_end",
        "message_start",
        "message_update",
        "tool_execution_end",
        "tool_execution_start",
        "tool_execution_update",
        "turn_end",
        "turn_start",
    ];
    assert_eq!(names.into_iter().collect::<Vec<_>>(), expected);
    let expected = [
        "confirm",
        "editor",
        "input",
        "interview",
        "notify",
        "select",
        "setStatus",
        "setTitle",
        "setWidget",
        "setWorkingMessage",
    ];
    assert_eq!(methods.into_iter().collect::<Vec<_>>(), expected);
}

/// Checks that the projection is the same for all ways to apply a history: projected, applied silently, or both.
fn check_same(seed: u64, expected: &Projection, events: &[Event], random: &mut Random) {
    let mut read = Projection::default();
    events.iter().for_each(|event| read.apply(event));
    let mut both = Projection::default();
    let (before, after) = events.split_at(random.below(events.len() as u64) as usize);
    before.iter().for_each(|event| both.apply(event));
    let _ = both.project(after);
    for other in [&read, &both] {
        assert!(other.entries().eq(expected.entries()), "seed {seed}");
        let messages = |projection: &Projection| encode::messages(projection.messages());
        assert_eq!(messages(other), messages(expected), "seed {seed}");
        assert_eq!(other.stats(), expected.stats(), "seed {seed}");
        assert_eq!(other.last_text(), expected.last_text(), "seed {seed}");
        assert_eq!(other.fork_messages(), expected.fork_messages(), "seed {seed}");
        assert_eq!(other.summary(), expected.summary(), "seed {seed}");
        assert_eq!(other.context_tokens(), expected.context_tokens(), "seed {seed}");
        assert_eq!(other.is_streaming(), expected.is_streaming(), "seed {seed}");
        assert_eq!(other.open_requests(Now(5)), expected.open_requests(Now(5)), "seed {seed}");
        assert_eq!(other.last_seq(), expected.last_seq(), "seed {seed}");
    }
    let ids: BTreeSet<String> = expected.entries().map(|entry| entry.id()).collect();
    let unique: BTreeSet<(Seq, u32)> = expected.entries().map(|entry| (entry.seq, entry.part)).collect();
    assert_eq!(ids.len(), unique.len(), "seed {seed}: two entries have one id");
    for fork in expected.fork_messages() {
        let point = expected.fork_point(&fork.entry_id).expect("what is offered is found");
        assert_eq!(point.text, fork.text, "seed {seed}");
    }
    assert_eq!(expected.message_count(), expected.messages().count() as u64, "seed {seed}");
}

/// Cuts a history into batches.
fn batches<'a>(events: &'a [Event], random: &mut Random) -> Vec<&'a [Event]> {
    let mut batches = Vec::new();
    let mut rest = events;
    while !rest.is_empty() {
        let (batch, after) = rest.split_at(1 + random.below(rest.len().min(6) as u64) as usize);
        batches.push(batch);
        rest = after;
    }
    batches
}

fn numbered(events: impl Iterator<Item = Event>) -> Vec<Event> {
    (1..).zip(events).map(|(seq, event)| Event { seq: Seq::new(seq), at: Now(seq * 10), ..event }).collect()
}

/// Normalizes a message for comparison.
pub(crate) fn normalized(message: &str) -> String {
    serde_json::from_str::<Value>(message).unwrap().to_string()
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse().ok());
    match number("PUSH_WALK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PUSH_WALKS").unwrap_or(WALKS),
    }
}
