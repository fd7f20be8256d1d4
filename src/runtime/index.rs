//! Keeps the search index up to date with the journal, and answers searches.
//!
//! Lanes only note which sessions have changed, after their commits; a task reads the new events from the journal. After
//! a start it compares all sessions with the index, which also builds a missing one. A search first adds what was noted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::{debug, info, warn};

use super::services::Services;
use super::session_locks::SessionLocks;
use crate::journal::{Journal, LinePage, ListQuery, ReadError};
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::time::Now;
use crate::record::{self, summary};
use crate::search::document::{Document, Fold, FoldContext};
use crate::search::store::{self, Candidate, IndexedSession, Position, Store, StoreError};

/// The search index of a daemon.
#[derive(Debug)]
pub struct SearchIndex {
    directory: PathBuf,
    store: Arc<Mutex<Option<Store>>>,
    /// The connection of searches, which do not wait for a pass that writes.
    reader: Arc<Mutex<Option<Store>>>,
    changed: Mutex<BTreeSet<SessionId>>,
    wake: Notify,
    /// Held while a session is indexed, so that no event is added twice.
    passes: SessionLocks,
    /// Held while a page of a session is indexed, and while something is removed.
    working: tokio::sync::Mutex<()>,
    /// Counts what was removed: a pass that finds another number begins again where the index ends.
    removals: AtomicU64,
    /// Held by a pass over the changed sessions, so that a search sees everything that was noted before it.
    catching_up: tokio::sync::Mutex<()>,
    /// Set when every session was compared with the index.
    complete: AtomicBool,
    /// The number of sessions that wait for the first comparison.
    backlog: AtomicU64,
    /// Why the last pass has failed, if it has.
    failure: Mutex<Option<String>>,
}

/// Why the index cannot be read or extended.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The index failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The journal cannot be read.
    #[error("the journal cannot be read: {0}")]
    Journal(#[from] ReadError),
    /// The task that used the index was aborted.
    #[error("the search index was interrupted")]
    Aborted,
}

/// How much of the journal is indexed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexProgress {
    /// Whether every session is indexed.
    pub complete: bool,
    /// The number of sessions that are not.
    pub missing: u64,
}

