//! Directories as paths, on Windows.
//!
//! A path is made canonical and compared with the ground's before it is used. That keeps out `..`, absolute paths and
//! links; it is weaker than on Unix, where nothing can be exchanged between the look and the use.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::{Entry, Kind, Reach};

/// The directory of a ground.
pub(super) struct Root(PathBuf);

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        if path.is_dir() { Ok(Self(path)) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    /// Opens something for reading.
    pub(super) fn file(&self, path: &Path, reach: Reach) -> io::Result<File> {
        let path = self.at(path, reach)?;
        if path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        File::open(path)
    }

    pub(super) fn folder(&self, path: &Path, reach: Reach) -> io::Result<Folder> {
        let path = self.at(path, reach)?;
        if path.is_dir() { Ok(Folder(path)) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    fn at(&self, path: &Path, reach: Reach) -> io::Result<PathBuf> {
        let inside = super::stays_beneath(path);
        let canonical = fs::canonicalize(self.0.join(path));
        match reach {
            Reach::Anywhere => canonical,
            Reach::Workspace if !inside => Err(io::ErrorKind::CrossesDevices.into()),
            Reach::Workspace => {
                let canonical = canonical?;
                let beneath = canonical.starts_with(&self.0);
                if beneath { Ok(canonical) } else { Err(io::ErrorKind::CrossesDevices.into()) }
            }
        }
    }
}

/// A directory that was found.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Returns at most `most` names, in no order, and whether there are more.
    pub(super) fn entries(&self, most: usize) -> io::Result<(Vec<Entry>, bool)> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let name: OsString = entry?.file_name();
            if entries.len() == most {
                return Ok((entries, true));
            }
            // What went away meanwhile is not there.
            if let Some(looked) = self.look(&name)? {
                entries.push(Entry { kind: looked.kind(), bytes: looked.bytes(), name });
            }
        }
        Ok((entries, false))
    }

    /// Looks at what stands under a name.
    pub(super) fn look(&self, name: &OsStr) -> io::Result<Option<Looked>> {
        match fs::symlink_metadata(self.0.join(name)) {
            Ok(metadata) => Ok(Some(Looked(metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn target(&self, name: &OsStr) -> io::Result<PathBuf> {
        fs::read_link(self.0.join(name))
    }

    pub(super) fn folder(&self, name: &OsStr) -> io::Result<Self> {
        let looked = self.look(name)?.ok_or(io::ErrorKind::NotFound)?;
        match looked.kind() {
            Kind::Directory => Ok(Self(self.0.join(name))),
            Kind::File | Kind::Link | Kind::Other => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// Returns the names that lead from the root to it, without links.
    pub(super) fn place_in(&self, root: &Root) -> io::Result<PathBuf> {
        let inner = self.0.strip_prefix(&root.0).map_err(|_| io::ErrorKind::CrossesDevices)?;
        Ok(inner.to_owned())
    }

    /// Makes a directory, unless somebody else just did, and opens it.
    pub(super) fn make(&self, name: &OsStr) -> io::Result<Self> {
        match fs::create_dir(self.0.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => self.folder(name),
        }
    }

    /// Creates a file that must not exist yet.
    pub(super) fn create(&self, name: &OsStr) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).open(self.0.join(name))
    }

    /// Makes sure that we may write the file of this name.
    pub(super) fn writable(&self, name: &OsStr) -> io::Result<()> {
        OpenOptions::new().write(true).open(self.0.join(name)).map(drop)
    }

    pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    /// Directories are not synced here: the system has no call for it.
    pub(super) const fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// What was seen under a name.
pub(super) struct Looked(Metadata);

impl Looked {
    pub(super) fn kind(&self) -> Kind {
        let kind = self.0.file_type();
        if kind.is_symlink() {
            Kind::Link
        } else if kind.is_dir() {
            Kind::Directory
        } else if kind.is_file() {
            Kind::File
        } else {
            Kind::Other
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.len()
    }

    /// Gives `file` the permissions of the file it is to replace.
    pub(super) fn hand_down(&self, file: &File) -> io::Result<()> {
        file.set_permissions(self.0.permissions())
    }
}
