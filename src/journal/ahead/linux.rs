//! Files that lie in memory, on Linux: those of a `tmpfs`.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::unistd::geteuid;

/// Tells whether what is written there costs no disk.
pub(super) fn is_memory(place: &Path) -> bool {
    statfs(place).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC)
}

/// Opens a file that is ours alone; one that somebody else has put there is refused.
pub(super) fn open(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlag::O_NOFOLLOW.bits();
    let opened = match OpenOptions::new().read(true).write(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        outcome => outcome?,
    };
    if is_ours(&opened.metadata()?) { Ok(Some(opened)) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Makes a file that was not there.
pub(super) fn make(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Tells whether a file still has its name: where it is gone, the next life would not find it.
pub(super) fn is_there(file: &File) -> bool {
    file.metadata().is_ok_and(|about| about.nlink() > 0)
}

/// Names the user.
pub(super) fn user() -> String {
    geteuid().to_string()
}

fn is_ours(about: &Metadata) -> bool {
    about.is_file() && about.uid() == geteuid().as_raw() && about.mode() & 0o077 == 0 && about.nlink() == 1
}
