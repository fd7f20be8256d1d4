//! The pure core: sessions, runs, gates, and the order of every event that happens to them.
//!
//! The kernel takes one input and the current time and returns an ordered list of effects. It does no IO, reads no
//! clock, mints no id and knows no protocol. Every decision is an event, and only folding an event changes a session.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod audience;
pub mod command;
pub mod command_log;
pub mod conversation;
pub mod effect;
pub mod environment;
pub mod event;
pub mod fork;
pub mod gate;
pub mod id;
pub mod idempotency;
pub mod import;
pub mod limits;
pub mod participant;
pub mod quorum;
pub mod rate;
pub mod refusal;
pub mod ring;
pub mod roster;
pub mod session;
pub mod state;
pub mod time;
