//! The two halves of a WebSocket after its handshake.
//!
//! One half sends data and the other receives it. Control frames (pongs and the close frame) are queued in one place
//! and written by whichever half can: the receiver if nobody is writing, else the sender after its current message.
//! Of several pings only the latest is answered.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::super::frames::{Frame, Parting};
use super::super::sink::Sink;
use super::codec::{self, Codec, Fault, Heard, OutHead, code};

/// The limits of a WebSocket.
#[derive(Debug, Clone, Copy)]
pub struct SocketLimits {
    /// The maximum length of a message, in bytes.
    pub message: usize,
    /// How long the peer may accept no data.
    pub stalled: Duration,
    /// Whether the first KiB of a message over the limit contains the request id, so that the message can be refused
    /// before its end.
    pub is_named: fn(&[u8]) -> bool,
}

/// Splits a connection after its handshake; `early` holds the bytes read beyond the handshake.
pub(in super::super) fn halves(stream: TcpStream, early: Bytes, limits: SocketLimits) -> (Receiver, Sender) {
    let (from, to) = stream.into_split();
    let sink = Sink::new(to, limits.stalled);
    let out = Out { sink, stalled: limits.stalled, left: Bytes::new(), torn: false };
    let shared = Arc::new(Shared { out: tokio::sync::Mutex::new(out), wish: Mutex::default() });
    let codec = Codec::new(limits.message as u64, limits.is_named);
    let buffer = BytesMut::from(early);
    let receiver = Receiver { from, buffer, codec, shared: Arc::clone(&shared), over: false };
    (receiver, Sender(shared))
}

/// The state that both halves share.
#[derive(Debug)]
struct Shared {
    out: tokio::sync::Mutex<Out>,
    wish: Mutex<Wish>,
}

/// The writing side of the connection.
#[derive(Debug)]
struct Out {
    sink: Sink<OwnedWriteHalf>,
    /// How long the peer may accept no data.
    stalled: Duration,
    /// The unsent rest of a control frame.
    left: Bytes,
    /// Whether a message was sent only in part, so that nothing can follow it.
    torn: bool,
}

/// The control frames to send.
#[derive(Debug, Default)]
struct Wish {
    pong: Option<Bytes>,
    close: Option<Bytes>,
    /// Whether a close frame was queued; nothing may be sent after it.
    closing: bool,
}

impl Wish {
    /// Takes the next control frame; the close frame is the last.
    fn take(&mut self) -> Option<Bytes> {
        self.pong.take().or_else(|| self.close.take())
    }
}

impl Shared {
    fn wish(&self) -> MutexGuard<'_, Wish> {
        self.wish.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_wishing(&self) -> bool {
        let wish = self.wish();
        wish.pong.is_some() || wish.close.is_some()
    }

    /// Queues the answer to a ping.
    fn pong(&self, payload: &[u8]) {
        let mut wish = self.wish();
        if !wish.closing {
            wish.pong = Some(codec::pong(payload));
        }
    }

    /// Queues a close frame, once.
    fn close(&self, code: Option<u16>, words: &str) {
        let mut wish = self.wish();
        if !wish.closing {
            wish.close = Some(codec::close(code, words));
            wish.closing = true;
        }
    }

    /// Writes queued control frames as far as the peer accepts them. If the other half is writing, that half writes
    /// them.
    ///
    /// It is ready when nothing is left to do here; an error surfaces in the next read or write.
    fn poll_wishes(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Ok(mut out) = self.out.try_lock() else { return Poll::Ready(()) };
        out.poll_wishes(cx, &self.wish).map(drop)
    }

    /// Writes queued control frames, and `messages` after them.
    async fn write(&self, messages: &[&[u8]]) -> io::Result<()> {
        let mut out = self.out.lock().await;
        out.wishes(&self.wish).await?;
        if !messages.is_empty() {
            if self.wish().closing {
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the connection is being closed"));
            }
            out.torn = true;
            out.sink.write_all(messages).await?;
            out.torn = false;
        }
        loop {
            out.wishes(&self.wish).await?;
            drop(out);
            // A control frame queued while the lock was held may have found it taken.
            match self.out.try_lock() {
                Ok(again) if self.is_wishing() => out = again,
                Ok(_) | Err(_) => return Ok(()),
            }
        }
    }
}

impl Out {
    async fn wishes(&mut self, wish: &Mutex<Wish>) -> io::Result<()> {
        match timeout(self.stalled, poll_fn(|cx| self.poll_wishes(cx, wish))).await {
            Ok(written) => written,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the peer accepts no data")),
        }
    }

