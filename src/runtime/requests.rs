//! The request handler of one connection: it answers requests itself or passes them to their session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

use super::fingerprints;
use super::generate;
use super::lane::{LaneClosed, LaneError, LaneHandle, LaneReply, LaneRequest, ReplyGuard};
use super::maintenance::{self, DeleteOptions};
use super::outbox::{Outbox, OutboxItem, RequestPermit};
use super::queries;
use super::request_order::{CommandGuard, PendingRequest, RequestOrder, too_many_requests};
use super::server::{Server, lane_error, stopping_error};
use super::subscriptions::Subscriptions;
use crate::config::settings::rule::{Rule, RuleError};
use crate::kernel::command::{Answer, Caller, Command, GateVote, Prompt, Repetition, Rights, Steer};
use crate::kernel::environment::Environment;
use crate::kernel::gate::is_approval_policy;
use crate::kernel::id::{MessageId, SessionId};
use crate::protocol::Protocol;
use crate::protocol::error::{self, Code, ErrorBody};
use crate::protocol::intent::{
    self, Intent, Malformed, Request, RequestTag, SessionIntent, SnapshotMode, StartSession,
};
use crate::protocol::reply::{Completion, Metrics, Reply};
use crate::provider::Starter;

/// The source name of clients at the local socket, as decisions show it.
const CLI_SOURCE: &str = "cli";

/// Handles the requests of one connection.
pub(super) struct RequestHandler {
    server: Arc<Server>,
    protocol: Arc<dyn Protocol>,
    outbox: Arc<Outbox>,
    caller: Caller,
    /// The sessions that this connection may be subscribed to.
    subscriptions: Arc<Mutex<Subscriptions>>,
    /// The queues of requests that are not handled yet.
    request_order: Arc<RequestOrder>,
}

/// The obligation to answer a request: if it is dropped unanswered it answers `Interrupted`.
pub(super) struct ResponseGuard {
    tag: RequestTag,
    /// The permit of the request; `None` once it is answered.
    permit: Option<RequestPermit>,
    protocol: Arc<dyn Protocol>,
    outbox: Arc<Outbox>,
    /// Blocks later queries until it is dropped, after the response is queued.
    _command: Option<CommandGuard>,
}

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        if self.permit.is_some() {
            self.push(Err(&lane_error(&LaneError::Interrupted)));
        }
    }
}

impl ResponseGuard {
    fn send_ok(mut self, reply: &Reply) {
        self.push(Ok(reply));
    }

    fn send_error(mut self, body: &ErrorBody) {
        self.push(Err(body));
    }

    fn send_result(mut self, result: Result<Reply, ErrorBody>) {
        self.push(result.as_ref());
    }

    fn push(&mut self, result: Result<&Reply, &ErrorBody>) {
        let mut frames = Vec::new();
        self.protocol.reply(&self.tag, result, &mut frames);
        self.outbox.push(OutboxItem::Frames { bytes: frames, permit: self.permit.take() });
    }
}

impl RequestHandler {
    pub(super) fn new(server: Arc<Server>, protocol: Arc<dyn Protocol>, outbox: Arc<Outbox>) -> Self {
        // Clients at the local socket are its owner.
        let caller = Caller { id: outbox.id(), source: CLI_SOURCE.to_owned(), rights: Rights::ALL };
        let request_order = Arc::new(RequestOrder::new(server.hub().services().limits.pending_requests));
        Self { server, protocol, outbox, caller, subscriptions: Arc::default(), request_order }
    }

    pub(super) const fn server(&self) -> &Arc<Server> {
        &self.server
    }

    pub(super) const fn request_order(&self) -> &Arc<RequestOrder> {
        &self.request_order
    }

    /// Answers a request that will not be handled.
    pub(super) fn interrupt(&self, pending: PendingRequest) {
        // Dropping the guard answers the request.
        drop(self.response_guard(pending));
    }

