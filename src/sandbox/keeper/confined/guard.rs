//! Places that hold something protected where nothing is yet, so that nobody can put something there.
//!
//! A mount needs something to stand on. Where `.git` or `.push` is missing, an empty directory is made, and removed when the
//! last step that stands on it is over: each holds a shared lock on it, and only who gets it alone may remove it. A directory
//! that a killed keeper has left is known by its mode and goes with the next step there.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::sandbox::confine::Walls;

/// The mode of a directory of ours; nobody else has a use for the sticky bit there.
const MODE: u32 = 0o1755;

/// How often a place is tried that others remove meanwhile.
const AGAIN: usize = 100;

/// The places that are held; they are let go when it is dropped.
#[derive(Default)]
pub(super) struct Guards(Vec<Guard>);

impl Guards {
    /// Holds the places of everything that is protected and missing.
    pub(super) fn take(walls: &Walls) -> nix::Result<Self> {
        let mut guards = Self(Vec::new());
        for path in &walls.protected {
            guards.0.extend(Guard::take(path).map_err(errno)?);
        }
        Ok(guards)
    }
}

struct Guard {
    path: PathBuf,
    held: File,
}

impl Guard {
    /// Holds a place; nothing where somebody else's thing stands, which is protected as it is.
    fn take(path: &Path) -> io::Result<Option<Self>> {
        for _ in 0..AGAIN {
            match fs::symlink_metadata(path) {
                Ok(there) if !is_ours(&there) => return Ok(None),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    match DirBuilder::new().mode(0o755).create(path) {
                        Ok(()) => fs::set_permissions(path, Permissions::from_mode(MODE))?,
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                        // Where we may not make it, no command of ours can.
                        Err(error) if is_closed(&error) => return Ok(None),
                        Err(error) => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            }
            let held = match File::open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            held.lock_shared()?;
            // It may have been removed, and made again by another, before we had the lock.
            let same = fs::symlink_metadata(path).is_ok_and(|there| same(&there, &held));
            if same {
                return Ok(Some(Self { path: path.to_owned(), held }));
            }
        }
        Err(Errno::EAGAIN.into())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Whoever else stands here removes it; what somebody has filled meanwhile becomes an ordinary directory.
        if self.held.unlock().is_err() || self.held.try_lock().is_err() {
            return;
        }
        let still_ours = fs::symlink_metadata(&self.path).is_ok_and(|there| same(&there, &self.held));
        if still_ours && fs::remove_dir(&self.path).is_err() {
            let _kept = self.held.set_permissions(Permissions::from_mode(0o755));
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn is_ours(there: &fs::Metadata) -> bool {
    there.is_dir() && there.mode() & 0o7777 == MODE
}

fn same(there: &fs::Metadata, held: &File) -> bool {
    held.metadata().is_ok_and(|held| (held.dev(), held.ino()) == (there.dev(), there.ino()))
}

fn errno(error: io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_place_is_held_by_all_and_removed_by_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".git");
        let first = Guard::take(&path).unwrap().unwrap();
        let second = Guard::take(&path).unwrap().unwrap();
        assert!(path.is_dir());
        drop(first);
        assert!(path.is_dir(), "the second stands on it");
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn what_others_have_made_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        for (name, make) in [
            (".git", (|path: &Path| fs::create_dir(path).unwrap()) as fn(&Path)),
            (".push", |path| fs::write(path, "gitdir: elsewhere").unwrap()),
            (".link", |path| std::os::unix::fs::symlink("/", path).unwrap()),
        ] {
            let path = dir.path().join(name);
            make(&path);
            assert!(Guard::take(&path).unwrap().is_none(), "{name}");
            assert!(fs::symlink_metadata(&path).is_ok(), "{name}");
        }
    }

    #[test]
    fn what_was_filled_meanwhile_stays_as_an_ordinary_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".git");
        let guard = Guard::take(&path).unwrap().unwrap();
        fs::write(path.join("HEAD"), "").unwrap();
        drop(guard);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o755);
        assert!(path.join("HEAD").exists());
    }

    #[test]
    fn what_a_killed_keeper_left_goes_with_the_next_step() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".git");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(MODE)).unwrap();
        drop(Guard::take(&path).unwrap().unwrap());
        assert!(!path.exists());
    }
}
