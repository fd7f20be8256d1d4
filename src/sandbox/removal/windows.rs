//! Removal on Windows, by the standard library; no confined step runs there that could fill a directory.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant;

use super::Removal;

/// Removes a directory in this process.
pub(super) fn remove_in_child(_program: &Path, path: &Path) -> io::Result<Removal> {
    remove_tree(path, Instant::now())
}

/// Removes a directory.
pub(super) fn remove_tree(path: &Path, _deadline: Instant) -> io::Result<Removal> {
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(Removal::Removed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Removal::Removed),
        Err(error) => Ok(Removal::Failed(error.to_string())),
    }
}

/// Does nothing.
pub(super) const fn lower_priority() {}
