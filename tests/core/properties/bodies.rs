//! Properties of any input: one function per part, shared by the fuzz targets and the ordinary tests.
//!
//! A body panics when a property does not hold. The caller supplies the inputs.
#![allow(
    dead_code,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a check fails by panicking, and a fuzz target uses one of the bodies"
)]

pub(crate) mod compaction;
pub(crate) mod decoder;
pub(crate) mod framing;
mod json;
#[allow(clippy::duplicate_mod, reason = "a fuzz target has it from here alone")]
#[path = "../../support/random.rs"]
pub(crate) mod random;
pub(crate) mod record;
pub(crate) mod recovery;
pub(crate) mod redaction;
pub(crate) mod sessions;

/// A check of one part for any input.
pub(crate) type Body = fn(&[u8]);

/// Every body under the name of its fuzz target.
pub(crate) const ALL: &[(&str, Body)] = &[
    ("framing", framing::check),
    ("compaction", compaction::check),
    ("decoder", decoder::check),
    ("record", record::check),
    ("recovery", recovery::check),
    ("redaction", redaction::check),
    ("sessions", sessions::check),
];
