//! A client connection that expects the daemon to disappear at any byte.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::history::Fact;
use super::stage::PATIENCE;

/// The result of a read.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A whole line, without its line feed.
    Line(Vec<u8>),
    /// The time limit passed.
    Nothing,
    /// The connection was closed.
    End,
}

/// The daemon is gone.
#[derive(Debug)]
pub(crate) struct Lost;

/// The envelope of a line; the payload is parsed only where it matters.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Head<'a> {
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

impl Head<'_> {
    pub(crate) fn payload(&self) -> Value {
        serde_json::from_str(self.payload.get()).expect("a payload is JSON")
    }

    /// The code of a refusal.
    pub(crate) fn code(&self) -> String {
        let error: Value =
            self.error.map_or(Value::Null, |error| serde_json::from_str(error.get()).expect("JSON"));
        error["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// One connection.
pub(crate) struct Wire {
    stream: UnixStream,
    buffer: Vec<u8>,
    taken: usize,
    requests: u64,
}

impl Wire {
    pub(crate) fn connect(socket: &Path) -> Result<Self, Lost> {
        let stream = UnixStream::connect(socket).map_err(|_| Lost)?;
        Ok(Self { stream, buffer: Vec::new(), taken: 0, requests: 0 })
    }

    /// Sends a request and returns its id.
    pub(crate) fn send(&mut self, kind: &str, payload: &Value) -> Result<String, Lost> {
        self.requests += 1;
        let request = format!("q{}", self.requests);
        let line = json!({"v": "push.runtime.v1", "kind": "request", "requestId": request, "type": kind, "payload": payload});
        let mut line = line.to_string();
        line.push('\n');
        self.stream.write_all(line.as_bytes()).map_err(|_| Lost)?;
        Ok(request)
    }

    /// Waits for the next event of a type and drops the lines before it.
    pub(crate) fn until(&mut self, kind: &str) -> Fact {
        loop {
            let line = match self.hear(PATIENCE) {
                Heard::Line(line) => line,
                Heard::Nothing | Heard::End => panic!("no {kind} came"),
            };
            let head: Head<'_> = serde_json::from_slice(&line).expect("a message");
            assert!(head.ok != Some(false), "refused: {head:?}");
            if let (true, Some(seq)) = (head.r#type == kind, head.seq) {
                return Fact::new(&head, seq);
            }
        }
    }

    /// Waits for a line, for at most `limit`.
    pub(crate) fn hear(&mut self, limit: Duration) -> Heard {
        loop {
            let waiting = &self.buffer[self.taken..];
            if let Some(length) = memchr::memchr(b'\n', waiting) {
                let line = waiting[..length].to_vec();
                self.taken += length + 1;
                return Heard::Line(line);
            }
            self.buffer.drain(..self.taken);
            self.taken = 0;
            let mut piece = [0; 64 * 1024];
            // A timeout of zero would mean none.
            self.stream.set_read_timeout(Some(limit.max(Duration::from_micros(1)))).expect("a time limit");
            match self.stream.read(&mut piece) {
                Ok(0) => return Heard::End,
                Ok(length) => self.buffer.extend_from_slice(&piece[..length]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Heard::Nothing;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Heard::End,
            }
        }
    }
}
