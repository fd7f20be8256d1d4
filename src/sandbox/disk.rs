//! The host's file system, as the confinement plan and the list of readable paths see it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::confine::plan::{self, Kind, Look};
use super::confine::view::view;
use super::confine::{Confinement, Leave, Way};

/// What confined commands can access in home directories, given the files that exist.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HomeAccess {
    /// Home directories that are hidden apart from `readable` and `caches`.
    pub hidden: Vec<PathBuf>,
    /// Paths in them that commands can read.
    pub readable: Vec<PathBuf>,
    /// Caches of which commands have a private copy.
    pub caches: Vec<PathBuf>,
}

impl HomeAccess {
    /// Inspects the file system. Blocks.
    pub fn of(terms: &Confinement) -> Self {
        let mut walls = terms.walls(Way::Namespaces, Path::new(""), &Leave::default());
        walls.caches = terms.caches.clone();
        let view = view(&walls, &Disk, &plan::hidden(&walls, &Disk));
        let mut readable = view.opened;
        readable.extend(view.in_stores);
        readable.retain(|path| !view.caches.iter().any(|cache| path.starts_with(&cache.path)));
        Self {
            hidden: view.homes,
            readable,
            caches: view.caches.into_iter().map(|cache| cache.path).collect(),
        }
    }
}

/// The file system of this machine.
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

    fn target(&self, path: &Path) -> Option<PathBuf> {
        fs::read_link(path).ok()
    }

    fn entries(&self, path: &Path, most: usize) -> Option<Vec<OsString>> {
        let entries = fs::read_dir(path).ok()?.take(most + 1);
        let names: Vec<OsString> =
            entries.map(|entry| Some(entry.ok()?.file_name())).collect::<Option<_>>()?;
        (names.len() <= most).then_some(names)
    }
}
