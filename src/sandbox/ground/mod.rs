//! The ground that tools stand on: one directory, held open, and the paths that may be reached from it.
//!
//! A tool of a model reaches what lies beneath the directory and nothing else, neither by `..`, by absolute paths, by
//! links, nor by exchanging one of these for another while a tool is at work: each path is resolved by the system in
//! one step, or one name at a time without following links, and what was opened is what is used. The user's own words
//! may reach anywhere. A workspace is opened without following any link on the way to it, and its [`FileId`] tells whether it is
//! still the one that a session began in. Stores of credentials and the daemon's own files are closed to a model's tools under
//! every name by which they could be reached. What git and push themselves run or believe, `.git` and `.push` at any depth, is read by a model's tools
//! and never changed. Everything blocks; callers in the daemon keep it off their loop.

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

/// How many links are followed from one to the next when a file is written through them.
const LINKS_MAX: usize = 40;

/// Which paths may be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Those beneath the directory.
    Workspace,
    /// All that the user may reach; relative ones are seen from the directory.
    Anywhere,
}

/// A directory that tools work in; clones share it.
#[derive(Clone)]
pub struct Ground {
    path: Arc<Path>,
    /// How its user calls it, where that is another path.
    named: Option<Arc<Path>>,
    root: Arc<os::Root>,
    reach: Reach,
    closed: Arc<Closed>,
    /// Hidden entries that somebody was asked about, without links.
    approved: Arc<[PathBuf]>,
}

impl fmt::Debug for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ground").field("path", &self.path).field("reach", &self.reach).finish_non_exhaustive()
    }
}

/// Why something of the ground was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum GroundError {
    /// The path leads out of the workspace, or through links that cannot be followed.
    #[error("{} leads outside of the workspace", .path.display())]
    Outside {
        /// As it was asked for.
        path: PathBuf,
    },
    /// The path leads to what no tool changes: the repository itself, or the project's own rules.
    #[error("{} is protected: tools change neither .git nor .push", .path.display())]
    Protected {
        /// As it was asked for.
        path: PathBuf,
    },
    /// The path leads to a store of credentials, to what the daemon keeps for itself, to what is configured as hidden, or to
    /// what is hidden of a home.
    #[error("{} is hidden from tools: {}", .path.display(), .why.words(.closed))]
    Hidden {
        /// As it was asked for.
        path: PathBuf,
        /// The file or directory that is hidden.
        closed: PathBuf,
        /// Why it is.
        why: ClosedBy,
    },
    /// Nothing is there.
    #[error("{} does not exist", .path.display())]
    NotFound {
        /// As it was asked for.
        path: PathBuf,
    },
    /// A file was wanted and a directory is there.
    #[error("{} is a directory", .path.display())]
    IsDirectory {
        /// As it was asked for.
        path: PathBuf,
    },
    /// A directory was wanted and something else is there.
    #[error("{} is not a directory", .path.display())]
    NotADirectory {
        /// As it was asked for.
        path: PathBuf,
    },
    /// A file was wanted and a device, a pipe or a socket is there.
    #[error("{} is not a regular file", .path.display())]
    NotAFile {
        /// As it was asked for.
        path: PathBuf,
    },
    /// The file is longer than may be read.
    #[error("{} has more than {limit} bytes", .path.display())]
    TooLarge {
        /// As it was asked for.
        path: PathBuf,
        /// How long it may be.
        limit: u64,
    },
    /// The system refused.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
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

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// How many bytes the file has.
    pub bytes: u64,
    /// Whether it did not exist before.
    pub created: bool,
}

/// What stands under a name; links are not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A device, a pipe, a socket.
    Other,
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: OsString,
    /// What stands there.
    pub kind: Kind,
    /// How many bytes a file has.
    pub bytes: u64,
}

impl Ground {
    /// Opens the directory `path`, which must be absolute.
    pub fn open(path: &Path, reach: Reach) -> Result<Self, GroundError> {
        let root = os::Root::open(path).map_err(GroundError::of("open", path))?;
        Ok(Self::of(path, root, reach))
    }

    /// Opens the directory `path`, which must be absolute, and follows no link on the way to it.
    ///
    /// A link there is [`GroundError::Outside`].
    pub fn open_without_links(path: &Path, reach: Reach) -> Result<Self, GroundError> {
        let root = os::Root::open_without_links(path).map_err(GroundError::of("open", path))?;
        Ok(Self::of(path, root, reach))
    }

    fn of(path: &Path, root: os::Root, reach: Reach) -> Self {
        let (closed, approved) = (Arc::default(), Arc::default());
        Self { path: path.into(), named: None, root: Arc::new(root), reach, closed, approved }
    }

    /// Takes absolute paths for its own that begin with `name`, by which its user calls it.
    #[must_use]
    pub fn named(self, name: &Path) -> Self {
        let named = (*name != *self.path).then(|| name.into());
        Self { named, ..self }
    }

    /// Returns the directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what its user calls the directory.
    pub fn name(&self) -> &Path {
        self.named.as_deref().unwrap_or(&self.path)
    }

