//! The next batch: the event lines to commit, and what follows from the commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::{ChangePosition, CommandPart, Lane, LaneReply, ReplyGuard};
use crate::journal::{self, Batch, Checkpoint, CommandWrite, Create, Durability, Meta, StoredSession};
use crate::kernel::command::{PrivateEvent, Reply, Snapshot};
use crate::kernel::command_log::{CommandOutcome, OutcomeRecord};
use crate::kernel::effect::{Effect, Ticket};
use crate::kernel::event::{Event, EventKind, GateEvent, RunEvent, SessionEvent};
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::state::State;
use crate::kernel::time::Now;
use crate::record::{self, checkpoint as codec, summary};
use crate::runtime::feed::Block;
use crate::runtime::notify::UserNotice;
use crate::runtime::outbox::Outbox;
use crate::runtime::services::SessionChange;

/// What follows from a commit: first the deliveries, then the events are published, then the effects are performed.
#[derive(Debug, Default)]
pub(super) struct AfterCommit {
    pub(super) deliveries: Vec<Delivery>,
    pub(super) effects: Vec<Effect>,
    pub(super) run_ended: bool,
    /// Changes for clients that list sessions.
    pub(super) session_changes: Vec<SessionChange>,
    /// What the user is notified of.
    pub(super) notices: Vec<UserNotice>,
    /// Whether an approval was opened or settled.
    pub(super) approvals_changed: bool,
}

impl AfterCommit {
    /// Returns whether only the publication of events follows.
    pub(super) fn is_empty(&self) -> bool {
        self.deliveries.is_empty()
            && self.effects.is_empty()
            && !self.run_ended
            && self.session_changes.is_empty()
            && self.notices.is_empty()
            && !self.approvals_changed
    }
}

/// An item for one connection.
#[derive(Debug)]
pub(super) enum Delivery {
    Reply(ReplyGuard, LaneReply),
    Private(Arc<Outbox>, PrivateEvent),
    Subscribe(Arc<Outbox>, Seq),
    Unsubscribe(Arc<Outbox>),
}

impl Delivery {
    /// Returns the outbox whose subscription is affected.
    pub(super) const fn outbox(&self) -> Option<&Arc<Outbox>> {
        match self {
            Self::Reply(..) => None,
            Self::Private(outbox, _) | Self::Subscribe(outbox, _) | Self::Unsubscribe(outbox) => Some(outbox),
        }
    }
}

/// The next batch, while it grows.
#[derive(Debug, Default)]
pub(super) struct PendingBatch {
    lines: Vec<u8>,
    /// The events, if a subscriber reads them.
    events: Vec<Event>,
    first: Seq,
    last: Seq,
    count: u32,
    reserved_seq: Option<Seq>,
    checkpoint: Option<Checkpoint>,
    /// Whether it must be on disk before its effects follow.
    synced: bool,
    /// Whether it changes the stored session row.
    updates_meta: bool,
    /// Whether it ends something, so that it may use the disk reserve.
    urgent: bool,
    /// Whether an event has an audience.
    restricted: bool,
    reply_guards: BTreeMap<Ticket, (ReplyGuard, Option<CommandPart>)>,
    /// The admissions and outcomes of the commands whose effect it is.
    commands: Vec<CommandWrite>,
    after: AfterCommit,
}

/// Limits the cost of checkpoints to a fraction of the stored events, however large the state is.
#[derive(Debug, Default)]
pub(super) struct CheckpointPolicy {
    last_bytes: usize,
    event_bytes: usize,
}

impl CheckpointPolicy {
    const fn add_event_bytes(&mut self, bytes: usize) {
        self.event_bytes += bytes;
    }

    const fn is_due(&self) -> bool {
        self.event_bytes / EVENT_BYTES_PER_CHECKPOINT_BYTE >= self.last_bytes
    }

    /// Returns whether the next load takes long enough without another checkpoint.
    pub(super) const fn is_worthwhile(&self) -> bool {
        self.event_bytes >= self.last_bytes / EVENT_BYTES_PER_CHECKPOINT_BYTE
    }

    pub(super) const fn record(&mut self, bytes: usize) {
        *self = Self { last_bytes: bytes, event_bytes: 0 };
    }
}

/// The size of what was read to restore a session.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoredBytes {
    checkpoint: usize,
    events: usize,
}

