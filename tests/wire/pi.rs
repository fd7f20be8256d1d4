//! The Pi protocol as its clients see it: a real daemon, over a WebSocket and over standard input and output.
//!
//! Most tests are transcripts: commands and the expected lines. Each runs once per transport, and every line is
//! validated against the schemas and against the rules that apply to all commands.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod external_writer;
mod fixture;
mod line;
mod pattern;
mod rules;
mod runner;
mod schema;
mod script;

/// Declares two tests for each transcript, one per transport.
macro_rules! transcripts {
    ($($(#[$meta:meta])* $name:ident => $text:literal)+) => {
        $(mod $name {
            $(#[$meta])*
            #[test]
            fn over_web() {
                crate::pi::runner::run(crate::pi::line::Transport::Web, $text);
            }

            $(#[$meta])*
            #[test]
            fn over_stdio() {
                crate::pi::runner::run(crate::pi::line::Transport::Stdio, $text);
            }
        })+
    };
}

mod agent_cli;
mod broken_files;
mod circuits;
mod compaction_and_retry;
mod continued;
mod coverage;
mod deleting;
mod depends;
mod discovery;
mod envelope;
mod expanding;
mod files;
mod forks;
mod forms;
mod interaction;
mod lifecycle;
mod limits;
mod managing;
mod order;
mod other_commands;
mod questions;
mod replay;
mod restarts;
mod run_events;
mod server;
mod shared;
mod shell;
mod timeouts;
mod transports;
mod unloading;
mod versions;
