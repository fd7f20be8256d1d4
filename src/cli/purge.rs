//! `push purge`: removes all stored data.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use super::confirm::Confirmation;
use super::context::Context;
use super::daemon;
use super::disk_usage::{self, FileKind, StoredFile};
use super::exit::{CliError, Exit};
use super::format::{count, size};
use super::pi_files::PiFiles;
use super::sanitize::sanitize_line;
use crate::client::Request;
use crate::config::paths::Paths;
use crate::sandbox::caches;

/// Remove all stored data: sessions, tokens, remembered approvals, logs and caches
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Removes all sessions, tokens, remembered approvals, logs, private caches of workspaces, and damaged journal files that were set aside. Stops the daemon; the next command starts a new one. \
Also removes Pi session files that pushd created; imported files are listed and kept, unless --with-pi-files is given. \
Files that do not belong to pushd are kept.

Examples:
  push purge
  push purge --yes
  push purge --yes --force        also while runs are active")]
pub(crate) struct PurgeArgs {
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Also remove imported Pi session files, which other programs created
    #[arg(long)]
    with_pi_files: bool,
    /// Also while runs are active; they are stopped
    #[arg(long, short)]
    force: bool,
}

/// Removes all stored data.
pub(crate) async fn run(args: PurgeArgs, context: &mut Context) -> Result<Exit, CliError> {
    let consent = Confirmation::from_flag(args.yes, context)?;
    let paths = context.paths()?;
    refuse_active_runs(args.force, context).await?;
    let files = PiFiles::read(&paths.state, context);
    let found = stored_files(&paths);
    // Counted once, since a stopping daemon moves its write-ahead log into the database.
    let counted = removable_bytes(&found);
    let in_all = counted.saturating_add(files.bytes(args.with_pi_files));
    let question = confirmation_prompt(&found, &paths, &files.prompt_lines(args.with_pi_files), in_all);
    if !consent.confirm(&question, context).await? {
        context.console.note("cancelled; nothing was removed");
        return Ok(Exit::CANCELLED);
    }
    // Runs may have started while the prompt was open.
    refuse_active_runs(args.force, context).await?;
    daemon::stop(args.force, context).await?;
    let _lock = lock_state(&paths.state.join("pushd.lock"))?;
    // Read again, since the daemon may have changed the index.
    let files = PiFiles::read(&paths.state, context);
    let bytes = counted.saturating_add(files.remove(args.with_pi_files, context));
    for holding in stored_files(&paths) {
        match holding.kind {
            FileKind::Journal | FileKind::SetAside | FileKind::Token | FileKind::Grant | FileKind::Log => {
                remove(&holding.path)?
            }
            FileKind::Cache => {
                let removed = caches::remove(&holding.path);
                removed.map_err(|source| cannot_remove(&holding.path, source))?;
            }
            FileKind::Lock => {}
            FileKind::Foreign => {
                let path = sanitize_line(&holding.path.display().to_string());
                context.console.warn(&format!("{path} does not belong to pushd and was kept"));
            }
        }
    }
    // Fails if the directory contains other files, which are kept.
    let _ = fs::remove_dir(&paths.logs);
    let _ = fs::remove_dir(paths.caches_dir());
    context.console.note(&format!("removed {}", size(bytes)));
    Ok(Exit::SUCCESS)
}

async fn refuse_active_runs(force: bool, context: &mut Context) -> Result<(), CliError> {
    let mut client = match context.client_if_running().await {
        Ok(client) => client,
        Err(error) if error.is_not_running() => return Ok(()),
        Err(error) => return Err(error),
    };
    let metrics = client.request(Request::metrics()).await?;
    match metrics.active_runs {
        Some(count) if count > 0 && !force => Err(CliError::RunsActive { count }),
        Some(_) | None => Ok(()),
    }
}

/// Lists all stored files, including private caches.
fn stored_files(paths: &Paths) -> Vec<StoredFile> {
    let mut found = disk_usage::list(paths);
    found.extend(disk_usage::private_caches(paths));
    found
}

/// Returns the total size of the files to remove.
fn removable_bytes(holdings: &[StoredFile]) -> u64 {
    let kinds =
        [FileKind::Journal, FileKind::SetAside, FileKind::Token, FileKind::Grant, FileKind::Log, FileKind::Cache];
    kinds.into_iter().fold(0, |sum, kind| sum.saturating_add(disk_usage::total(holdings, kind).1))
}

fn confirmation_prompt(holdings: &[StoredFile], paths: &Paths, files: &str, in_all: u64) -> String {
    let line = |what: &str, kind, directory: &Path| {
        let (files, bytes) = disk_usage::total(holdings, kind);
        let directory = sanitize_line(&directory.display().to_string());
        let files = u64::try_from(files).unwrap_or(u64::MAX);
        (files > 0).then(|| format!("  {:>10}  {what} ({} in {directory})\n", size(bytes), count(files, "file")))
    };
    let lines = [
        line("all sessions", FileKind::Journal, &paths.state),
        line("damaged journal files that were set aside", FileKind::SetAside, &paths.state),
        line("tokens", FileKind::Token, &paths.state),
        line("remembered approvals", FileKind::Grant, &paths.state),
        line("logs", FileKind::Log, &paths.logs),
        line("private caches of workspaces", FileKind::Cache, &paths.caches_dir()),
    ];
    let in_all = format!("  {:>10}  total\n", size(in_all));
    lines.into_iter().flatten().collect::<String>() + files + &in_all + "remove all of it, permanently? [y/n]"
}

/// Takes the lock of the state directory, so that no daemon starts to use it; none if there is no state.
pub(crate) fn lock_state(path: &Path) -> Result<Option<File>, CliError> {
    let name = || sanitize_line(&path.display().to_string());
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
    CliError::File { action: "remove", what: sanitize_line(&path.display().to_string()), source }
}