impl SearchIndex {
    /// Creates the index of a state directory; opens nothing yet.
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            store: Arc::default(),
            reader: Arc::default(),
            changed: Mutex::default(),
            wake: Notify::new(),
            passes: SessionLocks::default(),
            working: tokio::sync::Mutex::default(),
            removals: AtomicU64::new(0),
            catching_up: tokio::sync::Mutex::default(),
            complete: AtomicBool::new(false),
            backlog: AtomicU64::new(0),
            failure: Mutex::default(),
        }
    }

    /// Notes that a session has changed. Never waits.
    pub fn touch(&self, session: &SessionId) {
        let is_new = self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(session.clone());
        if is_new {
            self.wake.notify_one();
        }
    }

    /// Returns how much of the journal is indexed.
    pub fn progress(&self) -> IndexProgress {
        let complete = self.complete.load(Ordering::Acquire);
        IndexProgress { complete, missing: self.backlog.load(Ordering::Acquire) }
    }

    /// Returns why the last pass has failed; `None` if it has not.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds the sessions that were noted as changed. One that fails is noted again, and does not keep the others out.
    pub async fn catch_up(&self, journal: &Journal) -> Result<(), IndexError> {
        // Whoever comes second waits for what the first has taken.
        let _one_at_a_time = self.catching_up.lock().await;
        let changed = std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner));
        let result = self.add_sessions(journal, changed.into_iter().collect(), || false).await;
        self.report(result)
    }

    /// Adds sessions, and returns the first error.
    async fn add_sessions(
        &self,
        journal: &Journal,
        sessions: Vec<SessionId>,
        closing: impl Fn() -> bool,
    ) -> Result<(), IndexError> {
        let mut result = Ok(());
        for session in sessions {
            if closing() {
                return result;
            }
            if let Err(error) = self.add_session(journal, &session).await {
                self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(session);
                result = result.and(Err(error));
            }
            let _ = self.backlog.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1));
        }
        result
    }

    /// Keeps the reason of a failed pass for the user, and logs it when it is another one.
    fn report(&self, result: Result<(), IndexError>) -> Result<(), IndexError> {
        let failure = result.as_ref().err().map(ToString::to_string);
        let mut known = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = failure.as_ref().filter(|failure| known.as_ref() != Some(*failure)) {
            warn!(%error, "cannot extend the search index; it is tried again after the next change");
        }
        *known = failure;
        drop(known);
        result
    }

    /// Removes a deleted session from the index, and its words from the files.
    pub async fn remove(&self, session: &SessionId) {
        let _one_at_a_time = self.working.lock().await;
        self.removals.fetch_add(1, Ordering::AcqRel);
        let id = session.clone();
        if let Err(error) = self.with_store(move |store| store.remove(&id)).await {
            warn!(%session, %error, "cannot remove a session from the search index; building the index again");
            self.reset().await;
        }
    }

    /// Removes the events that retention has removed from the index.
    pub async fn trim(&self, session: &SessionId, floor: Seq) {
        let _one_at_a_time = self.working.lock().await;
        self.removals.fetch_add(1, Ordering::AcqRel);
        let id = session.clone();
        if let Err(error) = self.with_store(move |store| store.trim(&id, floor)).await {
            warn!(%session, %error, "cannot shorten a session in the search index; building the index again");
            self.reset().await;
        }
    }

    /// Runs `job` on the index, off the async threads. A damaged index is removed, to be built again.
    pub async fn with_store<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, IndexError> {
        let (slot, directory) = (Arc::clone(&self.store), self.directory.clone());
        let work = move || {
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            let mut opened = match slot.take() {
                Some(store) => store,
                None => Store::open(&directory)?,
            };
            let result = job(&mut opened);
            *slot = Some(opened);
            result
        };
        let result = tokio::task::spawn_blocking(work).await.map_err(|_| IndexError::Aborted)?;
        self.reset_if_damaged(&result).await;
        Ok(result?)
    }

    /// Runs `job` on the reading connection of the index, off the async threads.
    pub async fn with_reader<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, IndexError> {
        let is_open = self.reader.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if !is_open {
            // The writing connection creates the index.
            self.with_store(|_| Ok(())).await?;
        }
        let (slot, directory) = (Arc::clone(&self.reader), self.directory.clone());
        let work = move || {
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            let opened = match slot.take() {
                Some(store) => store,
                None => Store::open_reader(&directory)?,
            };
            let result = job(&opened);
            *slot = Some(opened);
            result
        };
        let result = tokio::task::spawn_blocking(work).await.map_err(|_| IndexError::Aborted)?;
        self.reset_if_damaged(&result).await;
        Ok(result?)
    }

    async fn reset_if_damaged<T>(&self, result: &Result<T, StoreError>) {
        if result.as_ref().is_err_and(StoreError::is_damage) {
            warn!("the search index is damaged; building it again");
            self.reset().await;
        }
    }

    /// Removes the index, and has it built again.
    async fn reset(&self) {
        let (slot, reader, directory) = (Arc::clone(&self.store), Arc::clone(&self.reader), self.directory.clone());
        self.complete.store(false, Ordering::Release);
        self.removals.fetch_add(1, Ordering::AcqRel);
        let removed = tokio::task::spawn_blocking(move || {
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            *slot = None;
            *reader.lock().unwrap_or_else(PoisonError::into_inner) = None;
            store::remove_files(&directory)
        });
        if let Ok(Err(error)) = removed.await {
            warn!(%error, "cannot remove the search index");
        }
        self.wake.notify_one();
    }

    /// Compares all sessions with the index: removes deleted ones and adds what is missing, the oldest first.
    async fn compare(&self, journal: &Journal, closing: impl Fn() -> bool) -> Result<(), IndexError> {
        // The index first: a session that is created and indexed in between is not taken for deleted.
        let known: BTreeMap<SessionId, Now> = self
            .with_store(|store| Ok(store.sessions()?.into_iter().map(|known| (known.id, known.updated_at)).collect()))
            .await?;
        let stored = list_sessions(journal).await?;
        let existing: BTreeSet<&SessionId> = stored.iter().map(|(id, _)| id).collect();
        for deleted in known.keys().filter(|id| !existing.contains(id)) {
            self.remove(deleted).await;
        }
        let missing: Vec<SessionId> =
            stored.iter().rev().filter(|(id, at)| known.get(id) != Some(at)).map(|(id, _)| id.clone()).collect();
        self.backlog.store(missing.len() as u64, Ordering::Release);
        let count = missing.len();
        let result = self.add_sessions(journal, missing, &closing).await;
        if closing() {
            return Ok(());
        }
        if count > 0 && result.is_ok() {
            info!(sessions = count, "search index is complete");
        }
        self.complete.store(true, Ordering::Release);
        result
    }

    /// Adds the new events of a session, page by page.
    async fn add_session(&self, journal: &Journal, session: &SessionId) -> Result<(), IndexError> {
        let _one_pass = self.passes.lock(session).await;
        let mut pass = None;
        loop {
            pass = self.add_page(journal, session, pass).await?;
            if pass.is_none() {
                return Ok(());
            }
        }
    }

    /// Adds the next page of a session, the first without a pass. Returns `None` after the last one.
    async fn add_page(
        &self,
        journal: &Journal,
        session: &SessionId,
        pass: Option<Pass>,
    ) -> Result<Option<Pass>, IndexError> {
        let _one_at_a_time = self.working.lock().await;
        let Some(meta) = journal.meta(session.clone()).await? else { return Ok(None) };
        let removals = self.removals.load(Ordering::Acquire);
        let mut pass = match pass.filter(|pass| pass.removals == removals) {
            Some(pass) => pass,
            None => self.start_pass(session).await?,
        };
        let page = match journal.lines(session.clone(), pass.after, PAGE_BYTES, pass.spent.take()).await {
            Err(ReadError::NoSuchSession { .. }) => return Ok(None),
            page => page?,
        };
        add_lines(&mut pass.fold, &page.bytes, pass.after, Seq::new(u64::MAX));
        let more = page.more && page.last > pass.after;
        pass.after = page.last.max(pass.after);
        pass.spent = Some(page);
        let item = summary::ListedSession::parse(&meta.summary);
        let (name, cwd) = item.map_or_else(Default::default, |item| (item.name.unwrap_or_default(), item.cwd));
        // A session without the time of its last change is read on after a restart.
        let updated_at = if more { Now(0) } else { meta.updated_at };
        let row = IndexedSession { id: session.clone(), name, cwd, updated_at };
        let position = Position { resume: pass.fold.resume().max(pass.resume), context: pass.fold.context() };
        let found = pass.fold.take();
        self.with_store(move |store| store.add(&row, &position, &found)).await?;
        Ok(more.then_some(pass))
    }

    /// Starts a pass over the events of a session that are not indexed.
    async fn start_pass(&self, session: &SessionId) -> Result<Pass, IndexError> {
        let (id, removals) = (session.clone(), self.removals.load(Ordering::Acquire));
        let Position { resume, context } = self.with_store(move |store| store.position(&id)).await?;
        Ok(Pass { fold: Fold::new(context), resume, after: resume, spent: None, removals })
    }
}

