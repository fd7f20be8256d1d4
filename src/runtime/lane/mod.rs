//! A lane: the task that owns one session, applies inputs in order and performs effects in order.
//!
//! At most one batch is in flight to the journal. The lane continues to apply inputs meanwhile; replies and events
//! are delivered in commit order. Control precedes commands, except for earlier ones of its own sender, and commands
//! precede reports of providers and tools. The lane never waits for a task that may be waiting for the lane.

mod batch;
mod call_policy;
mod conversation;
mod edited_grant;
mod effects;
mod execute;
mod inbox;
mod input;
mod model_turn;
mod panic_report;
mod published;
mod run_sandbox;
mod run_tasks;
mod storage;
mod subscribers;
mod tool_context;
mod unload;
mod unredacted;
mod user_command;
mod work_refusal;

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::oneshot;
use tracing::{debug, info};

use super::feed::{Block, Feed, Subscriber};
use super::fingerprints;
use super::outbox::Outbox;
use super::services::Services;
use crate::journal::{Batch, CommitError, Create};
use crate::kernel::command::{AccessKind, Command, Phase, Rights};
use crate::kernel::effect::{Effect, Report, Ticket};
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::session::{Input, Session};
use crate::provider::{ReportEnvelope, ReportOwner};
use batch::{AfterCommit, CheckpointPolicy, Delivery, PendingBatch};
use conversation::LaneConversation;
use inbox::Inbox;
use run_tasks::RunTasks;
use storage::{CommitState, StorageState};
use unload::IdleMemory;
use unredacted::Unredacted;

pub use batch::StoredBytes;
pub(in crate::runtime) use call_policy::check_user_command;
pub use input::{
    ChangePosition, CommandPart, LaneClosed, LaneError, LaneHandle, LaneInput, LaneReply, LaneRequest, ReplyGuard,
};
pub use storage::Integrity;
pub use unload::{DeleteReply, DeleteRequest, DeletionCause, LaneEnd, LaneExit};

/// How a lane starts.
#[derive(Debug)]
pub enum LaneStart {
    /// A new session, with the record that the journal stores first.
    New(Create),
    /// A session from the journal.
    Restored {
        /// The hash of the attach token.
        token_hash: [u8; 32],
        /// The subscribers of the failed lane that this one replaces.
        listeners: Vec<Subscriber>,
        /// Whether the session could be restored completely.
        integrity: Integrity,
        /// What was read to restore it.
        bytes: StoredBytes,
    },
}

/// The task of one session.
pub struct Lane {
    id: SessionId,
    session: Session,
    services: Arc<Services>,
    feed: Arc<Feed>,
    inbox: Inbox,
    handle: LaneHandle,
    /// Original values that must not be stored and are still needed.
    unredacted: Unredacted,
    /// The tasks of the active run.
    run_tasks: RunTasks,
    /// The conversation, while turns use it.
    conversation: LaneConversation,
    pending: PendingBatch,
    checkpoint_policy: CheckpointPolicy,
    /// Boxed, like everything that an idle session does not need.
    in_flight: Option<Box<InFlight>>,
    /// Whether events were appended to the write-ahead file since the journal was last told.
    has_appended: bool,
    storage: StorageState,
    idle_memory: IdleMemory,
    has_published_snapshot: bool,
    /// The end of the last reserved block of sequence numbers that is on disk.
    reserved_on_disk: Seq,
    /// Whether the stored session row names an active run.
    run_persisted: bool,
    last_ticket: u64,
    create: Option<Box<Create>>,
    /// Subscribers of the lane that this one replaces, to be attached.
    inherited: Vec<Subscriber>,
    /// The pending request to delete the session.
    delete_request: Option<Box<DeleteRequest>>,
    /// The bytes of events that were stored since the last run ended.
    new_bytes: u64,
    /// The effects whose events are committed and which can be performed.
    ready_effects: VecDeque<Effect>,
}

struct InFlight {
    /// Receives the result of the commit.
    done: oneshot::Receiver<Result<(), CommitError>>,
    after: AfterCommit,
    block: Option<Block>,
    /// The batch, for a second submission.
    batch: Batch,
    state: CommitState,
}

