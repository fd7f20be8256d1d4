//! Removal of a tree on Unix, without recursion, without paths, and with three descriptors.
//!
//! A directory that is not empty is moved to the top of the tree, so every directory is emptied one level below the
//! top, however deep it was. No return path is needed, and no path grows too long. Links are removed and never
//! followed. A mount point in the tree can be neither moved nor removed, and stays.

use std::ffi::CStr;
use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, renameat};
use nix::libc;
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::{ARGUMENT, Removal, TIMED_OUT};
use crate::sandbox::supervisor;

const DIRECTORY_FLAGS: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// How many bytes of a child's standard error are read.
const STDERR_MAX: u64 = 4096;

/// How many names are tried for a directory that is moved to the top.
const NAME_ATTEMPTS_MAX: usize = 1024;

/// Runs a child process that removes a directory, and waits for it.
pub(super) fn remove_in_child(program: &Path, path: &Path) -> io::Result<Removal> {
    let mut child = Command::new(program)
        .arg0("push")
        .args([supervisor::ARGUMENT, ARGUMENT])
        .arg(path)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut output = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        stderr.take(STDERR_MAX).read_to_end(&mut output)?;
    }
    let status = child.wait()?;
    Ok(match status.code() {
        Some(0) => Removal::Removed,
        Some(code) if code == i32::from(TIMED_OUT) => Removal::TimedOut,
        Some(_) | None => Removal::Failed(format!("{status}: {}", String::from_utf8_lossy(&output).trim())),
    })
}

/// The nice value of the child: low priority, but not so low that a busy machine never schedules it.
const NICENESS: i32 = 5;

/// Lowers the priority of this process. If the call fails, the priority is unchanged.
pub(super) fn lower_priority() {
    let _ = rustix::process::setpriority_process(None, NICENESS);
}

/// Removes a directory tree, until the deadline.
pub(super) fn remove_tree(path: &Path, deadline: Instant) -> io::Result<Removal> {
    grant_owner_access(AT_FDCWD, path)?;
    let top = match openat(AT_FDCWD, path, DIRECTORY_FLAGS, Mode::empty()) {
        Err(Errno::ENOENT) => return Ok(Removal::Removed),
        opened => File::from(opened?),
    };
    match top.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Removal::Failed("another process removes it".to_owned())),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let mut tree = Tree { top: top.into(), deadline, moved: 0, progress: 0, problem: None };
    if tree.clear()? {
        return Ok(Removal::TimedOut);
    }
    match unlinkat(AT_FDCWD, path, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(Removal::Removed),
        Err(errno) => Ok(Removal::Failed(tree.problem.unwrap_or_else(|| errno.desc().to_owned()))),
    }
}

/// A tree that is being removed.
struct Tree {
    top: OwnedFd,
    deadline: Instant,
    /// The number of directories moved to the top; numbers their names there.
    moved: u64,
    /// The number of entries removed or moved.
    progress: u64,
    /// The first entry that could not be removed, and why.
    problem: Option<String>,
}

impl Tree {
    /// Removes the entries of the top until it is empty or a pass makes no progress; returns whether the deadline
    /// passed.
    fn clear(&mut self) -> io::Result<bool> {
        loop {
            let before = self.progress;
            let mut seen = false;
            // A separate descriptor, because reading a directory moves its position.
            let mut names = Dir::openat(&self.top, ".", DIRECTORY_FLAGS, Mode::empty())?;
            for entry in names.iter() {
                let entry = entry?;
                if is_dots(entry.file_name()) {
                    continue;
                }
                seen = true;
                self.remove_top_entry(entry.file_name());
                if Instant::now() > self.deadline {
                    return Ok(true);
                }
            }
            if !seen || self.progress == before {
                return Ok(false);
            }
        }
    }

    /// Removes an entry of the top. A directory is emptied first; directories in it that are not empty are moved to
    /// the top.
    fn remove_top_entry(&mut self, name: &CStr) {
        let top = match self.top.try_clone() {
            Ok(top) => top,
            Err(error) => return self.record_problem(name, &error),
        };
        if self.remove_one(&top, name) == EntryRemoval::NotEmpty {
            if let Err(error) = self.empty(name) {
                return self.record_problem(name, &error);
            }
            match unlinkat(&top, name, UnlinkatFlags::RemoveDir) {
                Ok(()) => self.progress += 1,
                // The remaining entries were recorded as a problem, or the next pass removes them.
                Err(Errno::ENOENT | Errno::ENOTEMPTY | Errno::EEXIST) => {}
                Err(errno) => self.record_problem(name, &errno.into()),
            }
        }
    }

