//! Random histories: however a history is cut, stored and folded, the conversation is the same, and its messages are
//! those of the protocols.

use pushd::kernel::conversation::{Conversation, ItemContent};
use pushd::kernel::event::{ContextEvent, Event, EventKind, RunEvent};
use pushd::kernel::id::{Seq, SessionId};
use pushd::kernel::time::Now;
use pushd::protocol::pi::projection::{Projection, Role};
use pushd::record::{decode_event, event_line};
use serde_json::Value;

use crate::pi_adapter::session::RandomSession;
use crate::support::events::{Events, KINDS, Shape};
use crate::support::random::Random;

/// How many histories of each kind are tested, unless `PUSH_WALKS` is set.
const WALKS: u64 = 40;
const STEPS: usize = 120;

#[test]
fn every_prefix_can_be_continued_and_is_unchanged_by_what_follows() {
    for seed in seeds() {
        for events in histories(seed) {
            let mut whole = Conversation::default();
            let mut prefixes = vec![whole.clone()];
            for event in &events {
                whole.fold(event);
                prefixes.push(whole.clone());
            }
            for (length, prefix) in prefixes.into_iter().enumerate() {
                let (before, after) = events.split_at(length);
                assert_eq!(prefix, folded(before), "seed {seed}: a copy after {length} events was changed");
                let mut continued = prefix;
                after.iter().for_each(|event| continued.fold(event));
                assert_eq!(continued, whole, "seed {seed}: continued after {length} events");
            }
        }
    }
}

#[test]
fn a_history_read_from_its_records_gives_the_same_conversation() {
    for seed in seeds() {
        let mut random = Random::new(seed);
        let events = RandomSession::generate(&mut random, STEPS);
        let stored: Vec<Event> = events.iter().map(stored).collect();
        assert_eq!(folded(&stored), folded(&events), "seed {seed}");
    }
}

#[test]
fn items_are_in_order_and_no_message_of_a_left_branch_is_kept() {
    for seed in seeds() {
        for events in histories(seed) {
            let mut conversation = Conversation::default();
            for event in &events {
                conversation.fold(event);
                let positions: Vec<Seq> = conversation.items().iter().map(|item| item.first_seq).collect();
                assert!(positions.is_sorted(), "seed {seed} at {}: {positions:?}", event.seq);
                assert_eq!(conversation.last_seq(), event.seq);
                if let EventKind::Context(ContextEvent::Branched { branch, .. }) = &event.kind {
                    let last = conversation.messages().iter().map(|message| message.seq).max();
                    assert!(last <= Some(branch.until), "seed {seed}: {last:?} after {}", branch.until);
                    assert!(conversation.items().iter().all(|item| item.last_seq <= branch.until), "seed {seed}");
                }
            }
        }
    }
}

#[test]
fn items_are_the_messages_of_a_projection() {
    for seed in seeds() {
        let mut random = Random::new(seed);
        let mut events = RandomSession::generate(&mut random, STEPS);
        // While the model writes, a projection holds back what arrives.
        let ended = events.iter().rposition(|event| matches!(event.kind, EventKind::Run(RunEvent::Ended(_))));
        events.truncate(ended.map_or(0, |last| last + 1));
        let mut projection = Projection::default();
        events.iter().for_each(|event| projection.apply(event));
        let conversation = folded(&events);
        let of_role = |wanted: fn(&Role) -> bool| {
            let entries = projection.entries().filter(move |entry| wanted(&entry.role));
            entries.map(|entry| (entry.seq, text_of(&entry.json()))).collect::<Vec<_>>()
        };
        let items = conversation.items();
        let users = items.iter().filter_map(|item| match &item.content {
            ItemContent::UserMessage(message) => Some((item.first_seq, message.text.clone())),
            _ => None,
        });
        assert_eq!(users.collect::<Vec<_>>(), of_role(|role| *role == Role::User), "seed {seed}");
        let commands = items.iter().filter_map(|item| match &item.content {
            ItemContent::UserCommand(command) => Some((item.first_seq, command.result.text.clone())),
            _ => None,
        });
        assert_eq!(commands.collect::<Vec<_>>(), of_role(|role| *role == Role::BashExecution), "seed {seed}");
        let summaries = conversation.summaries().iter().map(|summary| (summary.created_at, summary.text.to_string()));
        let shown = of_role(|role| matches!(role, Role::CompactionSummary { .. }));
        assert_eq!(summaries.collect::<Vec<_>>(), shown, "seed {seed}");
        let non_empty = |texts: Vec<String>| texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>();
        let written = items.iter().filter_map(|item| item.assistant()).map(|item| item.text().into_owned()).collect();
        let shown = of_role(|role| matches!(role, Role::Assistant { .. }));
        let shown = shown.into_iter().map(|(_, text)| text).collect();
        assert_eq!(non_empty(written), non_empty(shown), "seed {seed}");
    }
}

fn folded(events: &[Event]) -> Conversation {
    let mut conversation = Conversation::default();
    events.iter().for_each(|event| conversation.fold(event));
    conversation
}

/// A plausible history, and two of arbitrary events.
pub(super) fn histories(seed: u64) -> [Vec<Event>; 3] {
    let mut random = Random::new(seed);
    let plausible = RandomSession::generate(&mut random, STEPS);
    let arbitrary = [Shape::Shown, Shape::Anything].map(|shape| {
        let mut source = Events::new(seed, shape);
        let events = (0..60).map(|_| source.event(random.below(KINDS)));
        (1..).zip(events).map(|(seq, event)| near(Event { seq: Seq::new(seq), at: Now(seq * 10), ..event })).collect()
    });
    let [shown, anything] = arbitrary;
    [plausible, shown, anything]
}

/// Moves the positions that an event names to those of a short history.
fn near(mut event: Event) -> Event {
    let place = |seq: Seq| Seq::new(seq.number() % (event.seq.number() + 2));
    match &mut event.kind {
        EventKind::Context(ContextEvent::Branched { branch, .. }) => branch.until = place(branch.until).min(event.seq),
        EventKind::Context(ContextEvent::Compacted(compaction)) => compaction.kept_from = place(compaction.kept_from),
        _ => {}
    }
    event
}

/// Returns an event as a restart reads it from its record.
fn stored(event: &Event) -> Event {
    let mut line = Vec::new();
    event_line(&SessionId::from("s"), event, &mut line);
    decode_event(line.trim_ascii_end()).expect("a record is readable")
}

/// Returns the text of a Pi message: its text blocks, the output of its command, or its summary.
fn text_of(json: &str) -> String {
    let message: Value = serde_json::from_str(json).unwrap();
    let blocks = message["content"].as_array().into_iter().flatten();
    let text: String = blocks.filter_map(|block| block["text"].as_str()).collect();
    let other = message["output"].as_str().or(message["summary"].as_str());
    other.map_or(text, str::to_owned)
}

pub(super) fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse().ok());
    match number("PUSH_WALK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PUSH_WALKS").unwrap_or(WALKS),
    }
}
