//! Session features outside of runs (settings, user commands, compaction, imports) and retries, with a real
//! journal, real
//! commands and a scripted model server.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks at what it checks and at nothing else")]

#[path = "beside/adjusting.rs"]
mod adjusting;
#[path = "beside/asides.rs"]
mod asides;
#[path = "beside/compacting.rs"]
mod compacting;
#[path = "beside/house.rs"]
mod house;
#[path = "support/model/mod.rs"]
mod model;
#[path = "beside/retrying.rs"]
mod retrying;
#[path = "support/skip.rs"]
mod skip;
#[path = "beside/telling.rs"]
mod telling;
