//! The Pi protocol as its clients see it: a real daemon, over a WebSocket and over standard input and output.
//!
//! Most tests are transcripts: commands and the expected lines. Each runs once per transport, and every line is
//! validated against the schemas and against the rules that apply to all commands.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod fixture;
mod foreign;
mod line;
mod pattern;
mod play;
mod rules;
mod schema;
mod script;

/// Declares two tests for each transcript, one per transport.
macro_rules! transcripts {
    ($($(#[$meta:meta])* $name:ident => $text:literal)+) => {
        $(mod $name {
            $(#[$meta])*
            #[test]
            fn over_web() {
                crate::pi::play::run(crate::pi::line::Transport::Web, $text);
            }

            $(#[$meta])*
            #[test]
            fn over_stdio() {
                crate::pi::play::run(crate::pi::line::Transport::Stdio, $text);
            }
        })+
    };
}

mod agent_cli;
mod broken_files;
mod circuits;
mod continued;
mod coverage;
mod deleting;
mod depends;
mod discovery;
mod envelope;
mod expanding;
mod files;
mod forms;
mod lifecycle;
mod limits;
mod managing;
mod moving;
mod order;
mod questions;
mod replay;
mod restarts;
mod run_events;
mod server;
mod shared;
mod shell;
mod summing;
mod talking;
mod timeouts;
mod transports;
mod unloading;
mod versions;
