//! Seeded random walks over the kernel: after every input, all of its invariants hold.
//!
//! `PUSH_WALKS` sets the number of seeds, `PUSH_WALK_SEED` walks one of them alone.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a walk looks at what it checks and at nothing else")]

mod audiences;
mod driver;
mod forks;
mod outside_runs;
mod participants;
mod quorums;

use std::collections::{BTreeMap, BTreeSet};

use crate::support::random::Random;
use driver::{call_result, finish, turn_usage};
use pushd::kernel::audience::Viewer;
use pushd::kernel::command::{Caller, Command, GateVote, Prompt, Rights, Steer};
use pushd::kernel::conversation::Conversation;
use pushd::kernel::effect::{
    CallRequest, Effect, FinishReport, GateRequest, Precondition, Report, RequestSubject, Ticket,
};
use pushd::kernel::event::{
    ApprovalScope, Budget, CallResult, Compaction, CompactionReason, Criterion, Decision, DenialEffect, Event,
    EventKind, GateEvent, Image, Intention, Opening, OutputStream, PendingCall, Purpose, Retry, RunEvent, RunOutcome,
    TokenUsage, ToolError, ToolEvent, ToolOutcome, TurnUsage,
};
use pushd::kernel::gate::{self, BudgetResource};
use pushd::kernel::id::{CallId, ConnectionId, Fingerprint, GateId, Json, MessageId, RunId, Seq, SessionId};
use pushd::kernel::limits::Limits;
use pushd::kernel::session::{HistoryGaps, Input, Session};
use pushd::kernel::state::State;
use pushd::kernel::time::Now;
use pushd::record::{self, checkpoint};

const WALKS: u64 = 10_000;
const STEPS: u64 = 60;
/// Every so many walks also check the codecs, which cost more than the kernel.
const CODEC_CHECK_INTERVAL: u64 = 5;
/// Seeds that once found a bug, kept as regression tests.
const REGRESSION_SEEDS: [u64; 4] = [7, 321, 4_242, 31_337];

const LIMITS: Limits = Limits {
    reserve: 5,
    idempotency_keys: 4,
    settled_gates: 3,
    gates_without_run: 2,
    granted: 2,
    queue: 2,
    steers: 2,
    attached: 3,
    participants: 3,
    text_tail: 8,
    gate_millis: 50,
    stop_millis: 5,
    user_commands: 2,
    import_steps: 9,
    import_bytes: 60,
    checkpoint_every: 7,
};

