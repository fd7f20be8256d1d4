//! Directories as handles, on Windows: an open directory and its parents can be neither renamed nor deleted.
//!
//! A directory is opened without delete sharing, and its path is read from the handle; the path stays valid while the
//! handle is open. A file is opened first, and then checked to lie beneath the workspace.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::windows::ffi::OsStringExt;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::AsRawHandle;
use std::path::{Path, PathBuf};

use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT, FILE_SHARE_READ,
    FILE_SHARE_WRITE, GetFileInformationByHandle, GetFinalPathNameByHandleW,
};

use super::{Entry, FileId, FileKind, ReachPolicy};

/// The root directory of a workspace.
pub(super) struct Root {
    held: File,
    path: PathBuf,
}

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let held = hold(path, 0)?;
        let path = real_path(&held)?;
        Ok(Self { held, path })
    }

    /// Opens an absolute path that must not contain a link.
    pub(super) fn open_without_links(path: &Path) -> io::Result<Self> {
        let root = Self::open(path)?;
        if root.path == path { Ok(root) } else { Err(io::ErrorKind::CrossesDevices.into()) }
    }

    pub(super) fn file_id(&self) -> io::Result<FileId> {
        file_id_of(&self.held)
    }

    /// Returns the identity of a file below; a link in the last component is not followed.
    pub(super) fn id_below(&self, path: &Path) -> Option<FileId> {
        let flags = FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT;
        let opened = OpenOptions::new().access_mode(0).custom_flags(flags).open(self.path.join(path));
        opened.and_then(|file| file_id_of(&file)).ok()
    }

    /// Returns the path of an open file without links.
    pub(super) fn path_of_file(&self, file: &File, _seen: &Path) -> io::Result<PathBuf> {
        inside(&real_path(file)?, &self.path)
    }

    /// Opens a file for reading.
    pub(super) fn file(&self, path: &Path, reach: ReachPolicy) -> io::Result<File> {
        let path = self.at(path, reach)?;
        let file = OpenOptions::new().read(true).custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        self.beneath(&file, reach)?;
        Ok(file)
    }

    pub(super) fn folder(&self, path: &Path, reach: ReachPolicy) -> io::Result<DirHandle> {
        let held = hold(&self.at(path, reach)?, 0)?;
        self.beneath(&held, reach)?;
        let path = real_path(&held)?;
        Ok(DirHandle { held, path })
    }

    fn at(&self, path: &Path, reach: ReachPolicy) -> io::Result<PathBuf> {
        match reach {
            ReachPolicy::Workspace if !super::stays_beneath(path) => Err(io::ErrorKind::CrossesDevices.into()),
            // A verbatim path may contain neither `..` nor forward slashes.
            ReachPolicy::Workspace | ReachPolicy::Anywhere => fs::canonicalize(self.path.join(path)),
        }
    }

    fn beneath(&self, opened: &File, reach: ReachPolicy) -> io::Result<()> {
        match reach {
            ReachPolicy::Anywhere => Ok(()),
            ReachPolicy::Workspace => inside(&real_path(opened)?, &self.path).map(drop),
        }
    }
}

fn inside(path: &Path, root: &Path) -> io::Result<PathBuf> {
    let inner = path.strip_prefix(root).map_err(|_| io::ErrorKind::CrossesDevices)?;
    Ok(inner.to_owned())
}

