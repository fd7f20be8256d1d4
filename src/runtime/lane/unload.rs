//! How a session leaves memory: unloaded when it is idle, closed when the daemon shuts down, or deleted.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::oneshot;

use super::batch;
use super::{Lane, LaneInput, LaneRequest};
use crate::journal::{Batch, CommitError, Durability};
use crate::kernel::command::PrivateEvent;
use crate::kernel::effect::Report;
use crate::kernel::session::Input;
use crate::kernel::state::State;

/// Why a lane ended.
#[derive(Debug, PartialEq, Eq)]
pub enum LaneEnd {
    /// The session was idle for a while and left memory.
    Unloaded,
    /// The session is being deleted.
    Deleted,
    /// The daemon shuts down.
    Closed,
    /// The journal refused a batch; the session is restored from what is stored.
    Broken,
}

/// The end of a lane.
#[derive(Debug)]
pub struct LaneExit {
    /// Why it ended.
    pub end: LaneEnd,
    /// The requests that were left in its inboxes, in the order in which they were sent, for the next lane.
    pub unhandled: VecDeque<Box<LaneRequest>>,
}

impl From<LaneEnd> for LaneExit {
    fn from(end: LaneEnd) -> Self {
        Self { end, unhandled: VecDeque::new() }
    }
}

/// A request that the lane ends, because the session is to be deleted.
#[derive(Debug)]
pub struct DeleteRequest {
    /// The cause, which sets the condition.
    pub cause: DeletionCause,
    /// Receives the reply; dropped if the lane ends before it can reply.
    pub reply: oneshot::Sender<DeleteReply>,
}

/// Why a session is deleted, and under which condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeletionCause {
    /// A client requested it: the session must have no active run.
    Requested {
        /// The source of the client.
        by: String,
    },
    /// Retention: the session must be idle and without subscribers.
    Retention,
}

impl DeletionCause {
    /// Returns the source that the deletion is attributed to.
    pub fn by(&self) -> &str {
        match self {
            Self::Requested { by } => by,
            Self::Retention => "retention",
        }
    }
}

/// The reply to a delete request.
#[derive(Debug)]
pub enum DeleteReply {
    /// The lane ends and writes nothing more; the event is for its subscribers, once the session is deleted.
    Accepted(PrivateEvent),
    /// The session is unchanged.
    Refused,
}

/// What an idle session keeps in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdleMemory {
    /// Everything.
    Held,
    /// Nothing that can be read from the journal.
    Released,
}

/// Returns about how many bytes the parts of a state take that grow with its history.
fn retained_bytes(state: &State) -> usize {
    let texts = state.last_text.capacity() + state.last_message.capacity();
    let entries = state.idempotency.len() + state.settled_gates.len() + state.granted.len() + state.participants.len();
    texts + entries * ENTRY_BYTES
}

/// About how much memory an entry of a map takes, with its keys.
const ENTRY_BYTES: usize = 256;

impl Lane {
    /// Returns whether the session can be unloaded.
    pub(super) fn is_idle(&self) -> bool {
        self.session.is_idle() && self.in_flight.is_none() && self.pending.is_empty()
    }

    /// Returns how long the idle session waits for its next step out of memory.
    pub(super) fn idle_pause(&self) -> Duration {
        let (release, park) = (self.services.limits.release_after, self.services.limits.park_after);
        match self.idle_memory {
            IdleMemory::Held => release.min(park),
            IdleMemory::Released => park.saturating_sub(release),
        }
    }

    /// Drops the conversation, and unloads the session if nobody uses it.
    ///
    /// An idle session first drops what the journal has too. It stays in memory, if that leaves little, so that the
    /// next command finds it there.
    pub(super) async fn handle_idle_timeout(&mut self) -> Option<LaneExit> {
        self.conversation.clear();
        if !self.is_idle() {
            return None;
        }
        let limits = &self.services.limits;
        if self.idle_memory == IdleMemory::Held && limits.release_after < limits.park_after {
            self.idle_memory = IdleMemory::Released;
            self.feed.clear();
            self.inbox.shrink();
            self.handle.set_snapshot(None);
            if retained_bytes(self.session.state()) <= limits.idle_bytes {
                return None;
            }
        }
        self.unload().await
    }

    /// Stores a checkpoint and unloads the session, unless an input has arrived meanwhile.
    ///
    /// Later requests find the lane closed and load the session again; requests in the inboxes are returned.
    async fn unload(&mut self) -> Option<LaneExit> {
        if let Err(error) = self.flush().await {
            self.fail(&error);
            return Some(LaneEnd::Broken.into());
        }
        if !self.session.is_idle() || !self.inbox.is_empty() {
            return None;
        }
        Some(LaneExit { end: LaneEnd::Unloaded, unhandled: self.close_inboxes() })
    }

