//! Files of the journal on Unix: who may read them, and when a name is durable.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Makes sure that `path` is a file which its owner alone may open; SQLite gives the log the same mode.
///
/// An existing file is not opened, as closing it would drop the locks that this process may hold on it.
pub(super) fn prepare(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => Err(io::Error::other("not a regular file")),
        Ok(found) if found.permissions().mode() & 0o077 != 0 => {
            fs::set_permissions(path, Permissions::from_mode(0o600))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.sync_all()
        }
        Err(error) => Err(error),
    }
}

/// Makes the names in `dir` durable.
pub(super) fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Opens a file for its owner alone, and makes it when it is not there.
pub(super) fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Reads at a position, without moving another.
pub(super) fn read_at(file: &File, at: u64, into: &mut [u8]) -> io::Result<usize> {
    file.read_at(into, at)
}

/// Writes at a position, without moving another.
pub(super) fn write_at(file: &File, at: u64, bytes: &[u8]) -> io::Result<usize> {
    file.write_at(bytes, at)
}
