//! Which directory a session works in, and whether it still is that one.
//!
//! A session keeps its workspace's path without links and what the file system calls it. Whoever else may write above it,
//! another session for one, could put a link or another directory in its place; every use opens the kept path without following
//! links and compares. Everything here blocks: callers keep it off their loop, with a deadline.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::os;
use crate::kernel::event::WorkspaceIdentity;
use crate::sandbox::ground::{FileId, Ground, GroundError, Reach};

/// Why a workspace cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum WorkspaceError {
    /// There is no such directory.
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// Its path cannot be kept.
    #[error("{} leads to a path that is not UTF-8, which a session cannot keep; use another directory", .0.display())]
    NotText(PathBuf),
    /// Another one is in its place.
    #[error(
        "the workspace {path} was replaced since the session started: it was {was} and is {is}; start a new session there"
    )]
    Replaced {
        /// The path that was kept.
        path: String,
        /// What the file system called it.
        was: String,
        /// What is there.
        is: String,
    },
    /// The system refused.
    #[error(transparent)]
    Ground(#[from] GroundError),
}

/// Finds out which directory a path leads to.
pub(super) fn identify(cwd: &Path) -> Result<WorkspaceIdentity, WorkspaceError> {
    let not_there = |_| WorkspaceError::NotADirectory(cwd.to_owned());
    let real = cwd.canonicalize().map_err(not_there)?;
    let ground = match Ground::open_without_links(&real, Reach::Workspace) {
        Err(GroundError::NotADirectory { .. } | GroundError::NotFound { .. }) => {
            return Err(WorkspaceError::NotADirectory(cwd.to_owned()));
        }
        opened => opened?,
    };
    let Some(path) = real.to_str().map(str::to_owned) else {
        return Err(WorkspaceError::NotText(cwd.to_owned()));
    };
    Ok(WorkspaceIdentity { path, file_id: ground.file_id()?.to_string(), boot: boot().to_owned() })
}

/// Opens the workspace of a session that works in `cwd`; what it is known by may have to be noted anew.
///
/// That is so for a session that began before this was noted, and after a restart of the machine: some file systems then
/// have other numbers for the same directory. Links are not followed in either case.
pub(super) fn open(
    cwd: &Path,
    known: Option<&WorkspaceIdentity>,
) -> Result<(Ground, Option<WorkspaceIdentity>), WorkspaceError> {
    let Some(known) = known else {
        let found = identify(cwd)?;
        let ground = Ground::open_without_links(Path::new(&found.path), Reach::Workspace)?;
        return Ok((checked(ground, &found)?.named(cwd), Some(found)));
    };
    let replaced = |is: &str| WorkspaceError::Replaced {
        path: known.path.clone(),
        was: known.file_id.clone(),
        is: is.to_owned(),
    };
    let ground = match Ground::open_without_links(Path::new(&known.path), Reach::Workspace) {
        Ok(ground) => ground,
        Err(GroundError::Outside { .. }) => return Err(replaced("reached through a symbolic link")),
        Err(GroundError::NotADirectory { .. }) => return Err(replaced("no directory")),
        Err(GroundError::NotFound { .. }) => return Err(replaced("gone")),
        Err(error) => return Err(error.into()),
    };
    if known.boot != boot() {
        let found = WorkspaceIdentity {
            file_id: ground.file_id()?.to_string(),
            boot: boot().to_owned(),
            path: known.path.clone(),
        };
        return Ok((ground.named(cwd), Some(found)));
    }
    Ok((checked(ground, known)?.named(cwd), None))
}

/// Refuses a directory that is not the one that was kept.
fn checked(ground: Ground, known: &WorkspaceIdentity) -> Result<Ground, WorkspaceError> {
    let is = ground.file_id()?;
    match known.file_id.parse::<FileId>() {
        Ok(was) if same(was, is) => Ok(ground),
        Ok(_) | Err(_) => Err(WorkspaceError::Replaced {
            path: known.path.clone(),
            was: known.file_id.clone(),
            is: is.to_string(),
        }),
    }
}

/// Without a name for the start of the machine, the number of the file system may be another after one.
fn same(was: FileId, is: FileId) -> bool {
    was == is || (boot().is_empty() && was.inode == is.inode)
}

/// Names the start of the machine; empty where the system does not.
fn boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| match os::boot() {
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
        let (ground, noted) = open(&work, Some(&known)).unwrap();
        assert_eq!((ground.path().to_str(), noted), (Some(known.path.as_str()), None));
        fs::rename(&work, dir.path().join("old")).unwrap();
        let said = open(&work, Some(&known)).unwrap_err().to_string();
        assert!(said.contains("was replaced") && said.contains("and is gone"), "{said}");
        fs::create_dir(&work).unwrap();
        let said = open(&work, Some(&known)).unwrap_err().to_string();
        assert!(said.contains(&format!("it was {} and is ", known.file_id)), "{said}");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_in_its_place_or_above_it_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("a/work")).unwrap();
        let known = identify(&at("a/work")).unwrap();
        fs::rename(at("a/work"), at("a/old")).unwrap();
        // Even one that leads to the very same directory.
        std::os::unix::fs::symlink("old", at("a/work")).unwrap();
        let said = open(&at("a/work"), Some(&known)).unwrap_err().to_string();
        assert!(said.contains("reached through a symbolic link"), "{said}");
        fs::remove_file(at("a/work")).unwrap();
        fs::rename(at("a/old"), at("a/work")).unwrap();
        fs::rename(at("a"), at("b")).unwrap();
        std::os::unix::fs::symlink("b", at("a")).unwrap();
        assert!(matches!(open(&at("a/work"), Some(&known)), Err(WorkspaceError::Replaced { .. })));
    }

    #[cfg(unix)]
    #[test]
    fn a_workspace_that_its_user_names_by_a_link_is_the_one_that_the_link_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("real")).unwrap();
        fs::write(at("real/f"), "text").unwrap();
        std::os::unix::fs::symlink("real", at("named")).unwrap();
        let known = identify(&at("named")).unwrap();
        let (ground, _) = open(&at("named"), Some(&known)).unwrap();
        assert_eq!(ground.content(&at("named/f"), 10).unwrap(), b"text");
        assert_eq!(ground.content(&at("real").canonicalize().unwrap().join("f"), 10).unwrap(), b"text");
    }

    #[test]
    fn what_is_not_known_or_known_from_another_start_is_noted() {
        let dir = tempfile::tempdir().unwrap();
        let known = identify(dir.path()).unwrap();
        assert_eq!(open(dir.path(), None).unwrap().1.as_ref(), Some(&known));
        let before = WorkspaceIdentity { boot: "another".into(), file_id: "7:7".into(), ..known.clone() };
        assert_eq!(open(dir.path(), Some(&before)).unwrap().1, Some(known));
        assert!(matches!(identify(&dir.path().join("none")), Err(WorkspaceError::NotADirectory(_))));
    }
}
