//! Maintenance requests: deleting a session and checking the journal.
//!
//! They read in slices and delay no session; only the requester waits for them.

use std::sync::Arc;

use tracing::{error, info};

use super::hub::Hub;
use super::hub::removal::DeleteError;
use super::lane::DeletionCause;
use super::server::Server;
use super::session_files;
use crate::journal::{CommitError, JobError, Journal, LinePage, LossRecord, ReadError, SessionCursor};
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::time::Now;
use crate::protocol::error::{Code, ErrorBody};
use crate::protocol::reply::{IntegrityReport, JournalCheck, LossRow, ProblemRow, Reply};
use crate::record::checkpoint;

/// The options of a deletion.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeleteOptions {
    /// Whether only to report what the deletion would remove.
    pub(super) dry_run: bool,
    /// Whether to remove imported session files too.
    pub(super) with_imported_files: bool,
}

/// Deletes a session and the Pi session files that were created for it; a dry run only reports what it would remove.
pub(super) async fn delete(
    server: &Server,
    id: &SessionId,
    by: &str,
    deletion: DeleteOptions,
) -> Result<Reply, ErrorBody> {
    let hub = server.hub();
    // Read before the deletion, which removes it.
    let opened_at = opened_at(&hub.services().journal, id).await;
    if deletion.dry_run {
        let bytes = hub.measure(id).await.map_err(|error| refusal(id, &error))?;
        let files = session_files::list(hub.services(), id, opened_at).await;
        return Ok(Reply::Deleted { deleted: false, bytes, files });
    }
    let departure = DeletionCause::Requested { by: by.to_owned() };
    let bytes = hub.delete(id, departure).await.map_err(|error| refusal(id, &error))?;
    let files = session_files::remove(hub.services(), id, opened_at, deletion.with_imported_files).await;
    info!(session = %id, bytes, by, files = files.len(), "session deleted");
    Ok(Reply::Deleted { deleted: true, bytes, files })
}

/// Returns when a session was opened; `None` if it does not exist.
async fn opened_at(journal: &Journal, id: &SessionId) -> Option<Now> {
    journal.meta(id.clone()).await.ok().flatten().map(|meta| meta.opened_at)
}

fn refusal(id: &SessionId, error: &DeleteError) -> ErrorBody {
    match error {
        DeleteError::NotFound => ErrorBody::permanent(Code::SessionNotFound, format!("there is no session {id}")),
        DeleteError::Journal(JobError::Commit(CommitError::Full)) => {
            ErrorBody::transient(Code::StorageFull, error.to_string())
        }
        DeleteError::Journal(JobError::Commit(CommitError::StorageFailed | CommitError::SyncFailed { .. })) => {
            ErrorBody::permanent(Code::StorageFailed, error.to_string())
        }
        DeleteError::Active => ErrorBody::transient(Code::RunInProgress, error.to_string()),
        DeleteError::Closing | DeleteError::Read(_) | DeleteError::Journal(_) => {
            ErrorBody::transient(Code::InternalError, error.to_string())
        }
    }
}

/// Reports the state of the journal. A full check first verifies every event, while `is_wanted` returns true.
pub(super) async fn check(
    server: &Arc<Server>,
    full: bool,
    is_wanted: impl Fn() -> bool + Send,
) -> Result<Reply, ErrorBody> {
    let services = server.hub().services();
    let proof = if full {
        tokio::select! {
            proof = verify(&services.journal, is_wanted) => Some(proof.map_err(read_error)?),
            () = services.closing.wait() => {
                return Err(ErrorBody::transient(Code::InternalError, "the daemon is stopping; try again later"));
            }
        }
    } else {
        None
    };
    let mut check = describe(&services.journal).await.map_err(read_error)?;
    check.integrity = proof;
    Ok(Reply::JournalCheck(Box::new(check)))
}

async fn describe(journal: &Journal) -> Result<JournalCheck, ReadError> {
    let (summary, sizes, stats) = (journal.summarize().await?, journal.file_sizes(), journal.stats());
    Ok(JournalCheck {
        schema: summary.schema,
        sessions: summary.sessions,
        used_bytes: summary.used_bytes,
        database_bytes: sizes.database,
        log_bytes: sizes.log,
        marks_bytes: sizes.marks,
        set_aside_files: sizes.set_aside_files,
        set_aside_bytes: sizes.set_aside_bytes,
        set_aside_blocks: summary.set_aside_blocks,
        clean_shutdown: journal.was_closed_cleanly(),
        marks_enabled: stats.marks_enabled,
        disk_full: stats.full,
        sync_failed: stats.failed,
        losses_total: summary.losses,
        losses: loss_rows(journal.losses(LIST_LIMIT).await?),
        integrity: None,
    })
}

