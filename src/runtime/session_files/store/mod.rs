//! The store of session files, and the only access to them.
//!
//! Session files are in `~/.pi/agent/sessions`, where the daemon writes its own, and in `.pi/sessions` of any
//! project. A path is first checked lexically, then opened component by component without following links, and only
//! open handles are used: replacing a component meanwhile has no effect. Directories from `.pi` on and the file
//! itself must belong to the user, and a file must have a single hard link. All functions block; callers run them
//! outside the event loop.

mod list;
mod name;
#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;
mod session_path;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernel::time::Now;

use crate::protocol::session_file::{
    Entry, Header, Limits, ParseError, ParsedSession, WriteError, lines_with_id, parse, render, render_entries,
};
pub use list::{ListLimits, Listing, SessionFile, SkippedFile, StoredSession};
use session_path::SessionPath;

/// Why a session file was not read or written. Clients see the text.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The path is in no session directory, or contains `.` or `..`.
    #[error("sessionPath must be under an allowed session directory")]
    NotAllowed {
        /// The requested path.
        path: PathBuf,
    },
    /// A component of the path is a symbolic link.
    #[error("sessionPath must be under an allowed session directory: {} is a symbolic link", .path.display())]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// A directory or the file belongs to another user.
    #[error("sessionPath must be under an allowed session directory: {} belongs to another user", .path.display())]
    OtherOwner {
        /// The directory or file.
        path: PathBuf,
    },
    /// The file has other hard links, which may be anywhere.
    #[error("sessionPath must be under an allowed session directory: {} has more than one hard link", .path.display())]
    HardLinked {
        /// The file.
        path: PathBuf,
    },
    /// A component does not exist.
    #[error("{} does not exist", .path.display())]
    NotFound {
        /// The missing component.
        path: PathBuf,
    },
    /// It is not a regular file.
    #[error("{} is not a regular file", .path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// A component of the path is not a directory.
    #[error("{} is not a directory", .path.display())]
    NotADirectory {
        /// The component.
        path: PathBuf,
    },
    /// The file is not a session file.
    #[error("{} is not a session file: {source}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The parse error.
        source: ParseError,
    },
    /// The entries cannot be encoded.
    #[error("cannot write {}: {source}", .path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The encoding error.
        source: WriteError,
    },
    /// Another process has changed the file since it was read.
    #[error("{} has changed since it was read", .path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The object of the action.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Why a file or directory could not be opened.
#[derive(Debug)]
#[cfg_attr(windows, expect(dead_code, reason = "owners and hard links are not checked there"))]
enum OpenError {
    Link,
    OtherOwner,
    HardLinked,
    NotFound,
    NotAFile,
    NotADirectory,
    Io(io::Error),
}

impl OpenError {
    fn into_store_error(self, action: &'static str, path: &Path) -> StoreError {
        let path = path.to_owned();
        match self {
            Self::Link => StoreError::Link { path },
            Self::OtherOwner => StoreError::OtherOwner { path },
            Self::HardLinked => StoreError::HardLinked { path },
            Self::NotFound => StoreError::NotFound { path },
            Self::NotAFile => StoreError::NotAFile { path },
            Self::NotADirectory => StoreError::NotADirectory { path },
            Self::Io(source) => StoreError::Io { action, path, source },
        }
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::NotFound { Self::NotFound } else { Self::Io(error) }
    }
}

/// The session files of one user.
#[derive(Debug, Clone)]
pub struct Store {
    home: PathBuf,
    /// The home without symbolic links, if that is another path.
    real_home: Option<PathBuf>,
    limits: Limits,
    list_limits: ListLimits,
}

impl Store {
    /// Creates the store in a home directory; accesses nothing yet.
    pub fn new(home: impl Into<PathBuf>) -> Self {
        let home = home.into();
        let real_home = home.canonicalize().ok().filter(|real| *real != home);
        Self { home, real_home, limits: Limits::default(), list_limits: ListLimits::default() }
    }

    /// Sets other limits.
    #[must_use]
    pub const fn with_limits(mut self, limits: Limits, bounds: ListLimits) -> Self {
        (self.limits, self.list_limits) = (limits, bounds);
        self
    }

    /// Returns the directory of the daemon's own files.
    pub fn directory(&self) -> PathBuf {
        OWN_DIRECTORY.iter().fold(self.home.clone(), |path, name| path.join(name))
    }

    /// Returns the path of a session's file, which need not exist.
    pub fn path_for(&self, cwd: &Path, id: &str, created: Now) -> PathBuf {
        self.directory().join(name::directory_name(cwd)).join(name::file_name(id, created))
    }

