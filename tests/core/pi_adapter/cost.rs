//! The cost of the projection, in allocated bytes: a long answer is not processed again for every delta.

use pushd::kernel::event::Event;
use pushd::protocol::pi::projection::Projection;
use serde_json::json;

use crate::allocations::requested_during;
use crate::pi_adapter::event_source::EventSource;

/// The ratio of the lengths of the two histories.
const LONGER: u64 = 8;
const DELTAS: u64 = 500;

#[test]
fn applying_a_long_answer_has_linear_cost() {
    let cost = |deltas| {
        let events = answer(deltas);
        requested_during(|| {
            let mut projection = Projection::default();
            events.iter().for_each(|event| projection.apply(event));
        })
    };
    assert_linear(cost(DELTAS), cost(DELTAS * LONGER));
}

#[test]
fn a_batch_of_deltas_is_one_update() {
    let cost = |deltas| {
        let events = answer(deltas);
        requested_during(|| {
            let projected = Projection::default().project(&events);
            let length: usize = projected.iter().map(|event| event.body().len()).sum();
            let text: usize = DELTA.len() * deltas as usize;
            assert!(length < 8 * text + 8000, "{length} bytes are told of a text of {text}");
        })
    };
    assert_linear(cost(DELTAS), cost(DELTAS * LONGER));
}

#[test]
fn an_update_allocates_no_more_than_it_sends() {
    let events = answer(DELTAS * LONGER);
    let mut projection = Projection::default();
    let (mut sent, mut text) = (0, 0);
    let cost = requested_during(|| {
        for event in &events {
            for event in projection.project([event]) {
                if event.name() == "message_update" {
                    assert!(event.body().len() <= 2 * text + DELTA.len() + 800, "{}", event.body().len());
                }
                sent += event.body().len() as u64;
            }
            text += DELTA.len();
        }
    });
    // The protocol requires the whole message in every update; no more than that is allocated.
    assert!(cost < 4 * sent, "{cost} bytes were allocated, {sent} were sent");
}

#[test]
fn tool_output_is_sent_in_bounded_updates() {
    let cost = |deltas: u64| {
        let mut source = EventSource::default();
        let mut events = vec![
            source.line(r#"user_message r {"messageId":"m","text":"go"}"#),
            source.line(r#"tool_call r {"toolName":"x","callId":"c"}"#),
            source.line(r#"status r {"phase":"started","detail":"x","callId":"c"}"#),
        ];
        let text = "x".repeat(1000);
        let output = json!({ "callId": "c", "text": text });
        events.extend((0..deltas).map(|_| source.event("tool_output", Some("r"), output.clone())));
        requested_during(|| {
            let mut projection = Projection::default();
            for event in &events {
                for projected in projection.project([event]) {
                    assert!(projected.body().len() < 34_000, "{}", projected.body().len());
                }
            }
        })
    };
    assert_linear(cost(DELTAS), cost(DELTAS * LONGER));
}

const DELTA: &str = "some words ";

/// A message and an answer with this number of deltas.
fn answer(deltas: u64) -> Vec<Event> {
    let mut source = EventSource::default();
    let mut events = vec![source.line(r#"user_message r {"messageId":"m","text":"go"}"#)];
    events.extend((0..deltas).map(|_| source.event("assistant_token", Some("r"), json!({ "text": DELTA }))));
    events.push(source.line(r#"assistant_done r {"messageId":"a"}"#));
    events.push(source.line("usage r"));
    events.push(source.line("run_complete r"));
    events
}

/// A quadratic cost would be eight times too high.
fn assert_linear(short: u64, long: u64) {
    assert!(short > 1000, "nothing was counted: {short}");
    assert!(long < short * LONGER * 2, "{LONGER} times the length cost {long} bytes instead of {short}");
}
