//! The conversation that the kernel folds from events.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test changes a few kinds of events")]

mod histories;
mod rules;