impl Lane {
    /// Creates the lane of a session.
    ///
    /// It is boxed, because a future stores its arguments twice.
    pub fn new(id: SessionId, session: Session, start: LaneStart, services: Arc<Services>) -> Box<Self> {
        let limits = services.limits;
        let (sender, inbox) = inbox::channel(limits.inbox);
        let feed = Arc::new(Feed::new(id.clone(), session.state().last_seq, limits.ring_bytes));
        if session.state().has_restricted_events {
            feed.set_restricted();
        }
        let mut checkpoint_policy = CheckpointPolicy::default();
        let (create, token, inherited, storage) = match start {
            LaneStart::New(create) => {
                let token = create.token_hash;
                (Some(Box::new(create)), token, Vec::new(), StorageState::Writable)
            }
            LaneStart::Restored { token_hash, listeners, integrity, bytes } => {
                checkpoint_policy = CheckpointPolicy::from(bytes);
                (None, token_hash, listeners, StorageState::from_integrity(integrity))
            }
        };
        let handle = LaneHandle::new(id.clone(), sender, Arc::clone(&feed), token);
        if storage == StorageState::Writable && !services.journal.has_failed() {
            // Gates of calls with an unknown outcome are opened before anything else is handled.
            let asks = session.unknown_calls() > 0;
            handle.set_phase(if asks { Phase::Waiting } else { session.state().phase() });
            handle.set_open_gates(session.has_open_gates());
        }
        let work = RunTasks::new(id.clone(), Arc::clone(&services));
        let reserved_on_disk = session.issued();
        Box::new(Self {
            id,
            session,
            services,
            feed,
            inbox,
            handle,
            unredacted: Unredacted::default(),
            run_tasks: work,
            conversation: LaneConversation::default(),
            pending: PendingBatch::default(),
            checkpoint_policy,
            in_flight: None,
            has_appended: false,
            storage,
            idle_memory: IdleMemory::Held,
            has_published_snapshot: false,
            reserved_on_disk,
            run_persisted: false,
            last_ticket: 0,
            create,
            inherited,
            delete_request: None,
            ready_effects: VecDeque::new(),
            new_bytes: 0,
        })
    }

    /// Returns a handle to this lane.
    pub fn handle(&self) -> LaneHandle {
        self.handle.clone()
    }

    /// Runs until the session is unloaded or deleted, the daemon shuts down, or the journal fails.
    pub async fn run(mut self: Box<Self>) -> LaneExit {
        if self.create.is_none() {
            self.attach_inherited();
            self.run_persisted = self.session.state().run.is_some();
            if self.services.journal.has_failed() {
                self.set_read_only();
            } else if !self.is_damaged() {
                self.recover();
            }
        }
        // Rare branches are boxed: every session in memory holds this future.
        let exit = loop {
            self.submit();
            if !self.ready_effects.is_empty() {
                Box::pin(self.perform_ready()).await;
                continue;
            }
            if std::mem::take(&mut self.has_appended) {
                // Subscribers are woken by now and run first.
                tokio::task::yield_now().await;
                self.services.journal.schedule_flush();
            }
            if let Some(delete_request) = self.delete_request.take() {
                match Box::pin(self.prepare_delete(*delete_request)).await {
                    Some(exit) => break exit,
                    None => continue,
                }
            }
            match self.next_wakeup().await {
                Wakeup::Input(input) => {
                    self.handle_input(input);
                    self.take_queued();
                }
                Wakeup::Command(request) => {
                    self.handle_request(*request);
                    self.take_queued();
                }
                Wakeup::Reported(reported) => {
                    self.handle_report(*reported);
                    self.take_queued();
                }
                Wakeup::Deadline => self.apply(Input::Deadline, None),
                Wakeup::Committed(Ok(())) => self.handle_commit(),
                Wakeup::Committed(Err(error)) => {
                    if !self.handle_commit_error(&error) {
                        self.fail(&error);
                        break LaneEnd::Broken.into();
                    }
                }
                Wakeup::SpaceAvailable => self.submit_in_flight(),
                Wakeup::IdleTimeout => {
                    if let Some(exit) = Box::pin(self.handle_idle_timeout()).await {
                        break exit;
                    }
                }
                Wakeup::Close => break Box::pin(self.close()).await.into(),
            }
        };
        Box::pin(self.run_tasks.stop_all()).await;
        info!(session = %self.id, ended = ?exit.end, "lane ended");
        exit
    }

