//! Placeholders for protected paths that do not exist, so that no command can create them.
//!
//! A mount needs a mount point. Where `.git` or `.push` is missing, an empty directory is created, and removed when the
//! last step that uses it has ended: each step holds a shared lock on it, and only a process that gets the exclusive
//! lock may remove it. A placeholder that a killed supervisor left behind is recognised by its mode and is removed with
//! the next step there.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::workspace;
use crate::sandbox::confine::Walls;

/// The mode of a placeholder. It is set atomically on creation: without the marker bit it would be taken for a
/// directory of the user.
const MODE: u32 = 0o1755;

/// The bit that marks a placeholder; the sticky bit has no other use there.
const STICKY: u32 = 0o1000;

/// How often creating a placeholder is retried while other processes remove it.
const AGAIN: usize = 100;

/// The placeholders of a step; dropping it releases them.
#[derive(Default)]
pub(super) struct Guards {
    _held: Vec<Guard>,
    /// The workspace, through which the placeholders in it are accessed; it is closed after them.
    _workspace: Option<File>,
}

impl Guards {
    /// Creates placeholders for all protected paths that are missing.
    ///
    /// [`Errno::ESTALE`] means that the workspace is not the one in the request. The directories are created relative
    /// to the open directory that was compared, because its path may lead elsewhere a moment later.
    pub(super) fn take(walls: &Walls) -> nix::Result<Self> {
        let workspace = match walls.workspace_id {
            None => None,
            Some(_) => {
                let opened = File::open(&walls.workspace).map_err(errno)?;
                Some(opened)
                    .filter(|opened| workspace::is_it(walls, opened))
                    .ok_or(Errno::ESTALE)
                    .map(Some)?
            }
        };
        let base =
            workspace.as_ref().map(|opened| PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd())));
        let mut held = Vec::new();
        for path in &walls.protected {
            let place = match (&base, path.strip_prefix(&walls.workspace)) {
                (Some(base), Ok(inner)) => &base.join(inner),
                (Some(_) | None, _) => path,
            };
            held.extend(Guard::take(place).map_err(errno)?);
        }
        Ok(Self { _held: held, _workspace: workspace })
    }
}

struct Guard {
    path: PathBuf,
    held: File,
}

impl Guard {
    /// Creates a placeholder; `None` if the path exists, which is then protected itself.
    fn take(path: &Path) -> io::Result<Option<Self>> {
        for _ in 0..AGAIN {
            match fs::symlink_metadata(path) {
                Ok(there) if !is_ours(&there) => return Ok(None),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    match DirBuilder::new().mode(MODE).create(path) {
                        Ok(()) => {}
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                        // If this process may not create it, no command of the step can.
                        Err(error) if is_closed(&error) => return Ok(None),
                        Err(error) => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            }
            let held = match open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            held.lock_shared()?;
            // Another process may have removed and recreated it before the lock was acquired.
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
        // Another step that uses the placeholder removes it later; a placeholder that is no longer empty becomes an
        // ordinary directory.
        if self.held.unlock().is_err() || self.held.try_lock().is_err() {
            return;
        }
        let still_ours = fs::symlink_metadata(&self.path).is_ok_and(|there| same(&there, &self.held));
        if still_ours && fs::remove_dir(&self.path).is_err() {
            let _kept = self.held.set_permissions(Permissions::from_mode(0o755));
        }
    }
}

/// Opens a directory without following a symbolic link.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    File::options().read(true).custom_flags(flags.bits()).open(path)
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn is_ours(there: &fs::Metadata) -> bool {
    // A umask clears permission bits, never the sticky bit.
    there.is_dir() && there.mode() & 0o7000 == STICKY && there.mode() & 0o777 & !MODE == 0
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
        assert!(path.is_dir(), "the second step uses it");
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn two_that_come_at_the_same_time_both_hold_the_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".git");
        let start = std::sync::Barrier::new(2);
        let take = || {
            start.wait();
            Guard::take(&path).unwrap()
        };
        for _ in 0..500 {
            let held = std::thread::scope(|scope| {
                let (one, other) = (scope.spawn(take), scope.spawn(take));
                [one.join().unwrap(), other.join().unwrap()]
            });
            assert!(held.iter().all(Option::is_some), "a placeholder was taken for a directory of the user");
        }
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
