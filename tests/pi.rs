//! The Pi protocol as its clients see it: a real daemon, over a WebSocket and over standard input and output.
//!
//! Most tests are transcripts: commands and the expected lines. Each runs once per transport, and every line is
//! validated against the schemas and against the rules that apply to all commands.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/daemon.rs"]
mod daemon;
#[path = "support/model/mod.rs"]
mod model;
#[path = "support/schemas.rs"]
mod schemas;
#[path = "support/skip.rs"]
mod skip;

#[path = "pi/foreign.rs"]
mod foreign;
#[path = "pi/judge.rs"]
mod judge;
#[path = "pi/line.rs"]
mod line;
#[path = "pi/pattern.rs"]
mod pattern;
#[path = "pi/play.rs"]
mod play;
#[path = "pi/rules.rs"]
mod rules;
#[path = "pi/script.rs"]
mod script;
#[path = "pi/world.rs"]
mod world;

/// Declares two tests for each transcript, one per transport.
macro_rules! transcripts {
    ($($(#[$meta:meta])* $name:ident => $text:literal)+) => {
        $(mod $name {
            $(#[$meta])*
            #[test]
            fn over_web() {
                crate::play::run(crate::line::Transport::Web, $text);
            }

            $(#[$meta])*
            #[test]
            fn over_stdio() {
                crate::play::run(crate::line::Transport::Stdio, $text);
            }
        })+
    };
}

#[path = "pi/agent_cli.rs"]
mod agent_cli;
#[path = "pi/broken_files.rs"]
mod broken_files;
#[path = "pi/circuits.rs"]
mod circuits;
#[path = "pi/continued.rs"]
mod continued;
#[path = "pi/coverage.rs"]
mod coverage;
#[path = "pi/deleting.rs"]
mod deleting;
#[path = "pi/depends.rs"]
mod depends;
#[path = "pi/discovery.rs"]
mod discovery;
#[path = "pi/envelope.rs"]
mod envelope;
#[path = "pi/expanding.rs"]
mod expanding;
#[path = "pi/files.rs"]
mod files;
#[path = "pi/forms.rs"]
mod forms;
#[path = "pi/lifecycle.rs"]
mod lifecycle;
#[path = "pi/limits.rs"]
mod limits;
#[path = "pi/managing.rs"]
mod managing;
#[path = "pi/moving.rs"]
mod moving;
#[path = "pi/order.rs"]
mod order;
#[path = "pi/questions.rs"]
mod questions;
#[path = "pi/replay.rs"]
mod replay;
#[path = "pi/restarts.rs"]
mod restarts;
#[path = "pi/server.rs"]
mod server;
#[path = "pi/shared.rs"]
mod shared;
#[path = "pi/shell.rs"]
mod shell;
#[path = "pi/stories.rs"]
mod stories;
#[path = "pi/summing.rs"]
mod summing;
#[path = "pi/talking.rs"]
mod talking;
#[path = "pi/timeouts.rs"]
mod timeouts;
#[path = "pi/transports.rs"]
mod transports;
#[path = "pi/unloading.rs"]
mod unloading;
#[path = "pi/versions.rs"]
mod versions;
