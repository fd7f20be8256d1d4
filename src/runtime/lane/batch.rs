//! The next batch: the event lines to commit, and what follows from the commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::{Lane, Respond, Told};
use crate::journal::{self, Batch, Checkpoint, Create, Durability, Meta};
use crate::kernel::command::{Private, Snapshot};
use crate::kernel::effect::{Effect, Ticket};
use crate::kernel::event::{Decision, Ending, Event, EventKind};
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::state::State;
use crate::protocol::push::encode;
use crate::runtime::checkpoint as codec;
use crate::runtime::feed::Block;
use crate::runtime::outbox::Outbox;
use crate::runtime::world::SessionChange;

/// What follows from a commit: first the deliveries, then the events are published, then the effects are performed.
#[derive(Debug, Default)]
pub(super) struct After {
    pub(super) answers: Vec<Answered>,
    pub(super) doing: Vec<Effect>,
    pub(super) run_ended: bool,
    /// Changes for clients that list sessions.
    pub(super) session_changes: Vec<SessionChange>,
}

impl After {
    /// Returns whether only the publication of events follows.
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.doing.is_empty() && !self.run_ended && self.session_changes.is_empty()
    }
}

/// An item for one connection.
#[derive(Debug)]
pub(super) enum Answered {
    Reply(Respond, Told),
    Private(Arc<Outbox>, Private),
    Subscribe(Arc<Outbox>, Seq),
    Unsubscribe(Arc<Outbox>),
}

impl Answered {
    /// Returns the outbox whose subscription is affected.
    pub(super) const fn listener(&self) -> Option<&Arc<Outbox>> {
        match self {
            Self::Reply(..) => None,
            Self::Private(outbox, _) | Self::Subscribe(outbox, _) | Self::Unsubscribe(outbox) => Some(outbox),
        }
    }
}

/// The next batch, while it grows.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    lines: Vec<u8>,
    first: Seq,
    last: Seq,
    count: u32,
    reserve: Option<Seq>,
    checkpoint: Option<Checkpoint>,
    /// Whether it must be on disk before its effects follow.
    synced: bool,
    /// Whether it changes the stored session row.
    telling: bool,
    /// Whether it ends something, so that it may use the disk reserve.
    urgent: bool,
    expected: BTreeMap<Ticket, Respond>,
    after: After,
}

/// Limits the cost of checkpoints to a fraction of the stored events, however large the state is.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    last: usize,
    kept: usize,
}

impl Checkpoints {
    const fn kept(&mut self, bytes: usize) {
        self.kept += bytes;
    }

    const fn is_worth_it(&self) -> bool {
        self.kept / KEPT_FOR_ONE >= self.last
    }

    const fn made(&mut self, bytes: usize) {
        *self = Self { last: bytes, kept: 0 };
    }
}

/// The number of event bytes that are stored for each byte of a checkpoint.
const KEPT_FOR_ONE: usize = 8;

/// Decides when small blocks, as a slow stream produces them, are merged: in bounded steps, and when a run ends.
#[derive(Debug, Default)]
pub(super) struct Drops {
    /// The number of blocks after `merged_to`.
    blocks: usize,
    /// The number of small blocks among them.
    small: usize,
    /// The position up to which blocks are merged.
    seen_to: Seq,
}

impl Drops {
    /// Counts a stored block; returns the range to merge, if a merge is due.
    ///
    /// Merged blocks are considered again only while few blocks follow them: the cost does not grow with the session.
    pub(super) const fn fall(&mut self, block: &Block, run_ended: bool) -> Option<(Seq, Seq)> {
        self.blocks += 1;
        if block.lines.len() < SMALL {
            self.small += 1;
        }
        let merge = if self.small > 1 { Some((self.seen_to, block.last)) } else { None };
        if self.blocks >= MANY {
            *self = Self { blocks: 0, small: 0, seen_to: block.last };
            return merge;
        }
        if run_ended { merge } else { None }
    }
}

