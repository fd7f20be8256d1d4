//! A run's own directory: its temporary files, and the empty file that stands for hidden ones.
//!
//! It is made when a step first needs it, and handed to the [`Remover`] when the last keeper of the run is gone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::confine::{BLANK, FILES};
use super::os;
use super::removal::{self, Remover};

/// What the directories are called; a process id, the time of its start and a number follow.
const PREFIX: &str = "run-";

/// A directory that goes with its owner.
#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
    remover: Remover,
}

impl Scratch {
    /// Makes a directory below `root`, for its owner alone.
    pub(super) fn make(root: &Path, remover: Remover) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        os::private_directories(root)?;
        let scratch = loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = root.join(format!("{}{count}", own_prefix()));
            match os::private_directory(&path) {
                // Whoever made it, it is not ours.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(()) => break Self { path, remover },
            }
        };
        os::private_directory(&scratch.path.join(FILES))?;
        fs::write(scratch.path.join(BLANK), "")?;
        Ok(scratch)
    }

    /// Returns its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.remover.remove(std::mem::take(&mut self.path));
    }
}

/// Has the directories removed that earlier daemons have left below `root`, in the background.
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

/// What the directories of this process are called: an id alone is given to another process one day.
fn own_prefix() -> String {
    static BORN: OnceLock<u128> = OnceLock::new();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{PREFIX}{}-{}-", std::process::id(), BORN.get_or_init(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_of_others_are_renamed_to_be_removed_and_nothing_else_is() {
        let root = tempfile::tempdir().unwrap();
        let own = Scratch::make(root.path(), remover()).unwrap();
        // One that had our process id is somebody else's too.
        let old = format!("run-{}-0", std::process::id());
        for name in ["run-1-0/files/deep", "removing-2-run-1-1/files", "precious", &old] {
            fs::create_dir_all(root.path().join(name)).unwrap();
        }
        remove_leftovers(root.path(), &remover());
        assert!(own.path().join(FILES).is_dir() && own.path().join(BLANK).is_file());
        assert!(root.path().join("precious").exists());
        for gone in ["run-1-0", &old] {
            assert!(!root.path().join(gone).exists(), "{gone}");
        }
    }

    #[test]
    fn what_is_in_the_way_is_not_taken_for_ours() {
        let root = tempfile::tempdir().unwrap();
        let first = Scratch::make(root.path(), remover()).unwrap();
        let name = first.path().file_name().unwrap().to_str().unwrap().to_owned();
        let (prefix, count) = name.rsplit_once('-').unwrap();
        let next: u64 = count.parse::<u64>().unwrap() + 1;
        // Other tests count too; a few in a row are in the way of whichever comes.
        for ahead in next..next + 50 {
            fs::create_dir_all(root.path().join(format!("{prefix}-{ahead}/files/old"))).unwrap();
        }
        let second = Scratch::make(root.path(), remover()).unwrap();
        assert!(!second.path().join(FILES).join("old").exists());
    }

    /// One that removes nothing: what is looked at here is which names are taken.
    fn remover() -> Remover {
        Remover::new(Path::new("/bin/false").into())
    }
}
