//! Session files: which there are, and sessions from them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use tracing::warn;

use super::serving::Known;
use super::{Done, Failure, Job, Result};
use crate::kernel::command::{Command, Snapshot};
use crate::kernel::event::Adjustment;
use crate::kernel::id::SessionId;
use crate::kernel::import::Import;
use crate::kernel::refusal::Refusal;
use crate::kernel::time::Now;
use crate::protocol::pi::encode::{self, FileRow, StoredSession};
use crate::protocol::pi::request::Thinking;
use crate::protocol::pi::session_file::{ParsedSession, import};
use crate::runtime::pi::files::{self, Minted};
use crate::runtime::pi::seat::Seat;
use crate::runtime::pi::seats::Sitting;
use crate::runtime::session_files::store::{self, StoreError};

impl Job {
    pub(super) async fn list_stored_sessions(&self) -> Result {
        let (store, cwd) = (self.bureau.session_files().store.clone(), PathBuf::from(&self.peer.cwd));
        let listing = self.away(&cwd.clone(), move || store.list(&[cwd])).await?;
        let rows: Vec<_> = listing.sessions.into_iter().map(|stored| self.stored_row(stored)).collect();
        Ok(Done::new(encode::stored_sessions(&rows), None))
    }

    pub(super) async fn list_session_files(&self) -> Result {
        let (cwd, version) = self.place().await?;
        let store = self.bureau.session_files().store.clone();
        let files = self.away(&cwd.clone(), move || store.files(&cwd)).await?;
        let row = |file: store::SessionFile| FileRow {
            path: file.path.to_string_lossy().into_owned(),
            name: file.name,
            modified_at: moment(file.modified),
        };
        let rows: Vec<_> = files.into_iter().map(row).collect();
        Ok(Done::at(encode::files(&rows), version))
    }

    /// Makes a session of a file, or brings the one back that is written to it. It goes on in that file.
    pub(super) async fn load_session(&self, path: &str) -> Result {
        let stored = self.read_file(path).await?;
        let id = match &self.asked.session {
            Some(id) => id.clone(),
            None => self.writer_of(path).await?.unwrap_or_else(|| stored.header.id.as_str().into()),
        };
        let known = self.find(&id).await? != Known::Nowhere;
        self.refuse_versions(&id)?;
        if !self.bureau.sessions().contains(&id) {
            self.refuse_too_many()?;
        }
        let seat = if known {
            let seat = self.reopen(&id).await?;
            self.go_on_in(&seat, path, &stored).await?;
            seat
        } else {
            self.open_stored(&id, path, &stored).await?
        };
        self.ask_further(&seat, Command::Load).await?;
        let (snapshot, version) = self.bureau.describe(&seat, None, &self.peer).await?;
        Ok(Done::at(encode::created(&id, &self.info(&seat, &snapshot)), version))
    }

    /// Returns the session that is written to a file.
    async fn writer_of(&self, path: &str) -> Result<Option<SessionId>> {
        let (bureau, path) = (Arc::clone(&self.bureau), PathBuf::from(path));
        let writer = self.away(&path.clone(), move || bureau.session_files().index.writer_of(&path)).await?;
        Ok(writer.map_err(|error| Failure::said(error.to_string()))?.map(SessionId::from))
    }

    /// Returns a session in a file as a list shows it.
    fn stored_row(&self, stored: store::StoredSession) -> StoredSession {
        // Those that no model answers in have none.
        let model = stored.model.filter(|(_, model)| !model.is_empty());
        let model = model.and_then(|(provider, model)| self.shown_model(&provider, &model));
        StoredSession {
            session: SessionId::from(stored.header.id),
            name: stored.name,
            file: stored.path.to_string_lossy().into_owned(),
            cwd: stored.header.cwd,
            created_at: stored.header.created,
            file_exists: true,
            message_count: stored.messages,
            model,
            thinking: stored.thinking.as_deref().and_then(Thinking::parse).unwrap_or(Thinking::Off),
        }
    }

    /// Reads a file that a client names.
    pub(super) async fn read_file(&self, path: &str) -> Result<ParsedSession> {
        let (store, file) = (self.bureau.session_files().store.clone(), PathBuf::from(path));
        let read = self.away(&file.clone(), move || store.read(&file)).await?;
        read.map_err(|error| Failure::said(unloadable(path, &error)))
    }

