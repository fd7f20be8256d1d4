//! The request handler of one connection: it answers requests itself or passes them to their session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

use super::fingerprints;
use super::lane::{Asked, LaneHandle, LaneOver, Respond, Told, Trouble};
use super::mint;
use super::outbox::{Out, Outbox, RequestPermit};
use super::reading;
use super::request_order::{CommandGuard, PendingRequest, RequestOrder, excess};
use super::server::Server;
use super::subscriptions::Subscriptions;
use super::tending::{self, Deletion};
use crate::config::settings::rule::{Rule, RuleError};
use crate::kernel::command::{Answer, Caller, Command, Decide, Prompt, Repetition, Rights, Steer};
use crate::kernel::gate::is_approval_policy;
use crate::kernel::id::{MessageId, SessionId};
use crate::protocol::push::decode::{Ask, Environment, Request, SessionAsk, StartSession, Summary};
use crate::protocol::push::encode::{self, Metrics, Payload};
use crate::protocol::push::error::{self, Code, ErrorBody};

/// The source name of clients at the local socket, as decisions show it.
const SOURCE: &str = "cli";

/// Handles the requests of one connection.
pub(super) struct Desk {
    server: Arc<Server>,
    outbox: Arc<Outbox>,
    caller: Caller,
    /// The sessions that this connection may be subscribed to.
    joined: Arc<Mutex<Subscriptions>>,
    /// The queues of requests that are not handled yet.
    order: Arc<RequestOrder>,
}

/// The obligation to answer a request: if it is dropped unanswered it answers `Interrupted`.
pub(super) struct Ticketed {
    request: String,
    kind: String,
    session: Option<SessionId>,
    /// The permit of the request; `None` once it is answered.
    permit: Option<RequestPermit>,
    outbox: Arc<Outbox>,
    /// Blocks later queries until it is dropped, after the response is queued.
    _command: Option<CommandGuard>,
}

impl Drop for Ticketed {
    fn drop(&mut self) {
        if self.permit.is_some() {
            self.deny(&trouble(&Trouble::Interrupted));
        }
    }
}

impl Ticketed {
    fn ok(mut self, payload: &Payload) {
        let session = self.session.as_ref().map(SessionId::as_str);
        let bytes = encode::response_ok(&self.request, &self.kind, session, payload);
        self.outbox.push(Out::Lines { bytes, permit: self.permit.take() });
    }

    fn refuse(mut self, body: &ErrorBody) {
        self.deny(body);
    }

    fn deny(&mut self, body: &ErrorBody) {
        let session = self.session.as_ref().map(SessionId::as_str);
        let bytes = encode::response_error(&self.request, &self.kind, session, body);
        self.outbox.push(Out::Lines { bytes, permit: self.permit.take() });
    }

    fn answer(self, result: Result<Payload, ErrorBody>) {
        match result {
            Ok(payload) => self.ok(&payload),
            Err(body) => self.refuse(&body),
        }
    }
}

impl Desk {
    pub(super) fn new(server: Arc<Server>, outbox: Arc<Outbox>) -> Self {
        // Clients at the local socket are its owner.
        let caller = Caller { id: outbox.id(), source: SOURCE.to_owned(), rights: Rights::ALL };
        let order = Arc::new(RequestOrder::new(server.hub().world().limits.requests));
        Self { server, outbox, caller, joined: Arc::default(), order }
    }

    pub(super) const fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    pub(super) const fn server(&self) -> &Arc<Server> {
        &self.server
    }

    pub(super) const fn order(&self) -> &Arc<RequestOrder> {
        &self.order
    }

    /// Answers a request that will not be handled.
    pub(super) fn interrupt(&self, pending: PendingRequest) {
        // Dropping the guard answers the request.
        drop(self.ticketed(pending));
    }

    /// Refuses a request because too many of the connection are unanswered.
    pub(super) fn refuse_excess(&self, request: Request, permit: RequestPermit) {
        let limit = self.server.hub().world().limits.requests;
        let (ticketed, _) = self.ticketed(PendingRequest { request, permit, command: None });
        ticketed.refuse(&excess(limit));
    }

    fn ticketed(&self, pending: PendingRequest) -> (Ticketed, Ask) {
        let PendingRequest { request: Request { request_id, kind_name, session, ask }, permit, command } =
            pending;
        let request = request_id.unwrap_or_else(mint::request);
        let (permit, outbox) = (Some(permit), Arc::clone(&self.outbox));
        (Ticketed { request, kind: kind_name, session, permit, outbox, _command: command }, ask)
    }

