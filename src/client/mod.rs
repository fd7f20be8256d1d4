//! Finds or starts the daemon, asks it, watches sessions, and comes back after every interruption.
//!
//! One owner, no task of its own: what is not asked for is not read, so a slow reader of events slows nobody but
//! itself. It shows nothing to anybody; what a person should know goes out as a [`Notice`].

mod backoff;
mod bridge;
mod connection;
mod environment;
mod link;
#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;
mod ready;
mod repository;
mod start;
mod watch;

#[cfg(test)]
#[cfg(unix)]
pub(crate) mod testing;
#[cfg(test)]
#[cfg(unix)]
mod tests;

pub use crate::protocol::push::client::{Environment, Event, Fault, MESSAGE_BYTES, Request};
pub use crate::transport::local::Address;
pub use bridge::{Bridge, Bridged};
pub use connection::{AskError, Client, Notice, Settings};
pub use environment::collect as collect_environment;
pub use os::{end_process, process_is_alive};
pub use ready::Announcement;
pub use repository::Repository;
pub use start::{Launch, Missing, Unreachable};
pub use watch::{Access, Attached};
