//! The pending approvals of all sessions, those that expire first at the top.

use std::collections::BTreeSet;

use crate::client::{Event, ListedApproval};
use crate::display::approval::PendingApproval;
use crate::kernel::event::{Decision, EventKind, GateEvent};

/// The pending approvals of all sessions.
#[derive(Debug, Default)]
pub(crate) struct ApprovalList {
    pending: Vec<PendingApproval>,
    /// Those that were decided since the last list, which may still contain them.
    decided: BTreeSet<String>,
}

impl ApprovalList {
    /// Replaces the list by that of the daemon; returns whether one is new.
    pub(crate) fn set(&mut self, listed: &[ListedApproval]) -> bool {
        let before = std::mem::take(&mut self.pending);
        let mut is_new = false;
        for approval in listed.iter().filter(|approval| !self.decided.contains(approval.question.gate.as_str())) {
            let mut next = PendingApproval::new(&approval.session, approval.run.as_deref(), &approval.question);
            match before.iter().find(|known| known.id() == next.id()) {
                Some(known) => next.votes = known.votes,
                None => is_new = true,
            }
            self.pending.push(next);
        }
        self.decided.retain(|id| listed.iter().any(|approval| approval.question.gate.as_str() == id));
        is_new
    }

    /// Applies an event; returns whether it opened an approval.
    pub(crate) fn follow(&mut self, event: &Event) -> bool {
        if event.ends_run() {
            let is_over = |known: &PendingApproval| known.session == event.session && known.run == event.run;
            self.pending.retain(|known| !is_over(known));
        }
        let Some(EventKind::Gate(gate)) = event.recorded() else { return false };
        match gate {
            GateEvent::Opened(question) => {
                let next = PendingApproval::new(&event.session, event.run.as_deref(), question);
                if self.find(next.id()).is_some() || self.decided.contains(next.id()) {
                    return false;
                }
                self.pending.push(next);
                self.pending.sort_by_key(|known| known.question.expires.0);
                return true;
            }
            GateEvent::Voted { gate, decision, .. } => {
                if let Some(known) = self.pending.iter_mut().find(|known| known.question.gate == *gate) {
                    match decision {
                        Decision::Approve => known.votes.0 += 1,
                        Decision::Deny => known.votes.1 += 1,
                    }
                }
            }
            GateEvent::Settled(decision) => {
                self.pending.retain(|known| known.question.gate != decision.gate);
                self.decided.insert(decision.gate.as_str().to_owned());
            }
        }
        false
    }

    /// Removes the approvals of a session that no longer exists.
    pub(crate) fn remove_session(&mut self, session: &str) {
        self.pending.retain(|known| known.session != session);
    }

    /// Removes an approval that was decided.
    pub(crate) fn remove(&mut self, id: &str) {
        self.pending.retain(|known| known.id() != id);
    }

    /// Returns an approval.
    pub(crate) fn find(&self, id: &str) -> Option<&PendingApproval> {
        self.pending.iter().find(|known| known.id() == id)
    }

    /// Returns all of them.
    pub(crate) fn all(&self) -> &[PendingApproval] {
        &self.pending
    }

    /// Returns the first one of a session.
    pub(crate) fn of_session(&self, session: &str) -> Option<&PendingApproval> {
        self.pending.iter().find(|known| known.session == session)
    }

    /// Returns the sessions that wait for a decision.
    pub(crate) fn sessions(&self) -> BTreeSet<String> {
        self.pending.iter().map(|known| known.session.clone()).collect()
    }
}