/// Verifies every event of every session; repairs and reports what is missing.
async fn verify(journal: &Journal, is_wanted: impl Fn() -> bool) -> Result<IntegrityReport, ReadError> {
    let before = journal.summarize().await?.newest_loss;
    let mut proof = IntegrityReport::default();
    for session in truncated_sessions(journal).await? {
        if let Err(error) = journal.repair(session.clone()).await {
            add_problem(&mut proof, session, &error.to_string());
        }
    }
    let mut cursor = Some(SessionCursor::default());
    while let Some(from) = cursor {
        let (sessions, next) = journal.scan_sessions(from, SESSIONS_PER_READ).await?;
        cursor = next;
        for session in sessions {
            if !is_wanted() {
                return Ok(proof);
            }
            proof.sessions += 1;
            match verify_session(journal, &session).await {
                Ok(bytes) => proof.bytes = proof.bytes.saturating_add(bytes),
                // The session was deleted meanwhile.
                Err(VerifyError::Read(ReadError::NoSuchSession { .. })) => {}
                Err(error) => add_problem(&mut proof, session, &error.to_string()),
            }
        }
    }
    proof.found = loss_rows(journal.losses_since(before, LIST_LIMIT).await?);
    Ok(proof)
}

/// Why a session could not be verified completely.
#[derive(Debug, thiserror::Error)]
enum VerifyError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("its checkpoint is damaged and cannot be rebuilt: retention has removed the start of its history")]
    Checkpoint,
}

/// Verifies the history of a session by reading it page by page; returns its size in bytes.
async fn verify_session(journal: &Journal, session: &SessionId) -> Result<u64, VerifyError> {
    let (mut seen, mut bytes) = (Seq::ZERO, 0_u64);
    let mut spent: Option<LinePage> = None;
    loop {
        let page = journal.lines(session.clone(), seen, PAGE_BYTES, spent.take()).await?;
        bytes = bytes.saturating_add(page.bytes.len() as u64);
        let more = page.more && page.last > seen;
        seen = page.last;
        spent = Some(page);
        if !more {
            break;
        }
    }
    let stands = journal.is_checkpoint_valid(session.clone(), checkpoint::is_readable).await?;
    if stands { Ok(bytes) } else { Err(VerifyError::Checkpoint) }
}

/// Restores the runs that were unfinished when the daemon last stopped, and finds lost events.
pub(super) async fn recover(hub: &Arc<Hub>) {
    if let Err(error) = hub.recover().await {
        error!(%error, "cannot list unfinished runs");
    }
    repair_truncated_sessions(&hub.services().journal).await;
}

/// After an unclean shutdown: repairs the sessions whose stored history is shorter than their mark, before clients
/// open them.
async fn repair_truncated_sessions(journal: &Journal) {
    if journal.was_closed_cleanly() {
        return;
    }
    let found = match truncated_sessions(journal).await {
        Ok(found) => found,
        Err(error) => return error!(%error, "cannot compare sessions with their marks"),
    };
    for session in found {
        if let Err(error) = journal.repair(session.clone()).await {
            error!(%session, %error, "session is truncated and could not be repaired");
        }
    }
    info!("every session was compared with its mark");
}

async fn truncated_sessions(journal: &Journal) -> Result<Vec<SessionId>, ReadError> {
    let (mut found, mut cursor) = (Vec::new(), Some(SessionCursor::default()));
    while let Some(from) = cursor {
        let (sessions, next) = journal.scan_truncated(from, SESSIONS_PER_READ).await?;
        found.extend(sessions);
        cursor = next;
    }
    Ok(found)
}

fn add_problem(proof: &mut IntegrityReport, session: SessionId, what: &str) {
    proof.problems_total += 1;
    if proof.problems.len() < LIST_LIMIT as usize {
        proof.problems.push(ProblemRow { session, what: what.to_owned() });
    }
}

fn loss_rows(found: Vec<LossRecord>) -> Vec<LossRow> {
    let row = |found: LossRecord| LossRow {
        at: found.at,
        session: Some(found.session).filter(|session| !session.is_empty()).map(SessionId::from),
        after: found.after,
        until: found.until,
        cause: found.cause,
        detail: Some(found.detail).filter(|detail| !detail.is_empty()),
    };
    found.into_iter().map(row).collect()
}

fn read_error(error: ReadError) -> ErrorBody {
    ErrorBody::transient(Code::InternalError, format!("the journal cannot be read: {error}"))
}

/// The maximum number of losses, and of problems, in a report.
const LIST_LIMIT: u32 = 100;
/// The number of sessions that one read scans.
const SESSIONS_PER_READ: u32 = 4_096;
/// The number of bytes of history that one read verifies.
const PAGE_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Batch, Create, Meta};
    use crate::runtime::test_daemon::TestDaemon;

    #[tokio::test]
    async fn the_opening_time_is_found_among_sessions_with_the_same_id_prefix() {
        let daemon = TestDaemon::new();
        let journal = &daemon.server.hub().services().journal;
        let ids = ["a".to_owned()].into_iter().chain((1..=99).map(|number| format!("a{number}")));
        for (at, id) in (1..).map(Now).zip(ids.map(SessionId::from)) {
            let mut batch = Batch::new(id.clone());
            batch.create = Some(Create { token_hash: [0; 32], start_key: None, opened_at: at });
            batch.meta = Some(Meta {
                session: id,
                state: "idle".into(),
                updated_at: at,
                opened_at: at,
                active_run: None,
                summary: "{}".into(),
            });
            journal.commit(batch).await.unwrap().unwrap();
        }
        assert_eq!(opened_at(journal, &SessionId::from("a".to_owned())).await, Some(Now(1)));
        assert_eq!(opened_at(journal, &SessionId::from("b".to_owned())).await, None);
        daemon.close().await;
    }
}
