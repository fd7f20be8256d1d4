//! Requests that only read: lists of sessions and approvals, grants, and the messages of a session.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::grants::GrantsError;
use super::lane::{LaneHandle, LaneRequest, ReplyGuard};
use super::outbox::Outbox;
use super::server::Server;
use crate::journal::{ListQuery, ReadError};
use crate::kernel::command::{Answer, Caller, Command, Phase};
use crate::kernel::id::{Json, Seq, SessionId};
use crate::kernel::time::Now;
use crate::protocol::error::{Code, ErrorBody};
use crate::protocol::intent::ListSessions;
use crate::protocol::reply::{Completion, GrantRow, MessagePage, PendingApproval, Reply};
use crate::protocol::transcript::Transcript;
use crate::provider::Starter;
use crate::record;

/// Lists sessions, the newest first.
///
/// The rows are read from the journal. The first list after a start waits until the recovery of unfinished runs is
/// committed.
pub(super) async fn sessions(
    server: &Server,
    caller: &Caller,
    outbox: &Arc<Outbox>,
    request: ListSessions,
) -> Result<Reply, ErrorBody> {
    wait_for_recovery(server, caller, outbox).await?;
    let ListSessions { limit, cursor, prefix, include_ended } = request;
    let mut after = cursor.as_deref().map(parse_cursor).transpose()?;
    let limit = limit as usize;
    let mut found = Vec::new();
    // Omitted rows are replaced from further pages.
    while found.len() <= limit {
        let query = ListQuery { limit: rows_per_query(limit, include_ended), after, prefix: prefix.clone() };
        let requested = query.limit;
        let page = server.hub().services().journal.list(query).await.map_err(read_error)?;
        let is_last = page.len() < requested;
        after = page.last().map(|last| (last.updated_at, last.session.clone()));
        found.extend(page.into_iter().filter(|meta| include_ended || !record::summary::is_ended(&meta.summary)));
        if is_last {
            break;
        }
    }
    let more = found.len() > limit;
    found.truncate(limit);
    let cursor = found.last().filter(|_| more).map(|last| format!("{}:{}", last.updated_at.0, last.session));
    let items = found.into_iter().map(|meta| Json::new(meta.summary)).collect();
    Ok(Reply::Sessions { items, next_cursor: cursor })
}

/// Returns how many rows one query reads: one more than wanted. If ended sessions are omitted it reads a minimum, so
/// that a journal of mostly ended sessions is not read a few rows at a time.
fn rows_per_query(limit: usize, include_ended: bool) -> usize {
    let rows = limit.saturating_add(1);
    if include_ended { rows } else { rows.max(MIN_FILTERED_ROWS) }
}

/// The minimum number of rows per query if ended sessions are omitted.
const MIN_FILTERED_ROWS: usize = 256;

/// Lists the pending approvals of one session or of all.
///
/// A run that waits for an approval keeps its session in memory, so only lanes are queried; after a restart they are
/// restored first.
pub(super) async fn approvals(
    server: &Server,
    caller: &Caller,
    outbox: &Arc<Outbox>,
    session: Option<SessionId>,
) -> Result<Reply, ErrorBody> {
    let lanes = match session {
        Some(session) => vec![server.lane(&session).await?],
        None => {
            server.hub().recover().await.map_err(read_error)?;
            server.hub().lanes()
        }
    };
    let mut pending = Vec::new();
    for lane in lanes.into_iter().filter(|lane| lane.phase() == Phase::Waiting) {
        if let Some(Answer::Gates { run: Some(run), questions }) =
            query_lane(&lane, caller, outbox, Command::ListGates).await
        {
            let session = lane.id();
            pending.extend(questions.into_iter().map(|question| PendingApproval {
                session: session.clone(),
                run: run.clone(),
                question,
            }));
        }
    }
    pending.sort_by_key(|pending| pending.question.expires);
    Ok(Reply::Approvals(pending))
}

/// Waits until the recovery of runs that were unfinished at the last shutdown is committed.
///
/// A disk that does not respond delays a list for a bounded time.
async fn wait_for_recovery(server: &Server, caller: &Caller, outbox: &Arc<Outbox>) -> Result<(), ErrorBody> {
    let hub = server.hub();
    let recovery = hub.recovered().get_or_try_init(|| async {
        hub.recover().await?;
        let unfinished = |lane: &LaneHandle| matches!(lane.phase(), Phase::Running | Phase::Waiting);
        for lane in hub.lanes().into_iter().filter(unfinished) {
            // A lane replies after its earlier decisions are committed.
            query_lane(&lane, caller, outbox, Command::Describe).await;
        }
        Ok(())
    });
    match timeout(RECOVERY_TIMEOUT, recovery).await {
        Ok(Ok(())) | Err(_) => Ok(()),
        Ok(Err(error)) => Err(read_error(error)),
    }
}

