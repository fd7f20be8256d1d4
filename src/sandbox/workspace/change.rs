//! Changes of single entries of an open directory. Nothing here follows a link or resolves a path.

use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io::Write;
use std::path::Path;

use super::{DirHandle, FileKind, WorkspaceError, os};

/// How many names are tried for a quarantined entry.
const QUARANTINE_NAMES_MAX: u32 = 10_000;

impl DirHandle {
    /// Returns the kind of an entry, or `None` if it does not exist.
    pub fn kind(&self, name: &OsStr) -> Result<Option<FileKind>, WorkspaceError> {
        let stat = self.handle.stat(name).map_err(WorkspaceError::from_io("inspect", &self.path.join(name)))?;
        Ok(stat.as_ref().map(os::EntryStat::kind))
    }

    /// Opens a directory in this directory; creates it if it does not exist.
    pub fn open_or_create_directory(&self, name: &OsStr) -> Result<Self, WorkspaceError> {
        let path = self.path.join(name);
        self.handle.create_directory(name).map_err(WorkspaceError::from_io("create", &path))?;
        self.open_directory(name)
    }

    /// Creates a file that must not exist yet.
    pub fn create(&self, name: &OsStr, content: &[u8], permissions: Permissions) -> Result<(), WorkspaceError> {
        let created = self.handle.create(name).and_then(|mut file| {
            file.write_all(content)?;
            file.set_permissions(permissions)?;
            file.sync_all()
        });
        created.map_err(WorkspaceError::from_io("create", &self.path.join(name)))
    }

    /// Creates a symbolic link that must not exist yet.
    pub fn link(&self, name: &OsStr, target: &Path) -> Result<(), WorkspaceError> {
        self.handle.link(name, target).map_err(WorkspaceError::from_io("link", &self.path.join(name)))
    }

    /// Removes an entry that is not a directory; a link is not followed.
    pub fn unlink(&self, name: &OsStr) -> Result<(), WorkspaceError> {
        self.handle.remove(name).map_err(WorkspaceError::from_io("remove", &self.path.join(name)))
    }

    /// Replaces a file atomically, through a temporary file named `draft`, which must not exist.
    pub fn replace_through(&self, temporary: &OsStr, name: &OsStr, content: &[u8]) -> Result<(), WorkspaceError> {
        let mut file =
            self.handle.create(temporary).map_err(WorkspaceError::from_io("create", &self.path.join(temporary)))?;
        let written = self.handle.stat(name).and_then(|old| {
            old.map_or(Ok(()), |old| old.copy_attributes_to(&file))?;
            file.write_all(content)?;
            file.sync_all()?;
            self.handle.rename(temporary, name)
        });
        if written.is_err() {
            let _never_made = self.handle.remove(temporary);
        }
        written.map_err(WorkspaceError::from_io("write", &self.path.join(name)))
    }

    /// Renames an entry to the first free name of `NAME.rejected-1`, `NAME.rejected-2` and so on, and returns that
    /// name.
    pub fn quarantine(&self, name: &OsStr) -> Result<OsString, WorkspaceError> {
        for number in 1..QUARANTINE_NAMES_MAX {
            let mut quarantined = name.to_owned();
            quarantined.push(format!(".rejected-{number}"));
            if self.kind(&quarantined)?.is_none() {
                let renamed = self.handle.rename(name, &quarantined);
                return renamed.map(|()| quarantined).map_err(WorkspaceError::from_io("rename", &self.path.join(name)));
            }
        }
        Err(WorkspaceError::NotFound { path: self.path.join(name) })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{ReachPolicy, WorkspaceDir};
    use super::*;

    #[test]
    fn names_are_changed_without_following_links_and_nothing_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let workspace = WorkspaceDir::open(dir.path(), ReachPolicy::Workspace).unwrap();
        let handle = workspace.open_directory(Path::new(".")).unwrap();
        let name = OsStr::new;
        fs::write(at("a"), "old").unwrap();
        let permissions = fs::metadata(at("a")).unwrap().permissions();
        assert_eq!(handle.kind(name("a")).unwrap(), Some(FileKind::File));
        assert_eq!(handle.kind(name("none")).unwrap(), None);
        assert!(handle.create(name("a"), b"new", permissions.clone()).is_err());
        assert_eq!(handle.quarantine(name("a")).unwrap(), "a.rejected-1");
        handle.create(name("a"), b"new", permissions).unwrap();
        assert_eq!(handle.quarantine(name("a")).unwrap(), "a.rejected-2");
        assert_eq!(fs::read_to_string(at("a.rejected-2")).unwrap(), "new");
        handle.open_or_create_directory(name("d")).unwrap().open_or_create_directory(name("e")).unwrap();
        assert!(at("d/e").is_dir());
        handle.replace_through(name("draft"), name("a.rejected-1"), b"newer").unwrap();
        assert_eq!(fs::read_to_string(at("a.rejected-1")).unwrap(), "newer");
        fs::write(at("draft"), "of somebody else").unwrap();
        assert!(handle.replace_through(name("draft"), name("a.rejected-1"), b"newest").is_err());
        assert_eq!(fs::read_to_string(at("draft")).unwrap(), "of somebody else");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_made_and_removed_as_itself() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = WorkspaceDir::open(dir.path(), ReachPolicy::Workspace).unwrap();
        let handle = workspace.open_directory(Path::new(".")).unwrap();
        fs::write(dir.path().join("target"), "").unwrap();
        handle.link(OsStr::new("link"), Path::new("target")).unwrap();
        assert_eq!(handle.kind(OsStr::new("link")).unwrap(), Some(FileKind::Link));
        assert!(handle.open_or_create_directory(OsStr::new("link")).is_err());
        handle.unlink(OsStr::new("link")).unwrap();
        assert!(dir.path().join("target").exists() && !dir.path().join("link").exists());
    }
}
