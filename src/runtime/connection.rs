//! One connection: a reader that decodes requests, and a writer that sends responses and events.
//!
//! The reader refuses commands and queries while too many of them are unanswered, and stops reading while its peer
//! does not read the responses. The writer reads events at its own pace from the feeds, or from the journal if it has
//! fallen behind. Neither delays a session.

use std::convert::Infallible;
use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing::{debug, error, trace};

use super::commands::Peer;
use super::connection_writer;
use super::outbox::{EventForm, Outbox, OutboxItem, RequestPermit};
use super::protocols::{Endpoint, ProtocolRegistry};
use super::request_order::QUERIES_PER_COMMAND;
use super::requests::RequestHandler;
use super::server::{CLOSE_TIMEOUT, Server};
use crate::kernel::command::Queue;
use crate::kernel::id::ConnectionId;
use crate::protocol::intent::{Intent, Malformed, Request, SwitchProtocol};
use crate::protocol::{EventEncoding, Protocol};
use crate::transport::canonical_json::{self, canonicalize};
use crate::transport::frames::{CloseReason, Frame, FrameReader, FrameWriter};
use crate::transport::local;

/// Serves a connection of the local socket until its peer leaves or the daemon shuts down.
pub(super) async fn serve(protocols: Arc<ProtocolRegistry>, stream: local::Stream, id: ConnectionId) {
    let native = protocols.native();
    let (receiving, sending) = stream.into_split();
    let reader = FrameReader::lines(receiving, native.frame_bytes);
    let writer = FrameWriter::lines(sending, protocols.server().hub().services().limits.stall_timeout);
    let peer = Peer::new(None, None);
    let mut switched = drive(protocols.server(), native, Arc::new(peer), id, reader, writer).await;
    while let Some(SwitchedConnection { request, reader, writer }) = switched {
        let peer = Peer::new(request.environment, request.cwd.map(PathBuf::from));
        // Boxed, so that other connections do not hold its memory.
        switched = Box::pin(serve_protocol(&protocols, &request.protocol, peer, id, reader, writer)).await;
    }
    debug!(connection = id.0, "connection closed");
}

/// Serves a connection in a protocol of the registry.
///
/// Returns the connection if its peer continues in another protocol.
pub(super) async fn serve_protocol(
    protocols: &ProtocolRegistry,
    name: &str,
    peer: Peer,
    id: ConnectionId,
    reader: FrameReader,
    mut writer: FrameWriter,
) -> Option<SwitchedConnection> {
    match protocols.endpoint(name).await {
        Ok(endpoint) => {
            debug!(connection = id.0, protocol = name, "connection");
            let reader = reader.with_line_limit(endpoint.frame_bytes);
            drive(protocols.server(), endpoint, Arc::new(peer), id, reader, writer).await
        }
        Err(error) => {
            error!(%error, protocol = name, "cannot serve a connection");
            // The peer may be gone.
            let _ = writer.close(CloseReason::GoingAway).await;
            None
        }
    }
}

/// Drives a connection in one protocol: reads requests, and writes replies and events.
///
/// Returns the connection if its peer continues in another protocol.
pub(super) async fn drive(
    server: &Arc<Server>,
    endpoint: Endpoint,
    peer: Arc<Peer>,
    id: ConnectionId,
    mut reader: FrameReader,
    writer: FrameWriter,
) -> Option<SwitchedConnection> {
    let outbox = open_outbox(&endpoint, id);
    let permits = RequestPermits::new(server.hub().services().limits.pending_requests);
    let handler = Arc::new(RequestHandler::new(Arc::clone(server), &endpoint, peer, Arc::clone(&outbox)));
    let (hub, protocol) = (Arc::clone(server.hub()), Arc::clone(&endpoint.protocol));
    let mut writer = tokio::spawn(connection_writer::run(hub, protocol, writer, Arc::clone(&outbox)));
    let over = tokio::select! {
        switch = read_requests(&endpoint, &mut reader, &handler, &permits) => {
            // The peer sends no more requests in this protocol; the pending ones are still answered.
            handler.end_waits();
            let answered = async {
                permits.wait_until_answered().await;
                handler.wait_for_commands().await;
            };
            tokio::select! {
                () = answered => ConnectionEnd::Answered(switch),
                written = &mut writer => ConnectionEnd::Written(written.ok().flatten()),
            }
        }
        written = &mut writer => ConnectionEnd::Written(written.ok().flatten()),
        () = server.hub().services().disconnecting.wait() => {
            // All lanes have ended; the views may not have passed on their last events.
            if let Some(commands) = &endpoint.commands {
                let _ = timeout(CLOSE_TIMEOUT, commands.wait_until_delivered()).await;
            }
            outbox.close_because(CloseReason::GoingAway);
            ConnectionEnd::Answered(None)
        }
        never = tick(server, &*endpoint.protocol, &outbox) => match never {},
    };
    handler.end_waits();
    let written = match over {
        ConnectionEnd::Answered(switch) => {
            let patience = switch.as_ref().map_or(CLOSE_TIMEOUT, |switch| {
                outbox.push(OutboxItem::Frames { bytes: switch.answer.clone(), permit: None });
                // The connection continues: the writer's own stall timeout applies.
                Duration::MAX
            });
            drop(handler);
            outbox.close();
            match (finish(writer, patience).await, switch) {
                (Some(writer), Some(switch)) => {
                    return Some(SwitchedConnection { request: switch.request, reader, writer });
                }
                (written, _) => written,
            }
        }
        ConnectionEnd::Written(written) => {
            outbox.close();
            written
        }
    };
    close(reader, written, outbox.close_reason()).await;
    None
}

