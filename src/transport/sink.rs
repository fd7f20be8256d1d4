//! Writing to a peer that may be slow: everything goes out, or the peer has made no progress for too long.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// The way to a peer.
#[derive(Debug)]
pub struct Sink<W> {
    to: W,
    stalled: Duration,
}

impl<W: AsyncWrite + Unpin> Sink<W> {
    /// Writes to `to`, which may make no progress for as long as `stalled`.
    pub const fn new(to: W, stalled: Duration) -> Self {
        Self { to, stalled }
    }

    /// Writes everything; gives up only when the peer takes nothing at all for too long.
    ///
    /// If it is dropped half-way, nobody knows how much went out.
    pub async fn write_all(&mut self, pieces: &[impl AsRef<[u8]>]) -> io::Result<()> {
        for pieces in pieces.chunks(PIECES) {
            // Not an array: every connection would hold it while it waits.
            let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece.as_ref())).collect();
            let mut rest = slices.as_mut_slice();
            // Pieces that are empty are passed over.
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

    /// Writes some of it.
    async fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        // Most peers take it at once; only who does not is given a time.
        let at_once =
            poll_fn(|context| Poll::Ready(Pin::new(&mut self.to).poll_write_vectored(context, pieces)));
        if let Poll::Ready(written) = at_once.await {
            return written;
        }
        let stalled = |_| io::Error::new(io::ErrorKind::TimedOut, "the peer makes no progress");
        timeout(self.stalled, self.to.write_vectored(pieces)).await.map_err(stalled)?
    }

    /// Hands on what a buffer below may hold.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.to.flush().await
    }

    /// Tells the peer that no more will come.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        self.to.shutdown().await
    }

    /// Returns the way itself.
    pub const fn get_mut(&mut self) -> &mut W {
        &mut self.to
    }

    /// Gives the way back.
    pub fn into_inner(self) -> W {
        self.to
    }
}

/// How many pieces are handed to the system at once.
const PIECES: usize = 64;
