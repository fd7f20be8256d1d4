//! The entry point of the daemon for `main`. The process environment is read here, and nowhere below.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::lifecycle::{self, Config, RunError};
use super::os;
use super::protocols;
use crate::config::file::{self, ConfigError};
use crate::config::limits::{LimitError, Limits};
use crate::config::listener::{self, ListenRequest, ListenerSettings, PortError, WebListener, WebScope};
use crate::config::paths::{Paths, PathsError, user_home};
use crate::observe;
use crate::provider::dialect::{BUILT_IN, kinds};
use crate::sandbox::confinement::toolchain;
use crate::tools::ToolSet;
use crate::transport::local::BindError;

/// Why a daemon did not start or failed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The paths cannot be determined.
    #[error(transparent)]
    Paths(#[from] PathsError),
    /// A limit is invalid.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The configuration is invalid, and the daemon was asked to open the port that it sets.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A port is invalid.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The log file cannot be written.
    #[error("cannot write the log")]
    Log(#[source] io::Error),
    /// The async runtime cannot be started.
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
    /// The daemon failed after its start.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl StartError {
    /// Returns whether another daemon uses the socket or the state directory.
    pub const fn is_in_use(&self) -> bool {
        matches!(self, Self::Run(RunError::Bind(BindError::InUse { .. }) | RunError::StateInUse { .. }))
    }
}

/// Runs a daemon until it is asked to stop; `ready` is called when clients can connect.
pub fn start(pi: ListenRequest, http: ListenRequest, ready: impl FnOnce() + Send) -> Result<(), StartError> {
    os::limit_malloc_arenas();
    let variable = |name: &str| std::env::var_os(name);
    let (paths, limits) = (Paths::in_existing_home(&variable)?, Limits::from_environment(&variable)?);
    let homes = homes(&variable);
    let toolchains = toolchain::paths_from_environment(&variable);
    let (dialects, tools, protocols) = (BUILT_IN, ToolSet::builtin(), protocols::BUILT_IN);
    let mut config = Config { paths, limits, homes, toolchains, listeners: Vec::new(), protocols, dialects, tools };
    os::create_private_dir_all(&config.paths.home).map_err(StartError::Log)?;
    os::create_private_dir_all(&config.paths.logs).map_err(StartError::Log)?;
    let _log = observe::init(&config.paths.logs).map_err(StartError::Log)?;
    observe::install_panic_hook();
    config.listeners = read_listeners(&config.paths.config, pi, http, &variable)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(worker_threads())
        .thread_name("pushd")
        .enable_all()
        .build()
        .map_err(StartError::Runtime)?;
    let ended = runtime.block_on(lifecycle::run(config, ready));
    if let Err(error) = &ended {
        tracing::error!(error = %error, "daemon failed");
    }
    // Everything that must finish has finished. Blocking tasks on a stuck file system are not awaited.
    runtime.shutdown_background();
    Ok(ended?)
}

/// Reads the settings of the ports from the configuration, and returns those that are opened.
///
/// An invalid configuration does not prevent the start: clients get the error. But a requested port is not opened with
/// settings that are only partly valid.
fn read_listeners(
    config: &Path,
    pi: ListenRequest,
    http: ListenRequest,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Vec<WebListener>, StartError> {
    let settings = match file::read(config, &kinds(BUILT_IN)) {
        Ok(file) => file.settings,
        Err(error) if (pi, http) == (ListenRequest::FromConfig, ListenRequest::FromConfig) => {
            tracing::warn!(error = %error, "the configuration is invalid; no port is opened");
            return Ok(Vec::new());
        }
        Err(error) => return Err(error.into()),
    };
    let pi = settings.pi.resolved(pi, || listener::port_from_environment(variable))?;
    let http = settings.http.resolved(http, || Ok(None))?;
    let listener = |scope, settings: Option<ListenerSettings>| settings.map(|settings| WebListener { scope, settings });
    Ok(listener(WebScope::One("pi"), pi).into_iter().chain(listener(WebScope::All, http)).collect())
}

/// Returns the owner's home directories: the one in the environment, and the one in the user database.
///
/// They differ under `sudo` and where `HOME` is overridden. Either may hold credentials.
fn homes(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let mut homes: Vec<PathBuf> = user_home(variable).into_iter().chain(os::system_home()).collect();
    homes.dedup();
    homes
}

/// Returns the number of worker threads: a daemon for one user needs few, and each costs memory.
fn worker_threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).clamp(1, 4)
}
