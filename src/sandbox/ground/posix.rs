//! Resolving a path beneath a directory where the system has no call for it: one name at a time, without links.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;

/// Opens `path`, which may not leave `root`; links are not followed.
pub(super) fn beneath(root: BorrowedFd<'_>, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    super::name_by_name(root, path, flags)
}

/// Opens an absolute path on which there is no link.
pub(super) fn without_links(path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    super::from_the_root(path, flags)
}

/// Returns the words by which it was asked for: no link was followed, so that they are all there is to know.
pub(super) fn place_in(_root: BorrowedFd<'_>, _inner: BorrowedFd<'_>, seen: &Path) -> io::Result<PathBuf> {
    let mut names = PathBuf::new();
    for component in seen.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::ParentDir => {
                names.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    Ok(names)
}
