//! Files of the working directory, read and written as tools do it.
//!
//! Paths are taken as the user's own: absolute ones and `..` are followed, for here is nothing a step could not do.
//! Everything blocks; callers in the daemon keep it off their loop.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::os;

/// How many links are followed from one to the next.
const LINKS_MAX: usize = 40;

/// The text of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadText {
    /// The text, at most as long as was asked for; bytes that are no UTF-8 are U+FFFD.
    pub text: String,
    /// Whether the file is longer.
    pub truncated: bool,
    /// How many bytes the whole file has.
    pub bytes: u64,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// How many bytes the file has.
    pub bytes: u64,
    /// Whether it did not exist before.
    pub created: bool,
}

/// Why a file was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It holds a NUL byte, as no text does.
    #[error("{} is not a text file", .path.display())]
    Binary {
        /// The file.
        path: PathBuf,
    },
    /// It is a directory, a device, a pipe or a socket.
    #[error("{} is not a regular file", .path.display())]
    NotAFile {
        /// What is there.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl FileError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// Reads at most `limit` bytes of the text file `path`, seen from `cwd`.
pub fn read_file(cwd: &Path, path: &Path, limit: usize) -> Result<ReadText, FileError> {
    let path = cwd.join(path);
    // Asked before it is opened: to open a pipe would wait for a writer.
    let metadata = fs::metadata(&path).map_err(FileError::io("read", &path))?;
    if !metadata.is_file() {
        return Err(FileError::NotAFile { path });
    }
    let file = File::open(&path).map_err(FileError::io("read", &path))?;
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(limit).min(limit));
    // One byte more tells whether there is more, and whether the last character is whole.
    let wanted = (limit as u64).saturating_add(1);
    file.take(wanted).read_to_end(&mut bytes).map_err(FileError::io("read", &path))?;
    if bytes.contains(&0) {
        return Err(FileError::Binary { path });
    }
    let truncated = bytes.len() > limit;
    let total = metadata.len().max(bytes.len() as u64);
    if truncated {
        bytes.truncate(character_start(&bytes, limit));
    }
    Ok(ReadText { text: String::from_utf8_lossy(&bytes).into_owned(), truncated, bytes: total })
}

/// Where the character that reaches over `at` begins; `at` itself where none does.
fn character_start(bytes: &[u8], at: usize) -> usize {
    let continues = |index: &usize| bytes.get(*index).is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000);
    let start = (at.saturating_sub(3)..=at).rev().find(|index| !continues(index));
    start.unwrap_or(at)
}

