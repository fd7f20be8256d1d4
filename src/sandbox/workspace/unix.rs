//! Directories as file descriptors, on Unix: an open directory cannot be replaced by another.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, readlinkat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat, stat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use super::{Entry, FileId, FileKind, ReachPolicy};

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod platform;
#[cfg(not(target_os = "linux"))]
#[path = "posix.rs"]
mod platform;

/// The flags to open a directory.
const DIRECTORY_FLAGS: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);
/// The flags to open a file: a pipe must not block, and a terminal must not become the controlling terminal.
const FILE_FLAGS: OFlag = OFlag::O_RDONLY.union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY).union(OFlag::O_CLOEXEC);

/// The root directory of a workspace.
pub(super) struct Root(OwnedFd);

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(open(path, DIRECTORY_FLAGS, Mode::empty())?))
    }

    /// Opens an absolute path that must not contain a link.
    pub(super) fn open_without_links(path: &Path) -> io::Result<Self> {
        if !path.is_absolute() {
            return Err(Errno::EINVAL.into());
        }
        let opened = platform::open_without_links(path, DIRECTORY_FLAGS);
        opened.map(Self).map_err(|errno| if errno == Errno::ELOOP { Errno::EXDEV.into() } else { errno.into() })
    }

    pub(super) fn file_id(&self) -> io::Result<FileId> {
        file_id_of(&self.0)
    }

    /// Returns the identity of a file below; a link in the last component is not followed.
    pub(super) fn id_below(&self, path: &Path) -> Option<FileId> {
        fstatat(&self.0, path, AtFlags::AT_SYMLINK_NOFOLLOW).ok().map(|stat| file_id_from_stat(&stat))
    }

    /// Returns the path of an open file without links; `seen` is the requested path.
    pub(super) fn path_of_file(&self, file: &File, requested: &Path) -> io::Result<PathBuf> {
        platform::path_in(self.0.as_fd(), file.as_fd(), requested)
    }

    /// Opens a file for reading.
    pub(super) fn file(&self, path: &Path, reach: ReachPolicy) -> io::Result<File> {
        Ok(File::from(self.open_at(path, FILE_FLAGS, reach)?))
    }

    pub(super) fn folder(&self, path: &Path, reach: ReachPolicy) -> io::Result<DirHandle> {
        Ok(DirHandle(self.open_at(path, DIRECTORY_FLAGS, reach)?))
    }

    fn open_at(&self, path: &Path, flags: OFlag, reach: ReachPolicy) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let opened = match reach {
            ReachPolicy::Anywhere => openat(&self.0, path, flags, Mode::empty()),
            ReachPolicy::Workspace if path.is_absolute() => Err(Errno::EXDEV),
            ReachPolicy::Workspace => platform::open_beneath(self.0.as_fd(), path, flags),
        };
        // A loop of links and a magic link of procfs are reported as leading outside.
        opened.map_err(|errno| if errno == Errno::ELOOP { Errno::EXDEV.into() } else { errno.into() })
    }
}

/// An open directory.
pub(super) struct DirHandle(OwnedFd);

impl DirHandle {
    /// Returns at most `limit` entries, unordered, and whether there are more.
    pub(super) fn entries(&self, limit: usize) -> io::Result<(Vec<Entry>, bool)> {
        // A separate descriptor, because reading a directory moves its position.
        let mut dir = Dir::openat(&self.0, ".", DIRECTORY_FLAGS, Mode::empty())?;
        let mut entries = Vec::new();
        for entry in dir.iter() {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            if name == "." || name == ".." {
                continue;
            }
            if entries.len() == limit {
                return Ok((entries, true));
            }
            // The entry may have been removed concurrently.
            if let Some(entry_stat) = self.stat(&name)? {
                entries.push(Entry { kind: entry_stat.kind(), bytes: entry_stat.bytes(), name });
            }
        }
        Ok((entries, false))
    }

    /// Returns the status of an entry, or `None` if it does not exist.
    pub(super) fn stat(&self, name: &OsStr) -> io::Result<Option<EntryStat>> {
        match fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(EntryStat(stat))),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn target(&self, name: &OsStr) -> io::Result<PathBuf> {
        Ok(PathBuf::from(readlinkat(&self.0, name)?))
    }

    pub(super) fn folder(&self, name: &OsStr) -> io::Result<Self> {
        Ok(Self(openat(&self.0, name, DIRECTORY_FLAGS | OFlag::O_NOFOLLOW, Mode::empty())?))
    }

    /// Opens an entry for reading; a link is not followed.
    pub(super) fn file(&self, name: &OsStr) -> io::Result<File> {
        Ok(File::from(openat(&self.0, name, FILE_FLAGS | OFlag::O_NOFOLLOW, Mode::empty())?))
    }

    pub(super) fn file_id(&self) -> io::Result<FileId> {
        file_id_of(&self.0)
    }

    /// Returns the path from the root to the directory, without links; `seen` is the requested path.
    pub(super) fn path_in(&self, root: &Root, requested: &Path) -> io::Result<PathBuf> {
        platform::path_in(root.0.as_fd(), self.0.as_fd(), requested)
    }

