//! Seeded random walks over the command log, compared with a reference model that is written as simply as possible.
//!
//! `PUSH_WALKS` sets the number of seeds, `PUSH_WALK_SEED` walks one of them alone.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a walk looks at what it checks and at nothing else")]

mod model;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::support::random::Random;
use model::{Model, format_error};
use pushd::kernel::command_log::record::quoted_id;
use pushd::kernel::command_log::{
    CommandLog, CommandLogLimits, CommandName, CommandOutcome, CommandRecord, Effect, Input, OutcomeRecord,
    Persistence, RateClass, ReplyBody, Scheduling, StoredCommand, Submission, SubmissionId,
};
use pushd::kernel::id::{Fingerprint, SessionId};
use pushd::kernel::rate::RateLimits;
use pushd::kernel::time::Now;

const WALKS: u64 = 3_000;
const STEPS: u64 = 120;
/// Seeds that once found a bug, kept as regression tests.
const REGRESSION_SEEDS: [u64; 2] = [2_089, 7_847];

const IDS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "l", "m"];
const SESSIONS: [Option<&str>; 7] = [None, Some("s"), Some("t"), Some("u"), Some("v"), Some("w"), Some("x")];

const LIMITS: CommandLogLimits = CommandLogLimits {
    in_flight: 7,
    outcomes: 5,
    body_bytes: 1_000,
    large_bytes: 1_000,
    dependencies: 3,
    dependency_millis: 30,
    key_millis: 60,
    error_bytes: 200,
    rate: RateLimits { session: 12, overall: 25, window_millis: 100 },
};

