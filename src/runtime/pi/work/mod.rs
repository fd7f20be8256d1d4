//! What commands do.
//!
//! A command is carried out on the core like any other client's: it becomes a command of its session, or a look at its
//! story. What the core cannot do is refused in words; nothing is done here behind its back.

mod discovering;
mod expanding;
mod moving;
mod reading;
mod rows;
mod serving;
mod setting;
mod shell;
mod storing;
mod summing;
mod talking;

pub(super) use rows::{shown_model, thinking_level};

use std::sync::Arc;

use bytes::Bytes;
use tracing::warn;

use super::bureau::Bureau;
use super::connection::Peer;
use super::crowd::Mailbox;
use super::desk::{Answered, Failure};
use super::files::{self, FileTurn};
use super::seat::Seat;
use super::seats::Sitting;
use crate::kernel::book::Outcome;
use crate::kernel::command::{Command, Snapshot};
use crate::kernel::id::SessionId;
use crate::protocol::pi::ask::{Ask, Asked};
use crate::protocol::pi::encode::{self, Data};
use crate::protocol::pi::text;

/// A command that is to be carried out.
pub(super) struct Job {
    pub(super) bureau: Arc<Bureau>,
    pub(super) peer: Arc<Peer>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) asked: Arc<Asked>,
}

/// What came of it.
pub(super) struct Worked {
    pub(super) outcome: Outcome,
    /// What everybody is told after the answer.
    pub(super) news: Vec<Bytes>,
}

impl Worked {
    pub(super) fn failed(error: impl Into<Arc<str>>) -> Self {
        Self { outcome: Outcome::failed(error), news: Vec::new() }
    }
}

/// What a command is answered: its data, the session's version after it, and what everybody is told.
pub(super) struct Done {
    data: Data,
    version: Option<u64>,
    news: Vec<Bytes>,
}

impl Done {
    const fn new(data: Data, version: Option<u64>) -> Self {
        Self { data, version, news: Vec::new() }
    }

    const fn at(data: Data, version: u64) -> Self {
        Self::new(data, Some(version))
    }
}

type Result<T = Done> = std::result::Result<T, Failure>;

/// Carries a command out.
pub(super) async fn carry_out(job: Job) -> Worked {
    match job.carry_out().await {
        Ok(Done { data, version, news }) => Worked { outcome: Outcome::done(data, version), news },
        Err(failure) => Worked::failed(failure.text()),
    }
}

impl Job {
    async fn carry_out(&self) -> Result {
        match &self.asked.ask {
            Ask::ListSessions => self.list_sessions().await,
            Ask::CreateSession { cwd } => self.create_session(cwd.as_deref()).await,
            Ask::DeleteSession => self.delete_session().await,
            Ask::SwitchSession => self.switch_session().await,
            Ask::GetMetrics => self.metrics().await,
            Ask::HealthCheck => self.health(),
            Ask::ListStoredSessions => self.list_stored_sessions().await,
            Ask::LoadSession { path } => self.load_session(path).await,
            Ask::GetAvailableModels => self.models().await,
            Ask::GetCommands => self.commands().await,
            Ask::GetSkills => self.skills().await,
            Ask::GetTools => self.tools().await,
            Ask::ListSessionFiles => self.list_session_files().await,
            Ask::Prompt { words, streaming } => self.prompt(words, *streaming).await,
            Ask::Steer(words) => self.steer(words).await,
            Ask::FollowUp(words) => self.follow_up(words).await,
            Ask::Abort => self.abort().await,
            Ask::GetState => self.state().await,
            Ask::GetMessages => self.messages().await,
            Ask::SetModel { provider, model } => self.set_model(provider, model).await,
            Ask::CycleModel { direction } => self.cycle_model(*direction).await,
            Ask::SetThinkingLevel { level } => self.set_thinking(*level).await,
            Ask::CycleThinkingLevel => self.cycle_thinking().await,
            Ask::SetSessionName { name } => self.rename(name).await,
            Ask::Compact { instructions } => self.compact(instructions.as_deref()).await,
            Ask::AbortCompaction => self.abort_compaction().await,
            Ask::SetAutoCompaction { enabled } => self.set_auto_compaction(*enabled).await,
            Ask::SetAutoRetry { enabled } => self.set_auto_retry(*enabled).await,
            Ask::AbortRetry => self.abort_retry().await,
            Ask::Bash { command, telling } => self.bash(command, *telling).await,
            Ask::AbortBash => self.abort_bash().await,
            Ask::GetSessionStats => self.stats().await,
            Ask::ExportHtml { path } => self.export_html(path.as_deref()).await,
            Ask::NewSession { parent } => self.new_session(parent.as_deref()).await,
            Ask::SwitchSessionFile { path } => self.switch_session_file(path).await,
            Ask::Fork { entry } => self.fork(entry).await,
            Ask::GetForkMessages => self.fork_messages().await,
            Ask::GetLastAssistantText => self.last_text().await,
            Ask::GetContextUsage => self.context_usage().await,
            Ask::ExtensionUiResponse { request, response } => self.answer(request, response).await,
        }
    }

