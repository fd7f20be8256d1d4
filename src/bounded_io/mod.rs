//! Access to files whose paths come from outside: from a client, a repository or a session file.
//!
//! Such a path may name a FIFO, a device or a file of any size, or lie on a mount that does not answer. A file is
//! opened without blocking and must be a regular one, its size is bounded, and work on such paths runs on a bounded
//! number of threads with a deadline ([`FileTasks`]). Nothing here decides which paths may be used.

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;
mod tasks;

use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use tasks::{FileTaskError, FileTasks};

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The path does not exist.
    #[error("{} does not exist", .path.display())]
    NotFound {
        /// The file.
        path: PathBuf,
    },
    /// The path names something other than a regular file.
    #[error("{} is a {kind}, not a regular file; replace it with a file or remove it", .path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        kind: &'static str,
    },
    /// The file is larger than the limit.
    #[error("{} has more than {limit} bytes", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// The operating system returned an error.
    #[error("cannot read {}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Whether a symbolic link in the place of a file is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// The file that it leads to is opened.
    Followed,
    /// It is no regular file.
    Refused,
}

impl FileError {
    fn from_io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            Self::NotFound { path }
        } else {
            Self::Io { path, source }
        }
    }
}

/// Opens a regular file for reading, without blocking on a writer, a lease or a terminal; a link is followed.
pub fn open(path: &Path) -> Result<File, FileError> {
    open_with(path, Links::Followed)
}

/// Opens a regular file for reading, without blocking on a writer, a lease or a terminal.
pub fn open_with(path: &Path, links: Links) -> Result<File, FileError> {
    // Opening a device can have side effects, so the path is checked first; the open file is checked again.
    let found = match links {
        Links::Followed => fs::metadata(path),
        Links::Refused => fs::symlink_metadata(path),
    };
    check_regular(path, found)?;
    let file = os::open(path, links).map_err(|source| FileError::from_io(path, source))?;
    check_regular(path, file.metadata())?;
    Ok(file)
}

/// Reads a regular file that has at most `limit` bytes.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
    let (bytes, more) = read_prefix(path, limit)?;
    if more { Err(FileError::TooLarge { path: path.to_owned(), limit }) } else { Ok(bytes) }
}

/// Reads the first `limit` bytes of a regular file, and returns whether it has more.
pub fn read_prefix(path: &Path, limit: u64) -> Result<(Vec<u8>, bool), FileError> {
    read_prefix_of(open(path)?, limit).map_err(|source| FileError::from_io(path, source))
}

/// Reads the first `limit` bytes of an open file, and returns whether it has more.
pub fn read_prefix_of(file: File, limit: u64) -> io::Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    // One byte beyond the limit shows whether the file has more.
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    let more = bytes.len() as u64 > limit;
    if more {
        bytes.pop();
    }
    Ok((bytes, more))
}

fn check_regular(path: &Path, metadata: io::Result<fs::Metadata>) -> Result<(), FileError> {
    let kind = metadata.map_err(|source| FileError::from_io(path, source))?.file_type();
    if kind.is_file() {
        return Ok(());
    }
    Err(FileError::NotRegular { path: path.to_owned(), kind: kind_name(kind) })
}

fn kind_name(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "directory"
    } else if kind.is_symlink() {
        "symbolic link"
    } else {
        os::special_name(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        assert!(matches!(read(&path, 4), Err(FileError::TooLarge { limit: 4, .. })));
        assert_eq!(read_prefix(&path, 4).unwrap(), (b"1234".to_vec(), true));
        assert_eq!(read_prefix(&path, 5).unwrap(), (b"12345".to_vec(), false));
        assert!(matches!(read(&dir.path().join("none"), 5), Err(FileError::NotFound { .. })));
        assert!(matches!(read(&path.join("below"), 5), Err(FileError::NotFound { .. })));
        let text = read(dir.path(), 5).unwrap_err().to_string();
        assert!(text.contains("is a directory, not a regular file"), "{text}");
    }
}
