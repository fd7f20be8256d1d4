//! What telling costs, counted in bytes: a long answer is not gone over again for every word of it.

use pushd::kernel::event::Event;
use pushd::protocol::pi::projection::Projection;
use serde_json::json;

use crate::allocations::requested_during;
use crate::pi_adapter::scene::Scene;

/// How much longer the second history is.
const LONGER: u64 = 8;
const PIECES: u64 = 500;

#[test]
fn remembering_a_long_answer_costs_its_length() {
    let cost = |pieces| {
        let events = answer(pieces);
        requested_during(|| {
            let mut story = Projection::default();
            events.iter().for_each(|event| story.apply(event));
        })
    };
    assert_linear(cost(PIECES), cost(PIECES * LONGER));
}

#[test]
fn what_has_gathered_is_told_once() {
    let cost = |pieces| {
        let events = answer(pieces);
        requested_during(|| {
            let told = Projection::default().project(&events);
            let length: usize = told.iter().map(|event| event.body().len()).sum();
            let text: usize = PIECE.len() * pieces as usize;
            assert!(length < 8 * text + 8000, "{length} bytes are told of a text of {text}");
        })
    };
    assert_linear(cost(PIECES), cost(PIECES * LONGER));
}

#[test]
fn an_update_costs_what_it_sends() {
    let events = answer(PIECES * LONGER);
    let mut story = Projection::default();
    let (mut told, mut text) = (0, 0);
    let cost = requested_during(|| {
        for event in &events {
            for event in story.project([event]) {
                if event.name() == "message_update" {
                    assert!(event.body().len() <= 2 * text + PIECE.len() + 800, "{}", event.body().len());
                }
                told += event.body().len() as u64;
            }
            text += PIECE.len();
        }
    });
    // The protocol asks for the whole message in every update; a line is allocated as it grows, and no more than that.
    assert!(cost < 4 * told, "{cost} bytes were asked for, {told} were told");
}

#[test]
fn what_a_tool_prints_is_told_in_bounded_pieces() {
    let cost = |pieces: u64| {
        let mut scene = Scene::default();
        let mut events = vec![
            scene.line(r#"user_message r {"messageId":"m","text":"go"}"#),
            scene.line(r#"tool_call r {"toolName":"x","callId":"c"}"#),
            scene.line(r#"status r {"phase":"started","detail":"x","callId":"c"}"#),
        ];
        let text = "x".repeat(1000);
        let output = json!({ "callId": "c", "text": text });
        events.extend((0..pieces).map(|_| scene.event("tool_output", Some("r"), output.clone())));
        requested_during(|| {
            let mut story = Projection::default();
            for event in &events {
                for told in story.project([event]) {
                    assert!(told.body().len() < 34_000, "{}", told.body().len());
                }
            }
        })
    };
    assert_linear(cost(PIECES), cost(PIECES * LONGER));
}

const PIECE: &str = "some words ";

/// A message and an answer of so many pieces.
fn answer(pieces: u64) -> Vec<Event> {
    let mut scene = Scene::default();
    let mut events = vec![scene.line(r#"user_message r {"messageId":"m","text":"go"}"#)];
    events.extend((0..pieces).map(|_| scene.event("assistant_token", Some("r"), json!({ "text": PIECE }))));
    events.push(scene.line(r#"assistant_done r {"messageId":"a"}"#));
    events.push(scene.line("usage r"));
    events.push(scene.line("run_complete r"));
    events
}

/// Something whose cost grows with the square would cost eight times too much.
fn assert_linear(short: u64, long: u64) {
    assert!(short > 1000, "nothing was counted: {short}");
    assert!(long < short * LONGER * 2, "{LONGER} times the length cost {long} bytes instead of {short}");
}
