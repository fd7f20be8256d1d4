//! One connection: a reader that turns lines into requests, and a writer that serves answers and events.
//!
//! The reader stops taking lines while too many of its requests are unanswered; the writer reads events at its own
//! pace from the feeds, or from the journal when it has fallen behind. Neither ever holds up a session.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tracing::{debug, trace};

use super::mint;
use super::outbox::{Out, Outbox};
use super::pi::{self, PiPeer, Via};
use super::request_order::Handling;
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

/// Serves a connection until its peer leaves or the daemon closes.
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
            // The peer has said all it will in this protocol; what it asked for is still answered.
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
            // It is no farewell: the writer knows how long a peer may be slow.
            Duration::MAX
        });
        drop(desk);
        outbox.close();
        match (timeout(farewell, &mut writer).await, switch) {
            (Ok(Ok(Some(sending))), Some(switch)) => {
                let sending = Sending::lines(sending, limits.stalled);
                // Boxed: other connections hold no room for it.
                Box::pin(speak(server, switch.speak, id, lines, sending)).await;
            }
            (Ok(_), _) => {}
            // A writer that is stuck in a full socket is of no use to anybody.
            (Err(_), _) => writer.abort(),
        }
    }
    outbox.close();
    debug!(connection = id.0, "connection closed");
}

/// What bounds the requests of a connection that are unanswered.
///
/// Control has permits of its own, so that it is read while as many queries wait as may.
struct Permits {
    ordinary: Arc<Semaphore>,
    control: Arc<Semaphore>,
    limit: usize,
}

/// How many cancels and decisions of one connection may be unanswered.
const CONTROL: usize = 16;

impl Permits {
    fn new(limit: usize) -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { ordinary: semaphore(limit), control: semaphore(CONTROL), limit }
    }

    /// Waits for a permit; none is given any more when the connection ends.
    async fn acquire(&self, handling: Handling) -> Option<OwnedSemaphorePermit> {
        let permits = match handling {
            Handling::Control => &self.control,
            Handling::Quick | Handling::Slow => &self.ordinary,
        };
        Arc::clone(permits).acquire_owned().await.ok()
    }

    async fn all_answered(&self) {
        let all = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
        let _ = self.ordinary.acquire_many(all(self.limit)).await;
        let _ = self.control.acquire_many(all(CONTROL)).await;
    }
}

/// How a connection comes to its end in this protocol.
enum Over {
    /// Everything is answered; it may go on in another.
    Answered(Option<Switch>),
    /// Nothing can be written any more.
    Unwritable,
}

/// What is left to do for a peer that wants to speak another protocol.
struct Switch {
    speak: Speak,
    answer: Vec<u8>,
}

/// Goes on in another protocol, from where the lines are.
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

/// How long a writer may take for its last words.
pub(super) const FAREWELL: Duration = Duration::from_millis(250);

/// Takes requests until the peer ends, or wants to speak another protocol.
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
                    debug!("a connection said nothing in time");
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
                debug!(%error, "a connection broke");
                return None;
            }
        };
        first = false;
        let request = request(&line, server, limits.line_depth);
        let handling = request.as_ref().map_or(Handling::Quick, |request| Handling::of(&request.ask));
        let permit = permits.acquire(handling).await?;
        match request {
            Ok(decode::Request { request_id, kind_name, ask: Ask::Speak(speak), .. }) => {
                let request = request_id.unwrap_or_else(mint::request);
                let answer = encode::response_ok(&request, &kind_name, None, &encode::speaking());
                return Some(Switch { speak: *speak, answer });
            }
            Ok(request) => desk.take(request, permit).await,
            Err(malformed) => refuse(desk.outbox(), &malformed, permit),
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

fn refuse(outbox: &Outbox, malformed: &Malformed, permit: OwnedSemaphorePermit) {
    let request = malformed.request_id.clone().unwrap_or_else(mint::request);
    let session = malformed.session.as_deref();
    let bytes = encode::response_error(&request, malformed.answered_type(), session, &malformed.error());
    outbox.push(Out::Lines { bytes, permit: Some(permit) });
}
