//! How many bytes a directory tree occupies on disk, whatever a command has created in it.
//!
//! Links are not followed and nothing is removed.

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

pub(super) use os::tree_size;
