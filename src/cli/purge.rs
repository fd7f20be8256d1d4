//! `push purge`: everything that was ever stored goes.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use super::confirm::Consent;
use super::context::Context;
use super::daemon;
use super::exit::{CliError, Exit};
use super::holdings::{self, Holding, Kind};
use super::phrase::size;
use super::plain::plain_line;
use crate::client::Request;
use crate::config::paths::Paths;

/// Remove everything that was ever stored: sessions, logs and leftovers
#[derive(Debug, clap::Args)]
#[command(after_help = "\
All sessions, the logs, and damaged files that were set aside. The daemon is stopped; the next command starts a fresh one. \
Files that are not pushd's are left where they are.

Examples:
  push purge
  push purge --yes
  push purge --yes --force        also while runs are active")]
pub(crate) struct PurgeArgs {
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Also while runs are active; they are cut short
    #[arg(long, short)]
    force: bool,
}

/// Removes everything.
pub(crate) async fn run(args: PurgeArgs, context: &mut Context) -> Result<Exit, CliError> {
    let consent = Consent::read(args.yes, context)?;
    let paths = context.paths()?;
    refuse_active_runs(args.force, context).await?;
    let question = question(&holdings::all(&paths), &paths);
    if !consent.asks(&question, context).await? {
        context.console.note("nothing was removed");
        return Ok(Exit::CANCELLED);
    }
    // What was asked may have taken a while.
    refuse_active_runs(args.force, context).await?;
    daemon::stop(args.force, context).await?;
    let _lock = claim(&paths.state.join("pushd.lock"))?;
    let mut bytes = 0_u64;
    for holding in holdings::all(&paths) {
        match holding.kind {
            Kind::Journal | Kind::SetAside | Kind::Log => {
                remove(&holding.path)?;
                bytes = bytes.saturating_add(holding.bytes);
            }
            Kind::Lock => {}
            Kind::Foreign => {
                let path = plain_line(&holding.path.display().to_string());
                context.console.warn(&format!("{path} is not pushd's and was left"));
            }
        }
    }
    // It stays where somebody else has put something into it.
    let _ = fs::remove_dir(&paths.logs);
    context.console.note(&format!("removed {}", size(bytes)));
    Ok(Exit::SUCCESS)
}

async fn refuse_active_runs(force: bool, context: &mut Context) -> Result<(), CliError> {
    let mut client = match context.client_if_running().await {
        Ok(client) => client,
        Err(error) if error.is_not_running() => return Ok(()),
        Err(error) => return Err(error),
    };
    let metrics = client.ask(Request::metrics()).await?;
    match metrics.get("activeRuns").and_then(serde_json::Value::as_u64) {
        Some(count) if count > 0 && !force => Err(CliError::RunsActive { count }),
        Some(_) | None => Ok(()),
    }
}

fn question(holdings: &[Holding], paths: &Paths) -> String {
    let line = |what: &str, kind, directory: &Path| {
        let (files, bytes) = holdings::sum(holdings, kind);
        let directory = plain_line(&directory.display().to_string());
        (files > 0).then(|| format!("  {:>10}  {what} ({files} in {directory})\n", size(bytes)))
    };
    let lines = [
        line("all sessions", Kind::Journal, &paths.state),
        line("damaged journals that were set aside", Kind::SetAside, &paths.state),
        line("logs", Kind::Log, &paths.logs),
    ];
    lines.into_iter().flatten().collect::<String>() + "remove all of it, for good? [y/n]"
}

/// Takes the lock of the state, so that no daemon begins to use it meanwhile; none is needed where there is no state.
fn claim(path: &Path) -> Result<Option<File>, CliError> {
    let name = || plain_line(&path.display().to_string());
    let file = match File::options().write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(CliError::File { action: "open", what: name(), source }),
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(CliError::StateInUse { lock: name() }),
        Err(TryLockError::Error(source)) => Err(CliError::File { action: "lock", what: name(), source }),
    }
}

fn remove(path: &Path) -> Result<(), CliError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            let what = plain_line(&path.display().to_string());
            Err(CliError::File { action: "remove", what, source })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