/// Opens a directory so that it cannot be renamed or deleted while the handle is open.
fn hold(path: &Path, flags: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).share_mode(FILE_SHARE_READ | FILE_SHARE_WRITE);
    let held = options.custom_flags(FILE_FLAG_BACKUP_SEMANTICS | flags).open(path)?;
    if held.metadata()?.is_dir() { Ok(held) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// Returns the path of an open file, without links.
#[expect(unsafe_code, reason = "the call has no wrapper")]
fn real_path(file: &File) -> io::Result<PathBuf> {
    let mut buffer = vec![0_u16; 512];
    loop {
        let capacity = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        // SAFETY: the handle is open, and the buffer has the size that is passed.
        let length =
            unsafe { GetFinalPathNameByHandleW(file.as_raw_handle().cast(), buffer.as_mut_ptr(), capacity, 0) };
        match usize::try_from(length).unwrap_or(usize::MAX) {
            0 => return Err(io::Error::last_os_error()),
            // If the buffer is too small, the call returns the required size.
            length if length < buffer.len() => return Ok(OsString::from_wide(&buffer[..length]).into()),
            length if length <= PATH_MAX => buffer.resize(length + 1, 0),
            _ => return Err(io::ErrorKind::InvalidFilename.into()),
        }
    }
}

/// The maximum length of a path, in UTF-16 code units.
const PATH_MAX: usize = 32_768;

/// Returns the identity of an open file.
#[expect(unsafe_code, reason = "the call has no wrapper")]
pub(super) fn file_id_of(file: &File) -> io::Result<FileId> {
    let mut about = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: the handle is open, and the structure outlives the call.
    if unsafe { GetFileInformationByHandle(file.as_raw_handle().cast(), &raw mut about) } == 0 {
        return Err(io::Error::last_os_error());
    }
    let inode = u64::from(about.nFileIndexHigh) << 32 | u64::from(about.nFileIndexLow);
    Ok(FileId { device: about.dwVolumeSerialNumber.into(), inode })
}

/// Returns the identity of the file at a path, following links.
pub(super) fn file_id_at(path: &Path) -> io::Result<FileId> {
    file_id_of(&OpenOptions::new().access_mode(0).custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(path)?)
}

/// An open directory.
pub(super) struct DirHandle {
    held: File,
    path: PathBuf,
}

impl DirHandle {
    /// Returns at most `limit` entries, unordered, and whether there are more.
    pub(super) fn entries(&self, limit: usize) -> io::Result<(Vec<Entry>, bool)> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name: OsString = entry?.file_name();
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
        match fs::symlink_metadata(self.path.join(name)) {
            Ok(metadata) => Ok(Some(EntryStat(metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn target(&self, name: &OsStr) -> io::Result<PathBuf> {
        fs::read_link(self.path.join(name))
    }

    pub(super) fn folder(&self, name: &OsStr) -> io::Result<Self> {
        let held = hold(&self.path.join(name), FILE_FLAG_OPEN_REPARSE_POINT)?;
        if held.metadata()?.file_type().is_symlink() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let path = real_path(&held)?;
        Ok(Self { held, path })
    }

    /// Opens an entry for reading; a link is not followed.
    pub(super) fn file(&self, name: &OsStr) -> io::Result<File> {
        let flags = FILE_FLAG_OPEN_REPARSE_POINT | FILE_FLAG_BACKUP_SEMANTICS;
        OpenOptions::new().read(true).custom_flags(flags).open(self.path.join(name))
    }

    pub(super) fn file_id(&self) -> io::Result<FileId> {
        file_id_of(&self.held)
    }

    /// Returns the path from the root to the directory, without links.
    pub(super) fn path_in(&self, root: &Root, _seen: &Path) -> io::Result<PathBuf> {
        inside(&self.path, &root.path)
    }

    /// Creates a directory if it does not exist, and opens it.
    pub(super) fn create_directory(&self, name: &OsStr) -> io::Result<Self> {
        match fs::create_dir(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => self.folder(name),
        }
    }

    /// Creates a file that must not exist yet.
    pub(super) fn create(&self, name: &OsStr) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).open(self.path.join(name))
    }

    /// Checks the permission to write the file of this name.
    pub(super) fn check_writable(&self, name: &OsStr) -> io::Result<()> {
        let flags = FILE_FLAG_OPEN_REPARSE_POINT;
        OpenOptions::new().write(true).custom_flags(flags).open(self.path.join(name)).map(drop)
    }

    pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    /// Not supported: the kind of a link depends on the kind of its target.
    pub(super) fn link(&self, _name: &OsStr, _target: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Does nothing: the system has no call to sync a directory.
    pub(super) const fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The status of a directory entry.
pub(super) struct EntryStat(Metadata);

impl EntryStat {
    pub(super) fn kind(&self) -> FileKind {
        let kind = self.0.file_type();
        if kind.is_symlink() {
            FileKind::Link
        } else if kind.is_dir() {
            FileKind::Directory
        } else if kind.is_file() {
            FileKind::File
        } else {
            FileKind::Other
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.len()
    }

    /// Returns `None`: the identity needs an open handle.
    pub(super) const fn file_id(&self) -> Option<FileId> {
        None
    }

    /// Gives `file` the permissions of the file that it replaces.
    pub(super) fn copy_attributes_to(&self, file: &File) -> io::Result<()> {
        file.set_permissions(self.0.permissions())
    }
}
