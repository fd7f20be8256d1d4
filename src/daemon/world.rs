//! What every lane and connection of a daemon shares: handed in once, never reached for.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{Notify, watch};

use super::clock::Clock;
use super::environments::Environments;
use crate::config::limits::Limits;
use crate::journal::Journal;
use crate::provider::Provider;
use crate::sandbox::Local;

/// The surroundings of a lane.
pub struct World {
    /// The bounds.
    pub limits: Limits,
    /// The time.
    pub clock: Clock,
    /// What is kept.
    pub journal: Journal,
    /// Who answers, by name.
    pub providers: BTreeMap<&'static str, Arc<dyn Provider>>,
    /// What sessions know of their users' surroundings.
    pub environments: Environments,
    /// Where tools run.
    pub local: Local,
    /// Whether no new run begins.
    pub draining: Closing,
    /// Whether the daemon closes: lanes end, and nothing more is taken from connections.
    pub closing: Closing,
    /// Whether connections are let go: after the sessions, so that everybody hears how their work ended.
    pub parting: Closing,
    /// Told whenever a session has stopped working, or waits.
    pub settled: Notify,
}

/// A word that is given once: everything closes.
#[derive(Debug, Clone)]
pub struct Closing(watch::Sender<bool>);

impl Closing {
    /// Makes the word, not given yet.
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Gives the word.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Tells whether the word was given.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the word is given.
    pub async fn wait(&self) {
        // The sender is ours, so it cannot be gone.
        let _ = self.0.subscribe().wait_for(|closing| *closing).await;
    }
}

impl Default for Closing {
    fn default() -> Self {
        Self::new()
    }
}