/// A pass over the new events of a session.
struct Pass {
    fold: Fold,
    /// Where it began.
    resume: Seq,
    /// The last event that was read.
    after: Seq,
    /// The page before, whose memory the next one uses.
    spent: Option<LinePage>,
    /// The number of removals when it began.
    removals: u64,
}

/// Keeps the index of a daemon up to date until the daemon shuts down.
pub async fn run(services: Arc<Services>) {
    loop {
        let index = &services.index;
        // A failure is reported, and tried again after the next change.
        if index.complete.load(Ordering::Acquire) {
            let _ = index.catch_up(&services.journal).await;
        } else {
            let _ = index.report(index.compare(&services.journal, || services.closing.is_set()).await);
        }
        tokio::select! {
            biased;
            () = services.closing.wait() => return,
            () = index.wake.notified() => {}
        }
        // Collects the changes of a moment into one pass.
        tokio::select! {
            biased;
            () = services.closing.wait() => return,
            () = tokio::time::sleep(COLLECT_DELAY) => {}
        }
    }
}

/// Reads the documents that a candidate stands for from the journal.
pub async fn read_documents(journal: &Journal, candidate: &Candidate) -> Result<Vec<Document>, ReadError> {
    let before = Seq::new(candidate.first.number().saturating_sub(1));
    let (mut fold, mut after) = (Fold::new(FoldContext::default()), before);
    while after < candidate.last {
        let page = journal.page(candidate.session.clone(), after, DOCUMENT_PAGE_BYTES).await?;
        for block in &page.blocks {
            add_lines(&mut fold, &block.bytes, before, candidate.last);
        }
        match page.blocks.last() {
            Some(block) if page.more && block.last > after => after = block.last,
            Some(_) | None => break,
        }
    }
    let documents = fold.finish().documents;
    Ok(documents.into_iter().filter(|document| document.kind == candidate.kind).collect())
}

/// Folds the events of some lines that are after one position and not after another.
fn add_lines(fold: &mut Fold, lines: &[u8], after: Seq, until: Seq) {
    for line in lines_between(lines, after, until) {
        match record::decode_event(line) {
            Ok(event) => fold.add(&event),
            // It is not found, and everything else is.
            Err(error) => debug!(%error, "an event is not indexed"),
        }
    }
}

/// Returns the lines of events that are after one position and not after another. The others are not decoded.
fn lines_between(lines: &[u8], after: Seq, until: Seq) -> impl Iterator<Item = &[u8]> {
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let numbered = lines.filter_map(|line| Some((record::seq_of(line)?, line)));
    numbered.take_while(move |(seq, _)| *seq <= until).filter(move |(seq, _)| *seq > after).map(|(_, line)| line)
}

