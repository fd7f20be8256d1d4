//! pushd: a local runtime daemon for coding agents, and push, its client.
//!
//! The map of the crate:
//!
//! - [`kernel`]: the pure core; sessions, runs, gates, events.
//! - [`record`]: events and checkpoints as bytes, owned by no protocol.
//! - [`protocol`]: one folder a protocol, each a pure translation of frames into commands and of events into frames.
//! - [`journal`]: the history of every session, in SQLite.
//! - [`transport`]: local socket, standard input and output, WebSocket; frames, never their content.
//! - [`runtime`]: lanes, connections and the lifecycle of the daemon.
//! - [`agent`]: how a model works through a run.
//! - [`provider`]: clients of model servers, and the built-in playbook provider.
//! - [`tools`]: the tools that a model may call.
//! - [`sandbox`]: confinement, supervision and risk assessment of what tools run.
//! - [`discovery`]: slash commands and skills in the user's and the project's directories.
//! - [`search`]: the index of what was said and done in all sessions.
//! - [`redact`]: removes secrets before anything is stored, shown or logged.
//! - [`client`]: finds or starts the daemon, sends requests, subscribes, reconnects.
//! - `display`: events, approvals and results as text for people.
//! - [`export`]: the history of a session as HTML, Markdown or JSON.
//! - `tui`: the terminal client.
//! - [`cli`]: the verbs of the command line.
//! - [`config`]: paths, limits, settings.
//! - [`observe`]: the daemon's log.
//! - [`token`]: access tokens.
//! - [`backoff`]: exponential backoff with jitter.
//! - [`bounded_io`]: non-blocking, bounded access to files at paths that somebody else chose.
//! - [`private_file`]: files that only their owner may access.
//! - [`invisible_chars`]: characters that are invisible or easily confused.

pub mod agent;
pub mod backoff;
pub mod bounded_io;
pub mod cli;
pub mod client;
pub mod config;
pub mod discovery;
mod display;
pub mod export;
pub mod invisible_chars;
pub mod journal;
pub mod kernel;
pub mod observe;
pub mod private_file;
pub mod protocol;
pub mod provider;
#[cfg(test)]
#[path = "../tests/support/random.rs"]
mod random;
pub mod record;
pub mod redact;
pub mod runtime;
pub mod sandbox;
pub mod search;
pub mod token;
pub mod tools;
pub mod transport;
mod tui;