    async fn next_wakeup(&mut self) -> Wakeup {
        let idle = self.is_idle();
        if idle {
            self.run_tasks.release_channel();
        }
        // While the model works the timer is not needed, and setting it for every delta costs time.
        let resting = self.conversation.is_held() && self.session.state().phase() != Phase::Running;
        let pause = if idle { self.idle_pause() } else { self.services.limits.park_after };
        let waiting_for_space = self.is_waiting_for_space();
        let committed = async {
            match &mut self.in_flight {
                Some(flight) if !waiting_for_space => flight.wait_for_commit().await,
                Some(_) | None => std::future::pending().await,
            }
        };
        let paused =
            async { if idle || resting { tokio::time::sleep(pause).await } else { std::future::pending().await } };
        let has_capacity = self.pending.bytes() < self.services.limits.batch_bytes;
        // Reports of a run that is being stopped are not stored, so they need no space in the batch.
        let stopping = self.session.state().run.as_ref().is_some_and(|run| run.stopping.is_some());
        tokio::select! {
            biased;
            result = committed => Wakeup::Committed(result),
            () = self.services.journal.wait_for_space(), if waiting_for_space => Wakeup::SpaceAvailable,
            () = self.services.closing.wait() => Wakeup::Close,
            input = self.inbox.next_control() => Wakeup::Input(input),
            () = self.services.clock.sleep_until(self.session.next_deadline()) => Wakeup::Deadline,
            request = self.inbox.next_command(), if has_capacity || waiting_for_space => Wakeup::Command(request),
            reported = self.run_tasks.next_report(), if has_capacity || stopping => Wakeup::Reported(reported),
            () = paused => Wakeup::IdleTimeout,
        }
    }

    /// Applies the inputs that have arrived meanwhile, so that one commit covers all of them.
    fn take_queued(&mut self) {
        while self.pending.bytes() < self.services.limits.batch_bytes {
            if let Some(input) = self.inbox.try_next_control() {
                self.handle_input(input);
            } else if let Some(request) = self.inbox.try_next_command() {
                self.handle_request(*request);
            } else if let Some(reported) = self.run_tasks.try_next_report() {
                self.handle_report(*reported);
            } else {
                break;
            }
        }
    }

    fn handle_input(&mut self, input: LaneInput) {
        match input {
            LaneInput::Control(request, sent) => {
                for (_, earlier) in self.inbox.take_earlier(request.caller.id, sent) {
                    self.handle_request(*earlier);
                }
                self.handle_request(*request);
            }
            LaneInput::Disconnected(who) => self.disconnect(who),
            LaneInput::RaiseFloor(floor) => {
                self.session.raise_floor(floor);
                // It may contain events that the journal has no more.
                self.conversation.clear();
            }
            // Dropping a replaced request answers it.
            LaneInput::Delete(delete_request) => self.delete_request = Some(delete_request),
            // The requester may be gone.
            LaneInput::Conversation { caller, after, reply } => {
                let _ = reply.send(self.stored_conversation(&caller, after));
            }
        }
    }

    fn handle_request(&mut self, request: LaneRequest) {
        self.check_journal_failure();
        if let Some(error) = self.storage_refusal(&request.caller, &request.command) {
            return request.reply_guard.send(Err(error));
        }
        if self.may_wait_for_space() && request.command.policy().access == AccessKind::ReadOnly {
            return self.answer_without_commit(|lane| lane.accept_request(request));
        }
        self.accept_request(request);
    }

    fn accept_request(&mut self, request: LaneRequest) {
        let LaneRequest { caller, mut command, if_version, starter, reply_guard, outbox, environment, part } = request;
        if let Some(refusal) = self.request_refusal(&caller, &command) {
            let version = self.session.state().version;
            return reply_guard.send(Ok(LaneReply { result: Err(refusal), version, stored: None }));
        }
        // Read-only connections do not set the environment of steps, and neither does anybody but the owner.
        let is_read_only = matches!(
            command,
            Command::Attach { rights: Rights::READ_ONLY, .. }
                | Command::Resume { rights: Rights::READ_ONLY, .. }
                | Command::Audit { .. }
        );
        // The environment of a client with a token is that of the owner's login shell.
        let is_owner = caller.participant.is_none() || caller.admission.is_some();
        if let Some(environment) = environment.filter(|_| is_owner && !is_read_only) {
            self.unredacted.set_environment(self.services.environments.share(environment), self.session.state());
        }
        if matches!(command, Command::Prompt(_) | Command::Queue(_)) {
            self.unredacted.set_provider(self.session.state().model_choice().provider);
            self.unredacted.set_starter(starter);
        }
        fingerprints::apply_legacy_fingerprint(&mut command, &self.session.state().idempotency);
        let command = self.unredacted.redact_command(command);
        debug!(session = %self.id, command = command.policy().name, "command");
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.pending.add_reply_guard(ticket, reply_guard, part);
        let is_query = matches!(command, Command::Describe);
        self.apply(Input::Command { ticket, caller, command, if_version }, Some(&outbox));
        if is_query {
            self.publish_snapshot();
        }
        self.unredacted.prune(self.session.state());
        // The disconnect may have been handled before the command.
        if outbox.is_closed() {
            self.disconnect(outbox.id());
        }
    }