    /// Removes the entries of a directory of the top, and moves directories that are not empty to the top.
    fn empty(&mut self, name: &CStr) -> io::Result<()> {
        grant_owner_access(&self.top, name)?;
        let directory = openat(&self.top, name, DIRECTORY_FLAGS, Mode::empty())?;
        let mut names = Dir::openat(&directory, ".", DIRECTORY_FLAGS, Mode::empty())?;
        for entry in names.iter() {
            let entry = entry?;
            let inner = entry.file_name();
            if !is_dots(inner) && self.remove_one(&directory, inner) == EntryRemoval::NotEmpty {
                self.move_up(&directory, inner);
            }
            if Instant::now() > self.deadline {
                break;
            }
        }
        Ok(())
    }

    /// Removes a file, a link, or an empty directory.
    fn remove_one(&mut self, directory: &OwnedFd, name: &CStr) -> EntryRemoval {
        let removed = match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
            // Other systems report EPERM for a directory; Linux reports it for an entry that may not be removed.
            Err(Errno::EISDIR) => unlinkat(directory, name, UnlinkatFlags::RemoveDir),
            Err(Errno::EPERM) if is_directory(directory, name) => unlinkat(directory, name, UnlinkatFlags::RemoveDir),
            removed => removed,
        };
        match removed {
            Ok(()) => {
                self.progress += 1;
                EntryRemoval::Removed
            }
            Err(Errno::ENOENT) => EntryRemoval::Removed,
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => EntryRemoval::NotEmpty,
            Err(errno) => {
                self.record_problem(name, &errno.into());
                EntryRemoval::Failed
            }
        }
    }

    fn move_up(&mut self, directory: &OwnedFd, name: &CStr) {
        if let Err(error) = grant_owner_access(directory, name) {
            return self.record_problem(name, &error);
        }
        for _ in 0..NAME_ATTEMPTS_MAX {
            self.moved += 1;
            match renameat(directory, name, &self.top, self.moved.to_string().as_str()) {
                Ok(()) => return self.progress += 1,
                Err(Errno::ENOENT) => return,
                // The name is taken.
                Err(Errno::EEXIST | Errno::ENOTEMPTY | Errno::ENOTDIR) => {}
                Err(errno) => return self.record_problem(name, &errno.into()),
            }
        }
    }

    fn record_problem(&mut self, name: &CStr, error: &io::Error) {
        self.problem.get_or_insert_with(|| format!("{name:?}: {error}"));
    }
}

/// The result of removing one entry.
#[derive(PartialEq, Eq)]
enum EntryRemoval {
    /// The entry is removed.
    Removed,
    /// The entry is a directory that is not empty.
    NotEmpty,
    /// The entry cannot be removed.
    Failed,
}

fn is_dots(name: &CStr) -> bool {
    name == c"." || name == c".."
}

fn is_directory(directory: &OwnedFd, name: &CStr) -> bool {
    fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok_and(|stat| is_directory_mode(stat.st_mode))
}

fn is_directory_mode(mode: libc::mode_t) -> bool {
    SFlag::from_bits_truncate(mode) & SFlag::S_IFMT == SFlag::S_IFDIR
}

