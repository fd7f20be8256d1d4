//! Client of the push protocol: finds or starts the daemon, sends requests, receives events and reconnects.
//!
//! The client runs no background task: it reads from the socket only while its owner waits for a reply or an event,
//! so a slow reader affects only itself. It prints nothing; messages for the user are passed on as a [`Notice`].

mod bridge;
mod connection;
mod endpoint;
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
mod request_error;
mod ssh;
mod start;
mod subscriptions;

#[cfg(test)]
pub(crate) mod test_events;
#[cfg(test)]
#[cfg(unix)]
pub(crate) mod testing;
#[cfg(test)]
#[cfg(unix)]
mod tests;

pub use crate::protocol::push::client::{
    ApprovalsReply, Environment, Event, EventContent, ExcerptSegment, Grant, IntegrityReply, JournalReply,
    ListedApproval, Loss, MESSAGE_BYTES, MetricsReply, PiFile, QueuedMessage, Replay, Request, ResponseError, RunReply,
    SandboxReply, SearchHit, SearchReply, SessionCost, SessionItem, SessionMeta, SessionPage, SessionSnapshot,
    SessionState, StatsReply, StatsRow, ToolStats, UserCommandReply,
};
pub use crate::transport::local::Address;
pub use bridge::{Bridge, BridgeOutcome};
pub use connection::{Client, ClientConfig, Notice, Update};
pub use endpoint::{Endpoint, LocalEndpoint};
pub use environment::collect as collect_environment;
pub use os::{kill_process, process_is_alive};
pub use ready::Announcement;
pub use repository::Repository;
pub use request_error::RequestError;
pub use ssh::{RemoteTerminal, STOPPED_EXIT, SshEndpoint, SshError, SshHost, SshHostError};
pub use start::{DaemonCommand, MissingDaemon, UnreachableError};
pub use subscriptions::Access;
