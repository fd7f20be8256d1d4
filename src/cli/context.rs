//! Shared context of all verbs: the console, the paths and the connection to the daemon.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::answer::{AnswerSource, AnswerView};
use super::console::{ColorChoice, Console, Palette, Volume};
use super::exit::CliError;
use super::plain::plain_line;
use super::view::{Echo, Thoughts, View};
use crate::client::{self, AskError, Client, Launch, Missing, Notice, Settings, Unreachable};
use crate::config::paths::Paths;

/// How long to try to reconnect after a lost connection.
const PATIENCE: Duration = Duration::from_secs(30);

/// Shared context of all verbs.
pub(crate) struct Context {
    /// The standard streams.
    pub(crate) console: Console,
    color: ColorChoice,
}

impl Context {
    /// Uses the standard streams of the process.
    pub(crate) fn new(color: ColorChoice, volume: Volume) -> Self {
        Self { console: Console::standard(color, volume), color }
    }

    /// Connects to the daemon and starts it if it is not running.
    pub(crate) async fn client(&self) -> Result<Client, CliError> {
        self.connect(start_this_program()?).await
    }

    /// Connects to the daemon if it is running.
    pub(crate) async fn client_if_running(&self) -> Result<Client, CliError> {
        self.connect(Missing::Leave).await
    }

    /// Returns the paths of the user's directories and files.
    pub(crate) fn paths(&self) -> Result<Paths, CliError> {
        Ok(Paths::in_existing_home(&|name| std::env::var_os(name))?)
    }

    /// Returns a view of events as text.
    pub(crate) fn view(&self, echo: Echo) -> View {
        view(self.console.palette, self.console.volume, echo)
    }

    /// Returns a view of one run that writes only the answer to standard output.
    pub(crate) fn answer_view(&self, source: AnswerSource) -> AnswerView {
        let console = &self.console;
        let view = view(console.notes_palette, console.volume, Echo::Nothing);
        AnswerView::new(source, console.volume, view)
    }

    async fn connect(&self, missing: Missing) -> Result<Client, CliError> {
        // The client reports notices at any time, also while a verb borrows the console.
        let mut notes = Console::standard(self.color, self.console.volume);
        Ok(Client::open(Settings {
            address: self.paths()?.address(),
            missing,
            version: env!("CARGO_PKG_VERSION"),
            environment: client::collect_environment(std::env::vars_os()),
            patience: PATIENCE,
            notices: Box::new(move |notice| tell(&mut notes, notice)),
        })
        .await?)
    }
}

fn view(palette: Palette, volume: Volume, echo: Echo) -> View {
    // Without colours reasoning looks like the answer, so it is shown with --verbose only.
    let thoughts = match (volume, palette) {
        (Volume::Verbose, _) | (Volume::Normal, Palette::Colored) => Thoughts::Shown,
        (Volume::Quiet, _) | (Volume::Normal, Palette::Plain) => Thoughts::Hidden,
    };
    View::new(palette, echo, thoughts)
}

/// Returns the command that starts the daemon: this executable.
fn start_this_program() -> Result<Missing, CliError> {
    let launch = Launch::this_program().map_err(|source| {
        AskError::from(Unreachable::Spawn {
            program: std::env::args_os().next().unwrap_or_default().into(),
            source,
        })
    })?;
    Ok(Missing::Start(launch))
}

/// Returns the time in milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn tell(console: &mut Console, notice: Notice) {
    match notice {
        Notice::Starting => console.note("starting pushd"),
        Notice::OtherVersion { client, daemon } => console.warn(&format!(
            "pushd is version {}, this is {client}; `push daemon restart` starts version {client}",
            plain_line(&daemon)
        )),
        Notice::Lost => console.note("lost the connection to pushd; reconnecting"),
        Notice::Stopped => {
            console.warn("pushd was stopped; waiting for its next start (`push daemon start`)");
        }
        Notice::Back => console.note("reconnected to pushd; no events were lost"),
    }
}