    fn poll_wishes(&mut self, cx: &mut Context<'_>, wish: &Mutex<Wish>) -> Poll<io::Result<()>> {
        if self.torn {
            return Poll::Ready(Err(torn()));
        }
        loop {
            if self.left.is_empty() {
                let next = wish.lock().unwrap_or_else(PoisonError::into_inner).take();
                let Some(next) = next else { return Poll::Ready(Ok(())) };
                self.left = next;
            }
            match Pin::new(self.sink.get_mut()).poll_write(cx, &self.left) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => self.left.advance(written),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

fn torn() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "an earlier message was sent only in part")
}

/// The receiving half.
#[derive(Debug)]
pub struct Receiver {
    from: OwnedReadHalf,
    buffer: BytesMut,
    codec: Codec,
    shared: Arc<Shared>,
    over: bool,
}

impl Receiver {
    /// Returns the next message, or `None` when the peer has closed. Cancel safe.
    pub(in super::super) async fn next(&mut self) -> io::Result<Option<Frame>> {
        while !self.over {
            match self.codec.next(&mut self.buffer) {
                Ok(Some(Heard::Text(text))) => return Ok(Some(Frame::Text(text))),
                Ok(Some(Heard::TooLong { bytes, excerpt })) => {
                    return Ok(Some(Frame::TooLong { bytes, excerpt }));
                }
                Ok(Some(Heard::Binary)) => return Ok(Some(Frame::Binary)),
                Ok(Some(Heard::Ping(payload))) => self.shared.pong(&payload),
                Ok(Some(Heard::Pong)) => {}
                Ok(Some(Heard::Close(code))) => {
                    self.over = true;
                    self.shared.close(code, "");
                    self.say_goodbye().await;
                }
                Ok(None) => self.over = self.read().await? == 0,
                Err(fault) => {
                    self.over = true;
                    return Err(self.give_up(fault).await);
                }
            }
        }
        Ok(None)
    }

    /// Discards what still arrives, until the peer closes.
    pub(in super::super) async fn drain(&mut self) {
        self.over = true;
        self.buffer = BytesMut::with_capacity(READ);
        while self.from.read_buf(&mut self.buffer).await.is_ok_and(|read| read > 0) {
            self.buffer.clear();
        }
    }

    /// Reads more bytes, and meanwhile writes queued control frames.
    async fn read(&mut self) -> io::Result<usize> {
        if self.buffer.len() <= KEPT && self.buffer.capacity() > KEPT {
            // Slices of a buffer keep all of it alive; copying the rest releases it.
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        self.buffer.reserve(READ);
        let mut read = pin!(self.from.read_buf(&mut self.buffer));
        poll_fn(|cx| {
            // If the socket is not writable, the waker polls this again.
            let _ = self.shared.poll_wishes(cx);
            read.as_mut().poll(cx)
        })
        .await
    }

    /// Sends the peer a close frame with the error, and waits briefly until it is delivered.
    async fn give_up(&mut self, fault: Fault) -> io::Error {
        self.shared.close(Some(fault.code()), &fault.to_string());
        let told = async {
            self.say_goodbye().await;
            self.drain().await;
        };
        // A slower peer does not get it.
        let _ = timeout(LINGER, told).await;
        io::Error::new(io::ErrorKind::InvalidData, fault)
    }

    async fn say_goodbye(&self) {
        let said = async {
            self.shared.write(&[]).await?;
            self.shared.out.lock().await.sink.shutdown().await
        };
        // The connection ends in any case.
        let _ = timeout(LINGER, said).await;
    }
}

/// The sending half.
#[derive(Debug)]
pub struct Sender(Arc<Shared>);

impl Sender {
    /// Sends messages in as few writes as possible.
    pub(in super::super) async fn send(&mut self, messages: &[Bytes]) -> io::Result<()> {
        let heads: Vec<OutHead> = messages.iter().map(|message| OutHead::text(message.len())).collect();
        let pieces = heads.iter().zip(messages).flat_map(|(head, message)| [head.as_ref(), message.as_ref()]);
        if messages.iter().map(Bytes::len).sum::<usize>() <= COPIED {
            // One copy is cheaper than many small pieces.
            let together: Vec<u8> = pieces.flatten().copied().collect();
            return self.0.write(&[&together]).await;
        }
        self.0.write(&pieces.collect::<Vec<_>>()).await
    }

    /// Sends a close frame; nothing can be sent after it.
    pub(in super::super) async fn close(&mut self, why: Parting) -> io::Result<()> {
        let code = match why {
            Parting::Done => code::NORMAL,
            Parting::GoingAway => code::GOING_AWAY,
            Parting::Policy => code::POLICY,
        };
        self.0.close(Some(code), "");
        self.0.write(&[]).await?;
        self.0.out.lock().await.sink.shutdown().await
    }
}

/// How many bytes are requested per read.
const READ: usize = 4 * 1024;

/// The largest buffer that an idle connection keeps.
const KEPT: usize = 64 * 1024;

/// Up to how many bytes messages are copied into one buffer.
const COPIED: usize = 16 * 1024;

/// How long a peer has to receive a close frame.
const LINGER: Duration = Duration::from_secs(1);

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
