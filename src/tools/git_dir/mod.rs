//! A git directory that a command may write, without what git executes or believes.
//!
//! Where a command has mounts of its own, what is there of that is mounted read-only, and so that no directory above it can be
//! renamed, these are mounts as well. What is missing or a link cannot be mounted over: it is compared afterwards. Where there
//! are no mounts, everything is compared. New links and special files are looked for in the rest: through a link, git would
//! write somewhere else when its user runs it.
//!
//! What was changed is put back. Nothing of it is thrown away except links and special files: it stays beside its place under a
//! name that git does not look at.

mod index;
mod restore;
mod snapshot;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::fault::{Fault, FaultKind};
use crate::sandbox::confine::{Leave, Way};
use crate::sandbox::repository::Repository;
use snapshot::{Limits, Snapshot};

pub(super) use index::Index;

/// What git executes or believes in the directory of a working tree, and in the one that working trees share.
const BELIEVED: [&str; 12] = [
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

/// The same, further down in what is shared.
const BELIEVED_BELOW: [&str; 3] = ["objects/info/alternates", "objects/info/http-alternates", "refs/replace"];

/// What says which repository another working tree belongs to, and where it is.
const OF_WORKTREES: [&str; 3] = ["commondir", "gitdir", "config.worktree"];

/// How many changed paths are named.
const NAMED_MAX: usize = 8;

/// The git directory of a workspace while a command may write it.
#[derive(Debug)]
pub(super) struct WritableGitDir {
    /// The directory that working trees share; that of this one is it, or lies in it.
    root: PathBuf,
    git_dir: PathBuf,
    work_tree: PathBuf,
    index: Index,
    /// What is mounted read-only, from the root on.
    closed: BTreeSet<PathBuf>,
    /// What is compared, from the root on.
    compared: BTreeSet<PathBuf>,
    before: Snapshot,
}

impl WritableGitDir {
    /// Looks at a git directory before a command that is confined in this way may write it; it blocks.
    pub(super) fn prepare(repository: &Repository, way: Way) -> Result<Self, Fault> {
        Self::prepare_within(repository, way, Limits::default())
    }

    fn prepare_within(repository: &Repository, way: Way, limits: Limits) -> Result<Self, Fault> {
        let root = repository.common_dir.clone();
        let own = repository.git_dir.strip_prefix(&root).unwrap_or(Path::new(""));
        let paths = believed(&root, own);
        let has_mounts = match way {
            Way::Bubblewrap | Way::Namespaces => true,
            Way::Rules => false,
        };
        let can_be_closed = |path: &PathBuf| has_mounts && is_plain(&root, path);
        let mut closed: BTreeSet<PathBuf> =
            paths.iter().filter(|path| can_be_closed(path)).cloned().collect();
        closed.extend(other_worktrees(&root, own).into_iter().filter(can_be_closed));
        let outer = closed.clone();
        let lies_in = |path: &PathBuf| path.ancestors().skip(1).any(|above| outer.contains(above));
        closed.retain(|path| !lies_in(path));
        let compared = paths.into_iter().filter(|path| !outer.contains(path) && !lies_in(path)).collect();
        let before = Snapshot::take(&root, &compared, &closed, limits)?;
        if before.is_incomplete() {
            let message = format!(
                "{} holds more files than can be compared after a command, or some that cannot be read; use \
                 `outside`, which is asked about",
                root.display()
            );
            return Err(Fault::new(FaultKind::ProtectedPath, message));
        }
        if let Some(link) = before.links(&compared).next() {
            let message = format!(
                "{} is a link, and git believes what it leads to; use `outside`, which is asked about",
                root.join(link).display()
            );
            return Err(Fault::new(FaultKind::ProtectedPath, message));
        }
        let (git_dir, work_tree) = (repository.git_dir.clone(), repository.work_tree.clone());
        let index = Index::read(&git_dir, &root)?;
        Ok(Self { root, git_dir, work_tree, index, closed, compared, before })
    }

    /// Lets a step write the directory, without what is closed.
    pub(super) fn open_to(&self, leave: &mut Leave) {
        let mut writable = BTreeSet::from([self.root.clone(), self.git_dir.clone()]);
        for path in &self.closed {
            let above = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
            writable.extend(above.map(|above| self.root.join(above)));
        }
        leave.writable.extend(writable);
        leave.closed.extend(self.closed.iter().map(|path| self.root.join(path)));
    }

    /// Compares the directory with what it was, and puts back what the command must not change; it blocks.
    ///
    /// Nothing of the command may run any more.
    pub(super) fn check(self) -> Result<(), Fault> {
        self.check_within(Limits::default())
    }

    fn check_within(self, limits: Limits) -> Result<(), Fault> {
        let after = Snapshot::take(&self.root, &self.compared, &self.closed, limits)?;
        let changed = self.before.changed(&after);
        let mut failed = restore::restore(&self.root, &self.before, &after, &changed);
        let mut named: Vec<String> =
            changed.iter().take(NAMED_MAX).map(|path| self.root.join(path).display().to_string()).collect();
        if changed.len() > named.len() {
            named.push(format!("{} more", changed.len() - named.len()));
        }
        let index = Index::read(&self.git_dir, &self.root);
        if !index.is_ok_and(|index| !index.leads_to_more_than(&self.index, &self.work_tree)) {
            named.push(format!(
                "{}, by naming a repository inside the working tree",
                self.git_dir.join("index").display()
            ));
            let put_back = self.index.put_back(&self.git_dir);
            failed = failed.or(put_back.err().map(|error| error.to_string()));
        }
        if named.is_empty() && !after.is_incomplete() {
            return Ok(());
        }
        if after.is_incomplete() {
            named.push(format!("files of {} that cannot be read, or more than can be", self.root.display()));
        }
        let undone = match failed {
            None if after.is_incomplete() => "look at it before git is used again".to_owned(),
            None => {
                "that was undone, and what stood there is beside it with a name that ends in `.rejected-`"
                    .to_owned()
            }
            Some(why) => {
                format!("not all of that could be undone ({why}): look at it before git is used again")
            }
        };
        let message = format!(
            "the command changed what git executes or believes: {}; {undone}. Such a change needs `outside`, which is \
             asked about",
            named.join(", ")
        );
        Err(Fault::new(FaultKind::ProtectedPath, message))
    }
}

/// Everything that git executes or believes, from the root on; `own` is the directory of this working tree.
fn believed(root: &Path, own: &Path) -> BTreeSet<PathBuf> {
    let mut paths: BTreeSet<PathBuf> = BELIEVED.iter().chain(&BELIEVED_BELOW).map(PathBuf::from).collect();
    paths.extend(BELIEVED.iter().map(|name| own.join(name)));
    for worktree in worktrees(root) {
        paths.extend(OF_WORKTREES.iter().map(|name| worktree.join(name)));
    }
    paths
}

/// The directories of other working trees: a command has no business in them.
fn other_worktrees(root: &Path, own: &Path) -> Vec<PathBuf> {
    worktrees(root).into_iter().filter(|worktree| worktree != own).collect()
}

fn worktrees(root: &Path) -> Vec<PathBuf> {
    let all = Path::new("worktrees");
    let is_directory = fs::symlink_metadata(root.join(all)).is_ok_and(|there| there.is_dir());
    let entries = fs::read_dir(root.join(all)).into_iter().filter(|_| is_directory).flatten().flatten();
    entries.map(|entry| all.join(entry.file_name())).collect()
}

/// Whether a file or a directory stands at a path, and no link on the way to it.
fn is_plain(root: &Path, path: &Path) -> bool {
    let mut above = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
    let kind = |path: &Path| fs::symlink_metadata(root.join(path)).map(|there| there.file_type());
    above.all(|above| kind(above).is_ok_and(|kind| kind.is_dir()))
        && kind(path).is_ok_and(|kind| kind.is_dir() || kind.is_file())
}

#[cfg(test)]
#[cfg(unix)]
#[path = "unix_tests.rs"]
mod tests;
