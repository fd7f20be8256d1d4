//! Session files: their lists, and sessions that are loaded from them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use tracing::warn;

use super::sessions::SessionPresence;
use super::{Execution, OperationReply, Result};
use crate::kernel::command::{Command, Snapshot};
use crate::kernel::event::Adjustment;
use crate::kernel::id::SessionId;
use crate::kernel::import::Import;
use crate::kernel::refusal::Refusal;
use crate::kernel::time::Now;
use crate::protocol::operation::Thinking;
use crate::protocol::operation_result::{FileRow, OperationError, OperationResult, SessionInfo, StoredSession};
use crate::protocol::session_file::{ParsedSession, import};
use crate::runtime::commands::file_sync::{self, GeneratedIds};
use crate::runtime::commands::session_view::SessionView;
use crate::runtime::commands::session_views::ViewLease;
use crate::runtime::lane::ChangePosition;
use crate::runtime::session_files::store::{self, StoreError};

impl Execution {
    pub(super) async fn list_stored_sessions(&self) -> Result {
        let (store, cwd) = (self.service.session_files().store.clone(), PathBuf::from(&self.peer.cwd));
        let listing = self.run_blocking(&cwd.clone(), move || store.list(&[cwd])).await?;
        let rows: Vec<_> = listing.sessions.into_iter().map(|stored| self.stored_row(stored)).collect();
        Ok(OperationReply::new(OperationResult::StoredSessions(rows), None))
    }

    pub(super) async fn list_session_files(&self) -> Result {
        let (cwd, version) = self.working_directory().await?;
        let store = self.service.session_files().store.clone();
        let files = self.run_blocking(&cwd.clone(), move || store.files(&cwd)).await?;
        let row = |file: store::SessionFile| FileRow {
            path: file.path.to_string_lossy().into_owned(),
            name: file.name,
            modified_at: modified_at(file.modified),
        };
        let rows: Vec<_> = files.into_iter().map(row).collect();
        Ok(OperationReply::at(OperationResult::SessionFiles(rows), version))
    }

    /// Loads a session from a file, or reactivates the session that is written to it. It continues in that file.
    pub(super) async fn load_session(&self, path: &str) -> Result {
        let stored = self.read_file(path).await?;
        let id = match &self.request.tag.session {
            Some(id) => id.clone(),
            None => self.writer_of(path).await?.unwrap_or_else(|| stored.header.id.as_str().into()),
        };
        let known = self.find(&id).await? != SessionPresence::NeverExisted;
        self.refuse_versions(&id)?;
        if !self.service.sessions().contains(&id) {
            self.refuse_too_many()?;
        }
        let view = if known {
            let view = self.reopen(&id).await?;
            self.continue_in_file(&view, path, &stored).await?;
            view
        } else {
            self.open_stored(&id, path, &stored).await?
        };
        let (snapshot, version) = self.service.describe(&view, None, &self.peer).await?;
        Ok(OperationReply::at(OperationResult::Created(Box::new(self.info(&view, &snapshot))), version))
    }

    /// Returns the session that is written to a file.
    async fn writer_of(&self, path: &str) -> Result<Option<SessionId>> {
        let (service, path) = (Arc::clone(&self.service), PathBuf::from(path));
        let writer = self.run_blocking(&path.clone(), move || service.session_files().index.writer_of(&path)).await?;
        Ok(writer.map_err(|error| OperationError::message(error.to_string()))?.map(SessionId::from))
    }

    /// Returns the listing row of a session in a file.
    fn stored_row(&self, stored: store::StoredSession) -> StoredSession {
        // A conversation without a model has none.
        let model = stored.model.filter(|(_, model)| !model.is_empty());
        let model = model.and_then(|(provider, model)| self.shown_model(&provider, &model));
        let info = SessionInfo {
            session: SessionId::from(stored.header.id),
            name: stored.name,
            file: Some(stored.path.to_string_lossy().into_owned()),
            model,
            thinking: stored.thinking.as_deref().and_then(Thinking::parse).unwrap_or(Thinking::Off),
            streaming: false,
            message_count: stored.messages,
            created_at: stored.header.created,
        };
        StoredSession { info, cwd: stored.header.cwd }
    }

    /// Reads a file that a client names.
    pub(super) async fn read_file(&self, path: &str) -> Result<ParsedSession> {
        let (store, file) = (self.service.session_files().store.clone(), PathBuf::from(path));
        let read = self.run_blocking(&file.clone(), move || store.read(&file)).await?;
        read.map_err(|error| unloadable(path, &error))
    }

