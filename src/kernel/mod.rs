//! The pure core: sessions, runs, gates, and the order of everything that happens to them.
//!
//! One input and the time go in, an ordered list of effects comes out. The kernel does no IO, asks no clock, mints no
//! name and knows no protocol; what it decides is an event, and folding events is all that changes a session.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod book;
pub mod command;
pub mod effect;
pub mod event;
pub mod gate;
pub mod id;
pub mod import;
pub mod ledger;
pub mod limits;
pub mod rate;
pub mod refusal;
pub mod ring;
pub mod roster;
pub mod session;
pub mod state;
pub mod time;
