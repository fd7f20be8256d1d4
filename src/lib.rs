//! pushd: a local runtime daemon for coding agents, and push, its client.
//!
//! The map of the crate:
//!
//! - [`kernel`]: the pure core; sessions, runs, gates, events.
//! - [`adapter`]: protocols, as translations of lines into commands and of events into lines.
//! - [`journal`]: what is kept, in SQLite.
//! - [`transport`]: how lines travel; nothing of what is in them.
//! - [`agent`]: how a model works through a run.
//! - [`provider`]: who answers a message.
//! - [`sandbox`]: where tools run.
//! - [`sessionfile`]: sessions as files, for other programs.
//! - [`discovery`]: commands and skills that people keep for their tools.
//! - [`redact`]: the one place where text becomes safe to keep or show.
//! - [`daemon`]: lanes, connections and their life.
//! - [`client`]: finds or starts the daemon, asks, watches, reconnects.
//! - [`cli`]: one file a verb.
//! - [`config`]: paths, limits, environment.
//! - [`observe`]: what the daemon writes down about itself.
//! - [`token`]: secrets that open a door.
//! - [`bounded_io`]: files at paths that somebody else chose: never waited for, bounded, with a deadline.
//! - [`unseen`]: letters that cannot be seen.

pub mod adapter;
pub mod agent;
pub mod bounded_io;
pub mod cli;
pub mod client;
pub mod config;
pub mod daemon;
pub mod discovery;
pub mod journal;
pub mod kernel;
pub mod observe;
pub mod provider;
pub mod redact;
pub mod sandbox;
pub mod sessionfile;
pub mod token;
pub mod transport;
pub mod unseen;
