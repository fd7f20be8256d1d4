//! Directories as paths, on Windows.
//!
//! Each component is checked before it is used, and links are refused. This is weaker than on Unix: a component could
//! be replaced between check and use, owners are not compared, and hard links are not counted.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::{OpenError, RequiredOwner};

/// A directory.
pub(super) struct DirHandle(PathBuf);

impl DirHandle {
    /// Opens a trusted directory.
    pub(super) fn open_root(path: &Path) -> Result<Self, OpenError> {
        if fs::metadata(path)?.is_dir() { Ok(Self(path.to_owned())) } else { Err(OpenError::NotADirectory) }
    }

    /// Opens a subdirectory; a link is not followed.
    pub(super) fn open_dir(&self, name: &OsStr, owner: RequiredOwner) -> Result<Self, OpenError> {
        let path = self.0.join(name);
        let metadata = fs::symlink_metadata(&path)?;
        match owner {
            RequiredOwner::User | RequiredOwner::Anybody if metadata.is_symlink() => Err(OpenError::Link),
            RequiredOwner::User | RequiredOwner::Anybody if metadata.is_dir() => Ok(Self(path)),
            RequiredOwner::User | RequiredOwner::Anybody => Err(OpenError::NotADirectory),
        }
    }

    /// Creates a subdirectory if it does not exist, and opens it.
    pub(super) fn create_dir(&self, name: &OsStr, owner: RequiredOwner) -> Result<Self, OpenError> {
        match fs::create_dir(self.0.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error.into()),
            Ok(()) | Err(_) => self.open_dir(name, owner),
        }
    }

    /// Opens a regular file for reading.
    pub(super) fn open_file(&self, name: &OsStr) -> Result<File, OpenError> {
        self.check_file(name)?;
        Ok(File::open(self.0.join(name))?)
    }

    /// Opens a regular file for appending.
    pub(super) fn open_append(&self, name: &OsStr) -> Result<File, OpenError> {
        self.check_file(name)?;
        // Append access alone does not permit truncating an incomplete line.
        let mut file = OpenOptions::new().write(true).open(self.0.join(name))?;
        io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        Ok(file)
    }

    /// Checks that an entry is a regular file.
    pub(super) fn check_file(&self, name: &OsStr) -> Result<(), OpenError> {
        self.metadata(name).map(drop)
    }

    /// Returns when a file was modified.
    pub(super) fn modified(&self, name: &OsStr) -> Result<SystemTime, OpenError> {
        Ok(self.metadata(name)?.modified()?)
    }

    /// Returns at most `most` entries, unordered, and whether there are more.
    pub(super) fn names(&self, most: usize) -> io::Result<(Vec<OsString>, bool)> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            if names.len() == most {
                return Ok((names, true));
            }
            names.push(entry?.file_name());
        }
        Ok((names, false))
    }

    /// Creates a new file; fails if it exists.
    pub(super) fn create(&self, name: &OsStr) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).open(self.0.join(name))
    }

    pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    /// Does nothing: Windows cannot sync a directory.
    pub(super) const fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn metadata(&self, name: &OsStr) -> Result<Metadata, OpenError> {
        let metadata = fs::symlink_metadata(self.0.join(name))?;
        if metadata.is_symlink() {
            Err(OpenError::Link)
        } else if metadata.is_file() {
            Ok(metadata)
        } else {
            Err(OpenError::NotAFile)
        }
    }
}

/// The attributes of a file that change with its content.
pub(super) type Stamp = [u64; 3];

pub(super) fn stamp(found: &Metadata) -> Stamp {
    [found.file_size(), found.creation_time(), found.last_write_time()]
}
