//! A command log with a driver that acts at once, and effects as short texts.

use pushd::kernel::book::{
    Body, Book, BookFault, BookLimits, Counting, Effect, Input, Keeping, Name, Order, Outcome, Stored,
    Submission, Ticket,
};
use pushd::kernel::id::{Fingerprint, SessionId};
use pushd::kernel::rate::RateLimits;
use pushd::kernel::time::Now;

pub(crate) const LIMITS: BookLimits = BookLimits {
    in_flight: 4,
    outcomes: 3,
    body_bytes: 1_000,
    large_bytes: 40,
    dependencies: 2,
    dependency_millis: 30,
    key_millis: 600,
    error_bytes: 6,
    rate: RateLimits { session: 50, overall: 100, millis: 1_000 },
};

pub(crate) struct Scene {
    pub(crate) book: Book,
    pub(crate) now: Now,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::within(LIMITS)
    }

    pub(crate) fn within(limits: BookLimits) -> Self {
        Self { book: Book::new(limits), now: Now(1_000) }
    }

    pub(crate) fn restored(limits: BookLimits, stored: Vec<Stored>, now: Now) -> (Self, Vec<String>) {
        let (book, effects) = Book::restore(limits, stored, spell, now);
        (Self { book, now }, words(&effects))
    }

    pub(crate) fn apply(&mut self, input: Input) -> Vec<String> {
        words(&self.book.apply(input, self.now))
    }

    pub(crate) fn submit(&mut self, asked: Submission) -> Vec<String> {
        self.apply(Input::Submit(Box::new(asked)))
    }

    /// The command of this ticket succeeds.
    pub(crate) fn done(&mut self, ticket: u64, result: &str) -> Vec<String> {
        self.apply(Input::Finished(Ticket(ticket), Outcome::done(result, None)))
    }

    /// The command of this ticket fails.
    pub(crate) fn fails(&mut self, ticket: u64, error: &str) -> Vec<String> {
        self.apply(Input::Finished(Ticket(ticket), Outcome::failed(error)))
    }

    /// Fires the deadline, which must be due `millis` from now.
    pub(crate) fn deadline_in(&mut self, millis: u64) -> Vec<String> {
        self.now = self.now.after(millis);
        assert_eq!(self.book.next_deadline(), Some(self.now), "another deadline is due");
        self.apply(Input::Deadline)
    }
}

/// The simplest command: it waits for its turn and is persisted lazily.
pub(crate) fn command(ticket: u64, id: &str) -> Submission {
    Submission {
        ticket: Ticket(ticket),
        name: Name::Given(id.into()),
        key: None,
        kind: "work".into(),
        session: Some(SessionId::from("s")),
        fingerprint: Fingerprint(7),
        depends_on: Vec::new(),
        order: Order::Waits,
        time_limit: None,
        keeping: Keeping::Light,
        counting: Counting::Counted,
        spell,
    }
}

pub(crate) fn durable(ticket: u64, id: &str) -> Submission {
    Submission { keeping: Keeping::Durable, ..command(ticket, id) }
}

pub(crate) fn in_session(session: &str, asked: Submission) -> Submission {
    Submission { session: Some(SessionId::from(session)), ..asked }
}

pub(crate) fn keyed(key: &str, asked: Submission) -> Submission {
    Submission { key: Some(key.into()), ..asked }
}

pub(crate) fn after(ids: &[&str], asked: Submission) -> Submission {
    Submission { depends_on: ids.iter().map(|id| (*id).into()).collect(), ..asked }
}

pub(crate) fn another(asked: Submission) -> Submission {
    Submission { fingerprint: Fingerprint(8), kind: "other".into(), ..asked }
}

pub(crate) fn nameless(asked: Submission) -> Submission {
    Submission { name: Name::Made("anon".into()), ..asked }
}

pub(crate) fn spell(fault: &BookFault) -> String {
    format!("{fault:?}")
}

pub(crate) fn words(effects: &[Effect]) -> Vec<String> {
    effects.iter().map(word).collect()
}

fn word(effect: &Effect) -> String {
    match effect {
        Effect::Refuse(ticket, refusal) => format!("refuse {} {refusal:?}", ticket.0),
        Effect::Accepted(ticket) => format!("accepted {}", ticket.0),
        Effect::Keep(ticket, _) => format!("keep {}", ticket.0),
        Effect::Run(ticket) => format!("run {}", ticket.0),
        Effect::Abandon(ticket) => format!("abandon {}", ticket.0),
        Effect::Settle(ticket, settled) => format!("settle {} {}", ticket.0, outcome(&settled.outcome)),
        Effect::SettleLater(settled) => {
            let name = settled.record.id.as_deref().or(settled.record.key.as_deref());
            format!("later {} {}", name.unwrap_or("?"), outcome(&settled.outcome))
        }
        Effect::Finished { ticket, outcome: ending, replayed } => {
            let again = if *replayed { "again " } else { "" };
            format!("finished {} {again}{}", ticket.0, outcome(ending))
        }
        Effect::Forget(row) => format!("forget {}", row.0),
    }
}

fn outcome(outcome: &Outcome) -> String {
    let body = match &outcome.body {
        Body::Text(text) => text.to_string(),
        Body::TooLarge(bytes) => format!("<{bytes} bytes>"),
        Body::Gone => "<gone>".to_owned(),
    };
    let late = if outcome.timed_out { "late " } else { "" };
    format!("{}{late}{body}", if outcome.success { "ok " } else { "failed " })
}
