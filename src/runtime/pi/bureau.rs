//! What all connections of the protocol share, and the driver of the book of commands.
//!
//! The book decides: what is admitted, in which order it runs, what is a repetition, what is too late. Its effects are
//! carried out under its lock, which is never held while anything is awaited, so that everybody hears of commands in the
//! order in which the book decided on them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tracing::error;

use super::archive;
use super::breaker::Breaker;
use super::chores;
use super::connection::Peer;
use super::crowd::{Crowd, Mailbox};
use super::figures::Figures;
use super::limits::Limits;
use super::seats::Seats;
use super::session_list::SessionList;
use super::spelling;
use super::work::{self, Job, Worked};
use crate::journal::{CommitError, Journal, ReadError};
use crate::kernel::command_log::{
    CommandLog, CommandName, CommandOutcome, Effect, Input, ReplyBody, Submission, Ticket,
};
use crate::kernel::id::ParticipantId;
use crate::kernel::time::Now;
use crate::protocol::pi::decode::DecodeLimits;
use crate::protocol::pi::encode::{self, CommandLifecycle, LifecycleStage, Response};
use crate::protocol::pi::error_text;
use crate::protocol::pi::request::Request;
use crate::runtime::generate;
use crate::runtime::server::{CLOSE_TIMEOUT, Server};
use crate::runtime::session_files::{self, SessionFiles};

/// What all connections of the protocol share.
pub(in crate::runtime) struct Bureau {
    server: Arc<Server>,
    limits: Limits,
    decode_limits: DecodeLimits,
    home: PathBuf,
    crowd: Crowd,
    seats: Seats,
    sessions: SessionList,
    figures: Figures,
    breaker: Breaker,
    /// What names begin with that commands get which came without one.
    begun: u64,
    inner: Mutex<Inner>,
    /// Told when the book wants to be woken earlier than it was going to be.
    sooner: Notify,
    /// Told whenever a command was answered.
    answered: Notify,
}

struct Inner {
    book: CommandLog,
    pending: BTreeMap<Ticket, Pending>,
    tickets: u64,
    /// When the book is going to be woken.
    armed: Option<Now>,
}

/// A command that is not answered yet.
struct Pending {
    asked: Arc<Request>,
    name: CommandName,
    peer: Arc<Peer>,
    mailbox: Arc<Mailbox>,
    running: Option<AbortHandle>,
    /// What everybody is told after the answer.
    news: Vec<Bytes>,
}

impl Pending {
    fn lifecycle(&self) -> CommandLifecycle<'_> {
        CommandLifecycle {
            command_id: self.name.text(),
            command: self.asked.kind.name(),
            session: self.asked.session.as_ref(),
            depends_on: &self.asked.depends_on,
            if_session_version: self.asked.if_session_version,
            idempotency_key: self.asked.idempotency_key.as_deref(),
        }
    }
}

impl Bureau {
    /// Opens the bureau with the outcomes that are stored.
    pub(in crate::runtime) async fn open(server: Arc<Server>) -> Result<Arc<Self>, ReadError> {
        let world = server.hub().services();
        let (limits, now) = (Limits::of(&world.limits), world.clock.now());
        let (book, effects) = archive::restore(&world.journal, limits.book, now).await?;
        // Before the look at what there is, so that nothing is opened or ended in between.
        let changes = world.session_changes.subscribe();
        let sessions = SessionList::restore(&world.journal).await?;
        let (begun, home) = (now.0, session_files::home());
        let inner = Inner { book, pending: BTreeMap::new(), tickets: 0, armed: None };
        let bureau = Arc::new(Self {
            breaker: Breaker::new(limits.bash),
            server,
            limits,
            decode_limits: DecodeLimits::default(),
            home,
            crowd: Crowd::default(),
            seats: Seats::default(),
            sessions,
            figures: Figures::default(),
            begun,
            inner: Mutex::new(inner),
            sooner: Notify::new(),
            answered: Notify::new(),
        });
        {
            let mut inner = bureau.lock();
            for effect in effects {
                bureau.perform(&mut inner, effect);
            }
        }
        tokio::spawn(chores::wake(Arc::clone(&bureau)));
        tokio::spawn(chores::forget_deleted(Arc::clone(&bureau)));
        tokio::spawn(chores::announce_sessions(Arc::clone(&bureau), changes));
        tokio::spawn(chores::announce_the_end(Arc::clone(&bureau)));
        Ok(bureau)
    }

    pub(super) const fn server(&self) -> &Arc<Server> {
        &self.server
    }

