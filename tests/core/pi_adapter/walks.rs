//! Random histories: every line that is told is valid, nothing depends on how the history came in, and a client that
//! only listens knows what a client that asks is told.

use std::collections::BTreeSet;

use pushd::kernel::event::{Event, EventKind};
use pushd::kernel::id::Seq;
use pushd::kernel::time::Now;
use pushd::protocol::pi::encode;
use pushd::protocol::pi::projection::{Entry, Projection};
use serde_json::Value;

use crate::pi_adapter::listener::Listener;
use crate::pi_adapter::scene::read;
use crate::pi_adapter::session::Session;
use crate::support::events::{Events, KINDS, Shape};
use crate::support::random::Random;

/// How many histories there are of each sort, unless `PUSH_WALKS` says otherwise.
const WALKS: u64 = 80;

#[test]
fn plausible_histories_are_told_in_order_and_the_listener_knows_what_the_asker_is_told() {
    for seed in seeds() {
        let mut random = Random::new(seed);
        let events = Session::walk(&mut random, 120);
        let mut story = Projection::default();
        let mut listener = Listener::default();
        for batch in batches(&events, &mut random) {
            for told in story.project(batch) {
                listener.hear(&read(&told)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            }
        }
        let changed =
            events.iter().any(|event| matches!(event.kind, EventKind::Branched { .. } | EventKind::Compacted(_)));
        if !changed {
            let asked: BTreeSet<String> = story.messages().map(normal).collect();
            assert_eq!(listener.messages(), asked, "seed {seed}");
        }
        check_same(seed, &story, &events, &mut random);
    }
}

#[test]
fn any_history_at_all_is_told_in_valid_lines() {
    for seed in seeds() {
        let mut random = Random::new(seed);
        let mut source = Events::new(seed, Shape::Shown);
        let events = numbered((0..80).map(|_| source.event(random.below(KINDS))));
        let mut story = Projection::default();
        for batch in batches(&events, &mut random) {
            for told in story.project(batch) {
                read(&told);
            }
        }
        for request in story.open_requests(Now(5)) {
            read(&request);
        }
        check_same(seed, &story, &events, &mut random);
    }
}

#[test]
fn nothing_that_an_event_can_hold_breaks_a_story() {
    for seed in seeds() {
        let mut random = Random::new(seed);
        let mut source = Events::new(seed, Shape::Anything);
        let events = numbered((0..80).map(|_| source.event(random.below(KINDS))));
        let mut story = Projection::default();
        for told in story.project(&events) {
            let body: Value = serde_json::from_slice(told.body()).unwrap();
            assert_eq!(body["type"], told.name(), "seed {seed}");
        }
        check_same(seed, &story, &events, &mut random);
    }
}

#[test]
fn every_kind_of_event_is_among_those_told() {
    let mut names = BTreeSet::new();
    let mut methods = BTreeSet::new();
    for seed in seeds() {
        let mut random = Random::new(seed);
        let events = Session::walk(&mut random, 120);
        for told in Projection::default().project(&events) {
            names.insert(told.name());
            if told.name() == "extension_ui_request" {
                methods.insert(read(&told)["method"].as_str().unwrap().to_owned());
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

/// Checks that a story is the same however its history came in: all at once, in silence, or partly in each way.
fn check_same(seed: u64, lived: &Projection, events: &[Event], random: &mut Random) {
    let mut read = Projection::default();
    events.iter().for_each(|event| read.apply(event));
    let mut both = Projection::default();
    let (before, after) = events.split_at(random.below(events.len() as u64) as usize);
    before.iter().for_each(|event| both.apply(event));
    let _ = both.project(after);
    for other in [&read, &both] {
        let entries = |story: &Projection| story.entries().cloned().collect::<Vec<Entry>>();
        assert_eq!(entries(other), entries(lived), "seed {seed}");
        let messages = |story: &Projection| encode::messages(story.messages());
        assert_eq!(messages(other), messages(lived), "seed {seed}");
        assert_eq!(other.stats(), lived.stats(), "seed {seed}");
        assert_eq!(other.last_text(), lived.last_text(), "seed {seed}");
        assert_eq!(other.fork_messages(), lived.fork_messages(), "seed {seed}");
        assert_eq!(other.summary(), lived.summary(), "seed {seed}");
        assert_eq!(other.context_tokens(), lived.context_tokens(), "seed {seed}");
        assert_eq!(other.is_streaming(), lived.is_streaming(), "seed {seed}");
        assert_eq!(other.open_requests(Now(5)), lived.open_requests(Now(5)), "seed {seed}");
        assert_eq!(other.last_seq(), lived.last_seq(), "seed {seed}");
    }
    let ids: BTreeSet<String> = lived.entries().map(Entry::id).collect();
    let unique: BTreeSet<(Seq, u32)> = lived.entries().map(|entry| (entry.seq, entry.part)).collect();
    assert_eq!(ids.len(), unique.len(), "seed {seed}: two entries have one id");
    for fork in lived.fork_messages() {
        let point = lived.fork_point(&fork.entry_id).expect("what is offered is found");
        assert_eq!(point.text, fork.text, "seed {seed}");
    }
    assert_eq!(lived.message_count(), lived.messages().count() as u64, "seed {seed}");
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

/// Writes a message so that two that are the same are equal.
pub(crate) fn normal(message: &str) -> String {
    serde_json::from_str::<Value>(message).unwrap().to_string()
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse().ok());
    match number("PUSH_WALK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PUSH_WALKS").unwrap_or(WALKS),
    }
}
