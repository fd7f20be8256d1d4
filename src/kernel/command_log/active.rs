//! A command in flight.

use std::sync::Arc;

use super::super::time::Now;
use super::record::{CommandOutcome, CommandRecord};
use super::submission::{ErrorFormatter, Persistence, Scheduling, Submission, SubmissionId};

/// A command between its admission and its end.
#[derive(Debug)]
pub(super) struct ActiveCommand {
    pub(super) record: Arc<CommandRecord>,
    /// Its name, which may be generated.
    pub(super) name: Arc<str>,
    pub(super) scheduling: Scheduling,
    pub(super) time_limit: Option<u64>,
    pub(super) persistence: Persistence,
    pub(super) format_error: ErrorFormatter,
    pub(super) state: CommandState,
    /// Whether its outcome was committed together with its effect.
    pub(super) outcome_committed: bool,
    /// Whether its outcome is cached and, unless it only reads, stored.
    pub(super) retained: bool,
    /// The dependencies that have not finished.
    pub(super) unmet: Vec<Dependency>,
    /// The commands that depend on it.
    pub(super) dependents: Vec<SubmissionId>,
    /// The submissions that repeat it and wait for its outcome.
    pub(super) duplicates: Vec<Duplicate>,
    /// Its entry in the set of deadlines.
    pub(super) deadline: Option<Now>,
}

/// The state of a command in flight.
#[derive(Debug)]
pub(super) enum CommandState {
    /// It waits for its turn or for a dependency.
    Waiting,
    /// It is being executed.
    Running,
    /// It has ended, and its outcome is being written.
    Settling { outcome: CommandOutcome, replayed: bool, at: Now },
}

/// A command that another depends on.
#[derive(Debug)]
pub(super) struct Dependency {
    pub(super) ticket: SubmissionId,
    /// The id by which the dependent command names it.
    pub(super) id: Arc<str>,
}

/// A repetition of a command in flight.
#[derive(Debug)]
pub(super) struct Duplicate {
    pub(super) ticket: SubmissionId,
    pub(super) name: Arc<str>,
    /// Its record, if some of its names are new.
    pub(super) record: Option<Arc<CommandRecord>>,
}

impl ActiveCommand {
    /// Creates a command that was just admitted.
    pub(super) fn new(submission: &Submission, record: Arc<CommandRecord>, unmet: Vec<Dependency>) -> Self {
        let retained = record.id.is_some() || record.key.is_some();
        Self {
            name: Arc::clone(submission.name.text()),
            scheduling: submission.scheduling,
            time_limit: submission.time_limit,
            persistence: submission.persistence,
            format_error: submission.format_error,
            state: CommandState::Waiting,
            outcome_committed: false,
            retained,
            record,
            unmet,
            dependents: Vec::new(),
            duplicates: Vec::new(),
            deadline: None,
        }
    }

    /// Creates a repetition, under a new name, of a finished command. It never runs and belongs to no lane.
    pub(super) fn duplicate(
        name: Arc<str>,
        record: Arc<CommandRecord>,
        persistence: Persistence,
        format_error: ErrorFormatter,
    ) -> Self {
        Self {
            record,
            name,
            scheduling: Scheduling::Bypass,
            time_limit: None,
            persistence,
            format_error,
            state: CommandState::Waiting,
            outcome_committed: false,
            retained: true,
            unmet: Vec::new(),
            dependents: Vec::new(),
            duplicates: Vec::new(),
            deadline: None,
        }
    }

    pub(super) const fn is_waiting(&self) -> bool {
        matches!(self.state, CommandState::Waiting)
    }

    pub(super) const fn is_running(&self) -> bool {
        matches!(self.state, CommandState::Running)
    }

    pub(super) const fn is_settling(&self) -> bool {
        matches!(self.state, CommandState::Settling { .. })
    }
}
