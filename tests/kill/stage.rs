//! The daemon of one home, generation after generation, and the synchronization of clients and kills.
//!
//! It does not know the protocol. A kill is recorded before it happens, so that a client that loses its connection
//! can tell a kill from a crash.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::witness::Witness;

/// The longest wait for anything that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What a client may see or do right before a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Moment {
    Never,
    RequestSent,
    DecisionSent,
    Answered,
    ApprovalAsked,
    StepStarted,
    Output,
    StepOver,
    Recovered,
    ToldAlone,
    RunOver,
}

/// The state that all threads of one home share.
pub(crate) struct Stage {
    pub(crate) home: TempDir,
    /// A directory for files in memory.
    memory: TempDir,
    pub(crate) witness: Witness,
    park: &'static str,
    now: Mutex<Now>,
    changed: Condvar,
    armed: AtomicU8,
}

#[derive(Default)]
struct Now {
    life: u64,
    child: Option<(Child, ChildStdout)>,
    /// Whether clients may connect.
    open: bool,
    killed: bool,
    countdown: u64,
    act: Act,
    at_rest: usize,
}

/// What the clients do.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// They do random actions.
    #[default]
    Busy,
    /// They start nothing new and complete everything.
    Finishing,
    /// They stop.
    Over,
}

impl Stage {
    /// Prepares a home; the daemon unloads idle sessions after `unload_after` seconds.
    pub(crate) fn new(park: &'static str) -> Self {
        let home = TempDir::new().expect("a directory for the daemon");
        let memory = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a directory in memory");
        std::fs::create_dir(home.path().join("work")).expect("a directory for sessions");
        Self {
            home,
            memory,
            witness: Witness::default(),
            park,
            now: Mutex::default(),
            changed: Condvar::new(),
            armed: AtomicU8::new(Moment::Never as u8),
        }
    }

    /// A text that is unique to this home.
    pub(crate) fn name(&self) -> String {
        let name = self.home.path().file_name().unwrap_or_default().to_string_lossy();
        name.chars().filter(char::is_ascii_alphanumeric).collect()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.home.path().join(".push/run/pushd.sock")
    }

    /// The working directory of sessions.
    pub(crate) fn cwd(&self) -> PathBuf {
        self.home.path().join("work")
    }

    /// The file to which every step appends its name.
    pub(crate) fn ledger(&self) -> PathBuf {
        self.home.path().join("ledger")
    }

    /// Starts a daemon without waiting for it.
    pub(crate) fn spawn(&self) {
        let mut now = self.lock();
        assert!(now.child.is_none(), "a daemon lives already");
        let mut child = command(self.home.path(), self.memory.path(), self.park).spawn().expect("a daemon");
        let out = child.stdout.take().expect("its output");
        now.life += 1;
        now.killed = false;
        now.child = Some((child, out));
    }

    /// Starts a daemon and waits until it is ready; a daemon killed a moment ago may still hold its lock.
    pub(crate) fn start(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.spawn();
            let mut now = self.lock();
            let (mut child, out) = now.child.take().expect("it was just started");
            let mut lines = BufReader::new(out);
            let mut word = String::new();
            lines.read_line(&mut word).expect("its first line");
            if word.trim() == "ready" {
                now.child = Some((child, lines.into_inner()));
                return;
            }
            let ended = child.wait().expect("its end");
            assert!(word.trim() == "in-use" && Instant::now() < deadline, "no daemon: {word:?} {ended}");
        }
    }

    /// Lets the clients connect.
    pub(crate) fn open(&self) {
        self.lock().open = true;
        self.changed.notify_all();
    }

    /// Makes the client that sees `moment` for the `count`th time kill the daemon.
    pub(crate) fn arm(&self, moment: Moment, count: u64) {
        self.lock().countdown = count;
        self.armed.store(moment as u8, Ordering::Release);
    }

    /// Reports that a moment has occurred.
    pub(crate) fn at(&self, moment: Moment) {
        if self.armed.load(Ordering::Acquire) != moment as u8 {
            return;
        }
        let mut now = self.lock();
        now.countdown = now.countdown.saturating_sub(1);
        if now.countdown == 0 {
            self.strike(&mut now);
        }
    }

    /// Waits until an armed moment occurs, or kills the daemon after `limit`; returns whether the moment occurred.
    pub(crate) fn await_moment(&self, limit: Duration) -> bool {
        let now = self.lock();
        let (now, _) = self
            .changed
            .wait_timeout_while(now, limit, |now| !now.killed)
            .unwrap_or_else(PoisonError::into_inner);
        let came = now.killed;
        drop(now);
        self.kill();
        came
    }

    /// Kills the daemon with `SIGKILL`.
    pub(crate) fn kill(&self) {
        let mut now = self.lock();
        self.strike(&mut now);
        if let Some((mut child, _)) = now.child.take() {
            child.wait().expect("the daemon is gone");
        }
    }

    fn strike(&self, now: &mut Now) {
        self.armed.store(Moment::Never as u8, Ordering::Release);
        if now.killed {
            return;
        }
        if let Some((child, _)) = &mut now.child {
            // A daemon that was not ready yet may have found the lock held.
            if let (true, Ok(Some(status))) = (now.open, child.try_wait()) {
                self.witness
                    .finding(format!("generation {}: the daemon ended by itself: {status}", now.life));
            }
            now.killed = true;
            now.open = false;
            let _ = child.kill();
        }
        self.changed.notify_all();
    }

    /// Waits for a later generation that accepts clients; `None` when there will be none.
    pub(crate) fn next_life(&self, life: u64) -> Option<u64> {
        let now = self.lock();
        let waiting = |now: &mut Now| now.act != Act::Over && (!now.open || now.life <= life);
        let now = self.changed.wait_while(now, waiting).unwrap_or_else(PoisonError::into_inner);
        (now.act != Act::Over).then_some(now.life)
    }

    /// Tells whether the test killed a generation.
    pub(crate) fn was_killed(&self, life: u64) -> bool {
        let now = self.lock();
        now.life != life || now.killed
    }

    pub(crate) fn life(&self) -> u64 {
        self.lock().life
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.lock().child.as_ref().map(|(child, _)| child.id())
    }

    pub(crate) fn turn_to(&self, act: Act) {
        self.lock().act = act;
        self.changed.notify_all();
    }

    pub(crate) fn act(&self) -> Act {
        self.lock().act
    }

    /// Reports that the session of a client is idle.
    pub(crate) fn rest(&self) {
        self.lock().at_rest += 1;
        self.changed.notify_all();
    }

    /// Waits until this many clients are idle; returns whether that happened.
    pub(crate) fn all_rest(&self, clients: usize) -> bool {
        let now = self.lock();
        let waiting = |now: &mut Now| now.at_rest < clients;
        let (now, _) =
            self.changed.wait_timeout_while(now, PATIENCE, waiting).unwrap_or_else(PoisonError::into_inner);
        now.at_rest >= clients
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.kill();
    }
}

fn command(home: &Path, memory: &Path, park: &str) -> Command {
    let mut words = OpenOptions::new();
    let words = words.create(true).append(true).open(home.join("stderr")).expect("a file for its words");
    let mut command = Command::new(env!("CARGO_BIN_EXE_push"));
    command
        .args(["daemon", "run", "--announce"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .env("PUSH_MEMORY", memory)
        .env("PUSH_PARK_SECONDS", park)
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(words);
    command
}
