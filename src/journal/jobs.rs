//! Background jobs on stored data, run in slices between the batches.

use std::collections::VecDeque;

use rusqlite::Connection;

use super::error::{CommitError, JobError};

/// A background job.
pub(super) trait Job: Send {
    /// Runs a bounded part inside a transaction of the writer, and returns whether there is more.
    fn slice(&mut self, connection: &Connection) -> Result<Progress, JobError>;
    /// Sends the result to the caller.
    fn complete(self: Box<Self>, outcome: Result<(), JobError>);
    /// Returns whether the freed bytes must be overwritten.
    fn erases_data(&self) -> bool {
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
pub(super) struct JobQueue {
    waiting: VecDeque<Box<dyn Job>>,
}

impl JobQueue {
    pub(super) fn add(&mut self, job: Box<dyn Job>) {
        self.waiting.push_back(job);
    }

    /// Takes the next job; the caller adds it again if it is not done.
    pub(super) fn next(&mut self) -> Option<Box<dyn Job>> {
        self.waiting.pop_front()
    }

    pub(super) fn refuse(&mut self, error: &CommitError) {
        for job in self.waiting.drain(..) {
            job.complete(Err(JobError::Commit(error.clone())));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
