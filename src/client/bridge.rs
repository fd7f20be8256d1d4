//! A connection whose bytes are copied without being parsed: one that was switched to another protocol, or one that
//! serves a client on another machine.

use std::cell::Cell;
use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, copy};

use super::link::{ReadStream, WriteStream};
use super::ssh::SshProcess;

/// A connection whose bytes are copied.
#[derive(Debug)]
pub struct Bridge {
    pub(super) reader: BufReader<Box<dyn ReadStream>>,
    pub(super) writer: Box<dyn WriteStream>,
    /// The process that ends with the connection.
    pub(super) process: Option<SshProcess>,
}

/// How a bridge ended.
#[derive(Debug)]
pub enum BridgeOutcome {
    /// The input ended and the daemon answered all of it.
    Done,
    /// The daemon closed the connection while the input was open, or the connection failed.
    ConnectionLost,
    /// The output cannot be written.
    OutputFailed(io::Error),
}

impl Bridge {
    /// Copies bytes in both directions until the daemon closes the connection.
    ///
    /// At the end of the input the write half is shut down; the daemon closes the connection once it has answered
    /// everything.
    pub async fn relay(self, mut input: impl AsyncRead + Unpin, output: impl AsyncWrite + Unpin) -> BridgeOutcome {
        let Self { reader, writer, process: _process } = self;
        let ended = Cell::new(false);
        let to = async {
            // Dropped at the end, since a pipe has no other way to be shut down.
            let mut writer = writer;
            // A read error counts as the end of the input. A write error shows up on the read half as well.
            let _ = copy(&mut input, &mut writer).await;
            ended.set(true);
            let _ = writer.shutdown().await;
        };
        let from = copy_output(reader, output);
        tokio::pin!(to, from);
        let shown = tokio::select! {
            shown = &mut from => shown,
            () = &mut to => from.await,
        };
        match shown {
            OutputEnd::EndOfFile if ended.get() => BridgeOutcome::Done,
            OutputEnd::EndOfFile | OutputEnd::ReadFailed => BridgeOutcome::ConnectionLost,
            OutputEnd::WriteFailed(error) => BridgeOutcome::OutputFailed(error),
        }
    }
}

/// Why copying to the output stopped.
enum OutputEnd {
    EndOfFile,
    ReadFailed,
    WriteFailed(io::Error),
}

/// Copies everything from the daemon to the output and flushes after every read.
async fn copy_output(mut from: impl AsyncBufRead + Unpin, mut to: impl AsyncWrite + Unpin) -> OutputEnd {
    loop {
        let length = match from.fill_buf().await {
            Ok([]) => return OutputEnd::EndOfFile,
            Err(_) => return OutputEnd::ReadFailed,
            Ok(bytes) => {
                let written = to.write_all(bytes).await;
                if let Err(error) = written {
                    return OutputEnd::WriteFailed(error);
                }
                bytes.len()
            }
        };
        from.consume(length);
        if let Err(error) = to.flush().await {
            return OutputEnd::WriteFailed(error);
        }
    }
}
