//! Directories as descriptors, on Unix: what was opened cannot be exchanged for something else.

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

/// How a directory is opened.
const FOLDER: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);
/// How a file is opened: to open a pipe must not wait for a writer, nor a terminal become ours.
const FILE: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_CLOEXEC);

/// How a file is opened for adding to its end.
const APPEND: OFlag = OFlag::O_WRONLY
    .union(OFlag::O_APPEND)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_CLOEXEC);

/// A directory that was opened.
pub(super) struct Folder(OwnedFd);

impl Folder {
    /// Opens a directory that is trusted; links on the way to it are the user's or the system's own arrangement.
    pub(super) fn root(path: &Path) -> Result<Self, Denied> {
        match open(path, FOLDER, Mode::empty()) {
            Ok(folder) => Ok(Self(folder)),
            Err(Errno::ENOTDIR) => Err(Denied::NotADirectory),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }

    /// Opens a directory in this one; a link is not followed.
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

    /// Makes a directory that is closed to others, unless somebody else just did, and opens it.
    pub(super) fn make(&self, name: &OsStr, owner: Owner) -> Result<Self, Denied> {
        match mkdirat(&self.0, name, Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => self.folder(name, owner),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }

    /// Opens a file of ours for reading, and nothing else.
    pub(super) fn file(&self, name: &OsStr) -> Result<File, Denied> {
        // To open a device may do something already, so it is looked at first; what was opened is looked at again.
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

    /// Opens a file of ours for adding to its end.
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

    /// Makes sure that what stands under a name is a file of ours.
    pub(super) fn look(&self, name: &OsStr) -> Result<(), Denied> {
        judge(&self.stat(name)?)
    }

    /// Returns when a file of ours was changed.
    pub(super) fn modified(&self, name: &OsStr) -> Result<SystemTime, Denied> {
        let stat = self.stat(name)?;
        judge(&stat)?;
        let seconds = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or_default());
        let nanos = Duration::from_nanos(u64::try_from(stat.st_mtime_nsec).unwrap_or_default());
        Ok(SystemTime::UNIX_EPOCH + seconds + nanos)
    }

    /// Returns at most `most` names, in no order, and whether there are more.
    pub(super) fn names(&self, most: usize) -> io::Result<(Vec<OsString>, bool)> {
        // A descriptor of its own: to read a directory moves its position.
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

    /// Creates a file that must not exist yet, for its owner alone.
    pub(super) fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let own = Mode::S_IRUSR | Mode::S_IWUSR;
        let file = openat(&self.0, name, flags, own)?;
        // Whatever the umask says, its owner can read it again.
        fchmod(file.as_fd(), own)?;
        Ok(File::from(file))
    }

    pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Has the names of the directory on disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        match nix::unistd::fsync(&self.0) {
            // Some file systems have nothing to do for a directory and say so.
            Ok(()) | Err(Errno::EINVAL | Errno::EROFS) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn stat(&self, name: &OsStr) -> Result<FileStat, Denied> {
        let stat = fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        stat.map_err(|errno| io::Error::from(errno).into())
    }

    /// Says why a name is no directory.
    fn no_folder(&self, name: &OsStr) -> Denied {
        match self.stat(name) {
            // One that is a directory after all was a link when it was to be opened.
            Ok(stat) if !matches!(kind(&stat), SFlag::S_IFLNK | SFlag::S_IFDIR) => Denied::NotADirectory,
            Ok(_) | Err(_) => Denied::Link,
        }
    }
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}

/// Refuses all but regular files of our own with one name.
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
