//! The writer of a connection: responses first, then the events of every subscribed session.
//!
//! The writer looks up events before it takes responses, and writes them after the responses. A lane queues the
//! response to a command before it publishes the resulting events, so no event overtakes the response of its cause.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tracing::{debug, warn};

use super::feed::{self, Block, Feed};
use super::hub::Hub;
use super::outbox::{Outbox, OutboxItem, RequestPermit};
use crate::journal::{LinePage, ReadError};
use crate::kernel::command::PrivateEvent;
use crate::kernel::event::Event;
use crate::kernel::id::{ConnectionId, Seq, SessionId};
use crate::kernel::ring::Tail;
use crate::protocol::{EventEncoding, Protocol};
use crate::record;
use crate::transport::frames::FrameWriter;

/// Writes until the connection closes and returns the stream; `None` if a write failed.
pub(super) async fn run(
    hub: Arc<Hub>,
    protocol: Arc<dyn Protocol>,
    to: FrameWriter,
    outbox: Arc<Outbox>,
) -> Option<FrameWriter> {
    let write_bytes = hub.services().limits.write_bytes;
    let connection = outbox.id();
    let mut writer = ConnectionWriter { connection, hub, protocol, to, write_bytes, subscriptions: Vec::new() };
    let whole = loop {
        // Read before the round, so that items queued before the close are still written.
        let closed = outbox.is_closed();
        match writer.write_round(&outbox).await {
            Ok(RoundResult::Busy) => {}
            Ok(RoundResult::Idle) if closed => break true,
            Ok(RoundResult::Idle) => outbox.wait().await,
            Err(error) => {
                debug!(connection = outbox.id().0, %error, "write to connection failed");
                break false;
            }
        }
    };
    for subscription in &writer.subscriptions {
        subscription.feed.unsubscribe(outbox.id());
    }
    whole.then_some(writer.to)
}

struct ConnectionWriter {
    connection: ConnectionId,
    hub: Arc<Hub>,
    protocol: Arc<dyn Protocol>,
    to: FrameWriter,
    write_bytes: usize,
    subscriptions: Vec<Subscription>,
}

/// The read position of the connection in the events of one session.
struct Subscription {
    connection: ConnectionId,
    feed: Arc<Feed>,
    seen: Seq,
    next_output: NextOutput,
    /// The page that was read from the journal while the previous one was written.
    prefetched: Option<LinePage>,
    /// A written page whose buffer can be reused.
    reusable_page: Option<LinePage>,
    /// A line for this connection alone, and the last event before it.
    summary: Option<(Seq, Bytes)>,
}

/// What to write next.
#[derive(Default)]
enum NextOutput {
    #[default]
    Nothing,
    /// Blocks from the ring.
    Blocks(Vec<Bytes>),
    /// A range of a page from the journal.
    Page(LinePage, Range<usize>),
}

#[derive(PartialEq, Eq)]
enum RoundResult {
    Busy,
    Idle,
}

impl ConnectionWriter {
    async fn write_round(&mut self, outbox: &Outbox) -> io::Result<RoundResult> {
        for subscription in &mut self.subscriptions {
            subscription.find_next(self.write_bytes, &self.hub, &*self.protocol).await?;
        }
        let waiting = outbox.take();
        let found = |subscription: &Subscription| !matches!(subscription.next_output, NextOutput::Nothing);
        let busy = !waiting.is_empty() || self.subscriptions.iter().any(found);
        let permits = if waiting.is_empty() { Vec::new() } else { self.write_items(waiting).await? };
        for subscription in &mut self.subscriptions {
            match std::mem::take(&mut subscription.next_output) {
                NextOutput::Nothing => {}
                NextOutput::Blocks(blocks) => self.to.write_lines(&blocks).await?,
                NextOutput::Page(page, lines) => {
                    let lines = [&page.bytes[lines]];
                    let write = self.to.write_lines(&lines);
                    let read = subscription.read_ahead(&page, self.write_bytes, &self.hub);
                    // The read is polled first: a peer that accepts everything at once would starve it.
                    let (read, written) = tokio::join!(read, write);
                    written?;
                    subscription.prefetched = read?;
                    subscription.reusable_page = Some(page);
                }
            }
        }
        self.to.flush().await?;
        drop(permits);
        Ok(if busy { RoundResult::Busy } else { RoundResult::Idle })
    }

