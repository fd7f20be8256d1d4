//! The identity of a session's workspace directory.
//!
//! A session stores the path of its workspace without symbolic links, and the device and inode of the directory.
//! Others who can write above it, another session for instance, could replace it by a link or another directory.
//! Every use therefore opens the stored path without following links and compares the identity. All functions block:
//! callers run them outside the event loop, with a deadline.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::os;
use crate::kernel::event::WorkspaceIdentity;
use crate::sandbox::workspace::{FileId, ReachPolicy, WorkspaceDir, WorkspaceError};

/// Why a workspace cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionWorkspaceError {
    /// The path is not a directory.
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// The path is not UTF-8 and cannot be stored.
    #[error("{} resolves to a path that is not UTF-8 and cannot be stored; use another directory", .0.display())]
    NotUtf8(PathBuf),
    /// Another directory has taken its place.
    #[error(
        "the workspace {path} was replaced since the session started: it was {was} and is {is}; start a new session there"
    )]
    Replaced {
        /// The stored path.
        path: String,
        /// The stored identity.
        was: String,
        /// The identity of the current directory.
        is: String,
    },
    /// The directory could not be opened.
    #[error(transparent)]
    Directory(#[from] WorkspaceError),
}

/// Returns the identity of the directory that a path resolves to.
pub(super) fn identify(cwd: &Path) -> Result<WorkspaceIdentity, SessionWorkspaceError> {
    let not_there = |_| SessionWorkspaceError::NotADirectory(cwd.to_owned());
    let real = cwd.canonicalize().map_err(not_there)?;
    let workspace = match WorkspaceDir::open_without_links(&real, ReachPolicy::Workspace) {
        Err(WorkspaceError::NotADirectory { .. } | WorkspaceError::NotFound { .. }) => {
            return Err(SessionWorkspaceError::NotADirectory(cwd.to_owned()));
        }
        opened => opened?,
    };
    let Some(path) = real.to_str().map(str::to_owned) else {
        return Err(SessionWorkspaceError::NotUtf8(cwd.to_owned()));
    };
    Ok(WorkspaceIdentity { path, file_id: workspace.file_id()?.to_string(), boot: boot_id().to_owned() })
}

/// Opens the workspace of a session in `cwd`; the second value is a new identity that the caller stores.
///
/// There is a new identity for a session that has none yet, and after a reboot, because some file systems number
/// their files anew then. Links are not followed in either case.
pub(super) fn open(
    cwd: &Path,
    known: Option<&WorkspaceIdentity>,
) -> Result<(WorkspaceDir, Option<WorkspaceIdentity>), SessionWorkspaceError> {
    let Some(known) = known else {
        let found = identify(cwd)?;
        let workspace = WorkspaceDir::open_without_links(Path::new(&found.path), ReachPolicy::Workspace)?;
        return Ok((verify_identity(workspace, &found)?.with_alias(cwd), Some(found)));
    };
    let replaced = |is: &str| SessionWorkspaceError::Replaced {
        path: known.path.clone(),
        was: known.file_id.clone(),
        is: is.to_owned(),
    };
    let workspace = match WorkspaceDir::open_without_links(Path::new(&known.path), ReachPolicy::Workspace) {
        Ok(workspace) => workspace,
        Err(WorkspaceError::Outside { .. }) => return Err(replaced("reached through a symbolic link")),
        Err(WorkspaceError::NotADirectory { .. }) => return Err(replaced("no directory")),
        Err(WorkspaceError::NotFound { .. }) => return Err(replaced("gone")),
        Err(error) => return Err(error.into()),
    };
    if known.boot != boot_id() {
        let found = WorkspaceIdentity {
            file_id: workspace.file_id()?.to_string(),
            boot: boot_id().to_owned(),
            path: known.path.clone(),
        };
        return Ok((workspace.with_alias(cwd), Some(found)));
    }
    Ok((verify_identity(workspace, known)?.with_alias(cwd), None))
}

