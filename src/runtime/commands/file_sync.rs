//! Synchronization of sessions with their files: one for each session that a client of the protocol created.
//!
//! Other programs write to the same files. Existing lines are never changed: entries of other programs are imported into
//! the session, and entries of the session are appended when a part of the conversation is complete. The journal is
//! authoritative; the files are for other programs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::MutexGuard;
use tracing::warn;

use super::peer::Peer;
use super::service::CommandService;
use super::session_view::SessionView;
use crate::kernel::command::{Command, Snapshot};
use crate::kernel::id::{CallId, MessageId, RunId, Seq, SessionId};
use crate::kernel::refusal::Refusal;
use crate::kernel::time::Now;
use crate::protocol::command_protocol::SessionFileState;
use crate::protocol::operation_result::OperationError;
use crate::protocol::session_file::{Entry, Header, IdGenerator, ParsedSession};
use crate::runtime::generate;
use crate::runtime::session_files::SessionFiles;
use crate::runtime::session_files::index::{CreatedFile, FileRecord, IndexError, SessionFileIndex};
use crate::runtime::session_files::store::{FileStamp, Store, StoreError, TornLine};

/// Generates ids for imported entries.
pub(super) struct GeneratedIds;

impl IdGenerator for GeneratedIds {
    fn run(&mut self) -> RunId {
        generate::run()
    }

    fn message(&mut self) -> MessageId {
        generate::message()
    }

    fn assistant_message(&mut self) -> MessageId {
        generate::assistant_message()
    }

    fn call(&mut self) -> CallId {
        generate::call()
    }
}

/// The lock of a session's file.
pub(super) type FileGuard<'s> = MutexGuard<'s, Option<SynchronizedFile>>;

/// A session and its file after a synchronization. While neither changes there is nothing to synchronize, and the file
/// is not read again.
pub(super) struct SynchronizedFile {
    path: PathBuf,
    stamp: FileStamp,
    last_seq: Seq,
}

/// Returns the file of a session; a session of another protocol has none unless one was chosen.
pub(super) fn current(service: &CommandService, session: &SessionId, snapshot: &Snapshot) -> Option<FileRecord> {
    let (files, is_own) = (service.session_files(), service.is_own(snapshot));
    file_of(files, session, &snapshot.opening.cwd, snapshot.opened_at, is_own)
}

/// Returns the prefix of the ids that a session gives its entries.
pub(super) fn id_prefix(session: &SessionId) -> String {
    format!("{:08x}", generate::fingerprint(["session-file", session.as_str()]).0 >> 96)
}

/// Returns the file of a session from its directory, its opening time and whether it is of this protocol.
pub(super) fn file_of(
    files: &SessionFiles,
    session: &SessionId,
    cwd: &str,
    opened_at: Now,
    is_own: bool,
) -> Option<FileRecord> {
    let Some(records) = files.index.files_in_memory(session.as_str()) else {
        warn!(%session, "the file of a session is unknown: the index of session files cannot be read");
        return None;
    };
    let newest = records.into_iter().rev().find(|record| record.awaits_branch_after.is_none());
    if let Some(record) = newest.filter(|record| record.chosen_at >= opened_at.0) {
        return Some(record);
    }
    let header = Header::new(session.as_str(), cwd, opened_at);
    let path = files.store.path_for(header.cwd.as_ref(), session.as_str(), opened_at);
    let (session_id, created) = (session.as_str().to_owned(), Some(CreatedFile::from(&header)));
    let record = FileRecord { session_id, path, chosen_at: opened_at.0, awaits_branch_after: None, created };
    is_own.then_some(record)
}

/// Synchronizes a session with its file whenever the file needs an update, until the view is closed.
pub(super) async fn keep_synchronized(service: Arc<CommandService>, view: Arc<SessionView>) {
    while view.file_outdated().await {
        if let Err(error) = synchronize(&service, &view).await {
            warn!(session = %view.session(), %error, "cannot synchronize a session with its file");
        }
    }
}