    /// Refuses a request because too many of the connection are unanswered.
    pub(super) fn refuse_excess(&self, tag: RequestTag, permit: RequestPermit) {
        let limit = self.server.hub().services().limits.pending_requests;
        self.respond(tag, permit, None).send_error(&too_many_requests(limit));
    }

    /// Refuses a frame that is not a request.
    pub(super) fn refuse_malformed(&self, malformed: Malformed, permit: RequestPermit) {
        self.respond(malformed.tag, permit, None).send_error(&malformed.error);
    }

    /// Returns the frames of the reply to a switch of the protocol.
    pub(super) fn protocol_switched(&self, tag: RequestTag) -> Vec<u8> {
        let mut frames = Vec::new();
        self.protocol.reply(&with_id(tag), Ok(&Reply::Done(Completion::ProtocolSwitched)), &mut frames);
        frames
    }

    fn response_guard(&self, pending: PendingRequest) -> (ResponseGuard, Intent) {
        let PendingRequest { request: Request { tag, intent }, permit, command } = pending;
        (self.respond(tag, permit, command), intent)
    }

    fn respond(&self, tag: RequestTag, permit: RequestPermit, command: Option<CommandGuard>) -> ResponseGuard {
        let (protocol, outbox) = (Arc::clone(&self.protocol), Arc::clone(&self.outbox));
        ResponseGuard { tag: with_id(tag), permit: Some(permit), protocol, outbox, _command: command }
    }

    /// Answers a request, or passes it to its session.
    pub(super) async fn handle(&self, pending: PendingRequest) {
        let (response, intent) = self.response_guard(pending);
        match intent {
            Intent::Hello { .. } => response.send_ok(&Reply::Hello { version: env!("CARGO_PKG_VERSION") }),
            Intent::Ping => response.send_ok(&Reply::Pong(self.server.hub().services().clock.now())),
            Intent::StartSession(start) => self.start_session(*start, response).await,
            Intent::ListSessions(query) => {
                response.send_result(queries::sessions(&self.server, &self.caller, &self.outbox, query).await);
            }
            Intent::ListApprovals { session } => {
                response.send_result(queries::approvals(&self.server, &self.caller, &self.outbox, session).await);
            }
            Intent::ListGrants => response.send_result(queries::grants(&self.server).await),
            Intent::RevokeGrant { id } => response.send_result(queries::revoke(&self.server, id).await),
            Intent::ListProviders => {
                response.send_result(self.server.provider_rows().await.map(Reply::Providers));
            }
            Intent::Metrics { sandbox: false } => response.send_ok(&Reply::Metrics(Box::new(self.server.metrics()))),
            Intent::Metrics { sandbox: true } => {
                let confinement = self.server.describe_confinement().await;
                let metrics = |confinement| Metrics { sandbox: Some(confinement), ..self.server.metrics() };
                response.send_result(confinement.map(|confinement| Reply::Metrics(Box::new(metrics(confinement)))));
            }
            Intent::Reload => self.reload(response),
            // The connection handles this request itself and never passes it on.
            Intent::SwitchProtocol(_) => response.send_error(&lane_error(&LaneError::Interrupted)),
            Intent::CheckJournal { full } => self.check_journal(full, response),
            Intent::Drain { grace_ms } => {
                self.server.drain(grace_ms);
                response.send_ok(&Reply::Done(Completion::Draining));
            }
            Intent::Session { id, body } => self.handle_session_request(id, body, response).await,
        }
    }

