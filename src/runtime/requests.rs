//! The request handler of one connection: it answers requests itself or passes them to their session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::access::SessionAccess;
use super::approval_wait::ApprovalWait;
use super::commands::{CommandService, Peer};
use super::forks;
use super::generate;
use super::lane::{self, LaneClosed, LaneError, LaneHandle, LaneReply, LaneRequest, ReplyGuard};
use super::maintenance::{self, DeleteOptions};
use super::outbox::{Outbox, OutboxItem, RequestPermit};
use super::protocols::Endpoint;
use super::queries;
use super::request_order::{CommandGuard, PendingRequest, RequestOrder, too_many_requests};
use super::searches;
use super::server::{Server, lane_error, stopping_error};
use super::session_commands::{ReplyContext, normalize_rules, to_command, to_reply};
use super::session_files;
use super::subscriptions::Subscriptions;
use crate::kernel::command::{Answer, Command, Repetition};
use crate::kernel::environment::Environment;
use crate::kernel::id::SessionId;
use crate::protocol::Protocol;
use crate::protocol::error::{self, Code, ErrorBody};
use crate::protocol::intent::{
    Fork, Intent, Malformed, ParticipantIntent, Request, RequestTag, SessionIntent, StartSession,
};
use crate::protocol::operation::CommandRequest;
use crate::protocol::reply::{Completion, Metrics, Reply};
use crate::provider::Starter;

/// The source name of clients at the local socket, as decisions show it.
const CLI_SOURCE: &str = "cli";
/// The source name of clients on the network.
const APP_SOURCE: &str = "app";

/// Handles the requests of one connection.
pub(super) struct RequestHandler {
    server: Arc<Server>,
    protocol: Arc<dyn Protocol>,
    /// The command service, if the requests of the protocol are commands.
    commands: Option<Arc<CommandService>>,
    peer: Arc<Peer>,
    outbox: Arc<Outbox>,
    access: Arc<SessionAccess>,
    /// The sessions that this connection may be subscribed to.
    subscriptions: Arc<Mutex<Subscriptions>>,
    /// The queues of requests that are not handled yet.
    request_order: Arc<RequestOrder>,
    approval_wait: ApprovalWait,
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
    pub(super) fn new(server: Arc<Server>, endpoint: &Endpoint, peer: Arc<Peer>, outbox: Arc<Outbox>) -> Self {
        let (protocol, commands) = (Arc::clone(&endpoint.protocol), endpoint.commands.clone());
        let source = if peer.is_remote() { APP_SOURCE } else { CLI_SOURCE };
        let needs_token = peer.is_remote() && protocol.needs_attach_tokens();
        let access = Arc::new(SessionAccess::new(peer.identity().clone(), outbox.id(), source, needs_token));
        let request_order = Arc::new(RequestOrder::new(server.hub().services().limits.pending_requests));
        let subscriptions = Arc::default();
        let approval_wait = ApprovalWait::new();
        Self { server, protocol, commands, peer, outbox, access, subscriptions, request_order, approval_wait }
    }

    pub(super) const fn server(&self) -> &Arc<Server> {
        &self.server
    }

    pub(super) const fn request_order(&self) -> &Arc<RequestOrder> {
        &self.request_order
    }

