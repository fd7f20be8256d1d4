//! Requests that only read: lists of sessions and approvals, grants, and the messages of a session.

mod messages;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::grants::GrantsError;
use super::lane::{LaneHandle, LaneRequest, ReplyGuard};
use super::outbox::Outbox;
use super::server::Server;
use crate::journal::{ListQuery, Meta, ReadError};
use crate::kernel::command::{Answer, Caller, Command, Phase};
use crate::kernel::id::{Json, SessionId};
use crate::kernel::time::Now;
use crate::protocol::error::{Code, ErrorBody};
use crate::protocol::intent::ListSessions;
use crate::protocol::reply::{Completion, GrantRow, PendingApproval, Reply};
use crate::provider::Starter;
use crate::record;
pub(super) use messages::messages;

/// Lists sessions, the newest first.
///
/// The rows are read from the journal. The first list after a start waits until the recovery of unfinished runs is
/// committed.
pub(super) async fn sessions(
    server: &Server,
    caller: &Caller,
    outbox: &Arc<Outbox>,
    request: ListSessions,
    is_visible: impl Fn(&SessionId) -> bool,
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
        let is_listed = |meta: &Meta| include_ended || !record::summary::is_ended(&meta.summary);
        found.extend(page.into_iter().filter(|meta| is_visible(&meta.session) && is_listed(meta)));
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
/// An open approval keeps its session in memory, whether or not a run waits for it, so only lanes are queried; after a
/// restart they are restored first.
pub(super) async fn approvals(
    server: &Server,
    caller: &Caller,
    outbox: &Arc<Outbox>,
    session: Option<SessionId>,
    is_visible: impl Fn(&SessionId) -> bool,
) -> Result<Vec<PendingApproval>, ErrorBody> {
    let lanes = match session {
        Some(session) => vec![server.lane(&session).await?],
        None => {
            server.hub().recover().await.map_err(read_error)?;
            let asks = |lane: &LaneHandle| lane.has_open_gates() || lane.phase() == Phase::Waiting;
            server.hub().lanes().into_iter().filter(|lane| asks(lane) && is_visible(lane.id())).collect()
        }
    };
    let mut pending = Vec::new();
    for lane in lanes {
        if let Some(Answer::Gates(gates)) = query_lane(&lane, caller, outbox, Command::ListGates).await {
            let session = lane.id();
            let listed = |(run, question)| PendingApproval { session: session.clone(), run, question };
            pending.extend(gates.into_iter().map(listed));
        }
    }
    pending.sort_by_key(|pending| pending.question.expires);
    Ok(pending)
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
pub(super) async fn query_lane(
    lane: &LaneHandle,
    caller: &Caller,
    outbox: &Arc<Outbox>,
    command: Command,
) -> Option<Answer> {
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
        part: None,
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
