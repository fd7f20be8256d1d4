//! Owners and file systems, on Windows: directories of a profile belong to its owner, and nothing else is checked.

use std::fs::Metadata;
use std::path::Path;

use super::storage::{DirectoryAccess, FileSystemInfo};

/// Returns who can access a directory.
pub(super) const fn access(_: &Metadata) -> DirectoryAccess {
    DirectoryAccess::Private
}

/// Returns none: file systems are not checked here.
pub(super) const fn file_system(_: &Path) -> Option<FileSystemInfo> {
    None
}