    /// Returns what the file system calls the directory.
    pub fn file_id(&self) -> Result<FileId, GroundError> {
        self.root.file_id().map_err(GroundError::of("look at", &self.path))
    }

    /// Returns which paths may be reached.
    pub const fn reach(&self) -> Reach {
        self.reach
    }

    /// Opens a regular file for reading; it never waits, not even for a pipe.
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

    /// Reads a whole file that has at most `limit` bytes.
    pub fn content(&self, path: &Path, limit: u64) -> Result<Vec<u8>, GroundError> {
        let file = self.file(path)?;
        let mut bytes = Vec::new();
        // One byte more tells whether there is more.
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

    /// Writes `content` to `path`, whole or not at all.
    ///
    /// Missing directories are made. A file that exists keeps its mode, links are followed to what they name, and a
    /// file we may not write stays as it is. Readers see the old content or the new, never a mixture.
    pub fn replace(&self, path: &Path, content: &[u8]) -> Result<Written, GroundError> {
        let (folder, name, old) = self.place(path, Missing::Made)?;
        if old.is_some() {
            // To replace a file takes no right to write it; to respect that it is closed does.
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

    /// Removes a regular file; a link to it stays.
    pub fn remove(&self, path: &Path) -> Result<(), GroundError> {
        let (folder, name, old) = self.place(path, Missing::Refused)?;
        if old.is_none() {
            return Err(GroundError::NotFound { path: path.to_owned() });
        }
        folder.remove(&name).map_err(GroundError::of("remove", path))
    }

    /// Finds the directory and the name that `path` stands for, behind all links, and the file that is there.
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

    /// Opens a directory, and makes it and those above it where they are missing.
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

    /// Refuses a path whose words name something protected, so that nobody is asked about it in vain.
    pub fn may_change(&self, path: &Path) -> Result<(), GroundError> {
        self.unprotected(&self.seen(path), path)?;
        self.may_name(path)
    }

    /// Refuses a directory that is protected, by whatever links it was reached.
    fn open_to_change(&self, folder: &os::Folder, seen: &Path, path: &Path) -> Result<(), GroundError> {
        match self.reach {
            Reach::Anywhere => Ok(()),
            Reach::Workspace => {
                let inner = folder.place_in(&self.root, seen).map_err(GroundError::of("look for", path))?;
                self.unprotected(&inner, path)
            }
        }
    }

    /// Refuses words that name something protected.
    fn unprotected(&self, seen: &Path, path: &Path) -> Result<(), GroundError> {
        match self.reach {
            Reach::Workspace if names_protected(seen) => {
                Err(GroundError::Protected { path: path.to_owned() })
            }
            Reach::Workspace | Reach::Anywhere => Ok(()),
        }
    }

    /// The path seen from the directory: an absolute one that lies in it by its words is made relative.
    pub(crate) fn seen(&self, path: &Path) -> PathBuf {
        let inner = path.strip_prefix(&self.path).or_else(|_| path.strip_prefix(self.name()));
        match (self.reach, inner) {
            (Reach::Workspace, Ok(inner)) => inner.to_owned(),
            (Reach::Workspace, Err(_)) | (Reach::Anywhere, _) => path.to_owned(),
        }
    }
}

/// A directory, a name in it, and the file of that name.
type Place = (os::Folder, OsString, Option<os::Looked>);

/// What is done about a directory that is missing.
#[derive(Clone, Copy)]
enum Missing {
    Made,
    Refused,
}

/// A directory that was opened.
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
    /// Returns at most `most` names, in no order, and whether there are more.
    ///
    /// What is hidden of a home that is the workspace is left out, unless somebody was asked about it.
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

    /// Opens a directory in this one; a link is not followed.
    pub fn folder(&self, name: &OsStr) -> Result<Self, GroundError> {
        let path = self.path.join(name);
        let folder = self.folder.folder(name).map_err(GroundError::of("list", &path))?;
        let ground = self.ground.clone();
        let seen = ground.seen(&path);
        ground.not_closed(&path, || folder.place_in(&ground.root, &seen), folder.file_id().ok())?;
        Ok(Self { folder, path, ground })
    }

    /// Opens a regular file in this directory for reading; a link is not followed, and nothing is waited for.
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

    /// Returns where a link in this directory leads to.
    pub fn target(&self, name: &OsStr) -> Result<PathBuf, GroundError> {
        self.folder.target(name).map_err(GroundError::of("read", &self.path.join(name)))
    }
}

/// Writes the draft and has it on disk before it takes its place.
fn fill(folder: &os::Folder, draft: &OsStr, content: &[u8], old: Option<&os::Looked>) -> io::Result<()> {
    let mut file = folder.create(draft)?;
    if let Some(old) = old {
        old.hand_down(&file)?;
    }
    file.write_all(content)?;
    file.sync_all()
}

/// A name that nobody else uses.
fn draft() -> OsString {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!(".push-draft-{}-{count}", std::process::id()).into()
}
