//! The writer of a connection: responses first, then the events of every subscribed session.
//!
//! The writer looks up events before it takes responses, and writes them after the responses. A lane queues the
//! response to a command before it publishes the resulting events, so no event overtakes the response of its cause.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::AsyncWrite;
use tracing::{debug, warn};

use super::feed::{self, Feed};
use super::hub::Hub;
use super::outbox::{Out, Outbox, RequestPermit};
use crate::journal::{Lines, ReadError};
use crate::kernel::id::Seq;
use crate::kernel::ring::Tail;
use crate::transport::sink::Sink;

/// Writes until the connection closes and returns the stream; `None` if a write failed.
pub(super) async fn write<W: AsyncWrite + Unpin>(hub: Arc<Hub>, to: W, outbox: Arc<Outbox>) -> Option<W> {
    let limits = hub.world().limits;
    let to = Sink::new(to, limits.stalled);
    let mut writer = Writer { hub, to, write_bytes: limits.write_bytes, listening: Vec::new() };
    let whole = loop {
        // Read before the round, so that items queued before the close are still written.
        let closed = outbox.is_closed();
        match writer.round(&outbox).await {
            Ok(Round::Busy) => {}
            Ok(Round::Quiet) if closed => break true,
            Ok(Round::Quiet) => outbox.woken().await,
            Err(error) => {
                debug!(connection = outbox.id().0, %error, "write to connection failed");
                break false;
            }
        }
    };
    for listening in &writer.listening {
        listening.feed.remove(outbox.id());
    }
    whole.then(|| writer.to.into_inner())
}

struct Writer<W> {
    hub: Arc<Hub>,
    to: Sink<W>,
    write_bytes: usize,
    listening: Vec<Listening>,
}

/// The read position of the connection in the events of one session.
struct Listening {
    feed: Arc<Feed>,
    seen: Seq,
    found: Found,
    /// The page that was read from the journal while the previous one was written.
    next: Option<Lines>,
    /// A written page whose buffer can be reused.
    spent: Option<Lines>,
    /// A line for this connection alone, and the last event before it.
    summary: Option<(Seq, Bytes)>,
}

/// What to write next.
#[derive(Default)]
enum Found {
    #[default]
    Nothing,
    /// Blocks from the ring.
    Shown(Vec<Bytes>),
    /// A range of a page from the journal.
    Page(Lines, Range<usize>),
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
        let found = |listening: &Listening| !matches!(listening.found, Found::Nothing);
        let busy = !waiting.is_empty() || self.listening.iter().any(found);
        let permits = if waiting.is_empty() { Vec::new() } else { self.write_answers(waiting).await? };
        for listening in &mut self.listening {
            match std::mem::take(&mut listening.found) {
                Found::Nothing => {}
                Found::Shown(blocks) => self.to.write_all(&blocks).await?,
                Found::Page(page, lines) => {
                    let lines = [&page.bytes[lines]];
                    let write = self.to.write_all(&lines);
                    let read = listening.read_ahead(&page, self.write_bytes, &self.hub);
                    // The read is polled first: a peer that accepts everything at once would starve it.
                    let (read, written) = tokio::join!(read, write);
                    written?;
                    listening.next = read?;
                    listening.spent = Some(page);
                }
            }
        }
        self.to.flush().await?;
        drop(permits);
        Ok(if busy { Round::Busy } else { Round::Quiet })
    }

    async fn write_answers(&mut self, waiting: VecDeque<Out>) -> io::Result<Vec<RequestPermit>> {
        let mut permits = Vec::new();
        let mut lines = Vec::new();
        for out in waiting {
            match out {
                Out::Lines { bytes, permit } => {
                    lines.extend_from_slice(&bytes);
                    permits.extend(permit);
                }
                Out::Subscribe { feed, after } => {
                    // Output for the earlier position is looked up again from the new one.
                    self.listening.retain(|known| known.feed.session() != feed.session());
                    self.listening.push(Listening::new(feed, after));
                }
                Out::After { session, after, line } => {
                    let known = self.listening.iter_mut().find(|known| *known.feed.session() == session);
                    if let Some(known) = known {
                        known.summary = Some((after, line));
                    }
                }
                Out::Follow(feed) => {
                    let known = self.listening.iter_mut();
                    for known in known.filter(|known| known.feed.session() == feed.session()) {
                        known.feed = Arc::clone(&feed);
                    }
                }
                Out::Unsubscribe(session) => self.listening.retain(|known| *known.feed.session() != session),
                Out::Last { session, line } => {
                    let gone = self.listening.extract_if(.., |known| *known.feed.session() == session);
                    for gone in gone {
                        gone.finish(&mut lines);
                        lines.extend_from_slice(&line);
                    }
                }
            }
        }
        self.to.write_all(&[lines]).await?;
        Ok(permits)
    }
}

