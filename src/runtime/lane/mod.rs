//! A lane: the task that owns one session, applies inputs in order and performs effects in order.
//!
//! At most one batch is in flight to the journal. The lane continues to apply inputs meanwhile; replies and events
//! are delivered in commit order. Control precedes commands, and commands precede reports of providers and tools. The
//! lane never waits for a task that may be waiting for the lane.

mod aside;
mod batch;
mod conversation;
mod deciding;
mod execute;
mod input;
mod leaving;
mod listening;
mod memory;
mod modelling;
mod panic_report;
mod performing;
mod place;
mod storage;
mod working;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tracing::{debug, info};

use super::feed::{Block, Feed, Listener};
use super::fingerprints;
use super::hub::{Hub, Integrity};
use super::mint;
use super::outbox::Outbox;
use super::world::World;
use crate::journal::{Batch, CommitError, Create, Early, Meta};
use crate::kernel::command::{Change, Command, Phase, Rights};
use crate::kernel::effect::{Effect, Report, Ticket};
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::refusal::Refusal;
use crate::kernel::session::{Input, Session};
use crate::provider::{Reported, Whose};
use batch::{After, Answered, Checkpoints, Drops, Gathering};
use memory::Memory;
use performing::command_name;
use storage::{Flight, Storage};
use working::Work;

pub(in crate::runtime) use deciding::screen;
pub use input::{Asked, LaneHandle, LaneInput, LaneOver, Respond, Told, Trouble};
pub use leaving::{Departure, Leave, Leaving};

/// How a lane starts.
#[derive(Debug)]
pub enum Beginning {
    /// A new session, with the record that the journal stores first.
    New(Create),
    /// A session from the journal.
    Restored {
        /// The hash of the attach token.
        token_hash: [u8; 32],
        /// The subscribers of the failed lane that this one replaces.
        listeners: Vec<Listener>,
        /// Whether the session could be restored completely.
        integrity: Integrity,
    },
}

/// Why a lane ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// The session was idle for a while and left memory.
    Parked,
    /// The session is being deleted.
    Deleted,
    /// The daemon shuts down.
    Closed,
    /// The journal refused a batch; the session is restored from what is stored.
    Broken,
}

/// The task of one session.
pub struct Lane {
    id: SessionId,
    session: Session,
    world: Arc<World>,
    feed: Arc<Feed>,
    control: mpsc::Receiver<Box<LaneInput>>,
    commands: mpsc::Receiver<Box<LaneInput>>,
    handle: LaneHandle,
    /// Original values that must not be stored and are still needed.
    memory: Memory,
    /// The tasks of the active run.
    work: Work,
    gathering: Gathering,
    checkpoints: Checkpoints,
    drops: Drops,
    in_flight: Option<InFlight>,
    storage: Storage,
    /// The end of the last reserved block of sequence numbers that is on disk.
    reserved_on_disk: Seq,
    /// Whether the stored session row names an active run.
    kept_run: bool,
    tickets: u64,
    create: Option<Create>,
    /// Subscribers of the lane that this one replaces, to be attached.
    inherited: Vec<Listener>,
    /// The pending request to delete the session.
    leave: Option<Box<Leave>>,
    /// The bytes of events that were stored since the last run ended.
    grown: u64,
    /// The effects whose events are committed and which can be performed.
    doing: VecDeque<Effect>,
}

struct InFlight {
    /// Receives the result of the commit, once the batch is submitted.
    done: Option<oneshot::Receiver<Result<(), CommitError>>>,
    after: After,
    block: Option<Block>,
    /// The early record of the block, if it is published before the commit.
    early: Option<Early>,
    /// Whether the journal refused the batch once before.
    again: bool,
    /// The batch, for a second submission.
    batch: Batch,
    state: Flight,
}

