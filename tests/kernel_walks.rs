//! Seeded random walks over the kernel: after every input, all of its invariants hold.
//!
//! `PUSH_WALKS` sets the number of seeds, `PUSH_WALK_SEED` walks one of them alone.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a walk looks at what it checks and at nothing else")]

#[path = "kernel_walks/beside.rs"]
mod beside;
#[path = "support/random.rs"]
mod random;
#[path = "kernel_walks/world.rs"]
mod world;

use std::collections::{BTreeMap, BTreeSet};

use pushd::kernel::command::{Caller, Command, Decide, Prompt, Rights, Steer};
use pushd::kernel::effect::{Ask, Before, CallRequest, Effect, Finish, Report, Ticket};
use pushd::kernel::event::{
    Budget, Compaction, CompactionReason, Criterion, Decision, Denial, Ending, Event, EventKind, Fault,
    Image, Intention, Lasting, Opening, Outcome, OutputStream, Purpose, Retry, Settlement, Taken, Used,
    Wanted,
};
use pushd::kernel::gate;
use pushd::kernel::id::{CallId, Fingerprint, GateId, Json, MessageId, ParticipantId, RunId, Seq, SessionId};
use pushd::kernel::limits::Limits;
use pushd::kernel::session::{Input, Missing, Session};
use pushd::kernel::state::State;
use pushd::kernel::time::Now;
use pushd::protocol::push::{encode, record};
use pushd::runtime::checkpoint;
use random::Random;
use world::{finish, settlement, taken};

const WALKS: u64 = 10_000;
const STEPS: u64 = 60;
/// Every so many walks also check the codecs, which cost more than the kernel.
const CODED: u64 = 5;
/// Seeds that once found a bug, kept as regression tests.
const KEPT_SEEDS: [u64; 4] = [7, 321, 4_242, 31_337];

const LIMITS: Limits = Limits {
    reserve: 5,
    ledger: 4,
    settled_gates: 3,
    granted: 2,
    queue: 2,
    steers: 2,
    participants: 3,
    text_tail: 8,
    gate_millis: 50,
    stop_millis: 5,
    asides: 2,
    import_steps: 9,
    import_bytes: 60,
    checkpoint_every: 7,
};

