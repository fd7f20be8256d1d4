//! Owners, modes and file systems, on Unix.

#[cfg(not(target_os = "linux"))]
#[path = "posix.rs"]
mod kind;
#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod kind;

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::geteuid;

use super::storage::{DirectoryAccess, FileSystemInfo};

/// Returns who can access a directory.
pub(super) fn access(there: &Metadata) -> DirectoryAccess {
    if there.uid() != geteuid().as_raw() {
        DirectoryAccess::OtherOwner
    } else if there.mode() & 0o077 != 0 {
        DirectoryAccess::Shared(there.mode() & 0o7777)
    } else {
        DirectoryAccess::Private
    }
}

/// Returns the properties of the file system at a path; none if the system call fails.
pub(super) fn file_system(path: &Path) -> Option<FileSystemInfo> {
    let found = statvfs(path).ok()?;
    // The integer types differ between systems.
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast, reason = "not so on every Unix")]
    let free = (found.blocks_available() as u64).saturating_mul(found.fragment_size() as u64);
    let read_only = found.flags().contains(FsFlags::ST_RDONLY);
    Some(FileSystemInfo { free, read_only, network: kind::network(path) })
}
