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

use super::observations::SharedObservations;

/// The longest wait for anything that must happen.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

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
    PrivateEvent,
    RunOver,
}

/// The state that all threads of one home share.
pub(crate) struct Harness {
    pub(crate) home: TempDir,
    pub(crate) observations: SharedObservations,
    unload_after: &'static str,
    state: Mutex<HarnessState>,
    changed: Condvar,
    armed: AtomicU8,
}

#[derive(Default)]
struct HarnessState {
    generation: u64,
    child: Option<(Child, ChildStdout)>,
    /// Whether clients may connect.
    accepting: bool,
    killed: bool,
    countdown: u64,
    phase: Phase,
    idle_clients: usize,
}

/// What the clients do.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// They do random actions.
    #[default]
    Busy,
    /// They start nothing new and complete everything.
    Finishing,
    /// They stop.
    Done,
}

impl Harness {
    /// Prepares a home; the daemon unloads idle sessions after `unload_after` seconds.
    pub(crate) fn new(unload_after: &'static str) -> Self {
        let home = TempDir::new().expect("a directory for the daemon");
        std::fs::create_dir(home.path().join("work")).expect("a directory for sessions");
        Self {
            home,
            observations: SharedObservations::default(),
            unload_after,
            state: Mutex::default(),
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
        let mut state = self.lock();
        assert!(state.child.is_none(), "a daemon lives already");
        let mut child = command(self.home.path(), self.unload_after).spawn().expect("a daemon");
        let out = child.stdout.take().expect("its output");
        state.generation += 1;
        state.killed = false;
        state.child = Some((child, out));
    }

    /// Starts a daemon and waits until it is ready; a daemon killed a moment ago may still hold its lock.
    pub(crate) fn start(&self) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            self.spawn();
            let mut state = self.lock();
            let (mut child, out) = state.child.take().expect("it was just started");
            let mut lines = BufReader::new(out);
            let mut word = String::new();
            lines.read_line(&mut word).expect("its first line");
            if word.trim() == "ready" {
                state.child = Some((child, lines.into_inner()));
                return;
            }
            let ended = child.wait().expect("its end");
            assert!(word.trim() == "in-use" && Instant::now() < deadline, "no daemon: {word:?} {ended}");
        }
    }

    /// Lets the clients connect.
    pub(crate) fn admit_clients(&self) {
        self.lock().accepting = true;
        self.changed.notify_all();
    }

    /// Makes the client that sees `moment` for the `count`th time kill the daemon.
    pub(crate) fn arm(&self, moment: Moment, count: u64) {
        self.lock().countdown = count;
        self.armed.store(moment as u8, Ordering::Release);
    }

    /// Reports that a moment has occurred.
    pub(crate) fn moment_reached(&self, moment: Moment) {
        if self.armed.load(Ordering::Acquire) != moment as u8 {
            return;
        }
        let mut state = self.lock();
        state.countdown = state.countdown.saturating_sub(1);
        if state.countdown == 0 {
            self.kill_locked(&mut state);
        }
    }

    /// Waits until an armed moment occurs, or kills the daemon after `limit`; returns whether the moment occurred.
    pub(crate) fn await_moment(&self, limit: Duration) -> bool {
        let state = self.lock();
        let (state, _) = self
            .changed
            .wait_timeout_while(state, limit, |state| !state.killed)
            .unwrap_or_else(PoisonError::into_inner);
        let came = state.killed;
        drop(state);
        self.kill();
        came
    }

    /// Kills the daemon with `SIGKILL`.
    pub(crate) fn kill(&self) {
        let mut state = self.lock();
        self.kill_locked(&mut state);
        if let Some((mut child, _)) = state.child.take() {
            child.wait().expect("the daemon is gone");
        }
    }

    fn kill_locked(&self, state: &mut HarnessState) {
        self.armed.store(Moment::Never as u8, Ordering::Release);
        if state.killed {
            return;
        }
        if let Some((child, _)) = &mut state.child {
            // A daemon that was not ready yet may have found the lock held.
            if let (true, Ok(Some(status))) = (state.accepting, child.try_wait()) {
                self.observations
                    .add_finding(format!("generation {}: the daemon ended by itself: {status}", state.generation));
            }
            state.killed = true;
            state.accepting = false;
            let _ = child.kill();
        }
        self.changed.notify_all();
    }

    /// Waits for a later generation that accepts clients; `None` when there will be none.
    pub(crate) fn next_generation(&self, generation: u64) -> Option<u64> {
        let state = self.lock();
        let waiting = |state: &mut HarnessState| {
            state.phase != Phase::Done && (!state.accepting || state.generation <= generation)
        };
        let state = self.changed.wait_while(state, waiting).unwrap_or_else(PoisonError::into_inner);
        (state.phase != Phase::Done).then_some(state.generation)
    }

    /// Tells whether the test killed a generation.
    pub(crate) fn was_killed(&self, generation: u64) -> bool {
        let state = self.lock();
        state.generation != generation || state.killed
    }

    pub(crate) fn generation(&self) -> u64 {
        self.lock().generation
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.lock().child.as_ref().map(|(child, _)| child.id())
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.lock().phase = phase;
        self.changed.notify_all();
    }

    pub(crate) fn phase(&self) -> Phase {
        self.lock().phase
    }

    /// Reports that the session of a client is idle.
    pub(crate) fn mark_idle(&self) {
        self.lock().idle_clients += 1;
        self.changed.notify_all();
    }

    /// Waits until this many clients are idle; returns whether that happened.
    pub(crate) fn wait_all_idle(&self, clients: usize) -> bool {
        let state = self.lock();
        let waiting = |state: &mut HarnessState| state.idle_clients < clients;
        let (state, _) =
            self.changed.wait_timeout_while(state, TIMEOUT, waiting).unwrap_or_else(PoisonError::into_inner);
        state.idle_clients >= clients
    }

    fn lock(&self) -> MutexGuard<'_, HarnessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.kill();
    }
}

fn command(home: &Path, unload_after: &str) -> Command {
    let mut words = OpenOptions::new();
    let words = words.create(true).append(true).open(home.join("stderr")).expect("a file for its words");
    let mut command = Command::new(env!("CARGO_BIN_EXE_push"));
    command
        .args(["daemon", "run", "--announce"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .env("PUSH_PARK_SECONDS", unload_after)
        .env("PUSH_PI_COMMANDS", "1000000")
        .env("PUSH_PI_SESSION_COMMANDS", "1000000")
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(words);
    command
}