impl Lane {
    /// Creates the lane of a session.
    ///
    /// It is boxed, because a future stores its arguments twice.
    pub fn new(id: SessionId, session: Session, beginning: Beginning, world: Arc<World>) -> Box<Self> {
        let limits = world.limits;
        let (control, control_inbox) = mpsc::channel(limits.inbox);
        let (commands, commands_inbox) = mpsc::channel(limits.inbox);
        let feed = Arc::new(Feed::new(id.clone(), session.state().last_seq, limits.ring_bytes));
        let (create, token, inherited, storage) = match beginning {
            Beginning::New(create) => (Some(create.clone()), create.token_hash, Vec::new(), Storage::Sound),
            Beginning::Restored { token_hash, listeners, integrity } => {
                (None, token_hash, listeners, Storage::of(integrity))
            }
        };
        let handle = LaneHandle::new(id.clone(), control, commands, Arc::clone(&feed), token);
        if storage == Storage::Sound && !world.journal.has_failed() {
            // Gates of calls with an unknown outcome are opened before anything else is handled.
            let asks = session.unknown_calls() > 0;
            handle.publish(if asks { Phase::Waiting } else { session.state().phase() });
        }
        let work = Work::new(id.clone(), Arc::clone(&world));
        let reserved_on_disk = session.issued();
        Box::new(Self {
            id,
            session,
            world,
            feed,
            control: control_inbox,
            commands: commands_inbox,
            handle,
            memory: Memory::default(),
            work,
            gathering: Gathering::default(),
            checkpoints: Checkpoints::default(),
            drops: Drops::default(),
            in_flight: None,
            storage,
            reserved_on_disk,
            kept_run: false,
            tickets: 0,
            create,
            inherited,
            leave: None,
            doing: VecDeque::new(),
            grown: 0,
        })
    }

    /// Returns a handle to this lane.
    pub fn handle(&self) -> LaneHandle {
        self.handle.clone()
    }

    /// Runs until the session is unloaded or deleted, the daemon shuts down, or the journal fails.
    pub async fn run(mut self: Box<Self>, hub: Arc<Hub>) -> Ended {
        if self.create.is_none() {
            self.inherit();
            self.kept_run = self.session.state().run.is_some();
            if self.world.journal.has_failed() {
                self.begin_read_only();
            } else if !self.is_damaged() {
                self.recover();
            }
        }
        // Rare branches are boxed: every session in memory holds this future.
        let ended = loop {
            self.submit();
            if !self.doing.is_empty() {
                Box::pin(self.perform_waiting()).await;
                continue;
            }
            if self.is_put_off() {
                // Subscribers are woken by now and run first.
                tokio::task::yield_now().await;
            }
            if let Some(leave) = self.leave.take() {
                match Box::pin(self.depart(*leave, &hub)).await {
                    Some(ended) => break ended,
                    None => continue,
                }
            }
            match self.next().await {
                Next::Input(input) => {
                    self.take(*input);
                    self.take_waiting();
                }
                Next::Reported(reported) => {
                    self.report(*reported);
                    self.take_waiting();
                }
                Next::Deadline => self.apply(Input::Deadline, None),
                Next::Committed(Ok(())) => self.committed(),
                Next::Committed(Err(trouble)) => {
                    if !self.survives(&trouble) {
                        self.fail(&trouble);
                        break Ended::Broken;
                    }
                }
                Next::Room | Next::PutOff => self.take_off(),
                Next::Quiet => {
                    if let Some(ended) = Box::pin(self.park(&hub)).await {
                        break ended;
                    }
                }
                Next::Close => break Box::pin(self.close()).await,
            }
        };
        Box::pin(self.work.end()).await;
        info!(session = %self.id, ?ended, "lane ended");
        ended
    }

