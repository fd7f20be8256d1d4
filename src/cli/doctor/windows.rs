//! Owners and file systems as Windows has them: a profile's directories are its owner's, and nothing else is looked up.

use std::fs::Metadata;
use std::path::Path;

/// Who may use a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(dead_code, reason = "only Unix has modes and owners to look at")]
pub(super) enum Access {
    /// Its owner alone, who asks.
    Closed,
    /// Others too, by its mode.
    Open(u32),
    /// It is somebody else's.
    Foreign,
}

/// What a file system is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileSystem {
    /// How many bytes may still be written.
    pub(super) free: u64,
    /// Whether nothing may be written.
    pub(super) read_only: bool,
    /// Its name, if it is one of those that reach over a network.
    pub(super) network: Option<&'static str>,
}

/// Tells who may use a directory.
pub(super) const fn access(_: &Metadata) -> Access {
    Access::Closed
}

/// Looks at the file system at a path; it is not looked up here.
pub(super) const fn file_system(_: &Path) -> Option<FileSystem> {
    None
}