/// The size from which on a block is not small.
const SMALL: usize = 16 * 1024;
/// The number of blocks after which a merge is due: as many as one merge step handles.
const MANY: usize = 256;

impl Gathering {
    pub(super) fn expect(&mut self, ticket: Ticket, respond: Respond) {
        self.expected.insert(ticket, respond);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
            && self.reserve.is_none()
            && self.after.answers.is_empty()
            && self.after.doing.is_empty()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.lines.len()
    }

    pub(super) const fn is_telling(&self) -> bool {
        self.telling
    }

    pub(super) const fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Returns whether the batch needs no commit.
    pub(super) fn keeps_nothing(&self) -> bool {
        self.count == 0 && self.reserve.is_none() && self.after.doing.is_empty()
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
        self.reserve = other.reserve.or(self.reserve);
        self.checkpoint = other.checkpoint.or(self.checkpoint.take());
        self.synced |= other.synced;
        self.telling |= other.telling;
        self.urgent |= other.urgent;
        self.expected.extend(other.expected);
        self.after.answers.extend(other.after.answers);
        self.after.doing.extend(other.after.doing);
        self.after.run_ended |= other.after.run_ended;
        self.after.session_changes.extend(other.after.session_changes);
    }

    pub(super) fn into_after(self) -> After {
        self.after
    }

    pub(super) fn into_batch(
        self,
        session: &SessionId,
        create: Option<Create>,
        meta: Option<Meta>,
    ) -> (Batch, Option<Block>, After) {
        let mut lines = self.lines;
        // The ring keeps the lines for a while, and subscribers even longer.
        if lines.capacity() - lines.len() > SLACK {
            lines.shrink_to_fit();
        }
        let lines = Bytes::from(lines);
        let (first, last, count) = (self.first, self.last, self.count);
        let kept = (count > 0).then(|| journal::Block { first, last, count, bytes: lines.clone() });
        let shown = (count > 0).then_some(Block { first, last, lines });
        let mut batch = Batch::new(session.clone());
        batch.create = create;
        batch.reserve = self.reserve;
        batch.block = kept;
        batch.meta = meta;
        batch.checkpoint = self.checkpoint;
        batch.urgent = self.urgent;
        if self.synced {
            batch.durability = Durability::Synced;
        }
        (batch, shown, self.after)
    }

    fn keep(&mut self, session: &SessionId, event: &Event) {
        if self.count == 0 {
            self.first = event.seq;
            self.lines.reserve(LINE);
        }
        self.last = event.seq;
        self.count += 1;
        let weight = weight(&event.kind);
        self.telling |= !matches!(weight, Weight::Plain | Weight::Starts);
        self.synced |= matches!(weight, Weight::Starts | Weight::Takes | Weight::EndsForGood);
        self.urgent |= matches!(weight, Weight::Ends | Weight::EndsForGood);
        encode::event_line(session, event, &mut self.lines);
    }
}

/// The typical size of an event line; most batches of a slow stream have one line.
const LINE: usize = 256;
/// The unused capacity of a line buffer that is tolerated: moving the lines costs more.
const SLACK: usize = 64;

