//! Session files: which there are, and sessions from them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use super::discovering::away;
use super::{Done, Failure, Job, Result};
use crate::adapter::pi::ask::Thinking;
use crate::adapter::pi::encode::{self, FileRow, StoredSession};
use crate::daemon::pi::files::{self, Minted};
use crate::daemon::pi::seat::Seat;
use crate::daemon::pi::seats::Sitting;
use crate::kernel::command::{Command, Snapshot};
use crate::kernel::event::{Adjustment, Branch};
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::time::Now;
use crate::sessionfile::{Stored, store};

impl Job {
    pub(super) async fn list_stored_sessions(&self) -> Result {
        let (store, cwd) = (self.bureau.store(), PathBuf::from(&self.peer.cwd));
        let listing = away(move || store.list(&[cwd])).await?;
        let rows: Vec<_> = listing.sessions.into_iter().map(stored_row).collect();
        Ok(Done::new(encode::stored_sessions(&rows), None))
    }

    pub(super) async fn list_session_files(&self) -> Result {
        let (cwd, version) = self.place().await?;
        let store = self.bureau.store();
        let files = away(move || store.files(&cwd)).await?;
        let row = |file: store::SessionFile| FileRow {
            path: file.path.to_string_lossy().into_owned(),
            name: file.name,
            modified_at: moment(file.modified),
        };
        let rows: Vec<_> = files.into_iter().map(row).collect();
        Ok(Done::at(encode::files(&rows), version))
    }

    /// Makes a session of a file, or brings the one back that the file was written from.
    pub(super) async fn load_session(&self, path: &str) -> Result {
        let stored = self.read_file(path).await?;
        let id = self.asked.session.clone().unwrap_or_else(|| SessionId::from(stored.header.id.as_str()));
        let known = self.bureau.server().hub().lane(&id).await;
        let known = known.map_err(|error| Failure::said(error.to_string()))?.is_some();
        self.refuse_versions(&id)?;
        if !known {
            self.refuse_too_many()?;
        }
        let seat = if known { self.reopen(&id).await? } else { self.open_stored(&id, &stored).await? };
        if known {
            self.catch_up(&seat, &stored).await?;
        }
        self.ask_further(&seat, Command::Load).await?;
        let (snapshot, version) = self.bureau.describe(&seat, None, &self.peer).await?;
        Ok(Done::at(encode::created(&id, &self.info(&seat, &snapshot)), version))
    }

    /// Reads a file that a client names.
    pub(super) async fn read_file(&self, path: &str) -> Result<Stored> {
        let (store, path) = (self.bureau.store(), PathBuf::from(path));
        let read = away(move || store.read(&path)).await?;
        read.map_err(|error| Failure::said(error.to_string()))
    }

    /// Returns the file that a session is written to; sessions that others began have none.
    pub(super) fn file_of(&self, session: &SessionId, snapshot: &Snapshot) -> Option<String> {
        let path = files::path(&self.bureau.store(), session, snapshot)?;
        Some(path.to_string_lossy().into_owned())
    }

    async fn open_stored(&self, id: &SessionId, stored: &Stored) -> Result<Sitting> {
        let claimed = Path::new(&stored.header.cwd);
        let cwd = if claimed.is_absolute() && claimed.is_dir() { &stored.header.cwd } else { &self.peer.cwd };
        let seat = self.open(id, cwd, stored.name().map(str::to_owned)).await?;
        self.take_in(&seat, stored).await?;
        Ok(seat)
    }

    /// Takes the conversation of a file in, unless it is the session's own.
    async fn catch_up(&self, seat: &Arc<Seat>, stored: &Stored) -> Result<()> {
        let (snapshot, _) = self.bureau.describe(seat, None, &self.peer).await?;
        if files::same_conversation(seat, stored) {
            return Ok(());
        }
        let branch = Branch { until: Seq::ZERO, from: snapshot.last_seq.next() };
        self.ask_further(seat, Command::Branch(branch)).await?;
        self.take_in(seat, stored).await
    }

    async fn take_in(&self, seat: &Arc<Seat>, stored: &Stored) -> Result<()> {
        let conversation = stored.conversation();
        let taken_in = conversation.clone().into_import(&mut Minted).import;
        self.ask_further(seat, Command::Import(Box::new(taken_in))).await?;
        // A model that is not configured here is not asked; the session's own answers.
        let model = conversation.model.filter(|(provider, model)| self.model_row(provider, model).is_ok());
        let thinking = conversation.thinking.filter(|level| Thinking::parse(level).is_some());
        let (provider, model) = model.unzip();
        if provider.is_some() || thinking.is_some() {
            let adjustment = Adjustment { provider, model, thinking, ..Adjustment::default() };
            self.ask_further(seat, Command::Adjust(Box::new(adjustment))).await?;
        }
        Ok(())
    }
}

fn stored_row(stored: store::StoredSession) -> StoredSession {
    StoredSession {
        session: SessionId::from(stored.header.id),
        name: stored.name,
        file: stored.path.to_string_lossy().into_owned(),
        cwd: stored.header.cwd,
        created_at: stored.header.created,
        file_exists: true,
        message_count: stored.messages,
        model: None,
        thinking: Thinking::Off,
    }
}

fn moment(time: std::time::SystemTime) -> Option<Now> {
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok().map(Now)
}