#[test]
fn the_command_log_agrees_with_a_plain_list_of_commands() {
    if let Some(seed) = number_from("PUSH_WALK_SEED") {
        walk(seed);
        return;
    }
    let walks = number_from("PUSH_WALKS").unwrap_or(WALKS);
    let (mut ran, mut replayed) = (0, 0);
    for seed in REGRESSION_SEEDS.into_iter().chain(0..walks) {
        let (runs, replays) = catch_unwind(AssertUnwindSafe(|| walk(seed))).unwrap_or_else(|panic| {
            eprintln!("walk it again with PUSH_WALK_SEED={seed}");
            resume_unwind(panic)
        });
        (ran, replayed) = (ran + runs, replayed + replays);
    }
    assert!(ran > walks * 5 && replayed > walks, "the walks went nowhere: {ran} ran, {replayed} repeated");
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn walk(seed: u64) -> (u64, u64) {
    let mut walk = Walk::new(seed);
    for _ in 0..STEPS {
        walk.step();
    }
    walk.drain();
    (walk.model.ran, walk.model.replayed)
}

/// A write that reaches the disk some time later.
enum DeferredWrite {
    Settle(OutcomeRecord),
    Forget(u64),
}

/// The command log, its reference model, and a driver with a disk that completes writes at random times.
struct Walk {
    /// Whether there are many names and lanes and most commands depend on others; otherwise names collide more often.
    dense: bool,
    random: Random,
    now: Now,
    tickets: u64,
    log: CommandLog,
    model: Model,
    disk: BTreeMap<u64, StoredCommand>,
    deferred: Vec<DeferredWrite>,
    /// Writes in flight; a write whose record is deleted meanwhile (`None`) is confirmed all the same.
    pending_admissions: Vec<Option<Arc<CommandRecord>>>,
    pending_outcomes: Vec<(SubmissionId, Option<OutcomeRecord>)>,
    /// The running commands, with the identity that is stored with their effect.
    running: Vec<(SubmissionId, Option<Arc<CommandRecord>>)>,
    abandoned: Vec<SubmissionId>,
}

impl Walk {
    fn new(seed: u64) -> Self {
        Self {
            dense: seed % 2 == 1,
            random: Random::new(seed),
            now: Now(1_000),
            tickets: 0,
            log: CommandLog::new(LIMITS),
            model: Model::new(LIMITS),
            disk: BTreeMap::new(),
            deferred: Vec::new(),
            pending_admissions: Vec::new(),
            pending_outcomes: Vec::new(),
            running: Vec::new(),
            abandoned: Vec::new(),
        }
    }

    fn step(&mut self) {
        self.now = self.now.after(self.random.below(6));
        match self.random.below(100) {
            0..45 => {
                let submission = self.submission();
                self.apply(Input::Submit(Box::new(submission)));
            }
            45..60 => self.report(),
            60..75 => self.complete_disk_write(),
            75..85 => self.write_deferred(),
            85..92 => self.pass_time(),
            92 => self.restart(),
            93 if self.random.one_in(4) => self.delete_session(),
            94 if self.random.one_in(20) => self.apply(Input::ShuttingDown),
            95 => self.apply(Input::Deadline),
            _ => self.report_unknown_ticket(),
        }
    }

    /// Drains all work, and checks that nothing waits forever.
    fn drain(&mut self) {
        for _ in 0..500 {
            if self.log.stats().in_flight == 0 {
                assert_eq!((self.log.stats().lanes, self.log.next_deadline()), (0, None));
                return;
            }
            self.report();
            self.complete_disk_write();
            self.pass_time();
        }
        panic!("something waits for ever: {:?}", self.log);
    }

    fn submission(&mut self) -> Submission {
        self.tickets += 1;
        let ids: &[&str] = if self.dense { &IDS } else { &IDS[..6] };
        let sessions = if self.dense { &SESSIONS[..] } else { &SESSIONS[..4] };
        let session = self.random.pick(sessions).copied().flatten();
        let variant = self.random.below(4);
        let name = self.random.pick(ids).filter(|_| !self.random.one_in(5));
        let name = name.map_or_else(|| CommandName::Generated("made".into()), |id| CommandName::Client((*id).into()));
        let key = if self.random.one_in(3) { self.random.pick(&["k", "l"]).copied() } else { None };
        let depends = self.random.one_in(3) != self.dense;
        let dependencies = if depends { self.random.below(4) } else { 0 };
        let depends_on: Vec<Arc<str>> =
            (0..dependencies).filter_map(|_| self.random.pick(ids).map(|id| (*id).into())).collect();
        let place = session.map_or(0, |name| u128::from(name.as_bytes()[0]));
        Submission {
            ticket: SubmissionId(self.tickets),
            name,
            key: key.map(Into::into),
            kind: format!("kind {variant}").into(),
            session: session.map(SessionId::from),
            fingerprint: Fingerprint(place * 10 + u128::from(variant)),
            depends_on,
            scheduling: self.order(),
            time_limit: if self.random.one_in(2) { Some(10 + self.random.below(20)) } else { None },
            persistence: match variant {
                0 | 2 => Persistence::WithEffect,
                1 => Persistence::Relaxed,
                _ => Persistence::Cached,
            },
            rate_class: if self.random.one_in(10) { RateClass::Control } else { RateClass::Ordinary },
            format_error,
        }
    }

    fn order(&mut self) -> Scheduling {
        let orders = [
            Scheduling::Write,
            Scheduling::Write,
            Scheduling::LongWrite,
            Scheduling::Read,
            Scheduling::Read,
            Scheduling::Bypass,
        ];
        self.random.pick(&orders).copied().unwrap_or(Scheduling::Write)
    }

    fn report(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let (ticket, record) = self.running.swap_remove(self.random.below(self.running.len() as u64) as usize);
        let outcome = self.outcome();
        match record.filter(|_| self.random.one_in(2)) {
            Some(record) => {
                self.write_outcome(Some(OutcomeRecord { record, outcome: outcome.clone(), at: self.now }));
                self.apply(Input::FinishedWithEffect(ticket, outcome));
            }
            None => self.apply(Input::Finished(ticket, outcome)),
        }
    }

    /// Reports for an abandoned or unknown ticket, which must have no effect.
    fn report_unknown_ticket(&mut self) {
        let ticket = self.abandoned.pop().unwrap_or(SubmissionId(self.tickets + 1_000_000));
        let input = match self.random.below(2) {
            0 => Input::OutcomePersisted(SubmissionId(self.tickets + 1_000_000)),
            _ => Input::Finished(ticket, self.outcome()),
        };
        let effects = self.log.apply(input, self.now);
        assert!(effects.is_empty(), "nobody asked: {effects:?}");
    }

    fn outcome(&mut self) -> CommandOutcome {
        let body = *self.random.pick(&["x", "[\"s\"]", "yy"]).unwrap();
        match self.random.below(4) {
            0 => CommandOutcome::failed(body),
            1 => CommandOutcome::succeeded(body, Some(self.random.below(9))),
            _ => CommandOutcome::succeeded(body, None),
        }
    }

    fn complete_disk_write(&mut self) {
        if self.random.one_in(2) && !self.pending_admissions.is_empty() {
            let record = self.pending_admissions.remove(0);
            if !self.random.one_in(8) {
                self.write_admission(record);
            }
        } else if !self.pending_outcomes.is_empty() {
            let (ticket, settlement) = self.pending_outcomes.remove(0);
            if self.random.one_in(8) {
                return self.apply(Input::OutcomeFailed(ticket));
            }
            self.write_outcome(settlement);
            self.apply(Input::OutcomePersisted(ticket));
        }
    }

    fn write_admission(&mut self, record: Option<Arc<CommandRecord>>) {
        let Some(record) = record else { return };
        self.disk.entry(record.row.0).or_insert(StoredCommand { record: (*record).clone(), settled: None });
    }

    fn write_outcome(&mut self, settlement: Option<OutcomeRecord>) {
        let Some(settlement) = settlement else { return };
        let stored =
            StoredCommand { record: (*settlement.record).clone(), settled: Some((settlement.outcome, settlement.at)) };
        self.disk.insert(stored.record.row.0, stored);
    }

    fn write_deferred(&mut self) {
        let some = self.random.below(self.deferred.len() as u64 + 1) as usize;
        for write in self.deferred.drain(..some).collect::<Vec<_>>() {
            match write {
                DeferredWrite::Settle(settlement) => self.write_outcome(Some(settlement)),
                DeferredWrite::Forget(row) => drop(self.disk.remove(&row)),
            }
        }
    }

    fn pass_time(&mut self) {
        if let Some(at) = self.log.next_deadline() {
            self.now = Now(self.now.0.max(at.0));
            self.apply(Input::Deadline);
        }
    }

    fn delete_session(&mut self) {
        let session = SessionId::from("s");
        self.apply(Input::SessionDeleted(session.clone()));
        let words = quoted_id(&session);
        let running = self.running.iter_mut().map(|(_, record)| record);
        for record in self.pending_admissions.iter_mut().chain(running) {
            record.take_if(|record| record.session.as_ref() == Some(&session));
        }
        for (_, settlement) in &mut self.pending_outcomes {
            settlement.take_if(|settlement| settlement.record.session.as_ref() == Some(&session));
            if let Some(settlement) = settlement {
                remove_references(&mut settlement.outcome, &words);
            }
        }
        self.deferred.retain(|write| match write {
            DeferredWrite::Settle(settlement) => settlement.record.session.as_ref() != Some(&session),
            DeferredWrite::Forget(_) => true,
        });
        for write in &mut self.deferred {
            if let DeferredWrite::Settle(settlement) = write {
                remove_references(&mut settlement.outcome, &words);
            }
        }
        self.disk.retain(|_, stored| stored.record.session.as_ref() != Some(&session));
        for stored in self.disk.values_mut() {
            if let Some((outcome, _)) = &mut stored.settled {
                remove_references(outcome, &words);
            }
        }
    }

    fn restart(&mut self) {
        // A prefix of the writes in flight has reached the disk.
        let kept = self.random.below(self.pending_admissions.len() as u64 + 1) as usize;
        for record in self.pending_admissions.drain(..kept).collect::<Vec<_>>() {
            self.write_admission(record);
        }
        let settled = self.random.below(self.pending_outcomes.len() as u64 + 1) as usize;
        for (_, settlement) in self.pending_outcomes.drain(..settled).collect::<Vec<_>>() {
            self.write_outcome(settlement);
        }
        self.write_deferred();
        // Some effects are committed, and their senders have not heard of it.
        for (_, record) in std::mem::take(&mut self.running) {
            if let Some(record) = record.filter(|_| self.random.one_in(2)) {
                let outcome = self.outcome();
                self.write_outcome(Some(OutcomeRecord { record, outcome, at: self.now }));
            }
        }
        self.pending_admissions.clear();
        self.pending_outcomes.clear();
        self.deferred.clear();
        self.abandoned.clear();
        let rows: Vec<StoredCommand> = self.disk.values().cloned().collect();
        let (log, effects) = CommandLog::restore(LIMITS, rows.clone(), format_error, self.now);
        self.log = log;
        self.model.restart(&rows, self.now, &effects);
        self.perform(effects);
    }

    fn apply(&mut self, input: Input) {
        let effects = self.log.apply(input.clone(), self.now);
        self.model.observe(&input, self.now, &effects);
        assert_eq!(self.log.next_deadline(), self.model.next_deadline());
        let counts = self.log.stats();
        assert_eq!((counts.in_flight, counts.outcomes), (self.model.in_flight(), self.model.remembered()));
        assert!(counts.in_flight <= LIMITS.in_flight && counts.outcomes <= LIMITS.outcomes);
        self.perform(effects);
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::PersistAdmission(record) => self.pending_admissions.push(Some(record)),
                Effect::Run { ticket, record } => self.running.push((ticket, record)),
                Effect::Abandon(ticket) => {
                    self.running.retain(|(other, _)| *other != ticket);
                    self.abandoned.push(ticket);
                }
                Effect::PersistOutcome(ticket, settlement) => self.pending_outcomes.push((ticket, Some(settlement))),
                Effect::PersistOutcomeLater(settlement) => self.deferred.push(DeferredWrite::Settle(settlement)),
                Effect::DeleteRecord(row) => self.deferred.push(DeferredWrite::Forget(row.0)),
                Effect::Refuse(..) | Effect::Accept(_) | Effect::Finish { .. } => {}
            }
        }
    }
}

fn remove_references(outcome: &mut CommandOutcome, words: &str) {
    if outcome.body.text().is_some_and(|text| text.contains(words)) {
        outcome.body = ReplyBody::Removed;
    }
}
