//! The way into a daemon from a `main`: surroundings are read here, and nowhere below.

use std::io;

use super::life::{self, Config, RunError};
use super::os;
use crate::config::limits::{LimitError, Limits};
use crate::config::paths::{Paths, PathsError};
use crate::observe;
use crate::transport::local::BindError;

/// Why a daemon did not start, or ended badly.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It is not clear where everything is.
    #[error(transparent)]
    Paths(#[from] PathsError),
    /// A limit is not one.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The log cannot be written.
    #[error("cannot write the log")]
    Log(#[source] io::Error),
    /// The system gives no threads.
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
    /// It ran, and failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl StartError {
    /// Tells whether another daemon holds the place.
    pub const fn is_in_use(&self) -> bool {
        matches!(self, Self::Run(RunError::Bind(BindError::InUse { .. }) | RunError::StateInUse { .. }))
    }
}

/// Runs a daemon as the environment says, until it is asked to stop; `ready` is called when clients can connect.
pub fn start(ready: impl FnOnce() + Send) -> Result<(), StartError> {
    let variable = |name: &str| std::env::var_os(name);
    let config =
        Config { paths: Paths::from_environment(&variable)?, limits: Limits::from_environment(&variable)? };
    os::private_directory(&config.paths.home).map_err(StartError::Log)?;
    os::private_directory(&config.paths.logs).map_err(StartError::Log)?;
    let _log = observe::begin(&config.paths.logs).map_err(StartError::Log)?;
    observe::write_down_panics();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers())
        .thread_name("pushd")
        .enable_all()
        .build()
        .map_err(StartError::Runtime)?;
    let ended = runtime.block_on(life::run(config, ready));
    if let Err(error) = &ended {
        tracing::error!(error = %error, "daemon failed");
    }
    // Everything that matters has ended; what a stuck file system holds up is not waited for.
    runtime.shutdown_background();
    Ok(ended?)
}

/// A local daemon serves one person: a few threads are plenty, and each costs memory.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).clamp(1, 4)
}
