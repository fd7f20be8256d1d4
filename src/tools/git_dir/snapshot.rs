//! A snapshot of the compared parts of a git directory.
//!
//! Every path is opened component by component without following links: other commands may change the directory at
//! the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::sandbox::ground::{Folder, Ground, GroundError, Kind, Reach};

/// The limits of a snapshot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The number of entries.
    pub(super) entries: usize,
    /// The depth of directories.
    pub(super) depth: usize,
    /// The size of a recorded file; of a larger one only the length is recorded, and it cannot be restored.
    pub(super) file_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 200_000, depth: 40, file_bytes: 1024 * 1024 }
    }
}

/// The state of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    Directory,
    Link(PathBuf),
    File {
        bytes: Vec<u8>,
        permissions: Permissions,
    },
    /// A file beyond the size limit, with its length.
    Long(u64),
    /// A pipe, a socket or a device.
    Special,
}

/// The state of a git directory.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// The compared paths and everything below them.
    compared: BTreeMap<PathBuf, Found>,
    /// Links and special files in the rest of the directory.
    unusual: BTreeMap<PathBuf, Found>,
    left: usize,
    incomplete: bool,
}

impl Snapshot {
    /// Takes a snapshot of the directory `root`: records the compared paths in full, skips the read-only ones, and
    /// searches the rest for links and special files.
    pub(super) fn take(
        root: &Path,
        compared: &BTreeSet<PathBuf>,
        closed: &BTreeSet<PathBuf>,
        limits: Limits,
    ) -> Result<Self, GroundError> {
        let ground = Ground::open(root, Reach::Workspace)?;
        let mut snapshot = Self { left: limits.entries, ..Self::default() };
        let walk = Walk { compared, closed, limits };
        let top = ground.folder(Path::new("."))?;
        // Compared paths are opened by name, so that a large number of other entries cannot hide them.
        for path in compared {
            snapshot.left = limits.entries;
            snapshot.named(&top, path, limits);
        }
        snapshot.left = limits.entries;
        snapshot.rest(&top, Path::new(""), &walk);
        Ok(snapshot)
    }

    /// Returns the links among compared paths.
    pub(super) fn links<'a>(&'a self, paths: &'a BTreeSet<PathBuf>) -> impl Iterator<Item = &'a PathBuf> {
        paths.iter().filter(|path| matches!(self.compared.get(*path), Some(Found::Link(_))))
    }

    /// Records a path.
    fn named(&mut self, top: &Folder, path: &Path, limits: Limits) {
        let Some(name) = path.file_name() else { return };
        let above = path.parent().unwrap_or(Path::new(""));
        let mut folder: Option<Folder> = None;
        for part in above.components() {
            let part = part.as_os_str();
            let from = folder.as_ref().unwrap_or(top);
            // A link or file in place of a directory is found by the scan of the rest.
            match self.seen(from.kind(part)).flatten() {
                Some(Kind::Directory) => match self.seen(from.folder(part)) {
                    Some(inner) => folder = Some(inner),
                    None => return,
                },
                Some(Kind::File | Kind::Link | Kind::Other) | None => return,
            }
        }
        self.whole(folder.as_ref().unwrap_or(top), name, path, limits);
    }

    /// Whether a limit was exceeded, or an entry could not be read.
    pub(super) const fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    /// Returns the state of a path.
    pub(super) fn found(&self, path: &Path) -> Option<&Found> {
        self.compared.get(path).or_else(|| self.unusual.get(path))
    }

    /// Returns the paths whose state differs in a later snapshot, parents first.
    ///
    /// A link or special file that was removed outside of the compared paths is not a change.
    pub(super) fn changed(&self, later: &Self) -> BTreeSet<PathBuf> {
        let differs = |path: &&PathBuf| self.compared.get(*path) != later.compared.get(*path);
        let compared = self.compared.keys().chain(later.compared.keys()).filter(differs);
        let is_new = |(path, found): &(&PathBuf, &Found)| self.unusual.get(*path) != Some(*found);
        let unusual = later.unusual.iter().filter(is_new).map(|(path, _)| path);
        compared.chain(unusual).cloned().collect()
    }

