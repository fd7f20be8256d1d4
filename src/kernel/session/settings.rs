//! Changes of a session that start no task: settings, branches, loads and version increments.

use super::Session;
use super::effects::Effects;
use crate::kernel::command::{Answer, Caller, Reply};
use crate::kernel::event::{Adjustment, Branch, ContextEvent, EventKind, Opening, SessionEvent, WorkspaceIdentity};
use crate::kernel::id::Seq;
use crate::kernel::refusal::Refusal;
use crate::kernel::time::Now;

impl Session {
    pub(super) fn bump_version(&mut self, caller: &Caller, change: String, now: Now, fx: &mut Effects) -> Reply {
        self.record_for(
            None,
            EventKind::Session(SessionEvent::VersionBumped { change, by: caller.source.clone() }),
            now,
            fx,
        );
        Ok(Answer::VersionBumped)
    }

    pub(super) fn load(&mut self, caller: &Caller, now: Now, fx: &mut Effects) -> Reply {
        self.next_version = Some(0);
        self.record_for(None, EventKind::Session(SessionEvent::Loaded { by: caller.source.clone() }), now, fx);
        Ok(Answer::Loaded)
    }

    /// Reopens a session as a new one. Its history stays stored and no longer applies.
    pub(super) fn reopen(&mut self, caller: &Caller, opening: Box<Opening>, now: Now, fx: &mut Effects) -> Reply {
        self.ensure_idle()?;
        self.next_version = Some(0);
        self.record_for(None, EventKind::Session(SessionEvent::Opened(opening)), now, fx);
        let branch = Branch { until: Seq::ZERO, from: self.state.last_seq.next() };
        self.record_for(
            None,
            EventKind::Context(ContextEvent::Branched { branch, by: caller.source.clone() }),
            now,
            fx,
        );
        Ok(Answer::Opened(self.state.phase()))
    }

    pub(super) fn adjust(&mut self, caller: &Caller, adjustment: Box<Adjustment>, now: Now, fx: &mut Effects) -> Reply {
        if *adjustment != Adjustment::default() {
            let by = caller.source.clone();
            self.record_for(None, EventKind::Session(SessionEvent::Adjusted { adjustment, by }), now, fx);
        }
        Ok(Answer::Adjusted)
    }

    /// Records the identity of the working directory, unless it is known already.
    pub(super) fn record_workspace(&mut self, found: WorkspaceIdentity, now: Now, fx: &mut Effects) {
        if self.state.opening.is_none() || self.state.workspace() == Some(&found) {
            return;
        }
        let adjustment = Box::new(Adjustment { workspace: Some(found), ..Adjustment::default() });
        self.record_for(
            None,
            EventKind::Session(SessionEvent::Adjusted { adjustment, by: DAEMON.to_owned() }),
            now,
            fx,
        );
    }

    /// Branches to an earlier point, which must be part of the stored history.
    pub(super) fn branch(&mut self, caller: &Caller, branch: Branch, now: Now, fx: &mut Effects) -> Reply {
        self.ensure_open()?;
        self.ensure_idle()?;
        let Branch { until, from } = branch;
        let newest = self.state.last_seq;
        let known = match until {
            Seq::ZERO => from <= newest.next(),
            _ => self.gaps.floor < from && from <= until && until <= newest,
        };
        if !known {
            return Err(Refusal::UnknownPosition);
        }
        self.record_for(
            None,
            EventKind::Context(ContextEvent::Branched { branch, by: caller.source.clone() }),
            now,
            fx,
        );
        Ok(Answer::Branched)
    }
}

/// The source of changes that no client asked for.
const DAEMON: &str = "daemon";
