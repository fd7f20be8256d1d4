//! A command log with a driver that acts at once, and effects as short texts.

use pushd::kernel::command_log::{
    CommandError, CommandLog, CommandLogLimits, CommandName, CommandOutcome, Effect, Input, Persistence, RateClass,
    ReplyBody, Scheduling, StoredCommand, Submission, SubmissionId,
};
use pushd::kernel::id::{Fingerprint, SessionId};
use pushd::kernel::rate::RateLimits;
use pushd::kernel::time::Now;

pub(crate) const LIMITS: CommandLogLimits = CommandLogLimits {
    in_flight: 4,
    outcomes: 3,
    body_bytes: 1_000,
    large_bytes: 40,
    dependencies: 2,
    dependency_millis: 30,
    key_millis: 600,
    error_bytes: 6,
    rate: RateLimits { session: 50, overall: 100, window_millis: 1_000 },
};

pub(crate) struct Fixture {
    pub(crate) log: CommandLog,
    pub(crate) now: Now,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with_limits(LIMITS)
    }

    pub(crate) fn with_limits(limits: CommandLogLimits) -> Self {
        Self { log: CommandLog::new(limits), now: Now(1_000) }
    }

    pub(crate) fn restored(limits: CommandLogLimits, stored: Vec<StoredCommand>, now: Now) -> (Self, Vec<String>) {
        let (log, effects) = CommandLog::restore(limits, stored, format_error, now);
        (Self { log, now }, describe_all(&effects))
    }

    pub(crate) fn apply(&mut self, input: Input) -> Vec<String> {
        describe_all(&self.log.apply(input, self.now))
    }

    pub(crate) fn submit(&mut self, submission: Submission) -> Vec<String> {
        self.apply(Input::Submit(Box::new(submission)))
    }

    /// The command of this ticket succeeds.
    pub(crate) fn succeed(&mut self, ticket: u64, result: &str) -> Vec<String> {
        self.apply(Input::Finished(SubmissionId(ticket), CommandOutcome::succeeded(result, None)))
    }

    /// The command of this ticket fails.
    pub(crate) fn fail(&mut self, ticket: u64, error: &str) -> Vec<String> {
        self.apply(Input::Finished(SubmissionId(ticket), CommandOutcome::failed(error)))
    }

    /// Fires the deadline, which must be due `millis` from now.
    pub(crate) fn deadline_in(&mut self, millis: u64) -> Vec<String> {
        self.now = self.now.after(millis);
        assert_eq!(self.log.next_deadline(), Some(self.now), "another deadline is due");
        self.apply(Input::Deadline)
    }
}

/// The simplest command: it waits for its turn and is persisted lazily.
pub(crate) fn command(ticket: u64, id: &str) -> Submission {
    Submission {
        ticket: SubmissionId(ticket),
        name: CommandName::Client(id.into()),
        key: None,
        kind: "work".into(),
        session: Some(SessionId::from("s")),
        fingerprint: Fingerprint(7),
        depends_on: Vec::new(),
        scheduling: Scheduling::Write,
        time_limit: None,
        persistence: Persistence::Relaxed,
        rate_class: RateClass::Ordinary,
        format_error,
    }
}

/// A command whose outcome is stored with its effect, or before it is announced.
pub(crate) fn stored_with_effect(ticket: u64, id: &str) -> Submission {
    Submission { persistence: Persistence::WithEffect, ..command(ticket, id) }
}

pub(crate) fn in_session(session: &str, submission: Submission) -> Submission {
    Submission { session: Some(SessionId::from(session)), ..submission }
}

pub(crate) fn keyed(key: &str, submission: Submission) -> Submission {
    Submission { key: Some(key.into()), ..submission }
}

pub(crate) fn after(ids: &[&str], submission: Submission) -> Submission {
    Submission { depends_on: ids.iter().map(|id| (*id).into()).collect(), ..submission }
}

pub(crate) fn with_other_content(submission: Submission) -> Submission {
    Submission { fingerprint: Fingerprint(8), kind: "other".into(), ..submission }
}

pub(crate) fn anonymous(submission: Submission) -> Submission {
    Submission { name: CommandName::Generated("anon".into()), ..submission }
}

pub(crate) fn format_error(fault: &CommandError) -> String {
    format!("{fault:?}")
}

pub(crate) fn describe_all(effects: &[Effect]) -> Vec<String> {
    effects.iter().map(describe).collect()
}

fn describe(effect: &Effect) -> String {
    match effect {
        Effect::Refuse(ticket, refusal) => format!("refuse {} {refusal:?}", ticket.0),
        Effect::Accept(ticket) => format!("accepted {}", ticket.0),
        Effect::PersistAdmission(record) => format!("keep {}", record.id.as_deref().unwrap_or("?")),
        Effect::Run { ticket, .. } => format!("run {}", ticket.0),
        Effect::Abandon(ticket) => format!("abandon {}", ticket.0),
        Effect::PersistOutcome(ticket, settled) => {
            format!("settle {} {}", ticket.0, describe_outcome(&settled.outcome))
        }
        Effect::PersistOutcomeLater(settled) => {
            let name = settled.record.id.as_deref().or(settled.record.key.as_deref());
            format!("later {} {}", name.unwrap_or("?"), describe_outcome(&settled.outcome))
        }
        Effect::Finish { ticket, outcome: ending, replayed } => {
            let again = if *replayed { "again " } else { "" };
            format!("finished {} {again}{}", ticket.0, describe_outcome(ending))
        }
        Effect::DeleteRecord(row) => format!("forget {}", row.0),
    }
}

fn describe_outcome(outcome: &CommandOutcome) -> String {
    let body = match &outcome.body {
        ReplyBody::Text(text) => text.to_string(),
        ReplyBody::TooLarge(bytes) => format!("<{bytes} bytes>"),
        ReplyBody::Removed => "<gone>".to_owned(),
    };
    let late = if outcome.timed_out { "late " } else { "" };
    format!("{}{late}{body}", if outcome.success { "ok " } else { "failed " })
}