/// Returns the directory if its identity is the stored one.
fn verify_identity(workspace: WorkspaceDir, known: &WorkspaceIdentity) -> Result<WorkspaceDir, SessionWorkspaceError> {
    let is = workspace.file_id()?;
    match known.file_id.parse::<FileId>() {
        Ok(was) if is_same_directory(was, is) => Ok(workspace),
        Ok(_) | Err(_) => Err(SessionWorkspaceError::Replaced {
            path: known.path.clone(),
            was: known.file_id.clone(),
            is: is.to_string(),
        }),
    }
}

/// Returns whether two identities are equal. Without a boot id the device number is ignored, as a reboot may change
/// it.
fn is_same_directory(was: FileId, is: FileId) -> bool {
    was == is || (boot_id().is_empty() && was.inode == is.inode)
}

/// Returns the id of the current boot; empty if the system has none.
fn boot_id() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| match os::boot_id() {
        0 => String::new(),
        boot => format!("{boot:032x}"),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_workspace_is_opened_again_as_long_as_it_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        fs::create_dir(&work).unwrap();
        let known = identify(&work).unwrap();
        let (workspace, noted) = open(&work, Some(&known)).unwrap();
        assert_eq!((workspace.path().to_str(), noted), (Some(known.path.as_str()), None));
        fs::rename(&work, dir.path().join("old")).unwrap();
        let message = open(&work, Some(&known)).unwrap_err().to_string();
        assert!(message.contains("was replaced") && message.contains("and is gone"), "{message}");
        fs::create_dir(&work).unwrap();
        let message = open(&work, Some(&known)).unwrap_err().to_string();
        assert!(message.contains(&format!("it was {} and is ", known.file_id)), "{message}");
    }

    #[cfg(unix)]
    #[test]
    fn a_symbolic_link_at_or_above_the_workspace_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("a/work")).unwrap();
        let known = identify(&at("a/work")).unwrap();
        fs::rename(at("a/work"), at("a/old")).unwrap();
        // A link to the very same directory is refused, too.
        std::os::unix::fs::symlink("old", at("a/work")).unwrap();
        let message = open(&at("a/work"), Some(&known)).unwrap_err().to_string();
        assert!(message.contains("reached through a symbolic link"), "{message}");
        fs::remove_file(at("a/work")).unwrap();
        fs::rename(at("a/old"), at("a/work")).unwrap();
        fs::rename(at("a"), at("b")).unwrap();
        std::os::unix::fs::symlink("b", at("a")).unwrap();
        assert!(matches!(open(&at("a/work"), Some(&known)), Err(SessionWorkspaceError::Replaced { .. })));
    }

    #[cfg(unix)]
    #[test]
    fn a_workspace_given_as_a_symbolic_link_is_its_target() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("real")).unwrap();
        fs::write(at("real/f"), "text").unwrap();
        std::os::unix::fs::symlink("real", at("named")).unwrap();
        let known = identify(&at("named")).unwrap();
        let (workspace, _) = open(&at("named"), Some(&known)).unwrap();
        assert_eq!(workspace.read(&at("named/f"), 10).unwrap(), b"text");
        assert_eq!(workspace.read(&at("real").canonicalize().unwrap().join("f"), 10).unwrap(), b"text");
    }

    #[test]
    fn an_unknown_identity_or_one_of_another_boot_is_recorded_again() {
        let dir = tempfile::tempdir().unwrap();
        let known = identify(dir.path()).unwrap();
        assert_eq!(open(dir.path(), None).unwrap().1.as_ref(), Some(&known));
        let before = WorkspaceIdentity { boot: "another".into(), file_id: "7:7".into(), ..known.clone() };
        assert_eq!(open(dir.path(), Some(&before)).unwrap().1, Some(known));
        assert!(matches!(identify(&dir.path().join("none")), Err(SessionWorkspaceError::NotADirectory(_))));
    }
}