    /// Searches for links and special files outside of the compared paths.
    fn rest(&mut self, folder: &Folder, path: &Path, walk: &Walk<'_>) {
        for (name, kind) in self.names(folder) {
            let inner = path.join(&name);
            if walk.closed.contains(&inner) || walk.compared.contains(&inner) {
                continue;
            }
            match kind {
                Kind::File => {}
                Kind::Link => {
                    if let Some(target) = self.seen(folder.target(&name)) {
                        self.unusual.insert(inner, Found::Link(target));
                    }
                }
                Kind::Other => {
                    self.unusual.insert(inner, Found::Special);
                }
                // Objects are named by their digest, and git does not write through a link there.
                Kind::Directory if is_fan_out(&inner) => {}
                Kind::Directory if inner.components().count() > walk.limits.depth => self.incomplete = true,
                Kind::Directory => {
                    if let Some(folder) = self.seen(folder.folder(&name)) {
                        self.rest(&folder, &inner, walk);
                    }
                }
            }
        }
    }

    /// Records an entry with everything below it.
    fn whole(&mut self, folder: &Folder, name: &OsStr, path: &Path, limits: Limits) {
        let found = match self.seen(folder.kind(name)).flatten() {
            None => None,
            Some(Kind::Link) => self.seen(folder.target(name)).map(Found::Link),
            Some(Kind::Other) => Some(Found::Special),
            Some(Kind::File) => self.seen(folder.file(name)).map(|file| file_found(file, limits)),
            Some(Kind::Directory) if path.components().count() > limits.depth => {
                self.incomplete = true;
                None
            }
            Some(Kind::Directory) => {
                if let Some(folder) = self.seen(folder.folder(name)) {
                    for (name, _) in self.names(&folder) {
                        // The objects of a submodule are no more trusted than those of the repository.
                        if !is_data_of_module(path, &name) {
                            self.whole(&folder, &name, &path.join(&name), limits);
                        }
                    }
                }
                // A directory that cannot be read is recorded as well.
                Some(Found::Directory)
            }
        };
        if let Some(found) = found {
            self.compared.insert(path.to_owned(), found);
        }
    }

    /// The entries of a directory, within the limit.
    fn names(&mut self, folder: &Folder) -> Vec<(OsString, Kind)> {
        let Some((entries, more)) = self.seen(folder.entries(self.left)) else { return Vec::new() };
        self.left -= entries.len();
        self.incomplete |= more;
        entries.into_iter().map(|entry| (entry.name, entry.kind)).collect()
    }

    /// A path that does not exist is no error; any other error makes the snapshot incomplete.
    fn seen<T>(&mut self, looked: Result<T, GroundError>) -> Option<T> {
        match looked {
            Ok(seen) => Some(seen),
            Err(GroundError::NotFound { .. }) => None,
            Err(_) => {
                self.incomplete = true;
                None
            }
        }
    }
}

/// How each path is treated.
struct Walk<'a> {
    compared: &'a BTreeSet<PathBuf>,
    closed: &'a BTreeSet<PathBuf>,
    limits: Limits,
}

fn file_found(file: File, limits: Limits) -> Found {
    let (length, permissions) = match file.metadata() {
        Ok(there) => (there.len(), there.permissions()),
        Err(_) => return Found::Special,
    };
    let mut bytes = Vec::new();
    let read = file.take(limits.file_bytes.saturating_add(1)).read_to_end(&mut bytes);
    if read.is_err() || bytes.len() as u64 > limits.file_bytes {
        return Found::Long(length);
    }
    Found::File { bytes, permissions }
}

/// Whether a directory contains objects by the first two digits of their ids.
fn is_fan_out(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    path.parent() == Some(Path::new("objects")) && name.len() == 2
}

/// Whether a name in a directory below `modules` is that of objects, refs or logs.
fn is_data_of_module(path: &Path, name: &OsStr) -> bool {
    path.starts_with("modules") && ["objects", "refs", "logs", "lfs"].iter().any(|data| name == *data)
}
