//! The host's file system, as the confinement plan and the list of readable paths see it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::confinement::plan::{self, FileSystem, PathKind};
use super::confinement::view::home_view;
use super::confinement::{Confinement, Mechanism, StepPermissions};

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
    pub fn inspect(confinement: &Confinement) -> Self {
        let mut spec = confinement.for_step(Mechanism::Namespaces, Path::new(""), &StepPermissions::default());
        spec.caches = confinement.caches.clone();
        let view = home_view(&spec, &HostFileSystem, &plan::hidden_paths(&spec, &HostFileSystem));
        let mut readable = view.opened;
        readable.extend(view.opened_in_stores);
        readable.retain(|path| !view.caches.iter().any(|cache| path.starts_with(&cache.path)));
        Self { hidden: view.homes, readable, caches: view.caches.into_iter().map(|cache| cache.path).collect() }
    }
}

/// The file system of this machine.
pub(super) struct HostFileSystem;

impl FileSystem for HostFileSystem {
    fn kind(&self, path: &Path) -> PathKind {
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() => PathKind::Directory,
            Ok(metadata) if metadata.is_symlink() => PathKind::Link,
            Ok(_) => PathKind::File,
            Err(_) => PathKind::Missing,
        }
    }

    fn canonicalize(&self, path: &Path) -> Option<PathBuf> {
        fs::canonicalize(path).ok()
    }

    fn read_link(&self, path: &Path) -> Option<PathBuf> {
        fs::read_link(path).ok()
    }

    fn entry_names(&self, path: &Path, limit: usize) -> Option<Vec<OsString>> {
        let entries = fs::read_dir(path).ok()?.take(limit + 1);
        let names: Vec<OsString> = entries.map(|entry| Some(entry.ok()?.file_name())).collect::<Option<_>>()?;
        (names.len() <= limit).then_some(names)
    }
}
