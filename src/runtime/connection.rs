//! One connection: a reader that decodes requests, and a writer that sends responses and events.
//!
//! The reader refuses commands and queries while too many of them are unanswered, and stops reading while its peer
//! does not read the responses. The writer reads events at its own pace from the feeds, or from the journal if it has
//! fallen behind. Neither delays a session.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{debug, trace};

use super::connection_writer;
use super::outbox::{EventForm, Outbox, OutboxItem, RequestPermit};
use super::pi::{PiEndpoint, PiPeer, Via};
use super::request_order::{QUERIES_PER_COMMAND, RequestClass};
use super::requests::RequestHandler;
use super::server::{CLOSE_TIMEOUT, Server};
use crate::kernel::id::ParticipantId;
use crate::protocol::intent::{Intent, Malformed, Request, SwitchProtocol};
use crate::protocol::push::PushProtocol;
use crate::protocol::push::decode::DecodeLimits;
use crate::protocol::{EventEncoding, Protocol, ProtocolName};
use crate::transport::frames::{Frame, FrameReader, FrameWriter};
use crate::transport::local;

/// Serves a connection of the local socket until its peer leaves or the daemon shuts down.
pub(super) async fn serve(pi: Arc<PiEndpoint>, stream: local::Stream, id: ParticipantId) {
    let limits = pi.server().hub().services().limits;
    let (receiving, sending) = stream.into_split();
    let reader = FrameReader::lines(receiving, limits.line_bytes);
    let writer = FrameWriter::lines(sending, limits.stall_timeout);
    let protocol = Arc::new(PushProtocol::new(DecodeLimits::default(), limits.line_depth));
    if let Some(switched) = drive(pi.server(), protocol, id, reader, writer).await {
        // Boxed, so that other connections do not hold its memory.
        Box::pin(switch_protocol(&pi, switched, id)).await;
    }
    debug!(connection = id.0, "connection closed");
}

/// Drives a connection in one protocol: reads requests, and writes replies and events.
///
/// Returns the connection if its peer continues in another protocol.
pub(super) async fn drive(
    server: &Arc<Server>,
    protocol: Arc<dyn Protocol>,
    id: ParticipantId,
    mut reader: FrameReader,
    writer: FrameWriter,
) -> Option<SwitchedConnection> {
    let event_form = match protocol.event_encoding() {
        EventEncoding::Record => EventForm::Record,
        EventEncoding::Shared(_) => EventForm::Event,
    };
    let outbox = Outbox::new(id, event_form);
    let permits = RequestPermits::new(server.hub().services().limits.pending_requests);
    let handler = Arc::new(RequestHandler::new(Arc::clone(server), Arc::clone(&protocol), Arc::clone(&outbox)));
    let hub = Arc::clone(server.hub());
    let mut writer = tokio::spawn(connection_writer::run(hub, Arc::clone(&protocol), writer, Arc::clone(&outbox)));
    let over = tokio::select! {
        switch = read_requests(&*protocol, &mut reader, &handler, &permits) => {
            // The peer sends no more requests in this protocol; the pending ones are still answered.
            tokio::select! {
                () = permits.wait_until_answered() => ConnectionEnd::Answered(switch),
                _ = &mut writer => ConnectionEnd::WriteFailed,
            }
        }
        _ = &mut writer => ConnectionEnd::WriteFailed,
        () = server.hub().services().disconnecting.wait() => ConnectionEnd::Answered(None),
    };
    let mut switched = None;
    if let ConnectionEnd::Answered(switch) = over {
        let farewell = switch.as_ref().map_or(CLOSE_TIMEOUT, |switch| {
            outbox.push(OutboxItem::Frames { bytes: switch.answer.clone(), permit: None });
            // The connection continues: the writer's own stall timeout applies.
            Duration::MAX
        });
        drop(handler);
        outbox.close();
        match (timeout(farewell, &mut writer).await, switch) {
            (Ok(Ok(Some(writer))), Some(switch)) => {
                switched = Some(SwitchedConnection { request: switch.request, reader, writer });
            }
            (Ok(_), _) => {}
            // A writer that is stuck in a full socket is abandoned.
            (Err(_), _) => writer.abort(),
        }
    }
    outbox.close();
    switched
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

/// A connection that continues in another protocol.
pub(super) struct SwitchedConnection {
    request: SwitchProtocol,
    reader: FrameReader,
    writer: FrameWriter,
}

/// Serves another protocol on a connection.
async fn switch_protocol(pi: &PiEndpoint, switched: SwitchedConnection, id: ParticipantId) {
    let SwitchedConnection { request, reader, writer } = switched;
    let limits = pi.server().hub().services().limits;
    match request.protocol {
        ProtocolName::Pi => {
            let cwd = request.cwd.map(PathBuf::from);
            let peer = PiPeer { id, via: Via::Lines, cwd, environment: request.environment };
            pi.serve(peer, reader.with_line_limit(limits.pi_message_bytes), writer).await;
        }
    }
}

/// Reads requests until the peer closes the connection or switches the protocol.
async fn read_requests(
    protocol: &dyn Protocol,
    reader: &mut FrameReader,
    handler: &Arc<RequestHandler>,
    permits: &RequestPermits,
) -> Option<ProtocolSwitch> {
    let limits = handler.server().hub().services().limits;
    let mut first = true;
    loop {
        let next = if first {
            match timeout(limits.first_line_timeout, reader.next()).await {
                Ok(next) => next,
                Err(_) => {
                    debug!("no request before the first-line timeout");
                    return None;
                }
            }
        } else {
            reader.next().await
        };
        let frame = match next {
            Ok(Some(frame)) => frame,
            Ok(None) => return None,
            Err(error) => {
                debug!(%error, "connection broken");
                return None;
            }
        };
        first = false;
        let request = decode(protocol, &frame, limits.line_bytes);
        let class = request.as_ref().map_or(RequestClass::Immediate, |request| RequestClass::of(&request.intent));
        match (request, permits.admit(class).await?) {
            (Ok(Request { tag, intent: Intent::SwitchProtocol(request) }), _) => {
                let answer = handler.protocol_switched(tag);
                return Some(ProtocolSwitch { request: *request, answer });
            }
            (Ok(request), Admission::Admitted(permit)) => handler.dispatch(request, permit).await,
            (Ok(request), Admission::Refused(permit)) => handler.refuse_excess(request.tag, permit),
            (Err(malformed), Admission::Admitted(permit) | Admission::Refused(permit)) => {
                handler.refuse_malformed(malformed, permit);
            }
        }
    }
}

fn decode(protocol: &dyn Protocol, frame: &Frame, limit: usize) -> Result<Request, Malformed> {
    match frame {
        Frame::Text(bytes) => {
            trace!(bytes = bytes.len(), "frame");
            protocol.decode(bytes)
        }
        Frame::TooLong { bytes, excerpt: _ } => Err(protocol.too_long(*bytes, limit)),
        // No request is binary: it is refused as an empty one.
        Frame::Binary => protocol.decode(b""),
    }
}
