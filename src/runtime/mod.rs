//! The daemon: one lane per session, the connections of clients, and startup and shutdown.
//!
//! - `lifecycle` starts and stops the daemon; `start` is the entry point for `main`; `process` has its signals and limits.
//! - `hub` is the registry of lanes; `lane` is the task that owns one session; `feed` fans its events out.
//! - `server` is the state that connections share; `connection` reads requests, `connection_writer` writes responses.
//! - `requests`, `queries` and `maintenance` handle requests in the order that `request_order` sets.
//! - `identity` says who is behind a connection, `access` what it may use.
//! - `index` keeps the search index; `searches` answers from it.
//! - `retention` removes old sessions and events.
//! - `confinement` derives the sandbox policy of commands from the configuration.
//! - `web` accepts WebSocket connections; `protocols` is the registry of protocols.
//! - `commands` drives the command log for protocols whose requests are commands.
//!
//! These modules form layers, and none names a higher one: `docs/architecture.md` has the table.

mod access;
mod approval_wait;
#[cfg(test)]
mod audience_tests;
pub mod clock;
#[cfg(test)]
mod command_storage_tests;
mod commands;
pub mod confinement;
mod connection;
mod connection_writer;
pub mod daily_spend;
mod environments;
mod feed;
mod fingerprints;
mod forks;
pub mod generate;
pub mod grants;
pub mod hub;
mod identity;
pub mod index;
pub mod lane;
pub mod lifecycle;
mod local_day;
pub mod login;
mod maintenance;
pub mod model_config;
pub mod notify;
pub mod outbox;
#[cfg(test)]
mod panic_tests;
mod process;
pub mod protocols;
#[cfg(test)]
mod push_client_tests;
mod queries;
mod request_order;
#[cfg(test)]
mod request_tests;
mod requests;
#[cfg(test)]
mod restore_tests;
mod retention;
mod searches;
pub mod server;
pub mod services;
mod session_commands;
pub mod session_files;
mod session_locks;
mod start;
#[cfg(test)]
mod storage_tests;
mod subscriptions;
#[cfg(test)]
mod test_daemon;
mod token_throttle;
pub mod web;
mod workspace;

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

pub use lifecycle::{Config, RunError, run};
pub use process::Signal;
pub use start::{StartError, start};
