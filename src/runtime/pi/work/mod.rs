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
use crate::kernel::command::{Command, Snapshot};
use crate::kernel::command_log::CommandOutcome;
use crate::kernel::id::SessionId;
use crate::protocol::pi::encode::{self, Data};
use crate::protocol::pi::error_text;
use crate::protocol::pi::request::{Request, RequestBody};

/// A command that is to be carried out.
pub(super) struct Job {
    pub(super) bureau: Arc<Bureau>,
    pub(super) peer: Arc<Peer>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) asked: Arc<Request>,
}

/// What came of it.
pub(super) struct Worked {
    pub(super) outcome: CommandOutcome,
    /// What everybody is told after the answer.
    pub(super) news: Vec<Bytes>,
}

impl Worked {
    pub(super) fn failed(error: impl Into<Arc<str>>) -> Self {
        Self { outcome: CommandOutcome::failed(error), news: Vec::new() }
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
        Ok(Done { data, version, news }) => Worked { outcome: CommandOutcome::succeeded(data, version), news },
        Err(failure) => Worked::failed(failure.text()),
    }
}

impl Job {
    async fn carry_out(&self) -> Result {
        match &self.asked.body {
            RequestBody::ListSessions => self.list_sessions().await,
            RequestBody::CreateSession { cwd } => self.create_session(cwd.as_deref()).await,
            RequestBody::DeleteSession => self.delete_session().await,
            RequestBody::SwitchSession => self.switch_session().await,
            RequestBody::GetMetrics => self.metrics().await,
            RequestBody::HealthCheck => self.health(),
            RequestBody::ListStoredSessions => self.list_stored_sessions().await,
            RequestBody::LoadSession { path } => self.load_session(path).await,
            RequestBody::GetAvailableModels => self.models().await,
            RequestBody::GetCommands => self.commands().await,
            RequestBody::GetSkills => self.skills().await,
            RequestBody::GetTools => self.tools().await,
            RequestBody::ListSessionFiles => self.list_session_files().await,
            RequestBody::Prompt { input: words, streaming_behavior: streaming } => self.prompt(words, *streaming).await,
            RequestBody::Steer(words) => self.steer(words).await,
            RequestBody::FollowUp(words) => self.follow_up(words).await,
            RequestBody::Abort => self.abort().await,
            RequestBody::GetState => self.state().await,
            RequestBody::GetMessages => self.messages().await,
            RequestBody::SetModel { provider, model } => self.set_model(provider, model).await,
            RequestBody::CycleModel { direction } => self.cycle_model(*direction).await,
            RequestBody::SetThinkingLevel { level } => self.set_thinking(*level).await,
            RequestBody::CycleThinkingLevel => self.cycle_thinking().await,
            RequestBody::SetSessionName { name } => self.rename(name).await,
            RequestBody::Compact { instructions } => self.compact(instructions.as_deref()).await,
            RequestBody::AbortCompaction => self.abort_compaction().await,
            RequestBody::SetAutoCompaction { enabled } => self.set_auto_compaction(*enabled).await,
            RequestBody::SetAutoRetry { enabled } => self.set_auto_retry(*enabled).await,
            RequestBody::AbortRetry => self.abort_retry().await,
            RequestBody::Bash { command, context: telling } => self.bash(command, *telling).await,
            RequestBody::AbortBash => self.abort_bash().await,
            RequestBody::GetSessionStats => self.stats().await,
            RequestBody::ExportHtml { path } => self.export_html(path.as_deref()).await,
            RequestBody::NewSession { parent } => self.new_session(parent.as_deref()).await,
            RequestBody::SwitchSessionFile { path } => self.switch_session_file(path).await,
            RequestBody::Fork { entry } => self.fork(entry).await,
            RequestBody::GetForkMessages => self.fork_messages().await,
            RequestBody::GetLastAssistantText => self.last_text().await,
            RequestBody::GetContextUsage => self.context_usage().await,
            RequestBody::ExtensionUiResponse { request, response } => self.answer(request, response).await,
        }
    }

    /// Returns the session that the command names.
    fn session(&self) -> Result<&SessionId> {
        // Commands that need one are not admitted without.
        self.asked.session.as_ref().ok_or_else(|| Failure::said(error_text::INTERNAL))
    }

    /// Returns the protocol's place at the session that the command names.
    async fn seat(&self) -> Result<Sitting> {
        let session = self.session()?;
        self.bureau.seat(session, &self.peer).await.map_err(|failure| match self.asked.if_session_version {
            Some(version) if failure == Failure::said(error_text::session_not_found(session.as_str())) => {
                Failure::said(error_text::no_session_at_version(session.as_str(), version))
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
        Ok(self.ask_further(seat, Command::BumpVersion { change: what }).await?.version)
    }

    /// Counts that something was stopped; where nothing can be written, it is stopped all the same and not counted.
    async fn touch_stopped(&self, seat: &Arc<Seat>) -> Result<u64> {
        if self.bureau.server().storage_error().is_none() {
            return self.touch(seat).await;
        }
        Ok(self.ask_further(seat, Command::Describe).await?.version)
    }

    /// The same where there was nothing to stop: the session must still be at the version that the command names.
    async fn touch_unstopped(&self, seat: &Arc<Seat>) -> Result<u64> {
        if self.bureau.server().storage_error().is_none() {
            return self.touch_unchanged(seat).await;
        }
        Ok(self.ask(seat, Command::Describe).await?.version)
    }

    /// The same for a success that had nothing to do: the session must still be at the version that the command names.
    async fn touch_unchanged(&self, seat: &Arc<Seat>) -> Result<u64> {
        let what = self.asked.kind.name().to_owned();
        Ok(self.ask(seat, Command::BumpVersion { change: what }).await?.version)
    }

    /// Asks for a change of the session that has nothing to say.
    async fn change(&self, command: Command) -> Result {
        let seat = self.seat().await?;
        let Answered { version, .. } = self.ask(&seat, command).await?;
        Ok(Done::at(encode::no_data(), version))
    }
}
