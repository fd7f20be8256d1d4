//! One connection to the daemon: reads and writes lines and matches replies to requests.
//!
//! It does not reconnect; after any error it cannot be used any more.

use std::fmt::Debug;
use std::io;
use std::string::FromUtf8Error;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use ulid::Ulid;

use super::bridge::Bridge;
use super::ssh::SshProcess;
use super::subscriptions::Subscriptions;
use crate::protocol::push::client::{DecodeError, Incoming, RequestBody, ResponseError, decode_line};
use crate::transport::local::Stream;

/// The longest line that is accepted from the daemon.
const LONGEST_LINE: usize = 64 * 1024 * 1024;

/// Why a connection cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    /// The daemon closed it.
    #[error("the daemon closed the connection")]
    Closed,
    /// Reading or writing failed.
    #[error("the connection failed")]
    Io(#[from] io::Error),
    /// A line is not UTF-8.
    #[error("the daemon sent a line that is not UTF-8")]
    NotText(#[from] FromUtf8Error),
    /// The daemon sent something that is not the protocol.
    #[error(transparent)]
    Unreadable(#[from] DecodeError),
    /// A line exceeds the limit.
    #[error("the daemon sent a line of more than {LONGEST_LINE} bytes")]
    LineTooLong,
}

/// The stream on which the daemon's lines arrive: half of a socket, or the output of a process.
pub(super) trait ReadStream: AsyncRead + Debug + Send + Unpin {}

impl<T: AsyncRead + Debug + Send + Unpin> ReadStream for T {}

/// The stream for lines to the daemon.
pub(super) trait WriteStream: AsyncWrite + Debug + Send + Unpin {}

impl<T: AsyncWrite + Debug + Send + Unpin> WriteStream for T {}

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    reader: BufReader<Box<dyn ReadStream>>,
    writer: Box<dyn WriteStream>,
    /// The process that owns the other end, if it is not a socket. It ends with the connection.
    process: Option<SshProcess>,
    /// The start of a line that is not complete yet. It is kept when a read is cancelled.
    partial: Vec<u8>,
}

impl Link {
    /// Wraps a new connection.
    pub(super) fn new(reader: Box<dyn ReadStream>, writer: Box<dyn WriteStream>) -> Self {
        let reader = BufReader::with_capacity(64 * 1024, reader);
        Self { reader, writer, process: None, partial: Vec::new() }
    }

    /// Wraps a new connection of the local socket.
    pub(super) fn local(stream: Stream) -> Self {
        let (reader, writer) = stream.into_split();
        Self::new(Box::new(reader), Box::new(writer))
    }

    /// Adds the process that ends with the connection.
    pub(super) fn with_process(self, process: SshProcess) -> Self {
        Self { process: Some(process), ..self }
    }

    /// Sends a request and waits for the payload of its reply; events that arrive before it go to `watch`.
    pub(super) async fn exchange(
        &mut self,
        request: &RequestBody,
        watch: &mut Subscriptions,
    ) -> Result<Result<String, ResponseError>, LinkError> {
        let id = self.send(request).await?;
        loop {
            match self.read().await? {
                Incoming::Response(response) if response.request_id == id => return Ok(response.outcome),
                Incoming::Response(response) if watch.expects(&response) => watch.accept_response(response),
                // No other request is in flight, so an error reply with another id answers a line whose id the daemon
                // could not parse.
                Incoming::Response(response) if response.outcome.is_err() => return Ok(response.outcome),
                Incoming::Event(event) => watch.accept(*event),
                Incoming::Response(_) | Incoming::Unknown => {}
            }
        }
    }

    /// Sends a request without waiting for its reply, and returns its id.
    pub(super) async fn send(&mut self, request: &RequestBody) -> Result<String, LinkError> {
        let id = format!("req_{}", Ulid::generate());
        let mut line = request.line(&id);
        line.push('\n');
        self.writer.write_all(line.as_bytes()).await?;
        self.writer.flush().await?;
        Ok(id)
    }

    /// Converts the connection into a bridge for another protocol.
    pub(super) fn into_bridge(self) -> Bridge {
        Bridge { reader: self.reader, writer: self.writer, process: self.process }
    }

    /// Reads the next message. Cancel-safe.
    pub(super) async fn read(&mut self) -> Result<Incoming, LinkError> {
        loop {
            let line = self.line().await?;
            if !line.trim().is_empty() {
                return Ok(decode_line(line)?);
            }
        }
    }

    async fn line(&mut self) -> Result<String, LinkError> {
        loop {
            let chunk = self.reader.fill_buf().await?;
            if chunk.is_empty() {
                return Err(LinkError::Closed);
            }
            let end = memchr::memchr(b'\n', chunk);
            let taken = end.map_or(chunk.len(), |at| at + 1);
            self.partial.extend_from_slice(&chunk[..end.unwrap_or(chunk.len())]);
            self.reader.consume(taken);
            if self.partial.len() > LONGEST_LINE {
                return Err(LinkError::LineTooLong);
            }
            if end.is_some() {
                let bytes = std::mem::take(&mut self.partial);
                return Ok(String::from_utf8(bytes)?);
            }
        }
    }
}