    async fn write_items(&mut self, waiting: VecDeque<OutboxItem>) -> io::Result<Vec<RequestPermit>> {
        let mut permits = Vec::new();
        let (mut lines, mut shared) = (Vec::new(), Vec::new());
        for out in waiting {
            // What is queued is written in its order.
            if let OutboxItem::Line(line) = out {
                if !lines.is_empty() {
                    self.to.write_lines(&[std::mem::take(&mut lines)]).await?;
                }
                shared.push(line);
                continue;
            }
            if !shared.is_empty() {
                self.to.send(&std::mem::take(&mut shared)).await?;
            }
            match out {
                OutboxItem::Frames { bytes, permit } => {
                    lines.extend_from_slice(&bytes);
                    permits.extend(permit);
                }
                OutboxItem::Line(_) => {}
                OutboxItem::Subscribe { feed, after } => {
                    // Output for the earlier position is looked up again from the new one.
                    self.subscriptions.retain(|known| known.feed.session() != feed.session());
                    self.subscriptions.push(Subscription::new(self.connection, feed, after));
                }
                OutboxItem::Private { session, event } => self.add_private(&session, &event, &mut lines),
                OutboxItem::SwitchFeed(feed) => {
                    let known = self.subscriptions.iter_mut();
                    for known in known.filter(|known| known.feed.session() == feed.session()) {
                        known.feed = Arc::clone(&feed);
                    }
                }
                OutboxItem::Unsubscribe(session) => self.subscriptions.retain(|known| *known.feed.session() != session),
            }
        }
        if shared.is_empty() {
            self.to.write_lines(&[lines]).await?
        } else {
            self.to.send(&shared).await?
        }
        Ok(permits)
    }

    /// Writes an event for this connection alone, or keeps it until the events before it are written.
    fn add_private(&mut self, session: &SessionId, event: &PrivateEvent, lines: &mut Vec<u8>) {
        let mut frames = Vec::new();
        self.protocol.private_event(session, event, &mut frames);
        match event {
            PrivateEvent::Gap { .. } | PrivateEvent::Snapshot { .. } | PrivateEvent::Posted { .. } => {
                lines.extend_from_slice(&frames);
            }
            PrivateEvent::Summary { after, .. } => {
                if let Some(known) = self.subscriptions.iter_mut().find(|known| known.feed.session() == session) {
                    known.summary = Some((*after, frames.into()));
                }
            }
            PrivateEvent::Deleted { .. } => {
                for gone in self.subscriptions.extract_if(.., |known| known.feed.session() == session) {
                    gone.drain_into(&*self.protocol, lines);
                    lines.extend_from_slice(&frames);
                }
            }
        }
    }
}

impl Subscription {
    const fn new(connection: ConnectionId, feed: Arc<Feed>, seen: Seq) -> Self {
        Self {
            connection,
            feed,
            seen,
            next_output: NextOutput::Nothing,
            prefetched: None,
            reusable_page: None,
            summary: None,
        }
    }

    /// Finds the next events in the ring or, if they have left it, in the journal.
    async fn find_next(&mut self, limit: usize, hub: &Hub, protocol: &dyn Protocol) -> io::Result<()> {
        if let Some((_, line)) = self.summary.take_if(|(after, _)| self.seen >= *after) {
            self.next_output = NextOutput::Blocks(vec![line]);
            return Ok(());
        }
        let newest = self.feed.newest();
        let newest = self.summary.as_ref().map_or(newest, |(after, _)| newest.min(*after));
        if self.seen >= newest {
            return Ok(());
        }
        let page = match (self.prefetched.take(), self.feed.after(self.seen, limit)) {
            (Some(page), _) => page,
            (None, Tail::Evicted) => self.read_page(self.seen, limit, hub).await?,
            (None, Tail::Spans(blocks)) => {
                self.reusable_page = None;
                let mut shown = Vec::with_capacity(blocks.len());
                for block in blocks {
                    shown.push(self.encode_block(&block, newest, protocol));
                    self.seen = self.seen.max(block.last.min(newest));
                }
                self.next_output = NextOutput::Blocks(shown);
                return Ok(());
            }
        };
        // Events that the feed has not published yet are excluded: their response may not be queued yet.
        let lines = feed::range_between(&page.bytes, (page.first, page.last), self.seen, newest);
        let last = page.last.min(newest);
        if !lines.is_empty() && self.feed.is_restricted() && record::names_audience(&page.bytes[lines.clone()]) {
            let visible = self.encode_visible(&page.bytes[lines], protocol);
            self.next_output = NextOutput::Blocks(vec![visible]);
        } else if !lines.is_empty() {
            self.next_output = match protocol.event_encoding() {
                EventEncoding::Record => NextOutput::Page(page, lines),
                EventEncoding::Shared(_) => {
                    let events = feed::decode_lines(&page.bytes[lines]);
                    NextOutput::Blocks(vec![encode_events(protocol, self.feed.session(), &events).into()])
                }
                EventEncoding::Projected => NextOutput::Nothing,
            };
        }
        self.seen = self.seen.max(last);
        Ok(())
    }

