//! One connection: a reader that turns lines into requests, and a writer that serves answers and events.
//!
//! The reader stops taking lines while too many of its requests are unanswered; the writer reads events at its own
//! pace from the feeds, or from the journal when it has fallen behind. Neither ever holds up a session.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tracing::{debug, trace};

use super::mint;
use super::outbox::{Out, Outbox};
use super::requests::Desk;
use super::server::Server;
use super::writing;
use crate::adapter::push::decode::{self, Malformed, Problem};
use crate::adapter::push::encode;
use crate::kernel::id::ParticipantId;
use crate::transport::compact::{self, compact};
use crate::transport::line::{Line, Lines};
use crate::transport::local;

/// Serves a connection until its peer leaves or the daemon closes.
pub(super) async fn serve(server: Arc<Server>, stream: local::Stream, id: ParticipantId) {
    let (receiving, sending) = stream.into_split();
    let outbox = Outbox::new(id);
    let limits = server.hub().world().limits;
    let permits = Arc::new(Semaphore::new(limits.requests));
    let desk = Desk::new(Arc::clone(&server), Arc::clone(&outbox));
    let mut writer = tokio::spawn(writing::write(Arc::clone(server.hub()), sending, Arc::clone(&outbox)));
    tokio::select! {
        () = read(&server, receiving, &desk, &permits) => {
            // The peer has said all it will; what it asked for is still answered.
            let all_answered = permits.acquire_many(u32::try_from(limits.requests).unwrap_or(u32::MAX));
            tokio::select! {
                _ = all_answered => {}
                _ = &mut writer => {}
            }
        }
        _ = &mut writer => {}
        () = server.hub().world().parting.wait() => {}
    }
    outbox.close();
    // A writer that is stuck in a full socket is of no use to anybody; one that has ended must not be asked again.
    if !writer.is_finished() && timeout(FAREWELL, &mut writer).await.is_err() {
        writer.abort();
    }
    debug!(connection = id.0, "connection closed");
}

/// How long a writer may take for its last words.
pub(super) const FAREWELL: Duration = Duration::from_millis(250);

async fn read(server: &Server, from: impl AsyncRead + Unpin, desk: &Desk, permits: &Arc<Semaphore>) {
    let limits = server.hub().world().limits;
    let mut lines = Lines::new(from, limits.line_bytes);
    let mut first = true;
    loop {
        let next = if first {
            match timeout(limits.first_line, lines.next()).await {
                Ok(next) => next,
                Err(_) => return debug!("a connection said nothing in time"),
            }
        } else {
            lines.next().await
        };
        let line = match next {
            Ok(Some(line)) => line,
            Ok(None) => return,
            Err(error) => return debug!(%error, "a connection broke"),
        };
        first = false;
        let Ok(permit) = Arc::clone(permits).acquire_owned().await else { return };
        match request(&line, server, limits.line_depth) {
            // Boxed: a connection that is silent holds no room for what a request needs.
            Ok(request) => Box::pin(desk.handle(request, permit)).await,
            Err(malformed) => refuse(desk.outbox(), &malformed, permit),
        }
    }
}

fn request(line: &Line, server: &Server, depth: usize) -> Result<decode::Request, Malformed> {
    let bytes = match line {
        Line::Whole(bytes) => bytes,
        Line::TooLong { bytes } => {
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
