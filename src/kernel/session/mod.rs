//! A live session: checks inputs against the state, records events, and returns effects.
//!
//! `effects` orders effects, `commands` handles commands, `runs` drives the active run, `gates` settles gates,
//! `attachment` serves subscribers, `user_commands` runs tools for the user, `compaction` handles summaries and
//! retries, `settings` records other changes, `imports` imports conversations, `forks` starts sessions from others,
//! `participants` admits participants and checks their rights. Only `record` changes the state, by folding an event.

mod attachment;
mod commands;
mod compaction;
mod effects;
mod forks;
mod gates;
mod imports;
mod participants;
mod runs;
mod settings;
mod user_commands;

use super::audience::{Audience, Viewer};
use super::command::{Caller, Command, PrivateEvent, Snapshot};
use super::effect::{CompactionReport, Effect, FinishReport, Report, Ticket, TurnRequest, UserCommandReport};
use super::event::{Event, EventKind, WorkspaceIdentity};
use super::id::{CallId, ConnectionId, GateId, RunId, Seq};
use super::limits::Limits;
use super::roster::{Attachment, Roster};
use super::state::{CallStage, State};
use super::time::Now;
use effects::Effects;
use runs::next_turn;

/// Every input that a session can receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A client sends a command, which gets exactly one reply.
    Command {
        /// Correlates the reply.
        ticket: Ticket,
        /// The sender.
        caller: Caller,
        /// The command.
        command: Command,
        /// The version that the session must have, if given.
        if_version: Option<u64>,
    },
    /// The provider or a tool of a run reports.
    Report {
        /// The run.
        run: RunId,
        /// The report.
        report: Report,
    },
    /// A user command reports.
    UserCommandReport {
        /// The call.
        call: CallId,
        /// The report.
        report: UserCommandReport,
    },
    /// A compaction that a client asked for reports.
    CompactionReport {
        /// The sequence number of its first event, which identifies it.
        start_seq: Seq,
        /// The report.
        report: CompactionReport,
    },
    /// The time of [`Session::next_deadline`] has come.
    Deadline,
    /// The session was restored. This is its first input after a restart.
    Recovered {
        /// Newly minted gate ids, at least [`Session::unknown_calls`] of them.
        gates: Vec<GateId>,
    },
    /// The working directory was identified for the first time, or has other file system numbers now.
    WorkspaceIdentified(Box<WorkspaceIdentity>),
    /// A connection was closed.
    Disconnected(ConnectionId),
    /// The daemon shuts down and has ended every running tool.
    ShutDown {
        /// The processes that could not be ended, as text.
        survivors: Option<String>,
    },
    /// The provider finishes the active run because the daemon shuts down and has ended its tools.
    FinishedAtShutdown(FinishReport),
    /// The journal can no longer store events.
    StorageFailed {
        /// A machine-readable code.
        code: String,
        /// A message for people.
        message: String,
    },
}

/// A session: its state, and what is not restored after a restart.
#[derive(Debug)]
pub struct Session {
    limits: Limits,
    state: State,
    /// The last issued sequence number.
    issued: Seq,
    /// The last sequence number that may be issued without another reservation.
    reserved: Seq,
    gaps: HistoryGaps,
    roster: Roster,
    /// How the provider finished; after a restart it is asked again.
    finish: Option<FinishReport>,
    /// While the provider has its turn: the number of steering messages that it was given.
    turn: Option<usize>,
    since_checkpoint: u64,
    /// Whether queued messages may start their runs before the next restart.
    queue: QueueState,
    /// The version that the first event of the current command carries.
    next_version: Option<u64>,
}

/// The lost parts of a session's history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryGaps {
    /// The last position that retention removed, with everything before it.
    pub floor: Seq,
    /// Ranges of lost events: the last position before each range, and the last one in it.
    pub holes: Vec<(Seq, Seq)>,
}

/// Whether queued messages start their runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueueState {
    Running,
    Paused,
}

