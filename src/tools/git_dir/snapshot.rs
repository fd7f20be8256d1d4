//! A snapshot of the compared parts of a git directory.
//!
//! Every path is opened component by component without following links: other commands may change the directory at
//! the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::sandbox::workspace::{DirHandle, FileKind, ReachPolicy, WorkspaceDir, WorkspaceError};

/// The limits of a snapshot.
#[derive(Debug, Clone, Copy)]
pub(super) struct SnapshotLimits {
    /// The number of entries.
    pub(super) entries: usize,
    /// The depth of directories.
    pub(super) depth: usize,
    /// The size of a recorded file; of a larger one only the length is recorded, and it cannot be restored.
    pub(super) file_bytes: u64,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        Self { entries: 200_000, depth: 40, file_bytes: 1024 * 1024 }
    }
}

/// The state of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EntryState {
    Directory,
    Link(PathBuf),
    File {
        bytes: Vec<u8>,
        permissions: Permissions,
    },
    /// A file beyond the size limit, with its length.
    TooLong(u64),
    /// A pipe, a socket or a device.
    Special,
}

/// The state of a git directory.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// The compared paths and everything below them.
    compared: BTreeMap<PathBuf, EntryState>,
    /// Links and special files in the rest of the directory.
    links_and_special_files: BTreeMap<PathBuf, EntryState>,
    entries_left: usize,
    incomplete: bool,
}

impl Snapshot {
    /// Takes a snapshot of the directory `root`: records the compared paths in full, skips the read-only ones, and
    /// searches the rest for links and special files.
    pub(super) fn take(
        root: &Path,
        compared: &BTreeSet<PathBuf>,
        read_only: &BTreeSet<PathBuf>,
        limits: SnapshotLimits,
    ) -> Result<Self, WorkspaceError> {
        let workspace = WorkspaceDir::open(root, ReachPolicy::Workspace)?;
        let mut snapshot = Self { entries_left: limits.entries, ..Self::default() };
        let scope = ScanScope { compared, read_only, limits };
        let top = workspace.open_directory(Path::new("."))?;
        // Compared paths are opened by name, so that a large number of other entries cannot hide them.
        for path in compared {
            snapshot.entries_left = limits.entries;
            snapshot.record_path(&top, path, limits);
        }
        snapshot.entries_left = limits.entries;
        snapshot.scan_rest(&top, Path::new(""), &scope);
        Ok(snapshot)
    }

    /// Returns the links among compared paths.
    pub(super) fn links<'a>(&'a self, paths: &'a BTreeSet<PathBuf>) -> impl Iterator<Item = &'a PathBuf> {
        paths.iter().filter(|path| matches!(self.compared.get(*path), Some(EntryState::Link(_))))
    }

    /// Records a path.
    fn record_path(&mut self, top: &DirHandle, path: &Path, limits: SnapshotLimits) {
        let Some(name) = path.file_name() else { return };
        let above = path.parent().unwrap_or(Path::new(""));
        let mut handle: Option<DirHandle> = None;
        for part in above.components() {
            let part = part.as_os_str();
            let from = handle.as_ref().unwrap_or(top);
            // A link or file in place of a directory is found by the scan of the rest.
            match self.ok_or_incomplete(from.kind(part)).flatten() {
                Some(FileKind::Directory) => match self.ok_or_incomplete(from.open_directory(part)) {
                    Some(inner) => handle = Some(inner),
                    None => return,
                },
                Some(FileKind::File | FileKind::Link | FileKind::Other) | None => return,
            }
        }
        self.record_tree(handle.as_ref().unwrap_or(top), name, path, limits);
    }

    /// Whether a limit was exceeded, or an entry could not be read.
    pub(super) const fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    /// Returns the state of a path.
    pub(super) fn entry(&self, path: &Path) -> Option<&EntryState> {
        self.compared.get(path).or_else(|| self.links_and_special_files.get(path))
    }

    /// Returns the paths whose state differs in a later snapshot, parents first.
    ///
    /// A link or special file that was removed outside of the compared paths is not a change.
    pub(super) fn changed(&self, later: &Self) -> BTreeSet<PathBuf> {
        let differs = |path: &&PathBuf| self.compared.get(*path) != later.compared.get(*path);
        let compared = self.compared.keys().chain(later.compared.keys()).filter(differs);
        let is_new = |(path, found): &(&PathBuf, &EntryState)| self.links_and_special_files.get(*path) != Some(*found);
        let unusual = later.links_and_special_files.iter().filter(is_new).map(|(path, _)| path);
        compared.chain(unusual).cloned().collect()
    }

