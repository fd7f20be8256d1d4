//! Owner-only files, on Unix.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::libc::O_NOFOLLOW;
use nix::unistd::geteuid;

/// Returns the options that open a file for writing: mode 0600, and no link is followed.
pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600).custom_flags(O_NOFOLLOW);
    options
}

/// Creates a directory with mode 0700; an existing one is not changed.
pub(super) fn create_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Returns whether a file belongs to this user and no other user can read or change it.
pub(super) fn is_private(about: &Metadata) -> bool {
    about.mode() & 0o077 == 0 && about.uid() == geteuid().as_raw()
}

/// Makes the entries of a directory durable.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
