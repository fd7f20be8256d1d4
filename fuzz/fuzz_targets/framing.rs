//! Feeds the body of `tests/core/properties/framing.rs`, and does nothing else.
#![no_main]

#[path = "../../tests/core/properties/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|input: &[u8]| bodies::framing::check(input));
