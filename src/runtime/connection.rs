//! One connection: a reader that decodes requests, and a writer that sends responses and events.
//!
//! The reader refuses commands and queries while too many of them are unanswered, and stops reading while its peer
//! does not read the responses. The writer reads events at its own pace from the feeds, or from the journal if it has
//! fallen behind. Neither delays a session.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{debug, trace};

use super::connection_writer;
use super::mint;
use super::outbox::{Outbox, OutboxItem, RequestPermit};
use super::pi::{PiEndpoint, PiPeer, Via};
use super::request_order::{QUERIES_PER_COMMAND, RequestClass};
use super::requests::RequestHandler;
use super::server::{CLOSE_TIMEOUT, Server};
use crate::kernel::id::ParticipantId;
use crate::protocol::push::decode::{self, MalformedRequest, Protocol, RequestBody, RequestError, SwitchProtocol};
use crate::protocol::push::encode;
use crate::transport::canonical_json::{self, canonicalize};
use crate::transport::frames::{FrameReader, FrameWriter};
use crate::transport::line::{Line, Lines};
use crate::transport::local;

/// Serves a connection until its peer leaves or the daemon shuts down.
pub(super) async fn serve(pi: Arc<PiEndpoint>, stream: local::Stream, id: ParticipantId) {
    let server = Arc::clone(pi.server());
    let (receiving, sending) = stream.into_split();
    let outbox = Outbox::new(id);
    let limits = server.hub().services().limits;
    let permits = RequestPermits::new(limits.pending_requests);
    let handler = Arc::new(RequestHandler::new(Arc::clone(&server), Arc::clone(&outbox)));
    let mut lines = Lines::new(receiving, limits.line_bytes);
    let mut writer = tokio::spawn(connection_writer::run(Arc::clone(server.hub()), sending, Arc::clone(&outbox)));
    let over = tokio::select! {
        switch = read_requests(&server, &mut lines, &handler, &permits) => {
            // The peer sends no more requests in this protocol; the pending ones are still answered.
            tokio::select! {
                () = permits.wait_until_answered() => ConnectionEnd::Answered(switch),
                _ = &mut writer => ConnectionEnd::WriteFailed,
            }
        }
        _ = &mut writer => ConnectionEnd::WriteFailed,
        () = server.hub().services().disconnecting.wait() => ConnectionEnd::Answered(None),
    };
    if let ConnectionEnd::Answered(switch) = over {
        let farewell = switch.as_ref().map_or(CLOSE_TIMEOUT, |switch| {
            outbox.push(OutboxItem::Lines { bytes: switch.answer.clone(), permit: None });
            // The connection continues: the writer's own stall timeout applies.
            Duration::MAX
        });
        drop(handler);
        outbox.close();
        match (timeout(farewell, &mut writer).await, switch) {
            (Ok(Ok(Some(sending))), Some(switch)) => {
                let sending = FrameWriter::lines(sending, limits.stall_timeout);
                // Boxed, so that other connections do not hold its memory.
                Box::pin(switch_protocol(&pi, switch.request, id, lines, sending)).await;
            }
            (Ok(_), _) => {}
            // A writer that is stuck in a full socket is abandoned.
            (Err(_), _) => writer.abort(),
        }
    }
    outbox.close();
    debug!(connection = id.0, "connection closed");
}

/// The bounds of unanswered requests of a connection.
///
/// The reader never waits for a query or a command to finish, so that control is always read: requests beyond a bound
/// are refused. It waits only if the peer does not read its responses.
struct RequestPermits {
    commands: Arc<Semaphore>,
    queries: Arc<Semaphore>,
    control: Arc<Semaphore>,
    /// For requests that are answered as soon as they are read, refusals included.
    immediate: Arc<Semaphore>,
    limit: usize,
}

/// Whether a request is handled or refused.
enum Admission {
    Admitted(RequestPermit),
    /// Too many requests of its class are unanswered; the permit is for the refusal.
    Refused(RequestPermit),
}

/// The maximum number of unanswered cancels and decisions of one connection.
const MAX_CONTROL: usize = 16;

impl RequestPermits {
    fn new(limit: usize) -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        let queries = semaphore(QUERIES_PER_COMMAND * limit);
        let (commands, control, immediate) = (semaphore(limit), semaphore(MAX_CONTROL), semaphore(limit));
        Self { commands, queries, control, immediate, limit }
    }

    /// Admits or refuses a request of a class; `None` if the connection ends.
    async fn admit(&self, class: RequestClass) -> Option<Admission> {
        let bounded = match class {
            RequestClass::Control => return Some(Admission::Admitted(acquire(&self.control).await?)),
            RequestClass::Immediate => return Some(Admission::Admitted(acquire(&self.immediate).await?)),
            RequestClass::Command => &self.commands,
            RequestClass::Query => &self.queries,
        };
        match Arc::clone(bounded).try_acquire_owned() {
            Ok(permit) => Some(Admission::Admitted(RequestPermit::new(permit))),
            Err(_) => Some(Admission::Refused(acquire(&self.immediate).await?)),
        }
    }

    async fn wait_until_answered(&self) {
        let all = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
        let _ = self.queries.acquire_many(all(QUERIES_PER_COMMAND * self.limit)).await;
        let _ = self.commands.acquire_many(all(self.limit)).await;
        let _ = self.control.acquire_many(all(MAX_CONTROL)).await;
        let _ = self.immediate.acquire_many(all(self.limit)).await;
    }
}

