//! Runs the property of `tests/properties/framing.rs` with libFuzzer.
#![no_main]

#[path = "../../tests/properties/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|input: &[u8]| bodies::framing::check(input));
