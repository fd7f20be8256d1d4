//! The output of a step on its way to whoever listens.
//!
//! What has gathered is passed on at once, in pieces of at most [`CHUNK`] bytes; a slow listener slows the step
//! down, and nothing is kept beyond the piece in hand.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use super::os::Pipe;
use super::step::{Chunk, Stream};

/// The largest piece of output.
const CHUNK: usize = 16 * 1024;

/// The most a pipe holds without privileges; what the shell wrote before it left is within it.
const PIPE_MAX: usize = 1024 * 1024;

/// Passes on what comes out of `pipe` until it ends, or until the step is over and what it left has been read.
///
/// Background processes may hold the pipe open; then it is handed back, for [`discard`].
pub(super) async fn pass_on(
    mut pipe: Pipe,
    stream: Stream,
    out: &mpsc::Sender<Chunk>,
    mut over: watch::Receiver<bool>,
) -> Option<Pipe> {
    let mut buffer = vec![0; CHUNK];
    let send = async |bytes: &[u8]| {
        // Nobody listening is no reason to end a step: the rest is read and forgotten.
        let _unheard = out.send(Chunk { stream, bytes: Bytes::copy_from_slice(bytes) }).await;
    };
    loop {
        tokio::select! {
            biased;
            () = set(&mut over) => break,
            read = pipe.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return None,
                Ok(length) => send(&buffer[..length]).await,
            },
        }
    }
    let mut left = PIPE_MAX;
    while left > 0 {
        match pipe.read_now(&mut buffer) {
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

/// Waits until the mark is set, or until nobody is left to set it.
pub(super) async fn set(mark: &mut watch::Receiver<bool>) {
    let _nobody = mark.wait_for(|set| *set).await;
}

/// Reads and forgets what background processes write after their step is over.
///
/// A closed pipe would kill a server at its first line of log, a full one would halt it. The pause bounds what a
/// background process that only writes can cost.
pub(super) async fn discard(mut pipe: Pipe) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(1..) = pipe.read(&mut buffer).await {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