    /// Checks a path lexically.
    pub fn check(&self, path: &Path) -> Result<(), StoreError> {
        self.resolve(path).map(drop)
    }

    /// Creates the directory of the daemon's own files with mode 0700, if it does not exist.
    pub fn prepare(&self) -> Result<(), StoreError> {
        let session_path = SessionPath::new(&self.home, OWN_DIRECTORY.iter().map(OsString::from).collect(), 0);
        self.open_directory(&session_path, MissingDirectory::Create).map(drop)
    }

    /// Reads a file.
    pub fn read(&self, path: &Path) -> Result<ParsedSession, StoreError> {
        self.read_stamped(path).map(|(stored, _)| stored)
    }

    /// Reads a file, and returns the stamp that it had before.
    pub fn read_stamped(&self, path: &Path) -> Result<(ParsedSession, Option<FileStamp>), StoreError> {
        let file = self.open_file(path)?;
        let stamp = FileStamp::of(&file);
        let bytes = self.read_content(file, path)?;
        let stored = parse(&bytes, &self.limits);
        Ok((stored.map_err(|source| StoreError::Malformed { path: path.to_owned(), source })?, stamp))
    }

    /// Returns whether the file at a path has the stamp that it had before, so that it need not be read again.
    ///
    /// Only its attributes are looked up: whoever replaces a directory of the path gives the file no other content.
    pub fn has_stamp(path: &Path, stamp: &FileStamp) -> bool {
        fs::symlink_metadata(path).is_ok_and(|found| os::stamp(&found) == stamp.0)
    }

    /// Writes a file atomically: readers see the old content or the new one.
    ///
    /// Missing directories are created beneath the daemon's own directory and nowhere else.
    pub fn write(&self, path: &Path, header: &Header, entries: &[Entry]) -> Result<(), StoreError> {
        let bytes =
            render(header, entries).map_err(|source| StoreError::Unwritable { path: path.to_owned(), source })?;
        self.write_bytes(path, &bytes)
    }

    /// Appends entries to a file, if its size is unchanged since `stored` was read from it.
    ///
    /// The existing content is unchanged. An incomplete last line counts as a change, because another process may be
    /// writing it. With [`TornLine::Terminate`] it gets its line feed instead, and readers skip it.
    ///
    /// Returns the stamp of the file, unless another process has written to it meanwhile.
    pub fn extend(
        &self,
        path: &Path,
        stored: &ParsedSession,
        entries: &[Entry],
        torn: TornLine,
    ) -> Result<Option<FileStamp>, StoreError> {
        if stored.torn && torn == TornLine::Wait {
            return Err(StoreError::Changed { path: path.to_owned() });
        }
        let known: BTreeSet<&str> = stored.entries.iter().map(|entry| entry.id.as_str()).collect();
        let mut added = render_entries(entries, known)
            .map_err(|source| StoreError::Unwritable { path: path.to_owned(), source })?;
        if stored.complete_bytes < stored.bytes {
            added.insert(0, b'\n');
        }
        let extended_bytes = stored.bytes.saturating_add(added.len() as u64);
        self.refuse_too_large(path, extended_bytes)?;
        let (directory, name) = self.open_parent(path, MissingDirectory::Fail)?;
        let mut file = directory.open_append(&name).map_err(|error| error.into_store_error("write", path))?;
        let failed = |error| OpenError::from(error).into_store_error("write", path);
        if file.metadata().map_err(failed)?.len() != stored.bytes {
            return Err(StoreError::Changed { path: path.to_owned() });
        }
        // A single write, so that it does not interleave with writes of other processes.
        if let Err(error) = file.write_all(&added) {
            if let Ok(found) = directory.open_file(&name) {
                // If that fails too, the incomplete line is terminated later.
                let _left = undo_append(&file, found, stored.bytes, &added);
            }
            return Err(failed(error));
        }
        file.sync_all().map_err(failed)?;
        let is_own = file.metadata().is_ok_and(|found| found.len() == extended_bytes);
        Ok(FileStamp::of(&file).filter(|_| is_own))
    }

    /// Writes a file with a new header and some entries of another file, byte for byte.
    pub fn copy(&self, from: &Path, to: &Path, header: &Header, entries: &BTreeSet<&str>) -> Result<(), StoreError> {
        let bytes = self.read_bytes(from)?;
        let mut copied =
            render(header, &[]).map_err(|source| StoreError::Unwritable { path: to.to_owned(), source })?;
        for (line, id) in lines_with_id(&bytes) {
            if entries.contains(id.as_str()) {
                copied.extend_from_slice(line);
                copied.push(b'\n');
            }
        }
        self.write_bytes(to, &copied)
    }