#[test]
fn every_promise_holds_after_every_input() {
    if let Some(seed) = number_from("PUSH_WALK_SEED") {
        return Walk::new(seed).run();
    }
    let walks = number_from("PUSH_WALKS").unwrap_or(WALKS);
    for seed in KEPT_SEEDS.into_iter().chain(0..walks) {
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
    minted: u64,
    live: Session,
    /// What has been persisted.
    journal: Vec<Event>,
    /// The journal folded event by event: the state after a restart.
    shadow: State,
    /// Checkpoints with the length of the journal they stand for.
    checkpoints: Vec<(usize, State)>,
    reserved: Seq,
    /// The last seq that was issued.
    newest: Seq,
    /// The inputs that the driver has yet to deliver.
    owed: Vec<Input>,
    runs: Vec<RunId>,
    gates: Vec<GateId>,
    ended: BTreeSet<RunId>,
    /// How often each call may be executed.
    allowed: BTreeMap<CallId, u32>,
    /// The digest in the gate of each call.
    bound: BTreeMap<CallId, Option<String>>,
    executed: BTreeMap<CallId, u32>,
    /// Calls that are questions with a form.
    forms: BTreeSet<CallId>,
    /// The number of journaled events that the codec check has covered.
    coded: usize,
}

impl Walk {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            tick: 0,
            random: Random::new(seed),
            now: Now(1_000),
            minted: 0,
            live: Session::new(LIMITS),
            journal: Vec::new(),
            shadow: State::default(),
            checkpoints: vec![(0, State::default())],
            reserved: Seq::ZERO,
            newest: Seq::ZERO,
            owed: Vec::new(),
            runs: Vec::new(),
            gates: Vec::new(),
            ended: BTreeSet::new(),
            allowed: BTreeMap::new(),
            bound: BTreeMap::new(),
            executed: BTreeMap::new(),
            forms: BTreeSet::new(),
            coded: 0,
        }
    }

    fn run(mut self) {
        let opening = Opening { provider: "p".into(), cwd: "/".into(), ..Opening::default() };
        self.ask(Command::Open(Box::new(opening)));
        for _ in 0..STEPS {
            self.now = self.now.after(self.random.below(9));
            match self.random.below(20) {
                0..=6 => self.answer_something_owed(),
                7..=15 => self.ask_something(),
                16 => self.say_something_foreign(),
                17 => self.give(Input::Deadline),
                18 => {
                    let who = ParticipantId(self.random.below(5));
                    self.give(Input::Gone(who));
                }
                _ => self.crash(),
            }
        }
        self.crash();
        self.bring_to_an_end();
    }

    /// After any history, a cancel and the driver's reports end every run.
    fn bring_to_an_end(mut self) {
        for _ in 0..200 {
            let state = self.live.state();
            let idle = state.run.is_none() && state.queue.is_empty() && state.compaction.is_none();
            if idle && state.asides.is_empty() {
                return;
            }
            if self.owed.is_empty() {
                self.ask(Command::Cancel { run: None, reason: "over".into() });
                self.ask(Command::StopAside { call: None });
                self.ask(Command::StopCompaction);
            }
            let owed = std::mem::take(&mut self.owed);
            for input in owed {
                self.give(input);
            }
        }
        panic!("seed {}: the runs do not come to an end: {:?}", self.seed, self.live.state());
    }

    fn ask_something(&mut self) {
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
                seen: Seq::new(self.random.below(self.newest.number() + 8)),
                rights: if self.random.one_in(4) { Rights::NONE } else { Rights::ALL },
            },
            12 => Command::Detach,
            13..=16 => self.beside(),
            _ => match self.random.below(8) {
                0 => Command::End,
                1..=3 => Command::Rename { name: "n".into() },
                _ => Command::Describe,
            },
        };
        self.ask(command);
    }

    fn ask(&mut self, command: Command) {
        let rights = if self.random.one_in(12) { Rights::NONE } else { Rights::ALL };
        let source = if self.random.one_in(2) { "one" } else { "two" };
        let caller = Caller { id: ParticipantId(self.random.below(5)), source: source.into(), rights };
        let (ticket, version) = (Ticket(self.mint()), self.live.state().version);
        let if_version = match self.random.below(8) {
            0 => Some(version),
            1 => Some(self.random.below(4)),
            _ => None,
        };
        self.give(Input::Command { ticket, caller, command, if_version });
    }

    fn answer_something_owed(&mut self) {
        if self.owed.is_empty() {
            return;
        }
        let at = self.random.below(self.owed.len() as u64) as usize;
        let input = self.owed.remove(at);
        // Providers and tools produce output before they finish.
        if let Input::Report { run, report } = &input {
            match report {
                Report::TurnDone | Report::Finished(_) => {
                    let said = Report::Said("word ".into());
                    self.give(Input::Report { run: run.clone(), report: said });
                    if self.random.one_in(2) {
                        let done = Report::SayingDone(MessageId::new("asst"));
                        self.give(Input::Report { run: run.clone(), report: done });
                    }
                }
                Report::Settled(settlement) => {
                    let (call, stream) = (settlement.call.clone(), OutputStream::Out);
                    let output = Report::Output { call, stream, text: "o".into() };
                    self.give(Input::Report { run: run.clone(), report: output });
                }
                _ => {}
            }
        }
        self.give(input);
    }

    /// A report for another run, or a late one.
    fn say_something_foreign(&mut self) {
        let run = self.some_run().unwrap_or_else(|| RunId::new("run-unknown"));
        let report = match self.random.below(5) {
            0 => Report::Said("late".into()),
            1 => Report::Stopped { left: None },
            2 => Report::Finished(Box::new(finish(Outcome::Success))),
            3 => Report::TurnDone,
            _ => Report::Settled(Box::new(settlement(
                CallId::new("call-unknown"),
                Purpose::Work,
                Ending::Done,
            ))),
        };
        // A stop is only reported when one was ordered.
        let unordered = matches!(report, Report::Stopped { .. }) && !self.ended.contains(&run);
        let active = self.live.state().run.as_ref().is_some_and(|active| active.id == run);
        if !unordered && !active {
            self.give(Input::Report { run, report });
        }
    }

    /// The daemon crashes and restarts: only persisted events and the reservation survive.
    fn crash(&mut self) {
        let unsettled: Vec<_> = match &self.shadow.run {
            Some(run) => run.calls.values().map(|call| call.intention.call.clone()).collect(),
            None => Vec::new(),
        };
        if self.seed.is_multiple_of(CODED) {
            self.check_codecs();
        }
        let whole =
            Session::restore(LIMITS, State::default(), &self.journal, self.reserved, Missing::default());
        let (at, checkpoint) =
            self.checkpoints[self.random.below(self.checkpoints.len() as u64) as usize].clone();
        let tailed =
            Session::restore(LIMITS, checkpoint, &self.journal[at..], self.reserved, Missing::default());
        assert_eq!(
            whole.state(),
            tailed.state(),
            "seed {} tick {}: checkpoint differs",
            self.seed,
            self.tick
        );
        assert_eq!(
            whole.state(),
            self.live.state(),
            "seed {} tick {}: restore differs",
            self.seed,
            self.tick
        );
        self.live = whole;
        self.owed.clear();
        let gates =
            (0..self.live.unknown_calls()).map(|_| GateId::new(format!("gate-{}", self.mint()))).collect();
        let before = self.executed.clone();
        self.give(Input::Recovered { gates });
        for call in unsettled {
            let started = self.journal.iter().any(
                |event| matches!(&event.kind, EventKind::CallStarted { call: known, .. } if *known == call),
            );
            if started && before.contains_key(&call) {
                assert_eq!(
                    before.get(&call),
                    self.executed.get(&call),
                    "seed {}: {call} was rerun",
                    self.seed
                );
            }
        }
    }

    /// The state round-trips as a checkpoint, and each new event as a line.
    fn check_codecs(&mut self) {
        let state = self.live.state();
        let read = checkpoint::decode(&checkpoint::encode(state)).expect("a checkpoint is readable");
        assert_eq!(read, *state, "seed {} tick {}: a checkpoint lost something", self.seed, self.tick);
        let session = SessionId::new("sess_walk");
        for event in &self.journal[self.coded..] {
            let mut line = Vec::new();
            encode::event_line(&session, event, &mut line);
            let read = record::decode_event(&line).expect("a line is readable");
            assert_eq!(read, *event, "seed {}: a line lost something", self.seed);
            assert_eq!(record::seq_of(&line), Some(event.seq));
        }
        self.coded = self.journal.len();
    }

    fn give(&mut self, input: Input) {
        self.tick += 1;
        let is_command = matches!(input, Input::Command { .. });
        let before = self.before(&input);
        let what = format!("seed {} tick {}: {input:?}", self.seed, self.tick);
        let effects = self.live.apply(input, self.now);
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
                Effect::Show(seq) => {
                    assert!(persisted.contains(&seq), "shown before it was kept: {seq}, {what}");
                    shown.push(seq);
                }
                Effect::Reply(_, reply, version) => {
                    assert!(shown.is_empty(), "an event came before the answer, {what}");
                    answered = Some((reply, version));
                }
                Effect::Reserve(end) => self.reserved = self.reserved.max(end),
                Effect::ShowTo(_, private) => self.number(private_seq(&private), &what),
                Effect::Subscribe { after, .. } => {
                    assert!(after <= self.live.issued(), "fed from the future, {what}")
                }
                Effect::Unsubscribe(_) => {}
                Effect::Checkpoint(at) => {
                    assert_eq!(at, self.shadow.last_seq, "a checkpoint out of place, {what}");
                    self.checkpoints.push((self.journal.len(), self.shadow.clone()));
                }
                other => self.owe(other, &what),
            }
        }
        assert_eq!(persisted, shown, "kept and shown are not the same, {what}");
        self.check_version(&before, answered, &versions, &what);
        self.check_beside(&what);
        self.check(&what);
    }

    fn check(&self, what: &str) {
        let state = self.live.state();
        assert_eq!(*state, self.shadow, "the journal does not make the state, {what}");
        assert!(state.run.is_some() || state.gates.is_empty(), "a gate outlived its run, {what}");
        for gate in state.gates.values() {
            let calls = state.run.as_ref().map(|run| &run.calls);
            assert!(
                calls.is_some_and(|calls| calls.contains_key(&gate.question.call)),
                "a gate without call, {what}"
            );
            assert!(gate.question.expires > self.now, "an expired gate is open, {what}");
        }
        assert!(state.queue.len() <= LIMITS.queue, "{what}");
        assert!(state.settled_gates.len() <= LIMITS.settled_gates, "{what}");
        assert!(state.granted.len() <= LIMITS.granted, "{what}");
        assert!(state.last_text.len() <= 2 * LIMITS.text_tail, "{what}");
        assert!(
            state.ledger.len() <= LIMITS.ledger + LIMITS.queue + 1 + LIMITS.steers,
            "the ledger grows, {what}"
        );
    }

    fn persist(&mut self, event: Event, what: &str) {
        self.number(event.seq, what);
        if let Some(run) = &event.run {
            assert!(!self.ended.contains(run), "an event of an ended run, {what}");
            if matches!(event.kind, EventKind::RunEnded(_)) {
                self.ended.insert(run.clone());
            }
        }
        match &event.kind {
            EventKind::GateOpened(question) => {
                if question.form.is_some() {
                    self.forms.insert(question.call.clone());
                }
                self.gates.push(question.gate.clone());
                if question.digest.is_some() {
                    self.bound.insert(question.call.clone(), question.digest.clone());
                }
            }
            EventKind::RunStarted(_) => {
                assert!(self.shadow.run.is_none(), "two runs at once, {what}");
                self.runs.extend(event.run.clone());
            }
            EventKind::CallIntended(intention) => {
                let aside = matches!(intention.purpose, Purpose::Aside { .. });
                assert_eq!(aside, event.run.is_none(), "an aside is of no run, {what}");
                self.allowed.insert(intention.call.clone(), 1);
            }
            EventKind::GateSettled(verdict) if verdict.choice.as_deref() == Some("run_again") => {
                let gate = self.shadow.gates.get(&verdict.gate).map(|gate| gate.question.call.clone());
                if let Some(call) = gate {
                    *self.allowed.entry(call).or_default() += 1;
                }
            }
            _ => {}
        }
        self.shadow.fold(&event, &LIMITS);
        self.journal.push(event);
    }

    fn number(&mut self, seq: Seq, what: &str) {
        assert!(seq > self.newest, "seq does not rise, {what}");
        assert!(seq <= self.reserved, "an unreserved number, {what}");
        self.newest = seq;
    }
}

fn private_seq(private: &pushd::kernel::command::Private) -> Seq {
    use pushd::kernel::command::Private;
    match private {
        Private::Gap { seq, .. }
        | Private::Snapshot { seq, .. }
        | Private::Summary { seq, .. }
        | Private::Deleted { seq, .. } => *seq,
    }
}
