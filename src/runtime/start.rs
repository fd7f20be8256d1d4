//! The way into a daemon from a `main`: surroundings are read here, and nowhere below.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::life::{self, Config, RunError};
use super::os;
use crate::config::file::{self, ConfigError};
use crate::config::limits::{LimitError, Limits};
use crate::config::paths::{Paths, PathsError, user_home};
use crate::config::pi::{Asked, PiSettings, PortError};
use crate::observe;
use crate::sandbox::confine::toolchain;
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
    /// The configuration has a mistake, and the daemon was told to open a port by it.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A port is not one.
    #[error(transparent)]
    Port(#[from] PortError),
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
pub fn start(pi: Asked, ready: impl FnOnce() + Send) -> Result<(), StartError> {
    os::share_memory();
    let variable = |name: &str| std::env::var_os(name);
    let (paths, limits) = (Paths::in_existing_home(&variable)?, Limits::from_environment(&variable)?);
    let homes = homes(&variable);
    let mut config = Config { paths, limits, homes, toolchains: toolchain::named(&variable), pi: None };
    os::private_directory(&config.paths.home).map_err(StartError::Log)?;
    os::private_directory(&config.paths.logs).map_err(StartError::Log)?;
    let _log = observe::begin(&config.paths.logs).map_err(StartError::Log)?;
    observe::write_down_panics();
    config.pi = endpoint(&config.paths.config, pi)?.resolved(pi, &variable)?;
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

/// Reads what the configuration says of Pi.
///
/// A mistake in the file keeps nobody from the daemon, which tells everybody of it; but a port is not opened by half of what
/// its owner wrote.
fn endpoint(config: &Path, asked: Asked) -> Result<PiSettings, StartError> {
    match (file::read(config), asked) {
        (Ok(file), _) => Ok(file.settings.pi),
        (Err(error), Asked::Nothing) => {
            tracing::warn!(error = %error, "the configuration cannot be used; Pi is not spoken");
            Ok(PiSettings::default())
        }
        (Err(error), Asked::Somewhere | Asked::At(_)) => Err(error.into()),
    }
}

/// The homes of the owner: the one that the environment names, and the one that the system knows.
///
/// They differ under `sudo` and where somebody has set `HOME`; credentials may be in either.
fn homes(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let mut homes: Vec<PathBuf> = user_home(variable).into_iter().chain(os::home_of_user()).collect();
    homes.dedup();
    homes
}

/// A local daemon serves one person: a few threads are plenty, and each costs memory.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).clamp(1, 4)
}
