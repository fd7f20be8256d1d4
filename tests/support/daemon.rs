//! A real daemon with its own home, and a client that validates every line against the schemas.
#![allow(dead_code, reason = "not every test uses everything")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::schemas;

/// The longest wait for anything.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// A daemon that is killed at the end of its test.
pub(crate) struct Daemon {
    pub(crate) home: TempDir,
    variables: Vec<(String, String)>,
    /// Arguments in addition to the default ones.
    arguments: Vec<String>,
    /// The command that executes the daemon; empty for none.
    launcher: Vec<String>,
    child: Option<Child>,
}

impl Daemon {
    /// Starts a daemon with a fresh home.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a daemon with a fresh home and these variables.
    pub(crate) fn start_with(variables: &[(&str, &str)]) -> Self {
        Self::start_in(TempDir::new().expect("a directory for the daemon"), variables, &[])
    }

    /// Starts a daemon in a home that may already have files, with these variables and arguments.
    pub(crate) fn start_in(home: TempDir, variables: &[(&str, &str)], arguments: &[&str]) -> Self {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let launcher = Vec::new();
        let mut daemon = Self { home, variables, arguments, launcher, child: None };
        daemon.restart();
        daemon
    }

    /// Starts a daemon with a fresh home by a command that executes it.
    pub(crate) fn start_with_launcher(command: &[&str]) -> Self {
        let home = TempDir::new().expect("a directory for the daemon");
        let launcher = command.iter().map(|word| (*word).to_owned()).collect();
        let (variables, arguments) = (Vec::new(), Vec::new());
        let mut daemon = Self { home, variables, arguments, launcher, child: None };
        daemon.restart();
        daemon
    }

