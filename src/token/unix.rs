//! Owner-only files, on Unix.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::libc::{O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK};
use nix::unistd::geteuid;

/// Creates a directory with mode 0700; an existing one is not changed.
pub(super) fn create_private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Opens or creates a file with mode 0600; links are not followed.
pub(super) fn open_private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    options.custom_flags(O_NOFOLLOW | O_CLOEXEC).open(path)
}

/// Opens a file for reading; links are not followed, and a FIFO does not block.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC).open(path)
}

/// Returns whether a file belongs to this user and no other user can read or change it.
pub(super) fn is_private(about: &Metadata) -> bool {
    about.is_file() && about.mode() & 0o077 == 0 && about.uid() == geteuid().as_raw()
}

/// Makes the entries of a directory durable.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
