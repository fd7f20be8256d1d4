//! Finds the git repository of a workspace by reading files. It runs no program, because a program could be planted.
//!
//! Git may later write to the repository, so a `.git` file is not trusted on its own: it is followed only to a
//! directory that names this `.git` in turn, as linked working trees and submodules do. Only small regular files are
//! read, without blocking.

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// The maximum size in bytes of a file that names a directory, and of the configuration of a submodule.
const FILE_MAX: u64 = 64 * 1024;

/// Files that git reads for most commands, of one working tree.
const WORK_TREE_FILES: [&str; 11] = [
    "HEAD",
    "index",
    "config.worktree",
    "info/sparse-checkout",
    "logs/HEAD",
    "MERGE_HEAD",
    "MERGE_MSG",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "BISECT_LOG",
    "COMMIT_EDITMSG",
];

/// Files that git reads for most commands, shared by all working trees.
const SHARED_FILES: [&str; 8] = [
    "HEAD",
    "config",
    "packed-refs",
    "shallow",
    "info/exclude",
    "info/attributes",
    "info/grafts",
    "objects/info/alternates",
];

/// Why git cannot be run in a workspace.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    /// Neither the workspace nor a directory above it has a `.git`.
    #[error("the workspace is not in a git repository")]
    NotFound,
    /// A repository was found, but git is not run with it.
    #[error("{} {reason}; check the repository, or run git yourself", .path.display())]
    Untrusted {
        /// The path in question.
        path: PathBuf,
        /// Why it is not trusted.
        reason: String,
    },
}

/// A repository and its working tree that contains the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repository {
    /// The directory with `.git` in it.
    pub(crate) work_tree: PathBuf,
    /// The directory with the state of this working tree.
    pub(crate) git_dir: PathBuf,
    /// The directory that all working trees share.
    pub(crate) common_dir: PathBuf,
    /// Whether any of these directories belongs to another user; git itself then decides whether to accept it.
    pub(crate) foreign: bool,
}

impl Repository {
    /// Finds the repository of a workspace, in it or above it. `writable` are the directories that confined commands
    /// may write besides the workspace.
    pub(crate) fn find(workspace: &Path, writable: &[PathBuf]) -> Result<Self, RepositoryError> {
        // The parent directories are those of the path without links.
        let real = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        for work_tree in [workspace].into_iter().chain(real.ancestors().skip(1)) {
            let git = work_tree.join(".git");
            let Ok(metadata) = fs::symlink_metadata(&git) else { continue };
            let (git_dir, common_dir) = if metadata.is_symlink() {
                return Err(untrusted(&git, "is a symbolic link, which git is not run through"));
            } else if metadata.is_dir() {
                match plain_git_directory(&git)? {
                    Some(common_dir) => (git, common_dir),
                    // While a confined command runs in a workspace without a repository, an empty `.git` exists there.
                    None => continue,
                }
            } else {
                linked_git_directory(work_tree, &git)?
            };
            let own =
                os::is_owned_by_user(work_tree) && os::is_owned_by_user(&git_dir) && os::is_owned_by_user(&common_dir);
            let found = Self { foreign: !own, work_tree: work_tree.to_owned(), git_dir, common_dir };
            found.check_not_writable(workspace, writable)?;
            found.check_files()?;
            return Ok(found);
        }
        Err(RepositoryError::NotFound)
    }

    /// Refuses a repository that confined commands can change. The workspace's own `.git` is protected from them.
    fn check_not_writable(&self, workspace: &Path, writable: &[PathBuf]) -> Result<(), RepositoryError> {
        let own = workspace.join(".git");
        let own = own.canonicalize().unwrap_or(own);
        for dir in [&self.git_dir, &self.common_dir] {
            let real = dir.canonicalize().unwrap_or_else(|_| dir.clone());
            let mut directories = writable.iter().map(PathBuf::as_path).chain([workspace]);
            let inside = directories.any(|directory| {
                directory.canonicalize().is_ok_and(|directory| real.starts_with(&directory))
                    || real.starts_with(directory)
            });
            if inside && real != own {
                return Err(untrusted(dir, "can be changed by commands, so that git is not run with it"));
            }
        }
        Ok(())
    }

    /// Refuses a repository in which something else stands in the place of a file that git reads: git would wait for a FIFO.
    fn check_files(&self) -> Result<(), RepositoryError> {
        let own = WORK_TREE_FILES.iter().map(|name| self.git_dir.join(name));
        for path in own.chain(SHARED_FILES.iter().map(|name| self.common_dir.join(name))) {
            // Links are followed, as git follows them.
            if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
                return Err(untrusted(&path, "is not a regular file, so that git is not run with it"));
            }
        }
        let head = read(&self.git_dir.join("HEAD")).unwrap_or_default();
        let branch = head.trim_end().strip_prefix("ref: ").map(Path::new);
        let is_below = |branch: &&Path| branch.components().all(|part| matches!(part, Component::Normal(_)));
        if let Some(path) = branch.filter(is_below).map(|branch| self.common_dir.join(branch))
            && fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
        {
            return Err(untrusted(&path, "is not a regular file, so that git is not run with it"));
        }
        Ok(())
    }
}

