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
mod deny_list;
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

use deny_list::DenyList;

pub use deny_list::{DeniedPaths, DenyReason};
pub use file_id::FileId;
use paths::names_protected;
pub use paths::stays_beneath;

/// The maximum length of a chain of links that a write follows.
const LINKS_MAX: usize = 40;

/// Which paths the operations of a [`WorkspaceDir`] may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReachPolicy {
    /// Paths beneath the directory.
    Workspace,
    /// Every path that the user may access; relative paths are resolved against the directory.
    Anywhere,
}

/// An open workspace directory; clones share it.
#[derive(Clone)]
pub struct WorkspaceDir {
    path: Arc<Path>,
    /// The path by which the user names the directory, if it differs.
    alias: Option<Arc<Path>>,
    root: Arc<os::Root>,
    reach: ReachPolicy,
    denied: Arc<DenyList>,
    /// Hidden entries whose use was approved, without links.
    approved_paths: Arc<[PathBuf]>,
}

impl fmt::Debug for WorkspaceDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkspaceDir").field("path", &self.path).field("reach", &self.reach).finish_non_exhaustive()
    }
}

/// Why a file operation in the workspace failed.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The path leads outside the workspace, or through links that cannot be followed.
    #[error("{} is outside the workspace or resolves to a path outside it", .path.display())]
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
    #[error("{} is hidden from tools: {}", .path.display(), .why.describe(.closed))]
    Hidden {
        /// The requested path.
        path: PathBuf,
        /// The hidden file or directory.
        closed: PathBuf,
        /// Why it is hidden.
        why: DenyReason,
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

impl WorkspaceError {
    fn from_io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
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
pub struct WriteOutcome {
    /// The size of the file in bytes.
    pub bytes: u64,
    /// Whether the write created the file.
    pub created: bool,
}

/// The kind of a directory entry; links are not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
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
    pub kind: FileKind,
    /// The size in bytes.
    pub bytes: u64,
}

impl WorkspaceDir {
    /// Opens the directory `path`, which must be absolute.
    pub fn open(path: &Path, reach: ReachPolicy) -> Result<Self, WorkspaceError> {
        let root = os::Root::open(path).map_err(WorkspaceError::from_io("open", path))?;
        Ok(Self::from_root(path, root, reach))
    }

    /// Opens the directory `path`, which must be absolute, without following links.
    ///
    /// A link in the path is reported as [`WorkspaceError::Outside`].
    pub fn open_without_links(path: &Path, reach: ReachPolicy) -> Result<Self, WorkspaceError> {
        let root = os::Root::open_without_links(path).map_err(WorkspaceError::from_io("open", path))?;
        Ok(Self::from_root(path, root, reach))
    }

    fn from_root(path: &Path, root: os::Root, reach: ReachPolicy) -> Self {
        let (denied, approved_paths) = (Arc::default(), Arc::default());
        Self { path: path.into(), alias: None, root: Arc::new(root), reach, denied, approved_paths }
    }

    /// Sets an alias: absolute paths that begin with `name` count as paths in the directory.
    #[must_use]
    pub fn with_alias(self, name: &Path) -> Self {
        let alias = (*name != *self.path).then(|| name.into());
        Self { alias, ..self }
    }

    /// Returns the directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path by which the user names the directory.
    pub fn display_path(&self) -> &Path {
        self.alias.as_deref().unwrap_or(&self.path)
    }

    /// Returns the identity of the directory in its file system.
    pub fn file_id(&self) -> Result<FileId, WorkspaceError> {
        self.root.file_id().map_err(WorkspaceError::from_io("inspect", &self.path))
    }

    /// Returns which paths may be reached.
    pub const fn reach(&self) -> ReachPolicy {
        self.reach
    }

    /// Opens a regular file for reading. It does not block on a pipe.
    pub fn open_file(&self, path: &Path) -> Result<File, WorkspaceError> {
        let file =
            self.root.file(&self.to_relative(path), self.reach).map_err(WorkspaceError::from_io("read", path))?;
        let metadata = file.metadata().map_err(WorkspaceError::from_io("read", path))?;
        if metadata.is_dir() {
            return Err(WorkspaceError::IsDirectory { path: path.to_owned() });
        }
        if !metadata.is_file() {
            return Err(WorkspaceError::NotAFile { path: path.to_owned() });
        }
        self.check_not_denied(
            path,
            || self.root.path_of_file(&file, &self.to_relative(path)),
            os::file_id_of(&file).ok(),
        )?;
        Ok(file)
    }

    /// Reads a file of at most `limit` bytes.
    pub fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, WorkspaceError> {
        let file = self.open_file(path)?;
        let mut bytes = Vec::new();
        // Reading one more byte shows whether the file exceeds the limit.
        let read = file.take(limit.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(WorkspaceError::from_io("read", path))?;
        if bytes.len() as u64 > limit {
            return Err(WorkspaceError::TooLarge { path: path.to_owned(), limit });
        }
        Ok(bytes)
    }

    /// Opens a directory.
    pub fn open_directory(&self, path: &Path) -> Result<DirHandle, WorkspaceError> {
        let handle =
            self.root.folder(&self.to_relative(path), self.reach).map_err(WorkspaceError::from_io("list", path))?;
        self.check_not_denied(path, || handle.path_in(&self.root, &self.to_relative(path)), handle.file_id().ok())?;
        Ok(DirHandle { handle, path: path.to_owned(), workspace: self.clone() })
    }

    /// Writes `content` to `path` atomically.
    ///
    /// Missing directories are created. An existing file keeps its mode, and links are followed to their target. A file
    /// without write permission is not replaced. Readers see either the old or the new content.
    pub fn replace(&self, path: &Path, content: &[u8]) -> Result<WriteOutcome, WorkspaceError> {
        let (handle, name, old) = self.resolve_for_change(path, MissingDirectories::Create)?;
        if old.is_some() {
            // A rename needs no write permission on the file; the check respects a read-only file.
            handle.check_writable(&name).map_err(WorkspaceError::from_io("write", path))?;
        }
        let temporary = temporary_name();
        let written = write_temporary(&handle, &temporary, content, old.as_ref())
            .and_then(|()| handle.rename(&temporary, &name))
            .and_then(|()| handle.sync());
        if let Err(error) = written {
            let _never_made = handle.remove(&temporary);
            return Err(WorkspaceError::from_io("write", path)(error));
        }
        Ok(WriteOutcome { bytes: content.len() as u64, created: old.is_none() })
    }

    /// Removes a regular file. Links to it are followed and stay.
    pub fn remove(&self, path: &Path) -> Result<(), WorkspaceError> {
        let (handle, name, old) = self.resolve_for_change(path, MissingDirectories::Refuse)?;
        if old.is_none() {
            return Err(WorkspaceError::NotFound { path: path.to_owned() });
        }
        handle.remove(&name).map_err(WorkspaceError::from_io("remove", path))
    }

    /// Resolves `path` through all links to an open directory, a name in it and the file of that name.
    fn resolve_for_change(&self, path: &Path, missing: MissingDirectories) -> Result<ResolvedEntry, WorkspaceError> {
        let mut relative = self.to_relative(path);
        for _ in 0..LINKS_MAX {
            let Some(name) = relative.file_name().map(OsStr::to_owned) else {
                return Err(WorkspaceError::IsDirectory { path: path.to_owned() });
            };
            let parent = relative.parent().unwrap_or(Path::new(""));
            self.check_unprotected(&relative, path)?;
            let handle = match missing {
                MissingDirectories::Create => self.open_or_create_parent(parent, path)?,
                MissingDirectories::Refuse => {
                    self.root.folder(parent, self.reach).map_err(WorkspaceError::from_io("open", path))?
                }
            };
            self.check_directory_unprotected(&handle, parent, path)?;
            let stat = handle.stat(&name).map_err(WorkspaceError::from_io("write", path))?;
            let real_path = || Ok(handle.path_in(&self.root, parent)?.join(&name));
            self.check_not_denied(path, real_path, stat.as_ref().and_then(os::EntryStat::file_id))?;
            match stat.as_ref().map(os::EntryStat::kind) {
                None | Some(FileKind::File) => return Ok((handle, name, stat)),
                Some(FileKind::Directory) => {
                    return Err(WorkspaceError::IsDirectory { path: path.to_owned() });
                }
                Some(FileKind::Other) => return Err(WorkspaceError::NotAFile { path: path.to_owned() }),
                Some(FileKind::Link) => {
                    let target = handle.target(&name).map_err(WorkspaceError::from_io("write", path))?;
                    relative = parent.join(target);
                }
            }
        }
        Err(WorkspaceError::Outside { path: path.to_owned() })
    }

    /// Opens a directory; creates it and its parents if they are missing.
    fn open_or_create_parent(&self, directory: &Path, path: &Path) -> Result<os::DirHandle, WorkspaceError> {
        let failed = WorkspaceError::from_io("create", path);
        match self.root.folder(directory, self.reach) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (Some(above), Some(name)) = (directory.parent(), directory.file_name()) else {
                    return Err(failed(error));
                };
                let above = self.open_or_create_parent(above, path)?;
                self.check_directory_unprotected(&above, directory.parent().unwrap_or(Path::new("")), path)?;
                self.check_not_denied(path, || Ok(above.path_in(&self.root, directory)?.join(name)), None)?;
                above.create_directory(name).map_err(failed)
            }
            opened => opened.map_err(failed),
        }
    }

    /// Refuses a path that names something protected or denied, lexically. Callers check before they ask for approval.
    pub fn check_change(&self, path: &Path) -> Result<(), WorkspaceError> {
        self.check_unprotected(&self.to_relative(path), path)?;
        self.check_name(path)
    }

    /// Refuses a protected directory, through whichever links it was reached.
    fn check_directory_unprotected(
        &self,
        handle: &os::DirHandle,
        relative: &Path,
        path: &Path,
    ) -> Result<(), WorkspaceError> {
        match self.reach {
            ReachPolicy::Anywhere => Ok(()),
            ReachPolicy::Workspace => {
                let inner = handle.path_in(&self.root, relative).map_err(WorkspaceError::from_io("resolve", path))?;
                self.check_unprotected(&inner, path)
            }
        }
    }

    /// Refuses a path that names something protected.
    fn check_unprotected(&self, relative: &Path, path: &Path) -> Result<(), WorkspaceError> {
        match self.reach {
            ReachPolicy::Workspace if names_protected(relative) => {
                Err(WorkspaceError::Protected { path: path.to_owned() })
            }
            ReachPolicy::Workspace | ReachPolicy::Anywhere => Ok(()),
        }
    }

    /// Returns the path relative to the directory, if it is an absolute path that lies in it lexically.
    pub(crate) fn to_relative(&self, path: &Path) -> PathBuf {
        let inner = path.strip_prefix(&self.path).or_else(|_| path.strip_prefix(self.display_path()));
        match (self.reach, inner) {
            (ReachPolicy::Workspace, Ok(inner)) => inner.to_owned(),
            (ReachPolicy::Workspace, Err(_)) | (ReachPolicy::Anywhere, _) => path.to_owned(),
        }
    }
}

