//! Requests that only read: lists of sessions and approvals, and what was said in a session.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::grants::GrantsError;
use super::lane::{Asked, Respond};
use super::outbox::Outbox;
use super::server::Server;
use crate::journal::{ListQuery, ReadError};
use crate::kernel::command::{Answer, Caller, Command, Phase};
use crate::kernel::id::{Json, Seq, SessionId};
use crate::kernel::time::Now;
use crate::protocol::push::decode::ListSessions;
use crate::protocol::push::encode::{self, GrantRow, MessagePage, Payload, PendingApproval};
use crate::protocol::push::error::{Code, ErrorBody};
use crate::protocol::push::record::{self, Transcript};

/// Lists sessions, the newest first.
pub(super) async fn sessions(server: &Server, asked: ListSessions) -> Result<Payload, ErrorBody> {
    let ListSessions { limit, cursor, prefix, include_ended } = asked;
    let mut after = cursor.as_deref().map(parse_cursor).transpose()?;
    let limit = limit as usize;
    let mut found = Vec::new();
    // What is left out is made up for by further pages.
    while found.len() <= limit {
        let query = ListQuery { limit: rows_per_query(limit, include_ended), after, prefix: prefix.clone() };
        let wanted = query.limit;
        let page = server.hub().world().journal.list(query).await.map_err(unreadable)?;
        let is_last = page.len() < wanted;
        after = page.last().map(|last| (last.updated_at, last.session.clone()));
        found.extend(page.into_iter().filter(|meta| include_ended || !encode::has_ended(&meta.summary)));
        if is_last {
            break;
        }
    }
    let more = found.len() > limit;
    found.truncate(limit);
    let cursor = found.last().filter(|_| more).map(|last| format!("{}:{}", last.updated_at.0, last.session));
    let rows: Vec<_> = found.into_iter().map(|meta| Json::new(meta.summary)).collect();
    Ok(encode::sessions(&rows, cursor.as_deref()))
}

/// Returns how many rows one query reads: one more than wanted, and where ended sessions are left out no small number, so
/// that a journal of mostly ended sessions is not read a row or two at a time.
fn rows_per_query(limit: usize, include_ended: bool) -> usize {
    let wanted = limit.saturating_add(1);
    if include_ended { wanted } else { wanted.max(MIN_FILTERED_ROWS) }
}

/// How many rows a query reads at least when ended sessions are left out.
const MIN_FILTERED_ROWS: usize = 256;

/// Lists the approvals that wait, in one session or in all.
///
/// A run that waits keeps its session in memory, so only lanes are asked; after a restart they are brought back first.
pub(super) async fn approvals(
    server: &Server,
    caller: &Caller,
    outbox: &Arc<Outbox>,
    session: Option<SessionId>,
) -> Result<Payload, ErrorBody> {
    let lanes = match session {
        Some(session) => vec![server.lane(&session).await?],
        None => {
            server.hub().recover().await.map_err(unreadable)?;
            server.hub().lanes()
        }
    };
    let mut pending = Vec::new();
    for lane in lanes.into_iter().filter(|lane| lane.phase() == Phase::Waiting) {
        let (tell, told) = oneshot::channel();
        let respond = Respond::new(move |told| {
            // Whoever asked may have left.
            let _ = tell.send(told.map(|told| told.reply));
        });
        let (caller, outbox) = (caller.clone(), Arc::clone(outbox));
        let command = Command::ListGates;
        let asked = Asked { caller, command, if_version: None, respond, outbox, environment: None };
        if lane.ask(Box::new(asked)).is_ok()
            && let Ok(Ok(Ok(Answer::Gates { run: Some(run), questions }))) = told.await
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
    Ok(encode::approvals(&pending))
}

/// Lists what may go ahead unasked, in all repositories.
pub(super) async fn grants(server: &Server) -> Result<Payload, ErrorBody> {
    let grants = Arc::clone(&server.hub().world().grants);
    let listed = away(move || grants.list()).await?;
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
    Ok(encode::grants(&rows))
}

/// Has something asked about again that may go ahead unasked.
pub(super) async fn revoke(server: &Server, id: String) -> Result<Payload, ErrorBody> {
    let grants = Arc::clone(&server.hub().world().grants);
    let name = id.clone();
    if away(move || grants.revoke(&name)).await? {
        return Ok(encode::revoked());
    }
    Err(ErrorBody::lasting(Code::ApprovalNotFound, format!("no approval {id} is remembered")))
}

/// Does something with the remembered approvals that may wait for the disk.
async fn away<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, GrantsError> + Send + 'static,
) -> Result<T, ErrorBody> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome.map_err(|error| ErrorBody::passing(Code::InternalError, error.to_string())),
        Err(_) => {
            Err(ErrorBody::passing(Code::InternalError, "the remembered approvals could not be looked at"))
        }
    }
}

/// Reads what was said in a session, page by page.
pub(super) async fn messages(
    server: &Server,
    session: &SessionId,
    after: Seq,
    limit: u32,
) -> Result<Payload, ErrorBody> {
    server.lane(session).await?;
    let mut page = MessagePage { messages: Vec::new(), next_after: after, done: false };
    let mut transcript = Transcript::default();
    let mut seen = after;
    let mut whole = 0;
    loop {
        let read =
            server.hub().world().journal.page(session.clone(), seen, PAGE_BYTES).await.map_err(unreadable)?;
        let lines = read.blocks.iter().flat_map(|block| block.bytes.split_inclusive(|byte| *byte == b'\n'));
        for line in lines {
            let event = record::decode_event(line)
                .map_err(|error| ErrorBody::lasting(Code::InternalError, error.to_string()))?;
            if event.seq <= seen {
                continue;
            }
            seen = event.seq;
            page.messages.extend(transcript.take(&event));
            // No page begins in the middle of a text: this one goes on to its end.
            if !transcript.is_saying() {
                (whole, page.next_after) = (page.messages.len(), seen);
                if whole >= limit as usize {
                    return Ok(encode::messages(&page));
                }
            }
        }
        if !read.more {
            break;
        }
    }
    // What was said into a text that is not whole yet comes with it, on a later page.
    page.messages.truncate(whole);
    page.done = true;
    Ok(encode::messages(&page))
}

/// How much of a journal is read at once.
const PAGE_BYTES: usize = 256 * 1024;

fn parse_cursor(cursor: &str) -> Result<(Now, SessionId), ErrorBody> {
    let parsed =
        cursor.split_once(':').and_then(|(at, id)| Some((Now(at.parse().ok()?), SessionId::from(id))));
    parsed.ok_or_else(|| {
        ErrorBody::lasting(Code::InvalidRequest, "cursor: is not one that this daemon gave out")
    })
}

fn unreadable(error: ReadError) -> ErrorBody {
    ErrorBody::passing(Code::InternalError, format!("the journal cannot be read: {error}"))
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