/// Sends what is due at certain times, if the protocol has that.
async fn tick(server: &Server, protocol: &dyn Protocol, outbox: &Outbox) -> Infallible {
    match protocol.tick_interval() {
        // Boxed, so that other connections do not hold its memory.
        Some(interval) => Box::pin(tick_every(interval, server, protocol, outbox)).await,
        None => pending().await,
    }
}

/// The queue is bounded: a peer that reads nothing is disconnected.
async fn tick_every(interval: Duration, server: &Server, protocol: &dyn Protocol, outbox: &Outbox) -> Infallible {
    loop {
        sleep(interval).await;
        let mut frames = Vec::new();
        protocol.tick(server.hub().services().clock.now(), &mut frames);
        for frame in frames.split(|byte| *byte == b'\n').filter(|frame| !frame.is_empty()) {
            outbox.push_line(Bytes::copy_from_slice(frame));
        }
    }
}

/// Creates the outbox of a connection, with the greeting of its protocol.
fn open_outbox(endpoint: &Endpoint, id: ConnectionId) -> Arc<Outbox> {
    let event_form = match endpoint.protocol.event_encoding() {
        EventEncoding::Record => EventForm::Record,
        EventEncoding::Shared(_) | EventEncoding::Projected => EventForm::Event,
    };
    let outbox = Outbox::with_line_bytes(id, event_form, endpoint.queued_bytes);
    let mut greeting = Vec::new();
    endpoint.protocol.open(&mut greeting);
    if !greeting.is_empty() {
        outbox.push(OutboxItem::Frames { bytes: greeting, permit: None });
    }
    if let Some(commands) = &endpoint.commands {
        commands.connect(&outbox);
    }
    outbox
}

/// Waits for the end of a writer; one that is stuck in a full socket is abandoned.
async fn finish(mut writer: JoinHandle<Option<FrameWriter>>, patience: Duration) -> Option<FrameWriter> {
    match timeout(patience, &mut writer).await {
        Ok(written) => written.ok().flatten(),
        Err(_) => {
            writer.abort();
            None
        }
    }
}

/// Closes a connection; data that its peer still sends is read, because unread data would reset it.
async fn close(mut reader: FrameReader, writer: Option<FrameWriter>, reason: CloseReason) {
    if let Some(mut writer) = writer {
        // The peer may be gone.
        let _ = timeout(CLOSE_TIMEOUT, writer.close(reason)).await;
    }
    reader.drain(CLOSE_TIMEOUT).await;
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
    /// Too many requests of its queue are unanswered; the permit is for the refusal.
    Refused(RequestPermit),
}

/// The maximum number of unanswered control requests of one connection.
const MAX_CONTROL: usize = 16;

impl RequestPermits {
    fn new(limit: usize) -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        let queries = semaphore(QUERIES_PER_COMMAND * limit);
        let (commands, control, immediate) = (semaphore(limit), semaphore(MAX_CONTROL), semaphore(limit));
        Self { commands, queries, control, immediate, limit }
    }

    /// Admits or refuses a request for a queue; `None` if the connection ends.
    async fn admit(&self, queue: Queue) -> Option<Admission> {
        let bounded = match queue {
            Queue::Control => return Some(Admission::Admitted(acquire(&self.control).await?)),
            Queue::Immediate => return Some(Admission::Admitted(acquire(&self.immediate).await?)),
            Queue::Change | Queue::LongChange => &self.commands,
            Queue::Read => &self.queries,
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
    /// The writer has ended: it returns the stream, unless a write failed.
    Written(Option<FrameWriter>),
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

/// Reads requests until the peer closes the connection or switches the protocol.
async fn read_requests(
    endpoint: &Endpoint,
    reader: &mut FrameReader,
    handler: &Arc<RequestHandler>,
    permits: &RequestPermits,
) -> Option<ProtocolSwitch> {
    let mut first_request_timeout = endpoint.first_request_timeout;
    let depth = handler.server().hub().services().limits.line_depth;
    while !handler.is_closed() {
        let next = match first_request_timeout.take() {
            Some(limit) => timeout(limit, reader.next()).await.unwrap_or_else(|_| {
                debug!("no request before the first-line timeout");
                Ok(None)
            }),
            None => reader.next().await,
        };
        let frame = match next {
            Ok(Some(frame)) => frame,
            Ok(None) => return None,
            Err(error) => {
                debug!(%error, "connection broken");
                return None;
            }
        };
        if let Frame::TooLong { .. } = frame {
            handler.count_oversized();
        }
        let request = match decode(&*endpoint.protocol, &frame, endpoint.frame_bytes, depth) {
            // The command log has limits of its own.
            Ok(Request { tag, intent: Intent::Command(command) }) => {
                handler.submit(tag, *command);
                continue;
            }
            request => request,
        };
        let queue = request.as_ref().map_or(Queue::Immediate, |request| request.intent.action().policy().queue);
        match (request, permits.admit(queue).await?) {
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
    None
}

/// Decodes a frame; one of JSON is checked and rewritten first.
fn decode(protocol: &dyn Protocol, frame: &Frame, limit: usize, depth: usize) -> Result<Request, Malformed> {
    match frame {
        Frame::Text(bytes) => {
            trace!(bytes = bytes.len(), "frame");
            if !protocol.is_json() {
                return protocol.decode(bytes);
            }
            let line = canonicalize(bytes, canonical_json::Limits { depth });
            protocol.decode(&line.map_err(|why| protocol.unreadable(bytes, &why))?)
        }
        Frame::TooLong { bytes, excerpt } => Err(protocol.too_long(*bytes, limit, excerpt.head(), excerpt.tail())),
        Frame::Binary => Err(protocol.binary()),
    }
}
