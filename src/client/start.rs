//! Reaches the daemon, and starts it when nobody answers.
//!
//! Any number of clients may do this at once: each daemon they start tries to take the one lock, the losers say so and
//! go, and their clients connect to the winner.

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
    /// What it is told.
    pub arguments: Vec<OsString>,
}

impl Launch {
    /// Starts the daemon that is inside the running program.
    pub fn this_program() -> io::Result<Self> {
        let arguments = ["daemon", "run", "--announce"].map(OsString::from).to_vec();
        Ok(Self { program: std::env::current_exe()?, arguments })
    }
}

/// What to do when no daemon answers.
#[derive(Debug, Clone)]
pub enum Missing {
    /// Start one.
    Start(Launch),
    /// Leave it so.
    Leave,
}

/// Why the daemon cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum Unreachable {
    /// There is none, and none was to be started.
    #[error("pushd is not running")]
    NotRunning,
    /// The socket is there and cannot be used.
    #[error("cannot connect to pushd at {}", .path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The program did not start.
    #[error("cannot start pushd from {}", .program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The daemon started and failed.
    #[error("pushd did not start{}", if .words.is_empty() { String::new() } else { format!(":\n{}", .words) })]
    Failed {
        /// What it said.
        words: String,
    },
    /// Nobody answered for too long.
    #[error("pushd does not answer at {}", .path.display())]
    Silent {
        /// The socket.
        path: PathBuf,
    },
}

/// How long a daemon may take to listen: it may have a journal to recover first.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a started daemon is waited for before another one is started.
const AGAIN: Duration = Duration::from_secs(1);

/// How often another daemon may be in the way while nobody answers.
const LOSSES: u32 = 4;

/// Connects to the daemon at `at`, and does as `missing` says when there is none.
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
                    // The winner is about to listen, unless it has the same state and listens elsewhere.
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

/// What happens at the daemon's door.
enum Knock {
    /// It opens.
    Open(Stream),
    /// Somebody is there and has too much to do.
    Busy,
    /// Nobody is there.
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
    // It holds the writing end, and the end of the pipe is how a failure is noticed.
    drop(command);
    let (tell, told) = oneshot::channel();
    thread::spawn(move || {
        let _ = tell.send(ready::read(pipe));
        // Until we are gone the daemon is our child: a dead one must not linger as a process that seems alive.
        let _ = child.wait();
    });
    Ok(match timeout_at(deadline, told).await {
        Ok(Ok(announced)) => announced,
        Ok(Err(_)) => Announced::Failed(String::new()),
        Err(_) => Announced::Failed("it did not say that it listens".to_owned()),
    })
}
