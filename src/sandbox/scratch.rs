//! The temporary directory of a run, and in it the empty file that is mounted over hidden files.
//!
//! It is created when a step first needs it, and passed to the [`Remover`] when the last supervisor of the run has
//! ended.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::confinement::{EMPTY_FILE, TEMP_SOURCE};
use super::os;
use super::removal::{self, Remover};

/// The prefix of the directories' names; a process id, its start time and a number follow.
const PREFIX: &str = "run-";

/// A temporary directory that is removed when the value is dropped.
#[derive(Debug)]
pub(super) struct ScratchDir {
    path: PathBuf,
    remover: Remover,
}

impl ScratchDir {
    /// Creates a directory below `root` that only its owner can access.
    pub(super) fn create(root: &Path, remover: Remover) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        os::create_private_dir_all(root)?;
        let scratch = loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = root.join(format!("{}{count}", own_prefix()));
            match os::create_private_dir(&path) {
                // Another process created it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(()) => break Self { path, remover },
            }
        };
        os::create_private_dir(&scratch.path.join(TEMP_SOURCE))?;
        fs::write(scratch.path.join(EMPTY_FILE), "")?;
        Ok(scratch)
    }

    /// Returns its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        self.remover.remove(std::mem::take(&mut self.path));
    }
}

/// Removes the directories that earlier daemons have left below `root`, in the background.
pub(super) fn remove_leftovers(root: &Path, remover: &Remover) {
    let own = own_prefix();
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let left = name.to_str().is_some_and(|name| {
            name.starts_with(removal::PREFIX) || (name.starts_with(PREFIX) && !name.starts_with(&own))
        });
        if left {
            remover.remove(entry.path());
        }
    }
}

/// Returns the name prefix of this process's directories; it contains the start time because process ids are reused.
fn own_prefix() -> String {
    static START_TIME: OnceLock<u128> = OnceLock::new();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{PREFIX}{}-{}-", std::process::id(), START_TIME.get_or_init(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_leftovers_of_other_processes_are_renamed_for_removal() {
        let root = tempfile::tempdir().unwrap();
        let own = ScratchDir::create(root.path(), remover()).unwrap();
        // A directory of an earlier process with the same process id is a leftover too.
        let old = format!("run-{}-0", std::process::id());
        for name in ["run-1-0/files/deep", "removing-2-run-1-1/files", "precious", &old] {
            fs::create_dir_all(root.path().join(name)).unwrap();
        }
        remove_leftovers(root.path(), &remover());
        assert!(own.path().join(TEMP_SOURCE).is_dir() && own.path().join(EMPTY_FILE).is_file());
        assert!(root.path().join("precious").exists());
        for gone in ["run-1-0", &old] {
            assert!(!root.path().join(gone).exists(), "{gone}");
        }
    }

    #[test]
    fn an_existing_directory_is_not_reused() {
        let root = tempfile::tempdir().unwrap();
        let first = ScratchDir::create(root.path(), remover()).unwrap();
        let name = first.path().file_name().unwrap().to_str().unwrap().to_owned();
        let (prefix, count) = name.rsplit_once('-').unwrap();
        let next: u64 = count.parse::<u64>().unwrap() + 1;
        // Other tests share the counter; many directories in a row block whichever number comes next.
        for ahead in next..next + 500 {
            fs::create_dir(root.path().join(format!("{prefix}-{ahead}"))).unwrap();
        }
        let second = ScratchDir::create(root.path(), remover()).unwrap();
        let number = second.path().to_str().unwrap().rsplit_once('-').unwrap().1.parse::<u64>().unwrap();
        assert!(number >= next + 500, "number {number} existed");
    }

    /// Removes nothing: these tests check only the names.
    fn remover() -> Remover {
        Remover::new(Path::new("/bin/false").into())
    }
}
