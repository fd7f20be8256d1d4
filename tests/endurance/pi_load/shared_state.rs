//! State that all clients share, and the record of everything they send.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Condvar, Mutex, MutexGuard};

use crate::pi_load::command::Command;
use crate::support::daemon::TIMEOUT;
use crate::support::random::Random;

/// How many commands can be repeated or depended on; far fewer than the daemon keeps.
const RECENT: usize = 300;

/// State that all clients share.
pub(crate) struct SharedState {
    instance: Mutex<Option<DaemonInstance>>,
    announced: Condvar,
    /// No client starts before all are connected.
    pub(crate) ready: Barrier,
    /// How often the daemon is started.
    pub(crate) instances: usize,
    recent: Mutex<VecDeque<Command>>,
    versions: Mutex<BTreeMap<String, u64>>,
    sessions: Mutex<Vec<String>>,
    pub(crate) record: Mutex<CommandRecord>,
    sent: AtomicUsize,
    /// How many clients are done.
    pub(crate) done: AtomicUsize,
}

/// One instance of the daemon, from its start to its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DaemonInstance {
    pub(crate) number: usize,
    pub(crate) address: SocketAddr,
}

/// Everything that was sent and answered.
#[derive(Default)]
pub(crate) struct CommandRecord {
    pub(crate) sent: Vec<SentCommand>,
    pub(crate) answers: Vec<Answer>,
}

/// A command that was sent.
#[derive(Debug, Clone)]
pub(crate) struct SentCommand {
    pub(crate) instance: usize,
    pub(crate) command: Command,
    pub(crate) delivery: Delivery,
}

/// Whether the sender received the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The response was received.
    Answered,
    /// The connection was closed, or the daemon was killed.
    Lost,
}

/// Whether others may repeat a command and depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reuse {
    Allowed,
    /// It was sent to an earlier instance, which may have lost it.
    Forbidden,
}

/// A response as it was received.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) instance: usize,
    pub(crate) command: Command,
    pub(crate) line: String,
}

impl SharedState {
    pub(crate) fn new(clients: usize, instances: usize, sessions: Vec<String>) -> Self {
        Self {
            instance: Mutex::default(),
            announced: Condvar::new(),
            ready: Barrier::new(clients + 1),
            instances,
            recent: Mutex::default(),
            versions: Mutex::default(),
            sessions: Mutex::new(sessions),
            record: Mutex::default(),
            sent: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
        }
    }

    /// Announces the address of a new instance.
    pub(crate) fn announce(&self, instance: DaemonInstance) {
        // Dependencies on commands of an earlier instance are not tested.
        lock(&self.recent).clear();
        *lock(&self.instance) = Some(instance);
        self.announced.notify_all();
    }

    /// Waits for an instance of the daemon.
    pub(crate) fn instance(&self, number: usize) -> DaemonInstance {
        let is_over = |instance: &mut Option<DaemonInstance>| instance.is_none_or(|instance| instance.number < number);
        let waited = self.announced.wait_timeout_while(lock(&self.instance), TIMEOUT * 4, is_over).expect("no panic");
        waited.0.expect("a daemon that was started")
    }

    /// Records that a command is being sent.
    pub(crate) fn sending(&self, command: &Command, reuse: Reuse) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        if reuse == Reuse::Forbidden {
            return;
        }
        let mut recent = lock(&self.recent);
        recent.push_back(command.clone());
        if recent.len() > RECENT {
            recent.pop_front();
        }
    }

    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    /// Records the end of a command.
    pub(crate) fn finish(&self, instance: usize, command: Command, answer: Option<String>) {
        let mut record = lock(&self.record);
        let delivery = if answer.is_some() { Delivery::Answered } else { Delivery::Lost };
        record.sent.push(SentCommand { instance, command: command.clone(), delivery });
        record.answers.extend(answer.map(|line| Answer { instance, command, line }));
    }

    /// A random command that was sent recently.
    pub(crate) fn recent(&self, random: &mut Random) -> Option<Command> {
        let recent = lock(&self.recent);
        let some = random.below(recent.len().max(1) as u64) as usize;
        recent.get(some).cloned()
    }

    /// The id of a recent command.
    pub(crate) fn recent_id(&self, random: &mut Random) -> Option<String> {
        self.recent(random)?.id
    }

    /// The latest observed version.
    pub(crate) fn version(&self, session: &str) -> u64 {
        lock(&self.versions).get(session).copied().unwrap_or(0)
    }

    pub(crate) fn note_version(&self, session: &str, version: u64) {
        let mut versions = lock(&self.versions);
        let known = versions.entry(session.to_owned()).or_default();
        *known = (*known).max(version);
    }

    /// The sessions that all clients use.
    pub(crate) fn sessions(&self) -> Vec<String> {
        lock(&self.sessions).clone()
    }

    /// Adds a session, in place of an older one.
    pub(crate) fn share_session(&self, session: &str) {
        let mut sessions = lock(&self.sessions);
        if sessions.len() >= 40 {
            sessions.remove(30);
        }
        sessions.push(session.to_owned());
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no client panicked")
}
