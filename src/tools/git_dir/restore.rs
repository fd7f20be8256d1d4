//! Reverts the changes of a command in a git directory.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::snapshot::{Found, Snapshot};
use crate::sandbox::ground::{Folder, Ground, GroundError, Kind, Reach};

/// Restores the changed paths; returns the reason if one could not be restored.
pub(super) fn restore(
    root: &Path,
    before: &Snapshot,
    after: &Snapshot,
    changed: &BTreeSet<PathBuf>,
) -> Option<String> {
    let mut failed = None;
    let mut moved: Vec<&PathBuf> = Vec::new();
    // Parents come first; their contents are moved with them.
    for path in changed {
        if moved.iter().any(|above| path.starts_with(above)) && before.found(path).is_none() {
            continue;
        }
        let put_back = put_back(root, path, before.found(path));
        if put_back.is_ok() && after.found(path).is_some() {
            moved.push(path);
        }
        failed = failed.or(put_back.err().map(|error| error.to_string()));
    }
    failed
}

fn put_back(root: &Path, path: &Path, before: Option<&Found>) -> Result<(), GroundError> {
    let nowhere = || GroundError::NotFound { path: path.to_owned() };
    let name = path.file_name().ok_or_else(nowhere)?;
    let above = path.parent().unwrap_or(Path::new(""));
    let ground = Ground::open(root, Reach::Workspace)?;
    let mut folder = ground.folder(Path::new("."))?;
    for part in above.components() {
        let part = part.as_os_str();
        folder = match folder.kind(part)? {
            Some(Kind::Directory) => folder.folder(part)?,
            None if before.is_some() => folder.make(part)?,
            // The path does not exist, so there is nothing to remove.
            None => return Ok(()),
            Some(Kind::File | Kind::Link | Kind::Other) => return Err(nowhere()),
        };
    }
    match before {
        None => take_away(&folder, name),
        Some(Found::Directory) => take_away(&folder, name).and_then(|()| folder.make(name).map(drop)),
        Some(Found::Link(target)) => take_away(&folder, name).and_then(|()| folder.link(name, target)),
        Some(Found::File { bytes, permissions }) => {
            take_away(&folder, name).and_then(|()| folder.create(name, bytes, permissions.clone()))
        }
        // The content was not recorded, so the entry is left as it is.
        Some(Found::Long(limit)) => Err(GroundError::TooLarge { path: path.to_owned(), limit: *limit }),
        Some(Found::Special) => Err(GroundError::NotAFile { path: path.to_owned() }),
    }
}

/// Frees a name: links and special files are removed, everything else is renamed.
fn take_away(folder: &Folder, name: &OsStr) -> Result<(), GroundError> {
    match folder.kind(name)? {
        None => Ok(()),
        Some(Kind::Link | Kind::Other) => folder.unlink(name),
        Some(Kind::File | Kind::Directory) => folder.set_aside(name).map(drop),
    }
}