impl Session {
    /// Creates a session without events.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: State::default(),
            issued: Seq::ZERO,
            reserved: Seq::ZERO,
            gaps: HistoryGaps::default(),
            roster: Roster::default(),
            finish: None,
            turn: None,
            since_checkpoint: 0,
            queue: QueueState::Running,
            next_version: None,
        }
    }

    /// Restores a session from a checkpoint and the events after it.
    ///
    /// `reserved` is the end of the last reservation on disk. New sequence numbers continue above it, because any
    /// number up to it may have been sent.
    pub fn restore(limits: Limits, from: State, tail: &[Event], reserved: Seq, missing: HistoryGaps) -> Self {
        let mut session = Self { state: from, gaps: missing, ..Self::new(limits) };
        for event in tail {
            session.state.fold(event, &limits);
        }
        session.since_checkpoint = tail.len() as u64;
        session.reserved = reserved.max(session.state.last_seq);
        session.issued = session.reserved;
        session
    }

    /// Advances the session by one input.
    ///
    /// The driver must carry out the effects in order: an event is persisted before it is sent, and a reply comes
    /// before the events that its command caused.
    #[must_use = "dropping effects loses replies and events"]
    pub fn apply(&mut self, input: Input, now: Now) -> Vec<Effect> {
        let mut fx = Effects::default();
        self.expire(now, &mut fx);
        match input {
            Input::Command { ticket, caller, command, if_version } => {
                let reply = self.handle_command(&caller, command, if_version, now, &mut fx);
                fx.reply(ticket, reply, self.state.version);
            }
            Input::Report { run, report } => self.handle_report(&run, report, now, &mut fx),
            Input::UserCommandReport { call, report } => self.handle_user_command_report(&call, report, now, &mut fx),
            Input::CompactionReport { start_seq, report } => {
                self.handle_compaction_report(start_seq, report, now, &mut fx);
            }
            Input::Deadline => {}
            Input::Recovered { gates } => self.recover(gates, now, &mut fx),
            Input::WorkspaceIdentified(found) => self.record_workspace(*found, now, &mut fx),
            Input::Disconnected(who) => self.roster.detach(who),
            Input::ShutDown { survivors } => self.handle_shutdown(survivors.as_deref(), now, &mut fx),
            Input::FinishedAtShutdown(finish) => self.finish_at_shutdown(finish, now, &mut fx),
            Input::StorageFailed { code, message } => self.handle_storage_failure(code, message, now, &mut fx),
        }
        if self.since_checkpoint >= self.limits.checkpoint_every {
            self.since_checkpoint = 0;
            fx.checkpoint(self.state.last_seq);
        }
        fx.into_list()
    }

    /// Leaves queued messages for after the next restart.
    pub const fn pause_queue(&mut self) {
        self.queue = QueueState::Paused;
    }

    /// Releases the reserved numbers that were not issued, and returns the last issued one.
    ///
    /// Used when a session is unloaded in an orderly way, so that numbering continues without a gap.
    pub const fn release_reservation(&mut self) -> Seq {
        self.reserved = self.issued;
        self.issued
    }

    /// Records that retention removed the events up to `floor`: a subscriber that has not seen them gets a gap.
    pub fn raise_floor(&mut self, floor: Seq) {
        self.gaps.floor = self.gaps.floor.max(floor);
        self.gaps.holes.retain(|(_, until)| *until > floor);
    }

    /// Returns the notice that all subscribers get when `by` deletes the session. It carries the session's last
    /// sequence number.
    ///
    /// That number is not reserved: nothing is left on disk that could issue it again.
    pub fn deletion_notice(&mut self, by: &str, now: Now) -> PrivateEvent {
        self.issued = self.issued.next();
        PrivateEvent::Deleted { seq: self.issued, at: now, by: by.to_owned() }
    }

    /// Returns when the session next needs [`Input::Deadline`], if ever.
    pub fn next_deadline(&self) -> Option<Now> {
        let run = self.state.run.as_ref().filter(|run| run.stopping.is_none());
        let gates = self.state.gates.values().map(|gate| gate.question.expires);
        gates.chain(run.and_then(|run| run.deadline)).min()
    }

    /// Returns the state.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Returns the last issued sequence number.
    pub const fn issued(&self) -> Seq {
        self.issued
    }

    /// Returns the next turn of the provider; `None` while a call is active, a gate is open or the run is being
    /// stopped.
    pub fn next_turn(&self) -> Option<TurnRequest> {
        let run = self.state.run.as_ref()?;
        let at_rest = run.stopping.is_none() && run.calls.is_empty() && !self.state.awaits_gate();
        at_rest.then(|| next_turn(run, &self.state))
    }

    /// Returns the attachment of a connection.
    pub fn attachment(&self, who: ConnectionId) -> Option<&Attachment> {
        self.roster.get(who)
    }

    /// Returns who reads through an attached connection.
    pub fn viewer(&self, attachment: &Attachment) -> Viewer {
        if attachment.audits {
            return Viewer::Auditor;
        }
        Viewer::new(attachment.participant.as_ref(), &self.state.participants)
    }

    /// Returns the number of calls that have started and have no result.
    pub fn unknown_calls(&self) -> usize {
        let calls = self.state.run.iter().flat_map(|run| run.calls.values());
        calls.filter(|call| call.stage == CallStage::Started).count()
    }

    /// Returns whether gates are open, whether or not a run waits for them.
    pub fn has_open_gates(&self) -> bool {
        !self.state.gates.is_empty()
    }

    /// Returns whether the session can be unloaded: nothing runs, is queued or expires, and no connection is attached.
    pub fn is_idle(&self) -> bool {
        let state = &self.state;
        state.run.is_none()
            && state.queue.is_empty()
            && state.user_commands.is_empty()
            && state.compaction.is_none()
            && state.gates.is_empty()
            && self.roster.is_empty()
    }

    /// Returns a snapshot for rendering the session.
    pub fn snapshot(&self) -> Snapshot {
        let state = &self.state;
        let oldest = state.run_gates().min_by_key(|gate| (gate.question.expires, &gate.question.gate));
        Snapshot {
            phase: state.phase(),
            opening: state.opening.clone().unwrap_or_default(),
            name: state.name.clone(),
            run: state.run.as_ref().map(|run| run.id.clone()),
            question: oldest.map(|gate| gate.question.clone()),
            open_gates: state.run_gates().count(),
            last_text: state.last_text.clone(),
            last_message: state.last_message.clone(),
            last_seq: state.last_seq,
            opened_at: state.opened_at,
            updated_at: state.updated_at,
            last_run: state.last_run.clone(),
            queued: state.queue.len(),
            open: state.open,
            version: state.version,
            adjusted: state.adjusted.clone(),
        }
    }

    /// Gives `kind` the next position, folds it in, and adds the effects that persist and emit it.
    fn record(&mut self, kind: EventKind, now: Now, fx: &mut Effects) {
        let run = self.state.run.as_ref().map(|run| run.id.clone());
        self.record_for(run, kind, now, fx);
    }

    fn record_for(&mut self, run: Option<RunId>, kind: EventKind, now: Now, fx: &mut Effects) {
        self.record_from(run, kind, now, None, fx);
    }

    /// Records an event that may be imported and have an earlier time.
    fn record_from(&mut self, run: Option<RunId>, kind: EventKind, at: Now, origin: Option<String>, fx: &mut Effects) {
        let (seq, version, audience) = (self.issue(fx), self.next_version.take(), Audience::All);
        self.record_event(Event { seq, at, run, version, origin, audience, kind }, fx);
    }

    fn record_event(&mut self, event: Event, fx: &mut Effects) {
        self.state.fold(&event, &self.limits);
        self.since_checkpoint += 1;
        fx.persist_and_emit(event);
    }

    /// Issues the next sequence number, and reserves the next block while a quarter of the last one is left.
    ///
    /// If a block were reserved only when the last one is used up, a failed reservation would block every further
    /// event, even the end of the run: a number that is not on disk may be issued again after a restart.
    fn issue(&mut self, fx: &mut Effects) -> Seq {
        self.issued = self.issued.next();
        let block = self.limits.reserve.max(1);
        if self.issued.end_of_block(block / 4) > self.reserved {
            self.reserved = self.reserved.end_of_block(block);
            fx.reserve(self.reserved);
        }
        self.issued
    }

    /// Skips the sequence numbers up to `seq`, which becomes the last issued one.
    fn issue_up_to(&mut self, seq: Seq, fx: &mut Effects) {
        if seq <= self.issued {
            return;
        }
        self.issued = seq;
        let block = self.limits.reserve.max(1);
        if self.issued.end_of_block(block / 4) > self.reserved {
            self.reserved = self.issued.end_of_block(block);
            fx.reserve(self.reserved);
        }
    }
}
