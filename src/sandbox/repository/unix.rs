//! Non-blocking open and file ownership, on Unix.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::unistd::geteuid;

/// Opens a file for reading; does not follow a link and does not block on a pipe.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)
}

/// Returns whether a file belongs to the user.
pub(super) fn is_owned_by_user(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.uid() == geteuid().as_raw())
}