/// Imports entries that other programs have written to the session's file, and appends the missing ones.
///
/// Does nothing while a run is active: its end triggers the next synchronization.
pub(super) async fn synchronize(service: &Arc<CommandService>, view: &Arc<SessionView>) -> Result<(), String> {
    let mut guard = view.lock_file().await;
    synchronize_in(service, view, &mut guard).await
}

/// Synchronizes under a lock that the caller holds.
pub(super) async fn synchronize_in(
    service: &Arc<CommandService>,
    view: &Arc<SessionView>,
    guard: &mut FileGuard<'_>,
) -> Result<(), String> {
    let (mut torn, id_prefix) = (TornLineTracker::default(), id_prefix(view.session()));
    for _ in 0..SYNC_ATTEMPTS {
        let (snapshot, _) =
            service.describe(view, None, &Peer::none()).await.map_err(|error| service.error_text(&error))?;
        load_index(service).await?;
        resolve_branch_by_journal(service, view).await?;
        let Some(file) = current(service, view.session(), &snapshot) else { return Ok(()) };
        if view.read(|projection| projection.is_streaming()) {
            return Ok(());
        }
        let last_seq = snapshot.last_seq;
        if is_synchronized(service, guard, &file.path, last_seq).await? {
            return Ok(());
        }
        **guard = None;
        let (stored, stamp) = read_stamped(service, &file.path).await?;
        let state = file_state(&id_prefix, &snapshot, stored.as_ref());
        let foreign = view.read(|projection| projection.foreign_entries(state, &snapshot, &mut GeneratedIds));
        if let Some(import) = foreign {
            match service.request(view, Command::Import(Box::new(import)), None, &Peer::none()).await {
                Ok(_) => continue,
                Err(OperationError::Refused(Refusal::RunActive)) => return Ok(()),
                Err(error) => return Err(service.error_text(&error)),
            }
        }
        let header = match (&stored, &file.created) {
            (Some(stored), _) => stored.header.clone(),
            (None, Some(created)) => created.header(),
            (None, None) => return Err(format!("{} does not exist any more", file.path.display())),
        };
        let missing = view.read(|projection| projection.missing_entries(state, &snapshot, &header))?;
        if missing.is_empty() {
            **guard = stamp.map(|stamp| SynchronizedFile { path: file.path, stamp, last_seq });
            return Ok(());
        }
        let Some(line) = torn.observe(stored.as_ref()) else {
            tokio::time::sleep(TORN_LINE_DELAY).await;
            continue;
        };
        let path = file.path.clone();
        if let Some(Written { stamp }) = write(service, file, header, stored, missing, line).await? {
            **guard = stamp.map(|stamp| SynchronizedFile { path, stamp, last_seq });
            return Ok(());
        }
    }
    Err("other programs keep writing to it".to_owned())
}

/// Returns whether neither a session nor its file has changed since the last synchronization.
async fn is_synchronized(
    service: &Arc<CommandService>,
    guard: &FileGuard<'_>,
    path: &Path,
    last_seq: Seq,
) -> Result<bool, String> {
    let Some(last) = guard.as_ref().filter(|last| last.path == path && last.last_seq == last_seq) else {
        return Ok(false);
    };
    let (directory, path, stamp) = (path, path.to_owned(), last.stamp.clone());
    run_blocking(service, directory, move || Store::has_stamp(&path, &stamp)).await
}

/// Loads the index if that failed when the daemon started.
async fn load_index(service: &Arc<CommandService>) -> Result<(), String> {
    if service.session_files().index.is_loaded() {
        return Ok(());
    }
    on_index(service, SessionFileIndex::load).await
}

