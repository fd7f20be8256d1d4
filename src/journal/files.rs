//! The storage environment of a journal: its directory, the SQLite VFS, and the files that the journal writes
//! itself.
//!
//! All writes go through this module or through SQLite's VFS, so that tests can substitute a disk that loses,
//! tears and refuses writes.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::os;

/// A file with positional reads and writes.
pub(super) trait RawFile: Send + Sync {
    /// Reads up to the end of the file or of the buffer.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Writes all bytes.
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Returns the length.
    fn len(&self) -> io::Result<u64>;
    /// Truncates or extends the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Syncs the content.
    fn sync(&self) -> io::Result<()>;
}

/// Opens a file that only its owner may access, and creates it if it does not exist.
pub(super) type OpenFile = Box<dyn Fn(&Path) -> io::Result<Box<dyn RawFile>> + Send + Sync>;

/// The location of a journal and how its files are opened.
pub(super) struct StorageEnv {
    pub(super) dir: PathBuf,
    /// The name of the SQLite VFS; `None` for the default one.
    pub(super) vfs: Option<String>,
    pub(super) open_file: OpenFile,
}

impl StorageEnv {
    /// The environment with the real files of the operating system.
    pub(super) fn native(dir: &Path) -> Self {
        let open = |path: &Path| os::private_file(path).map(|file| Box::new(file) as Box<dyn RawFile>);
        Self { dir: dir.to_path_buf(), vfs: None, open_file: Box::new(open) }
    }

    /// Returns the path of a file of the journal.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// Opens a connection through a VFS.
pub(super) fn connect(path: &Path, flags: OpenFlags, vfs: Option<&str>) -> rusqlite::Result<Connection> {
    match vfs {
        None => Connection::open_with_flags(path, flags),
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs),
    }
}

/// Rewrites the content of a file in place, so that the next sync covers all of it.
///
/// After a failed sync the kernel may hold pages that are not on disk, treat them as clean and report later syncs
/// as successful. Content that a reader sees is then durable only if it is written again.
pub(super) fn rewrite(file: &dyn RawFile) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    let mut at = 0;
    loop {
        let read = file.read_at(at, &mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        file.write_at(at, &buffer[..read])?;
        at += read as u64;
    }
}

impl RawFile for File {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        while read < into.len() {
            match os::read_at(self, at + read as u64, &mut into[read..]) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut written = 0;
        while written < bytes.len() {
            match os::write_at(self, at + written as u64, &bytes[written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Self::set_len(self, len)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
