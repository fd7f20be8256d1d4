//! The journal's files on Windows, protected by the access control list of the state directory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::windows::fs::FileExt;
use std::path::Path;

/// Ensures that `path` is a regular file; it inherits its access control list from the state directory.
pub(super) fn prepare(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => Err(io::Error::other("not a regular file")),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            OpenOptions::new().write(true).create_new(true).open(path)?.sync_all()
        }
        Err(error) => Err(error),
    }
}

/// Does nothing: NTFS journals directory changes and offers no call to sync a directory.
pub(super) fn sync_directory(_dir: &Path) -> io::Result<()> {
    Ok(())
}

/// Does nothing: earlier versions had no memory file here.
pub(super) const fn remove_earlier_slots(_dir: &Path) {}

/// Opens a file, and creates it if it does not exist.
pub(super) fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// Reads at a position.
pub(super) fn read_at(file: &File, at: u64, into: &mut [u8]) -> io::Result<usize> {
    file.seek_read(into, at)
}

/// Writes at a position.
pub(super) fn write_at(file: &File, at: u64, bytes: &[u8]) -> io::Result<usize> {
    file.seek_write(bytes, at)
}