    fn subscriptions(&self) -> MutexGuard<'_, Subscriptions> {
        lock_subscriptions(&self.subscriptions)
    }

    async fn start_session(&self, start: StartSession, mut response: ResponseGuard) {
        if self.server.hub().is_draining() {
            return response.send_error(&stopping_error());
        }
        if let Some(refused) = self.server.storage_error() {
            return response.send_error(&lane_error(&refused));
        }
        match self.server.start_session(&start).await {
            Err(body) => response.send_error(&body),
            Ok(started) => {
                response.tag.session = Some(started.id.clone());
                let environment = start.environment.clone();
                let command = match started.repetition {
                    Repetition::First => Command::Open(Box::new(started.choice.into_opening(start))),
                    Repetition::Repeated => Command::Describe,
                };
                let context = ReplyContext::Started { token: started.token, _start_guard: started.start_guard };
                self.send_command(Ok(started.lane), command, environment, context, response).await;
            }
        }
    }

    async fn handle_session_request(&self, id: SessionId, intent: SessionIntent, response: ResponseGuard) {
        if let SessionIntent::Delete { dry_run, with_pi_files } = intent {
            let deletion = DeleteOptions { dry_run, with_pi_files };
            return self.delete(id, deletion, response);
        }
        if let SessionIntent::Messages { after, limit } = intent {
            return response.send_result(queries::messages(&self.server, &id, after, limit).await);
        }
        let begins = matches!(intent, SessionIntent::Prompt(_) | SessionIntent::Queue(_) | SessionIntent::Steer { .. });
        if begins && self.server.hub().is_draining() {
            return response.send_error(&stopping_error());
        }
        let lane = match self.server.lane(&id).await {
            Ok(lane) => lane,
            Err(body) => return response.send_error(&body),
        };
        if let SessionIntent::Attach(attach) = &intent
            && let Some(token) = &attach.token
            && let Err(body) = self.server.check_token(&lane, token.reveal())
        {
            return response.send_error(&body);
        }
        if let SessionIntent::Prompt(prompt) | SessionIntent::Queue(prompt) = &intent
            && let Some(problem) = invalid_rule(&prompt.rules)
        {
            let message = format!("payload.rules: {problem}");
            return response.send_error(&ErrorBody::permanent(Code::InvalidRequest, message));
        }
        let (command, environment, context) = to_command(intent);
        self.send_command(Ok(lane), command, environment, context, response).await;
    }

    /// Deletes a session in a task of its own, so that later requests of the connection do not wait for it.
    fn delete(&self, id: SessionId, deletion: DeleteOptions, response: ResponseGuard) {
        let (server, by) = (Arc::clone(&self.server), self.caller.source.clone());
        tokio::spawn(async move { response.send_result(maintenance::delete(&server, &id, &by, deletion).await) });
    }

    /// Captures the environment of the login shell again, in a task of its own.
    fn reload(&self, response: ResponseGuard) {
        let server = Arc::clone(&self.server);
        tokio::spawn(async move {
            let environment = server.hub().services().reload_login_environment().await;
            let (variables, warning) = (environment.variables().len(), environment.warning().map(str::to_owned));
            response.send_ok(&Reply::Reloaded { variables, warning });
        });
    }

    /// Checks the journal in a task of its own, until the connection closes.
    fn check_journal(&self, full: bool, response: ResponseGuard) {
        let (server, outbox) = (Arc::clone(&self.server), Arc::clone(&self.outbox));
        tokio::spawn(async move {
            response.send_result(maintenance::check(&server, full, || !outbox.is_closed()).await);
        });
    }

    /// Sends a command to its session; if the session was unloaded meanwhile it is loaded again.
    async fn send_command(
        &self,
        lane: Result<LaneHandle, ErrorBody>,
        command: Command,
        environment: Option<Environment>,
        context: ReplyContext,
        response: ResponseGuard,
    ) {
        let session = response.tag.session.clone();
        let leaves = matches!(command, Command::Detach);
        let left = session.clone().filter(|_| leaves).map(|session| {
            let as_of = self.subscriptions().generation(&session);
            (Arc::clone(&self.subscriptions), session, as_of)
        });
        let respond = ReplyGuard::new(move |reply| {
            if let (Some((subscriptions, session, as_of)), Ok(LaneReply { result: Ok(_), .. })) = (left, &reply) {
                lock_subscriptions(&subscriptions).remove(&session, as_of);
            }
            let session = response.tag.session.clone();
            match (reply.map(|reply| reply.result), session) {
                (Ok(Ok(answer)), Some(session)) => response.send_ok(&to_reply(session, answer, context)),
                (Ok(Ok(_)), None) => response.send_error(&lane_error(&LaneError::Interrupted)),
                (Ok(Err(refused)), _) => response.send_error(&error::from_refusal(refused)),
                (Err(failed), _) => response.send_error(&lane_error(&failed)),
            }
        });
        let joins =
            matches!(command, Command::Open(_) | Command::Prompt(_) | Command::Attach { .. } | Command::Resume { .. });
        let (caller, outbox) = (self.caller.clone(), Arc::clone(&self.outbox));
        let (if_version, starter) = (None, Starter::Person);
        let mut request =
            Box::new(LaneRequest { caller, command, if_version, starter, reply_guard: respond, outbox, environment });
        let mut lane = lane;
        for _ in 0..MAX_RELOADS {
            let Ok(open) = &lane else { break };
            if joins {
                self.subscriptions().add(open.id(), |session| self.server.hub().is_listed(session));
            }
            match (open.send_request(request), &session) {
                (Err(LaneClosed(back)), Some(session)) => {
                    request = back;
                    lane = self.server.lane(session).await;
                }
                (Ok(()), _) | (Err(_), None) => return,
            }
        }
    }
}

