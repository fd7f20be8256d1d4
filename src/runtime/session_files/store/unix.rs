//! Directories as file descriptors, on Unix: an open directory cannot be replaced.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use super::{OpenError, RequiredOwner};

/// The open flags of a directory.
const DIRECTORY_FLAGS: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);
/// The open flags of a file: opening a pipe must not block, and a terminal must not become the controlling one.
const FILE_FLAGS: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_NOFOLLOW).union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY).union(OFlag::O_CLOEXEC);

/// The open flags for an append.
const APPEND_FLAGS: OFlag = OFlag::O_WRONLY
    .union(OFlag::O_APPEND)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_CLOEXEC);

/// An open directory.
pub(super) struct DirHandle(OwnedFd);

impl DirHandle {
    /// Opens a trusted directory; links in its path are followed.
    pub(super) fn open_root(path: &Path) -> Result<Self, OpenError> {
        match open(path, DIRECTORY_FLAGS, Mode::empty()) {
            Ok(folder) => Ok(Self(folder)),
            Err(Errno::ENOTDIR) => Err(OpenError::NotADirectory),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }

    /// Opens a subdirectory; a link is not followed.
    pub(super) fn open_dir(&self, name: &OsStr, owner: RequiredOwner) -> Result<Self, OpenError> {
        let opened = match openat(&self.0, name, DIRECTORY_FLAGS | OFlag::O_NOFOLLOW, Mode::empty()) {
            Ok(opened) => opened,
            Err(Errno::ELOOP | Errno::ENOTDIR | Errno::EMLINK) => return Err(self.not_directory_error(name)),
            Err(errno) => return Err(io::Error::from(errno).into()),
        };
        let stat = fstat(opened.as_fd()).map_err(io::Error::from)?;
        match owner {
            RequiredOwner::User if stat.st_uid != geteuid().as_raw() => Err(OpenError::OtherOwner),
            RequiredOwner::User | RequiredOwner::Anybody => Ok(Self(opened)),
        }
    }

    /// Creates a subdirectory with mode 0700 if it does not exist, and opens it.
    pub(super) fn create_dir(&self, name: &OsStr, owner: RequiredOwner) -> Result<Self, OpenError> {
        match mkdirat(&self.0, name, Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => self.open_dir(name, owner),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }

    /// Opens a regular file of the user for reading.
    pub(super) fn open_file(&self, name: &OsStr) -> Result<File, OpenError> {
        self.open_with(name, FILE_FLAGS)
    }

    /// Opens a regular file of the user for appending.
    pub(super) fn open_append(&self, name: &OsStr) -> Result<File, OpenError> {
        self.open_with(name, APPEND_FLAGS)
    }

    fn open_with(&self, name: &OsStr, flags: OFlag) -> Result<File, OpenError> {
        // Opening a device may have side effects, so the file is checked before and after it is opened.
        self.check_file(name)?;
        let opened = match openat(&self.0, name, flags, Mode::empty()) {
            Ok(opened) => opened,
            Err(Errno::ELOOP | Errno::EMLINK) => return Err(OpenError::Link),
            Err(Errno::ENXIO) => return Err(OpenError::NotAFile),
            Err(errno) => return Err(io::Error::from(errno).into()),
        };
        check_stat(&fstat(opened.as_fd()).map_err(io::Error::from)?)?;
        Ok(File::from(opened))
    }

    /// Checks that an entry is a regular file of the user.
    pub(super) fn check_file(&self, name: &OsStr) -> Result<(), OpenError> {
        check_stat(&self.stat(name)?)
    }

    /// Returns when a file of the user was modified.
    pub(super) fn modified(&self, name: &OsStr) -> Result<SystemTime, OpenError> {
        let stat = self.stat(name)?;
        check_stat(&stat)?;
        let seconds = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or_default());
        let nanos = Duration::from_nanos(u64::try_from(stat.st_mtime_nsec).unwrap_or_default());
        Ok(SystemTime::UNIX_EPOCH + seconds + nanos)
    }

    /// Returns at most `most` entries, unordered, and whether there are more.
    pub(super) fn names(&self, most: usize) -> io::Result<(Vec<OsString>, bool)> {
        // A separate descriptor, because reading a directory moves its offset.
        let mut dir = Dir::openat(&self.0, ".", DIRECTORY_FLAGS, Mode::empty())?;
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

    fn stat(&self, name: &OsStr) -> Result<FileStat, OpenError> {
        let stat = fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        stat.map_err(|errno| io::Error::from(errno).into())
    }

    /// Returns why an entry could not be opened as a directory.
    fn not_directory_error(&self, name: &OsStr) -> OpenError {
        match self.stat(name) {
            // An entry that is a directory now was a link when it was opened.
            Ok(stat) if !matches!(kind(&stat), SFlag::S_IFLNK | SFlag::S_IFDIR) => OpenError::NotADirectory,
            Ok(_) | Err(_) => OpenError::Link,
        }
    }
}

/// The attributes of a file that change with its content.
pub(super) type Stamp = [i64; 7];

pub(super) fn stamp(found: &Metadata) -> Stamp {
    let identity = [found.dev(), found.ino(), found.size()].map(u64::cast_signed);
    let [device, inode, size] = identity;
    [device, inode, size, found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()]
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}

/// Accepts only regular files of the user with a single hard link.
fn check_stat(stat: &FileStat) -> Result<(), OpenError> {
    let kind = kind(stat);
    if kind == SFlag::S_IFLNK {
        Err(OpenError::Link)
    } else if kind != SFlag::S_IFREG {
        Err(OpenError::NotAFile)
    } else if stat.st_uid != geteuid().as_raw() {
        Err(OpenError::OtherOwner)
    } else if stat.st_nlink > 1 {
        Err(OpenError::HardLinked)
    } else {
        Ok(())
    }
}
