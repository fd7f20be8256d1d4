//! A git directory that a command may write, except for the paths that git executes or trusts.
//!
//! If the command has its own mounts, existing trusted paths are mounted read-only, and the directories above them
//! are mount points, so that they cannot be renamed. A missing path or a link cannot be mounted over: it is
//! compared afterwards. Without mounts all trusted paths are compared. The rest is searched for new links and
//! special files: through a link, git would write to another path when the user runs it.
//!
//! Changes are reverted. Except for links and special files nothing is deleted: the changed file is kept next to
//! the original under a name that git ignores.

mod index;
mod restore;
mod snapshot;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::error::{ToolError, ToolErrorKind};
use crate::sandbox::confinement::{Mechanism, StepPermissions};
use crate::sandbox::repository::Repository;
use snapshot::{Snapshot, SnapshotLimits};

pub(super) use index::GitIndex;

/// The paths that git executes or trusts in the directory of a working tree, and in the shared one.
const TRUSTED_PATHS: [&str; 12] = [
    "hooks",
    "config",
    "config.worktree",
    "info",
    "modules",
    "commondir",
    "gitdir",
    "branches",
    "remotes",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
];

/// Further trusted paths in the shared directory.
const SHARED_TRUSTED_PATHS: [&str; 3] = ["objects/info/alternates", "objects/info/http-alternates", "refs/replace"];

/// The files that link another working tree to its repository.
const WORKTREE_TRUSTED_FILES: [&str; 3] = ["commondir", "gitdir", "config.worktree"];

/// How many changed paths an error names.
const NAMED_MAX: usize = 8;

/// The git directory of a workspace while a command may write it.
#[derive(Debug)]
pub(super) struct WritableGitDir {
    /// The directory that working trees share; that of this working tree is the same, or lies in it.
    root: PathBuf,
    git_dir: PathBuf,
    work_tree: PathBuf,
    index: GitIndex,
    /// The paths that are mounted read-only, relative to the root.
    read_only: BTreeSet<PathBuf>,
    /// The paths that are compared, relative to the root.
    compared: BTreeSet<PathBuf>,
    before: Snapshot,
}

impl WritableGitDir {
    /// Takes a snapshot of a git directory before a command with this mechanism of confinement may write it.
    /// Blocks.
    pub(super) fn prepare(repository: &Repository, mechanism: Mechanism) -> Result<Self, ToolError> {
        Self::prepare_with_limits(repository, mechanism, SnapshotLimits::default())
    }

    fn prepare_with_limits(
        repository: &Repository,
        mechanism: Mechanism,
        limits: SnapshotLimits,
    ) -> Result<Self, ToolError> {
        let root = repository.common_dir.clone();
        let own = repository.git_dir.strip_prefix(&root).unwrap_or(Path::new(""));
        let paths = trusted_paths(&root, own);
        let has_mounts = match mechanism {
            Mechanism::Bubblewrap | Mechanism::Namespaces => true,
            Mechanism::Rules => false,
        };
        let can_be_closed = |path: &PathBuf| has_mounts && is_reached_without_links(&root, path);
        let mut read_only: BTreeSet<PathBuf> = paths.iter().filter(|path| can_be_closed(path)).cloned().collect();
        read_only.extend(other_worktrees(&root, own).into_iter().filter(can_be_closed));
        let outer = read_only.clone();
        let lies_in = |path: &PathBuf| path.ancestors().skip(1).any(|above| outer.contains(above));
        read_only.retain(|path| !lies_in(path));
        let compared = paths.into_iter().filter(|path| !outer.contains(path) && !lies_in(path)).collect();
        let before = Snapshot::take(&root, &compared, &read_only, limits)?;
        if before.is_incomplete() {
            let message = format!(
                "{} contains more files than can be compared after a command, or unreadable ones; use `outside`, \
                 which needs an approval",
                root.display()
            );
            return Err(ToolError::new(ToolErrorKind::ProtectedPath, message));
        }
        if let Some(link) = before.links(&compared).next() {
            let message = format!(
                "{} is a link, and git trusts its target; use `outside`, which needs an approval",
                root.join(link).display()
            );
            return Err(ToolError::new(ToolErrorKind::ProtectedPath, message));
        }
        let (git_dir, work_tree) = (repository.git_dir.clone(), repository.work_tree.clone());
        let index = GitIndex::read(&git_dir, &root)?;
        Ok(Self { root, git_dir, work_tree, index, read_only, compared, before })
    }

