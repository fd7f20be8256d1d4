//! A real daemon in a temporary home, and a minimal client.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long any operation may take before the benchmark fails.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A temporary home with at most one daemon.
pub(crate) struct Home {
    pub(crate) dir: TempDir,
    /// After how many seconds an idle session is evicted from memory.
    pub(crate) park: &'static str,
    /// Whether the daemon serves Pi on a port, with a rate limit that no measurement reaches.
    pub(crate) pi: bool,
    child: Option<Child>,
}

impl Home {
    /// Creates a home without a daemon.
    pub(crate) fn new() -> Self {
        Self { dir: TempDir::new().expect("a directory"), park: "600", pi: false, child: None }
    }

    /// Creates a home and starts a daemon in it.
    pub(crate) fn with_daemon() -> Self {
        let mut home = Self::new();
        home.start();
        home
    }

    /// Starts the daemon and returns when it is ready.
    pub(crate) fn start(&mut self) {
        let mut arguments = vec!["daemon", "run", "--announce"];
        arguments.extend(self.pi.then_some("--pi=127.0.0.1:0"));
        let mut command = self.push(&arguments);
        command.env("PUSH_PI_COMMANDS", "100000000").env("PUSH_PI_SESSION_COMMANDS", "100000000");
        let mut child = command.spawn().expect("a daemon");
        let mut word = String::new();
        let out = child.stdout.take().expect("its output");
        BufReader::new(out).read_line(&mut word).expect("its first word");
        assert_eq!(word.trim(), "ready");
        self.child = Some(child);
    }

    /// Stops the daemon in order.
    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            self.connect().request("drain", json!({"graceMs": 0}));
            child.wait().expect("its end");
        }
    }

    /// Returns a command of the client with a clean environment.
    pub(crate) fn push(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_push"));
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.dir.path())
            .env("PUSH_PARK_SECONDS", self.park)
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }

    pub(crate) fn connect(&self) -> Client {
        let stream = UnixStream::connect(self.socket()).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a time limit");
        let lines = BufReader::with_capacity(64 * 1024, stream.try_clone().expect("another handle"));
        Client { stream, lines }
    }

    /// Starts a session without subscribers.
    pub(crate) fn session(&self, client: &mut Client) -> String {
        let path = std::env::var("PATH").unwrap_or_default();
        let start = json!({"cwd": self.dir.path(), "environment": {"PATH": path}});
        let session = client.request("start_session", start)["sessionId"].as_str().expect("a session").to_owned();
        client.request("detach_session", json!({"sessionId": session}));
        session
    }

    /// The resident memory of the daemon, in bytes.
    pub(crate) fn memory(&self) -> f64 {
        memory(self.pid())
    }

    /// The peak resident memory of the daemon, in bytes.
    pub(crate) fn peak(&self) -> f64 {
        peak(self.pid())
    }

    /// The number of voluntary context switches of all threads of the daemon.
    pub(crate) fn wake_ups(&self) -> f64 {
        wake_ups(self.pid())
    }

    /// The CPU time of the daemon, in seconds.
    pub(crate) fn processor(&self) -> f64 {
        processor(self.pid())
    }

    fn pid(&self) -> u32 {
        self.child.as_ref().expect("a daemon").id()
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join(".push/run/pushd.sock")
    }
}

/// The resident memory of a process, in bytes.
pub(crate) fn memory(pid: u32) -> f64 {
    figure(&proc(pid, "status"), "VmRSS:") * 1024.0
}

/// The peak resident memory of a process, in bytes.
pub(crate) fn peak(pid: u32) -> f64 {
    figure(&proc(pid, "status"), "VmHWM:") * 1024.0
}

/// The peak resident memory of a process, in bytes; `None` if it has ended.
pub(crate) fn try_peak(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(proc(pid, "status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<f64>().ok()? * 1024.0)
}

/// The number of voluntary context switches of all threads of a process.
pub(crate) fn wake_ups(pid: u32) -> f64 {
    let threads = fs::read_dir(proc(pid, "task")).expect("its threads");
    let statuses = threads.map(|thread| thread.expect("a thread").path().join("status"));
    let switches = |status: PathBuf| figure(&status, "voluntary_ctxt_switches:");
    statuses.map(switches).sum()
}

/// The CPU time of a process, in seconds.
pub(crate) fn processor(pid: u32) -> f64 {
    let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid).expect("a process id")));
    let time = clock_gettime(clock.expect("its clock")).expect("its time");
    Duration::from(time).as_secs_f64()
}

fn proc(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// Reads a number from a `/proc` file with named lines.
fn figure(path: &Path, name: &str) -> f64 {
    let status = fs::read_to_string(path).expect("a state");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a figure");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A connection to the daemon.
pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Client {
    /// Sends a request without waiting for its reply.
    pub(crate) fn send(&mut self, kind: &str, payload: Value) {
        let line = json!({"v": "push.runtime.v1", "kind": "request", "requestId": "req_1", "type": kind,
            "payload": payload});
        self.stream.write_all(format!("{line}\n").as_bytes()).expect("the daemon reads");
    }

    /// Sends a request and returns the payload of the reply.
    pub(crate) fn request(&mut self, kind: &str, payload: Value) -> Value {
        self.send(kind, payload);
        loop {
            let mut line = String::new();
            self.lines.read_line(&mut line).expect("an answer");
            let line: Value = serde_json::from_str(&line).expect("JSON");
            if line["kind"] == "response" {
                assert_eq!(line["ok"], true, "{kind} was refused: {line}");
                return line["payload"].clone();
            }
        }
    }

    /// Waits for an event of a kind.
    pub(crate) fn event(&mut self, kind: &str) -> Value {
        loop {
            let mut line = String::new();
            self.lines.read_line(&mut line).expect("an event");
            let line: Value = serde_json::from_str(&line).expect("JSON");
            assert_ne!(line["ok"], false, "a request was refused: {line}");
            if line["kind"] == "event" && line["type"] == kind {
                return line;
            }
        }
    }

    /// Returns the bare connection.
    pub(crate) fn into_stream(self) -> UnixStream {
        self.stream
    }

    /// Attaches without waiting; the replay follows the reply.
    pub(crate) fn attach(&mut self, session: &str) {
        self.send("attach_session", json!({"sessionId": session}));
    }
}
