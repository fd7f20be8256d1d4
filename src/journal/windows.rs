//! Files of the journal on Windows: the state directory's access list is what guards them.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

/// Makes sure that `path` is a file; it inherits its access list from the state directory.
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

/// Does nothing: NTFS journals names by itself and has no call to sync a directory.
pub(super) fn sync_directory(_dir: &Path) -> io::Result<()> {
    Ok(())
}
