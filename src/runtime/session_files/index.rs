//! The index of session files: a small file beside the journal, readable by its owner alone.
//!
//! It records which file a session is written to, and which files the daemon created, so that deleting a session
//! deletes them. The daemon owns it; `push purge` reads it, too. All functions block except
//! [`SessionFileIndex::files_in_memory`]; callers run them outside the event loop.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::store;
use crate::kernel::time::Now;
use crate::protocol::session_file::Header;

/// A file that a session is or was written to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileRecord {
    /// The session.
    pub session_id: String,
    /// The file.
    pub path: PathBuf,
    /// When it was chosen, in milliseconds. A session that was opened later under the same id is another one.
    #[serde(default)]
    pub chosen_at: u64,
    /// The session's last event before it branches to this file. Until the branch is confirmed the session is written
    /// to the previous file; `None` once it is confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits_branch_after: Option<u64>,
    /// The header of a file that the daemon created; `None` for an imported file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<CreatedFile>,
}

/// The header of a file that the daemon created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreatedFile {
    /// The conversation id in the file.
    pub id: String,
    /// When it was created, in milliseconds.
    pub at: u64,
    /// The working directory in the file.
    pub cwd: String,
    /// The file that the conversation was forked from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}

impl CreatedFile {
    /// Returns the header.
    pub fn header(&self) -> Header {
        let mut header = Header::new(self.id.as_str(), self.cwd.as_str(), Now(self.at));
        header.parent.clone_from(&self.parent);
        header
    }
}

impl From<&Header> for CreatedFile {
    fn from(header: &Header) -> Self {
        let (id, cwd, parent) = (header.id.clone(), header.cwd.clone(), header.parent.clone());
        Self { id, at: header.created.0, cwd, parent }
    }
}

/// Why the index cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// A system call failed.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The object of the action.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file has an invalid format.
    #[error("{} is not an index of session files: {problem}; remove it to start a new one", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

/// The session files of all sessions.
#[derive(Debug)]
pub struct SessionFileIndex {
    path: PathBuf,
    /// The content of the file, once it was read. The last record of a session is its current file. The lock is never
    /// held during disk access.
    records: Mutex<Option<Arc<Vec<FileRecord>>>>,
    /// Held while the file is read or written.
    disk: Mutex<()>,
}

#[derive(Serialize, Deserialize)]
struct IndexFile {
    version: u32,
    files: Vec<FileRecord>,
}

impl SessionFileIndex {
    /// Creates the index of a state directory; reads nothing yet.
    pub fn new(state: &Path) -> Self {
        Self { path: state.join(NAME), records: Mutex::new(None), disk: Mutex::new(()) }
    }

    /// Reads the index into memory, unless that was done.
    pub fn load(&self) -> Result<(), IndexError> {
        self.loaded().map(drop)
    }

    /// Returns whether the index is in memory.
    pub fn is_loaded(&self) -> bool {
        self.in_memory().is_some()
    }

    /// Returns the records of a session from memory, without blocking; `None` before the index was loaded.
    pub fn files_in_memory(&self, session: &str) -> Option<Vec<FileRecord>> {
        Some(of_session(&self.in_memory()?, session))
    }

    /// Returns all records, the oldest first.
    pub fn all(&self) -> Result<Vec<FileRecord>, IndexError> {
        Ok(self.loaded()?.to_vec())
    }

    /// Returns the records of a session; the last is its current file.
    pub fn files_of(&self, session: &str) -> Result<Vec<FileRecord>, IndexError> {
        Ok(of_session(&self.loaded()?, session))
    }

    /// Returns the session whose current file this is.
    pub fn writer_of(&self, path: &Path) -> Result<Option<String>, IndexError> {
        let records = self.loaded()?;
        let mut settled = records.iter().rev().filter(|record| record.awaits_branch_after.is_none());
        let Some(record) = settled.clone().find(|record| record.path == path) else { return Ok(None) };
        let newest = settled.find(|other| other.session_id == record.session_id);
        Ok(newest.filter(|newest| newest.path == path).map(|newest| newest.session_id.clone()))
    }

