//! Runs the property of `tests/core/properties/recovery.rs` with libFuzzer.
#![no_main]

#[path = "../../tests/core/properties/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|input: &[u8]| bodies::recovery::check(input));