    /// Returns whether the connection is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.outbox.is_closed()
    }

    /// Ends requests that wait for a change, because the peer sends no more requests.
    pub(super) fn end_waits(&self) {
        self.approval_wait.end();
    }

    /// Submits a command to the command log.
    pub(super) fn submit(&self, tag: RequestTag, command: CommandRequest) {
        match &self.commands {
            Some(commands) => commands.submit(tag, command, Arc::clone(&self.peer), Arc::clone(&self.outbox)),
            None => {
                let refusal = ErrorBody::permanent(Code::InternalError, "the protocol has no command log");
                let mut frames = Vec::new();
                self.protocol.reply(&self.with_id(tag), Err(&refusal), &mut frames);
                self.outbox.push(OutboxItem::Frames { bytes: frames, permit: None });
            }
        }
    }

    /// Counts a frame over the size limit.
    pub(super) fn count_oversized(&self) {
        if let Some(commands) = &self.commands {
            commands.metrics().too_long();
        }
    }

    /// Waits until the commands of the connection are answered, or it is closed.
    pub(super) async fn wait_for_commands(&self) {
        if let Some(commands) = &self.commands {
            commands.all_answered(&self.outbox).await;
        }
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
        self.protocol.reply(&self.with_id(tag), Ok(&Reply::Done(Completion::ProtocolSwitched)), &mut frames);
        frames
    }

    fn response_guard(&self, pending: PendingRequest) -> (ResponseGuard, Intent) {
        let PendingRequest { request: Request { tag, intent }, permit, command } = pending;
        (self.respond(tag, permit, command), intent)
    }

    fn respond(&self, tag: RequestTag, permit: RequestPermit, command: Option<CommandGuard>) -> ResponseGuard {
        let (protocol, outbox) = (Arc::clone(&self.protocol), Arc::clone(&self.outbox));
        ResponseGuard { tag: self.with_id(tag), permit: Some(permit), protocol, outbox, _command: command }
    }

    /// Gives a request that was sent without an id one to answer under, if the protocol needs it.
    fn with_id(&self, mut tag: RequestTag) -> RequestTag {
        if tag.request_id.is_none() && self.protocol.needs_request_ids() {
            tag.request_id = Some(generate::request());
        }
        tag
    }

    /// Answers a request, or passes it to its session.
    pub(super) async fn handle(&self, pending: PendingRequest) {
        let (response, intent) = self.response_guard(pending);
        if self.peer.is_remote() && matches!(intent, Intent::Drain { .. } | Intent::Reload) {
            let message = "only a client at the local socket may stop the daemon or reload the login environment";
            return response.send_error(&ErrorBody::permanent(Code::AttachForbidden, message));
        }
        if let Err(body) = self.access.check_intent(&intent) {
            return response.send_error(&body);
        }
        let (caller, is_visible) = (self.access.caller(), |session: &SessionId| self.access.lists(session));
        match intent {
            Intent::Hello { .. } => {
                let home = session_files::home().into_os_string().into_string().ok();
                response.send_ok(&Reply::Hello { version: env!("CARGO_PKG_VERSION"), home });
            }
            Intent::Ping => response.send_ok(&Reply::Pong(self.server.hub().services().clock.now())),
            Intent::StartSession(start) => self.start_session(*start, response).await,
            Intent::ListSessions(query) => {
                let listed = queries::sessions(&self.server, caller, &self.outbox, query, is_visible).await;
                response.send_result(listed);
            }
            Intent::ListApprovals { session, known } => {
                let revision = match known {
                    // Dropping the guard answers the request.
                    Some(known) => match self.approval_wait.changed(&self.server, known).await {
                        None => return,
                        changed @ Some(_) => changed,
                    },
                    None => None,
                };
                let listed = queries::approvals(&self.server, caller, &self.outbox, session, is_visible).await;
                response.send_result(listed.map(|pending| Reply::Approvals { pending, revision }));
            }
            Intent::Search(search) => {
                response.send_result(searches::search(&self.server, *search, is_visible).await);
            }
            Intent::Stats(query) => response.send_result(searches::stats(&self.server, query, is_visible).await),
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
            // The connection handles these requests itself and never passes them on.
            Intent::SwitchProtocol(_) | Intent::Command(_) => response.send_error(&lane_error(&LaneError::Interrupted)),
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

    async fn start_session(&self, mut start: StartSession, mut response: ResponseGuard) {
        if self.server.hub().is_draining() {
            return response.send_error(&stopping_error());
        }
        if let Some(refused) = self.server.storage_error() {
            return response.send_error(&lane_error(&refused));
        }
        start.idempotency_key = start.idempotency_key.map(|key| self.peer.identity().scoped_key(key));
        match self.server.start_session(&start).await {
            Err(body) => response.send_error(&body),
            Ok((started, choice)) => {
                self.access.grant(&started.id);
                response.tag.session = Some(started.id.clone());
                let environment = start.environment.clone();
                let command = match started.repetition {
                    Repetition::First => Command::Open(Box::new(choice.into_opening(start))),
                    Repetition::Repeated => Command::Describe,
                };
                let context = ReplyContext::Started { token: started.token, _start_guard: started.start_guard };
                self.send_command(Ok(started.lane), command, environment, context, response).await;
            }
        }
    }

    async fn handle_session_request(&self, id: SessionId, mut intent: SessionIntent, response: ResponseGuard) {
        let presents_token = matches!(&intent, SessionIntent::Attach(attach) if attach.token.is_some());
        if let Some(body) = self.access.check(&id).err().filter(|_| !presents_token) {
            return response.send_error(&body);
        }
        if let SessionIntent::Delete { dry_run, with_imported_files } = intent {
            let deletion = DeleteOptions { dry_run, with_imported_files };
            return self.delete(id, deletion, response);
        }
        if let SessionIntent::Messages { after, limit } = intent {
            return response
                .send_result(queries::messages(&self.server, &self.access.caller_in(&id), &id, after, limit).await);
        }
        if let SessionIntent::Fork(fork) = intent {
            return self.fork(&id, &fork, response).await;
        }
        let begins = matches!(
            intent,
            SessionIntent::Prompt(_)
                | SessionIntent::Queue(_)
                | SessionIntent::Steer { .. }
                | SessionIntent::UserCommand(_)
        );
        if begins && self.server.hub().is_draining() {
            return response.send_error(&stopping_error());
        }
        let lane = match self.server.lane(&id).await {
            Ok(lane) => lane,
            Err(body) => return response.send_error(&body),
        };
        if let SessionIntent::Attach(attach) = &intent
            && let Some(token) = &attach.token
        {
            if let Err(body) = self.server.check_token(&lane, token.reveal()) {
                return response.send_error(&body);
            }
            self.access.grant(&id);
        }
        if let Err(problem) = normalize_rules(&mut intent) {
            return response.send_error(&ErrorBody::permanent(Code::InvalidRequest, problem));
        }
        if let SessionIntent::UserCommand(request) = &intent
            && let Err(body) = self.check_user_command(&lane, &request.command).await
        {
            return response.send_error(&body);
        }
        if let SessionIntent::Participant(ParticipantIntent::Join(join)) = &mut intent
            && let Err(body) = self.access.prepare_join(&id, join)
        {
            return response.send_error(&body);
        }
        let (command, environment, context) = to_command(intent, self.peer.identity().authentication());
        self.send_command(Ok(lane), command, environment, context, response).await;
    }

    /// Forks a session; the reply is that of a started session.
    async fn fork(&self, parent: &SessionId, fork: &Fork, mut response: ResponseGuard) {
        let fork = Fork {
            idempotency_key: fork.idempotency_key.clone().map(|key| self.peer.identity().scoped_key(key)),
            ..fork.clone()
        };
        match forks::fork(&self.server, &self.access.caller_in(parent), &self.outbox, parent, &fork).await {
            Err(body) => response.send_error(&body),
            Ok((started, command)) => {
                self.access.grant(&started.id);
                response.tag.session = Some(started.id.clone());
                let context = ReplyContext::Started { token: started.token, _start_guard: started.start_guard };
                self.send_command(Ok(started.lane), command, None, context, response).await;
            }
        }
    }

    /// Refuses a command of the user that the rules of its session do not allow.
    async fn check_user_command(&self, lane: &LaneHandle, command: &str) -> Result<(), ErrorBody> {
        let described =
            queries::query_lane(lane, &self.access.caller_in(lane.id()), &self.outbox, Command::Describe).await;
        let Some(Answer::Described(snapshot)) = described else { return Err(lane_error(&LaneError::Interrupted)) };
        let services = self.server.hub().services();
        let checked = lane::check_user_command(services, &snapshot, &session_files::home(), command).await;
        checked.map_err(|why| ErrorBody::permanent(Code::InvalidRequest, why))
    }

    /// Deletes a session in a task of its own, so that later requests of the connection do not wait for it.
    fn delete(&self, id: SessionId, deletion: DeleteOptions, response: ResponseGuard) {
        let (server, by) = (Arc::clone(&self.server), self.access.caller().source.clone());
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
        mut lane: Result<LaneHandle, ErrorBody>,
        command: Command,
        environment: Option<Environment>,
        context: ReplyContext,
        response: ResponseGuard,
    ) {
        let session = response.tag.session.clone();
        let caller = self.access.sender(&command, session.as_ref());
        let (access, joins) = (Arc::clone(&self.access), matches!(command, Command::Join(_)));
        let joins = session.clone().filter(|_| joins);
        let left = session.clone().filter(|_| matches!(command, Command::Detach)).map(|session| {
            let as_of = self.subscriptions().generation(&session);
            (Arc::clone(&self.subscriptions), session, as_of)
        });
        let respond = ReplyGuard::new(move |reply| {
            if let (Some((subscriptions, session, as_of)), Ok(LaneReply { result: Ok(_), .. })) = (left, &reply) {
                lock_subscriptions(&subscriptions).remove(&session, as_of);
            }
            if let (Some(session), Ok(LaneReply { result: Err(_), .. }) | Err(_)) = (joins, &reply) {
                access.undo_join(&session);
            }
            let session = response.tag.session.clone();
            match (reply.map(|reply| reply.result), session) {
                (Ok(Ok(answer)), Some(session)) => response.send_ok(&to_reply(session, answer, context)),
                (Ok(Ok(_)), None) => response.send_error(&lane_error(&LaneError::Interrupted)),
                (Ok(Err(refused)), _) => response.send_error(&error::from_refusal(refused)),
                (Err(failed), _) => response.send_error(&lane_error(&failed)),
            }
        });
        let policy = command.policy();
        let environment =
            self.peer.environment(environment, policy.needs_environment, self.server.hub().services()).await;
        let outbox = Arc::clone(&self.outbox);
        let (if_version, starter) = (None, if self.peer.is_remote() { Starter::Program } else { Starter::Person });
        let mut request = Box::new(LaneRequest {
            caller,
            command,
            if_version,
            starter,
            reply_guard: respond,
            outbox,
            environment,
            part: None,
        });
        for _ in 0..MAX_RELOADS {
            let Ok(open) = &lane else { break };
            if policy.subscribes {
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
    /// Notifies every subscribed session that the connection is closed, also after a request has panicked.
    fn drop(&mut self) {
        self.outbox.close();
        if let Some(commands) = &self.commands {
            commands.disconnect(&self.outbox);
        }
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