    pub(super) const fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) const fn seats(&self) -> &Seats {
        &self.seats
    }

    pub(super) const fn sessions(&self) -> &SessionList {
        &self.sessions
    }

    pub(super) const fn figures(&self) -> &Figures {
        &self.figures
    }

    pub(super) const fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    pub(super) const fn farewell(&self) -> Duration {
        CLOSE_TIMEOUT
    }

    pub(super) fn now(&self) -> Now {
        self.server.hub().services().clock.now()
    }

    /// Returns the home of the user.
    pub(super) fn home(&self) -> &Path {
        &self.home
    }

    /// Returns the session files of the user.
    pub(super) fn session_files(&self) -> &SessionFiles {
        &self.server.hub().services().session_files
    }

    pub(super) const fn decode_limits(&self) -> &DecodeLimits {
        &self.decode_limits
    }

    /// Returns how many commands came in the last minute, and how many may.
    pub(super) fn rate(&self) -> (u64, u64) {
        let now = self.now();
        let (used, limit) = self.lock().book.rate_used(now);
        (used as u64, limit as u64)
    }

    /// Returns how many are connected.
    pub(super) fn connected(&self) -> usize {
        self.crowd.len()
    }

    /// Returns when the book wants to be woken, and goes by it.
    pub(super) fn next_deadline(&self) -> Option<Now> {
        let mut inner = self.lock();
        inner.armed = inner.book.next_deadline();
        inner.armed
    }

    /// Waits until the book wants to be woken earlier than was said.
    pub(super) async fn sooner(&self) {
        self.sooner.notified().await;
    }

    /// Says something to everybody.
    pub(super) fn tell_all(&self, line: &Bytes) {
        self.crowd.tell(line);
    }

    /// Looks at the book.
    pub(super) fn read<T>(&self, look: impl FnOnce(&CommandLog) -> T) -> T {
        look(&self.lock().book)
    }

    /// Waits until connections are let go.
    pub(super) async fn parting(&self) {
        self.server.hub().services().disconnecting.wait().await;
    }

    /// Lets a connection in; it is greeted first.
    pub(super) fn enter(&self, id: ParticipantId) -> Arc<Mailbox> {
        let mailbox = Mailbox::new(id.0, self.limits.waiting_bytes);
        let transports: &[&str] = if self.server.serves_pi() { &["websocket", "stdio"] } else { &["stdio"] };
        mailbox.push(encode::server_ready(env!("CARGO_PKG_VERSION"), transports));
        self.crowd.join(Arc::clone(&mailbox));
        mailbox
    }

    /// Lets a connection go, and leaves the sessions that nobody listens to any more.
    pub(super) fn leave(self: &Arc<Self>, mailbox: &Mailbox) {
        self.crowd.leave(mailbox.id());
        for seat in self.seats.unsubscribe(mailbox.id()) {
            let bureau = Arc::clone(self);
            tokio::spawn(async move { bureau.give_up(&seat).await });
        }
    }

    /// Waits until everything that a connection asked for is answered, or nobody can hear it.
    pub(super) async fn all_answered(&self, mailbox: &Mailbox) {
        loop {
            let answered = self.answered.notified();
            let waits = |pending: &Pending| pending.mailbox.id() == mailbox.id();
            if mailbox.is_closed() || !self.lock().pending.values().any(waits) {
                return;
            }
            answered.await;
        }
    }

    /// Hands a command in.
    pub(super) fn submit(self: &Arc<Self>, asked: Request, peer: Arc<Peer>, mailbox: Arc<Mailbox>) {
        let mut inner = self.lock();
        inner.tickets += 1;
        let ticket = Ticket(inner.tickets);
        let name = match &asked.id {
            Some(id) => CommandName::Client(id.as_str().into()),
            None => CommandName::Generated(format!("anon:{}:{}", self.begun, ticket.0).into()),
        };
        let mut submission = submission(ticket, &asked, name.clone());
        submission.time_limit = submission.time_limit.map(|usual| self.limits.command_millis.unwrap_or(usual));
        let asked = Arc::new(asked);
        inner.pending.insert(ticket, Pending { asked, name, peer, mailbox, running: None, news: Vec::new() });
        self.apply(&mut inner, Input::Submit(Box::new(submission)));
    }

    /// Tells the book something, and does what follows.
    pub(super) fn input(self: &Arc<Self>, input: Input) {
        let mut inner = self.lock();
        self.apply(&mut inner, input);
    }

    fn apply(self: &Arc<Self>, inner: &mut Inner, input: Input) {
        let effects = inner.book.apply(input, self.now());
        for effect in effects {
            self.perform(inner, effect);
        }
        let next = inner.book.next_deadline();
        let sooner = match (next, inner.armed) {
            (Some(next), Some(armed)) => next < armed,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if sooner {
            inner.armed = next;
            self.sooner.notify_one();
        }
    }

    fn perform(self: &Arc<Self>, inner: &mut Inner, effect: Effect) {
        match effect {
            Effect::Refuse(ticket, refusal) => {
                if let Some(pending) = inner.pending.remove(&ticket) {
                    self.figures.refused(&refusal, pending.asked.kind);
                    let (id, command) = (pending.asked.id.as_deref(), pending.asked.kind.name());
                    pending.mailbox.push(encode::failure_response(id, command, &spelling::refusal(&refusal)));
                    self.answered.notify_waiters();
                }
            }
            Effect::Accept(ticket) => self.tell(inner, ticket, LifecycleStage::Accepted),
            Effect::PersistAdmission(ticket, record) => {
                let kept = archive::keep(self.journal(), record);
                self.when(
                    kept,
                    move |kept| {
                        if kept { Input::AdmissionPersisted(ticket) } else { Input::AdmissionFailed(ticket) }
                    },
                );
            }
            Effect::Run(ticket) => {
                self.tell(inner, ticket, LifecycleStage::Started);
                self.run(inner, ticket);
            }
            Effect::Abandon(ticket) => {
                if let Some(running) = inner.pending.get_mut(&ticket).and_then(|pending| pending.running.take()) {
                    running.abort();
                }
            }
            Effect::PersistOutcome(ticket, settlement) => {
                let kept = archive::settle(self.journal(), settlement);
                self.when(
                    kept,
                    move |kept| {
                        if kept { Input::OutcomePersisted(ticket) } else { Input::OutcomeFailed(ticket) }
                    },
                );
            }
            Effect::PersistOutcomeLater(settlement) => {
                archive::settle_later(self.journal(), settlement);
            }
            Effect::Finish { ticket, outcome, replayed } => self.finish(inner, ticket, &outcome, replayed),
            Effect::DeleteRecord(row) => archive::forget(self.journal(), row),
        }
    }

    /// Says something to the book when the disk has answered.
    fn when(
        self: &Arc<Self>,
        kept: tokio::sync::oneshot::Receiver<Result<(), CommitError>>,
        input: impl FnOnce(bool) -> Input + Send + 'static,
    ) {
        let bureau = Arc::clone(self);
        tokio::spawn(async move {
            let kept = match kept.await {
                Ok(Ok(())) => true,
                Ok(Err(trouble)) => {
                    error!(error = %trouble, "a command could not be written down");
                    false
                }
                Err(_) => false,
            };
            bureau.input(input(kept));
        });
    }

    fn tell(&self, inner: &Inner, ticket: Ticket, step: LifecycleStage<'_>) {
        if let Some(pending) = inner.pending.get(&ticket) {
            self.crowd.tell(&encode::lifecycle(&pending.lifecycle(), step));
        }
    }

    fn run(self: &Arc<Self>, inner: &mut Inner, ticket: Ticket) {
        let Some(pending) = inner.pending.get_mut(&ticket) else { return };
        self.figures.executed();
        let job = Job {
            bureau: Arc::clone(self),
            peer: Arc::clone(&pending.peer),
            mailbox: Arc::clone(&pending.mailbox),
            asked: Arc::clone(&pending.asked),
        };
        let mut ending = Ending { bureau: Arc::clone(self), ticket, worked: None };
        let task = tokio::spawn(async move {
            let worked = work::carry_out(job).await;
            ending.set(worked);
        });
        pending.running = Some(task.abort_handle());
    }

    fn finish(&self, inner: &mut Inner, ticket: Ticket, outcome: &CommandOutcome, replayed: bool) {
        let Some(pending) = inner.pending.remove(&ticket) else { return };
        let body = match &outcome.body {
            ReplyBody::Text(text) => text.as_ref(),
            ReplyBody::TooLarge(_) | ReplyBody::Removed => "",
        };
        let error = (!outcome.success).then_some(body);
        let step = LifecycleStage::Finished { error, session_version: outcome.version, replayed };
        self.crowd.tell(&encode::lifecycle(&pending.lifecycle(), step));
        pending.mailbox.push(encode::response(&Response {
            id: pending.asked.id.as_deref(),
            command: pending.asked.kind.name(),
            success: outcome.success,
            body,
            session_version: outcome.version,
            replayed,
            timed_out: outcome.timed_out,
        }));
        for news in &pending.news {
            self.crowd.tell(news);
        }
        self.answered.notify_waiters();
    }

    pub(super) fn journal(&self) -> &Journal {
        &self.server.hub().services().journal
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The duty to say how a command ended: dropped before that, it says that the daemon failed.
struct Ending {
    bureau: Arc<Bureau>,
    ticket: Ticket,
    worked: Option<Worked>,
}

impl Ending {
    fn set(&mut self, worked: Worked) {
        self.worked = Some(worked);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let worked = self.worked.take().unwrap_or_else(|| Worked::failed(error_text::INTERNAL));
        let mut inner = self.bureau.lock();
        if let Some(pending) = inner.pending.get_mut(&self.ticket) {
            pending.news = worked.news;
        }
        self.bureau.apply(&mut inner, Input::Finished(self.ticket, worked.outcome));
    }
}

fn submission(ticket: Ticket, asked: &Request, name: CommandName) -> Submission {
    let nature = asked.body.policy();
    Submission {
        ticket,
        name,
        key: asked.idempotency_key.as_deref().map(Into::into),
        kind: asked.kind.name().into(),
        session: asked.session.clone(),
        fingerprint: generate::fingerprint([asked.canonical.as_str()]),
        depends_on: asked.depends_on.iter().map(|id| id.as_str().into()).collect(),
        scheduling: nature.scheduling,
        time_limit: nature.time_limit,
        persistence: nature.persistence,
        rate_class: nature.rate_class,
        format_error: spelling::fault,
    }
}
