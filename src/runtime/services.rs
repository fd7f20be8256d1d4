//! The services that every lane and connection of a daemon shares: passed in once, never global.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, broadcast, mpsc, watch};

use super::clock::Clock;
use super::confinement::Sandboxes;
use super::daily_spend::DailySpend;
use super::environments::Environments;
use super::grants::GrantStore;
use super::index::SearchIndex;
use super::login::LoginEnvironment;
use super::model_config::ModelConfig;
use super::notify::NoticeQueue;
use super::session_files::SessionFiles;
use crate::bounded_io::FileTasks;
use crate::config::limits::Limits;
use crate::journal::Journal;
use crate::kernel::environment::Environment;
use crate::kernel::id::SessionId;
use crate::provider::Provider;
use crate::tools::ToolSet;

/// The shared services of a daemon.
pub struct Services {
    /// All limits.
    pub limits: Limits,
    /// The clock.
    pub clock: Clock,
    /// The journal.
    pub journal: Journal,
    /// The built-in providers, by name.
    pub providers: BTreeMap<&'static str, Arc<dyn Provider>>,
    /// The configured models.
    pub model_config: ModelConfig,
    /// The tools of models.
    pub tools: ToolSet,
    /// The threads that read files at paths which clients and repositories choose.
    pub files: FileTasks,
    /// The rules that users granted permanently, by repository.
    pub grants: Arc<GrantStore>,
    /// What the runs of the current day have cost.
    pub daily_spend: DailySpend,
    /// The index for searches and statistics.
    pub index: SearchIndex,
    /// The Pi session files of the user.
    pub session_files: SessionFiles,
    /// The environments of sessions, deduplicated.
    pub environments: Environments,
    /// The environment of sessions whose clients can send none.
    pub login: LoginEnvironment,
    /// The sandboxes that run commands, and their confinement.
    pub sandboxes: Sandboxes,
    /// Set when the daemon drains: no new run starts.
    pub draining: Latch,
    /// Set when the daemon shuts down: lanes end, and connections accept no more requests.
    pub closing: Latch,
    /// Set when connections close, after the lanes have ended: clients receive the outcome of their runs first.
    pub disconnecting: Latch,
    /// Notified when a session enters a phase other than `Running`.
    pub phase_changed: Notify,
    /// Receives what the user is notified of.
    pub notices: NoticeQueue,
    /// Counts the changes of the pending approvals. It starts with a time, so that no client knows it from an earlier
    /// daemon.
    pub approvals_revision: watch::Sender<u64>,
    /// Receives the end of every run.
    pub run_ends: RunEndChannel,
    /// Receives the id of every session before it is deleted.
    pub deleted: broadcast::Sender<SessionId>,
    /// Receives every session that is opened or ended.
    pub session_changes: broadcast::Sender<SessionChange>,
}

/// A session that was opened or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionChange {
    /// The session accepts messages.
    Opened(SessionId),
    /// The session accepts no more messages.
    Ended(SessionId),
}

impl Services {
    /// Returns the environment of the owner's login shell; captures it on first use.
    pub async fn login_environment(&self) -> Arc<Environment> {
        self.login.current(&self.login_secrets()).await
    }

    /// Captures the environment of the owner's login shell again.
    pub async fn reload_login_environment(&self) -> Arc<Environment> {
        self.login.reload(&self.login_secrets()).await
    }

    /// Returns the names of secret variables that the configuration retains; none if the configuration cannot be read.
    fn login_secrets(&self) -> Vec<String> {
        self.model_config.settings().map(|settings| settings.login_secrets.clone()).unwrap_or_default()
    }
}

/// The number of deletions or session changes that a slow receiver may lag behind before it loses the oldest.
pub const BROADCAST_CAPACITY: usize = 256;

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEnd {
    /// The session of the run.
    pub session: SessionId,
    /// The bytes of events that the session stored since the previous run ended.
    pub new_bytes: u64,
}

/// The channel on which lanes report that a run has ended.
#[derive(Debug)]
pub struct RunEndChannel {
    sender: mpsc::Sender<RunEnd>,
    receiver: Mutex<Option<mpsc::Receiver<RunEnd>>>,
}

impl RunEndChannel {
    /// Creates the channel.
    pub fn new() -> Self {
        let (sender, receiver) = mpsc::channel(RUN_END_CAPACITY);
        Self { sender, receiver: Mutex::new(Some(receiver)) }
    }

    /// Reports that a run has ended. It never blocks; if the channel is full the report is dropped.
    pub fn notify(&self, session: &SessionId, new_bytes: u64) {
        let _ = self.sender.try_send(RunEnd { session: session.clone(), new_bytes });
    }

    /// Takes the receiving end; `None` if it was taken before.
    pub fn take_receiver(&self) -> Option<mpsc::Receiver<RunEnd>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Default for RunEndChannel {
    fn default() -> Self {
        Self::new()
    }
}

/// The number of ended runs that may wait for retention.
const RUN_END_CAPACITY: usize = 64;

/// A flag that is set once and wakes all waiters.
#[derive(Debug, Default)]
pub struct Latch {
    is_set: AtomicBool,
    waiters: Notify,
}

impl Latch {
    /// Creates a latch that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the latch and wakes all waiters.
    pub fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.waiters.notify_waiters();
    }

    /// Returns whether the latch is set.
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Waits until the latch is set.
    pub async fn wait(&self) {
        // Created before the check, so that a concurrent `set` is not missed.
        let notified = self.waiters.notified();
        if !self.is_set() {
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_latch_wakes_current_and_later_waiters() {
        let closing = Arc::new(Latch::new());
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let closing = Arc::clone(&closing);
                tokio::spawn(async move { closing.wait().await })
            })
            .collect();
        assert!(timeout(Duration::from_millis(20), closing.wait()).await.is_err(), "the latch is not set");
        assert!(!closing.is_set());
        closing.set();
        for waiting in waiting {
            waiting.await.unwrap();
        }
        closing.wait().await;
        assert!(closing.is_set());
    }
}
