//! How the events of the write-ahead file reach the database.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::{WriteAhead, join};
use crate::journal::error::CommitError;
use crate::journal::record::{Batch, Block};
use crate::journal::task::Reply;
use crate::journal::writer::Writer;
use crate::kernel::id::SessionId;

/// Batches with the receivers of their results.
type Group = Vec<(Box<Batch>, Reply)>;

impl Writer {
    /// Sets when the events of the write-ahead file are stored.
    pub(in crate::journal) fn schedule_flush(&mut self) {
        let is_due = self.write_ahead.as_ref().is_some_and(|write_ahead| write_ahead.is_due());
        let at = Instant::now() + if is_due { Duration::ZERO } else { self.options.flush_after };
        self.flush_at = Some(self.flush_at.map_or(at, |known| known.min(at)));
    }

    /// Returns how long the events of the write-ahead file may still wait.
    pub(in crate::journal) fn flush_due(&self) -> Option<Duration> {
        let write_ahead = self.write_ahead.as_ref().filter(|_| !self.is_full() && !self.failed())?;
        match self.flush_at {
            Some(at) => Some(at.saturating_duration_since(Instant::now())),
            None => write_ahead.is_due().then_some(Duration::ZERO),
        }
    }

    pub(in crate::journal) fn flush_when_due(&mut self) {
        if self.flush_due() == Some(Duration::ZERO) {
            self.flush_write_ahead();
        }
    }

    /// Adds the events of the write-ahead file to the first batch of their session, which they precede.
    pub(in crate::journal) fn with_write_ahead(&self, group: Group) -> Group {
        let Some(write_ahead) = &self.write_ahead else { return group };
        let mut whole = Group::with_capacity(group.len());
        for (mut batch, reply) in group {
            let blocks = write_ahead.blocks_of(&batch.session);
            if !blocks.is_empty() && whole.iter().all(|(earlier, _)| earlier.session != batch.session) {
                let mut joined = join(blocks.into_iter().chain(batch.block.take()));
                batch.block = joined.pop();
                let urgent = batch.urgent;
                let before = separate(batch.session.clone(), joined);
                whole.extend(before.map(|(before, reply)| (Box::new(Batch { urgent, ..*before }), reply)));
            }
            whole.push((batch, reply));
        }
        whole
    }

    /// Stores all events of the write-ahead file and empties it; returns whether it succeeded.
    pub(in crate::journal) fn flush_write_ahead(&mut self) -> bool {
        self.flush_at = None;
        let Some(write_ahead) = self.write_ahead.clone() else { return true };
        if self.failed() {
            return false;
        }
        let waiting = write_ahead.begin_flush().into_iter();
        let group: Group = waiting.flat_map(|(session, blocks)| separate(session, join(blocks))).collect();
        let is_stored = self.store(&write_ahead, group, Attempt::First).is_ok();
        if is_stored {
            write_ahead.end_flush();
        } else {
            self.flush_at = Some(Instant::now() + self.options.flush_after);
        }
        is_stored
    }

    /// Stores events in one transaction. Those that conflict with their session are dropped: they would never fit.
    fn store(&mut self, write_ahead: &WriteAhead, group: Group, attempt: Attempt) -> Result<(), CommitError> {
        let results = self.transact(&group).inspect_err(|error| {
            tracing::warn!(%error, "cannot store events of the write-ahead file, which keeps them");
        });
        let results = match results {
            Ok(results) => results,
            Err(error) => {
                if matches!(error, CommitError::Full) {
                    self.set_full();
                }
                self.note_sync_failure(&error);
                self.replace_if_corrupt(&error);
                return Err(error);
            }
        };
        let mut again = Group::new();
        for ((batch, _), result) in group.iter().zip(&results) {
            let (Err(error), Some(block)) = (result, &batch.block) else { continue };
            if error.is_corrupt() && attempt == Attempt::First {
                again.push((batch.clone(), oneshot::channel().0));
            } else {
                tracing::error!(session = %batch.session, %error, "dropped events of the write-ahead file");
                write_ahead.remove_stored(&batch.session, block.last);
            }
        }
        // Replaces a database that is corrupt.
        self.reply_to_group(group, results);
        if again.is_empty() { Ok(()) } else { self.store(write_ahead, again, Attempt::AfterSalvage) }
    }

    /// Empties both regions, one of which may have been in use since a flush that failed.
    pub(in crate::journal) fn erase_write_ahead(&mut self) -> bool {
        let is_empty = |writer: &Self| writer.write_ahead.as_ref().is_none_or(|write_ahead| write_ahead.is_empty());
        is_empty(self) || (self.flush_write_ahead() && (is_empty(self) || self.flush_write_ahead()))
    }
}

/// Whether the database was replaced since the first attempt to store events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    First,
    AfterSalvage,
}

/// Returns a batch for each block.
fn separate(session: SessionId, blocks: Vec<Block>) -> impl Iterator<Item = (Box<Batch>, Reply)> {
    let batch = move |block| Box::new(Batch { block: Some(block), ..Batch::new(session.clone()) });
    // Nobody waits for the result.
    blocks.into_iter().map(move |block| (batch(block), oneshot::channel().0))
}