    /// Ends the lane for a deletion, if the condition holds: commits and answers everything first, and writes nothing
    /// after.
    pub(super) async fn prepare_delete(&mut self, request: DeleteRequest) -> Option<LaneExit> {
        // A run that waits for disk space has not ended, whatever was decided since.
        if self.is_waiting_for_space() {
            let _ = request.reply.send(DeleteReply::Refused);
            return None;
        }
        if let Err(error) = self.commit_pending().await {
            self.fail(&error);
            return Some(LaneEnd::Broken.into());
        }
        let may_go = match &request.cause {
            DeletionCause::Requested { .. } => self.is_damaged() || self.session.state().run.is_none(),
            DeletionCause::Retention => !self.is_damaged() && self.session.is_idle(),
        };
        if !may_go {
            // The requester may be gone.
            let _ = request.reply.send(DeleteReply::Refused);
            return None;
        }
        let unhandled = self.close_inboxes();
        let farewell = self.session.deletion_notice(request.cause.by(), self.services.clock.now());
        let _ = request.reply.send(DeleteReply::Accepted(farewell));
        Some(LaneExit { end: LaneEnd::Deleted, unhandled })
    }

    /// Closes the inboxes, and returns the requests in them, in the order in which they were sent.
    fn close_inboxes(&mut self) -> VecDeque<Box<LaneRequest>> {
        self.inbox.close();
        let mut unhandled = self.inbox.drain_commands();
        while let Some(input) = self.inbox.try_next_control() {
            match input {
                LaneInput::Control(request, sent) => unhandled.push((sent, request)),
                // A disconnect needs no reply, the next lane reads the floor, a dropped delete request is repeated,
                // and a query that gets no conversation reads the journal.
                LaneInput::Disconnected(_)
                | LaneInput::RaiseFloor(_)
                | LaneInput::Delete(_)
                | LaneInput::Conversation { .. } => {}
            }
        }
        // The sort is stable: control follows the commands that were sent before it.
        unhandled.sort_by_key(|(sent, _)| *sent);
        unhandled.into_iter().map(|(_, request)| request).collect()
    }

    /// Commits everything, with a checkpoint and the exact end of the used sequence numbers.
    async fn flush(&mut self) -> Result<(), CommitError> {
        self.commit_pending().await?;
        if self.is_read_only() {
            return Ok(());
        }
        let mut batch = Batch::new(self.id.clone());
        let last = self.session.release_reservation();
        batch.reserved_seq = Some(last);
        if self.checkpoint_policy.is_worthwhile() {
            let checkpoint = batch::checkpoint(self.session.state());
            self.checkpoint_policy.record(checkpoint.bytes.len());
            batch.checkpoint = Some(checkpoint);
        }
        batch.meta = Some(self.meta());
        batch.durability = Durability::Synced;
        // The final batch of a daemon that shuts down may use the disk reserve; an unload can wait for space.
        batch.urgent = self.services.closing.is_set();
        self.services.journal.commit(batch).await.unwrap_or(Err(CommitError::Closed))?;
        self.reserved_on_disk = last;
        Ok(())
    }

    /// Commits the pending batches and performs their effects.
    async fn commit_pending(&mut self) -> Result<(), CommitError> {
        while self.in_flight.is_some() || !self.pending.is_empty() || !self.ready_effects.is_empty() {
            self.submit();
            self.perform_ready().await;
            if self.is_waiting_for_space() {
                // The journal refused this batch and its result was consumed, so it is submitted once more.
                self.submit_in_flight();
            }
            if let Some(in_flight) = &mut self.in_flight {
                match in_flight.wait_for_commit().await {
                    Ok(()) => self.handle_commit(),
                    Err(error) if self.handle_sync_failure(&error) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Handles the outputs and results of tools, and no report that would start something.
    fn take_call_results(&mut self) {
        while let Some(reported) = self.run_tasks.try_next_report() {
            if matches!(reported.report, Report::CallOutput { .. } | Report::CallSettled(_)) {
                self.handle_report(*reported);
            }
        }
    }

    /// Ends a run whose provider would end it at its next turn, so that the journal holds its end at shutdown.
    fn finish_at_shutdown(&mut self) {
        let Some(turn) = self.session.next_turn() else { return };
        let provider = self.services.providers.get(turn.model_choice.provider.as_str());
        if let Some(finish) = provider.and_then(|provider| provider.finish_at_stop(&turn)) {
            self.apply(Input::FinishedAtShutdown(finish), None);
        }
    }

    pub(super) async fn close(&mut self) -> LaneEnd {
        self.inbox.close();
        let left = self.run_tasks.stop_all().await;
        // After the end of its task: a tool that has exited by itself was not stopped.
        self.take_call_results();
        if !self.is_read_only() {
            self.apply(Input::ShutDown { survivors: left }, None);
            self.finish_at_shutdown();
        }
        match self.flush().await {
            Ok(()) => LaneEnd::Closed,
            Err(error) => {
                self.fail(&error);
                LaneEnd::Broken
            }
        }
    }
}
