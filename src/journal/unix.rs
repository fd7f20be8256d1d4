//! The journal's files on Unix: permissions, and syncing of directories.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::unistd::geteuid;
use sha2::{Digest, Sha256};

/// Ensures that `path` is a regular file that only its owner may open; SQLite gives the log the same mode.
///
/// An existing file is not opened, because closing it would drop the POSIX locks that this process may hold on it.
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

/// Syncs the entries of `dir`.
pub(super) fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Removes the memory file of earlier versions, which encrypted in it what is now in the write-ahead file.
///
/// The caller overwrites the key, so nobody can read a file that is not found or cannot be removed.
pub(super) fn remove_earlier_slots(dir: &Path) {
    let Ok(dir) = fs::canonicalize(dir) else { return };
    let digest = Sha256::digest(dir.as_os_str().as_encoded_bytes());
    let digits: String = digest.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    let _ = fs::remove_file(format!("/dev/shm/pushd-{}-{digits}", geteuid()));
}

/// Opens a file that only its owner may access, and creates it if it does not exist.
pub(super) fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Reads at a position, without moving the file offset.
pub(super) fn read_at(file: &File, at: u64, into: &mut [u8]) -> io::Result<usize> {
    file.read_at(into, at)
}

/// Writes at a position, without moving the file offset.
pub(super) fn write_at(file: &File, at: u64, bytes: &[u8]) -> io::Result<usize> {
    file.write_at(bytes, at)
}
