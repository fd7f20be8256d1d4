//! Collects effects and puts them in order.
//!
//! In whatever order they are added, the driver gets: what must happen immediately, the events to persist, the
//! replies, the subscriptions, the events to emit, and last what changes the outside world. The ordering guarantees
//! hold by construction.

use crate::kernel::audience::Audience;
use crate::kernel::command::{PrivateEvent, Reply};
use crate::kernel::effect::{CompactionRequest, Effect, Ticket, TurnRequest};
use crate::kernel::event::{Criterion, Event, Intention};
use crate::kernel::id::{CallId, ConnectionId, RunId, Seq};

/// Effects, grouped by when they are due.
#[derive(Debug, Default)]
pub(super) struct Effects {
    immediate: Vec<Effect>,
    reserve: Option<Seq>,
    persist: Vec<Effect>,
    replies: Vec<Effect>,
    subscriptions: Vec<Effect>,
    emit: Vec<Effect>,
    deferred: Vec<Effect>,
    checkpoint: Option<Seq>,
}

impl Effects {
    pub(super) fn stop_run(&mut self, run: RunId) {
        self.immediate.push(Effect::StopRun(run));
    }

    pub(super) fn stop_user_command(&mut self, call: CallId) {
        self.immediate.push(Effect::StopUserCommand(call));
    }

    pub(super) fn stop_compaction(&mut self, run: Option<RunId>) {
        self.immediate.push(Effect::StopCompaction(run));
    }

    pub(super) fn stop_retry(&mut self, run: RunId) {
        self.immediate.push(Effect::StopRetry(run));
    }

    pub(super) fn reserve(&mut self, end: Seq) {
        self.reserve = Some(end);
    }

    pub(super) fn persist_and_emit(&mut self, event: Event) {
        self.emit.push(Effect::Emit(event.seq));
        self.persist.push(Effect::Persist(event));
    }

    pub(super) fn reply(&mut self, ticket: Ticket, reply: Reply, version: u64) {
        self.replies.push(Effect::Reply(ticket, reply, version));
    }

    pub(super) fn subscribe(&mut self, connection: ConnectionId, after: Seq) {
        self.subscriptions.push(Effect::Subscribe { connection, after });
    }

    pub(super) fn unsubscribe(&mut self, connection: ConnectionId) {
        self.subscriptions.push(Effect::Unsubscribe(connection));
    }

    pub(super) fn emit_to(&mut self, connection: ConnectionId, what: PrivateEvent) {
        self.subscriptions.push(Effect::EmitTo(connection, what));
    }

    pub(super) fn tell(&mut self, audience: Audience, event: PrivateEvent) {
        self.subscriptions.push(Effect::Tell { audience, event });
    }

    pub(super) fn request_turn(&mut self, turn: TurnRequest) {
        self.deferred.push(Effect::RequestTurn(Box::new(turn)));
    }

    pub(super) fn run_check(&mut self, run: RunId, index: u32, criterion: Criterion) {
        self.deferred.push(Effect::RunCheck { run, index, criterion: Box::new(criterion) });
    }

    pub(super) fn execute(&mut self, run: RunId, intention: Intention, approved_digest: Option<String>) {
        self.deferred.push(Effect::Execute { run, intention: Box::new(intention), approved_digest });
    }

    pub(super) fn execute_user_command(&mut self, intention: Intention) {
        self.deferred.push(Effect::ExecuteUserCommand(Box::new(intention)));
    }

    pub(super) fn compact(&mut self, compact: CompactionRequest) {
        self.deferred.push(Effect::Compact(Box::new(compact)));
    }

    pub(super) fn store_grant(&mut self, rule: String, by: String) {
        self.deferred.push(Effect::StoreGrant { rule, by });
    }

    pub(super) fn checkpoint(&mut self, at: Seq) {
        self.checkpoint = Some(at);
    }

    /// Returns the effects in the order in which the driver carries them out.
    pub(super) fn into_list(self) -> Vec<Effect> {
        let mut list = self.immediate;
        list.extend(self.reserve.map(Effect::Reserve));
        // Most inputs only store and emit events, which stay where they are.
        if list.is_empty() {
            list = self.persist;
        } else {
            list.extend(self.persist);
        }
        list.extend(self.checkpoint.map(Effect::Checkpoint));
        list.extend(self.replies);
        list.extend(self.subscriptions);
        list.extend(self.emit);
        list.extend(self.deferred);
        list
    }
}