impl Drop for RequestHandler {
    /// Tells every subscribed session that the connection is closed, also after a request has panicked.
    fn drop(&mut self) {
        self.outbox.close();
        for session in self.subscriptions().take_all() {
            self.server.hub().disconnected(&session, self.outbox.id());
        }
    }
}

fn lock_subscriptions(subscriptions: &Mutex<Subscriptions>) -> MutexGuard<'_, Subscriptions> {
    subscriptions.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often a command follows a session that is unloaded while the command is on its way.
const MAX_RELOADS: usize = 8;

/// What a response needs besides the answer of the session.
enum ReplyContext {
    Plain,
    Started {
        token: String,
        /// Released when the response is queued, when the session is on disk.
        _start_guard: Option<OwnedMutexGuard<()>>,
    },
    Queued {
        message: MessageId,
    },
}

fn to_reply(session: SessionId, answer: Answer, context: ReplyContext) -> Reply {
    match (answer, context) {
        (Answer::Opened(phase), ReplyContext::Started { token, .. }) => {
            Reply::Started { session, phase, token, repetition: Repetition::First }
        }
        (Answer::Described(snapshot), ReplyContext::Started { token, .. }) => {
            Reply::Started { session, phase: snapshot.phase, token, repetition: Repetition::Repeated }
        }
        (Answer::Queued { run, position }, ReplyContext::Queued { message }) => {
            Reply::Queued { message, run, position }
        }
        (Answer::Prompted { run, repeated }, _) => Reply::Prompted { run, repetition: repeated },
        (Answer::Queue(waiting), _) => Reply::Queue(waiting),
        (Answer::Steered(run), _) => Reply::Steered(run),
        (Answer::Attached { phase, replay }, _) => Reply::Attached { session, phase, replay },
        (Answer::Described(snapshot), _) => Reply::Snapshot(snapshot),
        (Answer::Unqueued, _) => Reply::Done(Completion::Unqueued),
        (Answer::Detached, _) => Reply::Done(Completion::Detached),
        (Answer::Renamed, _) => Reply::Done(Completion::Renamed),
        (Answer::Ended, _) => Reply::Done(Completion::Ended),
        (Answer::CompactionStarted(began), _) => Reply::Compacting(began),
        (
            Answer::Gates { .. }
            | Answer::Decided
            | Answer::Cancelling
            | Answer::Opened(_)
            | Answer::Queued { .. }
            | Answer::VersionBumped
            | Answer::Loaded
            | Answer::Adjusted
            | Answer::UserCommandStarted(_)
            | Answer::StoppingUserCommand
            | Answer::CompactionStopped
            | Answer::RetryStopped
            | Answer::Branched
            | Answer::Imported,
            _,
        ) => Reply::Done(Completion::Accepted),
    }
}

