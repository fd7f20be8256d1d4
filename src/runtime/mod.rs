//! The daemon: sessions as lanes, connections, and the life of the whole.
//!
//! The rooms: `hub` holds the lanes, `lane` runs a session, `feed` shows its events, `server` is what connections see,
//! `connection` reads and `writing` writes one, `requests`, `reading` and `tending` do what is asked, `retention` removes
//! what is too old or too much, `checkpoint` writes a state down, `walls` says what confines a model's commands, `web` lets programs in by WebSocket, `pi` speaks to them, `life` begins and ends everything, `start` is the way in.

pub mod checkpoint;
pub mod clock;
mod connection;
mod environments;
mod feed;
mod fingerprints;
pub mod grants;
mod guesses;
pub mod hub;
pub mod lane;
pub mod life;
pub mod login;
pub mod mint;
pub mod models;
pub mod outbox;
#[cfg(test)]
mod panic_tests;
pub mod pi;
#[cfg(test)]
mod push_client_tests;
mod reading;
mod request_order;
#[cfg(test)]
mod request_tests;
mod requests;
#[cfg(test)]
mod restore_tests;
mod retention;
pub mod server;
pub mod session_files;
mod start;
#[cfg(test)]
mod storage_tests;
mod subscriptions;
mod tending;
#[cfg(test)]
mod test_daemon;
pub mod walls;
pub mod web;
mod workspace;
pub mod world;
mod writing;

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

pub use life::{Config, RunError, Signal, run};
pub use start::{StartError, start};
