//! What all clients of a crowd know of each other, and what is written down of everything that they do.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Condvar, Mutex, MutexGuard};

use crate::pi_crowd::command::Command;
use crate::support::daemon::TIMEOUT;
use crate::support::random::Random;

/// How many commands are remembered to be sent again or depended on, far fewer than the daemon remembers.
const RECENT: usize = 300;

/// What all clients share.
pub(crate) struct Crowd {
    life: Mutex<Option<Life>>,
    begun: Condvar,
    /// Everybody is there before anybody begins.
    pub(crate) ready: Barrier,
    /// How many lives of the daemon there are going to be.
    pub(crate) lives: usize,
    recent: Mutex<VecDeque<Command>>,
    versions: Mutex<BTreeMap<String, u64>>,
    sessions: Mutex<Vec<String>>,
    pub(crate) book: Mutex<Book>,
    sent: AtomicUsize,
    /// How many clients have nothing more to ask for.
    pub(crate) done: AtomicUsize,
}

/// From one start of the daemon to its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Life {
    pub(crate) number: usize,
    pub(crate) at: SocketAddr,
}

/// Everything that was sent and answered.
#[derive(Default)]
pub(crate) struct Book {
    pub(crate) sent: Vec<Sent>,
    pub(crate) answers: Vec<Answer>,
}

/// A command that was sent.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) life: usize,
    pub(crate) command: Command,
    pub(crate) fate: Fate,
}

/// What became of what was sent, as far as its sender knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its one answer came.
    Answered,
    /// Its sender hung up, or the daemon died.
    Lost,
}

/// Whether others may repeat a command and depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    New,
    /// It was an earlier daemon's, and which of them this one knows is not certain.
    Old,
}

/// An answer as it came.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) life: usize,
    pub(crate) command: Command,
    pub(crate) line: String,
}

impl Crowd {
    pub(crate) fn new(clients: usize, lives: usize, sessions: Vec<String>) -> Self {
        Self {
            life: Mutex::default(),
            begun: Condvar::new(),
            ready: Barrier::new(clients + 1),
            lives,
            recent: Mutex::default(),
            versions: Mutex::default(),
            sessions: Mutex::new(sessions),
            book: Mutex::default(),
            sent: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
        }
    }

    /// Lets everybody know where the daemon is now.
    pub(crate) fn begin(&self, life: Life) {
        // Nobody depends on what an earlier daemon did.
        lock(&self.recent).clear();
        *lock(&self.life) = Some(life);
        self.begun.notify_all();
    }

    /// Waits for a life.
    pub(crate) fn life(&self, number: usize) -> Life {
        let is_over = |life: &mut Option<Life>| life.is_none_or(|life| life.number < number);
        let waited = self.begun.wait_timeout_while(lock(&self.life), TIMEOUT * 4, is_over).expect("no panic");
        waited.0.expect("a daemon that was started")
    }

    /// Notes that a command is on its way.
    pub(crate) fn sending(&self, command: &Command, standing: Standing) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        if standing == Standing::Old {
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

    /// Writes down what became of a command.
    pub(crate) fn over(&self, life: usize, command: Command, answer: Option<String>) {
        let mut book = lock(&self.book);
        let fate = if answer.is_some() { Fate::Answered } else { Fate::Lost };
        book.sent.push(Sent { life, command: command.clone(), fate });
        book.answers.extend(answer.map(|line| Answer { life, command, line }));
    }

    /// Some command that somebody sent a short time ago.
    pub(crate) fn recent(&self, random: &mut Random) -> Option<Command> {
        let recent = lock(&self.recent);
        let some = random.below(recent.len().max(1) as u64) as usize;
        recent.get(some).cloned()
    }

    /// The id of one.
    pub(crate) fn recent_id(&self, random: &mut Random) -> Option<String> {
        self.recent(random)?.id
    }

    /// The last version that anybody heard of.
    pub(crate) fn version(&self, session: &str) -> u64 {
        lock(&self.versions).get(session).copied().unwrap_or(0)
    }

    pub(crate) fn heard_of(&self, session: &str, version: u64) {
        let mut versions = lock(&self.versions);
        let known = versions.entry(session.to_owned()).or_default();
        *known = (*known).max(version);
    }

    /// The sessions that anybody may look at.
    pub(crate) fn sessions(&self) -> Vec<String> {
        lock(&self.sessions).clone()
    }

    /// One more, in the place of an older one.
    pub(crate) fn open_to_all(&self, session: &str) {
        let mut sessions = lock(&self.sessions);
        if sessions.len() >= 40 {
            sessions.remove(30);
        }
        sessions.push(session.to_owned());
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panicked")
}
