//! A temporary home directory, the programs in it, and a guarantee that no daemon outlives its test.
#![allow(dead_code, reason = "not every test uses everything")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// The longest wait before a test fails.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A home directory; dropping it stops its daemon.
pub(crate) struct Home {
    directory: TempDir,
    variables: Vec<(String, String)>,
}

/// The exit code and output of a program.
#[derive(Debug)]
pub(crate) struct ProgramOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// A home in which programs get these extra variables.
    pub(crate) fn with(variables: &[(&str, &str)]) -> Self {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Self { directory: TempDir::new().expect("a home"), variables }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A path below `~/.push`.
    pub(crate) fn push_path(&self, below: &str) -> PathBuf {
        self.path().join(".push").join(below)
    }

    /// Writes a file in the home.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).expect("a file");
    }

    /// The text of a file in the home; empty when it does not exist.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path().join(name)).unwrap_or_default()
    }

    /// `push` with these arguments, in the home, without the environment of the test.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        self.program(env!("CARGO_BIN_EXE_push"), words)
    }

    /// Any program, likewise.
    pub(crate) fn program(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(words)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path())
            .envs(self.variables.iter().cloned())
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs `push` to its end.
    pub(crate) fn push(&self, words: &[&str]) -> ProgramOutput {
        Running::start(self.command(words)).wait_for_output()
    }

    /// Runs `push`, which must succeed, and returns its output.
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let output = self.push(words);
        assert_eq!(output.code, Some(0), "push {words:?}: {output:?}");
        output.out
    }

    /// Runs `push`, which must succeed and print one JSON object.
    pub(crate) fn json(&self, words: &[&str]) -> Value {
        self.push(words).json()
    }

    /// Runs `push` with something on its standard input.
    pub(crate) fn push_with_input(&self, words: &[&str], input: &str) -> ProgramOutput {
        self.push_with(words, &[], input)
    }

    /// The same with extra variables.
    pub(crate) fn push_with(&self, words: &[&str], variables: &[(&str, &str)], input: &str) -> ProgramOutput {
        let mut command = self.command(words);
        command.stdin(Stdio::piped()).envs(variables.iter().copied());
        let mut running = Running::start(command);
        running.feed(input);
        running.wait_for_output()
    }

    /// Starts `push` without waiting for its end.
    pub(crate) fn start(&self, words: &[&str]) -> Running {
        Running::start(self.command(words))
    }

    /// Starts a detached run, and returns its session.
    pub(crate) fn start_detached(&self, message: &str) -> String {
        let ids = self.json(&["run", "--detach", "--json", message]);
        ids["sessionId"].as_str().expect("a session").to_owned()
    }

    /// The pid of the daemon, from its pid file.
    pub(crate) fn daemon(&self) -> Option<i32> {
        fs::read_to_string(self.push_path("run/pushd.pid")).ok()?.trim().parse().ok()
    }

    /// The pid of the daemon, which must be running.
    pub(crate) fn daemon_pid(&self) -> i32 {
        self.daemon().expect("a daemon's pid file")
    }

    /// Kills the daemon with SIGKILL, and waits until it is gone.
    pub(crate) fn kill_daemon(&self) {
        let pid = self.daemon_pid();
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("the daemon is killed");
        wait_until("the daemon to be gone", || !is_alive(pid));
    }

    /// Waits for the text of a file in the home.
    pub(crate) fn wait_for_text(&self, name: &str, text: &str) {
        wait_until(&format!("{text:?} in {name}"), || self.read(name).contains(text));
    }

    /// Waits for a session to be in a state.
    pub(crate) fn wait_for_state(&self, session: &str, state: &str) {
        wait_until(&format!("{session} to be {state}"), || self.json(&["show", session, "--json"])["state"] == state);
    }

    /// Waits for an approval and returns its id.
    pub(crate) fn wait_for_approval(&self) -> String {
        let mut id = String::new();
        wait_until("an approval", || {
            let waiting = self.json(&["approvals", "--json"]);
            id = waiting["approvals"][0]["approvalId"].as_str().unwrap_or_default().to_owned();
            !id.is_empty()
        });
        id
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let Some(pid) = self.daemon() else { return };
        let _ = Running::start(self.command(&["daemon", "stop", "--force"])).wait_for_output();
        if is_alive(pid) && is_a_daemon(pid) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        if !thread::panicking() {
            assert!(!is_alive(pid), "the daemon {pid} outlived its test");
        }
    }
}

impl ProgramOutput {
    /// The standard output, which must be one JSON object.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.out.matches('\n').count(), 1, "not one line: {self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The events that were printed, each of which must be a valid line of the protocol.
    pub(crate) fn events(&self) -> Vec<Value> {
        let event = |line: &str| {
            super::schemas::check_line(line);
            serde_json::from_str(line).expect("JSON")
        };
        self.out.lines().map(event).collect()
    }
}

/// A running program; dropping it kills it.
pub(crate) struct Running {
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
    read: String,
    read_err: String,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().expect("a program");
        let out = child.stdout.take().map_or_else(silence, lines);
        let err = child.stderr.take().map_or_else(silence, lines);
        Self { child, out, err, read: String::new(), read_err: String::new() }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("a signal");
    }

    /// Writes its standard input and closes it.
    pub(crate) fn feed(&mut self, input: &str) {
        let mut stdin = self.child.stdin.take().expect("a standard input");
        // A program that does not read its input may have exited.
        let _ = stdin.write_all(input.as_bytes());
    }

    /// Reads its output until a line has this text, and returns that line.
    pub(crate) fn wait_for_line(&mut self, text: &str) -> String {
        loop {
            let Ok(line) = self.out.recv_timeout(TIMEOUT) else {
                panic!("no {text:?} in {:?} {:?}", self.read, self.err.try_iter().collect::<String>());
            };
            self.read.push_str(&line);
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Reads its standard error until a line has this text.
    pub(crate) fn wait_for_error_line(&mut self, text: &str) {
        loop {
            let Ok(line) = self.err.recv_timeout(TIMEOUT) else {
                panic!("no {text:?} in {:?} {:?}", self.read_err, self.read);
            };
            self.read_err.push_str(&line);
            if line.contains(text) {
                return;
            }
        }
    }

    /// Waits for its end and returns all its output.
    pub(crate) fn wait_for_output(mut self) -> ProgramOutput {
        let mut status = None;
        wait_until("a program to end", || {
            self.read.extend(self.out.try_iter());
            status = self.child.try_wait().expect("its end");
            status.is_some()
        });
        // The readers see the end of the pipes now, unless another process holds them.
        while let Ok(line) = self.out.recv_timeout(TIMEOUT) {
            self.read.push_str(&line);
        }
        let code = status.and_then(|status| status.code());
        self.read_err.extend(self.err.iter());
        ProgramOutput { code, out: std::mem::take(&mut self.read), err: std::mem::take(&mut self.read_err) }
    }
}

/// Reads a stream line by line in a separate thread.
fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while stream.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            if send.send(String::from_utf8_lossy(&std::mem::take(&mut line)).into_owned()).is_err() {
                return;
            }
        }
    });
    receive
}

fn silence() -> Receiver<String> {
    mpsc::channel().1
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The interval between checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(POLL_INTERVAL);
    }
}

/// Whether a process exists and is not a zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    let listed = kill(Pid::from_raw(pid), None).is_ok();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ended = stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']));
    listed && !ended
}

fn is_a_daemon(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains("daemon"))
}
