//! File access of tools: one workspace directory, held open, and the paths that may be reached from it.
//!
//! A model's tool reaches only files beneath the directory. Neither `..`, absolute paths nor links lead out of it,
//! also if they are replaced during a call: the kernel resolves each path in one step, or the path is opened one
//! component at a time without following links, and the opened file is the one that is used. Commands that the user
//! wrote may reach any path. A workspace is opened without following a link in its path, and its [`FileId`] shows
//! whether it is still the directory that the session started in. Credential stores and the daemon's files are denied
//! to a model's tools under every alias. `.git` and `.push` at any depth can be read and not changed, because git and
//! push execute or trust them. Every call blocks; the daemon calls from outside its event loop.

mod access;
mod change;
mod closed;
mod file_id;
#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;
mod paths;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use closed::Closed;

pub use closed::{ClosedBy, ClosedPaths};
pub use file_id::FileId;
use paths::names_protected;
pub use paths::stays_beneath;

/// The maximum length of a chain of links that a write follows.
const LINKS_MAX: usize = 40;

/// Which paths may be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Paths beneath the directory.
    Workspace,
    /// Every path that the user may access; relative paths are resolved against the directory.
    Anywhere,
}

/// An open workspace directory; clones share it.
#[derive(Clone)]
pub struct Ground {
    path: Arc<Path>,
    /// The path by which the user names the directory, if it differs.
    named: Option<Arc<Path>>,
    root: Arc<os::Root>,
    reach: Reach,
    closed: Arc<Closed>,
    /// Hidden entries whose use was approved, without links.
    approved: Arc<[PathBuf]>,
}

impl fmt::Debug for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ground").field("path", &self.path).field("reach", &self.reach).finish_non_exhaustive()
    }
}

/// Why a file operation in the workspace failed.
#[derive(Debug, thiserror::Error)]
pub enum GroundError {
    /// The path leads outside the workspace, or through links that cannot be followed.
    #[error("{} leads outside of the workspace", .path.display())]
    Outside {
        /// The requested path.
        path: PathBuf,
    },
    /// The path leads to `.git` or `.push`, which no tool may change.
    #[error("{} is protected: tools may not change .git or .push", .path.display())]
    Protected {
        /// The requested path.
        path: PathBuf,
    },
    /// The path leads to a credential store, to a file of the daemon, to a path that the configuration hides, or to a
    /// hidden entry of a home.
    #[error("{} is hidden from tools: {}", .path.display(), .why.words(.closed))]
    Hidden {
        /// The requested path.
        path: PathBuf,
        /// The hidden file or directory.
        closed: PathBuf,
        /// Why it is hidden.
        why: ClosedBy,
    },
    /// The path does not exist.
    #[error("{} does not exist", .path.display())]
    NotFound {
        /// The requested path.
        path: PathBuf,
    },
    /// The path is a directory; the operation needs a file.
    #[error("{} is a directory", .path.display())]
    IsDirectory {
        /// The requested path.
        path: PathBuf,
    },
    /// The path is not a directory; the operation needs one.
    #[error("{} is not a directory", .path.display())]
    NotADirectory {
        /// The requested path.
        path: PathBuf,
    },
    /// The path is a device, a pipe or a socket; the operation needs a regular file.
    #[error("{} is not a regular file", .path.display())]
    NotAFile {
        /// The requested path.
        path: PathBuf,
    },
    /// The file is larger than the read limit.
    #[error("{} has more than {limit} bytes", .path.display())]
    TooLarge {
        /// The requested path.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// The system call failed.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The path it was applied to.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl GroundError {
    fn of(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| {
            let is = |kind| source.kind() == kind;
            if is(io::ErrorKind::NotFound) {
                Self::NotFound { path }
            } else if is(io::ErrorKind::CrossesDevices) {
                Self::Outside { path }
            } else if is(io::ErrorKind::IsADirectory) {
                Self::IsDirectory { path }
            } else if is(io::ErrorKind::NotADirectory) {
                Self::NotADirectory { path }
            } else {
                Self::Io { action, path, source }
            }
        }
    }
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The size of the file in bytes.
    pub bytes: u64,
    /// Whether the write created the file.
    pub created: bool,
}

/// The kind of a directory entry; links are not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A device, a pipe or a socket.
    Other,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: OsString,
    /// The kind of entry.
    pub kind: Kind,
    /// The size in bytes.
    pub bytes: u64,
}

