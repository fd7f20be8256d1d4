//! Files in the user's profile, on Windows, which belong to the user.

use std::fs::{self, Metadata, OpenOptions};
use std::io;
use std::path::Path;

/// Returns the options that open a file for writing.
pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    options
}

/// Creates a directory.
pub(super) fn create_dir(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
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