/// Returns the git directories outside a workspace that commands in it need to read. It blocks.
///
/// A repository whose working tree is a home is not opened for a workspace below that home.
pub(in crate::sandbox) fn directories_outside(
    workspace: &Path,
    writable: &[PathBuf],
    homes: &[PathBuf],
) -> Vec<PathBuf> {
    let Ok(found) = Repository::find(workspace, writable) else { return Vec::new() };
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let work_tree = real(&found.work_tree);
    if homes.iter().any(|home| real(home) == work_tree) {
        return Vec::new();
    }
    let mut outside = vec![found.git_dir, found.common_dir];
    outside.dedup();
    outside.retain(|dir| !real(dir).starts_with(real(workspace)));
    outside
}

/// Checks a `.git` that is a directory: returns its path, or `None` if it is not a repository.
fn plain_git_directory(git: &Path) -> Result<Option<PathBuf>, RepositoryError> {
    if fs::symlink_metadata(git.join("HEAD")).is_err() {
        return Ok(None);
    }
    if fs::symlink_metadata(git.join("commondir")).is_ok() {
        return Err(untrusted(git, "is a directory whose file commondir names another repository"));
    }
    Ok(Some(git.to_owned()))
}

/// Follows a `.git` that is a file, if the directory that it names refers back to it. Returns the git directory and the
/// common directory.
fn linked_git_directory(work_tree: &Path, git: &Path) -> Result<(PathBuf, PathBuf), RepositoryError> {
    let text = read(git).ok_or_else(|| untrusted(git, "is neither a directory nor a small text file"))?;
    let named = text.strip_prefix("gitdir: ").map(|rest| rest.trim_end_matches(['\n', '\r']));
    let named = named.filter(|named| !named.is_empty() && !named.contains(['\n', '\0']));
    let named = named.ok_or_else(|| untrusted(git, "does not have the form `gitdir: DIRECTORY`"))?;
    let git_dir = work_tree.join(named).canonicalize().ok().filter(|dir| dir.is_dir());
    let git_dir = git_dir.ok_or_else(|| untrusted(git, "names a directory that does not exist"))?;
    if fs::symlink_metadata(git_dir.join("HEAD")).is_err() {
        return Err(untrusted(git, "names a directory that is not a repository"));
    }
    let real = |path: &Path| path.canonicalize().ok();
    let no_back_reference = || untrusted(git, &format!("names {}, which does not name it in turn", git_dir.display()));
    if let Some(back) = read(&git_dir.join("gitdir")) {
        // A linked working tree: its git directory lies below the shared repository.
        let back = git_dir.join(back.trim_end_matches(['\n', '\r']));
        let common = read(&git_dir.join("commondir")).ok_or_else(no_back_reference)?;
        let common = real(&git_dir.join(common.trim_end_matches(['\n', '\r']))).ok_or_else(no_back_reference)?;
        let leads_back = back.file_name() == git.file_name()
            && back.parent().and_then(real).is_some_and(|dir| Some(dir) == real(work_tree));
        let below = git_dir.parent().is_some_and(|above| above == common.join("worktrees"));
        let is_shared = fs::symlink_metadata(common.join("HEAD")).is_ok()
            && fs::symlink_metadata(common.join("commondir")).is_err();
        return if leads_back && below && is_shared { Ok((git_dir, common)) } else { Err(no_back_reference()) };
    }
    // A submodule, or a repository with a separate git directory: `core.worktree` names the working tree.
    let back = read(&git_dir.join("config")).and_then(|config| core_worktree(&config));
    let leads_back = back.and_then(|back| real(&git_dir.join(back))).is_some_and(|dir| Some(dir) == real(work_tree));
    if leads_back && fs::symlink_metadata(git_dir.join("commondir")).is_err() {
        Ok((git_dir.clone(), git_dir))
    } else {
        Err(no_back_reference())
    }
}

/// Returns `core.worktree` of a configuration, if it is set once and without escapes or comments.
fn core_worktree(config: &str) -> Option<String> {
    let mut in_core = false;
    let mut found = None;
    for line in config.lines().map(str::trim) {
        if line.starts_with('[') {
            in_core = line.eq_ignore_ascii_case("[core]");
        } else if in_core
            && let Some((name, value)) = line.split_once('=')
            && name.trim().eq_ignore_ascii_case("worktree")
        {
            let value = value.trim();
            let bare = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
            if found.is_some() || bare.contains(['"', '\\', '#', ';']) {
                return None;
            }
            found = Some(bare.to_owned());
        }
    }
    found
}

/// Reads a small regular text file; `None` for anything else, and for a link.
fn read(path: &Path) -> Option<String> {
    let file = os::open(path).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.len() > FILE_MAX {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok()
}

fn untrusted(path: &Path, reason: &str) -> RepositoryError {
    RepositoryError::Untrusted { path: path.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
#[cfg(unix)]
#[path = "unix_tests.rs"]
mod tests;