    /// Searches for links and special files outside of the compared paths.
    fn scan_rest(&mut self, handle: &DirHandle, path: &Path, scope: &ScanScope<'_>) {
        for (name, kind) in self.list(handle) {
            let inner = path.join(&name);
            if scope.read_only.contains(&inner) || scope.compared.contains(&inner) {
                continue;
            }
            match kind {
                FileKind::File => {}
                FileKind::Link => {
                    if let Some(target) = self.ok_or_incomplete(handle.target(&name)) {
                        self.links_and_special_files.insert(inner, EntryState::Link(target));
                    }
                }
                FileKind::Other => {
                    self.links_and_special_files.insert(inner, EntryState::Special);
                }
                // Objects are named by their digest, and git does not write through a link there.
                FileKind::Directory if is_fan_out(&inner) => {}
                FileKind::Directory if inner.components().count() > scope.limits.depth => self.incomplete = true,
                FileKind::Directory => {
                    if let Some(handle) = self.ok_or_incomplete(handle.open_directory(&name)) {
                        self.scan_rest(&handle, &inner, scope);
                    }
                }
            }
        }
    }

    /// Records an entry with everything below it.
    fn record_tree(&mut self, handle: &DirHandle, name: &OsStr, path: &Path, limits: SnapshotLimits) {
        let found = match self.ok_or_incomplete(handle.kind(name)).flatten() {
            None => None,
            Some(FileKind::Link) => self.ok_or_incomplete(handle.target(name)).map(EntryState::Link),
            Some(FileKind::Other) => Some(EntryState::Special),
            Some(FileKind::File) => {
                self.ok_or_incomplete(handle.open_file(name)).map(|file| read_file_state(file, limits))
            }
            Some(FileKind::Directory) if path.components().count() > limits.depth => {
                self.incomplete = true;
                None
            }
            Some(FileKind::Directory) => {
                if let Some(handle) = self.ok_or_incomplete(handle.open_directory(name)) {
                    for (name, _) in self.list(&handle) {
                        // The objects of a submodule are no more trusted than those of the repository.
                        if !is_module_data(path, &name) {
                            self.record_tree(&handle, &name, &path.join(&name), limits);
                        }
                    }
                }
                // A directory that cannot be read is recorded as well.
                Some(EntryState::Directory)
            }
        };
        if let Some(found) = found {
            self.compared.insert(path.to_owned(), found);
        }
    }

    /// The entries of a directory, within the limit.
    fn list(&mut self, handle: &DirHandle) -> Vec<(OsString, FileKind)> {
        let Some((entries, more)) = self.ok_or_incomplete(handle.entries(self.entries_left)) else {
            return Vec::new();
        };
        self.entries_left -= entries.len();
        self.incomplete |= more;
        entries.into_iter().map(|entry| (entry.name, entry.kind)).collect()
    }

    /// A path that does not exist is no error; any other error makes the snapshot incomplete.
    fn ok_or_incomplete<T>(&mut self, result: Result<T, WorkspaceError>) -> Option<T> {
        match result {
            Ok(seen) => Some(seen),
            Err(WorkspaceError::NotFound { .. }) => None,
            Err(_) => {
                self.incomplete = true;
                None
            }
        }
    }
}

/// How each path is treated.
struct ScanScope<'a> {
    compared: &'a BTreeSet<PathBuf>,
    read_only: &'a BTreeSet<PathBuf>,
    limits: SnapshotLimits,
}

fn read_file_state(file: File, limits: SnapshotLimits) -> EntryState {
    let (length, permissions) = match file.metadata() {
        Ok(metadata) => (metadata.len(), metadata.permissions()),
        Err(_) => return EntryState::Special,
    };
    let mut bytes = Vec::new();
    let read = file.take(limits.file_bytes.saturating_add(1)).read_to_end(&mut bytes);
    if read.is_err() || bytes.len() as u64 > limits.file_bytes {
        return EntryState::TooLong(length);
    }
    EntryState::File { bytes, permissions }
}

/// Whether a directory contains objects by the first two digits of their ids.
fn is_fan_out(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    path.parent() == Some(Path::new("objects")) && name.len() == 2
}

/// Whether a name in a directory below `modules` is that of objects, refs or logs.
fn is_module_data(path: &Path, name: &OsStr) -> bool {
    path.starts_with("modules") && ["objects", "refs", "logs", "lfs"].iter().any(|data| name == *data)
}