impl StoredBytes {
    /// Returns the size of a stored session.
    pub fn of(stored: &StoredSession) -> Self {
        let checkpoint = stored.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.bytes.len());
        Self { checkpoint, events: stored.tail.iter().map(|block| block.bytes.len()).sum() }
    }
}

impl From<StoredBytes> for CheckpointPolicy {
    fn from(bytes: StoredBytes) -> Self {
        Self { last_bytes: bytes.checkpoint, event_bytes: bytes.events }
    }
}

/// The number of event bytes that are stored for each byte of a checkpoint.
const EVENT_BYTES_PER_CHECKPOINT_BYTE: usize = 8;

impl PendingBatch {
    pub(super) fn add_reply_guard(&mut self, ticket: Ticket, reply_guard: ReplyGuard, part: Option<CommandPart>) {
        self.reply_guards.insert(ticket, (reply_guard, part));
    }

    /// Adds the reply to a request, which has changed the session if `changed_at` is given. Then the command of which it
    /// is a part is stored with the change, if it has succeeded.
    fn add_reply(&mut self, ticket: Ticket, result: Reply, version: u64, changed_at: Option<Now>) {
        let Some((reply_guard, part)) = self.reply_guards.remove(&ticket) else { return };
        let part = part.filter(|_| result.is_ok());
        let is_step = matches!(part, Some(CommandPart { position: ChangePosition::Step, .. }));
        self.synced |= changed_at.is_some() && !is_step;
        let stored = part.zip(changed_at).and_then(|(CommandPart { record, position }, at)| match position {
            ChangePosition::Step | ChangePosition::Last => {
                self.commands.push(CommandWrite::Admitted(record));
                None
            }
            ChangePosition::Outcome(result) => {
                let outcome = CommandOutcome::succeeded(result, Some(version));
                self.commands.push(CommandWrite::Settled(OutcomeRecord { record, outcome: outcome.clone(), at }));
                Some(outcome)
            }
        });
        self.after.deliveries.push(Delivery::Reply(reply_guard, LaneReply { result, version, stored }));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
            && self.reserved_seq.is_none()
            && self.after.deliveries.is_empty()
            && self.after.effects.is_empty()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.lines.len()
    }

    pub(super) const fn updates_meta(&self) -> bool {
        self.updates_meta
    }

    pub(super) const fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Returns whether the batch needs no commit.
    pub(super) fn persists_nothing(&self) -> bool {
        self.count == 0 && self.reserved_seq.is_none() && self.after.effects.is_empty()
    }

    /// Appends a batch that was collected separately.
    pub(super) fn append(&mut self, other: Self) {
        if self.count == 0 {
            self.first = other.first;
        }
        if other.count > 0 {
            self.last = other.last;
        }
        self.count += other.count;
        self.lines.extend_from_slice(&other.lines);
        self.events.extend(other.events);
        self.reserved_seq = other.reserved_seq.or(self.reserved_seq);
        self.checkpoint = other.checkpoint.or(self.checkpoint.take());
        self.synced |= other.synced;
        self.updates_meta |= other.updates_meta;
        self.urgent |= other.urgent;
        self.restricted |= other.restricted;
        self.reply_guards.extend(other.reply_guards);
        self.commands.extend(other.commands);
        self.after.deliveries.extend(other.after.deliveries);
        self.after.effects.extend(other.after.effects);
        self.after.run_ended |= other.after.run_ended;
        self.after.session_changes.extend(other.after.session_changes);
        self.after.notices.extend(other.after.notices);
        self.after.approvals_changed |= other.after.approvals_changed;
    }

    pub(super) fn into_after(self) -> AfterCommit {
        self.after
    }

    pub(super) fn into_batch(
        self,
        session: &SessionId,
        create: Option<Create>,
        meta: Option<Meta>,
    ) -> (Batch, Option<Block>, AfterCommit) {
        let mut lines = self.lines;
        // The ring keeps the lines for a while, and subscribers even longer.
        if lines.capacity() - lines.len() > MAX_SLACK {
            lines.shrink_to_fit();
        }
        let lines = Bytes::from(lines);
        let (first, last, count) = (self.first, self.last, self.count);
        let stored = (count > 0).then(|| journal::Block { first, last, count, bytes: lines.clone() });
        let published = (count > 0).then(|| {
            let block = Block::new(first, last, lines);
            let block = if self.restricted { block.restricted() } else { block };
            // They are incomplete if a reader of events has subscribed since the first event of the batch.
            if self.events.len() == count as usize { block.with_events(self.events) } else { block }
        });
        let mut batch = Batch::new(session.clone());
        batch.create = create;
        batch.reserved_seq = self.reserved_seq;
        batch.block = stored;
        batch.meta = meta;
        batch.checkpoint = self.checkpoint;
        batch.commands = self.commands;
        batch.urgent = self.urgent;
        if self.synced {
            batch.durability = Durability::Synced;
        }
        (batch, published, self.after)
    }