    async fn next(&mut self) -> Next {
        let idle = self.session.is_idle() && self.in_flight.is_none() && self.gathering.is_empty();
        if idle {
            self.work.rest();
        }
        let (grounded, put_off) = (self.is_grounded(), self.is_put_off());
        let committed = async {
            match &mut self.in_flight {
                Some(flight) if !grounded => flight.landed().await,
                Some(_) | None => std::future::pending().await,
            }
        };
        // One timer serves both purposes, because every session in memory holds it.
        let pause = if put_off { PUT_OFF } else { self.world.limits.park_after };
        let paused = async {
            if idle || put_off { tokio::time::sleep(pause).await } else { std::future::pending().await }
        };
        let roomy = self.gathering.bytes() < self.world.limits.batch_bytes;
        // Reports of a run that is being stopped are not stored, so they need no space in the batch.
        let stopping = self.session.state().run.as_ref().is_some_and(|run| run.stopping.is_some());
        tokio::select! {
            biased;
            result = committed => Next::Committed(result),
            () = self.world.journal.room(), if grounded => Next::Room,
            () = self.world.closing.wait() => Next::Close,
            input = self.control.recv() => input.map_or(Next::Close, Next::Input),
            () = self.world.clock.sleep_until(self.session.next_deadline()) => Next::Deadline,
            input = self.commands.recv(), if roomy || grounded => input.map_or(Next::Close, Next::Input),
            reported = self.work.reported(), if roomy || stopping => Next::Reported(reported),
            () = paused => if put_off { Next::PutOff } else { Next::Quiet },
        }
    }

    /// Applies the inputs that have arrived meanwhile, so that one commit covers all of them.
    fn take_waiting(&mut self) {
        while self.gathering.bytes() < self.world.limits.batch_bytes {
            if let Ok(input) = self.control.try_recv() {
                self.take(*input);
            } else if let Ok(input) = self.commands.try_recv() {
                self.take(*input);
            } else if let Some(reported) = self.work.has_reported() {
                self.report(*reported);
            } else {
                break;
            }
        }
    }

    fn take(&mut self, input: LaneInput) {
        match input {
            LaneInput::Asked(asked) => self.asked(*asked),
            LaneInput::Gone(who) => self.gone(who),
            LaneInput::Forget(floor) => self.session.forget(floor),
            // Dropping a replaced request answers it.
            LaneInput::Leave(leave) => self.leave = Some(leave),
        }
    }

    fn asked(&mut self, asked: Asked) {
        self.learn_of_failure();
        if let Some(trouble) = self.refuses(&asked.command) {
            return asked.respond.answer(Err(trouble));
        }
        if self.may_be_held_up() && asked.command.change() == Change::Nothing {
            return self.answer_past(|lane| lane.asked_and_taken(asked));
        }
        self.asked_and_taken(asked);
    }

    fn asked_and_taken(&mut self, asked: Asked) {
        let Asked { caller, mut command, if_version, respond, outbox, environment } = asked;
        if self.is_misfit(&command) {
            let version = self.session.state().version;
            return respond.answer(Ok(Told { reply: Err(Refusal::UnknownAnswer), version }));
        }
        // Read-only participants do not set the environment of steps.
        let watches = matches!(
            command,
            Command::Attach { rights: Rights::NONE, .. } | Command::Resume { rights: Rights::NONE, .. }
        );
        if let Some(environment) = environment.filter(|_| !watches) {
            self.memory.learn(self.world.environments.share(environment), self.session.state());
        }
        if matches!(command, Command::Prompt(_) | Command::Queue(_)) {
            self.memory.answered_by(self.session.state().voice().provider);
            self.memory.prompted_by(&caller.source);
        }
        fingerprints::recognise(&mut command, &self.session.state().ledger);
        let command = self.memory.make_safe(command);
        debug!(session = %self.id, command = command_name(&command), "command");
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.gathering.expect(ticket, respond);
        self.apply(Input::Command { ticket, caller, command, if_version }, Some(&outbox));
        self.memory.prune(self.session.state());
        // The disconnect may have been handled before the command.
        if outbox.is_closed() {
            self.gone(outbox.id());
        }
    }

    fn report(&mut self, reported: Reported) {
        let Reported { whose, report, raw_args, room: _ } = reported;
        if let (Whose::Aside(call), Report::Settled(_)) = (&whose, &report) {
            self.work.aside_over(call);
        }
        if matches!(whose, Whose::Run(_)) {
            self.memory.keep_args(&report, raw_args);
        }
        if let Some(input) = aside::input(whose, report) {
            self.apply(input, None);
        }
    }

    fn recover(&mut self) {
        let gates = (0..self.session.unknown_calls()).map(|_| mint::gate()).collect();
        self.apply(Input::Recovered { gates }, None);
    }

