//! Owners and file systems as Windows has them: a profile's directories are its owner's, and nothing else is looked up.

use std::fs::Metadata;
use std::path::Path;

use super::ground::{Access, FileSystem};

/// Tells who may use a directory.
pub(super) const fn access(_: &Metadata) -> Access {
    Access::Closed
}

/// Looks at the file system at a path; it is not looked up here.
pub(super) const fn file_system(_: &Path) -> Option<FileSystem> {
    None
}
