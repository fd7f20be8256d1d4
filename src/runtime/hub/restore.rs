//! Restores a session from the journal.
//!
//! A checkpoint that cannot be decoded is skipped: replaying the complete history yields the same state. If retention
//! has removed the start of the history, the state is lost and the session is opened read-only.

use serde_json::Value;
use tracing::{error, warn};

use super::LoadError;
use crate::journal::{Block, Meta, StoredSession};
use crate::kernel::event::Opening;
use crate::kernel::id::{Json, Seq, SessionId};
use crate::kernel::session::{HistoryGaps, Session};
use crate::kernel::state::State;
use crate::record::{self, checkpoint};
use crate::runtime::lane::Integrity;
use crate::runtime::services::Services;

/// A restored session.
pub(super) struct RestoredSession {
    pub(super) session: Session,
    pub(super) integrity: Integrity,
}

/// Restores a session.
pub(super) async fn restore(
    services: &Services,
    id: &SessionId,
    stored: StoredSession,
) -> Result<RestoredSession, LoadError> {
    let StoredSession { meta, reserved, checkpoint, tail, floor, holes, .. } = stored;
    let decoded = checkpoint.as_ref().map(|checkpoint| checkpoint::decode(&checkpoint.bytes));
    let (from, blocks) = match decoded {
        Some(Ok(state)) => (Some(state), tail),
        Some(Err(error)) => {
            warn!(session = %id, %error, "checkpoint cannot be decoded; replaying the complete history");
            let whole = services.journal.page(id.clone(), Seq::ZERO, usize::MAX).await;
            (None, whole.map_err(|source| LoadError::Read { session: id.clone(), source })?.blocks)
        }
        None => (None, tail),
    };
    // Only events before a checkpoint are ever removed, so without one the state at the floor is lost.
    let integrity = if from.is_none() && floor > Seq::ZERO { Integrity::Damaged } else { Integrity::Intact };
    let from = match integrity {
        Integrity::Intact => from.unwrap_or_default(),
        Integrity::Damaged => {
            error!(session = %id, %floor, "session damaged: its checkpoint cannot be decoded and the start \
                of its history was removed; it is opened read-only");
            state_from_meta(&meta)
        }
    };
    let tail = events(&blocks, from.last_seq).map_err(|source| LoadError::Record { session: id.clone(), source })?;
    let missing = HistoryGaps { floor, holes };
    let session = Session::restore(services.limits.session, from, &tail, reserved, missing);
    Ok(RestoredSession { session, integrity })
}

fn events(blocks: &[Block], after: Seq) -> Result<Vec<crate::kernel::event::Event>, record::RecordError> {
    let lines = blocks.iter().flat_map(|block| block.bytes.split_inclusive(|byte| *byte == b'\n'));
    let mut events = Vec::new();
    for line in lines {
        let event = record::decode_event(line)?;
        if event.seq > after {
            events.push(event);
        }
    }
    Ok(events)
}

/// Returns the fields of the stored session row, as the state of a session whose own state is lost.
fn state_from_meta(meta: &Meta) -> State {
    let summary: Value = serde_json::from_str(&meta.summary).unwrap_or_default();
    let text = |name: &str| summary[name].as_str().map(str::to_owned);
    let opening = Opening {
        provider: text("provider").unwrap_or_default(),
        model: text("model"),
        cwd: text("cwd").unwrap_or_default(),
        repo: summary.get("repo").map(|repo| Json::new(repo.to_string())),
        ..Opening::default()
    };
    State {
        opening: Some(opening),
        name: text("name"),
        opened_at: meta.opened_at,
        updated_at: meta.updated_at,
        last_message: text("lastUserMessage").unwrap_or_default(),
        ..State::default()
    }
}
