//! Messages in both directions, whatever carries them: lines of a stream, or the frames of a WebSocket.
//!
//! It is the one seam between transports and the protocols that run over either. One task reads while another writes. A
//! message that is too long costs that message, is not gathered, and is reported once. What a WebSocket needs besides
//! (pings, their answers, the closing handshake) is done below it.

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

/// What arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A message, never empty on a stream of lines; on a WebSocket it is UTF-8 and may be empty.
    Text(Bytes),
    /// A message over the limit, of which nothing but its two ends was kept.
    TooLong {
        /// How long it is.
        bytes: u64,
        /// Its two ends.
        excerpt: Excerpt,
    },
    /// A message that is not text, of which nothing was kept.
    Binary,
}

/// Why we leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parting {
    /// Everything was said.
    Done,
    /// The daemon stops.
    GoingAway,
    /// The peer broke a rule.
    Policy,
}

/// Takes a WebSocket over after its handshake, as its server; `early` is what was read beyond that.
pub fn web(stream: TcpStream, early: Bytes, limits: SocketLimits) -> (Receiving, Sending) {
    let (receiver, sender) = web::halves(stream, early, limits);
    (Receiving(Source::Web(receiver)), Sending(Drain::Web(sender)))
}

/// The half of a connection that messages come from.
pub struct Receiving(Source);

enum Source {
    Lines(Lines<Incoming>),
    Web(web::Receiver),
}

/// Bytes from somewhere.
type Incoming = Box<dyn AsyncRead + Send + Unpin>;

impl Receiving {
    /// Takes messages from lines of at most `limit` bytes.
    pub fn lines(from: impl AsyncRead + Send + Unpin + 'static, limit: usize) -> Self {
        Self(Source::Lines(Lines::new(Box::new(from), limit)))
    }

    /// Takes messages from lines that somebody began to read; what has arrived is not lost.
    pub fn resumed<R: AsyncRead + Send + Unpin + 'static>(lines: Lines<R>, limit: usize) -> Self {
        Self(Source::Lines(lines.carried(limit, |from| Box::new(from) as Incoming)))
    }

    /// Returns the next message, or `None` when the peer has ended.
    ///
    /// May be dropped half-way: nothing that was read is lost. After an error nothing more comes; a peer that broke the rules
    /// of a WebSocket has been told so.
    pub async fn next(&mut self) -> io::Result<Option<Frame>> {
        match &mut self.0 {
            Source::Lines(lines) => Ok(lines.next().await?.map(Frame::from)),
            Source::Web(receiver) => receiver.next().await,
        }
    }

    /// Reads what still comes and throws it away, until the peer ends or `patience` does.
    ///
    /// A connection that is closed while something of the peer's is unread is torn down, and our last words may be lost with it.
    pub async fn linger(&mut self, patience: Duration) {
        let ended = async {
            match &mut self.0 {
                Source::Lines(lines) => while let Ok(Some(_)) = lines.next().await {},
                Source::Web(receiver) => receiver.drain().await,
            }
        };
        // Who takes longer has had its time.
        let _ = timeout(patience, ended).await;
    }
}

/// The half of a connection that messages go to.
pub struct Sending(Drain);

enum Drain {
    Lines(Sink<Outgoing>),
    Web(web::Sender),
}

/// Bytes to somewhere.
type Outgoing = Box<dyn AsyncWrite + Send + Unpin>;

impl Sending {
    /// Sends messages as lines; a peer that takes nothing for as long as `stalled` is given up.
    pub fn lines(to: impl AsyncWrite + Send + Unpin + 'static, stalled: Duration) -> Self {
        Self(Drain::Lines(Sink::new(Box::new(to), stalled)))
    }

    /// Sends messages, each without a line end, in as few writes as possible, and hands them to the system before it returns.
    ///
    /// If it is dropped half-way, the connection is of no more use, and every later call fails.
    pub async fn send(&mut self, messages: &[Bytes]) -> io::Result<()> {
        match &mut self.0 {
            Drain::Lines(sink) => {
                let ended = messages.iter().flat_map(|message| [message.as_ref(), b"\n"]);
                sink.write_all(&ended.collect::<Vec<_>>()).await?;
                sink.flush().await
            }
            Drain::Web(sender) => sender.send(messages).await,
        }
    }

    /// Says goodbye; nothing can be sent after it. The other half should [`linger`](Receiving::linger).
    pub async fn close(&mut self, why: Parting) -> io::Result<()> {
        match &mut self.0 {
            Drain::Lines(sink) => sink.shutdown().await,
            Drain::Web(sender) => sender.close(why).await,
        }
    }
}

impl fmt::Debug for Receiving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Source::Lines(_) => "Receiving(lines)",
            Source::Web(_) => "Receiving(web)",
        })
    }
}

impl fmt::Debug for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Drain::Lines(_) => "Sending(lines)",
            Drain::Web(_) => "Sending(web)",
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
