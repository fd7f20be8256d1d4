//! Reverts the changes of a command in a git directory.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::snapshot::{EntryState, Snapshot};
use crate::sandbox::workspace::{DirHandle, FileKind, ReachPolicy, WorkspaceDir, WorkspaceError};

/// Restores the changed paths; returns the reason if one could not be restored.
pub(super) fn restore(root: &Path, before: &Snapshot, after: &Snapshot, changed: &BTreeSet<PathBuf>) -> Option<String> {
    let mut failed = None;
    let mut moved: Vec<&PathBuf> = Vec::new();
    // Parents come first; their contents are moved with them.
    for path in changed {
        if moved.iter().any(|above| path.starts_with(above)) && before.entry(path).is_none() {
            continue;
        }
        let put_back = restore_entry(root, path, before.entry(path));
        if put_back.is_ok() && after.entry(path).is_some() {
            moved.push(path);
        }
        failed = failed.or(put_back.err().map(|error| error.to_string()));
    }
    failed
}

fn restore_entry(root: &Path, path: &Path, before: Option<&EntryState>) -> Result<(), WorkspaceError> {
    let nowhere = || WorkspaceError::NotFound { path: path.to_owned() };
    let name = path.file_name().ok_or_else(nowhere)?;
    let above = path.parent().unwrap_or(Path::new(""));
    let workspace = WorkspaceDir::open(root, ReachPolicy::Workspace)?;
    let mut handle = workspace.open_directory(Path::new("."))?;
    for part in above.components() {
        let part = part.as_os_str();
        handle = match handle.kind(part)? {
            Some(FileKind::Directory) => handle.open_directory(part)?,
            None if before.is_some() => handle.open_or_create_directory(part)?,
            // The path does not exist, so there is nothing to remove.
            None => return Ok(()),
            Some(FileKind::File | FileKind::Link | FileKind::Other) => return Err(nowhere()),
        };
    }
    match before {
        None => remove_or_quarantine(&handle, name),
        Some(EntryState::Directory) => {
            remove_or_quarantine(&handle, name).and_then(|()| handle.open_or_create_directory(name).map(drop))
        }
        Some(EntryState::Link(target)) => remove_or_quarantine(&handle, name).and_then(|()| handle.link(name, target)),
        Some(EntryState::File { bytes, permissions }) => {
            remove_or_quarantine(&handle, name).and_then(|()| handle.create(name, bytes, permissions.clone()))
        }
        // The content was not recorded, so the entry is left as it is.
        Some(EntryState::TooLong(limit)) => Err(WorkspaceError::TooLarge { path: path.to_owned(), limit: *limit }),
        Some(EntryState::Special) => Err(WorkspaceError::NotAFile { path: path.to_owned() }),
    }
}

/// Frees a name: links and special files are removed, everything else is renamed.
fn remove_or_quarantine(handle: &DirHandle, name: &OsStr) -> Result<(), WorkspaceError> {
    match handle.kind(name)? {
        None => Ok(()),
        Some(FileKind::Link | FileKind::Other) => handle.unlink(name),
        Some(FileKind::File | FileKind::Directory) => handle.quarantine(name).map(drop),
    }
}
