//! The two halves of a WebSocket, after its handshake.
//!
//! Data goes out through the one half, and through the other comes in; what the protocol itself wants to say (the answer to
//! a ping, a goodbye) waits in one place and is written by whoever can: the receiver when nobody else writes, else the
//! sender after what it is writing. Of several pings the latest is answered.

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

/// What a WebSocket may do.
#[derive(Debug, Clone, Copy)]
pub struct SocketLimits {
    /// How long a message may be, in bytes.
    pub message: usize,
    /// How long the peer may take nothing of what is sent.
    pub stalled: Duration,
    /// Tells by the first KiB of a message over the limit whether it can be refused before its end has come.
    pub is_named: fn(&[u8]) -> bool,
}

/// Takes a connection over after its handshake; `early` is what was read beyond that.
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

/// What both halves share.
#[derive(Debug)]
struct Shared {
    out: tokio::sync::Mutex<Out>,
    wish: Mutex<Wish>,
}

/// The way to the peer.
#[derive(Debug)]
struct Out {
    sink: Sink<OwnedWriteHalf>,
    /// How long the peer may take nothing.
    stalled: Duration,
    /// What is not yet written of a control frame that was begun.
    left: Bytes,
    /// Whether a message went out in part, so that nothing can follow it.
    torn: bool,
}

/// What the protocol wants to say.
#[derive(Debug, Default)]
struct Wish {
    pong: Option<Bytes>,
    close: Option<Bytes>,
    /// Whether a goodbye was put here once; nothing may be sent after it.
    closing: bool,
}

impl Wish {
    /// Takes what is to be said next; a goodbye is the last.
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

    /// Answers a ping when that is possible.
    fn pong(&self, payload: &[u8]) {
        let mut wish = self.wish();
        if !wish.closing {
            wish.pong = Some(codec::pong(payload));
        }
    }

    /// Says goodbye when that is possible, once.
    fn close(&self, code: Option<u16>, words: &str) {
        let mut wish = self.wish();
        if !wish.closing {
            wish.close = Some(codec::close(code, words));
            wish.closing = true;
        }
    }

    /// Writes what the protocol wants to say as far as the peer takes it, unless somebody is writing, who will.
    ///
    /// Ready when nothing is left to do here; what goes wrong is found by whoever reads or writes next.
    fn poll_wishes(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Ok(mut out) = self.out.try_lock() else { return Poll::Ready(()) };
        out.poll_wishes(cx, &self.wish).map(drop)
    }

    /// Writes what the protocol wants to say, and `messages` after it.
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
            // What was wished for while the way was held may have found it so.
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
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the peer makes no progress")),
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
    io::Error::new(io::ErrorKind::BrokenPipe, "a message was sent in part")
}

/// The half that messages come from.
#[derive(Debug)]
pub struct Receiver {
    from: OwnedReadHalf,
    buffer: BytesMut,
    codec: Codec,
    shared: Arc<Shared>,
    over: bool,
}

impl Receiver {
    /// Returns the next message, or `None` when the peer has ended; may be dropped half-way.
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

    /// Throws away what still comes, until the peer ends.
    pub(in super::super) async fn drain(&mut self) {
        self.over = true;
        self.buffer = BytesMut::with_capacity(READ);
        while self.from.read_buf(&mut self.buffer).await.is_ok_and(|read| read > 0) {
            self.buffer.clear();
        }
    }

    /// Reads more, and meanwhile writes what the protocol has to say.
    async fn read(&mut self) -> io::Result<usize> {
        if self.buffer.len() <= KEPT && self.buffer.capacity() > KEPT {
            // What was cut from a buffer keeps all of it alive: a copy of the rest is the way to give it back.
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        self.buffer.reserve(READ);
        let mut read = pin!(self.from.read_buf(&mut self.buffer));
        poll_fn(|cx| {
            // When it can go on, this is asked again.
            let _ = self.shared.poll_wishes(cx);
            read.as_mut().poll(cx)
        })
        .await
    }

    /// Tells the peer what it did wrong, and waits a little for it to hear that.
    async fn give_up(&mut self, fault: Fault) -> io::Error {
        self.shared.close(Some(fault.code()), &fault.to_string());
        let told = async {
            self.say_goodbye().await;
            self.drain().await;
        };
        // A peer that takes no longer than this hears it.
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

/// The half that messages go to.
#[derive(Debug)]
pub struct Sender(Arc<Shared>);

impl Sender {
    /// Sends messages in as few writes as possible.
    pub(in super::super) async fn send(&mut self, messages: &[Bytes]) -> io::Result<()> {
        let heads: Vec<OutHead> = messages.iter().map(|message| OutHead::text(message.len())).collect();
        let pieces = heads.iter().zip(messages).flat_map(|(head, message)| [head.as_ref(), message.as_ref()]);
        if messages.iter().map(Bytes::len).sum::<usize>() <= COPIED {
            // One short write is cheaper than many pieces.
            let together: Vec<u8> = pieces.flatten().copied().collect();
            return self.0.write(&[&together]).await;
        }
        self.0.write(&pieces.collect::<Vec<_>>()).await
    }

    /// Says goodbye; nothing can be sent after it.
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

/// How much is asked for at once.
const READ: usize = 4 * 1024;

/// The largest buffer that a connection keeps while it waits.
const KEPT: usize = 64 * 1024;

/// Up to how many bytes messages are copied together.
const COPIED: usize = 16 * 1024;

/// How long a peer has to hear why it is turned away.
const LINGER: Duration = Duration::from_secs(1);

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