#[test]
fn every_invariant_holds_after_every_input() {
    if let Some(seed) = number_from("PUSH_WALK_SEED") {
        return Walk::new(seed).run();
    }
    let walks = number_from("PUSH_WALKS").unwrap_or(WALKS);
    for seed in REGRESSION_SEEDS.into_iter().chain(0..walks) {
        Walk::new(seed).run();
    }
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// A session, the journal its effects make, and a driver that answers them in random order.
struct Walk {
    seed: u64,
    tick: u64,
    random: Random,
    now: Now,
    last_id: u64,
    session: Session,
    /// What has been persisted.
    journal: Vec<Event>,
    /// The journal folded event by event: the state after a restart.
    shadow: State,
    /// The conversation, folded event by event.
    conversation: Conversation,
    /// Checkpoints with the length of the journal they stand for.
    checkpoints: Vec<(usize, State)>,
    reserved: Seq,
    /// The last seq that was issued.
    last_seq: Seq,
    /// The inputs that the driver has yet to deliver.
    pending_inputs: Vec<Input>,
    runs: Vec<RunId>,
    gates: Vec<GateId>,
    ended: BTreeSet<RunId>,
    /// How often each call may be executed.
    allowed: BTreeMap<CallId, u32>,
    /// The digest in the gate of each call.
    approval_digests: BTreeMap<CallId, Option<String>>,
    executed: BTreeMap<CallId, u32>,
    /// Calls that are questions with a form.
    forms: BTreeSet<CallId>,
    /// The number of journaled events that the codec check has covered.
    encoded_events: usize,
    /// Decides about forks, so that the walk itself is the same with and without them.
    forks: Random,
    /// How many forks led to the session.
    generation: u32,
    /// Who forked it, and whether limits may have shortened what it inherited.
    viewer: Viewer,
    is_trimmed: bool,
}

impl Walk {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            tick: 0,
            random: Random::new(seed),
            now: Now(1_000),
            last_id: 0,
            session: Session::new(LIMITS),
            journal: Vec::new(),
            shadow: State::default(),
            conversation: Conversation::default(),
            checkpoints: vec![(0, State::default())],
            reserved: Seq::ZERO,
            last_seq: Seq::ZERO,
            pending_inputs: Vec::new(),
            runs: Vec::new(),
            gates: Vec::new(),
            ended: BTreeSet::new(),
            allowed: BTreeMap::new(),
            approval_digests: BTreeMap::new(),
            executed: BTreeMap::new(),
            forms: BTreeSet::new(),
            encoded_events: 0,
            forks: Random::new(seed ^ 0xf0f0),
            generation: 0,
            viewer: Viewer::Owner,
            is_trimmed: false,
        }
    }

    fn run(mut self) {
        let opening = Opening { provider: "p".into(), cwd: "/".into(), ..Opening::default() };
        self.send(Command::Open(Box::new(opening)));
        self.send_as_owner(Command::Open(Box::default()));
        for _ in 0..STEPS {
            self.step();
            self.maybe_fork();
        }
        self.crash();
        self.cancel_and_drain();
    }

    fn step(&mut self) {
        self.now = self.now.after(self.random.below(9));
        match self.random.below(20) {
            0..=6 => self.deliver_pending_input(),
            7..=15 => self.send_random_command(),
            16 => self.report_for_another_run(),
            17 => self.apply(Input::Deadline),
            18 => {
                let who = ConnectionId(self.random.below(5));
                self.apply(Input::Disconnected(who));
            }
            _ => self.crash(),
        }
    }

    /// After any history, a cancel and the driver's reports end every run.
    fn cancel_and_drain(mut self) {
        for _ in 0..200 {
            let state = self.session.state();
            let idle = state.run.is_none() && state.queue.is_empty() && state.compaction.is_none();
            if idle && state.user_commands.is_empty() {
                return;
            }
            if self.pending_inputs.is_empty() {
                self.send_as_owner(Command::Cancel { run: None, reason: "over".into() });
                self.send_as_owner(Command::StopUserCommand { call: None });
                self.send_as_owner(Command::StopCompaction);
            }
            let owed = std::mem::take(&mut self.pending_inputs);
            for input in owed {
                self.apply(input);
            }
        }
        panic!("seed {}: the runs do not come to an end: {:?}", self.seed, self.session.state());
    }

    fn send_random_command(&mut self) {
        let command = match self.random.below(18) {
            0..=2 => Command::Prompt(Box::new(self.prompt())),
            3 => Command::Queue(Box::new(self.prompt())),
            4 => Command::Unqueue { message: self.message() },
            5 => Command::ListQueue,
            6 => Command::Steer(Box::new(Steer {
                message: self.message(),
                text: "s".into(),
                images: self.images(),
                fingerprint: Fingerprint(u128::from(self.random.below(2))),
            })),
            7..=8 => Command::Decide(Box::new(self.vote())),
            9 => Command::Cancel { run: self.some_run(), reason: "r".into() },
            10..=11 => Command::Attach {
                seen: Seq::new(self.random.below(self.last_seq.number() + 8)),
                rights: if self.random.one_in(4) { Rights::READ_ONLY } else { Rights::ALL },
            },
            12 => Command::Detach,
            13..=16 if self.random.one_in(3) => self.participant_command(),
            13..=16 => self.outside_run_command(),
            _ => match self.random.below(8) {
                0 => Command::End,
                1..=3 => Command::Rename { name: "n".into() },
                _ => Command::Describe,
            },
        };
        self.send(command);
    }

    fn send(&mut self, command: Command) {
        let rights = if self.random.one_in(12) { Rights::READ_ONLY } else { Rights::ALL };
        let source = if self.random.one_in(2) { "one" } else { "two" };
        let participant = if self.random.one_in(3) { Some(self.some_participant()) } else { None };
        let (id, admission) = (ConnectionId(self.random.below(5)), None);
        let caller = Caller { id, source: source.into(), participant, rights, admission };
        let (ticket, version) = (Ticket(self.next_id()), self.session.state().version);
        let if_version = match self.random.below(8) {
            0 => Some(version),
            1 => Some(self.random.below(4)),
            _ => None,
        };
        self.apply(Input::Command { ticket, caller, command, if_version });
    }

    /// Sends a command through a connection that has never been attached.
    fn send_as_owner(&mut self, command: Command) {
        let (ticket, caller) = (Ticket(self.next_id()), Caller::owner(ConnectionId(9), "owner".into()));
        self.apply(Input::Command { ticket, caller, command, if_version: None });
    }

    fn deliver_pending_input(&mut self) {
        if self.pending_inputs.is_empty() {
            return;
        }
        let at = self.random.below(self.pending_inputs.len() as u64) as usize;
        let input = self.pending_inputs.remove(at);
        // Providers and tools produce output before they finish.
        if let Input::Report { run, report } = &input {
            match report {
                Report::TurnDone | Report::Finished(_) => {
                    let delta = Report::TextDelta("word ".into());
                    self.apply(Input::Report { run: run.clone(), report: delta });
                    if self.random.one_in(2) {
                        let done = Report::TextDone(MessageId::new("asst"));
                        self.apply(Input::Report { run: run.clone(), report: done });
                    }
                }
                Report::CallSettled(settlement) => {
                    let (call, stream) = (settlement.call.clone(), OutputStream::Stdout);
                    let output = Report::CallOutput { call, stream, text: "o".into() };
                    self.apply(Input::Report { run: run.clone(), report: output });
                }
                _ => {}
            }
        }
        self.apply(input);
    }

    /// A report for another run, or a late one.
    fn report_for_another_run(&mut self) {
        let run = self.some_run().unwrap_or_else(|| RunId::new("run-unknown"));
        let report = match self.random.below(5) {
            0 => Report::TextDelta("late".into()),
            1 => Report::Stopped { survivors: None },
            2 => Report::Finished(Box::new(finish(RunOutcome::Success))),
            3 => Report::TurnDone,
            _ => Report::CallSettled(Box::new(call_result(
                CallId::new("call-unknown"),
                Purpose::Work,
                ToolOutcome::Succeeded,
            ))),
        };
        // A stop is only reported when one was ordered.
        let unordered = matches!(report, Report::Stopped { .. }) && !self.ended.contains(&run);
        let active = self.session.state().run.as_ref().is_some_and(|active| active.id == run);
        if !unordered && !active {
            self.apply(Input::Report { run, report });
        }
    }

    /// The daemon crashes and restarts: only persisted events and the reservation survive.
    fn crash(&mut self) {
        let unsettled: Vec<_> = match &self.shadow.run {
            Some(run) => run.calls.values().map(|call| call.intention.call.clone()).collect(),
            None => Vec::new(),
        };
        if self.seed.is_multiple_of(CODEC_CHECK_INTERVAL) {
            self.check_codecs();
        }
        let whole = Session::restore(LIMITS, State::default(), &self.journal, self.reserved, HistoryGaps::default());
        let (at, checkpoint) = self.checkpoints[self.random.below(self.checkpoints.len() as u64) as usize].clone();
        let tailed = Session::restore(LIMITS, checkpoint, &self.journal[at..], self.reserved, HistoryGaps::default());
        assert_eq!(whole.state(), tailed.state(), "seed {} tick {}: checkpoint differs", self.seed, self.tick);
        assert_eq!(whole.state(), self.session.state(), "seed {} tick {}: restore differs", self.seed, self.tick);
        let mut conversation = Conversation::default();
        self.journal.iter().for_each(|event| conversation.fold(event));
        assert_eq!(conversation, self.conversation, "seed {} tick {}: the conversation differs", self.seed, self.tick);
        self.session = whole;
        self.pending_inputs.clear();
        let gates =
            (0..self.session.unknown_calls()).map(|_| GateId::new(format!("gate-{}", self.next_id()))).collect();
        let before = self.executed.clone();
        self.apply(Input::Recovered { gates });
        for call in unsettled {
            let started = self
                .journal
                .iter()
                .any(|event| matches!(&event.kind, EventKind::Tool(ToolEvent::Started { call: known, .. }) if *known == call));
            if started && before.contains_key(&call) {
                assert_eq!(before.get(&call), self.executed.get(&call), "seed {}: {call} was rerun", self.seed);
            }
        }
    }

    /// The state round-trips as a checkpoint, and each new event as a line.
    fn check_codecs(&mut self) {
        let state = self.session.state();
        let read = checkpoint::decode(&checkpoint::encode(state)).expect("a checkpoint is readable");
        assert_eq!(read, *state, "seed {} tick {}: a checkpoint lost something", self.seed, self.tick);
        let session = SessionId::new("sess_walk");
        for event in &self.journal[self.encoded_events..] {
            let mut line = Vec::new();
            record::event_line(&session, event, &mut line);
            let read = record::decode_event(&line).expect("a line is readable");
            assert_eq!(read, *event, "seed {}: a line lost something", self.seed);
            assert_eq!(record::seq_of(&line), Some(event.seq));
        }
        self.encoded_events = self.journal.len();
    }

    fn apply(&mut self, input: Input) {
        self.tick += 1;
        let is_command = matches!(input, Input::Command { .. });
        let before = self.version_context(&input);
        let permission = self.permission(&input);
        let ballot = self.ballot(&input);
        let what = format!("seed {} tick {}: {input:?}", self.seed, self.tick);
        let effects = self.session.apply(input, self.now);
        let replies = effects.iter().filter(|effect| matches!(effect, Effect::Reply(..))).count();
        assert_eq!(replies, usize::from(is_command), "exactly one reply a command, {what}");
        let (mut persisted, mut shown, mut versions) = (Vec::new(), Vec::new(), Vec::new());
        let mut answered = None;
        for effect in effects {
            match effect {
                Effect::Persist(event) => {
                    persisted.push(event.seq);
                    versions.extend(event.version);
                    self.persist(event, &what);
                }
                Effect::Emit(seq) => {
                    assert!(persisted.contains(&seq), "shown before it was kept: {seq}, {what}");
                    shown.push(seq);
                }
                Effect::Reply(_, reply, version) => {
                    assert!(shown.is_empty(), "an event came before the answer, {what}");
                    answered = Some((reply, version));
                }
                Effect::Reserve(end) => self.reserved = self.reserved.max(end),
                Effect::EmitTo(_, private) => self.check_seq(private_seq(&private), &what),
                Effect::Subscribe { after, .. } => {
                    assert!(after <= self.session.issued(), "fed from the future, {what}")
                }
                Effect::Tell { audience, event } => {
                    self.check_seq(private_seq(&event), &what);
                    self.check_told(&audience, &event, &what);
                }
                Effect::Unsubscribe(_) => {}
                Effect::Checkpoint(at) => {
                    assert_eq!(at, self.shadow.last_seq, "a checkpoint out of place, {what}");
                    self.checkpoints.push((self.journal.len(), self.shadow.clone()));
                }
                other => self.schedule_report(other, &what),
            }
        }
        assert_eq!(persisted, shown, "kept and shown are not the same, {what}");
        self.check_permission(permission, answered.as_ref().map(|(reply, _)| reply), &persisted, &what);
        self.check_ballot(ballot, answered.as_ref().map(|(reply, _)| reply), persisted.len(), &what);
        self.check_version(&before, answered, &versions, &what);
        self.check_audiences(&what);
        self.check_outside_runs(&what);
        self.check(&what);
    }

    fn check(&self, what: &str) {
        let state = self.session.state();
        assert_eq!(*state, self.shadow, "the journal does not make the state, {what}");
        for gate in state.gates.values() {
            assert_eq!(gate.run.is_some(), gate.question.call().is_some(), "{what}");
            if let (Some(run), Some(call)) = (&gate.run, gate.question.call()) {
                let active = state.run.as_ref().filter(|active| active.id == *run);
                assert!(active.is_some_and(|run| run.calls.contains_key(call)), "a gate outlived its call, {what}");
            }
            assert!(gate.question.expires > self.now, "an expired gate is open, {what}");
        }
        assert!(state.queue.len() <= LIMITS.queue, "{what}");
        assert!(state.settled_gates.len() <= LIMITS.settled_gates, "{what}");
        assert!(state.granted.len() <= LIMITS.granted, "{what}");
        assert!(state.last_text.len() <= 2 * LIMITS.text_tail, "{what}");
        assert!(
            state.idempotency.len() <= LIMITS.idempotency_keys + LIMITS.queue + 1 + LIMITS.steers,
            "the ledger grows, {what}"
        );
    }

    fn persist(&mut self, event: Event, what: &str) {
        self.check_seq(event.seq, what);
        if let Some(run) = &event.run {
            assert!(!self.ended.contains(run), "an event of an ended run, {what}");
            if matches!(event.kind, EventKind::Run(RunEvent::Ended(_))) {
                self.ended.insert(run.clone());
            }
        }
        match &event.kind {
            EventKind::Gate(GateEvent::Opened(question)) => {
                self.gates.push(question.gate.clone());
                if let Some(call) = question.call() {
                    if question.form().is_some() {
                        self.forms.insert(call.clone());
                    }
                    if question.digest.is_some() {
                        self.approval_digests.insert(call.clone(), question.digest.clone());
                    }
                }
            }
            EventKind::Run(RunEvent::Started(_)) => {
                assert!(self.shadow.run.is_none(), "two runs at once, {what}");
                self.runs.extend(event.run.clone());
            }
            EventKind::Tool(ToolEvent::Intended(intention)) => {
                let aside = matches!(intention.purpose, Purpose::UserCommand { .. });
                assert_eq!(aside, event.run.is_none(), "an aside is of no run, {what}");
                self.allowed.insert(intention.call.clone(), 1);
            }
            EventKind::Gate(GateEvent::Settled(verdict)) if verdict.choice.as_deref() == Some("run_again") => {
                let gate = self.shadow.gates.get(&verdict.gate).and_then(|gate| gate.question.call().cloned());
                if let Some(call) = gate {
                    *self.allowed.entry(call).or_default() += 1;
                }
            }
            _ => {}
        }
        self.shadow.fold(&event, &LIMITS);
        self.conversation.fold(&event);
        let ended = matches!(event.kind, EventKind::Run(RunEvent::Ended(_)));
        assert!(!ended || self.conversation.pending().next().is_none(), "a pending call outlived its run, {what}");
        self.journal.push(event);
    }

    fn check_seq(&mut self, seq: Seq, what: &str) {
        assert!(seq > self.last_seq, "seq does not rise, {what}");
        assert!(seq <= self.reserved, "an unreserved number, {what}");
        self.last_seq = seq;
    }
}

fn private_seq(private: &pushd::kernel::command::PrivateEvent) -> Seq {
    use pushd::kernel::command::PrivateEvent;
    match private {
        PrivateEvent::Gap { seq, .. }
        | PrivateEvent::Snapshot { seq, .. }
        | PrivateEvent::Summary { seq, .. }
        | PrivateEvent::Posted { seq, .. }
        | PrivateEvent::Deleted { seq, .. } => *seq,
    }
}
