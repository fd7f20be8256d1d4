//! The command log on the daemon's sessions, for protocols whose requests are commands.
//!
//! `service` drives the command log and is shared by all connections; a `session_view` is the shared projection of one
//! session; `operations` executes commands; `file_sync` keeps session files up to date; `shell_breaker` refuses shell
//! commands after timeouts.

mod executor;
mod file_sync;
mod housekeeping;
mod limits;
mod metrics;
mod operations;
mod peer;
mod pending;
mod service;
mod session_list;
mod session_requests;
mod session_view;
mod session_views;
mod shell_breaker;
mod store;

pub(super) use peer::Peer;
pub(super) use service::CommandService;
