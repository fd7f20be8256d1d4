//! The session files that are written: one for each session that the protocol's clients began.
//!
//! Other programs write to the same files. Nothing that a file holds is ever changed: what others have written is imported into
//! the session, and what the session has said is appended, whenever something of the conversation has ended. The journal
//! stays the truth; a file is what other programs read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::MutexGuard;
use tracing::warn;

use super::bureau::Bureau;
use super::connection::{Peer, PeerEnvironment};
use super::desk::Failure;
use super::file_plan::Plan;
use super::seat::Seat;
use crate::kernel::command::{Command, Snapshot};
use crate::kernel::id::{CallId, MessageId, RunId, Seq, SessionId};
use crate::kernel::refusal::Refusal;
use crate::kernel::time::Now;
use crate::protocol::pi::projection::Projection;
use crate::protocol::pi::session_file::{Entry, Header, IdGenerator, ParsedSession};
use crate::runtime::generate;
use crate::runtime::session_files::SessionFiles;
use crate::runtime::session_files::index::{CreatedFile, FileRecord};
use crate::runtime::session_files::store::{StoreError, TornLine};

/// Fresh names for what is taken in from a file.
pub(super) struct Minted;

impl IdGenerator for Minted {
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

/// How sessions of the protocol's clients are marked.
pub(super) const MODE: &str = "pi";

/// The right to read and write the file of a session, which one has at a time.
pub(super) type FileTurn<'s> = MutexGuard<'s, ()>;

/// Returns the file of a session; those that others began have none, unless one was chosen.
pub(super) fn current(files: &SessionFiles, session: &SessionId, snapshot: &Snapshot) -> Option<FileRecord> {
    let opening = &snapshot.opening;
    file_of(files, session, &opening.cwd, snapshot.opened_at, opening.mode == MODE)
}

/// The same, where the directory of a session, when it was opened, and whether it is this protocol's, are known.
pub(super) fn file_of(
    files: &SessionFiles,
    session: &SessionId,
    cwd: &str,
    opened_at: Now,
    is_own: bool,
) -> Option<FileRecord> {
    let Some(records) = files.index.files_in_memory(session.as_str()) else {
        warn!(%session, "it cannot be told which file a session is written to: the index of session files cannot be read");
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

/// Brings a session and its file together whenever something new is to be written, as long as the seat is taken.
pub(super) async fn keep(bureau: Arc<Bureau>, seat: Arc<Seat>) {
    while seat.unsaved().await {
        if let Err(error) = synchronize(&bureau, &seat).await {
            warn!(session = %seat.session(), %error, "a session and its file could not be brought together");
        }
    }
}

/// Imports what other programs have written to the file of a session, and appends what it lacks.
///
/// While a run is active nothing happens: its end is the next occasion.
pub(super) async fn synchronize(bureau: &Arc<Bureau>, seat: &Arc<Seat>) -> Result<(), String> {
    let turn = seat.file_turn().await;
    synchronize_in(bureau, seat, &turn).await
}

/// The same, for whoever has the right already.
pub(super) async fn synchronize_in(bureau: &Arc<Bureau>, seat: &Arc<Seat>, _turn: &FileTurn<'_>) -> Result<(), String> {
    let mut torn = Torn::default();
    for _ in 0..ATTEMPTS {
        let (snapshot, _) = bureau.describe(seat, None, &nobody()).await.map_err(|failure| failure.text())?;
        let files = bureau.session_files();
        load_index(bureau).await?;
        settle_by_journal(bureau, seat).await?;
        let Some(file) = current(files, seat.session(), &snapshot) else { return Ok(()) };
        if seat.tell(Projection::is_streaming) {
            return Ok(());
        }
        let stored = read(bureau, &file.path).await?;
        let foreign =
            seat.tell(|story| Plan::new(seat.session(), story, stored.as_ref()).foreign(&snapshot, &mut Minted));
        if let Some(import) = foreign {
            match bureau.ask(seat, Command::Import(Box::new(import)), None, &nobody()).await {
                Ok(_) => continue,
                Err(Failure::Refused(Refusal::RunActive)) => return Ok(()),
                Err(failure) => return Err(failure.text()),
            }
        }
        let header = match (&stored, &file.created) {
            (Some(stored), _) => stored.header.clone(),
            (None, Some(created)) => created.header(),
            (None, None) => return Err(format!("{} does not exist any more", file.path.display())),
        };
        let missing =
            seat.tell(|story| Plan::new(seat.session(), story, stored.as_ref()).missing(&snapshot, &header))?;
        if missing.is_empty() {
            return Ok(());
        }
        let Some(line) = torn.seen(stored.as_ref()) else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        if write(bureau, file, header, stored, missing, line).await? {
            return Ok(());
        }
    }
    Err("other programs keep writing to it".to_owned())
}

/// Reads the index where that failed when the daemon started.
async fn load_index(bureau: &Arc<Bureau>) -> Result<(), String> {
    let files = bureau.session_files();
    if files.index.is_loaded() {
        return Ok(());
    }
    let (place, loading) = (files.store.directory(), Arc::clone(bureau));
    let load = move || loading.session_files().index.load();
    blocking(bureau, &place, load).await?.map_err(|error| error.to_string())
}

/// Has a session written to a file of another program from here on.
pub(super) async fn choose(bureau: &Arc<Bureau>, session: &SessionId, path: &Path) -> Result<(), Failure> {
    record_choice(bureau, imported_file(bureau, session, path)).await
}

/// Returns a file of another program as one that a session is to be written to.
pub(super) fn imported_file(bureau: &Bureau, session: &SessionId, path: &Path) -> FileRecord {
    let (session_id, chosen_at) = (session.as_str().to_owned(), bureau.now().0);
    FileRecord { session_id, path: path.to_owned(), chosen_at, awaits_branch_after: None, created: None }
}

/// Returns a new file that a session is to be written to; `parent` names what its conversation was made from.
pub(super) fn new_file(
    bureau: &Bureau,
    session: &SessionId,
    snapshot: &Snapshot,
    parent: Option<String>,
) -> (FileRecord, Header) {
    let (id, cwd) = (generate::session(), snapshot.opening.cwd.as_str());
    let mut header = Header::new(id.as_str(), cwd, bureau.now());
    header.parent = parent;
    let path = bureau.session_files().store.path_for(cwd.as_ref(), id.as_str(), header.created);
    let (session_id, created) = (session.as_str().to_owned(), Some(CreatedFile::from(&header)));
    let chosen_at = header.created.0;
    (FileRecord { session_id, path, chosen_at, awaits_branch_after: None, created }, header)
}

/// Has a session written to a file as soon as it has left its conversation, which is asked of it next.
///
/// The file is recorded first: were it recorded afterwards, a daemon that dies in between would leave the old file in its
/// place, from which the old conversation would be imported again.
pub(super) async fn choose_after(bureau: &Arc<Bureau>, file: FileRecord, last_seq: Seq) -> Result<(), Failure> {
    record_choice(bureau, FileRecord { awaits_branch_after: Some(last_seq.number()), ..file }).await
}

/// Says whether a session has left its conversation for the file that was chosen.
pub(super) async fn settle(bureau: &Arc<Bureau>, session: &SessionId, has_left: bool) -> Result<(), String> {
    let (settling, place) = (Arc::clone(bureau), bureau.session_files().store.directory());
    let id = session.as_str().to_owned();
    let settle = move || settling.session_files().index.resolve_branch(&id, has_left);
    blocking(bureau, &place, settle).await?.map_err(|error| error.to_string())
}

/// Settles what a daemon that ended in between has left open; the journal says what came of it.
async fn settle_by_journal(bureau: &Arc<Bureau>, seat: &Seat) -> Result<(), String> {
    let index = &bureau.session_files().index;
    let records = index.files_in_memory(seat.session().as_str()).unwrap_or_default();
    let Some(after) = records.iter().rev().find_map(|record| record.awaits_branch_after) else {
        return Ok(());
    };
    let has_left = seat.tell(|story| story.last_branch().is_some_and(|branch| branch.number() > after));
    settle(bureau, seat.session(), has_left).await
}

/// Copies the part of a file before one of the session's messages into a new one, to the letter.
pub(super) async fn copy_before(
    bureau: &Arc<Bureau>,
    from: &Path,
    (to, header): (PathBuf, Header),
    entries: Vec<String>,
) -> Result<(), Failure> {
    let (store, place, from) = (bureau.session_files().store.clone(), from, from.to_owned());
    let copy = move || {
        let entries: BTreeSet<&str> = entries.iter().map(String::as_str).collect();
        store.copy(&from, &to, &header, &entries)
    };
    blocking(bureau, place, copy).await.map_err(Failure::Said)?.map_err(|error| Failure::said(error.to_string()))
}

/// Reads the file of a session, if there is one.
pub(super) async fn read(bureau: &Arc<Bureau>, path: &Path) -> Result<Option<ParsedSession>, String> {
    let (store, place, path) = (bureau.session_files().store.clone(), path, path.to_owned());
    match blocking(bureau, place, move || store.read(&path)).await? {
        Ok(stored) => Ok(Some(stored)),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Writes what a file lacks, or a new one; `false` where somebody else has written meanwhile.
async fn write(
    bureau: &Arc<Bureau>,
    file: FileRecord,
    header: Header,
    stored: Option<ParsedSession>,
    entries: Vec<Entry>,
    torn: TornLine,
) -> Result<bool, String> {
    let (writing, place) = (Arc::clone(bureau), file.path.clone());
    let write = move || {
        let SessionFiles { store, index } = writing.session_files();
        let path = file.path.clone();
        // Known before it is there, so that it is deleted with its session.
        index.choose(file).map_err(|error| error.to_string())?;
        let written = match &stored {
            Some(stored) => store.extend(&path, stored, &entries, torn),
            None => store.prepare().and_then(|()| store.write(&path, &header, &entries)),
        };
        match written {
            Ok(()) => Ok(true),
            Err(StoreError::Changed { .. }) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    };
    blocking(bureau, &place, write).await?
}

async fn record_choice(bureau: &Arc<Bureau>, record: FileRecord) -> Result<(), Failure> {
    let (choosing, place) = (Arc::clone(bureau), bureau.session_files().store.directory());
    let choose = move || choosing.session_files().index.choose(record);
    let chosen = blocking(bureau, &place, choose).await.map_err(Failure::Said)?;
    chosen.map_err(|error| Failure::said(error.to_string()))
}

/// Does something at a path that a client may have chosen: it has a deadline, and takes no more than its share of threads.
async fn blocking<T: Send + 'static>(
    bureau: &Bureau,
    path: &Path,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let files = &bureau.server().hub().services().files;
    files.run_in(path.parent().unwrap_or(path), work).await.map_err(|why| why.to_string())
}

/// A last line that is only half there, and for how many looks it has been as it is.
#[derive(Default)]
struct Torn {
    bytes: u64,
    looks: usize,
}

impl Torn {
    /// Returns how a file is written to, or nothing as long as somebody may be writing its last line.
    fn seen(&mut self, stored: Option<&ParsedSession>) -> Option<TornLine> {
        let Some(stored) = stored.filter(|stored| stored.torn) else { return Some(TornLine::Wait) };
        self.looks = if stored.bytes == self.bytes { self.looks + 1 } else { 1 };
        self.bytes = stored.bytes;
        (self.looks > LOOKS).then_some(TornLine::Terminate)
    }
}

/// Whoever asks on nobody's behalf.
const fn nobody() -> Peer {
    Peer { environment: PeerEnvironment::Sent(None), cwd: String::new() }
}

/// How often what others have written meanwhile is looked at before it is left for the next occasion.
const ATTEMPTS: usize = 8;
/// How often a line that is only half there is found unchanged before nobody is believed to be writing it, and how long
/// it is waited before each look.
const LOOKS: usize = 4;
const PAUSE: Duration = Duration::from_millis(100);