/// Gives a request that was sent without an id one to answer under.
fn with_id(tag: RequestTag) -> RequestTag {
    RequestTag { request_id: Some(tag.request_id.unwrap_or_else(generate::request)), ..tag }
}

fn to_command(intent: SessionIntent) -> (Command, Option<Environment>, ReplyContext) {
    match intent {
        SessionIntent::Attach(attach) => {
            let rights = if attach.read_only { Rights::NONE } else { Rights::ALL };
            let command = match attach.snapshot {
                SnapshotMode::AfterGap => Command::Attach { seen: attach.seen, rights },
                SnapshotMode::Always => Command::Resume { seen: attach.seen, rights },
            };
            (command, attach.environment, ReplyContext::Plain)
        }
        SessionIntent::Detach => (Command::Detach, None, ReplyContext::Plain),
        SessionIntent::Prompt(request) => {
            let (prompt, environment) = to_prompt(*request);
            (Command::Prompt(Box::new(prompt)), environment, ReplyContext::Plain)
        }
        SessionIntent::Queue(request) => {
            let (prompt, environment) = to_prompt(*request);
            let context = ReplyContext::Queued { message: prompt.message.clone() };
            (Command::Queue(Box::new(prompt)), environment, context)
        }
        SessionIntent::Steer { message, text, images } => {
            let fingerprint =
                generate::fingerprint(["steer", &text].into_iter().chain(fingerprints::image_parts(&images)));
            let message = message.unwrap_or_else(generate::message);
            let steer = Steer { message, text, images, fingerprint };
            (Command::Steer(Box::new(steer)), None, ReplyContext::Plain)
        }
        SessionIntent::Decide(request) => {
            let decide = GateVote {
                gate: request.gate,
                run: request.run,
                decision: request.decision,
                choice: request.choice,
                comment: request.comment,
                scope: request.scope,
                answer: request.answer,
            };
            (Command::Decide(Box::new(decide)), request.environment, ReplyContext::Plain)
        }
        SessionIntent::ListQueue => (Command::ListQueue, None, ReplyContext::Plain),
        SessionIntent::Unqueue { message } => (Command::Unqueue { message }, None, ReplyContext::Plain),
        SessionIntent::Cancel { run, reason } => (Command::Cancel { run, reason }, None, ReplyContext::Plain),
        SessionIntent::Rename { name } => (Command::Rename { name }, None, ReplyContext::Plain),
        SessionIntent::End => (Command::End, None, ReplyContext::Plain),
        SessionIntent::Compact { instructions, environment } => {
            (Command::Compact { instructions }, environment, ReplyContext::Plain)
        }
        // Messages are read from the journal, and deletions are handled above.
        SessionIntent::Snapshot | SessionIntent::Messages { .. } | SessionIntent::Delete { .. } => {
            (Command::Describe, None, ReplyContext::Plain)
        }
    }
}

fn to_prompt(request: intent::Prompt) -> (Prompt, Option<Environment>) {
    let limits = (request.time_limit, request.budget);
    let fingerprint = fingerprints::message(&request.text, &request.criteria, &request.images, limits, &request.rules);
    let message = request.message.unwrap_or_else(generate::message);
    let prompt = Prompt {
        run: generate::run(),
        message,
        text: request.text,
        images: request.images,
        criteria: request.criteria,
        time_limit: request.time_limit,
        budget: request.budget,
        rules: request.rules,
        // The lane sets it.
        needs_environment: false,
        fingerprint,
    };
    (prompt, request.environment)
}

/// Returns the error of the first invalid rule.
fn invalid_rule(rules: &[String]) -> Option<RuleError> {
    rules.iter().filter(|rule| !is_approval_policy(rule)).find_map(|rule| rule.parse::<Rule>().err())
}
