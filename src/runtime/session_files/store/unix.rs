//! Directories as file descriptors, on Unix: an open directory cannot be replaced.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use super::{Denied, Owner};

/// The open flags of a directory.
const FOLDER: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);
/// The open flags of a file: opening a pipe must not block, and a terminal must not become the controlling one.
const FILE: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_CLOEXEC);

/// The open flags for an append.
const APPEND: OFlag = OFlag::O_WRONLY
    .union(OFlag::O_APPEND)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_CLOEXEC);

/// An open directory.
pub(super) struct Folder(OwnedFd);

impl Folder {
    /// Opens a trusted directory; links in its path are followed.
    pub(super) fn root(path: &Path) -> Result<Self, Denied> {
        match open(path, FOLDER, Mode::empty()) {
            Ok(folder) => Ok(Self(folder)),
            Err(Errno::ENOTDIR) => Err(Denied::NotADirectory),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }

    /// Opens a subdirectory; a link is not followed.
    pub(super) fn folder(&self, name: &OsStr, owner: Owner) -> Result<Self, Denied> {
        let opened = match openat(&self.0, name, FOLDER | OFlag::O_NOFOLLOW, Mode::empty()) {
            Ok(opened) => opened,
            Err(Errno::ELOOP | Errno::ENOTDIR | Errno::EMLINK) => return Err(self.no_folder(name)),
            Err(errno) => return Err(io::Error::from(errno).into()),
        };
        let stat = fstat(opened.as_fd()).map_err(io::Error::from)?;
        match owner {
            Owner::User if stat.st_uid != geteuid().as_raw() => Err(Denied::NotOurs),
            Owner::User | Owner::Anybody => Ok(Self(opened)),
        }
    }

    /// Creates a subdirectory with mode 0700 if it does not exist, and opens it.
    pub(super) fn make(&self, name: &OsStr, owner: Owner) -> Result<Self, Denied> {
        match mkdirat(&self.0, name, Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => self.folder(name, owner),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }

    /// Opens a regular file of the user for reading.
    pub(super) fn file(&self, name: &OsStr) -> Result<File, Denied> {
        // Opening a device may have side effects, so the file is checked before and after it is opened.
        self.look(name)?;
        let opened = match openat(&self.0, name, FILE, Mode::empty()) {
            Ok(opened) => opened,
            Err(Errno::ELOOP | Errno::EMLINK) => return Err(Denied::Link),
            Err(Errno::ENXIO) => return Err(Denied::NotAFile),
            Err(errno) => return Err(io::Error::from(errno).into()),
        };
        judge(&fstat(opened.as_fd()).map_err(io::Error::from)?)?;
        Ok(File::from(opened))
    }

    /// Opens a regular file of the user for appending.
    pub(super) fn append(&self, name: &OsStr) -> Result<File, Denied> {
        self.look(name)?;
        let opened = match openat(&self.0, name, APPEND, Mode::empty()) {
            Ok(opened) => opened,
            Err(Errno::ELOOP | Errno::EMLINK) => return Err(Denied::Link),
            Err(Errno::ENXIO) => return Err(Denied::NotAFile),
            Err(errno) => return Err(io::Error::from(errno).into()),
        };
        judge(&fstat(opened.as_fd()).map_err(io::Error::from)?)?;
        Ok(File::from(opened))
    }

    /// Checks that an entry is a regular file of the user.
    pub(super) fn look(&self, name: &OsStr) -> Result<(), Denied> {
        judge(&self.stat(name)?)
    }

    /// Returns when a file of the user was modified.
    pub(super) fn modified(&self, name: &OsStr) -> Result<SystemTime, Denied> {
        let stat = self.stat(name)?;
        judge(&stat)?;
        let seconds = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or_default());
        let nanos = Duration::from_nanos(u64::try_from(stat.st_mtime_nsec).unwrap_or_default());
        Ok(SystemTime::UNIX_EPOCH + seconds + nanos)
    }

    /// Returns at most `most` entries, unordered, and whether there are more.
    pub(super) fn names(&self, most: usize) -> io::Result<(Vec<OsString>, bool)> {
        // A separate descriptor, because reading a directory moves its offset.
        let mut dir = Dir::openat(&self.0, ".", FOLDER, Mode::empty())?;
        let mut names = Vec::new();
        for entry in dir.iter() {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            if name == "." || name == ".." {
                continue;
            }
            if names.len() == most {
                return Ok((names, true));
            }
            names.push(name);
        }
        Ok((names, false))
    }

    /// Creates a new file with mode 0600; fails if it exists.
    pub(super) fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let own = Mode::S_IRUSR | Mode::S_IWUSR;
        let file = openat(&self.0, name, flags, own)?;
        // Independent of the umask.
        fchmod(file.as_fd(), own)?;
        Ok(File::from(file))
    }

    pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Syncs the entries of the directory.
    pub(super) fn sync(&self) -> io::Result<()> {
        match nix::unistd::fsync(&self.0) {
            // Some file systems cannot sync a directory and report that.
            Ok(()) | Err(Errno::EINVAL | Errno::EROFS) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn stat(&self, name: &OsStr) -> Result<FileStat, Denied> {
        let stat = fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        stat.map_err(|errno| io::Error::from(errno).into())
    }

    /// Returns why an entry could not be opened as a directory.
    fn no_folder(&self, name: &OsStr) -> Denied {
        match self.stat(name) {
            // An entry that is a directory now was a link when it was opened.
            Ok(stat) if !matches!(kind(&stat), SFlag::S_IFLNK | SFlag::S_IFDIR) => Denied::NotADirectory,
            Ok(_) | Err(_) => Denied::Link,
        }
    }
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}

/// Accepts only regular files of the user with a single hard link.
fn judge(stat: &FileStat) -> Result<(), Denied> {
    let kind = kind(stat);
    if kind == SFlag::S_IFLNK {
        Err(Denied::Link)
    } else if kind != SFlag::S_IFREG {
        Err(Denied::NotAFile)
    } else if stat.st_uid != geteuid().as_raw() {
        Err(Denied::NotOurs)
    } else if stat.st_nlink > 1 {
        Err(Denied::ManyNames)
    } else {
        Ok(())
    }
}