    /// Returns the file of a session; a session of another protocol has none.
    pub(super) fn file_of(&self, session: &SessionId, snapshot: &Snapshot) -> Option<String> {
        let file = file_sync::current(&self.service, session, snapshot)?;
        Some(file.path.to_string_lossy().into_owned())
    }

    async fn open_stored(&self, id: &SessionId, path: &str, stored: &ParsedSession) -> Result<ViewLease> {
        let claimed = PathBuf::from(&stored.header.cwd);
        // A file in a project may choose no directory outside of the project.
        let is_own = Path::new(path).starts_with(self.service.session_files().store.directory());
        let may_choose = is_own || claimed.starts_with(&self.peer.cwd);
        let is_there = may_choose
            && claimed.is_absolute()
            && self.run_blocking(&claimed.clone(), move || claimed.is_dir()).await.unwrap_or(false);
        let cwd = if is_there { &stored.header.cwd } else { &self.peer.cwd };
        let view = self.open(id, cwd, stored.name().map(str::to_owned)).await?;
        {
            let _guard = view.lock_file().await;
            file_sync::choose(&self.service, id, Path::new(path)).await?;
            self.load_conversation(&view, stored).await?;
        }
        Ok(view)
    }

    /// Continues with the conversation of a file, which may be the session's own.
    async fn continue_in_file(&self, view: &Arc<SessionView>, path: &str, stored: &ParsedSession) -> Result<()> {
        let mut guard = view.lock_file().await;
        let (snapshot, _) = self.service.describe(view, None, &self.peer).await?;
        let file = file_sync::current(&self.service, view.session(), &snapshot);
        if file.is_some_and(|file| file.path == Path::new(path)) {
            self.synchronize_in(view, &mut guard).await;
            return Ok(());
        }
        let next = file_sync::imported_file(&self.service, view.session(), Path::new(path));
        self.branch_to_file(view, next, None).await?;
        self.load_conversation(view, stored).await
    }

    /// Imports the conversation of a file into a session that is loaded with it. The import is the last change, so that
    /// its sync covers the others.
    async fn load_conversation(&self, view: &Arc<SessionView>, stored: &ParsedSession) -> Result<()> {
        self.step(view, Command::Load).await?;
        self.import_conversation(view, stored).await
    }

    /// Imports the conversation of a file, including the part before a compaction unless it is too large.
    pub(super) async fn import_conversation(&self, view: &Arc<SessionView>, stored: &ParsedSession) -> Result<()> {
        let (snapshot, _) = self.service.describe(view, None, &self.peer).await?;
        if !view.read(|projection| projection.is_empty()) {
            // Another client has imported it.
            return Ok(());
        }
        let settings = self.settings_of(stored);
        let whole = import(stored.branch(), &|_| None, &mut GeneratedIds).import;
        let name = stored.name().filter(|name| snapshot.name.as_deref() != Some(name)).map(str::to_owned);
        let whole = Import { settings: settings.clone(), name: name.clone(), ..whole };
        // The runs that it ends are synced in any case.
        let send = |import| self.request_part(view, Command::Import(Box::new(import)), None, ChangePosition::Last);
        match send(whole).await {
            Err(OperationError::Refused(Refusal::ImportTooLarge)) => {
                warn!(session = %view.session(), "the part of a file before its last compaction is too much to import");
                let kept = import(stored.since_compaction(), &|_| None, &mut GeneratedIds).import;
                let kept = Import { settings, name, ..kept };
                send(kept).await.map(drop)
            }
            imported => imported.map(drop),
        }
    }

    /// Returns the model and the thinking level that a file sets.
    fn settings_of(&self, stored: &ParsedSession) -> Adjustment {
        let conversation = stored.conversation();
        // A model that is not configured here is ignored.
        let model = conversation.model.filter(|(provider, model)| self.model_row(provider, model).is_ok());
        let thinking = conversation.thinking.filter(|level| Thinking::parse(level).is_some());
        let (provider, model) = model.unzip();
        Adjustment { provider, model, thinking, ..Adjustment::default() }
    }
}

/// Returns why a file cannot be loaded.
fn unloadable(path: &str, error: &StoreError) -> OperationError {
    let reason = error.to_string();
    if matches!(error, StoreError::NotAllowed { .. }) {
        return OperationError::FileNotAllowed { path: path.to_owned(), reason };
    }
    OperationError::UnreadableFile(reason)
}

fn modified_at(time: std::time::SystemTime) -> Option<Now> {
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok().map(Now)
}
