//! The documentation: its commands run and print what the pages show, and what it names exists.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(unix)]

#[path = "cli/home.rs"]
mod home;
#[path = "support/model/mod.rs"]
mod model;
#[path = "support/schemas.rs"]
mod schemas;
#[path = "support/skip.rs"]
mod skip;

#[path = "docs/guides.rs"]
mod guides;
#[path = "docs/normalize.rs"]
mod normalize;
#[path = "docs/page.rs"]
mod page;
#[path = "docs/references.rs"]
mod references;
#[path = "docs/terminal.rs"]
mod terminal;
#[path = "docs/tutorial.rs"]
mod tutorial;
#[path = "docs/walkthrough.rs"]
mod walkthrough;
