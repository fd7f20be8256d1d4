//! Collects effects and puts them in order.
//!
//! In whatever order they are added, the driver gets: what must happen immediately, the events to persist, the
//! replies, the subscriptions, the events to emit, and last what changes the outside world. The ordering guarantees
//! hold by construction.

use crate::kernel::command::{Private, Reply};
use crate::kernel::effect::{Compact, Effect, Ticket, Turn};
use crate::kernel::event::{Criterion, Event, Intention};
use crate::kernel::id::{CallId, ParticipantId, RunId, Seq};

/// Effects, grouped by when they are due.
#[derive(Debug, Default)]
pub(super) struct Effects {
    at_once: Vec<Effect>,
    reserve: Option<Seq>,
    keep: Vec<Effect>,
    answers: Vec<Effect>,
    feeds: Vec<Effect>,
    show: Vec<Effect>,
    afterwards: Vec<Effect>,
    checkpoint: Option<Seq>,
}

impl Effects {
    pub(super) fn stop(&mut self, run: RunId) {
        self.at_once.push(Effect::Stop(run));
    }

    pub(super) fn stop_aside(&mut self, call: CallId) {
        self.at_once.push(Effect::StopAside(call));
    }

    pub(super) fn stop_compaction(&mut self, run: Option<RunId>) {
        self.at_once.push(Effect::StopCompaction(run));
    }

    pub(super) fn stop_retry(&mut self, run: RunId) {
        self.at_once.push(Effect::StopRetry(run));
    }

    pub(super) fn reserve(&mut self, end: Seq) {
        self.reserve = Some(end);
    }

    pub(super) fn keep_and_show(&mut self, event: Event) {
        self.show.push(Effect::Show(event.seq));
        self.keep.push(Effect::Persist(event));
    }

    pub(super) fn reply(&mut self, ticket: Ticket, reply: Reply, version: u64) {
        self.answers.push(Effect::Reply(ticket, reply, version));
    }

    pub(super) fn subscribe(&mut self, who: ParticipantId, after: Seq) {
        self.feeds.push(Effect::Subscribe { who, after });
    }

    pub(super) fn unsubscribe(&mut self, who: ParticipantId) {
        self.feeds.push(Effect::Unsubscribe(who));
    }

    pub(super) fn show_to(&mut self, who: ParticipantId, what: Private) {
        self.feeds.push(Effect::ShowTo(who, what));
    }

    pub(super) fn turn(&mut self, turn: Turn) {
        self.afterwards.push(Effect::Turn(Box::new(turn)));
    }

    pub(super) fn check(&mut self, run: RunId, index: u32, criterion: Criterion) {
        self.afterwards.push(Effect::Check { run, index, criterion: Box::new(criterion) });
    }

    pub(super) fn execute(&mut self, run: RunId, intention: Intention, bound: Option<String>) {
        self.afterwards.push(Effect::Execute { run, intention: Box::new(intention), bound });
    }

    pub(super) fn aside(&mut self, intention: Intention) {
        self.afterwards.push(Effect::Aside(Box::new(intention)));
    }

    pub(super) fn compact(&mut self, compact: Compact) {
        self.afterwards.push(Effect::Compact(Box::new(compact)));
    }

    pub(super) fn remember(&mut self, rule: String, by: String) {
        self.afterwards.push(Effect::Remember { rule, by });
    }

    pub(super) fn checkpoint(&mut self, at: Seq) {
        self.checkpoint = Some(at);
    }

    /// Returns the effects in the order in which the driver carries them out.
    pub(super) fn into_list(self) -> Vec<Effect> {
        let mut list = self.at_once;
        list.extend(self.reserve.map(Effect::Reserve));
        list.extend(self.keep);
        list.extend(self.checkpoint.map(Effect::Checkpoint));
        list.extend(self.answers);
        list.extend(self.feeds);
        list.extend(self.show);
        list.extend(self.afterwards);
        list
    }
}