    /// Makes a file the current one of a session, durably. A file that the daemon created stays marked as such.
    pub fn choose(&self, mut record: FileRecord) -> Result<(), IndexError> {
        let _disk = self.lock_disk();
        let mut records = self.load_locked()?.to_vec();
        if records.iter().rev().find(|other| other.session_id == record.session_id) == Some(&record) {
            return Ok(());
        }
        let is_same = |other: &FileRecord| other.session_id == record.session_id && other.path == record.path;
        if let Some(at) = records.iter().position(is_same) {
            record.created = record.created.or_else(|| records[at].created.clone());
            // A pending record exists beside the current one until it is resolved.
            if record.awaits_branch_after.is_none() {
                records.remove(at);
            }
        }
        records.push(record);
        let surplus = records.len().saturating_sub(MAX_RECORDS);
        records.drain(..surplus);
        self.write(records)
    }

    /// Resolves the pending record of a session, durably: if the session has branched, the pending file becomes its
    /// current one, else the record is removed.
    pub fn resolve_branch(&self, session: &str, has_left: bool) -> Result<(), IndexError> {
        let _disk = self.lock_disk();
        let mut records = self.load_locked()?.to_vec();
        let awaits = |record: &FileRecord| record.session_id == session && record.awaits_branch_after.is_some();
        let Some(at) = records.iter().rposition(awaits) else { return Ok(()) };
        let record = records.remove(at);
        records.retain(|record| !awaits(record));
        if has_left {
            records.retain(|other| other.session_id != session || other.path != record.path);
            records.push(FileRecord { awaits_branch_after: None, ..record });
        }
        self.write(records)
    }

    /// Removes the records of a session, durably, except those at the given paths.
    pub fn forget(&self, session: &str, but: &[&Path]) -> Result<(), IndexError> {
        let _disk = self.lock_disk();
        let records = self.load_locked()?;
        let stays = |record: &&FileRecord| record.session_id != session || but.contains(&&*record.path);
        let rest: Vec<_> = records.iter().filter(stays).cloned().collect();
        if rest.len() == records.len() { Ok(()) } else { self.write(rest) }
    }

    fn loaded(&self) -> Result<Arc<Vec<FileRecord>>, IndexError> {
        if let Some(records) = self.in_memory() {
            return Ok(records);
        }
        let _disk = self.lock_disk();
        self.load_locked()
    }

    /// Returns the records; the caller holds the disk lock.
    fn load_locked(&self) -> Result<Arc<Vec<FileRecord>>, IndexError> {
        if let Some(records) = self.in_memory() {
            return Ok(records);
        }
        let records = Arc::new(self.read()?);
        self.cache(Arc::clone(&records));
        Ok(records)
    }

    fn in_memory(&self) -> Option<Arc<Vec<FileRecord>>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn cache(&self, records: Arc<Vec<FileRecord>>) {
        *self.records.lock().unwrap_or_else(PoisonError::into_inner) = Some(records);
    }

    fn read(&self) -> Result<Vec<FileRecord>, IndexError> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(IndexError::Io { action: "read", path: self.path.clone(), source }),
        };
        let malformed = |problem| IndexError::Malformed { path: self.path.clone(), problem };
        let written: IndexFile = serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
        if written.version != VERSION {
            return Err(malformed(format!("it has version {}; the supported version is {VERSION}", written.version)));
        }
        Ok(written.files)
    }

    fn write(&self, records: Vec<FileRecord>) -> Result<(), IndexError> {
        let failed = |source| IndexError::Io { action: "write", path: self.path.clone(), source };
        let written = IndexFile { version: VERSION, files: records };
        let bytes = serde_json::to_vec_pretty(&written).map_err(|error| failed(error.into()))?;
        store::replace_file(&self.path, &bytes).map_err(failed)?;
        self.cache(Arc::new(written.files));
        Ok(())
    }

    fn lock_disk(&self) -> MutexGuard<'_, ()> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn of_session(records: &[FileRecord], session: &str) -> Vec<FileRecord> {
    records.iter().filter(|record| record.session_id == session).cloned().collect()
}

