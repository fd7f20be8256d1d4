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
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let scratch = Self(root.join(format!("{PREFIX}{}-{count}", std::process::id())));
        // One that a daemon of our id has left.
        match fs::remove_dir_all(&scratch.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        os::private_directory(&scratch.0)?;
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
        let remove = move || drop(fs::remove_dir_all(path));
        // A large tree takes its time, which is nobody else's; what is left goes with the next sweep.
        let _started = std::thread::Builder::new().name("sweep".to_owned()).spawn(remove);
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
            // What cannot be removed is tried again by the next daemon.
            let _tried = fs::remove_dir_all(entry.path());
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
}
