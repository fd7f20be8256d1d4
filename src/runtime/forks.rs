//! Forks: a child session that starts with the conversation of its parent up to an event.
//!
//! The parent answers where the fork starts and records nothing. The child gets its first events in one batch, so that a
//! crash leaves either a whole fork or none.

use std::sync::Arc;

use super::fingerprints;
use super::lane::{LaneHandle, LaneRequest, ReplyGuard};
use super::outbox::Outbox;
use super::server::{Server, StartedSession, lane_error, stopping_error};
use crate::kernel::command::{Answer, Caller, Command};
use crate::kernel::event::Event;
use crate::kernel::fork::{Fork, ForkPoint, Inheritance};
use crate::kernel::id::{Seq, SessionId};
use crate::protocol::error::{self, Code, ErrorBody};
use crate::protocol::intent;
use crate::provider::Starter;
use crate::record;

/// Forks a session for a client; returns the fork and the command to send to it.
pub(super) async fn fork(
    server: &Server,
    caller: &Caller,
    outbox: &Arc<Outbox>,
    parent: &SessionId,
    request: &intent::Fork,
) -> Result<(StartedSession, Command), ErrorBody> {
    if server.hub().is_draining() {
        return Err(stopping_error());
    }
    if let Some(refused) = server.storage_error() {
        return Err(lane_error(&refused));
    }
    let key = request.idempotency_key.as_deref();
    let fingerprint = fingerprints::fork(parent, request);
    let start_guard = match key {
        Some(key) => Some(server.lock_start(key).await),
        None => None,
    };
    if let Some(key) = key
        && let Some(found) = server.find_started(key, |kept| kept == fingerprint).await?
    {
        return Ok((found, Command::Describe));
    }
    let lane = server.lane(parent).await?;
    let point = prepare(&lane, caller, outbox, request.at).await?;
    let command = open(server, parent, &point, request.name.clone()).await?;
    let started = server.create(key.map(|key| (key.to_owned(), fingerprint)))?;
    Ok((StartedSession { start_guard, ..started }, command))
}

/// Returns the command that opens a fork; without a name it has that of its parent.
async fn open(
    server: &Server,
    parent: &SessionId,
    point: &ForkPoint,
    name: Option<String>,
) -> Result<Command, ErrorBody> {
    let inherited = inherit(server, parent, point).await?;
    let opening = point.opening(parent.clone(), name.or_else(|| point.snapshot.name.clone()));
    Ok(open_command(point, opening, inherited))
}

/// Returns the command that opens a fork with these parameters.
pub(super) fn open_command(
    point: &ForkPoint,
    opening: crate::kernel::event::Opening,
    inherited: Vec<Event>,
) -> Command {
    let version = point.snapshot.version.saturating_add(1);
    Command::OpenFork(Box::new(Fork { opening, inherited, settings: point.settings(), version }))
}

/// Asks a session for the point of a fork.
async fn prepare(
    lane: &LaneHandle,
    caller: &Caller,
    outbox: &Arc<Outbox>,
    at: Option<Seq>,
) -> Result<ForkPoint, ErrorBody> {
    let (sender, reply) = tokio::sync::oneshot::channel();
    let reply_guard = ReplyGuard::new(move |reply| {
        // The requester may be gone.
        let _ = sender.send(reply);
    });
    let request = LaneRequest {
        caller: caller.clone(),
        command: Command::PrepareFork { at },
        if_version: None,
        starter: Starter::Person,
        reply_guard,
        outbox: Arc::clone(outbox),
        environment: None,
        part: None,
    };
    let interrupted = || lane_error(&super::lane::LaneError::Interrupted);
    lane.send_request(Box::new(request)).map_err(|_| interrupted())?;
    let reply = reply.await.map_err(|_| interrupted())?.map_err(|failed| lane_error(&failed))?;
    match reply.result {
        Ok(Answer::ForkPrepared(point)) => Ok(*point),
        Ok(_) => Err(interrupted()),
        Err(refusal) => Err(error::from_refusal(refusal)),
    }
}

/// Reads the events that a fork inherits.
pub(super) async fn inherit(server: &Server, parent: &SessionId, point: &ForkPoint) -> Result<Vec<Event>, ErrorBody> {
    let services = server.hub().services();
    let mut inheritance = Inheritance::new(point.viewer.clone(), services.limits.session);
    let mut seen = Seq::ZERO;
    while seen < point.at {
        let page = services.journal.page(parent.clone(), seen, PAGE_BYTES).await;
        let page = page.map_err(|error| unreadable(error.to_string()))?;
        for line in page.blocks.iter().flat_map(|block| block.bytes.split_inclusive(|byte| *byte == b'\n')) {
            let event = record::decode_event(line).map_err(|error| unreadable(error.to_string()))?;
            if event.seq > seen && event.seq <= point.at {
                inheritance.add(event);
            }
        }
        let end = page.blocks.last().map(|block| block.last);
        let Some(end) = end.filter(|end| page.more && *end > seen) else { break };
        seen = end;
    }
    inheritance.finish().map_err(error::from_refusal)
}

fn unreadable(error: String) -> ErrorBody {
    ErrorBody::transient(Code::InternalError, format!("the history of the session cannot be read: {error}"))
}

/// The number of bytes that one read returns.
const PAGE_BYTES: usize = 256 * 1024;
