//! A writer with a stall timeout: it fails only if the peer makes no progress for too long.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// A writer with a stall timeout.
#[derive(Debug)]
pub struct Sink<W> {
    to: W,
    stall_timeout: Duration,
}

impl<W: AsyncWrite + Unpin> Sink<W> {
    /// Writes to `to`; fails if it makes no progress for `stalled`.
    pub const fn new(to: W, stall_timeout: Duration) -> Self {
        Self { to, stall_timeout }
    }

    /// Writes everything; fails only if the peer accepts nothing for too long.
    ///
    /// Not cancel safe: if it is dropped, it is unknown how much was written.
    pub async fn write_all(&mut self, pieces: &[impl AsRef<[u8]>]) -> io::Result<()> {
        for pieces in pieces.chunks(PIECES) {
            // Not an array, which would be part of every connection's future.
            let mut slices: Vec<_> = pieces.iter().map(|buffer| IoSlice::new(buffer.as_ref())).collect();
            let mut rest = slices.as_mut_slice();
            // Skips empty pieces.
            IoSlice::advance_slices(&mut rest, 0);
            while !rest.is_empty() {
                let written = self.write(rest).await?;
                if written == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                IoSlice::advance_slices(&mut rest, written);
            }
        }
        Ok(())
    }

    /// Writes some of the pieces.
    async fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        // Most peers accept the data at once; only the others need a timer.
        let at_once = poll_fn(|context| Poll::Ready(Pin::new(&mut self.to).poll_write_vectored(context, pieces)));
        if let Poll::Ready(written) = at_once.await {
            return written;
        }
        let stalled = |_| io::Error::new(io::ErrorKind::TimedOut, "the peer accepts no data");
        timeout(self.stall_timeout, self.to.write_vectored(pieces)).await.map_err(stalled)?
    }

    /// Flushes the underlying writer.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.to.flush().await
    }

    /// Shuts down the underlying writer.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        self.to.shutdown().await
    }

    /// Returns the underlying writer.
    pub const fn get_mut(&mut self) -> &mut W {
        &mut self.to
    }
}

/// How many pieces are passed to one system call.
const PIECES: usize = 64;
