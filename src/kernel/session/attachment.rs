//! Subscribers: which events each gets again, and the baseline after a gap in the history.

use super::effects::Effects;
use super::{HistoryGaps, Session};
use crate::kernel::command::{Answer, Caller, Gap, PrivateEvent, Replay, Reply, Rights};
use crate::kernel::id::Seq;
use crate::kernel::time::Now;

impl Session {
    pub(super) fn attach(&mut self, caller: &Caller, seen: Seq, rights: Rights, now: Now, fx: &mut Effects) -> Reply {
        self.roster.attach(caller, caller.rights.and(rights), self.limits.attached)?;
        let gap = self.gap_after(seen);
        let newest = self.state.last_seq;
        let replay = match gap {
            // A number above the newest event was private. Nothing is missing, so nothing is sent twice.
            Gap::None => Replay { from: seen.next(), to: newest.max(seen), gap },
            Gap::Lost { .. } | Gap::Foreign => Replay { from: newest.next(), to: newest, gap },
        };
        let after = match gap {
            Gap::None => seen,
            Gap::Lost { .. } | Gap::Foreign => self.send_baseline(caller, seen, gap, now, fx),
        };
        fx.subscribe(caller.id, after);
        Ok(Answer::Attached { phase: self.state.phase(), replay })
    }

    /// Attaches, and sends the session state after the missed events. After a gap the baseline already contains it.
    pub(super) fn resume(&mut self, caller: &Caller, seen: Seq, rights: Rights, now: Now, fx: &mut Effects) -> Reply {
        let answer = self.attach(caller, seen, rights, now, fx)?;
        if matches!(answer, Answer::Attached { replay: Replay { gap: Gap::None, .. }, .. }) {
            let (after, snapshot) = (self.state.last_seq, Box::new(self.snapshot()));
            let seq = self.issue(fx);
            fx.emit_to(caller.id, PrivateEvent::Summary { seq, at: now, after, snapshot });
        }
        Ok(answer)
    }

    /// Returns whether every event after `seen` can be sent.
    ///
    /// In a restored session every reserved number counts as issued, because a crash may have lost which of them
    /// were.
    fn gap_after(&self, seen: Seq) -> Gap {
        let HistoryGaps { floor, holes } = &self.gaps;
        if seen > self.issued {
            Gap::Foreign
        } else if seen < *floor {
            Gap::Lost { earliest: floor.next() }
        } else if let Some((_, until)) = holes.iter().find(|(after, until)| *after < seen && seen < *until) {
            // The subscriber has seen lost events, or misses the rest of them.
            Gap::Lost { earliest: *until }
        } else {
            Gap::None
        }
    }

    /// Sends the subscriber a baseline with private sequence numbers, and returns the position after which it
    /// continues.
    fn send_baseline(&mut self, caller: &Caller, seen: Seq, gap: Gap, now: Now, fx: &mut Effects) -> Seq {
        let snapshot = Box::new(self.snapshot());
        let seq = self.issue(fx);
        fx.emit_to(caller.id, PrivateEvent::Gap { seq, at: now, seen, gap });
        let seq = self.issue(fx);
        fx.emit_to(caller.id, PrivateEvent::Snapshot { seq, at: now, snapshot });
        seq
    }
}
