//! Atomic replacement of files: the old content stays until the new file is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::exit::CliError;

/// Replaces a file atomically. A symbolic link is followed, and the mode of an existing file is kept.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let unwritable = |source| CliError::File { action: "write", what: path.display().to_string(), source };
    // The target of a dangling link is unknown, so the link itself is replaced.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let temporary = temporary_path(&target).map_err(unwritable)?;
    let done = write_temporary(&temporary, &target, bytes).and_then(|()| fs::rename(&temporary, &target));
    if done.is_err() {
        // Best effort: the write error is what is reported.
        let _ = fs::remove_file(&temporary);
    }
    done.map_err(unwritable)
}

fn write_temporary(temporary: &Path, target: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).create_new(true).open(temporary)?;
    if let Ok(before) = fs::metadata(target) {
        file.set_permissions(before.permissions())?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}

/// Returns a unique temporary path in the same directory.
fn temporary_path(target: &Path) -> io::Result<PathBuf> {
    let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    Ok(target.with_file_name(format!(".{name}.{}", ulid::Ulid::generate())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_no_temporary_file_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        for text in ["one", "two"] {
            replace(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_keeps_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        assert!(replace(&folder.path().join("none/f"), b"x").is_err());
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        fs::write(taken.join("precious"), "x").unwrap();
        assert!(replace(&taken, b"x").is_err());
        assert!(taken.join("precious").exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