/// Writes `content` to `path`, seen from `cwd`, whole or not at all.
///
/// Missing directories are made. A file that exists keeps its mode, links are followed to what they name, and a file
/// we may not write stays as it is. Readers see the old content or the new, never a mixture.
pub fn write_file(cwd: &Path, path: &Path, content: &[u8]) -> Result<Written, FileError> {
    let path = behind_links(cwd.join(path));
    let old = match fs::metadata(&path) {
        Ok(old) if old.is_file() => Some(old),
        Ok(_) => return Err(FileError::NotAFile { path }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(FileError::io("write", &path)(error)),
    };
    let directory = path.parent().unwrap_or(cwd);
    match &old {
        // To replace a file takes no right to write it; to respect that it is closed does.
        Some(_) => drop(File::options().write(true).open(&path).map_err(FileError::io("write", &path))?),
        None => fs::create_dir_all(directory).map_err(FileError::io("create", directory))?,
    }
    let draft = draft_in(directory);
    let written = fill(&draft, content, old.as_ref()).and_then(|()| fs::rename(&draft, &path));
    if let Err(error) = written {
        let _never_made = fs::remove_file(&draft);
        return Err(FileError::io("write", &path)(error));
    }
    Ok(Written { bytes: content.len() as u64, created: old.is_none() })
}

/// Writes the draft and has it on disk before it takes its place.
fn fill(draft: &Path, content: &[u8], old: Option<&Metadata>) -> io::Result<()> {
    let mut file = os::create_new(draft)?;
    if let Some(old) = old {
        os::take_after(&file, old)?;
    }
    file.write_all(content)?;
    file.sync_all()
}

/// A name in `directory` that nobody else uses.
fn draft_in(directory: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    directory.join(format!(".push-draft-{}-{count}", std::process::id()))
}

/// Follows links, also where the last of them names nothing yet.
fn behind_links(mut path: PathBuf) -> PathBuf {
    for _ in 0..LINKS_MAX {
        match (fs::read_link(&path), path.parent()) {
            (Ok(target), Some(directory)) => path = directory.join(target),
            (Ok(_) | Err(_), _) => break,
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let written = write_file(dir.path(), Path::new("a/b/c.txt"), "héllo\n".as_bytes()).unwrap();
        assert_eq!(written, Written { bytes: 7, created: true });
        let read = read_file(dir.path(), Path::new("a/b/c.txt"), 100).unwrap();
        assert_eq!(read, ReadText { text: "héllo\n".into(), truncated: false, bytes: 7 });
        let again = write_file(dir.path(), Path::new("a/b/c.txt"), b"").unwrap();
        assert_eq!(again, Written { bytes: 0, created: false });
        assert_eq!(names(&dir.path().join("a/b")), ["c.txt"]);
    }

    #[test]
    fn a_long_file_is_cut_between_characters() {
        let dir = tempfile::tempdir().unwrap();
        let text = "aé€🦀".repeat(3);
        write_file(dir.path(), Path::new("f"), text.as_bytes()).unwrap();
        for limit in 0..=text.len() + 1 {
            let read = read_file(dir.path(), Path::new("f"), limit).unwrap();
            assert!(text.starts_with(&read.text) && read.text.len() <= limit, "limit {limit}: {read:?}");
            assert!(limit - read.text.len() < 4 || !read.truncated, "limit {limit}: {read:?}");
            assert_eq!(read.truncated, limit < text.len(), "limit {limit}");
            assert_eq!(read.bytes, text.len() as u64);
        }
    }

    #[test]
    fn what_is_no_text_and_no_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("binary"), b"a\0b").unwrap();
        fs::write(dir.path().join("latin"), b"caf\xe9").unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        let read = |name: &str| read_file(dir.path(), Path::new(name), 100);
        assert!(matches!(read("binary"), Err(FileError::Binary { .. })));
        assert!(matches!(read("sub"), Err(FileError::NotAFile { .. })));
        assert!(matches!(read("none"), Err(FileError::Io { action: "read", .. })));
        assert_eq!(read("latin").unwrap().text, "caf\u{fffd}");
        let onto_directory = write_file(dir.path(), Path::new("sub"), b"x");
        assert!(matches!(onto_directory, Err(FileError::NotAFile { .. })));
        let below_file = write_file(dir.path(), Path::new("latin/x"), b"x");
        assert!(matches!(below_file, Err(FileError::Io { .. })));
    }

    #[cfg(unix)]
    #[test]
    fn a_replaced_file_keeps_its_mode_and_links_stay_links() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        fs::write(&script, "old").unwrap();
        fs::set_permissions(&script, PermissionsExt::from_mode(0o751)).unwrap();
        symlink("script", dir.path().join("link")).unwrap();
        symlink("later", dir.path().join("dangling")).unwrap();
        write_file(dir.path(), Path::new("link"), b"new").unwrap();
        assert_eq!(fs::read(&script).unwrap(), b"new");
        assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o7777, 0o751);
        assert!(fs::symlink_metadata(dir.path().join("link")).unwrap().is_symlink());
        assert!(write_file(dir.path(), Path::new("dangling"), b"x").unwrap().created);
        assert_eq!(names(dir.path()), ["dangling", "later", "link", "script"]);
        let fresh = fs::metadata(dir.path().join("later")).unwrap().permissions().mode() & 0o7777;
        assert_eq!(fresh & !0o644, 0, "mode {fresh:o}");
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let made = std::process::Command::new("mkfifo").arg(dir.path().join("fifo")).status().unwrap();
        assert!(made.success());
        assert!(matches!(read_file(dir.path(), Path::new("fifo"), 10), Err(FileError::NotAFile { .. })));
        assert!(matches!(write_file(dir.path(), Path::new("fifo"), b"x"), Err(FileError::NotAFile { .. })));
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}
