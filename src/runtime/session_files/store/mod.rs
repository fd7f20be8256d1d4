//! The store of session files, and the only access to them.
//!
//! Session files are in `~/.pi/agent/sessions`, where the daemon writes its own, and in `.pi/sessions` of any
//! project. A path is first checked lexically, then opened component by component without following links, and only
//! open handles are used: replacing a component meanwhile has no effect. Directories from `.pi` on and the file
//! itself must belong to the user, and a file must have a single hard link. All functions block; callers run them
//! outside the event loop.

mod allowed;
mod list;
mod name;
#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernel::time::Now;

use crate::protocol::pi::session_file::{
    Entry, Header, Limits, ParseError, Stored, WriteError, identified, lines, parse, render,
};
use allowed::Way;
pub use list::{Bounds, Listing, SessionFile, Skipped, StoredSession};

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
    #[error("sessionPath must be under an allowed session directory: {} is a link", .path.display())]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// A directory or the file belongs to another user.
    #[error("sessionPath must be under an allowed session directory: {} belongs to another user", .path.display())]
    NotOurs {
        /// The directory or file.
        path: PathBuf,
    },
    /// The file has other hard links, which may be anywhere.
    #[error("sessionPath must be under an allowed session directory: {} has more than one name", .path.display())]
    ManyNames {
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
enum Denied {
    Link,
    NotOurs,
    ManyNames,
    NotFound,
    NotAFile,
    NotADirectory,
    Io(io::Error),
}

impl Denied {
    fn named(self, action: &'static str, path: &Path) -> StoreError {
        let path = path.to_owned();
        match self {
            Self::Link => StoreError::Link { path },
            Self::NotOurs => StoreError::NotOurs { path },
            Self::ManyNames => StoreError::ManyNames { path },
            Self::NotFound => StoreError::NotFound { path },
            Self::NotAFile => StoreError::NotAFile { path },
            Self::NotADirectory => StoreError::NotADirectory { path },
            Self::Io(source) => StoreError::Io { action, path, source },
        }
    }
}

impl From<io::Error> for Denied {
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
    bounds: Bounds,
}

impl Store {
    /// Creates the store in a home directory; accesses nothing yet.
    pub fn new(home: impl Into<PathBuf>) -> Self {
        let home = home.into();
        let real_home = home.canonicalize().ok().filter(|real| *real != home);
        Self { home, real_home, limits: Limits::default(), bounds: Bounds::default() }
    }

    /// Sets other limits.
    #[must_use]
    pub const fn limited(mut self, limits: Limits, bounds: Bounds) -> Self {
        (self.limits, self.bounds) = (limits, bounds);
        self
    }

    /// Returns the directory of the daemon's own files.
    pub fn directory(&self) -> PathBuf {
        OWN.iter().fold(self.home.clone(), |path, name| path.join(name))
    }

    /// Returns the path of a session's file, which need not exist.
    pub fn path_for(&self, cwd: &Path, id: &str, created: Now) -> PathBuf {
        self.directory().join(name::folder(cwd)).join(name::file(id, created))
    }

    /// Checks a path lexically.
    pub fn check(&self, path: &Path) -> Result<(), StoreError> {
        self.way(path).map(drop)
    }

    /// Creates the directory of the daemon's own files with mode 0700, if it does not exist.
    pub fn prepare(&self) -> Result<(), StoreError> {
        let way = Way::new(&self.home, OWN.iter().map(OsString::from).collect(), 0);
        self.walk(&way, Missing::Made).map(drop)
    }

    /// Reads a file.
    pub fn read(&self, path: &Path) -> Result<Stored, StoreError> {
        let bytes = self.bytes(path)?;
        parse(&bytes, &self.limits).map_err(|source| StoreError::Malformed { path: path.to_owned(), source })
    }

    /// Writes a file atomically: readers see the old content or the new one.
    ///
    /// Missing directories are created beneath the daemon's own directory and nowhere else.
    pub fn write(&self, path: &Path, header: &Header, entries: &[Entry]) -> Result<(), StoreError> {
        let bytes = render(header, entries)
            .map_err(|source| StoreError::Unwritable { path: path.to_owned(), source })?;
        self.put(path, &bytes)
    }

    /// Appends entries to a file, if its size is unchanged since `stored` was read from it.
    ///
    /// The existing content is unchanged. An incomplete last line counts as a change, because another process may be
    /// writing it. With [`TornLine::Terminate`] it gets its line feed instead, and readers skip it.
    pub fn extend(
        &self,
        path: &Path,
        stored: &Stored,
        entries: &[Entry],
        torn: TornLine,
    ) -> Result<(), StoreError> {
        if stored.torn && torn == TornLine::Awaited {
            return Err(StoreError::Changed { path: path.to_owned() });
        }
        let known: BTreeSet<&str> = stored.entries.iter().map(|entry| entry.id.as_str()).collect();
        let mut added = lines(entries, known)
            .map_err(|source| StoreError::Unwritable { path: path.to_owned(), source })?;
        if stored.whole < stored.bytes {
            added.insert(0, b'\n');
        }
        self.refuse_too_large(path, stored.bytes.saturating_add(added.len() as u64))?;
        let (folder, name) = self.parent(path, Missing::Refused)?;
        let mut file = folder.append(&name).map_err(|denied| denied.named("write", path))?;
        let failed = |error| Denied::from(error).named("write", path);
        if file.metadata().map_err(failed)?.len() != stored.bytes {
            return Err(StoreError::Changed { path: path.to_owned() });
        }
        // A single write, so that it does not interleave with writes of other processes.
        if let Err(error) = file.write_all(&added) {
            if let Ok(found) = folder.file(&name) {
                // If that fails too, the incomplete line is terminated later.
                let _left = take_back(&file, found, stored.bytes, &added);
            }
            return Err(failed(error));
        }
        file.sync_all().map_err(failed)
    }

    /// Writes a file with a new header and some entries of another file, byte for byte.
    pub fn copy(
        &self,
        from: &Path,
        to: &Path,
        header: &Header,
        entries: &BTreeSet<&str>,
    ) -> Result<(), StoreError> {
        let bytes = self.bytes(from)?;
        let mut copied =
            render(header, &[]).map_err(|source| StoreError::Unwritable { path: to.to_owned(), source })?;
        for (line, id) in identified(&bytes) {
            if entries.contains(id.as_str()) {
                copied.extend_from_slice(line);
                copied.push(b'\n');
            }
        }
        self.put(to, &copied)
    }

    /// Removes a file and returns its size; `None` if it does not exist.
    pub fn remove(&self, path: &Path) -> Result<Option<u64>, StoreError> {
        let removed = self.parent(path, Missing::Refused).and_then(|(folder, name)| {
            let named = |denied: Denied| denied.named("remove", path);
            let bytes = folder.file(&name).map_err(named)?.metadata().map_or(0, |found| found.len());
            folder.remove(&name).map_err(|error| named(Denied::from(error)))?;
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
        let opened = self
            .parent(path, Missing::Refused)
            .and_then(|(folder, name)| folder.file(&name).map_err(|denied| denied.named("inspect", path)));
        match opened {
            Ok(file) => Ok(Some(file.metadata().map_or(0, |found| found.len()))),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a file, up to the size limit.
    fn bytes(&self, path: &Path) -> Result<Vec<u8>, StoreError> {
        let (folder, name) = self.parent(path, Missing::Refused)?;
        let file = folder.file(&name).map_err(|denied| denied.named("read", path))?;
        self.content(file, path)
    }

    fn content(&self, file: File, path: &Path) -> Result<Vec<u8>, StoreError> {
        let limit = self.limits.bytes;
        let too_large = || {
            let source = ParseError::TooLarge { limit };
            Err(StoreError::Malformed { path: path.to_owned(), source })
        };
        let failed = |error| Denied::from(error).named("read", path);
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

    fn put(&self, path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
        self.refuse_too_large(path, bytes.len() as u64)?;
        let (folder, name) = self.parent(path, Missing::Made)?;
        let named = |denied: Denied| denied.named("write", path);
        match folder.look(&name) {
            Ok(()) | Err(Denied::NotFound) => {}
            Err(denied) => return Err(named(denied)),
        }
        put_in(&folder, &name, bytes).map_err(|error| named(Denied::from(error)))
    }

    fn refuse_too_large(&self, path: &Path, bytes: u64) -> Result<(), StoreError> {
        if bytes <= self.limits.bytes {
            return Ok(());
        }
        let source = ParseError::TooLarge { limit: self.limits.bytes };
        Err(StoreError::Malformed { path: path.to_owned(), source })
    }

    /// Opens the parent directory of a path, and returns the last component.
    fn parent(&self, path: &Path, missing: Missing) -> Result<(os::Folder, OsString), StoreError> {
        let mut way = self.way(path)?;
        let name = way.last().ok_or_else(|| StoreError::NotAllowed { path: path.to_owned() })?;
        let missing = if way.ours { missing } else { Missing::Refused };
        Ok((self.walk(&way, missing)?, name))
    }

    /// Opens a directory, component by component.
    fn walk(&self, way: &Way, missing: Missing) -> Result<os::Folder, StoreError> {
        let mut path = way.root.clone();
        let mut folder = os::Folder::root(&path).map_err(|denied| denied.named("open", &path))?;
        for (index, name) in way.names.iter().enumerate() {
            path.push(name);
            let owner = if index < way.shared { Owner::Anybody } else { Owner::User };
            let next = match folder.folder(name, owner) {
                Err(Denied::NotFound) if missing == Missing::Made => folder.make(name, owner),
                opened => opened,
            };
            folder = next.map_err(|denied| denied.named("open", &path))?;
        }
        Ok(folder)
    }

    fn way(&self, path: &Path) -> Result<Way, StoreError> {
        let homes = [Some(&self.home), self.real_home.as_ref()].into_iter().flatten();
        Way::to(path, homes).ok_or_else(|| StoreError::NotAllowed { path: path.to_owned() })
    }
}

/// The path from the home to the daemon's own directory.
const OWN: [&str; 3] = [".pi", "agent", "sessions"];

/// What an append does about an incomplete last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TornLine {
    /// It fails, because another process may be writing the line.
    Awaited,
    /// It adds the missing line feed.
    Closed,
}

/// Truncates what a failed append has left; a file with another ending is unchanged.
fn take_back(file: &File, mut found: File, before: u64, added: &[u8]) -> io::Result<()> {
    found.seek(SeekFrom::Start(before))?;
    let mut tail = Vec::new();
    found.take(added.len() as u64 + 1).read_to_end(&mut tail)?;
    if added.starts_with(&tail) { file.set_len(before) } else { Ok(()) }
}

/// What happens if a directory does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Made,
    Refused,
}

/// Who must own a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Anybody,
    User,
}

/// Replaces a file of the daemon atomically, with mode 0600.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let folder = os::Folder::root(folder).map_err(|denied| match denied {
        Denied::Io(error) => error,
        Denied::NotFound => io::ErrorKind::NotFound.into(),
        Denied::Link | Denied::NotOurs | Denied::ManyNames | Denied::NotAFile | Denied::NotADirectory => {
            io::ErrorKind::NotADirectory.into()
        }
    })?;
    put_in(&folder, name, bytes)
}

