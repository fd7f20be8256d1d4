//! Resolution of a path beneath a directory, on Linux: `openat2` does it in one step, including links.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};

/// How often a resolution is retried when a directory in the path is renamed concurrently.
const RETRIES_MAX: usize = 128;

/// Opens `path`, which may not leave `root`; links are followed as long as they stay inside.
pub(super) fn open_beneath(root: BorrowedFd<'_>, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    for _ in 0..RETRIES_MAX {
        match openat2(root, path, OpenHow::new().flags(flags).resolve(resolve)) {
            // The kernel cannot guarantee that `..` stays inside while a directory is renamed.
            Err(Errno::EAGAIN) => {}
            // Kernels before 5.6 lack the call, and some containers block it.
            Err(Errno::ENOSYS | Errno::EPERM) => return super::open_by_component(root, path, flags),
            opened => return opened,
        }
    }
    Err(Errno::EAGAIN)
}

/// Opens an absolute path that must not contain a link.
pub(super) fn open_without_links(path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    match openat2(AT_FDCWD, path, OpenHow::new().flags(flags).resolve(resolve)) {
        Err(Errno::ENOSYS | Errno::EPERM) => super::open_absolute_by_component(path, flags),
        opened => opened,
    }
}

/// Returns the path without links from a directory to an open file in it.
pub(super) fn path_in(root: BorrowedFd<'_>, inner: BorrowedFd<'_>, _requested: &Path) -> io::Result<PathBuf> {
    let path = |fd: BorrowedFd<'_>| fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    let (root, inner) = (path(root)?, path(inner)?);
    match inner.strip_prefix(&root) {
        Ok(names) => Ok(names.to_owned()),
        // The file was moved out of the directory concurrently.
        Err(_) => Err(Errno::EXDEV.into()),
    }
}
