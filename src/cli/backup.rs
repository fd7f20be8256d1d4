//! `push backup`: copies everything that is stored into one file, while the daemon runs.
//!
//! The daemon is the only writer of its database; this verb reads a snapshot of it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::backup_file::{self, FORMAT, Manifest, Part};
use super::context::{Context, now};
use super::exit::{CliError, Exit};
use super::format::{count, size};
use super::os;
use crate::client::Request;
use crate::journal::backup::{self, CopyInfo};

/// The files of the state directory that a backup holds besides the database, where they exist.
pub(crate) const OTHER_FILES: [&str; 3] = ["tokens.json", "approvals.json", "session-files.json"];
/// The database.
pub(crate) const DATABASE: &str = "pushd.db";

/// Copy all stored data into one file, while the daemon runs
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Holds all sessions, the digests of tokens, remembered approvals, and which Pi session files belong to which session. \
Configuration, keys of providers, logs and Pi session files are not part of it.\n\nExamples:\n  push backup ~/push.backup\n  push backup /mnt/disk/push-$(date +%F).backup"
)]
pub(crate) struct BackupArgs {
    /// The file to write; it must not exist
    file: PathBuf,
}

/// Writes a backup.
pub(crate) async fn run(args: BackupArgs, context: &mut Context) -> Result<Exit, CliError> {
    let unwritable = |source| CliError::File { action: "write", what: args.file.display().to_string(), source };
    if args.file.symlink_metadata().is_ok() {
        return Err(unwritable(exists_already()));
    }
    // A daemon that starts stores what an earlier one left behind.
    context.client().await?.request(Request::metrics()).await?;
    let state = context.paths()?.state;
    let temporary = TemporaryFile::create(&args.file).map_err(unwritable)?;
    let copied = backup::copy_database(&state, &temporary.path)?;
    let manifest = complete(&state, &temporary.path, copied).map_err(unwritable)?;
    verify(&temporary.path, &manifest).map_err(unwritable)?;
    // Unlike a rename, a link fails if somebody else has created the file meanwhile.
    fs::hard_link(&temporary.path, &args.file)
        .or_else(|_| if args.file.exists() { Err(exists_already()) } else { fs::rename(&temporary.path, &args.file) })
        .map_err(unwritable)?;
    let bytes = fs::metadata(&args.file).map_err(unwritable)?.len();
    let (sessions, events) = (count(manifest.sessions, "session"), count(manifest.events, "event"));
    context.console.line(&format!("{sessions}, {events}, {}", size(bytes)))?;
    Ok(Exit::SUCCESS)
}

fn exists_already() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "it exists already; name another file")
}

/// Appends the other files and the manifest to the copied database.
fn complete(state: &Path, path: &Path, copied: CopyInfo) -> io::Result<Manifest> {
    let mut files: Vec<Part> = vec![backup_file::describe(DATABASE, File::open(path)?)?];
    let mut out = OpenOptions::new().append(true).open(path)?;
    for name in OTHER_FILES {
        let content = match fs::read(state.join(name)) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        files.push(backup_file::describe(name, content.as_slice())?);
        out.write_all(&content)?;
    }
    let CopyInfo { schema, sessions, events } = copied;
    let (format, version, created_at) = (FORMAT.to_owned(), env!("CARGO_PKG_VERSION").to_owned(), now());
    let manifest = Manifest { format, version, created_at, schema, sessions, events, files };
    backup_file::write_end(&manifest, &mut out)?;
    out.sync_all()?;
    Ok(manifest)
}

/// Reads the whole file back.
fn verify(path: &Path, written: &Manifest) -> io::Result<()> {
    let mut file = File::open(path)?;
    if backup_file::read_manifest(&mut file)? != *written {
        return Err(io::Error::other("what was written cannot be read back"));
    }
    written.files.iter().try_for_each(|part| backup_file::read_part(&mut file, part, &mut io::sink()))
}

/// A file beside the target, removed at the end.
struct TemporaryFile {
    path: PathBuf,
}

impl TemporaryFile {
    fn create(target: &Path) -> io::Result<Self> {
        let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
        let path = target.with_file_name(format!(".{name}.{}", ulid::Ulid::generate()));
        os::create_private_file(&path)?;
        Ok(Self { path })
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // Best effort; after a rename nothing is there.
        let _ = fs::remove_file(&self.path);
    }
}
