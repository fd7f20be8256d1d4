//! Changes of single entries of an open directory. Nothing here follows a link or resolves a path.

use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io::Write;
use std::path::Path;

use super::{Folder, GroundError, Kind, os};

/// How many names are tried for a quarantined entry.
const ASIDE_MAX: u32 = 10_000;

impl Folder {
    /// Returns the kind of an entry, or `None` if it does not exist.
    pub fn kind(&self, name: &OsStr) -> Result<Option<Kind>, GroundError> {
        let looked = self.folder.look(name).map_err(GroundError::of("inspect", &self.path.join(name)))?;
        Ok(looked.as_ref().map(os::Looked::kind))
    }

    /// Opens a directory in this directory; creates it if it does not exist.
    pub fn make(&self, name: &OsStr) -> Result<Self, GroundError> {
        let path = self.path.join(name);
        self.folder.make(name).map_err(GroundError::of("create", &path))?;
        self.folder(name)
    }

    /// Creates a file that must not exist yet.
    pub fn create(&self, name: &OsStr, content: &[u8], permissions: Permissions) -> Result<(), GroundError> {
        let created = self.folder.create(name).and_then(|mut file| {
            file.write_all(content)?;
            file.set_permissions(permissions)?;
            file.sync_all()
        });
        created.map_err(GroundError::of("create", &self.path.join(name)))
    }

    /// Creates a symbolic link that must not exist yet.
    pub fn link(&self, name: &OsStr, target: &Path) -> Result<(), GroundError> {
        self.folder.link(name, target).map_err(GroundError::of("link", &self.path.join(name)))
    }

    /// Removes an entry that is not a directory; a link is not followed.
    pub fn unlink(&self, name: &OsStr) -> Result<(), GroundError> {
        self.folder.remove(name).map_err(GroundError::of("remove", &self.path.join(name)))
    }

    /// Replaces a file atomically, through a temporary file named `draft`, which must not exist.
    pub fn replace_by(&self, draft: &OsStr, name: &OsStr, content: &[u8]) -> Result<(), GroundError> {
        let mut file =
            self.folder.create(draft).map_err(GroundError::of("create", &self.path.join(draft)))?;
        let written = self.folder.look(name).and_then(|old| {
            old.map_or(Ok(()), |old| old.hand_down(&file))?;
            file.write_all(content)?;
            file.sync_all()?;
            self.folder.rename(draft, name)
        });
        if written.is_err() {
            let _never_made = self.folder.remove(draft);
        }
        written.map_err(GroundError::of("write", &self.path.join(name)))
    }

    /// Renames an entry to the first free name of `NAME.rejected-1`, `NAME.rejected-2` and so on, and returns that
    /// name.
    pub fn set_aside(&self, name: &OsStr) -> Result<OsString, GroundError> {
        for number in 1..ASIDE_MAX {
            let mut aside = name.to_owned();
            aside.push(format!(".rejected-{number}"));
            if self.kind(&aside)?.is_none() {
                let renamed = self.folder.rename(name, &aside);
                return renamed.map(|()| aside).map_err(GroundError::of("rename", &self.path.join(name)));
            }
        }
        Err(GroundError::NotFound { path: self.path.join(name) })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{Ground, Reach};
    use super::*;

    #[test]
    fn names_are_changed_without_following_links_and_nothing_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let ground = Ground::open(dir.path(), Reach::Workspace).unwrap();
        let folder = ground.folder(Path::new(".")).unwrap();
        let name = OsStr::new;
        fs::write(at("a"), "old").unwrap();
        let permissions = fs::metadata(at("a")).unwrap().permissions();
        assert_eq!(folder.kind(name("a")).unwrap(), Some(Kind::File));
        assert_eq!(folder.kind(name("none")).unwrap(), None);
        assert!(folder.create(name("a"), b"new", permissions.clone()).is_err());
        assert_eq!(folder.set_aside(name("a")).unwrap(), "a.rejected-1");
        folder.create(name("a"), b"new", permissions).unwrap();
        assert_eq!(folder.set_aside(name("a")).unwrap(), "a.rejected-2");
        assert_eq!(fs::read_to_string(at("a.rejected-2")).unwrap(), "new");
        folder.make(name("d")).unwrap().make(name("e")).unwrap();
        assert!(at("d/e").is_dir());
        folder.replace_by(name("draft"), name("a.rejected-1"), b"newer").unwrap();
        assert_eq!(fs::read_to_string(at("a.rejected-1")).unwrap(), "newer");
        fs::write(at("draft"), "of somebody else").unwrap();
        assert!(folder.replace_by(name("draft"), name("a.rejected-1"), b"newest").is_err());
        assert_eq!(fs::read_to_string(at("draft")).unwrap(), "of somebody else");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_made_and_removed_as_itself() {
        let dir = tempfile::tempdir().unwrap();
        let ground = Ground::open(dir.path(), Reach::Workspace).unwrap();
        let folder = ground.folder(Path::new(".")).unwrap();
        fs::write(dir.path().join("target"), "").unwrap();
        folder.link(OsStr::new("link"), Path::new("target")).unwrap();
        assert_eq!(folder.kind(OsStr::new("link")).unwrap(), Some(Kind::Link));
        assert!(folder.make(OsStr::new("link")).is_err());
        folder.unlink(OsStr::new("link")).unwrap();
        assert!(dir.path().join("target").exists() && !dir.path().join("link").exists());
    }
}
