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

use super::backoff::{Backoff, chance};
use super::os;
use super::ready::{self, Announced};
use crate::transport::local::{Address, Stream, connect};

/// The program that becomes the daemon.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

impl Launch {
    /// Starts the daemon from the running executable.
    pub fn this_program() -> io::Result<Self> {
        let arguments = ["daemon", "run", "--announce"].map(OsString::from).to_vec();
        Ok(Self { program: std::env::current_exe()?, arguments })
    }
}

/// What to do if no daemon listens.
#[derive(Debug, Clone)]
pub enum Missing {
    /// Start one.
    Start(Launch),
    /// Fail.
    Leave,
}

/// Why the daemon cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum Unreachable {
    /// No daemon listens, and the client was not allowed to start one.
    #[error("pushd is not running")]
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
    #[error("pushd failed to start{}", if .words.is_empty() { String::new() } else { format!(":\n{}", .words) })]
    Failed {
        /// Its output.
        words: String,
    },
    /// The daemon did not answer in time.
    #[error("pushd at {} does not answer", .path.display())]
    Silent {
        /// The socket.
        path: PathBuf,
    },
}

/// How long a daemon may take to listen: it may have to recover its journal first.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait after starting a daemon before starting another one.
const AGAIN: Duration = Duration::from_secs(1);

/// How often another daemon may hold the lock while the socket does not answer.
const LOSSES: u32 = 4;

/// Connects to the daemon at `at`, and starts it if `missing` says so.
///
/// `starting` is called once, before the first start.
pub(super) async fn connect_or_start(
    at: &Address,
    missing: &Missing,
    starting: &mut (dyn FnMut() + Send),
) -> Result<Stream, Unreachable> {
    let deadline = Instant::now() + PATIENCE;
    let mut backoff = Backoff::new();
    let mut last_start: Option<Instant> = None;
    let mut losses = 0;
    loop {
        match (knock(at).await?, missing) {
            (Knock::Open(stream), _) => return Ok(stream),
            (Knock::Nobody, Missing::Leave) => return Err(Unreachable::NotRunning),
            (Knock::Nobody, Missing::Start(launch))
                if last_start.is_none_or(|start| start.elapsed() > AGAIN) =>
            {
                if last_start.is_none() {
                    starting();
                }
                let announced = start(launch, deadline).await?;
                last_start = Some(Instant::now());
                match announced {
                    Announced::Ready => continue,
                    // The daemon that holds the lock is about to listen, unless it shares the state and listens at
                    // another socket.
                    Announced::InUse(_) if losses < LOSSES => losses += 1,
                    Announced::InUse(words) => return Err(Unreachable::Failed { words }),
                    Announced::Failed(words) => match knock(at).await? {
                        Knock::Open(stream) => return Ok(stream),
                        Knock::Busy | Knock::Nobody => return Err(Unreachable::Failed { words }),
                    },
                }
            }
            (Knock::Busy | Knock::Nobody, Missing::Start(_) | Missing::Leave) => {}
        }
        if Instant::now() >= deadline {
            return Err(Unreachable::Silent { path: at.socket.clone() });
        }
        sleep(backoff.advance(chance())).await;
    }
}

/// The result of one connection attempt.
enum Knock {
    /// The connection is established.
    Open(Stream),
    /// A daemon listens, but its backlog is full.
    Busy,
    /// Nothing listens.
    Nobody,
}

async fn knock(at: &Address) -> Result<Knock, Unreachable> {
    let error = match connect(at).await {
        Ok(stream) => return Ok(Knock::Open(stream)),
        Err(error) => error,
    };
    let kind = error.kind();
    if matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) {
        Ok(Knock::Nobody)
    } else if matches!(
        kind,
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionReset
    ) {
        Ok(Knock::Busy)
    } else {
        Err(Unreachable::Connect { path: at.socket.clone(), source: error })
    }
}

/// Starts a daemon and waits for its announcement.
async fn start(launch: &Launch, deadline: Instant) -> Result<Announced, Unreachable> {
    let failed = |source| Unreachable::Spawn { program: launch.program.clone(), source };
    let (pipe, output) = io::pipe().map_err(failed)?;
    let mut command = Command::new(&launch.program);
    command.args(&launch.arguments).stdin(Stdio::null());
    command.stdout(output.try_clone().map_err(failed)?).stderr(output);
    os::detach(&mut command);
    let mut child = command.spawn().map_err(failed)?;
    // The command holds the write end of the pipe, whose end of file reports a failed start.
    drop(command);
    let (tell, told) = oneshot::channel();
    thread::spawn(move || {
        let _ = tell.send(ready::read(pipe));
        // The daemon stays a child of this process: it is reaped, so that a dead daemon does not look alive.
        let _ = child.wait();
    });
    Ok(match timeout_at(deadline, told).await {
        Ok(Ok(announced)) => announced,
        Ok(Err(_)) => Announced::Failed(String::new()),
        Err(_) => Announced::Failed("the daemon did not report in time that it listens".to_owned()),
    })
}
