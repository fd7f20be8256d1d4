//! Background jobs on stored data, run in slices between the batches.

use std::collections::VecDeque;

use rusqlite::Connection;

use super::error::{CommitError, MergeError};

/// A background job.
pub(super) trait Chore: Send {
    /// Runs a bounded part inside a transaction of the writer, and returns whether there is more.
    fn slice(&mut self, connection: &Connection) -> Result<Progress, MergeError>;
    /// Sends the result to the caller.
    fn end(self: Box<Self>, outcome: Result<(), MergeError>);
    /// Returns whether the freed bytes must be overwritten.
    fn erases(&self) -> bool {
        false
    }
}

/// The progress of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// There is more to do.
    More,
    /// The job is done.
    Done,
}

/// The jobs that wait for their next slice.
#[derive(Default)]
pub(super) struct Chores {
    waiting: VecDeque<Box<dyn Chore>>,
}

impl Chores {
    pub(super) fn add(&mut self, chore: Box<dyn Chore>) {
        self.waiting.push_back(chore);
    }

    /// Takes the next job; the caller adds it again if it is not done.
    pub(super) fn next(&mut self) -> Option<Box<dyn Chore>> {
        self.waiting.pop_front()
    }

    pub(super) fn refuse(&mut self, error: &CommitError) {
        for chore in self.waiting.drain(..) {
            chore.end(Err(MergeError::Commit(error.clone())));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
