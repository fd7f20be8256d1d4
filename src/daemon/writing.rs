//! The writer of a connection: answers first, then the events of every session it listens to.
//!
//! Events are looked up before answers are taken, and written after them. As a lane hands an answer over before it shows
//! the events that follow from it, no event can overtake the answer of its cause.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::feed::{Block, Feed};
use super::hub::Hub;
use super::outbox::{Out, Outbox};
use crate::kernel::id::Seq;
use crate::kernel::ring::Tail;

/// Writes until the connection closes or breaks.
pub(super) async fn write(hub: Arc<Hub>, to: impl AsyncWrite + Unpin, outbox: Arc<Outbox>) {
    let limits = hub.world().limits;
    let mut writer =
        Writer { hub, to, stalled: limits.stalled, write_bytes: limits.write_bytes, listening: Vec::new() };
    loop {
        // Asked before the round: what was handed over before the end is still written.
        let closed = outbox.is_closed();
        match writer.round(&outbox).await {
            Ok(Round::Busy) => {}
            Ok(Round::Quiet) if closed => break,
            Ok(Round::Quiet) => outbox.woken().await,
            Err(error) => {
                debug!(connection = outbox.id().0, %error, "a connection could not be written");
                break;
            }
        }
    }
    for listening in &writer.listening {
        listening.feed.remove(outbox.id());
    }
}

struct Writer<W> {
    hub: Arc<Hub>,
    to: W,
    stalled: Duration,
    write_bytes: usize,
    listening: Vec<Listening>,
}

/// A place in the events of one session.
struct Listening {
    feed: Arc<Feed>,
    seen: Seq,
    found: Vec<Bytes>,
}

#[derive(PartialEq, Eq)]
enum Round {
    Busy,
    Quiet,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    async fn round(&mut self, outbox: &Outbox) -> io::Result<Round> {
        for listening in &mut self.listening {
            listening.look(self.write_bytes, &self.hub).await?;
        }
        let waiting = outbox.take();
        let busy = !waiting.is_empty() || self.listening.iter().any(|listening| !listening.found.is_empty());
        let permits = self.write_answers(waiting).await?;
        for index in 0..self.listening.len() {
            for lines in std::mem::take(&mut self.listening[index].found) {
                self.write_all(&lines).await?;
            }
        }
        self.to.flush().await?;
        drop(permits);
        Ok(if busy { Round::Busy } else { Round::Quiet })
    }

    async fn write_answers(&mut self, waiting: VecDeque<Out>) -> io::Result<Vec<OwnedSemaphorePermit>> {
        let mut permits = Vec::new();
        let mut lines = Vec::new();
        for out in waiting {
            match out {
                Out::Lines { bytes, permit } => {
                    lines.extend_from_slice(&bytes);
                    permits.extend(permit);
                }
                Out::Subscribe { feed, after } => {
                    // Whatever was found for an earlier place is found again from the new one.
                    self.listening.retain(|known| known.feed.session() != feed.session());
                    self.listening.push(Listening { feed, seen: after, found: Vec::new() });
                }
                Out::Follow(feed) => {
                    let known = self.listening.iter_mut();
                    for known in known.filter(|known| known.feed.session() == feed.session()) {
                        known.feed = Arc::clone(&feed);
                    }
                }
                Out::Unsubscribe(session) => self.listening.retain(|known| *known.feed.session() != session),
            }
        }
        self.write_all(&lines).await?;
        Ok(permits)
    }

    /// Writes everything; gives up only when the peer takes nothing at all for too long.
    async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = match timeout(self.stalled, self.to.write(bytes)).await {
                Ok(written) => written?,
                Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "the peer makes no progress")),
            };
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            bytes = &bytes[written..];
        }
        Ok(())
    }
}

impl Listening {
    /// Finds the next events, in the ring or, when they have left it, in the journal.
    async fn look(&mut self, limit: usize, hub: &Hub) -> io::Result<()> {
        let newest = self.feed.newest();
        if self.seen >= newest {
            return Ok(());
        }
        let blocks = match self.feed.after(self.seen, limit) {
            Tail::Spans(blocks) => blocks,
            Tail::Behind => self.page(limit, hub).await?,
        };
        for block in blocks {
            // Nothing that the feed had not shown yet: its answer may still be on its way.
            let lines = block.between(self.seen, newest);
            self.seen = self.seen.max(block.last.min(newest));
            if !lines.is_empty() {
                self.found.push(lines);
            }
        }
        Ok(())
    }

    async fn page(&self, limit: usize, hub: &Hub) -> io::Result<Vec<Block>> {
        let session = self.feed.session().clone();
        let page = hub.world().journal.page(session.clone(), self.seen, limit).await.map_err(|error| {
            warn!(%session, %error, "a listener could not be fed from the journal");
            io::Error::other(error)
        })?;
        let blocks = page.blocks.into_iter();
        Ok(blocks.map(|block| Block { first: block.first, last: block.last, lines: block.bytes }).collect())
    }
}
