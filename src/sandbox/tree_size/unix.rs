//! The size of a tree on Unix, without recursion, without paths, and with three descriptors.
//!
//! Each directory is opened from its parent, and the parent again by `..`, so that a tree may be deeper than the longest
//! path. A parent that is another directory than the one that was left has been moved meanwhile, which ends the walk.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat};
use nix::libc;
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, SFlag, fchmodat, fstat, fstatat};

const FOLDER: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// How many times a tree is counted that changes meanwhile.
const ATTEMPTS: usize = 3;

/// Returns how many bytes a directory and everything below it occupy on disk; links are not followed.
///
/// A directory that its owner cannot read is made readable: its content would count as nothing otherwise. Of a tree that
/// is changed meanwhile the largest count is returned.
pub(in crate::sandbox) fn tree_size(path: &Path) -> u64 {
    let mut largest = 0;
    for _ in 0..ATTEMPTS {
        let mut walk = Walk { bytes: 0, levels: Vec::new() };
        let finished = walk.run(path);
        largest = walk.bytes.max(largest);
        if finished.is_ok() {
            break;
        }
    }
    largest
}

/// A walk through a tree.
struct Walk {
    bytes: u64,
    /// The directories from the top to the current one.
    levels: Vec<Level>,
}

/// A directory on the way to the current one.
struct Level {
    id: (libc::dev_t, libc::ino_t),
    /// Its directories that have not been entered yet, with their modes.
    pending: Vec<(CString, Mode)>,
}

impl Walk {
    /// Counts everything; fails if the tree is changed so that the way back is lost.
    fn run(&mut self, path: &Path) -> nix::Result<()> {
        let mut current = match openat(AT_FDCWD, path, FOLDER, Mode::empty()) {
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Ok(()),
            opened => opened?,
        };
        self.bytes = disk_bytes(&fstat(&current)?);
        self.enter(&current)?;
        while let Some(level) = self.levels.last_mut() {
            if let Some((name, mode)) = level.pending.pop() {
                // A directory that was removed or replaced meanwhile has nothing to count.
                if let Ok(directory) = open_readable(&current, &name, mode) {
                    current = directory;
                    self.enter(&current)?;
                }
                continue;
            }
            self.levels.pop();
            if let Some(parent) = self.levels.last() {
                current = openat(&current, "..", FOLDER, Mode::empty())?;
                if id(&fstat(&current)?) != parent.id {
                    return Err(Errno::ESTALE);
                }
            }
        }
        Ok(())
    }

    /// Counts the entries of a directory and makes it the current one.
    fn enter(&mut self, directory: &OwnedFd) -> nix::Result<()> {
        let mut level = Level { id: id(&fstat(directory)?), pending: Vec::new() };
        let mut names = Dir::openat(directory, ".", FOLDER, Mode::empty())?;
        for entry in names.iter() {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let Ok(stat) = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) else { continue };
            self.bytes = self.bytes.saturating_add(disk_bytes(&stat));
            if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR {
                level.pending.push((name.to_owned(), Mode::from_bits_truncate(stat.st_mode)));
            }
        }
        self.levels.push(level);
        Ok(())
    }
}

/// Opens a directory, which its owner is given the right to read and search if that is missing.
fn open_readable(parent: impl AsFd, name: &CString, mode: Mode) -> nix::Result<OwnedFd> {
    let needed = Mode::S_IRUSR | Mode::S_IXUSR;
    if !mode.contains(needed) {
        fchmodat(&parent, name.as_c_str(), mode | needed, FchmodatFlags::NoFollowSymlink)?;
    }
    openat(&parent, name.as_c_str(), FOLDER, Mode::empty())
}

const fn id(stat: &FileStat) -> (libc::dev_t, libc::ino_t) {
    (stat.st_dev, stat.st_ino)
}

/// Returns how many bytes a file occupies on disk: the unit is 512 bytes on every system.
fn disk_bytes(stat: &FileStat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or_default().saturating_mul(512)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_directory_of_a_wide_and_deep_tree_is_counted_once() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..20 {
            let deep = dir.path().join(format!("{number}/a/b/c"));
            fs::create_dir_all(&deep).unwrap();
            fs::write(deep.join("file"), [1; 64 << 10]).unwrap();
            fs::write(dir.path().join(format!("{number}/file")), [1; 64 << 10]).unwrap();
        }
        let counted = tree_size(dir.path());
        // The files, and something for the directories.
        assert!((40 * (64 << 10)..60 * (64 << 10)).contains(&counted), "{counted}");
    }

    #[test]
    fn what_is_no_directory_has_no_size() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), [1; 64 << 10]).unwrap();
        std::os::unix::fs::symlink(".", dir.path().join("link")).unwrap();
        for name in ["none", "file", "link"] {
            assert_eq!(tree_size(&dir.path().join(name)), 0, "{name}");
        }
    }
}
