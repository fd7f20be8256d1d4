//! Resolving a path beneath a directory where the system has no call for it: one name at a time, without links.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;

/// Opens `path`, which may not leave `root`; links are not followed.
pub(super) fn beneath(root: BorrowedFd<'_>, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    super::name_by_name(root, path, flags)
}

/// Says nothing: no link was followed, so that the words by which a directory was asked for are all there is to know.
pub(super) const fn place_in(_root: BorrowedFd<'_>, _inner: BorrowedFd<'_>) -> io::Result<PathBuf> {
    Ok(PathBuf::new())
}
