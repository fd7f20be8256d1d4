//! Runs the property of `tests/properties/decoder.rs` with libFuzzer.
#![no_main]

#[path = "../../tests/properties/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|input: &[u8]| bodies::decoder::check(input));
