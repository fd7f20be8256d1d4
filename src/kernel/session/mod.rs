//! A living session: judges inputs against the state, records what follows, and says what is to be done.
//!
//! The rooms: `effects` orders what is to be done, `asked` answers commands, `running` drives the active run,
//! `deciding` settles gates, `attaching` serves listeners, `aside` uses tools for the user, `compacting` has summaries
//! made, `changing` keeps what is changed besides, `importing` takes in what was said elsewhere. Only `record` changes the
//! state, by folding.

mod aside;
mod asked;
mod attaching;
mod changing;
mod compacting;
mod deciding;
mod effects;
mod importing;
mod running;

use super::command::{Caller, Command, Private, Rights, Snapshot};
use super::effect::{AsideReport, CompactionReport, Effect, Finish, Report, Ticket};
use super::event::{Event, EventKind, WorkspaceIdentity};
use super::id::{CallId, GateId, ParticipantId, RunId, Seq};
use super::limits::Limits;
use super::roster::Roster;
use super::state::{Stage, State};
use super::time::Now;
use effects::Effects;

/// Everything that can happen to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Somebody asks for something, and gets exactly one answer.
    Command {
        /// Under which number the answer is expected.
        ticket: Ticket,
        /// Who asks.
        caller: Caller,
        /// For what.
        command: Command,
        /// The version that the session must have for it.
        if_version: Option<u64>,
    },
    /// The provider or a tool of a run reports.
    Report {
        /// The run.
        run: RunId,
        /// What it says.
        report: Report,
    },
    /// A tool that is used for the user reports.
    AsideReport {
        /// Which use.
        call: CallId,
        /// What it says.
        report: AsideReport,
    },
    /// A summary that somebody asked for has come, or has not.
    CompactionReport {
        /// Which one: the event that says that it began.
        began: Seq,
        /// What came of it.
        report: CompactionReport,
    },
    /// The moment named by [`Session::next_deadline`] has come.
    Deadline,
    /// The session was restored; the first input of its new life.
    Recovered {
        /// Fresh names, at least [`Session::unknown_calls`] of them.
        gates: Vec<GateId>,
    },
    /// It was found out which directory the session works in, which was not known or is known by other numbers.
    WorkspaceIdentified(Box<WorkspaceIdentity>),
    /// A connection is gone.
    Gone(ParticipantId),
    /// The daemon stops and has ended every tool in use.
    Halted {
        /// What could not be ended.
        left: Option<String>,
    },
    /// What happens from here on cannot be kept.
    Unkept {
        /// A word for programs.
        code: String,
        /// A sentence for people.
        message: String,
    },
}

/// A session and what belongs to its present life alone.
#[derive(Debug)]
pub struct Session {
    limits: Limits,
    state: State,
    /// The last number that was issued.
    issued: Seq,
    /// The last number that may be issued without another reservation.
    reserved: Seq,
    missing: Missing,
    roster: Roster,
    /// What the provider said at its end; asked again after a restart.
    finish: Option<Finish>,
    /// While the provider has its turn: how many steering messages it was told of.
    turn: Option<usize>,
    since_checkpoint: u64,
    /// Whether messages that wait may begin their runs in this life.
    queue: Queue,
    /// The version that the first event of the command in hand makes.
    next_version: Option<u64>,
}

/// Which events of the past are gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing {
    /// The last position that was removed on purpose, with everything before it.
    pub floor: Seq,
    /// Where else events were lost: the last position before each hole, and the last one in it.
    pub holes: Vec<(Seq, Seq)>,
}

/// What becomes of messages that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queue {
    Moving,
    Held,
}

