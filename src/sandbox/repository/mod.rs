//! Where the git repository of a workspace is, found by reading files: no program is asked, as it might be planted.
//!
//! The repository may later be written by git, so that nothing leads elsewhere on a file's word alone: a `.git` that is a
//! file is followed only to a directory that names this very `.git` in turn, as linked working trees and submodules do.
//! Small regular files are read, and nothing is waited for.

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// How long a file is that names a directory, or the configuration of a submodule.
const FILE_MAX: u64 = 64 * 1024;

/// Why a workspace has no repository that git may be run with.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    /// Neither the workspace nor a directory above it has a `.git`.
    #[error("the workspace is in no git repository")]
    NotFound,
    /// A repository is there, and git is not run with it.
    #[error("{} {reason}; look at it, or use git yourself", .path.display())]
    Untrusted {
        /// What was found.
        path: PathBuf,
        /// Why git is not run with it.
        reason: String,
    },
}

/// A repository, and the working tree of it in which the workspace lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repository {
    /// The directory with `.git` in it.
    pub(crate) work_tree: PathBuf,
    /// Where the state of this working tree is.
    pub(crate) git_dir: PathBuf,
    /// Where everything is that working trees share.
    pub(crate) common_dir: PathBuf,
    /// Whether any of them belongs to another user, which git itself has to agree to.
    pub(crate) foreign: bool,
}

impl Repository {
    /// Finds the repository of a workspace, in it or above it; `writable` is what confined commands may change beside it.
    pub(crate) fn find(workspace: &Path, writable: &[PathBuf]) -> Result<Self, RepositoryError> {
        // Above it the directories are those in which it really is.
        let real = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        for work_tree in [workspace].into_iter().chain(real.ancestors().skip(1)) {
            let git = work_tree.join(".git");
            let Ok(there) = fs::symlink_metadata(&git) else { continue };
            let (git_dir, common_dir) = if there.is_symlink() {
                return Err(refused(&git, "is a symbolic link, which git is not run through"));
            } else if there.is_dir() {
                match plain(&git)? {
                    Some(common_dir) => (git, common_dir),
                    // Such a one stands there while a command runs where there is none.
                    None => continue,
                }
            } else {
                linked(work_tree, &git)?
            };
            let own = os::is_own(work_tree) && os::is_own(&git_dir) && os::is_own(&common_dir);
            let found = Self { foreign: !own, work_tree: work_tree.to_owned(), git_dir, common_dir };
            found.check_place(workspace, writable)?;
            return Ok(found);
        }
        Err(RepositoryError::NotFound)
    }

    /// Refuses a repository that confined commands could change; the workspace's own `.git` is protected from them.
    fn check_place(&self, workspace: &Path, writable: &[PathBuf]) -> Result<(), RepositoryError> {
        let own = workspace.join(".git");
        let own = own.canonicalize().unwrap_or(own);
        for dir in [&self.git_dir, &self.common_dir] {
            let real = dir.canonicalize().unwrap_or_else(|_| dir.clone());
            let mut places = writable.iter().map(PathBuf::as_path).chain([workspace]);
            let inside = places.any(|place| {
                place.canonicalize().is_ok_and(|place| real.starts_with(&place)) || real.starts_with(place)
            });
            if inside && real != own {
                return Err(refused(dir, "can be changed by commands, so that git is not run with it"));
            }
        }
        Ok(())
    }
}

/// Returns the git directories outside of a workspace that commands in it need to read; they block.
///
/// One that stands in a home itself is a repository of that home, and is not opened for a workspace somewhere below it.
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

/// Looks at a `.git` that is a directory: returns itself, or nothing if it is no repository.
fn plain(git: &Path) -> Result<Option<PathBuf>, RepositoryError> {
    if fs::symlink_metadata(git.join("HEAD")).is_err() {
        return Ok(None);
    }
    if fs::symlink_metadata(git.join("commondir")).is_ok() {
        return Err(refused(git, "is a directory and yet leads to another repository by its file commondir"));
    }
    Ok(Some(git.to_owned()))
}

/// Follows a `.git` that is a file, if what it names leads back: returns where the state is, and what is shared.
fn linked(work_tree: &Path, git: &Path) -> Result<(PathBuf, PathBuf), RepositoryError> {
    let text = read(git).ok_or_else(|| refused(git, "is neither a directory nor a small file of text"))?;
    let named = text.strip_prefix("gitdir: ").map(|rest| rest.trim_end_matches(['\n', '\r']));
    let named = named.filter(|named| !named.is_empty() && !named.contains(['\n', '\0']));
    let named = named.ok_or_else(|| refused(git, "does not say `gitdir: ` and a directory"))?;
    let git_dir = work_tree.join(named).canonicalize().ok().filter(|dir| dir.is_dir());
    let git_dir = git_dir.ok_or_else(|| refused(git, "names a directory that is not there"))?;
    if fs::symlink_metadata(git_dir.join("HEAD")).is_err() {
        return Err(refused(git, "names a directory that is no repository"));
    }
    let real = |path: &Path| path.canonicalize().ok();
    let astray = || refused(git, &format!("names {}, which does not name it in turn", git_dir.display()));
    if let Some(back) = read(&git_dir.join("gitdir")) {
        // A linked working tree: its place is below the repository that it shares.
        let back = git_dir.join(back.trim_end_matches(['\n', '\r']));
        let common = read(&git_dir.join("commondir")).ok_or_else(astray)?;
        let common = real(&git_dir.join(common.trim_end_matches(['\n', '\r']))).ok_or_else(astray)?;
        let leads_back = back.file_name() == git.file_name()
            && back.parent().and_then(real).is_some_and(|dir| Some(dir) == real(work_tree));
        let below = git_dir.parent().is_some_and(|above| above == common.join("worktrees"));
        let is_shared = fs::symlink_metadata(common.join("HEAD")).is_ok()
            && fs::symlink_metadata(common.join("commondir")).is_err();
        return if leads_back && below && is_shared { Ok((git_dir, common)) } else { Err(astray()) };
    }
    // A submodule, or a repository that was put elsewhere: its configuration says where it is checked out.
    let back = read(&git_dir.join("config")).and_then(|config| work_tree_in(&config));
    let leads_back =
        back.and_then(|back| real(&git_dir.join(back))).is_some_and(|dir| Some(dir) == real(work_tree));
    if leads_back && fs::symlink_metadata(git_dir.join("commondir")).is_err() {
        Ok((git_dir.clone(), git_dir))
    } else {
        Err(astray())
    }
}

/// Returns `core.worktree` of a configuration that says it once and plainly.
fn work_tree_in(config: &str) -> Option<String> {
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

/// Reads a small regular file of text; nothing else, and never a link.
fn read(path: &Path) -> Option<String> {
    let file = os::open(path).ok()?;
    let there = file.metadata().ok()?;
    if !there.is_file() || there.len() > FILE_MAX {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok()
}

fn refused(path: &Path, reason: &str) -> RepositoryError {
    RepositoryError::Untrusted { path: path.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
#[cfg(unix)]
#[path = "unix_tests.rs"]
mod tests;
