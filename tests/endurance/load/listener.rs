//! A client for load tests, and queries of the daemon and of the system.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::Hasher;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::daemon::{Client, Daemon};
use crate::support::schemas;

/// How long a load test may take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) const MIB: u64 = 1024 * 1024;

/// A client that reads fast and parses little.
pub(crate) struct Listener {
    pub(crate) stream: UnixStream,
    lines: BufReader<UnixStream>,
}

/// A summary of the events that a listener received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EventSummary {
    pub(crate) events: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) bytes: u64,
    pub(crate) digest: u64,
}

impl Listener {
    pub(crate) fn new(stream: UnixStream) -> Self {
        let lines = BufReader::with_capacity(64 * 1024, stream.try_clone().expect("another handle"));
        Self { stream, lines }
    }

    pub(crate) fn attach(daemon: &Daemon, session: &str) -> Self {
        let mut listener = Self::new(connect(daemon));
        send(&mut listener.stream, request("attach_session", &json!({"sessionId": session})).as_bytes());
        listener.until(|line| line["kind"] == "response");
        listener
    }

    /// Returns the next line that matches; those before it are dropped.
    pub(crate) fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut line = String::new();
            self.lines.read_line(&mut line).expect("a line");
            schemas::check_line(line.trim_end());
            let line = serde_json::from_str(&line).expect("JSON");
            if wanted(&line) {
                return line;
            }
        }
    }

    /// Reads the events of a run to its end; every position must follow the one before.
    pub(crate) fn event_summary(self) -> EventSummary {
        self.event_summary_with(|_| ())
    }

    /// The same, with every line validated against the schemas: equal summaries mean equal lines.
    pub(crate) fn checked_event_summary(self) -> EventSummary {
        self.event_summary_with(|line| schemas::check_line(std::str::from_utf8(line).expect("UTF-8").trim_end()))
    }

    fn event_summary_with(mut self, check: impl Fn(&[u8])) -> EventSummary {
        let mut digest = DefaultHasher::new();
        let mut summary = EventSummary { events: 0, first: 0, last: 0, bytes: 0, digest: 0 };
        let mut line = Vec::new();
        let mut running = false;
        loop {
            line.clear();
            self.lines.read_until(b'\n', &mut line).expect("a line");
            assert!(!line.is_empty(), "the daemon has closed the connection after {summary:?}");
            check(&line);
            let Some(seq) = seq(&line) else { continue };
            running |= contains(&line, b"\"type\":\"user_message\"");
            if !running {
                continue;
            }
            assert!(summary.events == 0 || seq == summary.last + 1, "{seq} after {summary:?}");
            if summary.events == 0 {
                summary.first = seq;
            }
            summary.last = seq;
            summary.events += 1;
            summary.bytes += line.len() as u64;
            digest.write(&line);
            if contains(&line, b"\"type\":\"run_complete\"") {
                summary.digest = digest.finish();
                return summary;
            }
        }
    }
}

/// The position of an event line; `None` for a reply.
fn seq(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line.get(..line.len().min(250))?).unwrap_or_default();
    let (_, after) = text.split_once("\"kind\":\"event\"")?.1.split_once("\"seq\":")?;
    let digits = after.find(|letter: char| !letter.is_ascii_digit())?;
    after[..digits].parse().ok()
}

fn contains(line: &[u8], part: &[u8]) -> bool {
    line[..line.len().min(250)].windows(part.len()).any(|window| window == part)
}

pub(crate) fn connect(daemon: &Daemon) -> UnixStream {
    connect_to(&daemon.socket())
}

pub(crate) fn connect_to(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).expect("a connection");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a time limit");
    stream.set_write_timeout(Some(TIMEOUT)).expect("a time limit");
    stream
}

pub(crate) fn send(stream: &mut UnixStream, bytes: &[u8]) {
    stream.write_all(bytes).expect("the daemon reads");
}

pub(crate) fn request(kind: &str, payload: &Value) -> String {
    let line =
        json!({"v": "push.runtime.v1", "kind": "request", "requestId": "req_1", "type": kind, "payload": payload});
    format!("{line}\n")
}

pub(crate) fn metric(client: &mut Client, name: &str) -> u64 {
    client.get("get_metrics", json!({}))[name].as_u64().expect("a figure")
}

pub(crate) fn connections(client: &mut Client) -> u64 {
    metric(client, "connections")
}

pub(crate) fn memory(client: &mut Client) -> u64 {
    metric(client, "memoryBytes")
}

/// The peak memory of the daemon; zero where the system does not report it.
pub(crate) fn peak_memory(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a size") * 1024
}

/// The number of descriptors of the daemon, without those of its journal, which it opens on demand.
pub(crate) fn descriptors(daemon: &Daemon) -> usize {
    let open = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).into_iter().flatten();
    let targets = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let is_journal = |target: &Path| target.to_string_lossy().contains("pushd.db");
    targets.filter(|target| !is_journal(target)).count()
}

/// Polls until a condition holds.
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::yield_now();
    }
}
