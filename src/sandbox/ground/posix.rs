//! Resolving a path beneath a directory where the system has no call for it: one name at a time, without links.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;

/// Opens `path`, which may not leave `root`; links are not followed.
pub(super) fn beneath(root: BorrowedFd<'_>, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    super::name_by_name(root, path, flags)
}
