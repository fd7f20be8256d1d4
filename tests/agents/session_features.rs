//! Session features outside of runs (settings, user commands, compaction, imports) and retries, with a real
//! journal, real
//! commands and a scripted model server.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks at what it checks and at nothing else")]

mod compaction;
mod fixture;
mod model_context;
mod new_tool;
mod retries;
mod settings;
mod user_commands;
