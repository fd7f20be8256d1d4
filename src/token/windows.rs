//! Files in the user's profile, on Windows, which belong to the user.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

/// Creates a directory.
pub(super) fn create_private_dir(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Opens or creates a file.
pub(super) fn open_private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).open(path)
}

/// Opens a file for reading.
pub(super) fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Treats every file as private, since the user's profile is.
pub(super) const fn is_private(_about: &Metadata) -> bool {
    true
}

/// Does nothing: directory entries are durable with their files.
#[expect(clippy::unnecessary_wraps, reason = "it can fail elsewhere")]
pub(super) const fn sync_directory(_path: &Path) -> io::Result<()> {
    Ok(())
}