    fn push_event(&mut self, session: &SessionId, event: &Event) {
        if self.count == 0 {
            self.first = event.seq;
            self.lines.reserve(LINE_BYTES);
        }
        self.last = event.seq;
        self.count += 1;
        let class = event.kind.commit_class();
        self.updates_meta |= class.changes_summary;
        self.synced |= class.synced;
        self.urgent |= class.urgent;
        self.restricted |= !event.audience.is_public();
        record::event_line(session, event, &mut self.lines);
    }
}

/// The typical size of an event line; most batches of a slow stream have one line.
const LINE_BYTES: usize = 256;
/// The unused capacity of a line buffer that is tolerated: moving the lines costs more.
const MAX_SLACK: usize = 64;

impl Lane {
    /// Adds effects to the pending batch; effects that need no commit are performed at once.
    pub(super) fn collect_effects(&mut self, effects: Vec<Effect>, outbox: Option<&Arc<Outbox>>) {
        let changes = effects.iter().any(|effect| matches!(effect, Effect::Persist(_)));
        let now = self.services.clock.now();
        for effect in effects {
            let pending = &mut self.pending;
            match effect {
                Effect::StopRun(run) => self.run_tasks.stop_run(run),
                Effect::StopUserCommand(call) => self.run_tasks.stop_user_command(call),
                Effect::StopCompaction(run) => self.run_tasks.stop_compaction(run.as_ref()),
                Effect::StopRetry(run) => self.run_tasks.stop_retry(&run),
                Effect::Reserve(end) => {
                    pending.reserved_seq = Some(end);
                    pending.synced = true;
                }
                Effect::Persist(event) => self.collect_event(event),
                Effect::Checkpoint(_) => {
                    if self.checkpoint_policy.is_due() {
                        let checkpoint = checkpoint(self.session.state());
                        self.checkpoint_policy.record(checkpoint.bytes.len());
                        pending.checkpoint = Some(checkpoint);
                    }
                }
                Effect::Reply(ticket, reply, version) => {
                    // Without a change of the session there is no batch to store a command with.
                    pending.add_reply(ticket, reply, version, changes.then_some(now));
                }
                Effect::EmitTo(_, private) => {
                    let delivery = |to: &Arc<Outbox>| Delivery::Private(Arc::clone(to), private);
                    pending.after.deliveries.extend(outbox.map(delivery));
                }
                Effect::Tell { audience, event } => {
                    let recipients =
                        self.feed.subscribers().into_iter().filter(|known| audience.contains(&known.viewer));
                    pending
                        .after
                        .deliveries
                        .extend(recipients.map(|known| Delivery::Private(known.outbox, event.clone())));
                }
                Effect::Subscribe { connection: _, after } => {
                    let delivery = |to: &Arc<Outbox>| Delivery::Subscribe(Arc::clone(to), after);
                    pending.after.deliveries.extend(outbox.map(delivery));
                }
                Effect::Unsubscribe(connection) => {
                    // A participant may have been removed by another one.
                    let own = outbox.filter(|outbox| outbox.id() == connection).cloned();
                    let to = own.or_else(|| self.feed.outbox_of(connection));
                    pending.after.deliveries.extend(to.map(Delivery::Unsubscribe));
                }
                // The whole block is published after its commit, behind all replies of the batch.
                Effect::Emit(_) => {}
                Effect::Execute { .. } | Effect::ExecuteUserCommand(_) => {
                    pending.synced = true;
                    pending.after.effects.push(effect);
                }
                Effect::RequestTurn(_) | Effect::RunCheck { .. } | Effect::StoreGrant { .. } | Effect::Compact(_) => {
                    self.prepare_conversation(&effect);
                    self.pending.after.effects.push(effect);
                }
            }
        }
    }
}