/// How long a list of sessions waits for the recovery of unfinished runs.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends a command to a session and returns its answer; `None` if the session refuses it or closes.
async fn query_lane(lane: &LaneHandle, caller: &Caller, outbox: &Arc<Outbox>, command: Command) -> Option<Answer> {
    let (sender, reply) = oneshot::channel();
    let respond = ReplyGuard::new(move |reply| {
        // The requester may be gone.
        let _ = sender.send(reply.map(|reply| reply.result));
    });
    let (caller, outbox) = (caller.clone(), Arc::clone(outbox));
    let request = LaneRequest {
        caller,
        command,
        if_version: None,
        starter: Starter::Person,
        reply_guard: respond,
        outbox,
        environment: None,
    };
    lane.send_request(Box::new(request)).ok()?;
    reply.await.ok()?.ok()?.ok()
}

/// Lists the granted rules of all repositories.
pub(super) async fn grants(server: &Server) -> Result<Reply, ErrorBody> {
    let grants = Arc::clone(&server.hub().services().grants);
    let listed = run_blocking(move || grants.list()).await?;
    let rows: Vec<_> = listed
        .into_iter()
        .map(|grant| GrantRow {
            id: grant.grant_id,
            repository: grant.repository.to_string_lossy().into_owned(),
            rule: grant.rule,
            by: grant.by,
            at: Now(grant.granted_at),
        })
        .collect();
    Ok(Reply::Grants(rows))
}

/// Revokes a granted rule.
pub(super) async fn revoke(server: &Server, id: String) -> Result<Reply, ErrorBody> {
    let grants = Arc::clone(&server.hub().services().grants);
    let name = id.clone();
    if run_blocking(move || grants.revoke(&name)).await? {
        return Ok(Reply::Done(Completion::Revoked));
    }
    let message = format!("there is no remembered approval {id}; `push approvals --remembered` lists them");
    Err(ErrorBody::permanent(Code::ApprovalNotFound, message))
}

/// Runs a blocking operation on the granted rules.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, GrantsError> + Send + 'static,
) -> Result<T, ErrorBody> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome.map_err(|error| ErrorBody::transient(Code::InternalError, error.to_string())),
        Err(_) => Err(ErrorBody::transient(Code::InternalError, "cannot read the remembered approvals")),
    }
}

/// Reads the messages of a session, page by page.
pub(super) async fn messages(server: &Server, session: &SessionId, after: Seq, limit: u32) -> Result<Reply, ErrorBody> {
    server.lane(session).await?;
    let mut page = MessagePage { messages: Vec::new(), next_after: after, done: false };
    let mut transcript = Transcript::default();
    let mut seen = after;
    let mut whole = 0;
    loop {
        let read = server.hub().services().journal.page(session.clone(), seen, PAGE_BYTES).await.map_err(read_error)?;
        let lines = read.blocks.iter().flat_map(|block| block.bytes.split_inclusive(|byte| *byte == b'\n'));
        for line in lines {
            let event = record::decode_event(line)
                .map_err(|error| ErrorBody::permanent(Code::InternalError, error.to_string()))?;
            if event.seq <= seen {
                continue;
            }
            seen = event.seq;
            page.messages.extend(transcript.apply(&event));
            // A page never starts in the middle of a text, so this one continues to its end.
            if !transcript.has_partial_text() {
                (whole, page.next_after) = (page.messages.len(), seen);
                if whole >= limit as usize {
                    return Ok(Reply::Messages(page));
                }
            }
        }
        if !read.more {
            break;
        }
    }
    // Messages within an incomplete text are returned with it, on a later page.
    page.messages.truncate(whole);
    page.done = true;
    Ok(Reply::Messages(page))
}

/// The number of bytes that one read returns.
const PAGE_BYTES: usize = 256 * 1024;

fn parse_cursor(cursor: &str) -> Result<(Now, SessionId), ErrorBody> {
    let parsed = cursor.split_once(':').and_then(|(at, id)| Some((Now(at.parse().ok()?), SessionId::from(id))));
    parsed.ok_or_else(|| ErrorBody::permanent(Code::InvalidRequest, "cursor: is not a cursor of this daemon"))
}

fn read_error(error: ReadError) -> ErrorBody {
    ErrorBody::transient(Code::InternalError, format!("the journal cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_list_without_ended_sessions_is_read_in_large_pages() {
        assert_eq!([1, 255, 256, 1000].map(|limit| rows_per_query(limit, false)), [256, 256, 257, 1001]);
        assert_eq!([1, 255, 256].map(|limit| rows_per_query(limit, true)), [2, 256, 257]);
        assert_eq!(rows_per_query(usize::MAX, false), usize::MAX);
    }
}