    /// Returns the file that a session is written to; sessions that others began have none.
    pub(super) fn file_of(&self, session: &SessionId, snapshot: &Snapshot) -> Option<String> {
        let file = files::current(self.bureau.session_files(), session, snapshot)?;
        Some(file.path.to_string_lossy().into_owned())
    }

    async fn open_stored(&self, id: &SessionId, path: &str, stored: &ParsedSession) -> Result<Sitting> {
        let claimed = PathBuf::from(&stored.header.cwd);
        // A file in a project comes with the project, which chooses no directory but itself.
        let is_own = Path::new(path).starts_with(self.bureau.session_files().store.directory());
        let may_choose = is_own || claimed.starts_with(&self.peer.cwd);
        let is_there = may_choose
            && claimed.is_absolute()
            && self.away(&claimed.clone(), move || claimed.is_dir()).await.unwrap_or(false);
        let cwd = if is_there { &stored.header.cwd } else { &self.peer.cwd };
        let seat = self.open(id, cwd, stored.name().map(str::to_owned)).await?;
        {
            let _turn = seat.file_turn().await;
            files::choose(&self.bureau, id, Path::new(path)).await?;
            self.take_in(&seat, stored).await?;
        }
        Ok(seat)
    }

    /// Goes on with the conversation of a file, which may be the session's own.
    async fn go_on_in(&self, seat: &Arc<Seat>, path: &str, stored: &ParsedSession) -> Result<()> {
        let turn = seat.file_turn().await;
        let (snapshot, _) = self.bureau.describe(seat, None, &self.peer).await?;
        let file = files::current(self.bureau.session_files(), seat.session(), &snapshot);
        if file.is_some_and(|file| file.path == Path::new(path)) {
            self.synchronize_in(seat, &turn).await;
            return Ok(());
        }
        let next = files::imported_file(&self.bureau, seat.session(), Path::new(path));
        self.leave_for(seat, None, Some(next), None).await?;
        self.take_in(seat, stored).await
    }

    /// Takes in the conversation of a file, the part before a compaction included unless that is too much.
    pub(super) async fn take_in(&self, seat: &Arc<Seat>, stored: &ParsedSession) -> Result<()> {
        let (snapshot, _) = self.bureau.describe(seat, None, &self.peer).await?;
        if seat.tell(|story| story.entries().next().is_some()) {
            // Somebody else was faster.
            return Ok(());
        }
        let settings = self.settings_of(stored);
        let whole = import(stored.branch(), &|_| None, &mut Minted).import;
        let name = stored.name().filter(|name| snapshot.name.as_deref() != Some(name)).map(str::to_owned);
        let whole = Import { settings: settings.clone(), name: name.clone(), ..whole };
        match self.ask_further(seat, Command::Import(Box::new(whole))).await {
            Err(Failure::Refused(Refusal::ImportTooLarge)) => {
                warn!(session = %seat.session(), "the part of a file before its last compaction is too much to import");
                let kept = import(stored.since_compaction(), &|_| None, &mut Minted).import;
                let kept = Import { settings, name, ..kept };
                self.ask_further(seat, Command::Import(Box::new(kept))).await.map(drop)
            }
            imported => imported.map(drop),
        }
    }

    /// Returns who answers according to a file, and how.
    fn settings_of(&self, stored: &ParsedSession) -> Adjustment {
        let conversation = stored.conversation();
        // A model that is not configured here is not asked; the session's own answers.
        let model = conversation.model.filter(|(provider, model)| self.model_row(provider, model).is_ok());
        let thinking = conversation.thinking.filter(|level| Thinking::parse(level).is_some());
        let (provider, model) = model.unzip();
        Adjustment { provider, model, thinking, ..Adjustment::default() }
    }
}

/// Says why a file cannot be loaded: what its path must be, and what is wrong with it.
fn unloadable(path: &str, error: &StoreError) -> String {
    let reason = error.to_string();
    if matches!(error, StoreError::NotAllowed { .. }) {
        return format!("{reason}: {path} is neither in ~/.pi/agent/sessions nor in a .pi/sessions");
    }
    if reason.starts_with("sessionPath must be") {
        return reason;
    }
    format!("sessionPath must be a session file that can be read: {reason}")
}

fn moment(time: std::time::SystemTime) -> Option<Now> {
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok().map(Now)
}