/// Writes a draft and renames it to its final name.
fn put_in(folder: &os::Folder, name: &OsStr, bytes: &[u8]) -> io::Result<()> {
    let draft = draft();
    let written =
        fill(folder, &draft, bytes).and_then(|()| folder.rename(&draft, name)).and_then(|()| folder.sync());
    written.inspect_err(|_| {
        let _never_made = folder.remove(&draft);
    })
}

/// Writes and syncs the draft.
fn fill(folder: &os::Folder, draft: &OsStr, bytes: &[u8]) -> io::Result<()> {
    let mut file = folder.create(draft)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Returns a unique draft name.
fn draft() -> OsString {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!(".push-draft-{}-{count}", std::process::id()).into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_the_rest_of_an_append_of_ours_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        for (tail, left) in [("{\"ours", ""), ("{\"ours\":1}\n", ""), ("{\"theirs", "{\"theirs")] {
            fs::write(&path, format!("before\n{tail}")).unwrap();
            let file = File::options().append(true).open(&path).unwrap();
            take_back(&file, File::open(&path).unwrap(), 7, b"{\"ours\":1}\n").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("before\n{left}"));
        }
        let both = "before\n{\"ours\":1}\n{\"theirs\":2}\n";
        fs::write(&path, both).unwrap();
        let file = File::options().append(true).open(&path).unwrap();
        take_back(&file, File::open(&path).unwrap(), 7, b"{\"ours\":1}\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), both);
    }
}
