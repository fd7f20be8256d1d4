//! Systems on which nothing is known to lie in memory and to outlive its process: nothing is written ahead there.

use std::fs::File;
use std::io;
use std::path::Path;

/// Says no.
pub(super) const fn is_memory(_place: &Path) -> bool {
    false
}

/// Finds nothing.
pub(super) const fn open(_path: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

/// Makes nothing.
pub(super) fn make(_path: &Path) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Says no.
pub(super) const fn is_there(_file: &File) -> bool {
    false
}

/// Names nobody.
pub(super) const fn user() -> &'static str {
    "nobody"
}
