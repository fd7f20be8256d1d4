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

use super::super::frames::{CloseReason, Frame};
use super::super::sink::Sink;
use super::codec::{self, Codec, FrameError, Inbound, OutgoingHeader, code};

/// The limits of a WebSocket.
#[derive(Debug, Clone, Copy)]
pub struct SocketLimits {
    /// The maximum length of a message, in bytes.
    pub message: usize,
    /// How long the peer may accept no data.
    pub stall_timeout: Duration,
    /// Whether the first KiB of a message over the limit contains the request id, so that the message can be refused
    /// before its end.
    pub has_request_id: fn(&[u8]) -> bool,
}

/// Splits a connection after its handshake; `early` holds the bytes read beyond the handshake.
pub(in super::super) fn split(stream: TcpStream, early: Bytes, limits: SocketLimits) -> (Receiver, Sender) {
    let (from, to) = stream.into_split();
    let sink = Sink::new(to, limits.stall_timeout);
    let out = Output { sink, stall_timeout: limits.stall_timeout, unsent: Bytes::new(), broken: false };
    let shared = Arc::new(Shared { out: tokio::sync::Mutex::new(out), control: Mutex::default() });
    let codec = Codec::new(limits.message as u64, limits.has_request_id);
    let buffer = BytesMut::from(early);
    let receiver = Receiver { from, buffer, codec, shared: Arc::clone(&shared), ended: false };
    (receiver, Sender(shared))
}

/// The state that both halves share.
#[derive(Debug)]
struct Shared {
    out: tokio::sync::Mutex<Output>,
    control: Mutex<ControlFrames>,
}

/// The writing side of the connection.
#[derive(Debug)]
struct Output {
    sink: Sink<OwnedWriteHalf>,
    /// How long the peer may accept no data.
    stall_timeout: Duration,
    /// The unsent rest of a control frame.
    unsent: Bytes,
    /// Whether a message was sent only in part, so that nothing can follow it.
    broken: bool,
}

/// The control frames to send.
#[derive(Debug, Default)]
struct ControlFrames {
    pong: Option<Bytes>,
    close: Option<Bytes>,
    /// Whether a close frame was queued; nothing may be sent after it.
    closing: bool,
}

impl ControlFrames {
    /// Takes the next control frame; the close frame is the last.
    fn take(&mut self) -> Option<Bytes> {
        self.pong.take().or_else(|| self.close.take())
    }
}

impl Shared {
    fn control(&self) -> MutexGuard<'_, ControlFrames> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_pending_control(&self) -> bool {
        let control = self.control();
        control.pong.is_some() || control.close.is_some()
    }

    /// Queues the answer to a ping.
    fn pong(&self, payload: &[u8]) {
        let mut control = self.control();
        if !control.closing {
            control.pong = Some(codec::pong(payload));
        }
    }

    /// Queues a close frame, once.
    fn close(&self, code: Option<u16>, words: &str) {
        let mut control = self.control();
        if !control.closing {
            control.close = Some(codec::close(code, words));
            control.closing = true;
        }
    }

    /// Writes queued control frames as far as the peer accepts them. If the other half is writing, that half writes
    /// them.
    ///
    /// It is ready when nothing is left to do here; an error surfaces in the next read or write.
    fn poll_flush_control(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Ok(mut out) = self.out.try_lock() else { return Poll::Ready(()) };
        out.poll_flush_control(cx, &self.control).map(drop)
    }

    /// Writes queued control frames, and `messages` after them.
    async fn write(&self, messages: &[&[u8]]) -> io::Result<()> {
        let mut out = self.out.lock().await;
        out.flush_control(&self.control).await?;
        if !messages.is_empty() {
            if self.control().closing {
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the connection is being closed"));
            }
            out.broken = true;
            out.sink.write_all(messages).await?;
            out.broken = false;
        }
        loop {
            out.flush_control(&self.control).await?;
            drop(out);
            // A control frame queued while the lock was held may have found it taken.
            match self.out.try_lock() {
                Ok(again) if self.has_pending_control() => out = again,
                Ok(_) | Err(_) => return Ok(()),
            }
        }
    }
}

impl Output {
    async fn flush_control(&mut self, control: &Mutex<ControlFrames>) -> io::Result<()> {
        // Most peers accept a frame at once, and most of the time there is none; only the others need a timer.
        let at_once = poll_fn(|cx| Poll::Ready(self.poll_flush_control(cx, control)));
        if let Poll::Ready(written) = at_once.await {
            return written;
        }
        match timeout(self.stall_timeout, poll_fn(|cx| self.poll_flush_control(cx, control))).await {
            Ok(written) => written,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the peer accepts no data")),
        }
    }

