//! `push restore`: puts the data of a backup in place.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::backup::{DATABASE, OTHER_FILES};
use super::backup_file::{self, Manifest};
use super::context::Context;
use super::daemon;
use super::exit::{CliError, Exit};
use super::format::count;
use super::os;
use super::purge::lock_state;
use super::sanitize::sanitize_line;
use crate::journal::backup;

/// Restore the data of a backup
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Refuses to replace existing data. With --force the daemon is stopped, and the whole state directory is renamed and kept beside the new one.\n\nExamples:\n  push restore ~/push.backup\n  push restore ~/push.backup --force"
)]
pub(crate) struct RestoreArgs {
    /// The file that `push backup` wrote
    file: PathBuf,
    /// Replace existing data, which is set aside; active runs are stopped
    #[arg(long, short)]
    force: bool,
}

/// Restores a backup.
pub(crate) async fn run(args: RestoreArgs, context: &mut Context) -> Result<Exit, CliError> {
    let unreadable = |source| CliError::File { action: "read", what: args.file.display().to_string(), source };
    File::open(&args.file).map_err(unreadable)?;
    let state = context.paths()?.state;
    let has_data = || [DATABASE].iter().chain(&OTHER_FILES).any(|name| state.join(name).exists());
    if has_data() && !args.force {
        let what = sanitize_line(&state.display().to_string());
        return Err(CliError::Usage(format!("{what} has data; --force sets it aside and restores the backup")));
    }
    let parent = state.parent().unwrap_or(&state);
    let unwritable = |source| CliError::File { action: "write", what: parent.display().to_string(), source };
    let unpacked = parent.join(format!("state.restored-{}", ulid::Ulid::generate()));
    os::create_private_dir(&unpacked).map_err(unwritable)?;
    let unpack = unpack(&args.file, &unpacked);
    let manifest = match unpack {
        Ok(manifest) => manifest,
        Err(error) => {
            // Best effort: the error is what is reported.
            let _ = fs::remove_dir_all(&unpacked);
            return Err(error);
        }
    };
    daemon::stop(args.force, context).await?;
    // The lock of the new state keeps a daemon from using it before it is complete.
    let lock = unpacked.join("pushd.lock");
    os::create_private_file(&lock).map_err(unwritable)?;
    let _new = lock_state(&lock)?;
    let _old = lock_state(&state.join("pushd.lock"))?;
    if state.exists() {
        let aside = parent.join(format!("state.replaced-{}", ulid::Ulid::generate()));
        fs::rename(&state, &aside).map_err(unwritable)?;
        if has_anything(&aside) {
            let aside = sanitize_line(&aside.display().to_string());
            context.console.notice(&format!("the data that was there is in {aside}"));
        }
    }
    fs::rename(&unpacked, &state).map_err(unwritable)?;
    let (sessions, events) = (count(manifest.sessions, "session"), count(manifest.events, "event"));
    context.console.line(&format!("restored {sessions}, {events}"))?;
    Ok(Exit::SUCCESS)
}

fn has_anything(directory: &Path) -> bool {
    let names = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|name| name != "pushd.lock").count() > 0
}

/// Unpacks a backup into an empty directory, and checks everything.
fn unpack(path: &Path, to: &Path) -> Result<Manifest, CliError> {
    let unreadable = |source| CliError::File { action: "restore", what: path.display().to_string(), source };
    let mut file = File::open(path).map_err(unreadable)?;
    let manifest = backup_file::read_manifest(&mut file).map_err(unreadable)?;
    if !backup::is_readable(manifest.schema) {
        let Manifest { version, schema, .. } = &manifest;
        let why = format!("version {version} wrote it with the schema {schema}; install a newer version to restore it");
        return Err(unreadable(io::Error::other(why)));
    }
    for part in &manifest.files {
        // Only known names are written, so that no name leads elsewhere.
        if part.name != DATABASE && !OTHER_FILES.contains(&part.name.as_str()) {
            return Err(unreadable(io::Error::other(format!("it holds an unknown file {:?}", part.name))));
        }
        let mut out = os::create_private_file(&to.join(&part.name)).map_err(unreadable)?;
        backup_file::read_part(&mut file, part, &mut out).map_err(unreadable)?;
        out.flush().and_then(|()| out.sync_all()).map_err(unreadable)?;
    }
    let found = backup::check_copy(&to.join(DATABASE))?;
    if (found.sessions, found.events) != (manifest.sessions, manifest.events) {
        return Err(unreadable(io::Error::other("its manifest does not describe its database")));
    }
    backup::write_marks(to)?;
    Ok(manifest)
}