impl Ground {
    /// Opens the directory `path`, which must be absolute.
    pub fn open(path: &Path, reach: Reach) -> Result<Self, GroundError> {
        let root = os::Root::open(path).map_err(GroundError::of("open", path))?;
        Ok(Self::of(path, root, reach))
    }

    /// Opens the directory `path`, which must be absolute, without following links.
    ///
    /// A link in the path is reported as [`WorkspaceError::Outside`].
    pub fn open_without_links(path: &Path, reach: Reach) -> Result<Self, GroundError> {
        let root = os::Root::open_without_links(path).map_err(GroundError::of("open", path))?;
        Ok(Self::of(path, root, reach))
    }

    fn of(path: &Path, root: os::Root, reach: Reach) -> Self {
        let (closed, approved) = (Arc::default(), Arc::default());
        Self { path: path.into(), named: None, root: Arc::new(root), reach, closed, approved }
    }

    /// Sets an alias: absolute paths that begin with `name` count as paths in the directory.
    #[must_use]
    pub fn named(self, name: &Path) -> Self {
        let named = (*name != *self.path).then(|| name.into());
        Self { named, ..self }
    }

    /// Returns the directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path by which the user names the directory.
    pub fn name(&self) -> &Path {
        self.named.as_deref().unwrap_or(&self.path)
    }

    /// Returns the identity of the directory in its file system.
    pub fn file_id(&self) -> Result<FileId, GroundError> {
        self.root.file_id().map_err(GroundError::of("inspect", &self.path))
    }

    /// Returns which paths may be reached.
    pub const fn reach(&self) -> Reach {
        self.reach
    }

    /// Opens a regular file for reading. It does not block on a pipe.
    pub fn file(&self, path: &Path) -> Result<File, GroundError> {
        let file = self.root.file(&self.seen(path), self.reach).map_err(GroundError::of("read", path))?;
        let metadata = file.metadata().map_err(GroundError::of("read", path))?;
        if metadata.is_dir() {
            return Err(GroundError::IsDirectory { path: path.to_owned() });
        }
        if !metadata.is_file() {
            return Err(GroundError::NotAFile { path: path.to_owned() });
        }
        self.not_closed(path, || self.root.place_of_file(&file, &self.seen(path)), os::id_of(&file).ok())?;
        Ok(file)
    }