async fn acquire(permits: &Arc<Semaphore>) -> Option<RequestPermit> {
    Arc::clone(permits).acquire_owned().await.ok().map(RequestPermit::new)
}

/// How a connection ends in this protocol.
enum ConnectionEnd {
    /// Everything is answered; the connection may continue in another protocol.
    Answered(Option<ProtocolSwitch>),
    /// A write failed.
    WriteFailed,
}

/// A switch to another protocol, which the peer has requested.
struct ProtocolSwitch {
    request: SwitchProtocol,
    answer: Vec<u8>,
}

/// Serves another protocol from the current position of the line reader.
async fn switch_protocol(
    pi: &PiEndpoint,
    asked: SwitchProtocol,
    id: ParticipantId,
    lines: Lines<local::ReadHalf>,
    sending: FrameWriter,
) {
    let limits = pi.server().hub().services().limits;
    match asked.protocol {
        Protocol::Pi => {
            let receiving = FrameReader::from_lines(lines, limits.pi_message_bytes);
            let cwd = asked.cwd.map(PathBuf::from);
            let peer = PiPeer { id, via: Via::Lines, cwd, environment: asked.environment };
            pi.serve(peer, receiving, sending).await;
        }
    }
}

/// Reads requests until the peer closes the connection or switches the protocol.
async fn read_requests(
    server: &Server,
    lines: &mut Lines<impl AsyncRead + Unpin>,
    handler: &Arc<RequestHandler>,
    permits: &RequestPermits,
) -> Option<ProtocolSwitch> {
    let limits = server.hub().services().limits;
    let mut first = true;
    loop {
        let next = if first {
            match timeout(limits.first_line_timeout, lines.next()).await {
                Ok(next) => next,
                Err(_) => {
                    debug!("no request before the first-line timeout");
                    return None;
                }
            }
        } else {
            lines.next().await
        };
        let line = match next {
            Ok(Some(line)) => line,
            Ok(None) => return None,
            Err(error) => {
                debug!(%error, "connection broken");
                return None;
            }
        };
        first = false;
        let request = decode_line(&line, server, limits.line_depth);
        let class = request.as_ref().map_or(RequestClass::Immediate, |request| RequestClass::of(&request.body));
        match (request, permits.admit(class).await?) {
            (Ok(decode::Request { request_id, kind_name, body: RequestBody::SwitchProtocol(speak), .. }), _) => {
                let request = request_id.unwrap_or_else(mint::request);
                let answer = encode::response_ok(&request, &kind_name, None, &encode::protocol_switched());
                return Some(ProtocolSwitch { request: *speak, answer });
            }
            (Ok(request), Admission::Admitted(permit)) => handler.dispatch(request, permit).await,
            (Ok(request), Admission::Refused(permit)) => handler.refuse_excess(request, permit),
            (Err(malformed), Admission::Admitted(permit) | Admission::Refused(permit)) => {
                refuse_malformed(handler.outbox(), &malformed, permit);
            }
        }
    }
}

fn decode_line(line: &Line, server: &Server, depth: usize) -> Result<decode::Request, MalformedRequest> {
    let bytes = match line {
        Line::Whole(bytes) => bytes,
        Line::TooLong { bytes, excerpt: _ } => {
            let limit = server.hub().services().limits.line_bytes;
            return Err(MalformedRequest::unreadable(RequestError::TooLong { bytes: *bytes, limit }));
        }
    };
    trace!(bytes = bytes.len(), "line");
    let compacted = canonicalize(bytes, canonical_json::Limits { depth })
        .map_err(|problem| MalformedRequest::unreadable(RequestError::Unreadable { why: problem.to_string() }))?;
    decode::decode(&compacted, server.decode_limits())
}

fn refuse_malformed(outbox: &Outbox, malformed: &MalformedRequest, permit: RequestPermit) {
    let request = malformed.request_id.clone().unwrap_or_else(mint::request);
    let session = malformed.session.as_deref();
    let bytes = encode::response_error(&request, malformed.reply_type(), session, &malformed.error());
    outbox.push(OutboxItem::Lines { bytes, permit: Some(permit) });
}
