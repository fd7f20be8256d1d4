//! The files of a Unix socket: its directory, the lock, the pid file.
//!
//! No symbolic link is followed, and no file of another user is used, changed or removed.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::libc::{O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK};
use nix::unistd::geteuid;

use super::super::{BindError, DirectoryKind, failed};

/// The identity of a file, which distinguishes it from another file of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    pub(super) fn of(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino() }
    }
}

/// Ensures that `directory` exists, is a real directory owned by this user, and has mode 0700.
pub(super) fn prepare_directory(directory: &Path, whose: DirectoryKind) -> Result<(), BindError> {
    let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    if fs::symlink_metadata(directory).is_err_and(|error| missing(&error)) {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory).map_err(failed("create", directory))?;
    }
    let metadata = fs::symlink_metadata(directory).map_err(failed("inspect", directory))?;
    if metadata.file_type().is_symlink() {
        return Err(BindError::SymbolicLink { path: directory.to_owned() });
    }
    if !metadata.is_dir() {
        return Err(BindError::NotADirectory { path: directory.to_owned() });
    }
    check_owner(directory, &metadata)?;
    match (metadata.mode() & 0o077, whose) {
        (0, _) => Ok(()),
        (_, DirectoryKind::Default) => restrict_mode(directory, &metadata),
        (_, DirectoryKind::Custom) => {
            Err(BindError::TooOpen { path: directory.to_owned(), mode: metadata.mode() & 0o7777 })
        }
    }
}

/// Takes the lock at `path`; returns `None` if another process holds it.
pub(super) fn acquire_lock(path: &Path) -> Result<Option<File>, BindError> {
    for _ in 0..LOCK_ATTEMPTS {
        let file = open_lock(path)?;
        let ours = file.metadata().map_err(failed("inspect", path))?;
        if !ours.is_file() {
            return Err(BindError::NotAFile { path: path.to_owned() });
        }
        check_owner(path, &ours)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Ok(None),
            Err(fs::TryLockError::Error(error)) => return Err(failed("lock", path)(error)),
        }
        // A cleanup job may have removed the file meanwhile; a lock on an unlinked file excludes nobody.
        if fs::symlink_metadata(path).is_ok_and(|metadata| FileIdentity::of(&metadata) == FileIdentity::of(&ours)) {
            return Ok(Some(file));
        }
    }
    Err(failed("keep the lock", path)(io::ErrorKind::ResourceBusy.into()))
}

/// Replaces the pid file atomically, and returns it open.
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
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft).map_err(failed("create", draft))?;
    writeln!(file, "{}", std::process::id()).map_err(failed("write", draft))?;
    fs::rename(draft, path).map_err(failed("replace", path))?;
    Ok(file)
}

fn open_lock(path: &Path) -> Result<File, BindError> {
    let mut options = OpenOptions::new();
    // Nonblocking, because opening a FIFO would otherwise block until its other end is opened.
    options.read(true).write(true).create(true).mode(0o600).custom_flags(O_NOFOLLOW | O_NONBLOCK);
    options.open(path).map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ELOOP) => BindError::SymbolicLink { path: path.to_owned() },
        Some(Errno::EISDIR | Errno::ENXIO | Errno::EOPNOTSUPP) => BindError::NotAFile { path: path.to_owned() },
        _ => failed("open", path)(error),
    })
}

fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), BindError> {
    if metadata.uid() == geteuid().as_raw() {
        return Ok(());
    }
    Err(BindError::OtherOwner { path: path.to_owned(), uid: metadata.uid() })
}

/// Restricts the mode of the default directory to 0700.
fn restrict_mode(directory: &Path, seen: &Metadata) -> Result<(), BindError> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(O_DIRECTORY | O_NOFOLLOW);
    let open = options.open(directory).map_err(failed("open", directory))?;
    // Through its descriptor, so that the checked directory is the one that is changed.
    let metadata = open.metadata().map_err(failed("inspect", directory))?;
    if FileIdentity::of(&metadata) != FileIdentity::of(seen) {
        return Err(BindError::NotADirectory { path: directory.to_owned() });
    }
    open.set_permissions(fs::Permissions::from_mode(0o700)).map_err(failed("restrict the mode of", directory))
}

/// How often the lock file may disappear before an error is returned.
const LOCK_ATTEMPTS: usize = 16;