/// An open directory, a name in it, and the status of the entry of that name.
type ResolvedEntry = (os::DirHandle, OsString, Option<os::EntryStat>);

/// How missing directories are handled.
#[derive(Clone, Copy)]
enum MissingDirectories {
    Create,
    Refuse,
}

/// An open directory.
pub struct DirHandle {
    handle: os::DirHandle,
    path: PathBuf,
    workspace: WorkspaceDir,
}

impl fmt::Debug for DirHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folder").field("path", &self.path).finish_non_exhaustive()
    }
}

impl DirHandle {
    /// Returns at most `limit` entries, unordered, and whether there are more.
    ///
    /// Hidden entries of a home that is the workspace are left out, unless they are approved.
    pub fn entries(&self, limit: usize) -> Result<(Vec<Entry>, bool), WorkspaceError> {
        let failed = || WorkspaceError::from_io("list", &self.path);
        let (mut entries, more) = self.handle.entries(limit).map_err(failed())?;
        let workspace = &self.workspace;
        if !workspace.hidden_entries().is_empty() {
            let resolved = self.handle.path_in(&workspace.root, &workspace.to_relative(&self.path)).map_err(failed())?;
            let resolved = workspace.path.join(resolved);
            entries.retain(|entry| !workspace.is_hidden_and_unapproved(&resolved.join(&entry.name)));
        }
        Ok((entries, more))
    }

