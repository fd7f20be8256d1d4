//! Forwards the output of a step to its receiver.
//!
//! Output is forwarded as soon as it is available, in pieces of at most [`CHUNK`] bytes. A slow receiver blocks the
//! step, and no more than one piece is buffered.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use super::os::OutputPipe;
use super::step::{Chunk, Stream};

/// The maximum size of a piece of output, in bytes.
const CHUNK: usize = 16 * 1024;

/// The largest capacity of a pipe without privileges, in bytes; it bounds what the shell wrote before it exited.
const PIPE_MAX: usize = 1024 * 1024;

/// Forwards the output in `pipe` until it is closed, or until the step has ended and the remaining output has been
/// read.
///
/// Background processes may keep the pipe open; it is then returned, for [`drain`].
pub(super) async fn forward(
    mut pipe: OutputPipe,
    stream: Stream,
    out: &mpsc::Sender<Chunk>,
    mut over: watch::Receiver<bool>,
) -> Option<OutputPipe> {
    let mut buffer = vec![0; CHUNK];
    let send = async |bytes: &[u8]| {
        // A closed receiver does not end the step: the remaining output is read and discarded.
        let _unheard = out.send(Chunk { stream, bytes: Bytes::copy_from_slice(bytes) }).await;
    };
    loop {
        tokio::select! {
            biased;
            () = wait_until_set(&mut over) => break,
            read = pipe.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return None,
                Ok(length) => send(&buffer[..length]).await,
            },
        }
    }
    let mut left = PIPE_MAX;
    while left > 0 {
        match pipe.try_read(&mut buffer) {
            Ok(Some(0)) | Err(_) => return None,
            Ok(Some(length)) => {
                left = left.saturating_sub(length);
                send(&buffer[..length]).await;
            }
            Ok(None) => break,
        }
    }
    Some(pipe)
}

/// Waits until the flag is set, or until its sender is dropped.
pub(super) async fn wait_until_set(mark: &mut watch::Receiver<bool>) {
    let _nobody = mark.wait_for(|set| *set).await;
}

/// Reads and discards what background processes write after their step has ended.
///
/// A closed pipe would kill a server at its first log line, and a full one would block it. The pause bounds the CPU
/// time that a continuously writing background process can cost.
pub(super) async fn drain(mut pipe: OutputPipe) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(1..) = pipe.read(&mut buffer).await {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