    /// Answers a request, or passes it to its session.
    pub(super) async fn handle(&self, pending: PendingRequest) {
        let (ticketed, ask) = self.ticketed(pending);
        match ask {
            Ask::Hello { .. } => ticketed.ok(&encode::hello(env!("CARGO_PKG_VERSION"))),
            Ask::Ping => ticketed.ok(&encode::pong(self.server.hub().world().clock.now())),
            Ask::StartSession(start) => self.start(*start, ticketed).await,
            Ask::ListSessions(query) => {
                ticketed.answer(reading::sessions(&self.server, &self.caller, &self.outbox, query).await);
            }
            Ask::ListApprovals { session } => {
                ticketed.answer(reading::approvals(&self.server, &self.caller, &self.outbox, session).await);
            }
            Ask::ListGrants => ticketed.answer(reading::grants(&self.server).await),
            Ask::RevokeGrant { id } => ticketed.answer(reading::revoke(&self.server, id).await),
            Ask::ListProviders => {
                ticketed.answer(self.server.provider_rows().await.map(|rows| encode::providers(&rows)));
            }
            Ask::Metrics { sandbox: false } => ticketed.ok(&encode::metrics(&self.server.metrics())),
            Ask::Metrics { sandbox: true } => {
                let walls = self.server.walls().await;
                let metrics = |walls| Metrics { sandbox: Some(walls), ..self.server.metrics() };
                ticketed.answer(walls.map(|walls| encode::metrics(&metrics(walls))));
            }
            Ask::Reload => self.reload(ticketed),
            // The connection handles this request itself and never passes it on.
            Ask::Speak(_) => ticketed.refuse(&trouble(&Trouble::Interrupted)),
            Ask::CheckJournal { full } => self.check_journal(full, ticketed),
            Ask::Drain { grace_ms } => {
                self.server.drain(grace_ms);
                ticketed.ok(&encode::draining());
            }
            Ask::Session { id, ask } => self.session(id, ask, ticketed).await,
        }
    }

    fn joined(&self) -> MutexGuard<'_, Subscriptions> {
        lock(&self.joined)
    }

    async fn start(&self, start: StartSession, mut ticketed: Ticketed) {
        if self.server.hub().is_draining() {
            return ticketed.refuse(&stopping());
        }
        if let Some(refused) = self.server.unable_to_keep() {
            return ticketed.refuse(&trouble(&refused));
        }
        match self.server.start_session(&start).await {
            Err(body) => ticketed.refuse(&body),
            Ok(started) => {
                ticketed.session = Some(started.id.clone());
                let environment = start.environment.clone();
                let command = match started.repetition {
                    Repetition::First => Command::Open(Box::new(started.choice.opening(start))),
                    Repetition::Again => Command::Describe,
                };
                let context = Context::Started { token: started.token, _turn: started.turn };
                self.ask(Ok(started.lane), command, environment, context, ticketed).await;
            }
        }
    }

    async fn session(&self, id: SessionId, ask: SessionAsk, ticketed: Ticketed) {
        if let SessionAsk::Delete { dry_run, with_pi_files } = ask {
            let deletion = Deletion { dry_run, with_pi_files };
            return self.delete(id, deletion, ticketed);
        }
        if let SessionAsk::Messages { after, limit } = ask {
            return ticketed.answer(reading::messages(&self.server, &id, after, limit).await);
        }
        let begins = matches!(ask, SessionAsk::Prompt(_) | SessionAsk::Queue(_) | SessionAsk::Steer { .. });
        if begins && self.server.hub().is_draining() {
            return ticketed.refuse(&stopping());
        }
        let lane = match self.server.lane(&id).await {
            Ok(lane) => lane,
            Err(body) => return ticketed.refuse(&body),
        };
        if let SessionAsk::Attach(attach) = &ask
            && let Some(token) = &attach.token
            && let Err(body) = self.server.check_token(&lane, token.reveal())
        {
            return ticketed.refuse(&body);
        }
        if let SessionAsk::Prompt(prompt) | SessionAsk::Queue(prompt) = &ask
            && let Some(problem) = wrong_rule(&prompt.rules)
        {
            let message = format!("payload.rules: {problem}");
            return ticketed.refuse(&ErrorBody::lasting(Code::InvalidRequest, message));
        }
        let (command, environment, context) = command(ask);
        self.ask(Ok(lane), command, environment, context, ticketed).await;
    }

    /// Deletes a session in a task of its own, so that later requests of the connection do not wait for it.
    fn delete(&self, id: SessionId, deletion: Deletion, ticketed: Ticketed) {
        let (server, by) = (Arc::clone(&self.server), self.caller.source.clone());
        tokio::spawn(async move { ticketed.answer(tending::delete(&server, &id, &by, deletion).await) });
    }

    /// Captures the environment of the login shell again, in a task of its own.
    fn reload(&self, ticketed: Ticketed) {
        let server = Arc::clone(&self.server);
        tokio::spawn(async move {
            let environment = server.hub().world().reload_login_environment().await;
            ticketed.ok(&encode::reloaded(environment.variables().len(), environment.warning()));
        });
    }

    /// Checks the journal in a task of its own, until the connection closes.
    fn check_journal(&self, full: bool, ticketed: Ticketed) {
        let (server, outbox) = (Arc::clone(&self.server), Arc::clone(&self.outbox));
        tokio::spawn(async move {
            ticketed.answer(tending::check(&server, full, || !outbox.is_closed()).await);
        });
    }

    /// Sends a command to its session; if the session was unloaded meanwhile it is loaded again.
    async fn ask(
        &self,
        lane: Result<LaneHandle, ErrorBody>,
        command: Command,
        environment: Option<Environment>,
        context: Context,
        ticketed: Ticketed,
    ) {
        let session = ticketed.session.clone();
        let leaves = matches!(command, Command::Detach);
        let left = session.clone().filter(|_| leaves).map(|session| {
            let as_of = self.joined().current(&session);
            (Arc::clone(&self.joined), session, as_of)
        });
        let respond = Respond::new(move |told| {
            if let (Some((joined, session, as_of)), Ok(Told { reply: Ok(_), .. })) = (left, &told) {
                lock(&joined).remove(&session, as_of);
            }
            let session = ticketed.session.clone();
            match (told.map(|told| told.reply), session) {
                (Ok(Ok(answer)), Some(session)) => ticketed.ok(&payload(&session, &answer, &context)),
                (Ok(Ok(_)), None) => ticketed.refuse(&trouble(&Trouble::Interrupted)),
                (Ok(Err(refused)), _) => ticketed.refuse(&error::refusal(refused)),
                (Err(failed), _) => ticketed.refuse(&trouble(&failed)),
            }
        });
        let joins = matches!(
            command,
            Command::Open(_) | Command::Prompt(_) | Command::Attach { .. } | Command::Resume { .. }
        );
        let (caller, outbox) = (self.caller.clone(), Arc::clone(&self.outbox));
        let mut asked = Box::new(Asked { caller, command, if_version: None, respond, outbox, environment });
        let mut lane = lane;
        for _ in 0..REVIVALS {
            let Ok(open) = &lane else { break };
            if joins {
                self.joined().add(open.id(), |session| self.server.hub().holds(session));
            }
            match (open.ask(asked), &session) {
                (Err(LaneOver(back)), Some(session)) => {
                    asked = back;
                    lane = self.server.lane(session).await;
                }
                (Ok(()), _) | (Err(_), None) => return,
            }
        }
    }
}