/// Runs blocking work on the index of session files.
async fn on_index<T: Send + 'static>(
    service: &Arc<CommandService>,
    work: impl FnOnce(&SessionFileIndex) -> Result<T, IndexError> + Send + 'static,
) -> Result<T, String> {
    let (owner, directory) = (Arc::clone(service), service.session_files().store.directory());
    let done = run_blocking(service, &directory, move || work(&owner.session_files().index)).await?;
    done.map_err(|error| error.to_string())
}

/// Assigns a file of another program to a session.
pub(super) async fn choose(
    service: &Arc<CommandService>,
    session: &SessionId,
    path: &Path,
) -> Result<(), OperationError> {
    record_choice(service, imported_file(service, session, path)).await
}

/// Returns the record of a file of another program, for a session that continues in it.
pub(super) fn imported_file(service: &CommandService, session: &SessionId, path: &Path) -> FileRecord {
    let (session_id, chosen_at) = (session.as_str().to_owned(), service.now().0);
    FileRecord { session_id, path: path.to_owned(), chosen_at, awaits_branch_after: None, created: None }
}

/// Assigns a child session its file, whose header names the parent; returns both.
pub(super) async fn choose_child_file(
    service: &Arc<CommandService>,
    child: &SessionId,
    snapshot: &Snapshot,
    parent: String,
) -> Result<(PathBuf, Header), OperationError> {
    let cwd = snapshot.opening.cwd.as_str();
    let mut header = Header::new(child.as_str(), cwd, snapshot.opened_at);
    header.parent = Some(parent);
    let path = service.session_files().store.path_for(cwd.as_ref(), child.as_str(), header.created);
    let (session_id, created) = (child.as_str().to_owned(), Some(CreatedFile::from(&header)));
    let (chosen_at, awaits_branch_after) = (header.created.0, None);
    record_choice(service, FileRecord { session_id, path: path.clone(), chosen_at, awaits_branch_after, created })
        .await?;
    Ok((path, header))
}

/// Returns a session and its file as they are compared.
pub(super) fn file_state<'a>(
    id_prefix: &'a str,
    snapshot: &Snapshot,
    stored: Option<&'a ParsedSession>,
) -> SessionFileState<'a> {
    SessionFileState { id_prefix, inherited: snapshot.opening.forked_at.unwrap_or_default(), stored }
}

/// Assigns a file to a session from the branch on that is requested next.
///
/// The file is recorded first. Recorded afterwards, a crash in between would leave the old file assigned, and the old
/// conversation would be imported again.
pub(super) async fn choose_after_branch(
    service: &Arc<CommandService>,
    file: FileRecord,
    last_seq: Seq,
) -> Result<(), OperationError> {
    record_choice(service, FileRecord { awaits_branch_after: Some(last_seq.number()), ..file }).await
}

/// Records whether a session has branched to the chosen file.
pub(super) async fn resolve_branch(
    service: &Arc<CommandService>,
    session: &SessionId,
    has_left: bool,
) -> Result<(), String> {
    let id = session.as_str().to_owned();
    on_index(service, move |index| index.resolve_branch(&id, has_left)).await
}

/// Resolves an assignment that a crash has left open: the journal shows whether the branch happened.
async fn resolve_branch_by_journal(service: &Arc<CommandService>, view: &SessionView) -> Result<(), String> {
    let index = &service.session_files().index;
    let records = index.files_in_memory(view.session().as_str()).unwrap_or_default();
    let Some(after) = records.iter().rev().find_map(|record| record.awaits_branch_after) else {
        return Ok(());
    };
    let has_left = view.read(|projection| projection.last_branch().is_some_and(|branch| branch.number() > after));
    resolve_branch(service, view.session(), has_left).await
}

