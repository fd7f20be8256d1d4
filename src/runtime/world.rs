//! What every lane and connection of a daemon shares: handed in once, never reached for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, broadcast, mpsc};

use super::clock::Clock;
use super::environments::Environments;
use super::grants::Grants;
use super::login::LoginEnvironment;
use super::models::House;
use super::session_files::SessionFiles;
use super::walls::Sandboxes;
use crate::bounded_io::FileTasks;
use crate::config::limits::Limits;
use crate::journal::Journal;
use crate::kernel::id::SessionId;
use crate::protocol::push::decode::Environment;
use crate::provider::Provider;

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
    /// The models that can be asked.
    pub house: House,
    /// Where files are looked at whose paths clients and repositories choose.
    pub files: FileTasks,
    /// What may go ahead unasked, by repository.
    pub grants: Arc<Grants>,
    /// The session files of the user.
    pub session_files: SessionFiles,
    /// What sessions know of their users' surroundings.
    pub environments: Environments,
    /// The environment of sessions whose clients can send none.
    pub login: LoginEnvironment,
    /// Where commands run, and behind which walls.
    pub sandboxes: Sandboxes,
    /// Whether no new run begins.
    pub draining: Closing,
    /// Whether the daemon closes: lanes end, and nothing more is taken from connections.
    pub closing: Closing,
    /// Whether connections are let go: after the sessions, so that everybody hears how their work ended.
    pub parting: Closing,
    /// Told whenever a session has stopped working, or waits.
    pub settled: Notify,
    /// Told whenever a run is over.
    pub runs_over: RunsOver,
    /// Told whenever a session is about to be deleted, with everything that is known of it.
    pub deleted: broadcast::Sender<SessionId>,
    /// Told whenever a session was opened or ended.
    pub session_changes: broadcast::Sender<SessionChange>,
}

/// A session that was opened or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionChange {
    /// It takes messages.
    Opened(SessionId),
    /// It takes no more.
    Ended(SessionId),
}

impl World {
    /// Returns the environment of the owner's login shell, captured now if that was not done before.
    pub async fn login_environment(&self) -> Arc<Environment> {
        self.login.current(&self.login_secrets()).await
    }

    /// Captures the environment of the owner's login shell anew.
    pub async fn reload_login_environment(&self) -> Arc<Environment> {
        self.login.reload(&self.login_secrets()).await
    }

    /// Returns the names of secrets that stay in it; none where the configuration cannot be read.
    fn login_secrets(&self) -> Vec<String> {
        self.house.settings().map(|settings| settings.login_secrets.clone()).unwrap_or_default()
    }
}

/// How many deletions or changes of sessions may go unheard before the first of them is forgotten.
pub const DELETIONS: usize = 256;

/// A run that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOver {
    /// Its session.
    pub session: SessionId,
    /// How many bytes of events the session has kept since the one before.
    pub grown: u64,
}

/// Where lanes say that a run is over.
#[derive(Debug)]
pub struct RunsOver {
    tell: mpsc::Sender<RunOver>,
    told: Mutex<Option<mpsc::Receiver<RunOver>>>,
}

impl RunsOver {
    /// Makes a place where nobody listens yet.
    pub fn new() -> Self {
        let (tell, told) = mpsc::channel(WAITING);
        Self { tell, told: Mutex::new(Some(told)) }
    }

    /// Says that a run is over; nobody waits for whoever should listen, so that it may go unheard.
    pub fn tell(&self, session: &SessionId, grown: u64) {
        let _ = self.tell.try_send(RunOver { session: session.clone(), grown });
    }

    /// Takes the listener's end, once.
    pub fn listen(&self) -> Option<mpsc::Receiver<RunOver>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Default for RunsOver {
    fn default() -> Self {
        Self::new()
    }
}

/// How many runs may be over before the first of them is looked at.
const WAITING: usize = 64;

/// A word that is given once: everything closes.
#[derive(Debug, Default)]
pub struct Closing {
    begun: AtomicBool,
    told: Notify,
}

impl Closing {
    /// Makes the word, not given yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the word.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Release);
        self.told.notify_waiters();
    }

    /// Tells whether the word was given.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Waits until the word is given.
    pub async fn wait(&self) {
        // Made before the look, so that a word that is given in between is heard.
        let told = self.told.notified();
        if !self.has_begun() {
            told.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn the_word_is_heard_by_whoever_waits_and_by_whoever_comes_later() {
        let closing = Arc::new(Closing::new());
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let closing = Arc::clone(&closing);
                tokio::spawn(async move { closing.wait().await })
            })
            .collect();
        assert!(timeout(Duration::from_millis(20), closing.wait()).await.is_err(), "nobody has given it");
        assert!(!closing.has_begun());
        closing.begin();
        for waiting in waiting {
            waiting.await.unwrap();
        }
        closing.wait().await;
        assert!(closing.has_begun());
    }
}
