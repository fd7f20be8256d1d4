//! Files of the user's profile, on Windows: what lies there is its user's.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

/// Makes a directory.
pub(super) fn private_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Opens a file, and makes it when it is not there.
pub(super) fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).open(path)
}

/// Opens a file to read it.
pub(super) fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Takes a file as private, as the user's profile is.
pub(super) const fn is_private(_about: &Metadata) -> bool {
    true
}

/// Does nothing: names are durable with their files.
#[expect(clippy::unnecessary_wraps, reason = "it can fail elsewhere")]
pub(super) const fn sync_directory(_path: &Path) -> io::Result<()> {
    Ok(())
}
