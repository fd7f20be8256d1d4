//! The files as they are, for a plan.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sandbox::confine::plan::{Kind, Look};

/// The files of this machine.
pub(super) struct Disk;

impl Look for Disk {
    fn kind(&self, path: &Path) -> Kind {
        match fs::symlink_metadata(path) {
            Ok(there) if there.is_dir() => Kind::Directory,
            Ok(there) if there.is_symlink() => Kind::Link,
            Ok(_) => Kind::File,
            Err(_) => Kind::Missing,
        }
    }

    fn real(&self, path: &Path) -> Option<PathBuf> {
        fs::canonicalize(path).ok()
    }
}