    fn poll_flush_control(&mut self, cx: &mut Context<'_>, control: &Mutex<ControlFrames>) -> Poll<io::Result<()>> {
        if self.broken {
            return Poll::Ready(Err(broken_message()));
        }
        loop {
            if self.unsent.is_empty() {
                let next = control.lock().unwrap_or_else(PoisonError::into_inner).take();
                let Some(next) = next else { return Poll::Ready(Ok(())) };
                self.unsent = next;
            }
            match Pin::new(self.sink.get_mut()).poll_write(cx, &self.unsent) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => self.unsent.advance(written),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

fn broken_message() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "an earlier message was sent only in part")
}

/// The receiving half.
#[derive(Debug)]
pub struct Receiver {
    from: OwnedReadHalf,
    buffer: BytesMut,
    codec: Codec,
    shared: Arc<Shared>,
    ended: bool,
}

impl Receiver {
    /// Returns the next message, or `None` when the peer has closed. Cancel safe.
    pub(in super::super) async fn next(&mut self) -> io::Result<Option<Frame>> {
        while !self.ended {
            match self.codec.next(&mut self.buffer) {
                Ok(Some(Inbound::Text(text))) => return Ok(Some(Frame::Text(text))),
                Ok(Some(Inbound::TooLong { bytes, excerpt })) => {
                    return Ok(Some(Frame::TooLong { bytes, excerpt }));
                }
                Ok(Some(Inbound::Binary)) => return Ok(Some(Frame::Binary)),
                Ok(Some(Inbound::Ping(payload))) => self.shared.pong(&payload),
                Ok(Some(Inbound::Pong)) => {}
                Ok(Some(Inbound::Close(code))) => {
                    self.ended = true;
                    self.shared.close(code, "");
                    self.send_close().await;
                }
                Ok(None) => self.ended = self.read().await? == 0,
                Err(error) => {
                    self.ended = true;
                    return Err(self.fail(error).await);
                }
            }
        }
        Ok(None)
    }

    /// Discards what still arrives, until the peer closes.
    pub(in super::super) async fn drain(&mut self) {
        self.ended = true;
        self.buffer = BytesMut::with_capacity(READ_SIZE);
        while self.from.read_buf(&mut self.buffer).await.is_ok_and(|read| read > 0) {
            self.buffer.clear();
        }
    }

    /// Reads more bytes, and meanwhile writes queued control frames.
    async fn read(&mut self) -> io::Result<usize> {
        if self.buffer.len() <= KEPT_CAPACITY && self.buffer.capacity() > KEPT_CAPACITY {
            // Slices of a buffer keep all of it alive; copying the rest releases it.
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        self.buffer.reserve(READ_SIZE);
        let mut read = pin!(self.from.read_buf(&mut self.buffer));
        poll_fn(|cx| {
            // If the socket is not writable, the waker polls this again.
            let _ = self.shared.poll_flush_control(cx);
            read.as_mut().poll(cx)
        })
        .await
    }

    /// Sends the peer a close frame with the error, and waits briefly until it is delivered.
    async fn fail(&mut self, error: FrameError) -> io::Error {
        self.shared.close(Some(error.code()), &error.to_string());
        let close = async {
            self.send_close().await;
            self.drain().await;
        };
        // A slower peer does not get it.
        let _ = timeout(CLOSE_TIMEOUT, close).await;
        io::Error::new(io::ErrorKind::InvalidData, error)
    }

    async fn send_close(&self) {
        let close = async {
            self.shared.write(&[]).await?;
            self.shared.out.lock().await.sink.shutdown().await
        };
        // The connection ends in any case.
        let _ = timeout(CLOSE_TIMEOUT, close).await;
    }
}

/// The sending half.
#[derive(Debug)]
pub struct Sender(Arc<Shared>);

impl Sender {
    /// Sends messages in as few writes as possible.
    pub(in super::super) async fn send(&mut self, messages: &[Bytes]) -> io::Result<()> {
        let heads: Vec<OutgoingHeader> = messages.iter().map(|message| OutgoingHeader::text(message.len())).collect();
        let pieces = heads.iter().zip(messages).flat_map(|(head, message)| [head.as_ref(), message.as_ref()]);
        let length: usize = messages.iter().map(|message| message.len() + size_of::<OutgoingHeader>()).sum();
        if length <= COALESCE_LIMIT {
            // One copy is cheaper than many small pieces.
            let mut together = Vec::with_capacity(length);
            pieces.for_each(|piece| together.extend_from_slice(piece));
            return self.0.write(&[&together]).await;
        }
        self.0.write(&pieces.collect::<Vec<_>>()).await
    }

    /// Sends a close frame; nothing can be sent after it.
    pub(in super::super) async fn close(&mut self, why: CloseReason) -> io::Result<()> {
        let code = match why {
            CloseReason::Normal => code::NORMAL,
            CloseReason::GoingAway => code::GOING_AWAY,
            CloseReason::PolicyViolation => code::POLICY,
        };
        self.0.close(Some(code), "");
        self.0.write(&[]).await?;
        self.0.out.lock().await.sink.shutdown().await
    }
}

/// How many bytes are requested per read.
const READ_SIZE: usize = 4 * 1024;

/// The largest buffer that an idle connection keeps.
const KEPT_CAPACITY: usize = 64 * 1024;

/// Up to how many bytes messages are copied into one buffer.
const COALESCE_LIMIT: usize = 16 * 1024;

/// How long a peer has to receive a close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