impl Drop for Desk {
    /// Tells every subscribed session that the connection is closed, also after a request has panicked.
    fn drop(&mut self) {
        self.outbox.close();
        for session in self.joined().take() {
            self.server.hub().gone(&session, self.outbox.id());
        }
    }
}

fn lock(joined: &Mutex<Subscriptions>) -> MutexGuard<'_, Subscriptions> {
    joined.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often a command follows a session that is unloaded while the command is on its way.
const REVIVALS: usize = 8;

/// What a response needs besides the answer of the session.
enum Context {
    Plain,
    Started {
        token: String,
        /// Released when the response is queued, when the session is on disk.
        _turn: Option<OwnedMutexGuard<()>>,
    },
    Queued {
        message: MessageId,
    },
}

fn payload(session: &SessionId, answer: &Answer, context: &Context) -> Payload {
    match (answer, context) {
        (Answer::Opened(phase), Context::Started { token, .. }) => {
            encode::started(session, *phase, token, Repetition::First)
        }
        (Answer::Described(snapshot), Context::Started { token, .. }) => {
            encode::started(session, snapshot.phase, token, Repetition::Again)
        }
        (Answer::Queued { run, ahead }, Context::Queued { message }) => encode::queued(message, run, *ahead),
        (Answer::Prompted { run, repeated }, _) => encode::prompted(run, *repeated),
        (Answer::Queue(waiting), _) => encode::queue(waiting),
        (Answer::Steered(run), _) => encode::steered(run),
        (Answer::Attached { phase, replay }, _) => encode::attached(session, *phase, *replay),
        (Answer::Described(snapshot), _) => encode::snapshot_payload(snapshot),
        (Answer::Unqueued, _) => encode::unqueued(),
        (Answer::Detached, _) => encode::detached(),
        (Answer::Renamed, _) => encode::renamed(),
        (Answer::Ended, _) => encode::ended(),
        (Answer::CompactionBegan(began), _) => encode::compacting(*began),
        (
            Answer::Gates { .. }
            | Answer::Decided
            | Answer::Cancelling
            | Answer::Opened(_)
            | Answer::Queued { .. }
            | Answer::Touched
            | Answer::Loaded
            | Answer::Adjusted
            | Answer::AsideBegan(_)
            | Answer::StoppingAside
            | Answer::CompactionStopped
            | Answer::RetryStopped
            | Answer::Branched
            | Answer::Imported,
            _,
        ) => encode::accepted(),
    }
}

