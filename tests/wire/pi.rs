//! The Pi protocol as its clients meet it: a real daemon, spoken to over a WebSocket and over standard input and output.
//!
//! Most of it are transcripts: what is said, and what must come of it. Each is played once for each transport, and every
//! line that passes is held to the schemas and to the rules that hold for all commands.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod foreign;
mod judge;
mod line;
mod pattern;
mod play;
mod rules;
mod script;
mod world;

/// Makes two tests of each transcript: one for each transport.
macro_rules! transcripts {
    ($($(#[$meta:meta])* $name:ident => $text:literal)+) => {
        $(mod $name {
            $(#[$meta])*
            #[test]
            fn over_web() {
                crate::pi::play::play(crate::pi::line::Via::Web, $text);
            }

            $(#[$meta])*
            #[test]
            fn over_stdio() {
                crate::pi::play::play(crate::pi::line::Via::Stdio, $text);
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
mod server;
mod shared;
mod shell;
mod stories;
mod summing;
mod talking;
mod timeouts;
mod transports;
mod unloading;
mod versions;
