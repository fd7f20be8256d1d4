//! Files for their owner alone, on Unix.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::libc::{O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK};
use nix::unistd::geteuid;

/// Makes a directory for its owner alone; one that is there stays as it is.
pub(super) fn private_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Opens a file for its owner alone, and makes it when it is not there; a link is not followed.
pub(super) fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    options.custom_flags(O_NOFOLLOW | O_CLOEXEC).open(path)
}

/// Opens a file to read it; a link is not followed, and a pipe not waited for.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC).open(path)
}

/// Tells whether a file is ours, and nobody else can read or change it.
pub(super) fn is_private(about: &Metadata) -> bool {
    about.is_file() && about.mode() & 0o077 == 0 && about.uid() == geteuid().as_raw()
}

/// Makes the names in a directory durable.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