    /// Creates a directory if it does not exist, and opens it.
    pub(super) fn create_directory(&self, name: &OsStr) -> io::Result<Self> {
        match mkdirat(&self.0, name, Mode::from_bits_truncate(0o777)) {
            Ok(()) | Err(Errno::EEXIST) => self.folder(name),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Creates a file that must not exist yet, readable by all as far as the umask allows.
    pub(super) fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(File::from(openat(&self.0, name, flags, Mode::from_bits_truncate(0o644))?))
    }

    /// Checks the permission to write the file of this name.
    pub(super) fn check_writable(&self, name: &OsStr) -> io::Result<()> {
        let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        openat(&self.0, name, flags, Mode::empty()).map(drop).map_err(io::Error::from)
    }

    pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Creates a symbolic link that must not exist yet.
    pub(super) fn link(&self, name: &OsStr, target: &Path) -> io::Result<()> {
        Ok(symlinkat(target, &self.0, name)?)
    }

    /// Syncs the entries of the directory to disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        match nix::unistd::fsync(&self.0) {
            // Some file systems do not support syncing a directory.
            Ok(()) | Err(Errno::EINVAL | Errno::EROFS) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Returns the identity of an open file.
pub(super) fn file_id_of(file: impl AsFd) -> io::Result<FileId> {
    Ok(file_id_from_stat(&fstat(file)?))
}

/// Returns the identity of the file at a path, following links.
pub(super) fn file_id_at(path: &Path) -> io::Result<FileId> {
    Ok(file_id_from_stat(&stat(path)?))
}

#[allow(
    clippy::useless_conversion,
    clippy::cast_sign_loss,
    clippy::unnecessary_cast,
    reason = "the fields have other types on other systems"
)]
fn file_id_from_stat(stat: &FileStat) -> FileId {
    FileId { device: stat.st_dev as u64, inode: u64::from(stat.st_ino) }
}

/// The status of a directory entry.
pub(super) struct EntryStat(FileStat);

impl EntryStat {
    pub(super) fn kind(&self) -> FileKind {
        match SFlag::from_bits_truncate(self.0.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFDIR => FileKind::Directory,
            SFlag::S_IFREG => FileKind::File,
            SFlag::S_IFLNK => FileKind::Link,
            _ => FileKind::Other,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        u64::try_from(self.0.st_size).unwrap_or(0)
    }

    pub(super) fn file_id(&self) -> Option<FileId> {
        Some(file_id_from_stat(&self.0))
    }

    /// Gives `file` the owner and the mode of the file that it replaces, without the set-uid and set-gid bits. The
    /// kernel clears these bits on a write, and a replacement counts as a write.
    pub(super) fn copy_attributes_to(&self, file: &File) -> io::Result<()> {
        let new = file.metadata()?;
        if (new.uid(), new.gid()) != (self.0.st_uid, self.0.st_gid) {
            // Only root, or a member of both groups, may change the owner. For everyone else the new owner stays.
            let _kept = std::os::unix::fs::fchown(file, Some(self.0.st_uid), Some(self.0.st_gid));
        }
        Ok(fchmod(file, Mode::from_bits_truncate(self.0.st_mode) - (Mode::S_ISUID | Mode::S_ISGID))?)
    }
}

/// Opens a path one component at a time. Links are not followed, and `..` returns to the directory opened before.
pub(super) fn open_by_component(root: BorrowedFd<'_>, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    let mut above: Vec<OwnedFd> = Vec::new();
    let mut parts = path.components().peekable();
    while let Some(part) = parts.next() {
        let here = above.last().map_or(root, AsFd::as_fd);
        match part {
            Component::Prefix(_) | Component::RootDir => return Err(Errno::EXDEV),
            Component::CurDir => {}
            Component::ParentDir => {
                above.pop().ok_or(Errno::EXDEV)?;
            }
            Component::Normal(name) if parts.peek().is_none() => return open_component(here, name, flags),
            Component::Normal(name) => {
                let next = open_component(here, name, DIRECTORY_FLAGS)?;
                above.push(next);
            }
        }
    }
    openat(above.last().map_or(root, AsFd::as_fd), ".", flags, Mode::empty())
}

/// Opens an absolute path one component at a time, without links.
pub(super) fn open_absolute_by_component(path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    let root = open("/", DIRECTORY_FLAGS, Mode::empty())?;
    open_by_component(root.as_fd(), path.strip_prefix("/").unwrap_or(path), flags)
}

fn open_component(here: BorrowedFd<'_>, name: &OsStr, flags: OFlag) -> Result<OwnedFd, Errno> {
    match openat(here, name, flags | OFlag::O_NOFOLLOW, Mode::empty()) {
        Err(Errno::ENOTDIR) if is_link(here, name) => Err(Errno::ELOOP),
        opened => opened,
    }
}

fn is_link(here: BorrowedFd<'_>, name: &OsStr) -> bool {
    fstatat(here, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok_and(|stat| EntryStat(stat).kind() == FileKind::Link)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn opening_by_component_follows_no_link_and_stays_beneath_the_root() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("root/a/b")).unwrap();
        std::fs::write(dir.path().join("root/a/b/f"), "in").unwrap();
        std::fs::write(dir.path().join("secret"), "out").unwrap();
        symlink("a", dir.path().join("root/link")).unwrap();
        symlink("../secret", dir.path().join("root/leak")).unwrap();
        let root = Root::open(&dir.path().join("root")).unwrap();
        let walk = |path: &str| open_by_component(root.0.as_fd(), Path::new(path), FILE_FLAGS).map(drop);
        for fine in ["a/b/f", "./a/../a/b/../b/f", "a/b/..", "."] {
            assert_eq!(walk(fine), Ok(()), "{fine}");
        }
        for (path, errno) in [
            ("..", Errno::EXDEV),
            ("a/../../secret", Errno::EXDEV),
            ("/etc/passwd", Errno::EXDEV),
            ("leak", Errno::ELOOP),
            ("link/b/f", Errno::ELOOP),
            ("a/b/none", Errno::ENOENT),
            ("a/b/f/x", Errno::ENOTDIR),
        ] {
            assert_eq!(walk(path), Err(errno), "{path}");
        }
    }
}