fn command(ask: SessionAsk) -> (Command, Option<Environment>, Context) {
    match ask {
        SessionAsk::Attach(attach) => {
            let rights = if attach.read_only { Rights::NONE } else { Rights::ALL };
            let command = match attach.summary {
                Summary::AfterGap => Command::Attach { seen: attach.seen, rights },
                Summary::Always => Command::Resume { seen: attach.seen, rights },
            };
            (command, attach.environment, Context::Plain)
        }
        SessionAsk::Detach => (Command::Detach, None, Context::Plain),
        SessionAsk::Prompt(asked) => {
            let (prompt, environment) = prompt(*asked);
            (Command::Prompt(Box::new(prompt)), environment, Context::Plain)
        }
        SessionAsk::Queue(asked) => {
            let (prompt, environment) = prompt(*asked);
            let context = Context::Queued { message: prompt.message.clone() };
            (Command::Queue(Box::new(prompt)), environment, context)
        }
        SessionAsk::Steer { message, text, images } => {
            let fingerprint =
                mint::fingerprint(["steer", &text].into_iter().chain(fingerprints::pictures(&images)));
            let message = message.unwrap_or_else(mint::message);
            let steer = Steer { message, text, images, fingerprint };
            (Command::Steer(Box::new(steer)), None, Context::Plain)
        }
        SessionAsk::Decide(asked) => {
            let decide = Decide {
                gate: asked.gate,
                run: asked.run,
                decision: asked.decision,
                choice: asked.choice,
                comment: asked.comment,
                lasting: asked.lasting,
                answer: asked.answer,
            };
            (Command::Decide(Box::new(decide)), asked.environment, Context::Plain)
        }
        SessionAsk::ListQueue => (Command::ListQueue, None, Context::Plain),
        SessionAsk::Unqueue { message } => (Command::Unqueue { message }, None, Context::Plain),
        SessionAsk::Cancel { run, reason } => (Command::Cancel { run, reason }, None, Context::Plain),
        SessionAsk::Rename { name } => (Command::Rename { name }, None, Context::Plain),
        SessionAsk::End => (Command::End, None, Context::Plain),
        SessionAsk::Compact { instructions, environment } => {
            (Command::Compact { instructions }, environment, Context::Plain)
        }
        // Messages are read from the journal, and deletions are handled above.
        SessionAsk::Snapshot | SessionAsk::Messages { .. } | SessionAsk::Delete { .. } => {
            (Command::Describe, None, Context::Plain)
        }
    }
}

fn prompt(asked: crate::protocol::push::decode::Prompt) -> (Prompt, Option<Environment>) {
    let limits = (asked.time_limit, asked.budget);
    let fingerprint =
        fingerprints::message(&asked.text, &asked.criteria, &asked.images, limits, &asked.rules);
    let message = asked.message.unwrap_or_else(mint::message);
    let prompt = Prompt {
        run: mint::run(),
        message,
        text: asked.text,
        images: asked.images,
        criteria: asked.criteria,
        time_limit: asked.time_limit,
        budget: asked.budget,
        rules: asked.rules,
        // The lane sets it.
        needs_environment: false,
        fingerprint,
    };
    (prompt, asked.environment)
}

pub(super) fn trouble(trouble: &Trouble) -> ErrorBody {
    let message = trouble.to_string();
    match trouble {
        Trouble::Full => ErrorBody::passing(Code::StorageFull, message),
        Trouble::Failed | Trouble::Unsure | Trouble::Damaged => {
            ErrorBody::lasting(Code::StorageFailed, message)
        }
        Trouble::Storage(_) | Trouble::Interrupted | Trouble::Busy => {
            ErrorBody::passing(Code::InternalError, message)
        }
    }
}

/// Returns the error of the first invalid rule.
fn wrong_rule(rules: &[String]) -> Option<RuleError> {
    rules.iter().filter(|rule| !is_approval_policy(rule)).find_map(|rule| rule.parse::<Rule>().err())
}

pub(super) fn stopping() -> ErrorBody {
    ErrorBody::passing(
        Code::InternalError,
        "the daemon is stopping and accepts no new work; try again in a moment",
    )
}