    /// Grants a step write access to the directory, except for the read-only paths.
    pub(super) fn grant(&self, permissions: &mut StepPermissions) {
        let mut writable = BTreeSet::from([self.root.clone(), self.git_dir.clone()]);
        for path in &self.read_only {
            let above = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
            writable.extend(above.map(|above| self.root.join(above)));
        }
        permissions.writable.extend(writable);
        permissions.read_only.extend(self.read_only.iter().map(|path| self.root.join(path)));
    }

    /// Compares the directory with its snapshot, and reverts the changes that the command must not make. Blocks.
    ///
    /// No process of the command may be running.
    pub(super) fn check(self) -> Result<(), ToolError> {
        self.check_with_limits(SnapshotLimits::default())
    }

    fn check_with_limits(self, limits: SnapshotLimits) -> Result<(), ToolError> {
        let after = Snapshot::take(&self.root, &self.compared, &self.read_only, limits)?;
        let changed = self.before.changed(&after);
        let mut failed = restore::restore(&self.root, &self.before, &after, &changed);
        let mut named: Vec<String> =
            changed.iter().take(NAMED_MAX).map(|path| self.root.join(path).display().to_string()).collect();
        if changed.len() > named.len() {
            named.push(format!("{} more", changed.len() - named.len()));
        }
        let index = GitIndex::read(&self.git_dir, &self.root);
        if !index.is_ok_and(|index| !index.adds_repository(&self.index, &self.work_tree)) {
            named.push(format!(
                "{} (it names a repository inside the working tree)",
                self.git_dir.join("index").display()
            ));
            let put_back = self.index.restore(&self.git_dir);
            failed = failed.or(put_back.err().map(|error| error.to_string()));
        }
        if named.is_empty() && !after.is_incomplete() {
            return Ok(());
        }
        if after.is_incomplete() {
            named.push(format!("files of {} that are unreadable, or more than can be compared", self.root.display()));
        }
        let undone = match failed {
            None if after.is_incomplete() => "inspect it before you use git again".to_owned(),
            None => "the change was reverted, and the changed file is kept next to it with the suffix `.rejected-N`"
                .to_owned(),
            Some(why) => {
                format!("the change could not be reverted completely ({why}): inspect it before you use git again")
            }
        };
        let message = format!(
            "the command changed what git executes or trusts: {}; {undone}. Such a change needs `outside`, which needs \
             an approval",
            named.join(", ")
        );
        Err(ToolError::new(ToolErrorKind::ProtectedPath, message))
    }
}

/// All trusted paths, relative to the root; `own` is the directory of this working tree.
fn trusted_paths(root: &Path, own: &Path) -> BTreeSet<PathBuf> {
    let mut paths: BTreeSet<PathBuf> = TRUSTED_PATHS.iter().chain(&SHARED_TRUSTED_PATHS).map(PathBuf::from).collect();
    paths.extend(TRUSTED_PATHS.iter().map(|name| own.join(name)));
    for worktree in worktrees(root) {
        paths.extend(WORKTREE_TRUSTED_FILES.iter().map(|name| worktree.join(name)));
    }
    paths
}

/// The directories of other working trees, which a command must not change.
fn other_worktrees(root: &Path, own: &Path) -> Vec<PathBuf> {
    worktrees(root).into_iter().filter(|worktree| worktree != own).collect()
}

fn worktrees(root: &Path) -> Vec<PathBuf> {
    let all = Path::new("worktrees");
    let is_directory = fs::symlink_metadata(root.join(all)).is_ok_and(|metadata| metadata.is_dir());
    let entries = fs::read_dir(root.join(all)).into_iter().filter(|_| is_directory).flatten().flatten();
    entries.map(|entry| all.join(entry.file_name())).collect()
}

/// Whether the path is a file or a directory, and no component of it is a link.
fn is_reached_without_links(root: &Path, path: &Path) -> bool {
    let mut above = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
    let kind = |path: &Path| fs::symlink_metadata(root.join(path)).map(|metadata| metadata.file_type());
    above.all(|above| kind(above).is_ok_and(|kind| kind.is_dir()))
        && kind(path).is_ok_and(|kind| kind.is_dir() || kind.is_file())
}

#[cfg(test)]
#[cfg(unix)]
#[path = "unix_tests.rs"]
mod tests;
