//! Opening files on Windows, where git itself checks their owners.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Opens a file for reading, unless it is a link.
pub(super) fn open(path: &Path) -> io::Result<File> {
    if fs::symlink_metadata(path)?.is_symlink() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    File::open(path)
}

/// Returns `false`: git decides about every repository.
pub(super) fn is_owned_by_user(_path: &Path) -> bool {
    false
}