    fn apply(&mut self, input: Input, outbox: Option<&Arc<Outbox>>) {
        let now = self.world.clock.now();
        if self.world.draining.has_begun() {
            self.session.hold();
        }
        let effects = self.session.apply(input, now);
        self.gather(effects, outbox);
        let phase = if self.is_damaged() { Phase::Idle } else { self.session.state().phase() };
        if self.handle.publish(phase) && phase != Phase::Running {
            self.world.settled.notify_waiters();
        }
    }

    /// Submits the pending batch to the journal, unless the previous one is still in flight.
    fn submit(&mut self) {
        if self.gathering.is_urgent() {
            self.take_off_urgently();
        }
        if self.is_put_off() && !self.gathering.is_empty() {
            self.take_off();
        }
        if self.in_flight.is_some() || self.gathering.is_empty() {
            return;
        }
        if self.has_failed() {
            return self.do_without_keeping();
        }
        let gathered = std::mem::take(&mut self.gathering);
        let create = self.create.take();
        let meta = (create.is_some() || gathered.is_telling()).then(|| self.meta());
        let (batch, block, after) = gathered.into_batch(&self.id, create, meta);
        if batch.is_empty() {
            // Nothing needs a commit and nothing is in flight, so that a read does not wait for the disk.
            return self.follow(after, block);
        }
        self.in_flight = Some(match self.show_early(&batch, &after, block.as_ref()) {
            Some(early) => InFlight::put_off(batch, after, block, early),
            None => InFlight::new(batch, after, block, self),
        });
    }

    /// Publishes events before their commit if nothing else depends on the commit and an early record protects them.
    fn show_early(&self, batch: &Batch, after: &After, block: Option<&Block>) -> Option<Early> {
        let block = block.filter(|_| self.kept_run && after.is_empty())?;
        if block.lines.len() > FEW_BYTES || self.world.journal.is_full() {
            return None;
        }
        let early = self.world.journal.put_ahead(batch, self.feed.newest())?;
        self.feed.show(block.clone());
        Some(early)
    }

    fn committed(&mut self) {
        if let Some(InFlight { after, block, batch, early, .. }) = self.in_flight.take() {
            if let Some(meta) = &batch.meta {
                self.kept_run = meta.active_run.is_some();
            }
            self.reserved_on_disk = batch.reserve.unwrap_or(self.reserved_on_disk);
            if let Some(early) = early {
                early.done();
            }
            self.follow(after, block);
        }
    }

    /// Delivers the replies, the events and the effects of a finished commit.
    fn follow(&mut self, after: After, block: Option<Block>) {
        let After { answers, doing, run_ended, session_changes } = after;
        // Nothing of an earlier subscription may come between the reply to an attach and its first events.
        let together: Vec<_> = answers.iter().filter_map(Answered::listener).map(Outbox::hold).collect();
        for answer in answers {
            self.give(answer);
        }
        drop(together);
        let merge = block.as_ref().and_then(|block| self.drops.fall(block, run_ended));
        if let Some(block) = block {
            self.grown += block.lines.len() as u64;
            // Blocks that were published early are not published again.
            if block.last > self.feed.newest() {
                self.feed.show(block);
            }
        }
        self.doing.extend(doing);
        if let Some((after, up_to)) = merge {
            // The result of the merge is not needed.
            drop(self.world.journal.merge_after(self.id.clone(), after, up_to));
        }
        self.tell_others(run_ended, session_changes);
    }

    fn meta(&self) -> Meta {
        batch::meta(&self.id, &self.session.snapshot())
    }
}

/// The size up to which a batch is published before its commit. Larger batches are not latency-critical.
const FEW_BYTES: usize = 1024;

/// How long a batch that is already published waits for more events before it is submitted.
///
/// Waking the journal's thread would compete for processor time with the subscribers that were just woken.
const PUT_OFF: Duration = Duration::from_millis(1);

enum Next {
    Input(Box<LaneInput>),
    Reported(Box<Reported>),
    Deadline,
    Committed(Result<(), CommitError>),
    Room,
    PutOff,
    Quiet,
    Close,
}