    fn handle_report(&mut self, reported: ReportEnvelope) {
        let ReportEnvelope { owner, report, raw_args, byte_permit: _ } = reported;
        if let (ReportOwner::UserCommand(call), Report::CallSettled(_)) = (&owner, &report) {
            self.run_tasks.remove_user_command(call);
        }
        if matches!(owner, ReportOwner::Run(_)) {
            self.unredacted.store_args(&report, raw_args);
        }
        if let Some(input) = user_command::to_input(owner, report) {
            self.apply(input, None);
        }
    }

    fn apply(&mut self, input: Input, outbox: Option<&Arc<Outbox>>) {
        self.idle_memory = IdleMemory::Held;
        self.withdraw_snapshot(&input);
        let now = self.services.clock.now();
        if self.services.draining.is_set() {
            self.session.pause_queue();
        }
        let effects = self.session.apply(input, now);
        self.collect_effects(effects, outbox);
        let phase = if self.is_damaged() { Phase::Idle } else { self.session.state().phase() };
        self.publish_open_gates();
        if self.handle.set_phase(phase) && phase != Phase::Running {
            self.services.phase_changed.notify_waiters();
        }
    }

    /// Submits the pending batch to the journal, unless the previous one is still in flight.
    fn submit(&mut self) {
        if self.pending.is_urgent() {
            self.submit_in_flight_urgently();
        }
        if self.in_flight.is_some() || self.pending.is_empty() {
            return;
        }
        if self.is_read_only() {
            return self.deliver_uncommitted();
        }
        let pending = std::mem::take(&mut self.pending);
        let create = self.create.take().map(|create| *create);
        let meta = (create.is_some() || pending.updates_meta()).then(|| self.meta());
        let (batch, block, after) = pending.into_batch(&self.id, create, meta);
        if batch.is_empty() {
            // Nothing needs a commit and nothing is in flight, so that a read does not wait for the disk.
            return self.publish_commit(after, block);
        }
        // Events on which nothing else depends are in the write-ahead file long before they would be committed.
        if self.run_persisted && after.is_empty() && self.services.journal.append(&batch, self.feed.newest()) {
            self.has_appended = true;
            return self.publish_commit(after, block);
        }
        self.in_flight = Some(Box::new(InFlight::new(batch, after, block, self)));
    }

    fn handle_commit(&mut self) {
        if let Some(InFlight { after, block, batch, .. }) = self.in_flight.take().map(|in_flight| *in_flight) {
            if let Some(meta) = &batch.meta {
                self.note_stored(meta);
            }
            self.reserved_on_disk = batch.reserved_seq.unwrap_or(self.reserved_on_disk);
            self.publish_commit(after, block);
        }
    }

    /// Delivers the replies, the events and the effects of a batch that is stored.
    fn publish_commit(&mut self, mut after: AfterCommit, block: Option<Block>) {
        let (answers, doing) = (std::mem::take(&mut after.deliveries), std::mem::take(&mut after.effects));
        // Nothing of an earlier subscription may come between the reply to an attach and its first events.
        let together: Vec<_> = answers.iter().filter_map(Delivery::outbox).map(Outbox::hold).collect();
        for answer in answers {
            self.deliver(answer);
        }
        drop(together);
        if let Some(block) = block {
            self.new_bytes += block.lines.len() as u64;
            self.feed.publish(block);
        }
        self.ready_effects.extend(doing);
        self.notify_services(after);
    }
}

enum Wakeup {
    Input(LaneInput),
    Command(Box<LaneRequest>),
    Reported(Box<ReportEnvelope>),
    Deadline,
    Committed(Result<(), CommitError>),
    SpaceAvailable,
    IdleTimeout,
    Close,
}