    /// Returns the session that the command names.
    fn session(&self) -> Result<&SessionId> {
        // Commands that need one are not admitted without.
        self.asked.session.as_ref().ok_or_else(|| Failure::said(text::INTERNAL))
    }

    /// Returns the protocol's place at the session that the command names.
    async fn seat(&self) -> Result<Sitting> {
        let session = self.session()?;
        self.bureau.seat(session, &self.peer).await.map_err(|failure| match self.asked.if_session_version {
            Some(version) if failure == Failure::said(text::session_not_found(session.as_str())) => {
                Failure::said(text::no_session_at_version(session.as_str(), version))
            }
            Some(_) | None => failure,
        })
    }

    /// Asks the session, at the version that the command names.
    async fn ask(&self, seat: &Arc<Seat>, command: Command) -> Result<Answered> {
        self.bureau.ask(seat, command, self.asked.if_session_version, &self.peer).await
    }

    /// Asks the session, whatever its version: the command was judged by it before.
    async fn ask_further(&self, seat: &Arc<Seat>, command: Command) -> Result<Answered> {
        self.bureau.ask(seat, command, None, &self.peer).await
    }

    /// Looks at the session, at the version that the command names.
    async fn describe(&self, seat: &Arc<Seat>) -> Result<(Box<Snapshot>, u64)> {
        self.bureau.describe(seat, self.asked.if_session_version, &self.peer).await
    }

    /// Takes in what other programs have written to the session's file; what cannot be read there holds nothing up.
    async fn synchronize(&self, seat: &Arc<Seat>) {
        let turn = seat.file_turn().await;
        self.synchronize_in(seat, &turn).await;
    }

    /// The same, for whoever has the right to the file already.
    async fn synchronize_in(&self, seat: &Arc<Seat>, turn: &FileTurn<'_>) {
        if let Err(error) = files::synchronize_in(&self.bureau, seat, turn).await {
            warn!(session = %seat.session(), %error, "a session and its file could not be brought together");
        }
    }

    /// Counts a success that left no other trace in the session.
    async fn touch(&self, seat: &Arc<Seat>) -> Result<u64> {
        let what = self.asked.kind.name().to_owned();
        Ok(self.ask_further(seat, Command::Touch { what }).await?.version)
    }

    /// Counts that something was stopped; where nothing can be written, it is stopped all the same and not counted.
    async fn touch_stopped(&self, seat: &Arc<Seat>) -> Result<u64> {
        if self.bureau.server().unable_to_keep().is_none() {
            return self.touch(seat).await;
        }
        Ok(self.ask_further(seat, Command::Describe).await?.version)
    }

    /// The same where there was nothing to stop: the session must still be at the version that the command names.
    async fn touch_unstopped(&self, seat: &Arc<Seat>) -> Result<u64> {
        if self.bureau.server().unable_to_keep().is_none() {
            return self.touch_unchanged(seat).await;
        }
        Ok(self.ask(seat, Command::Describe).await?.version)
    }

    /// The same for a success that had nothing to do: the session must still be at the version that the command names.
    async fn touch_unchanged(&self, seat: &Arc<Seat>) -> Result<u64> {
        let what = self.asked.kind.name().to_owned();
        Ok(self.ask(seat, Command::Touch { what }).await?.version)
    }

    /// Asks for a change of the session that has nothing to say.
    async fn change(&self, command: Command) -> Result {
        let seat = self.seat().await?;
        let Answered { version, .. } = self.ask(&seat, command).await?;
        Ok(Done::at(encode::nothing(), version))
    }
}