impl Listening {
    const fn new(feed: Arc<Feed>, seen: Seq) -> Self {
        Self { feed, seen, found: Found::Nothing, next: None, spent: None, summary: None }
    }

    /// Finds the next events in the ring or, if they have left it, in the journal.
    async fn look(&mut self, limit: usize, hub: &Hub) -> io::Result<()> {
        if let Some((_, line)) = self.summary.take_if(|(after, _)| self.seen >= *after) {
            self.found = Found::Shown(vec![line]);
            return Ok(());
        }
        let newest = self.feed.newest();
        let newest = self.summary.as_ref().map_or(newest, |(after, _)| newest.min(*after));
        if self.seen >= newest {
            return Ok(());
        }
        let page = match (self.next.take(), self.feed.after(self.seen, limit)) {
            (Some(page), _) => page,
            (None, Tail::Behind) => self.page(self.seen, limit, hub).await?,
            (None, Tail::Spans(blocks)) => {
                self.spent = None;
                let mut shown = Vec::with_capacity(blocks.len());
                for block in blocks {
                    shown.push(block.between(self.seen, newest));
                    self.seen = self.seen.max(block.last.min(newest));
                }
                self.found = Found::Shown(shown);
                return Ok(());
            }
        };
        // Events that the feed has not published yet are excluded: their response may not be queued yet.
        let lines = feed::between(&page.bytes, (page.first, page.last), self.seen, newest);
        self.seen = self.seen.max(page.last.min(newest));
        if !lines.is_empty() {
            self.found = Found::Page(page, lines);
        }
        Ok(())
    }

    /// Appends the output that was found and the rest of the ring. Older events are deleted with their session.
    fn finish(mut self, lines: &mut Vec<u8>) {
        match std::mem::take(&mut self.found) {
            Found::Nothing => {}
            Found::Shown(blocks) => blocks.iter().for_each(|block| lines.extend_from_slice(block)),
            Found::Page(page, range) => lines.extend_from_slice(&page.bytes[range]),
        }
        if let Tail::Spans(blocks) = self.feed.after(self.seen, usize::MAX) {
            blocks.iter().for_each(|block| lines.extend_from_slice(&block.between(self.seen, block.last)));
        }
    }

    /// Reads the page after `page` while `page` is written, unless the ring has it or memory is short.
    async fn read_ahead(&mut self, page: &Lines, limit: usize, hub: &Hub) -> io::Result<Option<Lines>> {
        if !page.more || !page.is_large() || self.feed.holds_after(self.seen) {
            return Ok(None);
        }
        self.page(self.seen, limit, hub).await.map(Some)
    }

    async fn page(&mut self, after: Seq, limit: usize, hub: &Hub) -> io::Result<Lines> {
        let session = self.feed.session().clone();
        let spent = self.spent.take();
        match hub.world().journal.lines(session.clone(), after, limit, spent).await {
            // The session was deleted; the subscriber is about to be told.
            Err(ReadError::NoSuchSession { .. }) => Ok(Lines::none_after(after)),
            outcome => outcome.map_err(|error| {
                warn!(%session, %error, "cannot read events for a subscriber from the journal");
                io::Error::other(error)
            }),
        }
    }
}
