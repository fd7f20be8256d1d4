//! What telling costs, counted in bytes: a long answer is not gone over again for every word of it.
#![allow(unsafe_code, reason = "whoever counts what is allocated has to allocate it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use pushd::kernel::event::Event;
use pushd::protocol::pi::projection::Projection;
use serde_json::json;

use crate::scene::Scene;

#[global_allocator]
static COUNTING: Counting = Counting;

/// The system's allocator, with a count of what each thread has asked for.
struct Counting;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator as it came; the count is a number of this thread alone.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller has promised what the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.saturating_sub(layout.size()));
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

fn count(bytes: usize) {
    // A thread that is ending counts no more.
    let _ = ASKED.try_with(|asked| asked.set(asked.get() + bytes as u64));
}

/// How much longer the second history is.
const LONGER: u64 = 8;
const PIECES: u64 = 500;

#[test]
fn remembering_a_long_answer_costs_its_length() {
    let cost = |pieces| {
        let events = answer(pieces);
        asked(|| {
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
        asked(|| {
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
    let cost = asked(|| {
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
        asked(|| {
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

fn asked(work: impl FnOnce()) -> u64 {
    let before = ASKED.with(Cell::get);
    work();
    ASKED.with(Cell::get) - before
}

/// Something whose cost grows with the square would cost eight times too much.
fn assert_linear(short: u64, long: u64) {
    assert!(short > 1000, "nothing was counted: {short}");
    assert!(long < short * LONGER * 2, "{LONGER} times the length cost {long} bytes instead of {short}");
}
