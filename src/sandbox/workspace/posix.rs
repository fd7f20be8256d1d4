//! Resolution of a path below a directory on systems without a call for it: one component at a time, without links.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;

/// Opens `path`, which may not leave `root`; links are not followed.
pub(super) fn open_beneath(root: BorrowedFd<'_>, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    super::open_by_component(root, path, flags)
}

/// Opens an absolute path that must not contain a link.
pub(super) fn open_without_links(path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    super::open_absolute_by_component(path, flags)
}

/// Returns the requested path, normalized: no link was followed, so it is the real path.
pub(super) fn path_in(_root: BorrowedFd<'_>, _inner: BorrowedFd<'_>, requested: &Path) -> io::Result<PathBuf> {
    let mut names = PathBuf::new();
    for component in requested.components() {
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