    /// Opens a directory in this directory; a link is not followed.
    pub fn open_directory(&self, name: &OsStr) -> Result<Self, WorkspaceError> {
        let path = self.path.join(name);
        let handle = self.handle.folder(name).map_err(WorkspaceError::from_io("list", &path))?;
        let workspace = self.workspace.clone();
        let relative = workspace.to_relative(&path);
        workspace.check_not_denied(&path, || handle.path_in(&workspace.root, &relative), handle.file_id().ok())?;
        Ok(Self { handle, path, workspace })
    }

    /// Opens a regular file in this directory for reading. It follows no link and does not block on a pipe.
    pub fn open_file(&self, name: &OsStr) -> Result<File, WorkspaceError> {
        let path = self.path.join(name);
        let failed = WorkspaceError::from_io("read", &path);
        let file = self.handle.file(name).map_err(failed)?;
        if !file.metadata().map_err(WorkspaceError::from_io("read", &path))?.is_file() {
            return Err(WorkspaceError::NotAFile { path });
        }
        let (workspace, relative) = (&self.workspace, self.workspace.to_relative(&path));
        workspace.check_not_denied(
            &path,
            || workspace.root.path_of_file(&file, &relative),
            os::file_id_of(&file).ok(),
        )?;
        Ok(file)
    }

    /// Returns the target of a link in this directory.
    pub fn target(&self, name: &OsStr) -> Result<PathBuf, WorkspaceError> {
        self.handle.target(name).map_err(WorkspaceError::from_io("read", &self.path.join(name)))
    }
}

/// Writes the temporary file and syncs it to disk, before it is renamed.
fn write_temporary(
    handle: &os::DirHandle,
    temporary: &OsStr,
    content: &[u8],
    old: Option<&os::EntryStat>,
) -> io::Result<()> {
    let mut file = handle.create(temporary)?;
    if let Some(old) = old {
        old.copy_attributes_to(&file)?;
    }
    file.write_all(content)?;
    file.sync_all()
}

/// Returns a unique name for a temporary file.
fn temporary_name() -> OsString {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!(".push-draft-{}-{count}", std::process::id()).into()
}