/// Copies the entries of a file before a message of the session into a new file, unchanged.
pub(super) async fn copy_before(
    service: &Arc<CommandService>,
    from: &Path,
    (to, header): (PathBuf, Header),
    entries: Vec<String>,
) -> Result<(), OperationError> {
    let (store, directory, from) = (service.session_files().store.clone(), from, from.to_owned());
    let copy = move || {
        let entries: BTreeSet<&str> = entries.iter().map(String::as_str).collect();
        store.copy(&from, &to, &header, &entries)
    };
    run_blocking(service, directory, copy)
        .await
        .map_err(OperationError::Message)?
        .map_err(|error| OperationError::message(error.to_string()))
}

/// Reads the file of a session; `None` if it does not exist.
pub(super) async fn read(service: &Arc<CommandService>, path: &Path) -> Result<Option<ParsedSession>, String> {
    read_stamped(service, path).await.map(|(stored, _)| stored)
}

/// Reads the file of a session like [`read`], with its stamp.
async fn read_stamped(
    service: &Arc<CommandService>,
    path: &Path,
) -> Result<(Option<ParsedSession>, Option<FileStamp>), String> {
    let (store, directory, path) = (service.session_files().store.clone(), path, path.to_owned());
    match run_blocking(service, directory, move || store.read_stamped(&path)).await? {
        Ok((stored, stamp)) => Ok((Some(stored), stamp)),
        Err(StoreError::NotFound { .. }) => Ok((None, None)),
        Err(error) => Err(error.to_string()),
    }
}

/// Entries that are written; the stamp of the file, unless it must be read again.
struct Written {
    stamp: Option<FileStamp>,
}

/// Appends entries to a file, or writes a new one; `None` if another program has written meanwhile.
async fn write(
    service: &Arc<CommandService>,
    file: FileRecord,
    header: Header,
    stored: Option<ParsedSession>,
    entries: Vec<Entry>,
    torn: TornLine,
) -> Result<Option<Written>, String> {
    let (owner, directory) = (Arc::clone(service), file.path.clone());
    let write = move || {
        let SessionFiles { store, index } = owner.session_files();
        let path = file.path.clone();
        // Recorded before it exists, so that it is deleted with its session.
        index.choose(file).map_err(|error| error.to_string())?;
        let written = match &stored {
            Some(stored) => store.extend(&path, stored, &entries, torn),
            None => store.prepare().and_then(|()| store.write(&path, &header, &entries)).map(|()| None),
        };
        match written {
            Ok(stamp) => Ok(Some(Written { stamp })),
            Err(StoreError::Changed { .. }) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    };
    run_blocking(service, &directory, write).await?
}

async fn record_choice(service: &Arc<CommandService>, record: FileRecord) -> Result<(), OperationError> {
    on_index(service, move |index| index.choose(record)).await.map_err(OperationError::Message)
}

/// Runs blocking work at a path that a client may have chosen, with a deadline and a bounded number of threads.
async fn run_blocking<T: Send + 'static>(
    service: &CommandService,
    path: &Path,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let files = &service.server().hub().services().files;
    files.run_in(path.parent().unwrap_or(path), work).await.map_err(|why| why.to_string())
}

/// Tracks an incomplete last line across checks.
#[derive(Default)]
struct TornLineTracker {
    bytes: u64,
    checks: usize,
}

impl TornLineTracker {
    /// Returns how to append to a file, or `None` while another program may be writing the last line.
    fn observe(&mut self, stored: Option<&ParsedSession>) -> Option<TornLine> {
        let Some(stored) = stored.filter(|stored| stored.torn) else { return Some(TornLine::Wait) };
        self.checks = if stored.bytes == self.bytes { self.checks + 1 } else { 1 };
        self.bytes = stored.bytes;
        (self.checks > TORN_LINE_CHECKS).then_some(TornLine::Terminate)
    }
}

/// The number of attempts while other programs write to the file.
const SYNC_ATTEMPTS: usize = 8;
/// The number of checks that find an incomplete line unchanged before it counts as abandoned, and the delay before each
/// check.
const TORN_LINE_CHECKS: usize = 4;
const TORN_LINE_DELAY: Duration = Duration::from_millis(100);
