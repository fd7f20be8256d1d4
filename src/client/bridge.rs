//! A connection that goes on in another protocol, whose bytes are passed on unread.

use std::cell::Cell;
use std::io;

use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf, WriteHalf, copy,
};

use crate::transport::local::Stream;

/// A connection that speaks another protocol.
#[derive(Debug)]
pub struct Bridge {
    pub(super) reader: BufReader<ReadHalf<Stream>>,
    pub(super) writer: WriteHalf<Stream>,
}

/// How a bridge came to its end.
#[derive(Debug)]
pub enum Bridged {
    /// The input ended, and the daemon has answered all of it.
    Done,
    /// The daemon went away while the input was open, or its connection broke.
    Lost,
    /// The output cannot be written.
    Output(io::Error),
}

impl Bridge {
    /// Passes bytes on in both directions until the daemon ends the connection.
    ///
    /// The end of the input is passed on, too, so that the daemon ends when everything is answered.
    pub async fn pass(self, mut input: impl AsyncRead + Unpin, output: impl AsyncWrite + Unpin) -> Bridged {
        let Self { reader, mut writer } = self;
        let ended = Cell::new(false);
        let to = async {
            // An input that cannot be read has ended; a daemon that takes no more says so at its other half.
            let _ = copy(&mut input, &mut writer).await;
            ended.set(true);
            let _ = writer.shutdown().await;
        };
        let from = show(reader, output);
        tokio::pin!(to, from);
        let shown = tokio::select! {
            shown = &mut from => shown,
            () = &mut to => from.await,
        };
        match shown {
            Shown::All if ended.get() => Bridged::Done,
            Shown::All | Shown::Broken => Bridged::Lost,
            Shown::Unwritable(error) => Bridged::Output(error),
        }
    }
}

/// What became of the output.
enum Shown {
    All,
    Broken,
    Unwritable(io::Error),
}

/// Passes everything on as it comes.
async fn show(mut from: impl AsyncBufRead + Unpin, mut to: impl AsyncWrite + Unpin) -> Shown {
    loop {
        let length = match from.fill_buf().await {
            Ok([]) => return Shown::All,
            Err(_) => return Shown::Broken,
            Ok(bytes) => {
                let written = to.write_all(bytes).await;
                if let Err(error) = written {
                    return Shown::Unwritable(error);
                }
                bytes.len()
            }
        };
        from.consume(length);
        if let Err(error) = to.flush().await {
            return Shown::Unwritable(error);
        }
    }
}
