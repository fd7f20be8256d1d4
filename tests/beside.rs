//! Session features outside of runs (settings, user commands, compaction, imports) and retries, with a real
//! journal, real
//! commands and a scripted model server.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks at what it checks and at nothing else")]

#[path = "beside/compaction.rs"]
mod compaction;
#[path = "beside/fixture.rs"]
mod fixture;
#[path = "support/model/mod.rs"]
mod model;
#[path = "beside/model_context.rs"]
mod model_context;
#[path = "beside/new_tool.rs"]
mod new_tool;
#[path = "beside/retries.rs"]
mod retries;
#[path = "beside/settings.rs"]
mod settings;
#[path = "support/skip.rs"]
mod skip;
#[path = "beside/user_commands.rs"]
mod user_commands;
