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

use super::mint;
use super::outbox::{Out, Outbox, RequestPermit};
use super::pi::{self, PiPeer, Via};
use super::request_order::{QUERIES_PER_COMMAND, RequestClass};
use super::requests::Desk;
use super::server::Server;
use super::writing;
use crate::kernel::id::ParticipantId;
use crate::protocol::push::decode::{self, Ask, Malformed, Problem, Protocol, Speak};
use crate::protocol::push::encode;
use crate::transport::compact::{self, compact};
use crate::transport::frames::{Receiving, Sending};
use crate::transport::line::{Line, Lines};
use crate::transport::local;

/// Serves a connection until its peer leaves or the daemon shuts down.
pub(super) async fn serve(server: Arc<Server>, stream: local::Stream, id: ParticipantId) {
    let (receiving, sending) = stream.into_split();
    let outbox = Outbox::new(id);
    let limits = server.hub().world().limits;
    let permits = Permits::new(limits.requests);
    let desk = Arc::new(Desk::new(Arc::clone(&server), Arc::clone(&outbox)));
    let mut lines = Lines::new(receiving, limits.line_bytes);
    let mut writer = tokio::spawn(writing::write(Arc::clone(server.hub()), sending, Arc::clone(&outbox)));
    let over = tokio::select! {
        switch = read(&server, &mut lines, &desk, &permits) => {
            // The peer sends no more requests in this protocol; the pending ones are still answered.
            tokio::select! {
                () = permits.all_answered() => Over::Answered(switch),
                _ = &mut writer => Over::Unwritable,
            }
        }
        _ = &mut writer => Over::Unwritable,
        () = server.hub().world().parting.wait() => Over::Answered(None),
    };
    if let Over::Answered(switch) = over {
        let farewell = switch.as_ref().map_or(FAREWELL, |switch| {
            outbox.push(Out::Lines { bytes: switch.answer.clone(), permit: None });
            // The connection continues: the writer's own stall timeout applies.
            Duration::MAX
        });
        drop(desk);
        outbox.close();
        match (timeout(farewell, &mut writer).await, switch) {
            (Ok(Ok(Some(sending))), Some(switch)) => {
                let sending = Sending::lines(sending, limits.stalled);
                // Boxed, so that other connections do not hold its memory.
                Box::pin(speak(server, switch.speak, id, lines, sending)).await;
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
struct Permits {
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
const CONTROL: usize = 16;

impl Permits {
    fn new(limit: usize) -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        let queries = semaphore(QUERIES_PER_COMMAND * limit);
        let (commands, control, immediate) = (semaphore(limit), semaphore(CONTROL), semaphore(limit));
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

    async fn all_answered(&self) {
        let all = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
        let _ = self.queries.acquire_many(all(QUERIES_PER_COMMAND * self.limit)).await;
        let _ = self.commands.acquire_many(all(self.limit)).await;
        let _ = self.control.acquire_many(all(CONTROL)).await;
        let _ = self.immediate.acquire_many(all(self.limit)).await;
    }
}

async fn acquire(permits: &Arc<Semaphore>) -> Option<RequestPermit> {
    Arc::clone(permits).acquire_owned().await.ok().map(RequestPermit::new)
}

/// How a connection ends in this protocol.
enum Over {
    /// Everything is answered; the connection may continue in another protocol.
    Answered(Option<Switch>),
    /// A write failed.
    Unwritable,
}

/// A switch to another protocol, which the peer has requested.
struct Switch {
    speak: Speak,
    answer: Vec<u8>,
}

/// Serves another protocol from the current position of the line reader.
async fn speak(
    server: Arc<Server>,
    asked: Speak,
    id: ParticipantId,
    lines: Lines<local::ReadHalf>,
    sending: Sending,
) {
    let limits = server.hub().world().limits;
    match asked.protocol {
        Protocol::Pi => {
            let receiving = Receiving::resumed(lines, limits.pi_message_bytes);
            let cwd = asked.cwd.map(PathBuf::from);
            let peer = PiPeer { id, via: Via::Lines, cwd, environment: asked.environment };
            pi::serve(server, peer, receiving, sending).await;
        }
    }
}

/// The time that a writer has for its remaining output when the connection closes.
pub(super) const FAREWELL: Duration = Duration::from_millis(250);

/// Reads requests until the peer closes the connection or switches the protocol.
async fn read(
    server: &Server,
    lines: &mut Lines<impl AsyncRead + Unpin>,
    desk: &Arc<Desk>,
    permits: &Permits,
) -> Option<Switch> {
    let limits = server.hub().world().limits;
    let mut first = true;
    loop {
        let next = if first {
            match timeout(limits.first_line, lines.next()).await {
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
        let request = request(&line, server, limits.line_depth);
        let class = request.as_ref().map_or(RequestClass::Immediate, |request| RequestClass::of(&request.ask));
        match (request, permits.admit(class).await?) {
            (Ok(decode::Request { request_id, kind_name, ask: Ask::Speak(speak), .. }), _) => {
                let request = request_id.unwrap_or_else(mint::request);
                let answer = encode::response_ok(&request, &kind_name, None, &encode::speaking());
                return Some(Switch { speak: *speak, answer });
            }
            (Ok(request), Admission::Admitted(permit)) => desk.take(request, permit).await,
            (Ok(request), Admission::Refused(permit)) => desk.refuse_excess(request, permit),
            (Err(malformed), Admission::Admitted(permit) | Admission::Refused(permit)) => {
                refuse(desk.outbox(), &malformed, permit);
            }
        }
    }
}

fn request(line: &Line, server: &Server, depth: usize) -> Result<decode::Request, Malformed> {
    let bytes = match line {
        Line::Whole(bytes) => bytes,
        Line::TooLong { bytes, excerpt: _ } => {
            let limit = server.hub().world().limits.line_bytes;
            return Err(Malformed::unreadable(Problem::TooLong { bytes: *bytes, limit }));
        }
    };
    trace!(bytes = bytes.len(), "line");
    let compacted = compact(bytes, compact::Limits { depth })
        .map_err(|problem| Malformed::unreadable(Problem::Unreadable { why: problem.to_string() }))?;
    decode::decode(&compacted, server.decode_limits())
}

fn refuse(outbox: &Outbox, malformed: &Malformed, permit: RequestPermit) {
    let request = malformed.request_id.clone().unwrap_or_else(mint::request);
    let session = malformed.session.as_deref();
    let bytes = encode::response_error(&request, malformed.answered_type(), session, &malformed.error());
    outbox.push(Out::Lines { bytes, permit: Some(permit) });
}
