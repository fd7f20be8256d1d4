//! Connects to the daemon and starts it if none listens.
//!
//! Any number of clients may do this at the same time: each daemon that they start tries to take the lock. A daemon
//! that does not get the lock reports this and exits, and its client connects to the daemon that did.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

use super::os;
use super::ready::{self, StartOutcome};
use super::ssh::SshError;
use crate::backoff::{Backoff, random_fraction};
use crate::transport::local::{Address, Stream, connect};

/// The program that becomes the daemon.
#[derive(Debug, Clone)]
pub struct DaemonCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

impl DaemonCommand {
    /// Starts the daemon from the running executable.
    pub fn this_program() -> io::Result<Self> {
        let arguments = ["daemon", "run", "--announce"].map(OsString::from).to_vec();
        Ok(Self { program: std::env::current_exe()?, arguments })
    }
}

/// What to do if no daemon listens.
#[derive(Debug, Clone)]
pub enum MissingDaemon {
    /// Start one.
    Start(DaemonCommand),
    /// Fail.
    Fail,
}

/// Why the daemon cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum UnreachableError {
    /// No daemon listens, and the client was not allowed to start one.
    #[error("pushd is not running; `push daemon start` starts it")]
    NotRunning,
    /// The socket exists, but connecting to it failed.
    #[error("cannot connect to pushd at {}", .path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The system error.
        source: io::Error,
    },
    /// The executable could not be started.
    #[error("cannot start pushd from {}", .program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// The system error.
        source: io::Error,
    },
    /// The daemon exited during its start.
    #[error("pushd failed to start{}", if .output.is_empty() { String::new() } else { format!(":\n{}", .output) })]
    StartFailed {
        /// Its output.
        output: String,
    },
    /// The daemon did not answer in time.
    #[error("pushd at {} does not answer; `push doctor` looks for the cause", .path.display())]
    NoAnswer {
        /// The socket.
        path: PathBuf,
    },
    /// The daemon of another machine cannot be reached.
    #[error("cannot reach pushd at {host}")]
    Ssh {
        /// The address of the machine.
        host: String,
        /// The cause.
        source: SshError,
    },
}

impl UnreachableError {
    /// Returns whether another attempt would fail in the same way.
    pub(super) const fn is_permanent(&self) -> bool {
        match self {
            Self::Ssh { source, .. } => source.is_permanent(),
            Self::NotRunning
            | Self::Connect { .. }
            | Self::Spawn { .. }
            | Self::StartFailed { .. }
            | Self::NoAnswer { .. } => false,
        }
    }
}

/// How long a daemon may take to listen: it may have to recover its journal first.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The delays between connection attempts.
pub(super) const CONNECT_BACKOFF: Backoff = Backoff { first: Duration::from_millis(50), limit: Duration::from_secs(2) };
/// How long to wait after starting a daemon before starting another one.
const RESTART_INTERVAL: Duration = Duration::from_secs(1);

/// How often another daemon may hold the lock while the socket does not answer.
const MAX_LOCK_CONFLICTS: u32 = 4;

/// Connects to the daemon at `at`, and starts it if `missing` says so.
///
/// `starting` is called once, before the first start.
pub(super) async fn connect_or_start(
    at: &Address,
    missing: &MissingDaemon,
    starting: &mut (dyn FnMut() + Send),
) -> Result<Stream, UnreachableError> {
    let deadline = Instant::now() + START_TIMEOUT;
    let mut attempts = 0;
    let mut last_start: Option<Instant> = None;
    let mut losses = 0;
    loop {
        match (try_connect(at).await?, missing) {
            (ConnectAttempt::Connected(stream), _) => return Ok(stream),
            (ConnectAttempt::NotListening, MissingDaemon::Fail) => return Err(UnreachableError::NotRunning),
            (ConnectAttempt::NotListening, MissingDaemon::Start(launch))
                if last_start.is_none_or(|start| start.elapsed() > RESTART_INTERVAL) =>
            {
                if last_start.is_none() {
                    starting();
                }
                let announced = start(launch, deadline).await?;
                last_start = Some(Instant::now());
                match announced {
                    StartOutcome::Ready => continue,
                    // The daemon that holds the lock is about to listen, unless it shares the state and listens at
                    // another socket.
                    StartOutcome::InUse(_) if losses < MAX_LOCK_CONFLICTS => losses += 1,
                    StartOutcome::InUse(output) => return Err(UnreachableError::StartFailed { output }),
                    StartOutcome::Failed(output) => match try_connect(at).await? {
                        ConnectAttempt::Connected(stream) => return Ok(stream),
                        ConnectAttempt::Busy | ConnectAttempt::NotListening => {
                            return Err(UnreachableError::StartFailed { output });
                        }
                    },
                }
            }
            (ConnectAttempt::Busy | ConnectAttempt::NotListening, MissingDaemon::Start(_) | MissingDaemon::Fail) => {}
        }
        if Instant::now() >= deadline {
            return Err(UnreachableError::NoAnswer { path: at.socket.clone() });
        }
        sleep(CONNECT_BACKOFF.delay(attempts, random_fraction())).await;
        attempts += 1;
    }
}

/// The result of one connection attempt.
enum ConnectAttempt {
    /// The connection is established.
    Connected(Stream),
    /// A daemon listens, but its backlog is full.
    Busy,
    /// Nothing listens.
    NotListening,
}

async fn try_connect(at: &Address) -> Result<ConnectAttempt, UnreachableError> {
    let error = match connect(at).await {
        Ok(stream) => return Ok(ConnectAttempt::Connected(stream)),
        Err(error) => error,
    };
    let kind = error.kind();
    if matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) {
        Ok(ConnectAttempt::NotListening)
    } else if matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionReset) {
        Ok(ConnectAttempt::Busy)
    } else {
        Err(UnreachableError::Connect { path: at.socket.clone(), source: error })
    }
}

/// Starts a daemon and waits for its announcement.
async fn start(launch: &DaemonCommand, deadline: Instant) -> Result<StartOutcome, UnreachableError> {
    let failed = |source| UnreachableError::Spawn { program: launch.program.clone(), source };
    let (pipe, output) = io::pipe().map_err(failed)?;
    let mut command = Command::new(&launch.program);
    command.args(&launch.arguments).stdin(Stdio::null());
    command.stdout(output.try_clone().map_err(failed)?).stderr(output);
    os::detach(&mut command);
    let mut child = command.spawn().map_err(failed)?;
    // The command holds the write end of the pipe, whose end of file reports a failed start.
    drop(command);
    let (sender, receiver) = oneshot::channel();
    thread::spawn(move || {
        let _ = sender.send(ready::read(pipe));
        // The daemon stays a child of this process: it is reaped, so that a dead daemon does not look alive.
        let _ = child.wait();
    });
    Ok(match timeout_at(deadline, receiver).await {
        Ok(Ok(announced)) => announced,
        Ok(Err(_)) => StartOutcome::Failed(String::new()),
        Err(_) => StartOutcome::Failed("the daemon did not report in time that it listens".to_owned()),
    })
}
