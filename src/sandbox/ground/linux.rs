//! Resolving a path beneath a directory, on Linux: the kernel does it in one step, links included.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};

/// How often a path is resolved anew when something on it was renamed meanwhile.
const AGAIN: usize = 128;

/// Opens `path`, which may not leave `root`; links inside are followed as long as they stay inside.
pub(super) fn beneath(root: BorrowedFd<'_>, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    for _ in 0..AGAIN {
        match openat2(root, path, OpenHow::new().flags(flags).resolve(resolve)) {
            // The kernel will not say whether `..` stayed inside while somebody renames directories.
            Err(Errno::EAGAIN) => {}
            // Kernels before 5.6, and containers that know no such call, do it the long way.
            Err(Errno::ENOSYS | Errno::EPERM) => return super::name_by_name(root, path, flags),
            opened => return opened,
        }
    }
    Err(Errno::EAGAIN)
}

/// Opens an absolute path on which there is no link.
pub(super) fn without_links(path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    match openat2(AT_FDCWD, path, OpenHow::new().flags(flags).resolve(resolve)) {
        Err(Errno::ENOSYS | Errno::EPERM) => super::from_the_root(path, flags),
        opened => opened,
    }
}

/// Returns the names that lead from a directory to something open that lies in it, without links.
pub(super) fn place_in(root: BorrowedFd<'_>, inner: BorrowedFd<'_>, _seen: &Path) -> io::Result<PathBuf> {
    let path = |fd: BorrowedFd<'_>| fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    let (root, inner) = (path(root)?, path(inner)?);
    match inner.strip_prefix(&root) {
        Ok(names) => Ok(names.to_owned()),
        // It was moved out while we looked.
        Err(_) => Err(Errno::EXDEV.into()),
    }
}
