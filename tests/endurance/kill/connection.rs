//! A client connection that expects the daemon to disappear at any byte.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::harness::TIMEOUT;
use super::history::HistoryEvent;

/// The result of a read.
#[derive(Debug)]
pub(crate) enum ReadResult {
    /// A whole line, without its line feed.
    Line(Vec<u8>),
    /// The time limit passed.
    Timeout,
    /// The connection was closed.
    Closed,
}

/// The daemon is gone.
#[derive(Debug)]
pub(crate) struct ConnectionLost;

/// The envelope of a line; the payload is parsed only where it matters.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Envelope<'a> {
    pub(crate) kind: &'a str,
    pub(crate) r#type: &'a str,
    pub(crate) session_id: Option<&'a str>,
    pub(crate) run_id: Option<&'a str>,
    pub(crate) request_id: Option<&'a str>,
    pub(crate) seq: Option<u64>,
    pub(crate) ok: Option<bool>,
    #[serde(borrow)]
    pub(crate) payload: &'a RawValue,
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
}

impl Envelope<'_> {
    pub(crate) fn payload(&self) -> Value {
        serde_json::from_str(self.payload.get()).expect("a payload is JSON")
    }

    /// The code of a refusal.
    pub(crate) fn code(&self) -> String {
        let error: Value = self.error.map_or(Value::Null, |error| serde_json::from_str(error.get()).expect("JSON"));
        error["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// One connection.
pub(crate) struct Connection {
    stream: UnixStream,
    buffer: Vec<u8>,
    taken: usize,
    requests: u64,
}

impl Connection {
    pub(crate) fn connect(socket: &Path) -> Result<Self, ConnectionLost> {
        let stream = UnixStream::connect(socket).map_err(|_| ConnectionLost)?;
        Ok(Self { stream, buffer: Vec::new(), taken: 0, requests: 0 })
    }

    /// Sends a request and returns its id.
    pub(crate) fn send(&mut self, kind: &str, payload: &Value) -> Result<String, ConnectionLost> {
        self.requests += 1;
        let request = format!("q{}", self.requests);
        let line =
            json!({"v": "push.runtime.v1", "kind": "request", "requestId": request, "type": kind, "payload": payload});
        self.send_line(&line)?;
        Ok(request)
    }

    /// Sends a line.
    pub(crate) fn send_line(&mut self, line: &Value) -> Result<(), ConnectionLost> {
        self.stream.write_all(format!("{line}\n").as_bytes()).map_err(|_| ConnectionLost)
    }

    /// Waits for the next event of a type and drops the lines before it.
    pub(crate) fn wait_for_event(&mut self, kind: &str) -> HistoryEvent {
        loop {
            let line = match self.read_line(TIMEOUT) {
                ReadResult::Line(line) => line,
                ReadResult::Timeout | ReadResult::Closed => panic!("no {kind} came"),
            };
            let envelope: Envelope<'_> = serde_json::from_slice(&line).expect("a message");
            assert!(envelope.ok != Some(false), "refused: {envelope:?}");
            if let (true, Some(seq)) = (envelope.r#type == kind, envelope.seq) {
                return HistoryEvent::new(&envelope, seq);
            }
        }
    }

    /// Waits for a line, for at most `limit`.
    pub(crate) fn read_line(&mut self, limit: Duration) -> ReadResult {
        loop {
            let waiting = &self.buffer[self.taken..];
            if let Some(length) = memchr::memchr(b'\n', waiting) {
                let line = waiting[..length].to_vec();
                self.taken += length + 1;
                return ReadResult::Line(line);
            }
            self.buffer.drain(..self.taken);
            self.taken = 0;
            let mut piece = [0; 64 * 1024];
            // A timeout of zero would mean none.
            self.stream.set_read_timeout(Some(limit.max(Duration::from_micros(1)))).expect("a time limit");
            match self.stream.read(&mut piece) {
                Ok(0) => return ReadResult::Closed,
                Ok(length) => self.buffer.extend_from_slice(&piece[..length]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return ReadResult::Timeout;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return ReadResult::Closed,
            }
        }
    }
}
