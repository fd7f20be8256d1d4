//! Messages in both directions, independent of the transport: lines of a stream, or WebSocket frames.
//!
//! This is the one interface between transports and protocols. One task reads while another writes. A message that is
//! too long is discarded, never buffered, and reported once. WebSocket control frames (pings, pongs and the closing
//! handshake) are handled below it.

use std::fmt;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::excerpt::Excerpt;
use super::line::{Line, Lines};
use super::sink::Sink;
use super::web::{self, SocketLimits};

/// A received message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A message. It is never empty on a stream of lines; on a WebSocket it is UTF-8 and may be empty.
    Text(Bytes),
    /// A message over the limit, of which only the head and the tail were kept.
    TooLong {
        /// Its length.
        bytes: u64,
        /// Its head and tail.
        excerpt: Excerpt,
    },
    /// A binary message, which was discarded.
    Binary,
}

/// Why this side closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// The conversation is complete.
    Normal,
    /// The daemon shuts down.
    GoingAway,
    /// The peer violated a rule.
    PolicyViolation,
}

/// Wraps a WebSocket after its handshake, on the server side; `early` holds the bytes read beyond the handshake.
pub fn web_socket(stream: TcpStream, early: Bytes, limits: SocketLimits) -> (FrameReader, FrameWriter) {
    let (receiver, sender) = web::split(stream, early, limits);
    (FrameReader(Source::Web(receiver)), FrameWriter(Destination::Web(sender)))
}

/// The reading half of a connection.
pub struct FrameReader(Source);

enum Source {
    Lines(Lines<Incoming>),
    Web(web::Receiver),
}

/// A byte source.
type Incoming = Box<dyn AsyncRead + Send + Unpin>;

impl FrameReader {
    /// Reads messages from lines of at most `limit` bytes.
    pub fn lines(from: impl AsyncRead + Send + Unpin + 'static, limit: usize) -> Self {
        Self(Source::Lines(Lines::new(Box::new(from), limit)))
    }

    /// Continues with another limit of the length of lines; buffered bytes are kept. A WebSocket keeps its limit.
    pub fn with_line_limit(self, limit: usize) -> Self {
        Self(match self.0 {
            Source::Lines(lines) => Source::Lines(lines.with_limit(limit)),
            web @ Source::Web(_) => web,
        })
    }

    /// Returns the next message, or `None` when the peer has closed.
    ///
    /// Cancel safe: no received byte is lost. After an error nothing more comes; a peer that violated the WebSocket
    /// protocol has been sent a close frame.
    pub async fn next(&mut self) -> io::Result<Option<Frame>> {
        match &mut self.0 {
            Source::Lines(lines) => Ok(lines.next().await?.map(Frame::from)),
            Source::Web(receiver) => receiver.next().await,
        }
    }

    /// Reads and discards what still arrives, until the peer closes or `patience` is over.
    ///
    /// Closing a TCP connection with unread data resets it, and our last messages may be lost.
    pub async fn drain(&mut self, patience: Duration) {
        let ended = async {
            match &mut self.0 {
                Source::Lines(lines) => while let Ok(Some(_)) = lines.next().await {},
                Source::Web(receiver) => receiver.drain().await,
            }
        };
        // A slower peer has used up its time.
        let _ = timeout(patience, ended).await;
    }
}

/// The writing half of a connection.
pub struct FrameWriter(Destination);

enum Destination {
    Lines(Sink<Outgoing>),
    Web(web::Sender),
}

/// A byte sink.
type Outgoing = Box<dyn AsyncWrite + Send + Unpin>;

impl FrameWriter {
    /// Writes messages as lines; a peer that accepts nothing for `stalled` is abandoned.
    pub fn lines(to: impl AsyncWrite + Send + Unpin + 'static, stalled: Duration) -> Self {
        Self(Destination::Lines(Sink::new(Box::new(to), stalled)))
    }

    /// Sends messages, each without a line end, in as few writes as possible, and flushes them.
    ///
    /// Not cancel safe: if it is dropped before it ends, the connection is unusable and every later call fails.
    pub async fn send(&mut self, messages: &[Bytes]) -> io::Result<()> {
        match &mut self.0 {
            Destination::Lines(sink) => {
                let ended = messages.iter().flat_map(|message| [message.as_ref(), b"\n"]);
                sink.write_all(&ended.collect::<Vec<_>>()).await?;
                sink.flush().await
            }
            Destination::Web(sender) => sender.send(messages).await,
        }
    }

    /// Writes pieces that each consist of messages with a line feed behind every one, and does not flush them.
    ///
    /// Not cancel safe, as [`send`](Self::send).
    pub async fn write_lines(&mut self, pieces: &[impl AsRef<[u8]>]) -> io::Result<()> {
        match &mut self.0 {
            Destination::Lines(sink) => sink.write_all(pieces).await,
            Destination::Web(sender) => {
                let lines = pieces.iter().flat_map(|piece| piece.as_ref().split_inclusive(|byte| *byte == b'\n'));
                let messages = lines.map(|line| Bytes::copy_from_slice(line.strip_suffix(b"\n").unwrap_or(line)));
                sender.send(&messages.collect::<Vec<_>>()).await
            }
        }
    }

    /// Sends what was written.
    pub async fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Destination::Lines(sink) => sink.flush().await,
            // Its messages are flushed as they are sent.
            Destination::Web(_) => Ok(()),
        }
    }

    /// Closes the connection; nothing can be sent after it. The other half should [`drain`](FrameReader::drain).
    pub async fn close(&mut self, why: CloseReason) -> io::Result<()> {
        match &mut self.0 {
            Destination::Lines(sink) => sink.shutdown().await,
            Destination::Web(sender) => sender.close(why).await,
        }
    }
}

impl fmt::Debug for FrameReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Source::Lines(_) => "FrameReader(lines)",
            Source::Web(_) => "FrameReader(web)",
        })
    }
}

impl fmt::Debug for FrameWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Destination::Lines(_) => "FrameWriter(lines)",
            Destination::Web(_) => "FrameWriter(web)",
        })
    }
}

impl From<Line> for Frame {
    fn from(line: Line) -> Self {
        match line {
            Line::Whole(bytes) => Self::Text(bytes),
            Line::TooLong { bytes, excerpt } => Self::TooLong { bytes, excerpt },
        }
    }
}
