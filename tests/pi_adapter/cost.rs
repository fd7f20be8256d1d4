//! The cost of the projection, in allocated bytes: a long answer is not processed again for every delta.
#![allow(unsafe_code, reason = "whoever counts what is allocated has to allocate it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use pushd::kernel::event::Event;
use pushd::protocol::pi::projection::Projection;
use serde_json::json;

use crate::scene::EventSource;

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

/// The system allocator, with a count of the allocated bytes of each thread.
struct CountingAllocator;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator as it came; the count is a number of this thread alone.
unsafe impl GlobalAlloc for CountingAllocator {
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
    // A thread that is ending is not counted.
    let _ = ALLOCATED.try_with(|allocated| allocated.set(allocated.get() + bytes as u64));
}

/// The ratio of the lengths of the two histories.
const LONGER: u64 = 8;
const DELTAS: u64 = 500;

#[test]
fn applying_a_long_answer_has_linear_cost() {
    let cost = |deltas| {
        let events = answer(deltas);
        allocated_by(|| {
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
        allocated_by(|| {
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
    let cost = allocated_by(|| {
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
        allocated_by(|| {
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

fn allocated_by(work: impl FnOnce()) -> u64 {
    let before = ALLOCATED.with(Cell::get);
    work();
    ALLOCATED.with(Cell::get) - before
}

/// A quadratic cost would be eight times too high.
fn assert_linear(short: u64, long: u64) {
    assert!(short > 1000, "nothing was counted: {short}");
    assert!(long < short * LONGER * 2, "{LONGER} times the length cost {long} bytes instead of {short}");
}