    /// Reads a file of at most `limit` bytes.
    pub fn content(&self, path: &Path, limit: u64) -> Result<Vec<u8>, GroundError> {
        let file = self.file(path)?;
        let mut bytes = Vec::new();
        // Reading one more byte shows whether the file exceeds the limit.
        let read = file.take(limit.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(GroundError::of("read", path))?;
        if bytes.len() as u64 > limit {
            return Err(GroundError::TooLarge { path: path.to_owned(), limit });
        }
        Ok(bytes)
    }

    /// Opens a directory.
    pub fn folder(&self, path: &Path) -> Result<Folder, GroundError> {
        let folder = self.root.folder(&self.seen(path), self.reach).map_err(GroundError::of("list", path))?;
        self.not_closed(path, || folder.place_in(&self.root, &self.seen(path)), folder.file_id().ok())?;
        Ok(Folder { folder, path: path.to_owned(), ground: self.clone() })
    }

    /// Writes `content` to `path` atomically.
    ///
    /// Missing directories are created. An existing file keeps its mode, and links are followed to their target. A file
    /// without write permission is not replaced. Readers see either the old or the new content.
    pub fn replace(&self, path: &Path, content: &[u8]) -> Result<Written, GroundError> {
        let (folder, name, old) = self.place(path, Missing::Made)?;
        if old.is_some() {
            // A rename needs no write permission on the file; the check respects a read-only file.
            folder.writable(&name).map_err(GroundError::of("write", path))?;
        }
        let draft = draft();
        let written = fill(&folder, &draft, content, old.as_ref())
            .and_then(|()| folder.rename(&draft, &name))
            .and_then(|()| folder.sync());
        if let Err(error) = written {
            let _never_made = folder.remove(&draft);
            return Err(GroundError::of("write", path)(error));
        }
        Ok(Written { bytes: content.len() as u64, created: old.is_none() })
    }

    /// Removes a regular file. Links to it are followed and stay.
    pub fn remove(&self, path: &Path) -> Result<(), GroundError> {
        let (folder, name, old) = self.place(path, Missing::Refused)?;
        if old.is_none() {
            return Err(GroundError::NotFound { path: path.to_owned() });
        }
        folder.remove(&name).map_err(GroundError::of("remove", path))
    }

    /// Resolves `path` through all links to an open directory, a name in it and the file of that name.
    fn place(&self, path: &Path, missing: Missing) -> Result<Place, GroundError> {
        let mut seen = self.seen(path);
        for _ in 0..LINKS_MAX {
            let Some(name) = seen.file_name().map(OsStr::to_owned) else {
                return Err(GroundError::IsDirectory { path: path.to_owned() });
            };
            let parent = seen.parent().unwrap_or(Path::new(""));
            self.unprotected(&seen, path)?;
            let folder = match missing {
                Missing::Made => self.parent(parent, path)?,
                Missing::Refused => {
                    self.root.folder(parent, self.reach).map_err(GroundError::of("open", path))?
                }
            };
            self.open_to_change(&folder, parent, path)?;
            let looked = folder.look(&name).map_err(GroundError::of("write", path))?;
            let there = || Ok(folder.place_in(&self.root, parent)?.join(&name));
            self.not_closed(path, there, looked.as_ref().and_then(os::Looked::file_id))?;
            match looked.as_ref().map(os::Looked::kind) {
                None | Some(Kind::File) => return Ok((folder, name, looked)),
                Some(Kind::Directory) => return Err(GroundError::IsDirectory { path: path.to_owned() }),
                Some(Kind::Other) => return Err(GroundError::NotAFile { path: path.to_owned() }),
                Some(Kind::Link) => {
                    let target = folder.target(&name).map_err(GroundError::of("write", path))?;
                    seen = parent.join(target);
                }
            }
        }
        Err(GroundError::Outside { path: path.to_owned() })
    }

    /// Opens a directory; creates it and its parents if they are missing.
    fn parent(&self, wanted: &Path, path: &Path) -> Result<os::Folder, GroundError> {
        let failed = GroundError::of("create", path);
        match self.root.folder(wanted, self.reach) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (Some(above), Some(name)) = (wanted.parent(), wanted.file_name()) else {
                    return Err(failed(error));
                };
                let above = self.parent(above, path)?;
                self.open_to_change(&above, wanted.parent().unwrap_or(Path::new("")), path)?;
                self.not_closed(path, || Ok(above.place_in(&self.root, wanted)?.join(name)), None)?;
                above.make(name).map_err(failed)
            }
            opened => opened.map_err(failed),
        }
    }

    /// Refuses a path that names something protected or denied, lexically. Callers check before they ask for approval.
    pub fn may_change(&self, path: &Path) -> Result<(), GroundError> {
        self.unprotected(&self.seen(path), path)?;
        self.may_name(path)
    }

    /// Refuses a protected directory, through whichever links it was reached.
    fn open_to_change(&self, folder: &os::Folder, seen: &Path, path: &Path) -> Result<(), GroundError> {
        match self.reach {
            Reach::Anywhere => Ok(()),
            Reach::Workspace => {
                let inner = folder.place_in(&self.root, seen).map_err(GroundError::of("resolve", path))?;
                self.unprotected(&inner, path)
            }
        }
    }

    /// Refuses a path that names something protected.
    fn unprotected(&self, seen: &Path, path: &Path) -> Result<(), GroundError> {
        match self.reach {
            Reach::Workspace if names_protected(seen) => {
                Err(GroundError::Protected { path: path.to_owned() })
            }
            Reach::Workspace | Reach::Anywhere => Ok(()),
        }
    }

    /// Returns the path relative to the directory, if it is an absolute path that lies in it lexically.
    pub(crate) fn seen(&self, path: &Path) -> PathBuf {
        let inner = path.strip_prefix(&self.path).or_else(|_| path.strip_prefix(self.name()));
        match (self.reach, inner) {
            (Reach::Workspace, Ok(inner)) => inner.to_owned(),
            (Reach::Workspace, Err(_)) | (Reach::Anywhere, _) => path.to_owned(),
        }
    }
}