    /// Starts the daemon again in the same home; it may have been killed a moment ago.
    pub(crate) fn restart(&mut self) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let mut child = self.daemon_command().spawn().expect("a daemon");
            let out = child.stdout.take().expect("its output");
            let mut word = String::new();
            BufReader::new(out).read_line(&mut word).expect("its first line");
            if word.trim() == "ready" {
                self.child = Some(child);
                return;
            }
            // A process of the previous daemon may hold its lock between fork and exec.
            let ended = child.wait().expect("its end");
            let mut words = String::new();
            let _ = child.stderr.take().expect("its words").read_to_string(&mut words);
            assert!(word.trim() == "in-use" && Instant::now() < deadline, "no daemon: {word} {words} {ended}");
        }
    }

    fn daemon_command(&self) -> Command {
        let fixed = ["daemon", "run", "--announce"].map(str::to_owned);
        let arguments: Vec<&String> = fixed.iter().chain(&self.arguments).collect();
        let Some((program, words)) = self.launcher.split_first() else {
            let mut command = self.command("push");
            command.args(arguments);
            return command;
        };
        let mut command = self.with_environment(Command::new(program));
        command.args(words).arg(env!("CARGO_BIN_EXE_push")).args(arguments);
        command
    }

    /// One of our programs in the daemon's environment, without the environment of the test.
    pub(crate) fn command(&self, program: &str) -> Command {
        let path = match program {
            "pushd" => env!("CARGO_BIN_EXE_pushd"),
            _ => env!("CARGO_BIN_EXE_push"),
        };
        self.with_environment(Command::new(path))
    }

    fn with_environment(&self, mut command: Command) -> Command {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home.path())
            .envs(self.variables.iter().cloned())
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("a running daemon").id()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.home.path().join(".push/run/pushd.sock")
    }

    /// The working directory of sessions.
    pub(crate) fn cwd(&self) -> &Path {
        self.home.path()
    }

    /// Kills the daemon with `SIGKILL`.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("the daemon is killed");
            child.wait().expect("the daemon is gone");
        }
    }

    /// Waits for the exit of a daemon that was asked to stop.
    pub(crate) fn ended(&mut self) -> std::process::ExitStatus {
        self.child.take().expect("a running daemon").wait().expect("the daemon is gone")
    }

    /// Asks the daemon to stop and waits until it has.
    pub(crate) fn stop(&mut self) {
        let pid = i32::try_from(self.pid()).expect("a process id");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("the daemon is asked");
        assert!(self.ended().success(), "the daemon did not end well");
    }

    /// The path of the journal's database.
    pub(crate) fn database(&self) -> PathBuf {
        self.home.path().join(".push/state/pushd.db")
    }

    /// The contents of the daemon's logs.
    pub(crate) fn log(&self) -> String {
        let files = std::fs::read_dir(self.home.path().join(".push/logs")).expect("the logs");
        let text = |file: std::fs::DirEntry| std::fs::read_to_string(file.path()).unwrap_or_default();
        files.flatten().map(text).collect()
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(&self.socket())
    }

    /// A client with a session whose directory is the daemon's home.
    pub(crate) fn session(&self) -> (Client, String) {
        let mut client = self.connect();
        let session = client.start(self.cwd());
        (client, session)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A client on the real socket.
pub(crate) struct Client {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
    /// Events that arrived while the client waited for a reply.
    pub(crate) events: VecDeque<Value>,
    requests: u64,
}

impl Client {
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a time limit");
        let lines = BufReader::new(stream.try_clone().expect("another handle"));
        Self { stream, lines, events: VecDeque::new(), requests: 0 }
    }

    /// Sends bytes unchanged.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the daemon reads");
    }

    /// Reads all remaining bytes until the daemon closes the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.lines.read_to_end(&mut bytes).expect("the daemon closes the connection");
        bytes
    }

    /// Closes the sending side; replies can still be read.
    pub(crate) fn close_write(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("the connection is there");
    }

    /// Sends a request and returns its id.
    pub(crate) fn send(&mut self, kind: &str, payload: Value) -> String {
        self.requests += 1;
        let id = format!("req_{}", self.requests);
        let line = json!({"v": "push.runtime.v1", "kind": "request", "requestId": id, "type": kind,
            "payload": payload})
        .to_string();
        schemas::check_line(&line);
        self.send_raw(format!("{line}\n").as_bytes());
        id
    }

    /// Reads the next line; `None` when the daemon has closed the connection.
    pub(crate) fn try_next(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) if !line.ends_with('\n') => None,
            Ok(_) => {
                schemas::check_line(line.trim_end());
                Some(serde_json::from_str(&line).expect("JSON"))
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
            Err(error) => panic!("nothing came: {error}"),
        }
    }

    pub(crate) fn next(&mut self) -> Value {
        self.try_next().expect("the daemon has closed the connection")
    }

    /// Waits for the reply to a request; events before it are kept.
    pub(crate) fn answer(&mut self, request: &str) -> Value {
        loop {
            let line = self.next();
            if line["kind"] == "response" {
                assert_eq!(line["requestId"], request, "an answer to something else: {line}");
                return line;
            }
            self.events.push_back(line);
        }
    }

    /// Sends a request and returns the whole reply.
    pub(crate) fn ask(&mut self, kind: &str, payload: Value) -> Value {
        let request = self.send(kind, payload);
        self.answer(&request)
    }

    /// Sends a request that must succeed and returns the payload.
    pub(crate) fn get(&mut self, kind: &str, payload: Value) -> Value {
        let answer = self.ask(kind, payload);
        assert_eq!(answer["ok"], true, "{kind} was refused: {answer}");
        answer["payload"].clone()
    }

    /// Sends a request that must be refused and returns the code.
    pub(crate) fn refused(&mut self, kind: &str, payload: Value) -> String {
        let answer = self.ask(kind, payload);
        assert_eq!(answer["ok"], false, "{kind} was granted: {answer}");
        answer["error"]["code"].as_str().expect("a code").to_owned()
    }

    pub(crate) fn start(&mut self, cwd: &Path) -> String {
        let payload = json!({"cwd": cwd, "environment": {"PATH": std::env::var("PATH").unwrap_or_default()}});
        self.get("start_session", payload)["sessionId"].as_str().expect("a session").to_owned()
    }

    /// Starts a run and returns its id.
    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> String {
        let payload = json!({"sessionId": session, "text": text});
        self.get("send_user_message", payload)["runId"].as_str().expect("a run").to_owned()
    }

    /// Attaches after a position and returns the payload of the reply.
    pub(crate) fn attach(&mut self, session: &str, seen: u64) -> Value {
        self.get("attach_session", json!({"sessionId": session, "lastSeenSeq": seen}))
    }

    /// Decides the approval of an `approval_required` event and returns the whole reply.
    pub(crate) fn decide(&mut self, request: &Value, decision: &str) -> Value {
        let approval = &request["payload"]["approvalId"];
        let payload = json!({"sessionId": request["sessionId"], "approvalId": approval, "decision": decision});
        self.ask("submit_approval", payload)
    }

    /// Checks that the connection works.
    pub(crate) fn ping(&mut self) {
        assert_eq!(self.get("ping", json!({}))["pong"], true);
    }

    /// Returns the next event.
    pub(crate) fn event(&mut self) -> Value {
        self.events.pop_front().unwrap_or_else(|| self.next())
    }

    /// Returns the next event of a type; those before it are dropped.
    pub(crate) fn event_of(&mut self, kind: &str) -> Value {
        loop {
            let event = self.event();
            if event["type"] == kind {
                return event;
            }
        }
    }

    /// Returns all events up to the next one of a type, which is the last.
    pub(crate) fn events_until(&mut self, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.event();
            let last = event["type"] == kind;
            events.push(event);
            if last {
                return events;
            }
        }
    }

    /// Runs a message to its end and returns the payload of `run_complete`.
    pub(crate) fn run(&mut self, session: &str, text: &str) -> Value {
        self.prompt(session, text);
        self.event_of("run_complete")["payload"].clone()
    }
}

/// The types of events, in order.
pub(crate) fn types(events: &[Value]) -> Vec<String> {
    events.iter().map(|event| event["type"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The position of an event.
pub(crate) fn seq(event: &Value) -> u64 {
    event["seq"].as_u64().expect("a number")
}

/// Polls until a condition holds that no event announces.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "it never came to be that {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
