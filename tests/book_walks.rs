//! Seeded random walks over the command log, compared with a reference model that is written as simply as possible.
//!
//! `PUSH_WALKS` sets the number of seeds, `PUSH_WALK_SEED` walks one of them alone.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a walk looks at what it checks and at nothing else")]

#[path = "book_walks/model.rs"]
mod model;
#[path = "support/random.rs"]
mod random;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use model::{Model, spell};
use pushd::kernel::book::record::mention;
use pushd::kernel::book::{
    Body, Book, BookLimits, Counting, Effect, Input, Keeping, Name, Order, Outcome, Record, Settlement,
    Stored, Submission, Ticket,
};
use pushd::kernel::id::{Fingerprint, SessionId};
use pushd::kernel::rate::RateLimits;
use pushd::kernel::time::Now;
use random::Random;

const WALKS: u64 = 3_000;
const STEPS: u64 = 120;
/// Seeds that once found a bug, kept as regression tests.
const KEPT_SEEDS: [u64; 2] = [2_089, 7_847];

const IDS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "l", "m"];
const SESSIONS: [Option<&str>; 7] = [None, Some("s"), Some("t"), Some("u"), Some("v"), Some("w"), Some("x")];

const LIMITS: BookLimits = BookLimits {
    in_flight: 7,
    outcomes: 5,
    body_bytes: 1_000,
    large_bytes: 1_000,
    dependencies: 3,
    dependency_millis: 30,
    key_millis: 60,
    error_bytes: 200,
    rate: RateLimits { session: 12, overall: 25, millis: 100 },
};

