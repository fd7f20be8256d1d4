//! The first pass over a history: what the head of a document shows, and which events a branch has discarded.

use std::ops::Range;

use serde::Serialize;

use super::entry::{Usage, optional_time};
use crate::kernel::event::{ContextEvent, Event, EventKind, RunEvent, RunOutcome, SessionEvent};
use crate::kernel::id::Seq;
use crate::kernel::time::Now;

/// What a history contains.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Survey {
    /// The session.
    pub session: SessionInfo,
    /// The ranges of events that a branch has discarded, in order and without overlaps.
    discarded: Vec<Range<u64>>,
    last_seq: u64,
}

/// What the head of a document shows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionInfo {
    /// The id of the session.
    pub session_id: String,
    /// Its name; empty if it has none.
    pub name: String,
    /// Its provider.
    pub provider: String,
    /// Its model; empty if it is unknown.
    pub model: String,
    /// The working directory of its tools.
    pub cwd: String,
    /// The session that it is a fork of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_session_id: Option<String>,
    /// The time of its first event.
    #[serde(serialize_with = "optional_time")]
    pub started_at: Option<Now>,
    /// The time of its last event.
    #[serde(serialize_with = "optional_time")]
    pub updated_at: Option<Now>,
    /// How many events it has.
    pub events: u64,
    /// How many positions of the history belong to abandoned branches.
    pub discarded_events: u64,
    /// How many runs have ended, by their outcomes.
    pub runs: RunCounts,
    /// The usage of all turns, those of abandoned branches included.
    pub usage: Usage,
}

/// Ended runs, by their outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunCounts {
    /// Successful runs.
    pub success: u64,
    /// Failed runs.
    pub failed: u64,
    /// Cancelled runs.
    pub cancelled: u64,
    /// Denied runs.
    pub denied: u64,
}

impl RunCounts {
    /// Returns the number of runs.
    pub const fn total(self) -> u64 {
        self.success + self.failed + self.cancelled + self.denied
    }
}

impl Survey {
    /// Starts a survey of a session.
    pub fn new(session: &str) -> Self {
        Self { session: SessionInfo { session_id: session.to_owned(), ..SessionInfo::default() }, ..Self::default() }
    }

    /// Adds the next event.
    pub fn add(&mut self, event: &Event) {
        let info = &mut self.session;
        info.events += 1;
        info.started_at.get_or_insert(event.at);
        info.updated_at = info.updated_at.max(Some(event.at));
        self.last_seq = event.seq.number();
        match &event.kind {
            EventKind::Session(SessionEvent::Opened(opening)) => {
                info.provider.clone_from(&opening.provider);
                info.model = opening.model.clone().unwrap_or_default();
                info.cwd.clone_from(&opening.cwd);
                info.name = opening.name.clone().unwrap_or_default();
                info.parent_session_id = opening.parent.as_ref().map(|parent| parent.as_str().to_owned());
            }
            EventKind::Session(SessionEvent::Renamed { name }) => info.name.clone_from(name),
            EventKind::Session(SessionEvent::Adjusted { adjustment, by: _ }) => {
                if let Some(provider) = &adjustment.provider {
                    info.provider.clone_from(provider);
                    info.model.clear();
                }
                if let Some(model) = &adjustment.model {
                    info.model.clone_from(model);
                }
            }
            EventKind::Run(RunEvent::TurnUsage(turn)) => {
                info.usage.add(&turn.usage);
                if info.model.is_empty() {
                    info.model.clone_from(&turn.model);
                }
            }
            EventKind::Run(RunEvent::Ended(report)) => match report.outcome {
                RunOutcome::Success => info.runs.success += 1,
                RunOutcome::Failed => info.runs.failed += 1,
                RunOutcome::Cancelled => info.runs.cancelled += 1,
                RunOutcome::Denied => info.runs.denied += 1,
            },
            EventKind::Context(ContextEvent::Branched { branch, by: _ }) => self.discard(branch.until, event.seq),
            EventKind::Session(_)
            | EventKind::Run(_)
            | EventKind::Tool(_)
            | EventKind::Gate(_)
            | EventKind::Participant(_)
            | EventKind::Context(_)
            | EventKind::Notice(_) => {}
        }
    }

    /// Returns the last event; later ones are not part of the document.
    pub const fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Returns the discarded events among which an event is.
    pub(super) fn discarded_around(&self, seq: Seq) -> Option<&Range<u64>> {
        let after = self.discarded.partition_point(|range| range.start <= seq.number());
        self.discarded.get(after.checked_sub(1)?).filter(|range| range.contains(&seq.number()))
    }

    /// Returns the name of the session or, without one, its id.
    pub(super) fn title(&self) -> &str {
        if self.session.name.is_empty() { &self.session.session_id } else { &self.session.name }
    }

    /// Discards the events after `until` and before the branch.
    fn discard(&mut self, until: Seq, branch: Seq) {
        let start = until.number().saturating_add(1);
        if start >= branch.number() {
            return;
        }
        let mut range = start..branch.number();
        while let Some(last) = self.discarded.pop() {
            if last.end < range.start {
                self.discarded.push(last);
                break;
            }
            range.start = range.start.min(last.start);
        }
        self.discarded.push(range);
        self.session.discarded_events = self.discarded.iter().map(|range| range.end - range.start).sum();
    }
}
