//! The ground a Unix socket stands on: its directory, the lock, the pid file.
//!
//! Nothing here follows a symbolic link, and nothing that belongs to somebody else is used, changed or removed.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::libc::{O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK};
use nix::unistd::geteuid;

use super::super::{BindError, Directory, failed};

/// What tells one file from another of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub(super) fn of(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino() }
    }
}

/// Makes sure that `directory` is there, real, ours, and closed to everybody else.
pub(super) fn prepare(directory: &Path, whose: Directory) -> Result<(), BindError> {
    let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    if fs::symlink_metadata(directory).is_err_and(|error| missing(&error)) {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory).map_err(failed("create", directory))?;
    }
    let there = fs::symlink_metadata(directory).map_err(failed("look at", directory))?;
    if there.file_type().is_symlink() {
        return Err(BindError::Linked { path: directory.to_owned() });
    }
    if !there.is_dir() {
        return Err(BindError::NotADirectory { path: directory.to_owned() });
    }
    check_owner(directory, &there)?;
    match (there.mode() & 0o077, whose) {
        (0, _) => Ok(()),
        (_, Directory::Default) => close(directory, &there),
        (_, Directory::Chosen) => {
            Err(BindError::TooOpen { path: directory.to_owned(), mode: there.mode() & 0o7777 })
        }
    }
}

/// Takes the lock at `path`, or says `None` where another process has it.
pub(super) fn lock(path: &Path) -> Result<Option<File>, BindError> {
    for _ in 0..TRIES {
        let file = open_lock(path)?;
        let ours = file.metadata().map_err(failed("look at", path))?;
        if !ours.is_file() {
            return Err(BindError::NotAFile { path: path.to_owned() });
        }
        check_owner(path, &ours)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Ok(None),
            Err(fs::TryLockError::Error(error)) => return Err(failed("lock", path)(error)),
        }
        // Whoever cleans up directories may have removed the file meanwhile; a lock nobody else can find is none.
        if fs::symlink_metadata(path).is_ok_and(|there| Identity::of(&there) == Identity::of(&ours)) {
            return Ok(Some(file));
        }
    }
    Err(failed("keep hold of", path)(io::ErrorKind::ResourceBusy.into()))
}

/// Writes the pid file, all of it at once, and returns it open.
pub(super) fn write_pid(path: &Path) -> Result<File, BindError> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = Path::new(&draft);
    match fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed("remove", draft)(error));
        }
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(draft)
        .map_err(failed("create", draft))?;
    writeln!(file, "{}", std::process::id()).map_err(failed("write", draft))?;
    fs::rename(draft, path).map_err(failed("put in place", path))?;
    Ok(file)
}

fn open_lock(path: &Path) -> Result<File, BindError> {
    let mut options = OpenOptions::new();
    // Nonblocking, because a pipe put there would otherwise hold us until somebody opens its other end.
    options.read(true).write(true).create(true).mode(0o600).custom_flags(O_NOFOLLOW | O_NONBLOCK);
    options.open(path).map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ELOOP) => BindError::Linked { path: path.to_owned() },
        Some(Errno::EISDIR | Errno::ENXIO | Errno::EOPNOTSUPP) => {
            BindError::NotAFile { path: path.to_owned() }
        }
        _ => failed("open", path)(error),
    })
}

fn check_owner(path: &Path, there: &Metadata) -> Result<(), BindError> {
    if there.uid() == geteuid().as_raw() {
        return Ok(());
    }
    Err(BindError::Foreign { path: path.to_owned(), uid: there.uid() })
}

/// Closes our own directory to everybody else.
fn close(directory: &Path, seen: &Metadata) -> Result<(), BindError> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(O_DIRECTORY | O_NOFOLLOW);
    let open = options.open(directory).map_err(failed("open", directory))?;
    // By its descriptor, so that what was looked at is what is changed.
    let there = open.metadata().map_err(failed("look at", directory))?;
    if Identity::of(&there) != Identity::of(seen) {
        return Err(BindError::NotADirectory { path: directory.to_owned() });
    }
    open.set_permissions(fs::Permissions::from_mode(0o700)).map_err(failed("close to others", directory))
}

/// How often a lock may vanish under our hands before we say so.
const TRIES: usize = 16;
