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

use super::workspace_check;
use crate::sandbox::confinement::ConfinementSpec;

/// The mode of a placeholder. It is set atomically on creation: without the marker bit it would be taken for a
/// directory of the user.
const PLACEHOLDER_MODE: u32 = 0o1755;

/// The bit that marks a placeholder; the sticky bit has no other use there.
const STICKY: u32 = 0o1000;

/// How often creating a placeholder is retried while other processes remove it.
const CREATE_ATTEMPTS: usize = 100;

/// The placeholders of a step; dropping it releases them.
#[derive(Default)]
pub(super) struct Placeholders {
    _placeholders: Vec<Placeholder>,
    /// The workspace, through which the placeholders in it are accessed; it is closed after them.
    _workspace: Option<File>,
}

impl Placeholders {
    /// Creates placeholders for all protected paths that are missing.
    ///
    /// [`Errno::ESTALE`] means that the workspace is not the one in the request. The directories are created relative
    /// to the open directory that was compared, because its path may lead elsewhere a moment later.
    pub(super) fn create_missing(spec: &ConfinementSpec) -> nix::Result<Self> {
        let workspace = match spec.workspace_id {
            None => None,
            Some(_) => {
                let opened = File::open(&spec.workspace).map_err(errno)?;
                Some(opened)
                    .filter(|opened| workspace_check::is_expected(spec, opened))
                    .ok_or(Errno::ESTALE)
                    .map(Some)?
            }
        };
        let base = workspace.as_ref().map(|opened| PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd())));
        let mut held = Vec::new();
        for path in &spec.protected {
            let location = match (&base, path.strip_prefix(&spec.workspace)) {
                (Some(base), Ok(inner)) => &base.join(inner),
                (Some(_) | None, _) => path,
            };
            held.extend(Placeholder::create(location).map_err(errno)?);
        }
        Ok(Self { _placeholders: held, _workspace: workspace })
    }
}

struct Placeholder {
    path: PathBuf,
    directory: File,
}

impl Placeholder {
    /// Creates a placeholder; `None` if the path exists, which is then protected itself.
    fn create(path: &Path) -> io::Result<Option<Self>> {
        for _ in 0..CREATE_ATTEMPTS {
            match fs::symlink_metadata(path) {
                Ok(metadata) if !is_placeholder(&metadata) => return Ok(None),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    match DirBuilder::new().mode(PLACEHOLDER_MODE).create(path) {
                        Ok(()) => {}
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                        // If this process may not create it, no command of the step can.
                        Err(error) if is_not_permitted(&error) => return Ok(None),
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
            let same = fs::symlink_metadata(path).is_ok_and(|metadata| is_same_file(&metadata, &held));
            if same {
                return Ok(Some(Self { path: path.to_owned(), directory: held }));
            }
        }
        Err(Errno::EAGAIN.into())
    }
}

impl Drop for Placeholder {
    fn drop(&mut self) {
        // Another step that uses the placeholder removes it later; a placeholder that is no longer empty becomes an
        // ordinary directory.
        if self.directory.unlock().is_err() || self.directory.try_lock().is_err() {
            return;
        }
        let still_ours =
            fs::symlink_metadata(&self.path).is_ok_and(|metadata| is_same_file(&metadata, &self.directory));
        if still_ours && fs::remove_dir(&self.path).is_err() {
            let _kept = self.directory.set_permissions(Permissions::from_mode(0o755));
        }
    }
}

/// Opens a directory without following a symbolic link.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    File::options().read(true).custom_flags(flags.bits()).open(path)
}

fn is_not_permitted(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn is_placeholder(metadata: &fs::Metadata) -> bool {
    // A umask clears permission bits, never the sticky bit.
    metadata.is_dir() && metadata.mode() & 0o7000 == STICKY && metadata.mode() & 0o777 & !PLACEHOLDER_MODE == 0
}

fn is_same_file(metadata: &fs::Metadata, held: &File) -> bool {
    held.metadata().is_ok_and(|held| (held.dev(), held.ino()) == (metadata.dev(), metadata.ino()))
}

fn errno(error: io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_is_shared_and_removed_by_its_last_user() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".git");
        let first = Placeholder::create(&path).unwrap().unwrap();
        let second = Placeholder::create(&path).unwrap().unwrap();
        assert!(path.is_dir());
        drop(first);
        assert!(path.is_dir(), "the second step uses it");
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn two_concurrent_steps_both_get_the_placeholder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".git");
        let start = std::sync::Barrier::new(2);
        let take = || {
            start.wait();
            Placeholder::create(&path).unwrap()
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
    fn existing_paths_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        for (name, make) in [
            (".git", (|path: &Path| fs::create_dir(path).unwrap()) as fn(&Path)),
            (".push", |path| fs::write(path, "gitdir: elsewhere").unwrap()),
            (".link", |path| std::os::unix::fs::symlink("/", path).unwrap()),
        ] {
            let path = dir.path().join(name);
            make(&path);
            assert!(Placeholder::create(&path).unwrap().is_none(), "{name}");
            assert!(fs::symlink_metadata(&path).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_placeholder_that_was_filled_becomes_an_ordinary_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".git");
        let guard = Placeholder::create(&path).unwrap().unwrap();
        fs::write(path.join("HEAD"), "").unwrap();
        drop(guard);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o755);
        assert!(path.join("HEAD").exists());
    }

    #[test]
    fn a_placeholder_of_a_killed_supervisor_is_removed_with_the_next_step() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".git");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(PLACEHOLDER_MODE)).unwrap();
        drop(Placeholder::create(&path).unwrap().unwrap());
        assert!(!path.exists());
    }
}
