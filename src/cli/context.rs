//! Shared context of all verbs: the console, the paths and the connection to the daemon.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::answer::{AnswerSource, AnswerView};
use super::console::{ColorChoice, Console, Palette, Verbosity};
use super::exit::CliError;
use super::host::Target;
use super::sanitize::sanitize_line;
use super::view::{Echo, Reasoning, View};
use crate::client::{
    self, Client, ClientConfig, DaemonCommand, Endpoint, LocalEndpoint, MissingDaemon, Notice, RequestError,
    UnreachableError,
};
use crate::config::paths::Paths;
use crate::tui::{self, Theme};

/// How long to try to reconnect after a lost connection.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for a daemon on another machine: a network may take longer to return than a daemon.
const REMOTE_RECONNECT_TIMEOUT: Duration = Duration::from_secs(300);

/// Shared context of all verbs.
pub(crate) struct Context {
    /// The standard streams.
    pub(crate) console: Console,
    color: ColorChoice,
    target: Target,
    /// Where notices of the connection go while a view has the terminal; else they are printed.
    notices: Arc<Mutex<Option<UnboundedSender<Notice>>>>,
}

impl Context {
    /// Uses the standard streams of the process.
    pub(crate) fn new(color: ColorChoice, volume: Verbosity, target: Target) -> Self {
        Self { console: Console::standard(color, volume), color, target, notices: Arc::default() }
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

    /// Returns whether the inline view is used: at a terminal that can show it, unless it is declined.
    pub(crate) fn uses_inline_view(&self, plain: bool) -> bool {
        let is_declined = plain || std::env::var_os("PUSH_PLAIN").is_some_and(|value| !value.is_empty());
        !is_declined && self.console.verbosity != Verbosity::Quiet && tui::is_usable()
    }

    /// Passes notices of the connection on, for a view that has the terminal.
    pub(crate) fn route_notices(&self) -> UnboundedReceiver<Notice> {
        let (sender, receiver) = unbounded_channel();
        *self.notices.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        receiver
    }

    /// Returns the styles of the inline view.
    pub(crate) fn theme(&self) -> Theme {
        match self.console.palette {
            Palette::Plain => Theme::plain(),
            Palette::Colored if has_light_background() => Theme::light(),
            Palette::Colored => Theme::dark(),
        }
    }

    /// Returns the value of `--host` that stands for the same machine.
    pub(crate) fn host_argument(&self) -> String {
        match &self.target {
            Target::Local => "local".to_owned(),
            Target::Ssh(ssh) => ssh.host.to_string(),
        }
    }

    /// Returns whether the daemon is on another machine.
    pub(crate) const fn is_remote(&self) -> bool {
        matches!(self.target, Target::Ssh(_))
    }

    async fn connect(&self, on_missing: MissingDaemon) -> Result<Client, CliError> {
        // The client reports notices at any time, also while a verb borrows the console.
        let mut notes = Console::standard(self.color, self.console.verbosity);
        let route = Arc::clone(&self.notices);
        let (endpoint, environment, reconnect_timeout) = match &self.target {
            Target::Local => {
                let environment = client::collect_environment(std::env::vars_os());
                let local = LocalEndpoint { address: self.paths()?.address(), on_missing };
                (Endpoint::Local(local), Some(environment), RECONNECT_TIMEOUT)
            }
            // The environment of this machine is not that of the other one.
            Target::Ssh(ssh) => (Endpoint::Ssh(ssh.clone()), None, REMOTE_RECONNECT_TIMEOUT),
        };
        let place = match &self.target {
            Target::Local => String::new(),
            Target::Ssh(ssh) => format!(" at {}", ssh.host),
        };
        Ok(Client::open(ClientConfig {
            endpoint,
            version: env!("CARGO_PKG_VERSION"),
            environment,
            reconnect_timeout,
            on_notice: Box::new(move |notice| {
                let route = route.lock().unwrap_or_else(PoisonError::into_inner);
                match route.as_ref() {
                    // The view has ended if nobody receives it.
                    Some(view) => drop(view.send(notice)),
                    None => print_notice(&mut notes, notice, &place),
                }
            }),
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

/// Returns whether the terminal reports a light background: the last part of `COLORFGBG` is its colour.
fn has_light_background() -> bool {
    let colors = std::env::var("COLORFGBG").unwrap_or_default();
    matches!(colors.rsplit(';').next(), Some("7" | "15"))
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

/// Prints a notice; `place` says which machine the daemon is on, if it is another one.
fn print_notice(console: &mut Console, notice: Notice, place: &str) {
    match notice {
        Notice::Starting => console.note("starting pushd"),
        Notice::VersionMismatch { client, daemon } => {
            let remedy = match place {
                "" => format!("`push daemon restart` starts version {client}"),
                _ => "install the same version on both machines".to_owned(),
            };
            let daemon = sanitize_line(&daemon);
            console.warn(&format!("pushd{place} is version {daemon}, this is {client}; {remedy}"));
        }
        Notice::ConnectionLost => console.note(&format!("lost the connection to pushd{place}; reconnecting")),
        Notice::DaemonStopped => {
            console.warn(&format!("pushd{place} was stopped; waiting for its next start (`push daemon start`)"));
        }
        Notice::Reconnected => console.note(&format!("reconnected to pushd{place}; no events were lost")),
    }
}