impl Lane {
    /// Adds an event to the pending batch.
    fn collect_event(&mut self, event: Event) {
        let pending = &mut self.pending;
        let before = pending.bytes();
        pending.push_event(&self.id, &event);
        self.checkpoint_policy.add_event_bytes(pending.bytes() - before);
        if let EventKind::Run(RunEvent::Ended(report)) = &event.kind {
            tracing::info!(session = %self.id, run = ?event.run, outcome = ?report.outcome, "run ended");
            pending.after.run_ended = true;
            self.unredacted.prune(self.session.state());
        }
        self.forward_event(&event.kind);
        self.collect_notice(&event);
        if event.seq > self.session.state().opening.as_ref().and_then(|opening| opening.forked_at).unwrap_or(Seq::ZERO)
        {
            self.services.daily_spend.add(&event);
        }
        self.conversation.fold(&event);
        if matches!(event.kind, EventKind::Participant(_)) {
            self.feed.set_viewers(|attachment| self.session.viewer(attachment));
        }
        if !event.audience.is_public() {
            self.feed.set_restricted();
        }
        if self.feed.has_event_readers() {
            self.pending.events.push(event);
        }
    }

    /// Forwards an event: to clients that list sessions after the commit, to the current turn at once.
    fn forward_event(&mut self, kind: &EventKind) {
        self.pending.after.session_changes.extend(session_change(&self.id, kind));
        if let (EventKind::Run(RunEvent::Steered(_)), Some(run)) = (kind, &self.session.state().run) {
            self.run_tasks.interrupt_for_steer(&run.id, run.steers.len());
        }
    }

    /// Adds what the user is notified of after the commit. An approval that a rule settles at once asks nobody.
    fn collect_notice(&mut self, event: &Event) {
        self.pending.after.approvals_changed |=
            matches!(event.kind, EventKind::Gate(GateEvent::Opened(_) | GateEvent::Settled(_)));
        let notices = &mut self.pending.after.notices;
        if let EventKind::Gate(GateEvent::Settled(decided)) = &event.kind {
            notices.retain(|notice| notice.approval.as_ref() != Some(&decided.gate));
        }
        notices.extend(UserNotice::of_event(&self.id, event));
    }

    /// Notes that the listing item of the session is stored, and that the index has to follow.
    pub(super) fn note_stored(&mut self, meta: &Meta) {
        self.run_persisted = meta.has_run();
        self.services.index.touch(&self.id);
    }

    /// Notifies the shared services of what a commit has changed.
    pub(super) fn notify_services(&mut self, after: AfterCommit) {
        let AfterCommit { run_ended, session_changes, notices, approvals_changed, .. } = after;
        if approvals_changed {
            self.services.approvals_revision.send_modify(|revision| *revision += 1);
        }
        for notice in notices {
            self.services.notices.push(notice);
        }
        for change in session_changes {
            // There may be no receiver.
            let _ = self.services.session_changes.send(change);
        }
        if run_ended {
            self.services.run_ends.notify(&self.id, std::mem::take(&mut self.new_bytes));
        }
    }
}

fn session_change(session: &SessionId, kind: &EventKind) -> Option<SessionChange> {
    if matches!(kind, EventKind::Session(SessionEvent::Opened(_))) {
        return Some(SessionChange::Opened(session.clone()));
    }
    matches!(kind, EventKind::Session(SessionEvent::Ended { .. })).then(|| SessionChange::Ended(session.clone()))
}

pub(super) fn checkpoint(state: &State) -> Checkpoint {
    Checkpoint { seq: state.last_seq, bytes: Bytes::from(codec::encode(state)) }
}

/// Returns the row of a session; `has_gates` if approvals are open, whether or not a run waits for them.
pub(super) fn meta(session: &SessionId, snapshot: &Snapshot, has_gates: bool) -> Meta {
    let row = summary::SessionRow::of(session, snapshot);
    Meta {
        session: session.clone(),
        state: summary::phase_name(snapshot.phase).to_owned(),
        updated_at: snapshot.updated_at,
        opened_at: snapshot.opened_at,
        active_run: match &snapshot.run {
            Some(run) => Some(run.as_str().to_owned()),
            None => has_gates.then(|| Meta::NO_RUN.to_owned()),
        },
        summary: summary::session_item(&row).as_str().to_owned(),
    }
}