impl Session {
    /// Makes a session to which nothing has happened.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: State::default(),
            issued: Seq::ZERO,
            reserved: Seq::ZERO,
            missing: Missing::default(),
            roster: Roster::default(),
            finish: None,
            turn: None,
            since_checkpoint: 0,
            queue: Queue::Moving,
            next_version: None,
        }
    }

    /// Brings a session back from a checkpoint and the events after it.
    ///
    /// `reserved` is the end of the last reservation that is on disk: numbers go on above it, because any number up
    /// to it may have been shown.
    pub fn restore(limits: Limits, from: State, tail: &[Event], reserved: Seq, missing: Missing) -> Self {
        let mut session = Self { state: from, missing, ..Self::new(limits) };
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
    /// The effects are to be carried out in order: an event is kept before it is shown, and an answer comes before
    /// the events that its command caused.
    #[must_use = "dropping effects loses replies and events"]
    pub fn apply(&mut self, input: Input, now: Now) -> Vec<Effect> {
        let mut fx = Effects::default();
        self.expire(now, &mut fx);
        match input {
            Input::Command { ticket, caller, command, if_version } => {
                let reply = self.command(&caller, command, if_version, now, &mut fx);
                fx.reply(ticket, reply, self.state.version);
            }
            Input::Report { run, report } => self.report(&run, report, now, &mut fx),
            Input::AsideReport { call, report } => self.aside_reports(&call, report, now, &mut fx),
            Input::CompactionReport { began, report } => {
                self.compaction_reports(began, report, now, &mut fx);
            }
            Input::Deadline => {}
            Input::Recovered { gates } => self.recover(gates, now, &mut fx),
            Input::WorkspaceIdentified(found) => self.identified(*found, now, &mut fx),
            Input::Gone(who) => self.roster.leave(who),
            Input::Halted { left } => self.halt(left.as_deref(), now, &mut fx),
            Input::Unkept { code, message } => self.unkept(code, message, now, &mut fx),
        }
        if self.since_checkpoint >= self.limits.checkpoint_every {
            self.since_checkpoint = 0;
            fx.checkpoint(self.state.last_seq);
        }
        fx.into_list()
    }

    /// Leaves messages that wait to the next life.
    pub const fn hold(&mut self) {
        self.queue = Queue::Held;
    }

    /// Gives back the numbers that were reserved and not issued, and returns the last one in use.
    ///
    /// For a session that leaves memory in good order: the next life goes on without a hole.
    pub const fn release(&mut self) -> Seq {
        self.reserved = self.issued;
        self.issued
    }

    /// Notes that the events up to `floor` were removed on purpose: whoever has not seen them gets a gap.
    pub fn forget(&mut self, floor: Seq) {
        self.missing.floor = self.missing.floor.max(floor);
        self.missing.holes.retain(|(_, until)| *until > floor);
    }

    /// Returns what everybody who listens is told when `by` has the session deleted, under the last number it ever has.
    ///
    /// It is not reserved: there is nothing left on disk that could issue it again.
    pub fn depart(&mut self, by: &str, now: Now) -> Private {
        self.issued = self.issued.next();
        Private::Deleted { seq: self.issued, at: now, by: by.to_owned() }
    }

    /// Returns when the session wants to be woken, if ever.
    pub fn next_deadline(&self) -> Option<Now> {
        let run = self.state.run.as_ref()?;
        if run.stopping.is_some() {
            return None;
        }
        let gates = self.state.gates.values().map(|gate| gate.question.expires);
        gates.chain(run.deadline).min()
    }

    /// Returns the folded history.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Returns the last number that was issued.
    pub const fn issued(&self) -> Seq {
        self.issued
    }

    /// Returns what a participant may do, if it is attached.
    pub fn rights_of(&self, who: ParticipantId) -> Option<Rights> {
        self.roster.of(who)
    }

    /// Returns how many calls had been started and have no known end.
    pub fn unknown_calls(&self) -> usize {
        let calls = self.state.run.iter().flat_map(|run| run.calls.values());
        calls.filter(|call| call.stage == Stage::Started).count()
    }

    /// Tells whether the session can leave memory: nothing runs or waits, and nobody listens.
    pub fn is_idle(&self) -> bool {
        let state = &self.state;
        state.run.is_none()
            && state.queue.is_empty()
            && state.asides.is_empty()
            && state.compaction.is_none()
            && self.roster.is_empty()
    }

    /// Returns what a client needs to draw the session.
    pub fn snapshot(&self) -> Snapshot {
        let state = &self.state;
        let oldest = state.gates.values().min_by_key(|gate| (gate.question.expires, &gate.question.gate));
        Snapshot {
            phase: state.phase(),
            opening: state.opening.clone().unwrap_or_default(),
            name: state.name.clone(),
            run: state.run.as_ref().map(|run| run.id.clone()),
            question: oldest.map(|gate| gate.question.clone()),
            open_gates: state.gates.len(),
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

    /// Gives `kind` the next position, folds it in, and asks for it to be kept and shown.
    fn record(&mut self, kind: EventKind, now: Now, fx: &mut Effects) {
        let run = self.state.run.as_ref().map(|run| run.id.clone());
        self.record_for(run, kind, now, fx);
    }

    fn record_for(&mut self, run: Option<RunId>, kind: EventKind, now: Now, fx: &mut Effects) {
        self.record_from(run, kind, now, None, fx);
    }

    /// Records an event that may have happened elsewhere, at another time.
    fn record_from(
        &mut self,
        run: Option<RunId>,
        kind: EventKind,
        at: Now,
        origin: Option<String>,
        fx: &mut Effects,
    ) {
        let event = Event { seq: self.issue(fx), at, run, version: self.next_version.take(), origin, kind };
        self.state.fold(&event, &self.limits);
        self.since_checkpoint += 1;
        fx.keep_and_show(event);
    }

    /// Issues the next number, and reserves the next block while a quarter of the last one is left.
    ///
    /// Were a block reserved only when the last one is used up, nothing could be shown after that reservation fails: not
    /// even the end of the run, since a number that is not on disk may be issued again after a restart.
    fn issue(&mut self, fx: &mut Effects) -> Seq {
        self.issued = self.issued.next();
        let block = self.limits.reserve.max(1);
        if self.issued.end_of_block(block / 4) > self.reserved {
            self.reserved = self.reserved.end_of_block(block);
            fx.reserve(self.reserved);
        }
        self.issued
    }
}
