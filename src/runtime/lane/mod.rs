//! A lane: the one task that owns a session, takes inputs in order and performs effects in order.
//!
//! At most one batch is in flight to the journal; the lane goes on applying meanwhile, and answers and events follow in
//! the order of the commits. Control comes before commands and commands before what providers and tools report. The
//! lane never waits for anybody who may be waiting for it.

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

/// How a lane begins.
#[derive(Debug)]
pub enum Beginning {
    /// A new session, with what the journal is to know of it.
    New(Create),
    /// A session that was stored.
    Restored {
        /// What is kept of the token that attaches to it.
        token_hash: [u8; 32],
        /// Who listened to it when it broke.
        listeners: Vec<Listener>,
        /// Whether it is what it was.
        integrity: Integrity,
    },
}

/// Why a lane ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nothing happened for a while.
    Parked,
    /// The session is deleted.
    Deleted,
    /// The daemon stops.
    Closed,
    /// The journal did not take what happened; the session begins again from what it holds.
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
    /// What must not be journaled and is needed all the same.
    memory: Memory,
    /// What the active run has under way.
    work: Work,
    gathering: Gathering,
    checkpoints: Checkpoints,
    drops: Drops,
    in_flight: Option<InFlight>,
    storage: Storage,
    /// The end of the last reservation of sequence numbers that is on disk.
    reserved_on_disk: Seq,
    /// Whether the journal knows of an active run.
    kept_run: bool,
    tickets: u64,
    create: Option<Create>,
    /// Who is still to be taken over from the life before.
    inherited: Vec<Listener>,
    /// The wish that the session is deleted.
    leave: Option<Box<Leave>>,
    /// How many bytes of events were kept since the last run was over.
    grown: u64,
    /// What is to be done now that the decisions behind it are kept.
    doing: VecDeque<Effect>,
}

struct InFlight {
    /// Where the journal answers, once it has the batch.
    done: Option<oneshot::Receiver<Result<(), CommitError>>>,
    after: After,
    block: Option<Block>,
    /// What keeps the block meanwhile, if it is shown already.
    early: Option<Early>,
    /// Whether it was refused before.
    again: bool,
    /// For when it has to be handed in again.
    batch: Batch,
    state: Flight,
}

impl Lane {
    /// Makes the lane of a session.
    ///
    /// It is boxed, because a future holds what it is given twice.
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
            // What a restart asks about is asked before anything else is taken.
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

    /// Returns the way to this lane.
    pub fn handle(&self) -> LaneHandle {
        self.handle.clone()
    }

    /// Runs until the session is parked, the daemon stops, or the journal fails.
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
        // What happens once in a life is boxed: every session in memory holds this future.
        let ended = loop {
            self.submit();
            if !self.doing.is_empty() {
                Box::pin(self.perform_waiting()).await;
                continue;
            }
            if self.is_put_off() {
                // Whoever listens is woken by now, and has its turn first.
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
        // One timer for both, as every session in memory holds room for it.
        let pause = if put_off { PUT_OFF } else { self.world.limits.park_after };
        let paused = async {
            if idle || put_off { tokio::time::sleep(pause).await } else { std::future::pending().await }
        };
        let roomy = self.gathering.bytes() < self.world.limits.batch_bytes;
        // What a run that is being stopped still says is not kept, so that it needs no room.
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

    /// Applies what has arrived meanwhile, so that one write serves all of it.
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
            // One that takes the place of another answers it by dropping it.
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
        // Who only watches has no say in how steps are run.
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
        // The news that it is gone may have overtaken its command.
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

    /// Hands what has gathered to the journal, unless it still works on the batch before.
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
            // Nothing is to be kept and nothing is under way, so that a read waits for no disk.
            return self.follow(after, block);
        }
        self.in_flight = Some(match self.show_early(&batch, &after, block.as_ref()) {
            Some(early) => InFlight::put_off(batch, after, block, early),
            None => InFlight::new(batch, after, block, self),
        });
    }

    /// Shows events before they are committed where nothing else follows from them and nothing can take them any more.
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

    /// Answers, shows and does what a finished commit allows.
    fn follow(&mut self, after: After, block: Option<Block>) {
        let After { answers, doing, run_ended, session_changes } = after;
        // Between the answer of an attach and what it promises, nothing of an earlier attach may come.
        let together: Vec<_> = answers.iter().filter_map(Answered::listener).map(Outbox::hold).collect();
        for answer in answers {
            self.give(answer);
        }
        drop(together);
        let merge = block.as_ref().and_then(|block| self.drops.fall(block, run_ended));
        if let Some(block) = block {
            self.grown += block.lines.len() as u64;
            // Not again what was shown early.
            if block.last > self.feed.newest() {
                self.feed.show(block);
            }
        }
        self.doing.extend(doing);
        if let Some((after, up_to)) = merge {
            // Nobody waits for it.
            drop(self.world.journal.merge_after(self.id.clone(), after, up_to));
        }
        self.tell_others(run_ended, session_changes);
    }

    fn meta(&self) -> Meta {
        batch::meta(&self.id, &self.session.snapshot())
    }
}

/// How large a batch may be that is shown before it is committed: more is no single word, and of much, nobody waits for the first.
const FEW_BYTES: usize = 1024;

/// How long a batch that is shown already may wait for the next before it is handed to the journal.
///
/// Waking the journal's thread takes processor time at the very moment in which whoever listens needs it.
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