    /// Removes a file and returns its size; `None` if it does not exist.
    pub fn remove(&self, path: &Path) -> Result<Option<u64>, StoreError> {
        let removed = self.open_parent(path, MissingDirectory::Fail).and_then(|(directory, name)| {
            let named = |error: OpenError| error.into_store_error("remove", path);
            let bytes = directory.open_file(&name).map_err(named)?.metadata().map_or(0, |found| found.len());
            directory.remove(&name).map_err(|error| named(OpenError::from(error)))?;
            Ok(bytes)
        });
        match removed {
            Ok(bytes) => Ok(Some(bytes)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the size of a file; `None` if it does not exist.
    pub fn size(&self, path: &Path) -> Result<Option<u64>, StoreError> {
        let opened = self.open_parent(path, MissingDirectory::Fail).and_then(|(directory, name)| {
            directory.open_file(&name).map_err(|error| error.into_store_error("inspect", path))
        });
        match opened {
            Ok(file) => Ok(Some(file.metadata().map_or(0, |found| found.len()))),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a file, up to the size limit.
    fn read_bytes(&self, path: &Path) -> Result<Vec<u8>, StoreError> {
        self.read_content(self.open_file(path)?, path)
    }

    fn open_file(&self, path: &Path) -> Result<File, StoreError> {
        let (directory, name) = self.open_parent(path, MissingDirectory::Fail)?;
        directory.open_file(&name).map_err(|error| error.into_store_error("read", path))
    }

    fn read_content(&self, file: File, path: &Path) -> Result<Vec<u8>, StoreError> {
        let limit = self.limits.bytes;
        let too_large = || {
            let source = ParseError::TooLarge { limit };
            Err(StoreError::Malformed { path: path.to_owned(), source })
        };
        let failed = |error| OpenError::from(error).into_store_error("read", path);
        if file.metadata().map_err(failed)?.len() > limit {
            return too_large();
        }
        let mut bytes = Vec::new();
        // The file may grow meanwhile: one byte more shows that it exceeds the limit.
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > limit {
            return too_large();
        }
        Ok(bytes)
    }

    fn write_bytes(&self, path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
        self.refuse_too_large(path, bytes.len() as u64)?;
        let (directory, name) = self.open_parent(path, MissingDirectory::Create)?;
        let named = |error: OpenError| error.into_store_error("write", path);
        match directory.check_file(&name) {
            Ok(()) | Err(OpenError::NotFound) => {}
            Err(error) => return Err(named(error)),
        }
        replace_in(&directory, &name, bytes).map_err(|error| named(OpenError::from(error)))
    }

    fn refuse_too_large(&self, path: &Path, bytes: u64) -> Result<(), StoreError> {
        if bytes <= self.limits.bytes {
            return Ok(());
        }
        let source = ParseError::TooLarge { limit: self.limits.bytes };
        Err(StoreError::Malformed { path: path.to_owned(), source })
    }

    /// Opens the parent directory of a path, and returns the last component.
    fn open_parent(&self, path: &Path, missing: MissingDirectory) -> Result<(os::DirHandle, OsString), StoreError> {
        let mut session_path = self.resolve(path)?;
        let name = session_path.pop().ok_or_else(|| StoreError::NotAllowed { path: path.to_owned() })?;
        let missing = if session_path.is_own { missing } else { MissingDirectory::Fail };
        Ok((self.open_directory(&session_path, missing)?, name))
    }

    /// Opens a directory, component by component.
    fn open_directory(
        &self,
        session_path: &SessionPath,
        missing: MissingDirectory,
    ) -> Result<os::DirHandle, StoreError> {
        let mut path = session_path.root.clone();
        let mut directory = os::DirHandle::open_root(&path).map_err(|error| error.into_store_error("open", &path))?;
        for (index, name) in session_path.components.iter().enumerate() {
            path.push(name);
            let owner =
                if index < session_path.shared_components { RequiredOwner::Anybody } else { RequiredOwner::User };
            let next = match directory.open_dir(name, owner) {
                Err(OpenError::NotFound) if missing == MissingDirectory::Create => directory.create_dir(name, owner),
                opened => opened,
            };
            directory = next.map_err(|error| error.into_store_error("open", &path))?;
        }
        Ok(directory)
    }

    fn resolve(&self, path: &Path) -> Result<SessionPath, StoreError> {
        let homes = [Some(&self.home), self.real_home.as_ref()].into_iter().flatten();
        SessionPath::resolve(path, homes).ok_or_else(|| StoreError::NotAllowed { path: path.to_owned() })
    }
}

/// Identifies the content of a file without reading it: the file itself, its size, and when it was changed.
///
/// A change to the same size within one tick of the system's clock goes unnoticed until the next change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStamp(os::Stamp);

impl FileStamp {
    fn of(file: &File) -> Option<Self> {
        file.metadata().ok().map(|found| Self(os::stamp(&found)))
    }
}

/// The path from the home to the daemon's own directory.
const OWN_DIRECTORY: [&str; 3] = [".pi", "agent", "sessions"];

/// What an append does about an incomplete last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TornLine {
    /// It fails, because another process may be writing the line.
    Wait,
    /// It adds the missing line feed.
    Terminate,
}

/// Truncates what a failed append has left; a file with another ending is unchanged.
fn undo_append(file: &File, mut found: File, before: u64, added: &[u8]) -> io::Result<()> {
    found.seek(SeekFrom::Start(before))?;
    let mut tail = Vec::new();
    found.take(added.len() as u64 + 1).read_to_end(&mut tail)?;
    if added.starts_with(&tail) { file.set_len(before) } else { Ok(()) }
}

/// What happens if a directory does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MissingDirectory {
    Create,
    Fail,
}

/// Who must own a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequiredOwner {
    Anybody,
    User,
}

/// Replaces a file of the daemon atomically, with mode 0600.
pub(super) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let directory = os::DirHandle::open_root(directory).map_err(|error| match error {
        OpenError::Io(error) => error,
        OpenError::NotFound => io::ErrorKind::NotFound.into(),
        OpenError::Link
        | OpenError::OtherOwner
        | OpenError::HardLinked
        | OpenError::NotAFile
        | OpenError::NotADirectory => io::ErrorKind::NotADirectory.into(),
    })?;
    replace_in(&directory, name, bytes)
}

/// Writes a draft and renames it to its final name.
fn replace_in(directory: &os::DirHandle, name: &OsStr, bytes: &[u8]) -> io::Result<()> {
    let draft = draft_name();
    let written = write_draft(directory, &draft, bytes)
        .and_then(|()| directory.rename(&draft, name))
        .and_then(|()| directory.sync());
    written.inspect_err(|_| {
        let _never_made = directory.remove(&draft);
    })
}

/// Writes and syncs the draft.
fn write_draft(directory: &os::DirHandle, draft: &OsStr, bytes: &[u8]) -> io::Result<()> {
    let mut file = directory.create(draft)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Returns a unique draft name.
fn draft_name() -> OsString {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!(".push-draft-{}-{count}", std::process::id()).into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_stamp_is_of_one_content() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::new(home.path());
        let header = Header::new("s", "/w", Now(7));
        let path = store.path_for(Path::new("/w"), "s", Now(7));
        store.write(&path, &header, &[]).unwrap();
        let (stored, stamp) = store.read_stamped(&path).unwrap();
        let stamp = stamp.unwrap();
        assert!(Store::has_stamp(&path, &stamp));
        let extended = store.extend(&path, &stored, &[], TornLine::Wait).unwrap().unwrap();
        assert!(Store::has_stamp(&path, &extended));
        // A file of the same content is another file.
        let other = path.with_extension("other");
        fs::copy(&path, &other).unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(!Store::has_stamp(&path, &stamp));
        let (_, stamp) = store.read_stamped(&path).unwrap();
        let stamp = stamp.unwrap();
        File::options().append(true).open(&path).unwrap().write_all(b"\n").unwrap();
        assert!(!Store::has_stamp(&path, &stamp), "another program has appended a line");
        let (_, stamp) = store.read_stamped(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(!Store::has_stamp(&path, &stamp.unwrap()));
    }

    #[test]
    fn only_the_partial_append_of_this_process_is_undone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        for (tail, left) in [("{\"ours", ""), ("{\"ours\":1}\n", ""), ("{\"theirs", "{\"theirs")] {
            fs::write(&path, format!("before\n{tail}")).unwrap();
            let file = File::options().append(true).open(&path).unwrap();
            undo_append(&file, File::open(&path).unwrap(), 7, b"{\"ours\":1}\n").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("before\n{left}"));
        }
        let both = "before\n{\"ours\":1}\n{\"theirs\":2}\n";
        fs::write(&path, both).unwrap();
        let file = File::options().append(true).open(&path).unwrap();
        undo_append(&file, File::open(&path).unwrap(), 7, b"{\"ours\":1}\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), both);
    }
}