    /// Returns the events of a block after the position of this subscription and up to `until`, encoded.
    fn encode_block(&self, block: &Block, until: Seq, protocol: &dyn Protocol) -> Bytes {
        if block.is_restricted() {
            return self.encode_visible(&block.lines_between(self.seen, until), protocol);
        }
        match protocol.event_encoding() {
            EventEncoding::Record => block.lines_between(self.seen, until),
            EventEncoding::Shared(key) if self.seen < block.first && until >= block.last => {
                block.encoding(key, |events| encode_events(protocol, self.feed.session(), events))
            }
            EventEncoding::Shared(_) => {
                let wanted = block.events().iter().filter(|event| event.seq > self.seen && event.seq <= until);
                encode_events(protocol, self.feed.session(), wanted).into()
            }
            EventEncoding::Projected => Bytes::new(),
        }
    }

    /// Returns the events of some lines that the connection may see, encoded.
    fn encode_visible(&self, lines: &[u8], protocol: &dyn Protocol) -> Bytes {
        let visible = feed::visible_lines(lines, &self.feed.viewer(self.connection));
        match protocol.event_encoding() {
            EventEncoding::Record => visible.into(),
            EventEncoding::Shared(_) => {
                encode_events(protocol, self.feed.session(), &feed::decode_lines(&visible)).into()
            }
            EventEncoding::Projected => Bytes::new(),
        }
    }

    /// Appends the output that was found and the rest of the ring. Older events are deleted with their session.
    fn drain_into(mut self, protocol: &dyn Protocol, lines: &mut Vec<u8>) {
        match std::mem::take(&mut self.next_output) {
            NextOutput::Nothing => {}
            NextOutput::Blocks(blocks) => blocks.iter().for_each(|block| lines.extend_from_slice(block)),
            NextOutput::Page(page, range) => lines.extend_from_slice(&page.bytes[range]),
        }
        if let Tail::Spans(blocks) = self.feed.after(self.seen, usize::MAX) {
            blocks.iter().for_each(|block| lines.extend_from_slice(&self.encode_block(block, block.last, protocol)));
        }
    }

    /// Reads the page after `page` while `page` is written, unless the ring has it or memory is short.
    async fn read_ahead(&mut self, page: &LinePage, limit: usize, hub: &Hub) -> io::Result<Option<LinePage>> {
        if !page.more || !page.is_large() || self.feed.contains_after(self.seen) {
            return Ok(None);
        }
        self.read_page(self.seen, limit, hub).await.map(Some)
    }

    async fn read_page(&mut self, after: Seq, limit: usize, hub: &Hub) -> io::Result<LinePage> {
        let session = self.feed.session().clone();
        let spent = self.reusable_page.take();
        match hub.services().journal.lines(session.clone(), after, limit, spent).await {
            // The session was deleted; the subscriber is about to be notified.
            Err(ReadError::NoSuchSession { .. }) => Ok(LinePage::empty_after(after)),
            outcome => outcome.map_err(|error| {
                warn!(%session, %error, "cannot read events for a subscriber from the journal");
                io::Error::other(error)
            }),
        }
    }
}

fn encode_events<'a>(
    protocol: &dyn Protocol,
    session: &SessionId,
    events: impl IntoIterator<Item = &'a Event>,
) -> Vec<u8> {
    let mut frames = Vec::new();
    for event in events {
        protocol.event(session, event, &mut frames);
    }
    frames
}
