//! Work on what is stored that nobody should wait for: it is done in slices, between the batches.

use std::collections::VecDeque;

use rusqlite::Connection;

use super::error::{CommitError, MergeError};

/// A piece of such work.
pub(super) trait Chore: Send {
    /// Does a bounded part inside a transaction of the writer, and says whether there is more.
    fn slice(&mut self, connection: &Connection) -> Result<Progress, MergeError>;
    /// Answers whoever asked.
    fn end(self: Box<Self>, outcome: Result<(), MergeError>);
    /// Tells whether the bytes that it frees must not be found again.
    fn erases(&self) -> bool {
        false
    }
}

/// How far a chore is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// There is more to do.
    More,
    /// Everything is done.
    Done,
}

/// The chores that wait for their next slice.
#[derive(Default)]
pub(super) struct Chores {
    waiting: VecDeque<Box<dyn Chore>>,
}

impl Chores {
    pub(super) fn add(&mut self, chore: Box<dyn Chore>) {
        self.waiting.push_back(chore);
    }

    /// Takes the chore whose turn it is; whoever takes it puts it back if it is not done.
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
