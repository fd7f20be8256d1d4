//! The cost of all runs of the current day.

use jiff::civil::Date;
use std::sync::{Mutex, PoisonError};

use tokio::sync::OnceCell;

use super::local_day::{day_start, local_day};
use crate::journal::{Journal, ListQuery, ReadError};
use crate::kernel::event::{Event, EventKind, RunEvent};
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::time::Now;
use crate::record;

/// The cost of the runs of a day, in millionths of a US dollar.
///
/// Lanes add the turns of this process. What was spent before the start is read from the journal when it is first
/// needed.
#[derive(Debug)]
pub struct DailySpend {
    started: Now,
    recorded: Mutex<(Date, u64)>,
    before_start: OnceCell<u64>,
}

impl DailySpend {
    /// Starts to count.
    pub fn new(started: Now) -> Self {
        let recorded = Mutex::new((local_day(started), 0));
        Self { started, recorded, before_start: OnceCell::new() }
    }

    /// Adds an event that was recorded now. Inherited and imported events are not passed.
    pub fn add(&self, event: &Event) {
        let Some(cost) = cost_of(event) else { return };
        let day = local_day(event.at);
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if recorded.0 != day {
            *recorded = (day, 0);
        }
        recorded.1 = recorded.1.saturating_add(cost);
    }

    /// Returns what the runs of today have cost.
    pub async fn today(&self, journal: &Journal, now: Now) -> Result<u64, ReadError> {
        let today = local_day(now);
        let recorded = *self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let recorded = if recorded.0 == today { recorded.1 } else { 0 };
        if local_day(self.started) != today {
            return Ok(recorded);
        }
        let read = || read_spend(journal, day_start(today), self.started);
        Ok(recorded.saturating_add(*self.before_start.get_or_try_init(read).await?))
    }
}

/// Returns the cost of a turn that happened in its session.
fn cost_of(event: &Event) -> Option<u64> {
    let EventKind::Run(RunEvent::TurnUsage(usage)) = &event.kind else { return None };
    usage.usage.cost.filter(|_| event.origin.is_none())
}

/// Reads what was spent from one time up to another, in the sessions that have changed since.
async fn read_spend(journal: &Journal, since: Now, until: Now) -> Result<u64, ReadError> {
    let (mut sum, mut after) = (0_u64, None);
    loop {
        let page = journal.list(ListQuery { limit: SESSIONS_PER_READ, after, prefix: None }).await?;
        let is_last = page.len() < SESSIONS_PER_READ;
        after = page.last().map(|last| (last.updated_at, last.session.clone()));
        for meta in &page {
            if meta.updated_at < since {
                return Ok(sum);
            }
            sum = sum.saturating_add(session_spend(journal, &meta.session, since, until).await?);
        }
        if is_last {
            return Ok(sum);
        }
    }
}

async fn session_spend(journal: &Journal, session: &SessionId, since: Now, until: Now) -> Result<u64, ReadError> {
    let (mut sum, mut seen, mut inherited, mut spent) = (0_u64, Seq::ZERO, Seq::ZERO, None);
    loop {
        let page = match journal.lines(session.clone(), seen, PAGE_BYTES, spent.take()).await {
            Err(ReadError::NoSuchSession { .. }) => return Ok(sum),
            page => page?,
        };
        for line in page.bytes.split(|byte| *byte == b'\n') {
            let is_relevant = MARKS.iter().any(|mark| memchr::memmem::find(line, mark).is_some());
            let Some(event) = is_relevant.then(|| record::decode_event(line).ok()).flatten() else { continue };
            if let EventKind::Session(crate::kernel::event::SessionEvent::Opened(opening)) = &event.kind {
                inherited = opening.forked_at.unwrap_or(Seq::ZERO);
            }
            let counts = event.seq > seen.max(inherited) && event.at >= since && event.at < until;
            sum = sum.saturating_add(cost_of(&event).filter(|_| counts).unwrap_or(0));
        }
        if !page.more || page.last <= seen {
            return Ok(sum);
        }
        seen = page.last;
        spent = Some(page);
    }
}

/// What the records of the events have that are decoded; others are skipped unread.
const MARKS: [&[u8]; 2] = [b"\"costMicroUsd\"", b"\"forkedAtSeq\""];
/// The number of sessions that one read lists.
const SESSIONS_PER_READ: usize = 256;
/// The bytes of history that one read returns.
const PAGE_BYTES: usize = 256 * 1024;
