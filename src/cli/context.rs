//! Shared context of all verbs: the console, the paths and the connection to the daemon.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::answer::{AnswerSource, AnswerView};
use super::console::{ColorChoice, Console, Palette, Verbosity};
use super::exit::CliError;
use super::sanitize::sanitize_line;
use super::view::{Echo, Reasoning, View};
use crate::client::{self, Client, ClientConfig, DaemonCommand, MissingDaemon, Notice, RequestError, UnreachableError};
use crate::config::paths::Paths;

/// How long to try to reconnect after a lost connection.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Shared context of all verbs.
pub(crate) struct Context {
    /// The standard streams.
    pub(crate) console: Console,
    color: ColorChoice,
}

impl Context {
    /// Uses the standard streams of the process.
    pub(crate) fn new(color: ColorChoice, volume: Verbosity) -> Self {
        Self { console: Console::standard(color, volume), color }
    }

    /// Connects to the daemon and starts it if it is not running.
    pub(crate) async fn client(&self) -> Result<Client, CliError> {
        self.connect(start_command()?).await
    }

    /// Connects to the daemon if it is running.
    pub(crate) async fn client_if_running(&self) -> Result<Client, CliError> {
        self.connect(MissingDaemon::Fail).await
    }

    /// Returns the paths of the user's directories and files.
    pub(crate) fn paths(&self) -> Result<Paths, CliError> {
        Ok(Paths::in_existing_home(&|name| std::env::var_os(name))?)
    }

    /// Returns a view of events as text.
    pub(crate) fn view(&self, echo: Echo) -> View {
        view(self.console.palette, self.console.verbosity, echo)
    }

    /// Returns a view of one run that writes only the answer to standard output.
    pub(crate) fn answer_view(&self, source: AnswerSource) -> AnswerView {
        let console = &self.console;
        let view = view(console.stderr_palette, console.verbosity, Echo::Nothing);
        AnswerView::new(source, console.verbosity, view)
    }

    async fn connect(&self, missing: MissingDaemon) -> Result<Client, CliError> {
        // The client reports notices at any time, also while a verb borrows the console.
        let mut notes = Console::standard(self.color, self.console.verbosity);
        Ok(Client::open(ClientConfig {
            address: self.paths()?.address(),
            on_missing: missing,
            version: env!("CARGO_PKG_VERSION"),
            environment: client::collect_environment(std::env::vars_os()),
            reconnect_timeout: RECONNECT_TIMEOUT,
            on_notice: Box::new(move |notice| print_notice(&mut notes, notice)),
        })
        .await?)
    }
}

fn view(palette: Palette, volume: Verbosity, echo: Echo) -> View {
    // Without colours reasoning looks like the answer, so it is shown with --verbose only.
    let thoughts = match (volume, palette) {
        (Verbosity::Verbose, _) | (Verbosity::Normal, Palette::Colored) => Reasoning::Shown,
        (Verbosity::Quiet, _) | (Verbosity::Normal, Palette::Plain) => Reasoning::Hidden,
    };
    View::new(palette, echo, thoughts)
}

/// Returns the command that starts the daemon: this executable.
fn start_command() -> Result<MissingDaemon, CliError> {
    let launch = DaemonCommand::this_program().map_err(|source| {
        RequestError::from(UnreachableError::Spawn {
            program: std::env::args_os().next().unwrap_or_default().into(),
            source,
        })
    })?;
    Ok(MissingDaemon::Start(launch))
}

/// Returns the time in milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn print_notice(console: &mut Console, notice: Notice) {
    match notice {
        Notice::Starting => console.note("starting pushd"),
        Notice::VersionMismatch { client, daemon } => console.warn(&format!(
            "pushd is version {}, this is {client}; `push daemon restart` starts version {client}",
            sanitize_line(&daemon)
        )),
        Notice::ConnectionLost => console.note("lost the connection to pushd; reconnecting"),
        Notice::DaemonStopped => {
            console.warn("pushd was stopped; waiting for its next start (`push daemon start`)");
        }
        Notice::Reconnected => console.note("reconnected to pushd; no events were lost"),
    }
}
