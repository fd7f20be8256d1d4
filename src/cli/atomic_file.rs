//! Atomic replacement of files: the old content stays until the new file is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::exit::CliError;

/// Replaces a file atomically. A symbolic link is followed, and the mode of an existing file is kept.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let unwritable = |source| CliError::File { action: "write", what: path.display().to_string(), source };
    let mut file = AtomicFile::create(path).map_err(unwritable)?;
    file.write_all(bytes).and_then(|()| file.commit()).map_err(unwritable)
}

/// A file that takes its name when it is complete, and is removed otherwise. A target that exists and is not a regular
/// file, such as a pipe or a device, is written directly.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    target: PathBuf,
    temporary: Option<PathBuf>,
    file: BufWriter<File>,
}

impl AtomicFile {
    /// Creates it beside its target. A symbolic link is followed, and the mode of an existing file is kept.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        if fs::metadata(path).is_ok_and(|existing| !existing.is_file()) {
            let file = OpenOptions::new().write(true).open(path)?;
            return Ok(Self { target: path.to_owned(), temporary: None, file: BufWriter::new(file) });
        }
        // The target of a dangling link is unknown, so the link itself is replaced.
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let temporary = temporary_path(&target)?;
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        let created = Self { temporary: Some(temporary), file: BufWriter::new(file), target };
        if let Ok(before) = fs::metadata(&created.target) {
            created.file.get_ref().set_permissions(before.permissions())?;
        }
        Ok(created)
    }

    /// Syncs it and gives it its name.
    pub(crate) fn commit(mut self) -> io::Result<()> {
        self.file.flush()?;
        let Some(temporary) = &self.temporary else { return Ok(()) };
        self.file.get_ref().sync_all()?;
        fs::rename(temporary, &self.target)
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // Best effort, and nothing is there after a commit.
        let _ = self.temporary.as_ref().map(fs::remove_file);
    }
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

    #[test]
    #[cfg(unix)]
    fn a_pipe_is_written_and_stays_a_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let reader = std::thread::spawn({
            let path = path.clone();
            move || fs::read_to_string(path).unwrap()
        });
        replace(&path, b"text").unwrap();
        assert_eq!(reader.join().unwrap(), "text");
        assert!(!fs::metadata(&path).unwrap().is_file());
    }
}
