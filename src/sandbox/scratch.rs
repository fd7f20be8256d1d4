//! A run's own directory: its temporary files, and the empty file that stands for hidden ones.
//!
//! It is made when a step first needs it and removed when the last keeper of the run is gone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::confine::{BLANK, FILES};
use super::os;

/// What the directories are called; a process id and a number follow.
const PREFIX: &str = "run-";

/// A directory that goes with its owner.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes a directory below `root`, for its owner alone.
    pub(super) fn make(root: &Path) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        os::private_directories(root)?;
        let scratch = loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = root.join(format!("{PREFIX}{}-{count}", std::process::id()));
            match os::private_directory(&path) {
                // One that a daemon of our id has left; a later sweep takes it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(()) => break Self(path),
            }
        };
        os::private_directory(&scratch.0.join(FILES))?;
        fs::write(scratch.0.join(BLANK), "")?;
        Ok(scratch)
    }

    /// Returns its path.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.0);
        let remove = move || remove(&path);
        // A large tree takes its time, which is nobody else's; what is left goes with the next sweep.
        let _started = std::thread::Builder::new().name("sweep".to_owned()).spawn(remove);
    }
}

/// Removes a directory, also where its owner has closed parts of it to himself.
fn remove(path: &Path) {
    if fs::remove_dir_all(path).is_err() {
        open_up(path);
        // What is left is tried again by the next daemon.
        let _tried = fs::remove_dir_all(path);
    }
}

/// Opens a directory and those in it to their owner; links are not followed.
fn open_up(path: &Path) {
    let mut closed = vec![path.to_owned()];
    while let Some(path) = closed.pop() {
        if fs::symlink_metadata(&path).is_ok_and(|there| there.is_dir()) {
            // What is not ours stays as it is.
            let _opened = os::open_to_owner(&path);
            closed.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
}

/// Removes the directories that an earlier daemon has left below `root`; it blocks.
pub fn sweep(root: &Path) {
    let own = format!("{PREFIX}{}-", std::process::id());
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let left = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(PREFIX) && !name.starts_with(&own));
        if left {
            remove(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_removes_what_others_left_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let own = Scratch::make(root.path()).unwrap();
        fs::create_dir_all(root.path().join("run-1-0/files/deep")).unwrap();
        fs::create_dir(root.path().join("precious")).unwrap();
        sweep(root.path());
        assert!(own.path().join(FILES).is_dir() && own.path().join(BLANK).is_file());
        assert!(!root.path().join("run-1-0").exists() && root.path().join("precious").exists());
    }

    #[test]
    fn what_is_in_the_way_is_left_to_a_sweep() {
        let root = tempfile::tempdir().unwrap();
        let first = Scratch::make(root.path()).unwrap();
        let name = first.path().file_name().unwrap().to_str().unwrap().to_owned();
        let (prefix, count) = name.rsplit_once('-').unwrap();
        let next: u64 = count.parse::<u64>().unwrap() + 1;
        // Other tests count too; a few in a row are in the way of whichever comes.
        for ahead in next..next + 50 {
            fs::create_dir_all(root.path().join(format!("{prefix}-{ahead}/files/old"))).unwrap();
        }
        let second = Scratch::make(root.path()).unwrap();
        assert!(!second.path().join(FILES).join("old").exists());
    }

    #[cfg(unix)]
    #[test]
    fn what_was_closed_to_its_owner_is_removed_all_the_same() {
        use std::os::unix::fs::PermissionsExt;

        let root = tempfile::tempdir().unwrap();
        let left = root.path().join("run-1-0");
        fs::create_dir_all(left.join("files/shut/deep")).unwrap();
        fs::write(left.join("files/shut/deep/f"), "x").unwrap();
        for (name, mode) in [("files/shut/deep", 0o500), ("files/shut", 0o000)] {
            fs::set_permissions(left.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        // Root is held back by no mode; that the modes are opened is seen all the same.
        open_up(&left);
        let mode = fs::metadata(left.join("files/shut/deep")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::set_permissions(left.join("files/shut"), fs::Permissions::from_mode(0o000)).unwrap();
        sweep(root.path());
        assert!(!left.exists());
    }
}