#[test]
fn the_book_does_what_a_plain_list_of_commands_allows() {
    if let Some(seed) = number_from("PUSH_WALK_SEED") {
        walk(seed);
        return;
    }
    let walks = number_from("PUSH_WALKS").unwrap_or(WALKS);
    let (mut ran, mut replayed) = (0, 0);
    for seed in KEPT_SEEDS.into_iter().chain(0..walks) {
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
    walk.come_to_rest();
    (walk.model.ran, walk.model.replayed)
}

/// A write that reaches the disk some time later.
enum Behind {
    Settle(Settlement),
    Forget(u64),
}

/// The command log, its reference model, and a driver with a disk that completes writes at random times.
struct Walk {
    /// Whether there are many names and lanes and most commands depend on others; otherwise names collide more often.
    dense: bool,
    random: Random,
    now: Now,
    tickets: u64,
    book: Book,
    model: Model,
    disk: BTreeMap<u64, Stored>,
    behind: Vec<Behind>,
    /// Writes in flight; a write whose record is deleted meanwhile (`None`) is confirmed all the same.
    keeping: Vec<(Ticket, Option<Arc<Record>>)>,
    settling: Vec<(Ticket, Option<Settlement>)>,
    running: Vec<Ticket>,
    abandoned: Vec<Ticket>,
}

impl Walk {
    fn new(seed: u64) -> Self {
        Self {
            dense: seed % 2 == 1,
            random: Random::new(seed),
            now: Now(1_000),
            tickets: 0,
            book: Book::new(LIMITS),
            model: Model::new(LIMITS),
            disk: BTreeMap::new(),
            behind: Vec::new(),
            keeping: Vec::new(),
            settling: Vec::new(),
            running: Vec::new(),
            abandoned: Vec::new(),
        }
    }

    fn step(&mut self) {
        self.now = self.now.after(self.random.below(6));
        match self.random.below(100) {
            0..45 => {
                let asked = self.submission();
                self.apply(Input::Submit(Box::new(asked)));
            }
            45..60 => self.report(),
            60..75 => self.answer_for_the_disk(),
            75..85 => self.write_behind(),
            85..92 => self.pass_time(),
            92 => self.restart(),
            93 if self.random.one_in(4) => self.erase(),
            94 if self.random.one_in(20) => self.apply(Input::ShuttingDown),
            95 => self.apply(Input::Deadline),
            _ => self.report_in_vain(),
        }
    }

    /// Drains all work, and checks that nothing waits forever.
    fn come_to_rest(&mut self) {
        for _ in 0..500 {
            if self.book.counts().in_flight == 0 {
                assert_eq!((self.book.counts().lanes, self.book.next_deadline()), (0, None));
                return;
            }
            self.report();
            self.answer_for_the_disk();
            self.pass_time();
        }
        panic!("something waits for ever: {:?}", self.book);
    }

    fn submission(&mut self) -> Submission {
        self.tickets += 1;
        let ids: &[&str] = if self.dense { &IDS } else { &IDS[..6] };
        let sessions = if self.dense { &SESSIONS[..] } else { &SESSIONS[..4] };
        let session = self.random.pick(sessions).copied().flatten();
        let variant = self.random.below(4);
        let name = self.random.pick(ids).filter(|_| !self.random.one_in(5));
        let name = name.map_or_else(|| Name::Made("made".into()), |id| Name::Given((*id).into()));
        let key = if self.random.one_in(3) { self.random.pick(&["k", "l"]).copied() } else { None };
        let depends = self.random.one_in(3) != self.dense;
        let dependencies = if depends { self.random.below(4) } else { 0 };
        let depends_on: Vec<Arc<str>> =
            (0..dependencies).filter_map(|_| self.random.pick(ids).map(|id| (*id).into())).collect();
        let place = session.map_or(0, |name| u128::from(name.as_bytes()[0]));
        Submission {
            ticket: Ticket(self.tickets),
            name,
            key: key.map(Into::into),
            kind: format!("kind {variant}").into(),
            session: session.map(SessionId::from),
            fingerprint: Fingerprint(place * 10 + u128::from(variant)),
            depends_on,
            order: self.order(),
            time_limit: if self.random.one_in(2) { Some(10 + self.random.below(20)) } else { None },
            keeping: if variant.is_multiple_of(2) { Keeping::Durable } else { Keeping::Light },
            counting: if self.random.one_in(10) { Counting::Free } else { Counting::Counted },
            spell,
        }
    }

    fn order(&mut self) -> Order {
        let orders = [Order::Waits, Order::Waits, Order::Long, Order::Reads, Order::Reads, Order::Overtakes];
        self.random.pick(&orders).copied().unwrap_or(Order::Waits)
    }

    fn report(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let ticket = self.running.swap_remove(self.random.below(self.running.len() as u64) as usize);
        let outcome = self.outcome();
        self.apply(Input::Finished(ticket, outcome));
    }

    /// Reports for an abandoned or unknown ticket, which must have no effect.
    fn report_in_vain(&mut self) {
        let ticket = self.abandoned.pop().unwrap_or(Ticket(self.tickets + 1_000_000));
        let input = match self.random.below(3) {
            0 => Input::Kept(Ticket(self.tickets + 1_000_000)),
            1 => Input::Settled(Ticket(self.tickets + 1_000_000)),
            _ => Input::Finished(ticket, self.outcome()),
        };
        let effects = self.book.apply(input, self.now);
        assert!(effects.is_empty(), "nobody asked: {effects:?}");
    }

    fn outcome(&mut self) -> Outcome {
        let body = *self.random.pick(&["x", "[\"s\"]", "yy"]).unwrap();
        match self.random.below(4) {
            0 => Outcome::failed(body),
            1 => Outcome::done(body, Some(self.random.below(9))),
            _ => Outcome::done(body, None),
        }
    }

    fn answer_for_the_disk(&mut self) {
        if self.random.one_in(2) && !self.keeping.is_empty() {
            let (ticket, record) = self.keeping.remove(0);
            if self.random.one_in(8) {
                return self.apply(Input::NotKept(ticket));
            }
            self.write_admission(record);
            self.apply(Input::Kept(ticket));
        } else if !self.settling.is_empty() {
            let (ticket, settlement) = self.settling.remove(0);
            if self.random.one_in(8) {
                return self.apply(Input::NotSettled(ticket));
            }
            self.write_outcome(settlement);
            self.apply(Input::Settled(ticket));
        }
    }

    fn write_admission(&mut self, record: Option<Arc<Record>>) {
        let Some(record) = record else { return };
        self.disk.entry(record.row.0).or_insert(Stored { record: (*record).clone(), settled: None });
    }

    fn write_outcome(&mut self, settlement: Option<Settlement>) {
        let Some(settlement) = settlement else { return };
        let stored = Stored {
            record: (*settlement.record).clone(),
            settled: Some((settlement.outcome, settlement.at)),
        };
        self.disk.insert(stored.record.row.0, stored);
    }

    fn write_behind(&mut self) {
        let some = self.random.below(self.behind.len() as u64 + 1) as usize;
        for write in self.behind.drain(..some).collect::<Vec<_>>() {
            match write {
                Behind::Settle(settlement) => self.write_outcome(Some(settlement)),
                Behind::Forget(row) => drop(self.disk.remove(&row)),
            }
        }
    }

    fn pass_time(&mut self) {
        if let Some(at) = self.book.next_deadline() {
            self.now = Now(self.now.0.max(at.0));
            self.apply(Input::Deadline);
        }
    }

    fn erase(&mut self) {
        let session = SessionId::from("s");
        self.apply(Input::Erased(session.clone()));
        let words = mention(&session);
        for (_, record) in &mut self.keeping {
            record.take_if(|record| record.session.as_ref() == Some(&session));
        }
        for (_, settlement) in &mut self.settling {
            settlement.take_if(|settlement| settlement.record.session.as_ref() == Some(&session));
            if let Some(settlement) = settlement {
                clear(&mut settlement.outcome, &words);
            }
        }
        self.behind.retain(|write| match write {
            Behind::Settle(settlement) => settlement.record.session.as_ref() != Some(&session),
            Behind::Forget(_) => true,
        });
        for write in &mut self.behind {
            if let Behind::Settle(settlement) = write {
                clear(&mut settlement.outcome, &words);
            }
        }
        self.disk.retain(|_, stored| stored.record.session.as_ref() != Some(&session));
        for stored in self.disk.values_mut() {
            if let Some((outcome, _)) = &mut stored.settled {
                clear(outcome, &words);
            }
        }
    }

    fn restart(&mut self) {
        // A prefix of the writes in flight has reached the disk.
        let kept = self.random.below(self.keeping.len() as u64 + 1) as usize;
        for (_, record) in self.keeping.drain(..kept).collect::<Vec<_>>() {
            self.write_admission(record);
        }
        let settled = self.random.below(self.settling.len() as u64 + 1) as usize;
        for (_, settlement) in self.settling.drain(..settled).collect::<Vec<_>>() {
            self.write_outcome(settlement);
        }
        self.write_behind();
        self.keeping.clear();
        self.settling.clear();
        self.behind.clear();
        self.running.clear();
        self.abandoned.clear();
        let rows: Vec<Stored> = self.disk.values().cloned().collect();
        let (book, effects) = Book::restore(LIMITS, rows.clone(), spell, self.now);
        self.book = book;
        self.model.restart(&rows, self.now, &effects);
        self.carry_out(effects);
    }

    fn apply(&mut self, input: Input) {
        let effects = self.book.apply(input.clone(), self.now);
        self.model.see(&input, self.now, &effects);
        assert_eq!(self.book.next_deadline(), self.model.next_deadline());
        let counts = self.book.counts();
        assert_eq!((counts.in_flight, counts.outcomes), (self.model.in_flight(), self.model.remembered()));
        assert!(counts.in_flight <= LIMITS.in_flight && counts.outcomes <= LIMITS.outcomes);
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Keep(ticket, record) => self.keeping.push((ticket, Some(record))),
                Effect::Run(ticket) => self.running.push(ticket),
                Effect::Abandon(ticket) => {
                    self.running.retain(|other| *other != ticket);
                    self.abandoned.push(ticket);
                }
                Effect::Settle(ticket, settlement) => self.settling.push((ticket, Some(settlement))),
                Effect::SettleLater(settlement) => self.behind.push(Behind::Settle(settlement)),
                Effect::Forget(row) => self.behind.push(Behind::Forget(row.0)),
                Effect::Refuse(..) | Effect::Accepted(_) | Effect::Finished { .. } => {}
            }
        }
    }
}

fn clear(outcome: &mut Outcome, words: &str) {
    if outcome.body.text().is_some_and(|text| text.contains(words)) {
        outcome.body = Body::Gone;
    }
}