impl Lane {
    /// Adds effects to the pending batch; effects that need no commit are performed at once.
    pub(super) fn gather(&mut self, effects: Vec<Effect>, outbox: Option<&Arc<Outbox>>) {
        let changes = effects.iter().any(|effect| matches!(effect, Effect::Persist(_)));
        for effect in effects {
            let gathering = &mut self.gathering;
            match effect {
                Effect::Stop(run) => self.work.stop(run),
                Effect::StopAside(call) => self.work.stop_aside(call),
                Effect::StopCompaction(run) => self.work.stop_compaction(run.as_ref()),
                Effect::StopRetry(run) => self.work.stop_retry(&run),
                Effect::Reserve(end) => {
                    gathering.reserve = Some(end);
                    gathering.synced = true;
                }
                Effect::Persist(event) => {
                    let before = gathering.bytes();
                    gathering.keep(&self.id, &event);
                    self.checkpoints.kept(gathering.bytes() - before);
                    if let EventKind::RunEnded(report) = &event.kind {
                        tracing::info!(session = %self.id, run = ?event.run, outcome = ?report.outcome, "run ended");
                        gathering.after.run_ended = true;
                        self.memory.prune(self.session.state());
                    }
                    self.pass_on(&event.kind);
                }
                Effect::Checkpoint(_) => {
                    if self.checkpoints.is_worth_it() {
                        let checkpoint = checkpoint(self.session.state());
                        self.checkpoints.made(checkpoint.bytes.len());
                        gathering.checkpoint = Some(checkpoint);
                    }
                }
                Effect::Reply(ticket, reply, version) => {
                    gathering.synced |= changes;
                    if let Some(respond) = gathering.expected.remove(&ticket) {
                        gathering.after.answers.push(Answered::Reply(respond, Told { reply, version }));
                    }
                }
                Effect::ShowTo(_, private) => {
                    let answer = |to: &Arc<Outbox>| Answered::Private(Arc::clone(to), private);
                    gathering.after.answers.extend(outbox.map(answer));
                }
                Effect::Subscribe { who: _, after } => {
                    let answer = |to: &Arc<Outbox>| Answered::Subscribe(Arc::clone(to), after);
                    gathering.after.answers.extend(outbox.map(answer));
                }
                Effect::Unsubscribe(_) => {
                    gathering.after.answers.extend(outbox.map(|to| Answered::Unsubscribe(Arc::clone(to))));
                }
                // The whole block is published after its commit, behind all replies of the batch.
                Effect::Show(_) => {}
                Effect::Execute { .. } | Effect::Aside(_) => {
                    gathering.synced = true;
                    gathering.after.doing.push(effect);
                }
                Effect::Turn(_) | Effect::Check { .. } | Effect::Remember { .. } | Effect::Compact(_) => {
                    gathering.after.doing.push(effect);
                }
            }
        }
    }
}

impl Lane {
    /// Forwards an event: to clients that list sessions after the commit, to the current turn at once.
    fn pass_on(&mut self, kind: &EventKind) {
        self.gathering.after.session_changes.extend(session_change(&self.id, kind));
        if let (EventKind::Steered(_), Some(run)) = (kind, &self.session.state().run) {
            self.work.steered(&run.id, run.steers.len());
        }
    }

    /// Notifies the shared services of what a commit has changed.
    pub(super) fn tell_others(&mut self, run_ended: bool, session_changes: Vec<SessionChange>) {
        for change in session_changes {
            // There may be no receiver.
            let _ = self.world.session_changes.send(change);
        }
        if run_ended {
            self.world.runs_over.tell(&self.id, std::mem::take(&mut self.grown));
        }
    }
}

fn session_change(session: &SessionId, kind: &EventKind) -> Option<SessionChange> {
    if matches!(kind, EventKind::SessionOpened(_)) {
        return Some(SessionChange::Opened(session.clone()));
    }
    matches!(kind, EventKind::SessionEnded { .. }).then(|| SessionChange::Ended(session.clone()))
}

pub(super) fn checkpoint(state: &State) -> Checkpoint {
    Checkpoint { seq: state.last_seq, bytes: Bytes::from(codec::encode(state)) }
}

pub(super) fn meta(session: &SessionId, snapshot: &Snapshot) -> Meta {
    let row = encode::SessionRow::of(session, snapshot);
    Meta {
        session: session.clone(),
        state: encode::phase_word(snapshot.phase).to_owned(),
        updated_at: snapshot.updated_at,
        opened_at: snapshot.opened_at,
        active_run: snapshot.run.as_ref().map(|run| run.as_str().to_owned()),
        summary: encode::session_item(&row).as_str().to_owned(),
    }
}