/// The name of the index in the state directory.
pub const NAME: &str = "session-files.json";
/// The version that is read and written.
const VERSION: u32 = 1;
/// The maximum number of records; the oldest are evicted first.
const MAX_RECORDS: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn record(session: &str, path: &str, created: bool) -> FileRecord {
        let header = Header::new(session, "/w", Now(7));
        let created = created.then(|| CreatedFile::from(&header));
        FileRecord { session_id: session.into(), path: path.into(), chosen_at: 1, awaits_branch_after: None, created }
    }

    #[test]
    fn the_file_chosen_last_is_the_one_a_session_is_written_to() {
        let state = tempfile::tempdir().unwrap();
        let index = SessionFileIndex::new(state.path());
        assert_eq!(index.all().unwrap(), []);
        index.choose(record("s", "/a", true)).unwrap();
        index.choose(record("t", "/c", false)).unwrap();
        index.choose(record("s", "/b", false)).unwrap();
        assert_eq!(index.writer_of(Path::new("/a")).unwrap(), None);
        assert_eq!(index.writer_of(Path::new("/b")).unwrap().as_deref(), Some("s"));
        // A file that the daemon created stays marked, also when it is chosen as an imported one.
        index.choose(record("s", "/a", false)).unwrap();
        let again = SessionFileIndex::new(state.path());
        assert_eq!(again.files_of("s").unwrap(), [record("s", "/b", false), record("s", "/a", true)]);
        assert_eq!(again.files_of("s").unwrap()[1].created.as_ref().unwrap().header().created, Now(7));
        again.forget("s", &[Path::new("/b")]).unwrap();
        assert_eq!(again.files_of("s").unwrap(), [record("s", "/b", false)]);
        again.forget("s", &[]).unwrap();
        assert_eq!(SessionFileIndex::new(state.path()).all().unwrap(), [record("t", "/c", false)]);
    }

    #[test]
    fn a_pending_file_becomes_current_when_the_session_branches() {
        let state = tempfile::tempdir().unwrap();
        let index = SessionFileIndex::new(state.path());
        index.choose(record("s", "/a", true)).unwrap();
        let awaits = |path: &str| FileRecord { awaits_branch_after: Some(7), ..record("s", path, true) };
        for path in ["/b", "/a"] {
            index.choose(awaits(path)).unwrap();
            assert_eq!(index.writer_of(Path::new("/a")).unwrap().as_deref(), Some("s"));
            index.resolve_branch("s", false).unwrap();
            assert_eq!(index.files_of("s").unwrap(), [record("s", "/a", true)]);
        }
        index.choose(awaits("/b")).unwrap();
        SessionFileIndex::new(state.path()).resolve_branch("s", true).unwrap();
        let again = SessionFileIndex::new(state.path());
        assert_eq!(again.files_of("s").unwrap(), [record("s", "/a", true), record("s", "/b", true)]);
        assert_eq!(again.writer_of(Path::new("/b")).unwrap().as_deref(), Some("s"));
    }

    #[test]
    fn records_in_memory_are_readable_during_a_write() {
        let state = tempfile::tempdir().unwrap();
        let index = SessionFileIndex::new(state.path());
        assert_eq!(index.files_in_memory("s"), None, "the index is not loaded by this call");
        index.choose(record("s", "/a", true)).unwrap();
        let again = SessionFileIndex::new(state.path());
        again.load().unwrap();
        // A writer holds this lock during disk access.
        let _disk = again.lock_disk();
        assert_eq!(again.files_in_memory("s"), Some(vec![record("s", "/a", true)]));
        assert_eq!(again.all().unwrap().len(), 1);
    }

    #[test]
    fn an_index_that_cannot_be_read_is_not_overwritten() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join(NAME);
        for text in ["{", "{\"version\":2,\"files\":[]}"] {
            fs::write(&path, text).unwrap();
            let index = SessionFileIndex::new(state.path());
            assert!(matches!(index.all(), Err(IndexError::Malformed { .. })));
            assert!(index.choose(record("s", "/a", true)).is_err());
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