/// Adds the owner's permissions on a directory if they are missing.
fn grant_owner_access<P: ?Sized + nix::NixPath>(at: impl AsFd, name: &P) -> io::Result<()> {
    let stat = match fstatat(&at, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Err(Errno::ENOENT) => return Ok(()),
        stat => stat?,
    };
    let all = Mode::S_IRWXU;
    if is_directory_mode(stat.st_mode) && !Mode::from_bits_truncate(stat.st_mode).contains(all) {
        fchmodat(&at, name, all, FchmodatFlags::NoFollowSymlink)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_tree_deeper_than_any_stack_and_path_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let tree = root.path().join("tree");
        fs::create_dir(&tree).unwrap();
        deepen(&tree, &"d".repeat(255), 5_000);
        deepen(&tree, "e", 15_000);
        assert_eq!(remove_tree(&tree, later()).unwrap(), Removal::Removed);
        assert!(!tree.exists());
    }

    #[test]
    fn whatever_a_command_can_make_is_removed_and_nothing_outside() {
        let root = tempfile::tempdir().unwrap();
        let (tree, outside) = (root.path().join("tree"), root.path().join("outside"));
        fs::create_dir_all(outside.join("inner")).unwrap();
        fs::write(outside.join("inner/file"), "precious").unwrap();
        fs::set_permissions(outside.join("inner"), fs::Permissions::from_mode(0o500)).unwrap();
        // Names like those of moved directories, names with line ends, names that are not UTF-8, names of maximum
        // length.
        for name in ["1", "2/1/3", "3", "a\nb/c\n", "closed/deep/deeper", &"n".repeat(255)] {
            fs::create_dir_all(tree.join(name).join("full")).unwrap();
            fs::write(tree.join(name).join("full/file"), "x").unwrap();
        }
        fs::write(tree.join("4"), "a file that has the name of a directory to come").unwrap();
        fs::create_dir(tree.join(std::ffi::OsStr::from_bytes(b"\xff\xfe"))).unwrap();
        symlink(&outside, tree.join("1/link")).unwrap();
        symlink("..", tree.join("2/1/loop")).unwrap();
        symlink("/nowhere", tree.join("dangling")).unwrap();
        let _listener = UnixListener::bind(root.path().join("tree/s")).unwrap();
        nix::unistd::mkfifo(&tree.join("3/pipe"), Mode::S_IRWXU).unwrap();
        fs::File::create(tree.join("3/sparse")).unwrap().set_len(1 << 40).unwrap();
        for (name, mode) in [("closed/deep/deeper", 0o000), ("closed/deep", 0o100), ("closed", 0o000)] {
            fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::set_permissions(&tree, fs::Permissions::from_mode(0o000)).unwrap();
        assert_eq!(remove_tree(&tree, later()).unwrap(), Removal::Removed);
        assert!(!tree.exists());
        assert_eq!(fs::read(outside.join("inner/file")).unwrap(), b"precious");
        let mode = fs::metadata(outside.join("inner")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o500, "what a link leads to keeps its mode");
        fs::set_permissions(outside.join("inner"), fs::Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn a_huge_directory_takes_a_fixed_number_of_descriptors() {
        let root = tempfile::tempdir().unwrap();
        let tree = root.path().join("tree");
        for number in 0..2_000 {
            fs::create_dir_all(tree.join(format!("files/{number}/x"))).unwrap();
            fs::write(tree.join(format!("files/{number}/f")), "").unwrap();
        }
        assert_eq!(remove_tree(&tree, later()).unwrap(), Removal::Removed);
        assert!(!tree.exists());
    }

    #[test]
    fn a_removal_past_its_deadline_is_resumed_later() {
        let root = tempfile::tempdir().unwrap();
        let tree = root.path().join("tree");
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        let past = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        assert_eq!(remove_tree(&tree, past).unwrap(), Removal::TimedOut);
        assert_eq!(remove_tree(&tree, later()).unwrap(), Removal::Removed);
        assert_eq!(remove_tree(&tree, later()).unwrap(), Removal::Removed, "there is nothing to do");
    }

    #[test]
    fn two_processes_do_not_remove_the_same_tree() {
        let root = tempfile::tempdir().unwrap();
        let held = File::open(root.path()).unwrap();
        held.lock().unwrap();
        assert!(matches!(remove_tree(root.path(), later()).unwrap(), Removal::Failed(_)));
        drop(held);
        assert_eq!(remove_tree(root.path(), later()).unwrap(), Removal::Removed);
        fs::create_dir(root.path()).unwrap();
    }

    use std::os::unix::ffi::OsStrExt;

    /// Creates nested directories by descriptors, deeper than a path can be.
    fn deepen(tree: &Path, name: &str, levels: usize) {
        let mut here = openat(AT_FDCWD, tree, DIRECTORY_FLAGS, Mode::empty()).unwrap();
        for _ in 0..levels {
            nix::sys::stat::mkdirat(&here, name, Mode::S_IRWXU).unwrap();
            here = openat(&here, name, DIRECTORY_FLAGS, Mode::empty()).unwrap();
        }
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }
}