/// Lists all sessions with the time of their last change, the newest first.
async fn list_sessions(journal: &Journal) -> Result<Vec<(SessionId, Now)>, ReadError> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = journal.list(ListQuery { limit: SESSIONS_PER_READ, after, prefix: None }).await?;
        let is_last = page.len() < SESSIONS_PER_READ;
        after = page.last().map(|last| (last.updated_at, last.session.clone()));
        found.extend(page.into_iter().map(|meta| (meta.session, meta.updated_at)));
        if is_last {
            return Ok(found);
        }
    }
}

/// How long changes are collected before they are indexed.
const COLLECT_DELAY: Duration = Duration::from_millis(250);
/// The bytes of history that one pass reads.
const PAGE_BYTES: usize = 256 * 1024;
/// The bytes of history that are read at once for a document: most are short, and so are their blocks.
const DOCUMENT_PAGE_BYTES: usize = 16 * 1024;
/// The number of sessions that one read lists.
const SESSIONS_PER_READ: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::test_daemon::TestDaemon;
    use crate::search::query::SearchQuery;
    use crate::search::store::Filter;

    /// Creates a session with two messages that do not fit one page.
    async fn two_pages(daemon: &TestDaemon) -> SessionId {
        let mut client = daemon.client().await;
        let session = client.start().await;
        for word in ["wombat", "numbat"] {
            client.run(&session, &format!("{word} {}", "x ".repeat(PAGE_BYTES / 3))).await;
        }
        SessionId::from(session)
    }

    async fn finds(index: &SearchIndex, session: &SessionId, word: &str) -> bool {
        let (query, ids) = (SearchQuery::parse(word).unwrap(), BTreeSet::from([session.clone()]));
        let found = index.with_store(move |store| store.candidates(&query, &Filter::default(), &ids, 1));
        !found.await.unwrap().is_empty()
    }

    #[tokio::test]
    async fn a_stop_between_two_pages_loses_no_event() {
        let daemon = TestDaemon::new();
        let (session, services) = (two_pages(&daemon).await, daemon.server.hub().services());
        let pass = services.index.add_page(&services.journal, &session, None).await.unwrap();
        assert!(pass.is_some(), "there is another page");
        let restarted = SearchIndex::new(&services.index.directory);
        assert!(finds(&restarted, &session, "wombat").await && !finds(&restarted, &session, "numbat").await);
        restarted.compare(&services.journal, || false).await.unwrap();
        assert!(finds(&restarted, &session, "numbat").await);
    }

    #[tokio::test]
    async fn a_session_that_is_created_and_indexed_during_a_comparison_stays() {
        let daemon = TestDaemon::new();
        let services = daemon.server.hub().services();
        let (index, other) = (&services.index, SearchIndex::new(&services.index.directory));
        other.with_store(|_| Ok(())).await.unwrap();
        let (slot, (release, released)) = (Arc::clone(&index.store), std::sync::mpsc::channel::<()>());
        let (acquire, acquired) = tokio::sync::oneshot::channel();
        let holder = std::thread::spawn(move || {
            let _held = slot.lock().unwrap();
            acquire.send(()).unwrap();
            released.recv().unwrap();
        });
        acquired.await.unwrap();
        let create = async {
            // The comparison waits for the index.
            tokio::time::sleep(Duration::from_millis(200)).await;
            let session = SessionId::from(daemon.client().await.start().await);
            other.add_session(&services.journal, &session).await.unwrap();
            release.send(()).unwrap();
            session
        };
        let (compared, session) = tokio::join!(index.compare(&services.journal, || false), create);
        compared.unwrap();
        holder.join().unwrap();
        let known = index.with_store(|store| store.sessions()).await.unwrap();
        assert_eq!(known.into_iter().map(|known| known.id).collect::<Vec<_>>(), [session]);
    }

    #[tokio::test]
    async fn a_removal_waits_for_one_page_and_the_pass_begins_again() {
        let daemon = TestDaemon::new();
        let (session, services) = (two_pages(&daemon).await, daemon.server.hub().services());
        let index = &services.index;
        let mut adding = std::pin::pin!(index.add_session(&services.journal, &session));
        tokio::select! {
            biased;
            added = &mut adding => panic!("the removal has waited for the whole session: {added:?}"),
            () = index.remove(&session) => {}
        }
        assert!(!finds(index, &session, "wombat").await);
        adding.await.unwrap();
        assert!(finds(index, &session, "wombat").await && finds(index, &session, "numbat").await);
    }

    #[test]
    fn only_the_lines_of_a_document_are_decoded() {
        let lines = b"{\"seq\":1}\n{\"seq\":2}\n{\"seq\":3}\n{\"seq\":4}\n{\"seq\":2}\n";
        let found: Vec<&[u8]> = lines_between(lines, Seq::new(1), Seq::new(3)).collect();
        assert_eq!(found, [b"{\"seq\":2}", b"{\"seq\":3}"], "nothing is read after the last one");
    }
}
