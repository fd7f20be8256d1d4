//! In-memory files on Linux: those of a `tmpfs`.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::unistd::geteuid;

/// Returns whether a directory is on a `tmpfs`.
pub(super) fn is_tmpfs(place: &Path) -> bool {
    statfs(place).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC)
}

/// Opens a file that belongs to this user alone. A file of another user, with wider permissions or with several
/// links is refused.
pub(super) fn open(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlag::O_NOFOLLOW.bits();
    let opened = match OpenOptions::new().read(true).write(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        outcome => outcome?,
    };
    if is_ours(&opened.metadata()?) { Ok(Some(opened)) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Creates a file; fails if it exists.
pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Returns whether the file still has a name. The next epoch could not find an unlinked file.
pub(super) fn is_linked(file: &File) -> bool {
    file.metadata().is_ok_and(|about| about.nlink() > 0)
}

/// Returns the user id.
pub(super) fn user_id() -> String {
    geteuid().to_string()
}

fn is_ours(about: &Metadata) -> bool {
    about.is_file() && about.uid() == geteuid().as_raw() && about.mode() & 0o077 == 0 && about.nlink() == 1
}