/// What an event requires of its commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// Nothing.
    Plain,
    /// The commit must be on disk before the tool is executed.
    Starts,
    /// The stored session row changes.
    Tells,
    /// The row changes, and the commit must be on disk before the event takes effect.
    Takes,
    /// The row changes, and the event ends something: it must succeed on a full disk.
    Ends,
    /// The row changes, the event ends something, and the commit must be on disk before it takes effect.
    EndsForGood,
}

/// Returns the class of an event. An approval, the start of a tool and the end of a run take effect only on disk.
fn weight(kind: &EventKind) -> Weight {
    match kind {
        EventKind::CallStarted { .. } => Weight::Starts,
        EventKind::SessionOpened(_) => Weight::Takes,
        EventKind::GateSettled(verdict) if verdict.decision == Decision::Approve => Weight::Takes,
        EventKind::GateSettled(_) | EventKind::RunEnded(_) => Weight::EndsForGood,
        EventKind::CallSettled(settlement) if settlement.ending == Ending::Cut => Weight::Ends,
        EventKind::Stopping { .. } => Weight::Ends,
        EventKind::CompactionOver { .. } | EventKind::RetryOver { .. } => Weight::Ends,
        EventKind::SessionRenamed { .. }
        | EventKind::SessionEnded { .. }
        | EventKind::Loaded { .. }
        | EventKind::Adjusted { .. }
        | EventKind::Branched { .. }
        | EventKind::RunStarted(_)
        | EventKind::MessageQueued(_)
        | EventKind::MessageUnqueued { .. }
        | EventKind::Steered(_)
        | EventKind::SayingDone { .. }
        | EventKind::CallIntended(_)
        | EventKind::CallSettled(_)
        | EventKind::GateOpened(_)
        | EventKind::GateVoted { .. }
        | EventKind::RunRecovered { .. } => Weight::Tells,
        EventKind::Touched { .. }
        | EventKind::Status { .. }
        | EventKind::Thought { .. }
        | EventKind::Said { .. }
        | EventKind::TurnTaken(_)
        | EventKind::CompactionBegan { .. }
        | EventKind::Compacted(_)
        | EventKind::RetryBegan(_)
        | EventKind::CallOutput { .. }
        | EventKind::Warned { .. }
        | EventKind::Failed { .. }
        | EventKind::Lost { .. } => Weight::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_merged_before_many_have_gathered_and_never_from_the_beginning_again() {
        let mut drops = Drops::default();
        let mut fall = |seq, size, run_ended| {
            let (seq, lines) = (Seq::new(seq), vec![b'x'; size].into());
            drops.fall(&Block { first: seq, last: seq, lines }, run_ended)
        };
        let many = u64::try_from(MANY).unwrap();
        for seq in 1..many {
            assert_eq!(fall(seq, 100, false), None);
        }
        assert_eq!(fall(many, 100, false), Some((Seq::ZERO, Seq::new(many))));
        assert_eq!(fall(many + 1, 100, true), None, "a single small block");
        assert_eq!(fall(many + 2, 100, true), Some((Seq::new(many), Seq::new(many + 2))));
        assert_eq!(fall(many + 3, 100, true), Some((Seq::new(many), Seq::new(many + 3))));
        for seq in many + 4..2 * many {
            assert_eq!(fall(seq, SMALL, false), None);
        }
        assert_eq!(fall(2 * many, SMALL, false), Some((Seq::new(many), Seq::new(2 * many))));
        for seq in 2 * many + 1..=3 * many {
            assert_eq!(fall(seq, SMALL, true), None, "nothing to merge");
        }
        assert_eq!(fall(3 * many + 1, 100, true), None);
        assert_eq!(fall(3 * many + 2, 100, true), Some((Seq::new(3 * many), Seq::new(3 * many + 2))));
    }
}
