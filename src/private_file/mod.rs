//! Files that only their owner may access: access tokens, keys, granted rules.
//!
//! A file that another user could read or change is refused. A file is replaced as a whole and durably, so that a reader
//! and a crash find the old content or the new one. The meaning of the content is the caller's.

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

pub use crate::bounded_io::Links;
use crate::bounded_io::{self, FileError};

/// Why a private file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    /// The file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] FileError),
    /// Another user can read or change the file, or owns it.
    #[error(
        "{} can be read or changed by other users, or is not yours, and is not used; own it and run `chmod 600` on it",
        .0.display()
    )]
    Exposed(PathBuf),
    /// Another operation failed.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// Its path.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl PrivateFileError {
    /// Returns a function that adds the operation and the path to an error of the operating system.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// Reads a file of at most `limit` bytes; a missing file is `None`.
pub fn read(path: &Path, links: Links, limit: u64) -> Result<Option<String>, PrivateFileError> {
    let file = match bounded_io::open_with(path, links) {
        Ok(file) => file,
        Err(FileError::NotFound { .. }) => return Ok(None),
        Err(error @ (FileError::NotRegular { .. } | FileError::TooLarge { .. } | FileError::Io { .. })) => {
            return Err(error.into());
        }
    };
    let failed = PrivateFileError::io("read", path);
    match file.metadata() {
        Ok(about) if os::is_private(&about) => {}
        Ok(_) => return Err(PrivateFileError::Exposed(path.to_owned())),
        Err(error) => return Err(failed(error)),
    }
    match bounded_io::read_prefix_of(file, limit) {
        Ok((_, true)) => Err(FileError::TooLarge { path: path.to_owned(), limit }.into()),
        Ok((bytes, false)) => {
            let text = String::from_utf8(bytes);
            text.map(Some).map_err(|_| failed(io::Error::new(ErrorKind::InvalidData, "it is not UTF-8")))
        }
        Err(error) => Err(failed(error)),
    }
}

/// Replaces a file atomically and durably; a link in its place is replaced, not followed.
///
/// Concurrent calls of one process for the same file must be serialized by the caller.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), PrivateFileError> {
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let written = write_draft(&draft, bytes).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // It may hold a secret and must not remain; the write error takes precedence over a failed removal.
        drop(fs::remove_file(&draft));
    }
    let durable = written.and_then(|()| os::sync_directory(path.parent().unwrap_or(path)));
    durable.map_err(PrivateFileError::io("write", path))
}

fn write_draft(draft: &Path, bytes: &[u8]) -> io::Result<()> {
    // An earlier process with this id may have been killed while it wrote.
    match fs::remove_file(draft) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = os::options().create_new(true).open(draft)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Opens a file for writing, and creates it if it does not exist; a link is not followed.
pub fn open(path: &Path) -> io::Result<File> {
    os::options().create(true).truncate(false).open(path)
}

/// Locks a file until the guard is dropped; creates it, and its directory, if they do not exist.
pub fn lock(path: &Path) -> Result<File, PrivateFileError> {
    let directory = path.parent().unwrap_or(path);
    os::create_dir(directory).map_err(PrivateFileError::io("create", directory))?;
    let file = open(path).map_err(PrivateFileError::io("open", path))?;
    file.lock().map_err(PrivateFileError::io("lock", path))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_no_draft_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.json");
        assert!(read(&path, Links::Followed, 10).unwrap().is_none());
        fs::write(path.with_extension(format!("{}.new", std::process::id())), "of a killed process").unwrap();
        for text in ["one", "two"] {
            replace(&path, text.as_bytes()).unwrap();
            assert_eq!(read(&path, Links::Refused, 3).unwrap().as_deref(), Some(text));
        }
        assert!(matches!(
            read(&path, Links::Refused, 2),
            Err(PrivateFileError::Unreadable(FileError::TooLarge { limit: 2, .. }))
        ));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_keeps_the_old_content_and_leaves_no_draft() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("taken");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("content"), "x").unwrap();
        assert!(matches!(replace(&directory, b"y"), Err(PrivateFileError::Io { action: "write", .. })));
        assert_eq!(fs::read_to_string(directory.join("content")).unwrap(), "x");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn files_and_their_directory_are_private_and_an_exposed_file_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/f");
        let _lock = lock(&path.with_extension("lock")).unwrap();
        replace(&path, b"x").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert_eq!((mode(&path), mode(&path.with_extension("lock"))), (0o600, 0o600));
        for exposed in [0o640, 0o604, 0o620, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(exposed)).unwrap();
            assert!(matches!(read(&path, Links::Followed, 10), Err(PrivateFileError::Exposed(_))), "{exposed:o}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_read_only_where_links_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("f"), dir.path().join("link"));
        replace(&path, b"x").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(read(&link, Links::Followed, 10).unwrap().as_deref(), Some("x"));
        let refused = read(&link, Links::Refused, 10).unwrap_err().to_string();
        assert!(refused.contains("is a symbolic link, not a regular file"), "{refused}");
        assert!(open(&link).is_err());
        replace(&link, b"y").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap(), fs::read_to_string(&link).unwrap()), ("x".into(), "y".into()));
    }
}
