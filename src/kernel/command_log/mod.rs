//! The command log: admission, ordering and outcomes of commands.
//!
//! One log serves the whole server and every protocol whose commands have a lifecycle: they are announced, repeated
//! under the same name without running again, may depend on each other and have a time limit. The log takes one input
//! and the current time and returns an ordered list of effects. It does not know what a command does or what its
//! reply says.
//!
//! # Guarantees
//!
//! A command under one id or key runs at most once while the log keeps its outcome, and every repetition gets the
//! same outcome, whether it arrives before or after the end. A repetition under a new name registers that name for
//! the same outcome. Failures and timeouts are outcomes too; later reports of a timed-out command are ignored. A
//! command whose name was used for another command fails with a conflict, which is not stored.
//!
//! A lane is a session, or the commands without a session. Writes run in order of admission, one at a time in their
//! lane, and the lane continues when the outcome is written. Reads wait for the writes before them, except for a long
//! write that is running. Bypassing commands run at once. A command depends only on commands admitted before it, and
//! a lane orders commands by admission, so no cycle of waiting commands can form.
//!
//! A command without an id and a key cannot be referred to, so it is neither persisted nor cached.

mod active;
mod admission;
mod completion;
mod effect;
mod error;
mod lanes;
mod limits;
mod name_index;
mod outcome_cache;
pub mod record;
mod restore;
mod submission;

use std::collections::{BTreeMap, BTreeSet};

use super::rate::RateLimiter;
use super::time::Now;

pub use effect::Effect;
pub use error::{AdmissionRefusal, CommandError, MatchedBy};
pub use limits::CommandLogLimits;
pub use record::{CommandOutcome, CommandRecord, Kind, OutcomeRecord, ReplyBody, RowId, StoredCommand};
pub use submission::{
    CommandName, ErrorFormatter, Input, Persistence, RateClass, Scheduling, Submission, SubmissionId,
};

use active::ActiveCommand;
use lanes::Lanes;
use name_index::NameIndex;
use outcome_cache::OutcomeCache;

/// The command log.
#[derive(Debug)]
pub struct CommandLog {
    limits: CommandLogLimits,
    rate: RateLimiter,
    /// The rate limiter for control commands.
    control_rate: RateLimiter,
    /// The commands in flight.
    active: BTreeMap<SubmissionId, ActiveCommand>,
    /// How many repetitions wait for commands in flight.
    waiting_duplicates: usize,
    /// The outcomes of finished commands.
    outcomes: OutcomeCache,
    names: NameIndex,
    lanes: Lanes,
    deadlines: BTreeSet<(Now, SubmissionId)>,
    next_row: u64,
    shutting_down: bool,
    refused_as_busy: u64,
}

/// Statistics of a command log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommandLogStats {
    /// Commands in flight, waiting repetitions included.
    pub in_flight: usize,
    /// Cached outcomes.
    pub outcomes: usize,
    /// Known keys; some of them may have expired.
    pub keys: usize,
    /// Lanes that are not empty.
    pub lanes: usize,
    /// Commands that were refused because too many were in flight.
    pub refused_as_busy: u64,
}

impl CommandLog {
    /// Creates an empty log.
    pub fn new(limits: CommandLogLimits) -> Self {
        Self {
            limits,
            rate: RateLimiter::new(limits.rate),
            control_rate: RateLimiter::new(limits.rate),
            active: BTreeMap::new(),
            waiting_duplicates: 0,
            outcomes: OutcomeCache::default(),
            names: NameIndex::default(),
            lanes: Lanes::default(),
            deadlines: BTreeSet::new(),
            next_row: 1,
            shutting_down: false,
            refused_as_busy: 0,
        }
    }

    /// Advances the log by one input.
    ///
    /// The driver must start the effects in order, but need not wait for one before it starts the next: results that
    /// the log needs come back as inputs.
    #[must_use = "dropping effects loses answers and outcomes"]
    pub fn apply(&mut self, input: Input, now: Now) -> Vec<Effect> {
        let mut fx = Vec::with_capacity(4);
        match input {
            Input::Submit(submission) => self.submit(*submission, now, &mut fx),
            Input::Finished(ticket, outcome) => self.handle_finished(ticket, outcome, now, &mut fx),
            Input::FinishedWithEffect(ticket, outcome) => {
                self.handle_finished_with_effect(ticket, outcome, now, &mut fx)
            }
            Input::OutcomePersisted(ticket) => self.outcome_persisted(ticket, now, &mut fx),
            Input::OutcomeFailed(ticket) => self.outcome_persisted(ticket, now, &mut fx),
            Input::Deadline => self.expire(now, &mut fx),
            Input::SessionDeleted(session) => self.forget_session(&session),
            Input::ShuttingDown => self.shutting_down = true,
        }
        fx
    }

    /// Returns when [`Input::Deadline`] is due; `None` if nothing is timed.
    pub fn next_deadline(&self) -> Option<Now> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Returns statistics of the log.
    pub fn stats(&self) -> CommandLogStats {
        CommandLogStats {
            in_flight: self.in_flight(),
            outcomes: self.outcomes.len(),
            keys: self.names.keys(),
            lanes: self.lanes.len(),
            refused_as_busy: self.refused_as_busy,
        }
    }

    /// Returns the number of ordinary commands in the rate window, and the overall limit.
    pub fn rate_used(&mut self, now: Now) -> (usize, usize) {
        (self.rate.in_window(now), self.limits.rate.overall)
    }

    fn in_flight(&self) -> usize {
        self.active.len() + self.waiting_duplicates
    }

    fn allocate_row(&mut self) -> RowId {
        let row = RowId(self.next_row);
        self.next_row += 1;
        row
    }
}
