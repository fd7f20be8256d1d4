//! The ground a journal stands on: its directory, the way SQLite reaches files there, and the files it writes itself.
//!
//! Everything the journal writes goes through here or through SQLite's own layer, so that a test can put a disk
//! underneath that loses, tears and refuses writes.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::os;

/// A file that is read and written at positions.
pub(super) trait RawFile: Send + Sync {
    /// Reads as much as there is, at most the whole buffer.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Writes everything.
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Returns the length.
    fn len(&self) -> io::Result<u64>;
    /// Cuts or extends the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes the content durable.
    fn sync(&self) -> io::Result<()>;
}

/// Opens a file for its owner alone, and makes it when it is not there.
pub(super) type OpenFile = Box<dyn Fn(&Path) -> io::Result<Box<dyn RawFile>> + Send + Sync>;

/// Where a journal is and how its files are reached.
pub(super) struct Ground {
    pub(super) dir: PathBuf,
    /// The file layer of SQLite; none for its own.
    pub(super) layer: Option<String>,
    pub(super) open: OpenFile,
    /// Where files lie in memory, if anywhere.
    pub(super) memory: Option<PathBuf>,
}

impl Ground {
    /// The directory as the operating system gives it.
    pub(super) fn real(dir: &Path) -> Self {
        let open = |path: &Path| os::private_file(path).map(|file| Box::new(file) as Box<dyn RawFile>);
        Self { dir: dir.to_path_buf(), layer: None, open: Box::new(open), memory: None }
    }

    /// The path of a file of the journal.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// Opens a connection through a file layer.
pub(super) fn connect(path: &Path, flags: OpenFlags, layer: Option<&str>) -> rusqlite::Result<Connection> {
    match layer {
        None => Connection::open_with_flags(path, flags),
        Some(layer) => Connection::open_with_flags_and_vfs(path, flags, layer),
    }
}

/// Writes what a file holds over itself, so that the next sync says something about all of it.
///
/// After a failed sync the system may hold content that is on no disk, count it as written and answer later syncs
/// without it; what a reader sees is then durable only if it is written once more.
pub(super) fn write_again(file: &dyn RawFile) -> io::Result<()> {
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
