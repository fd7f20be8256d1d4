//! `push purge`: everything that was ever stored goes.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use super::confirm::Consent;
use super::context::Context;
use super::daemon;
use super::exit::{CliError, Exit};
use super::holdings::{self, Holding, Kind};
use super::phrase::{count, size};
use super::pi_files::PiFiles;
use super::plain::plain_line;
use crate::client::Request;
use crate::config::paths::Paths;
use crate::sandbox::caches;

/// Remove everything that was ever stored: sessions, tokens, approvals, logs and leftovers
#[derive(Debug, clap::Args)]
#[command(after_help = "\
All sessions, tokens, approvals that were given for always, the logs, private caches of workspaces, and damaged files that were set aside. The daemon is stopped; the next command starts a fresh one. \
Pi session files that pushd created go too; those that were imported are listed and stay, unless --with-pi-files is given. \
Files that are not pushd's are left where they are.

Examples:
  push purge
  push purge --yes
  push purge --yes --force        also while runs are active")]
pub(crate) struct PurgeArgs {
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Also remove Pi session files that other programs created and that were imported
    #[arg(long)]
    with_pi_files: bool,
    /// Also while runs are active; they are cut short
    #[arg(long, short)]
    force: bool,
}

/// Removes everything.
pub(crate) async fn run(args: PurgeArgs, context: &mut Context) -> Result<Exit, CliError> {
    let consent = Consent::read(args.yes, context)?;
    let paths = context.paths()?;
    refuse_active_runs(args.force, context).await?;
    let files = PiFiles::read(&paths.state, context);
    let question = question(&everything(&paths), &paths, &files.question(args.with_pi_files));
    if !consent.asks(&question, context).await? {
        context.console.note("nothing was removed");
        return Ok(Exit::CANCELLED);
    }
    // What was asked may have taken a while.
    refuse_active_runs(args.force, context).await?;
    daemon::stop(args.force, context).await?;
    let _lock = claim(&paths.state.join("pushd.lock"))?;
    // Read again: the daemon may have written meanwhile.
    let files = PiFiles::read(&paths.state, context);
    let mut bytes = files.remove(args.with_pi_files, context);
    for holding in everything(&paths) {
        match holding.kind {
            Kind::Journal | Kind::SetAside | Kind::Token | Kind::Grant | Kind::Log => {
                remove(&holding.path)?;
                bytes = bytes.saturating_add(holding.bytes);
            }
            Kind::Cache => {
                let removed = caches::remove(&holding.path);
                removed.map_err(|source| cannot_remove(&holding.path, source))?;
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
    let _ = fs::remove_dir(paths.caches());
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

/// What is stored, private caches included.
fn everything(paths: &Paths) -> Vec<Holding> {
    let mut found = holdings::all(paths);
    found.extend(holdings::private_caches(paths));
    found
}

fn question(holdings: &[Holding], paths: &Paths, files: &str) -> String {
    let line = |what: &str, kind, directory: &Path| {
        let (files, bytes) = holdings::sum(holdings, kind);
        let directory = plain_line(&directory.display().to_string());
        let files = u64::try_from(files).unwrap_or(u64::MAX);
        (files > 0)
            .then(|| format!("  {:>10}  {what} ({} in {directory})\n", size(bytes), count(files, "file")))
    };
    let lines = [
        line("all sessions", Kind::Journal, &paths.state),
        line("damaged journals that were set aside", Kind::SetAside, &paths.state),
        line("tokens", Kind::Token, &paths.state),
        line("approvals that were given for always", Kind::Grant, &paths.state),
        line("logs", Kind::Log, &paths.logs),
        line("private caches of workspaces", Kind::Cache, &paths.caches()),
    ];
    lines.into_iter().flatten().collect::<String>() + files + "remove all of it, for good? [y/n]"
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
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(cannot_remove(path, source)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn cannot_remove(path: &Path, source: io::Error) -> CliError {
    CliError::File { action: "remove", what: plain_line(&path.display().to_string()), source }
}