/// An open directory, a name in it, and the status of the entry of that name.
type Place = (os::Folder, OsString, Option<os::Looked>);

/// How missing directories are handled.
#[derive(Clone, Copy)]
enum Missing {
    Made,
    Refused,
}

/// An open directory.
pub struct Folder {
    folder: os::Folder,
    path: PathBuf,
    ground: Ground,
}

impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folder").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Folder {
    /// Returns at most `most` entries, unordered, and whether there are more.
    ///
    /// Hidden entries of a home that is the workspace are left out, unless they are approved.
    pub fn entries(&self, most: usize) -> Result<(Vec<Entry>, bool), GroundError> {
        let failed = || GroundError::of("list", &self.path);
        let (mut entries, more) = self.folder.entries(most).map_err(failed())?;
        let ground = &self.ground;
        if !ground.hidden_entries().is_empty() {
            let place = self.folder.place_in(&ground.root, &ground.seen(&self.path)).map_err(failed())?;
            let place = ground.path.join(place);
            entries.retain(|entry| !ground.is_withheld(&place.join(&entry.name)));
        }
        Ok((entries, more))
    }

    /// Opens a directory in this directory; a link is not followed.
    pub fn folder(&self, name: &OsStr) -> Result<Self, GroundError> {
        let path = self.path.join(name);
        let folder = self.folder.folder(name).map_err(GroundError::of("list", &path))?;
        let ground = self.ground.clone();
        let seen = ground.seen(&path);
        ground.not_closed(&path, || folder.place_in(&ground.root, &seen), folder.file_id().ok())?;
        Ok(Self { folder, path, ground })
    }

    /// Opens a regular file in this directory for reading. It follows no link and does not block on a pipe.
    pub fn file(&self, name: &OsStr) -> Result<File, GroundError> {
        let path = self.path.join(name);
        let failed = GroundError::of("read", &path);
        let file = self.folder.file(name).map_err(failed)?;
        if !file.metadata().map_err(GroundError::of("read", &path))?.is_file() {
            return Err(GroundError::NotAFile { path });
        }
        let (ground, seen) = (&self.ground, self.ground.seen(&path));
        ground.not_closed(&path, || ground.root.place_of_file(&file, &seen), os::id_of(&file).ok())?;
        Ok(file)
    }

    /// Returns the target of a link in this directory.
    pub fn target(&self, name: &OsStr) -> Result<PathBuf, GroundError> {
        self.folder.target(name).map_err(GroundError::of("read", &self.path.join(name)))
    }
}

/// Writes the temporary file and syncs it to disk, before it is renamed.
fn fill(folder: &os::Folder, draft: &OsStr, content: &[u8], old: Option<&os::Looked>) -> io::Result<()> {
    let mut file = folder.create(draft)?;
    if let Some(old) = old {
        old.hand_down(&file)?;
    }
    file.write_all(content)?;
    file.sync_all()
}

/// Returns a unique name for a temporary file.
fn draft() -> OsString {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!(".push-draft-{}-{count}", std::process::id()).into()
}
