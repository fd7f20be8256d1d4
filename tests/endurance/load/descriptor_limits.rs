//! Descriptors: the daemon raises its limit, gives steps the original limit, and survives exhaustion.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::json;
use tempfile::TempDir;

use crate::load::listener::{TIMEOUT, request, wait_for};
use crate::support::daemon::Client;

#[test]
fn the_daemon_raises_its_descriptor_limit_and_a_step_gets_the_original_one() {
    let daemon = LimitedDaemon::start(200, 400);
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.child.id())).unwrap_or_default();
    // The table exists on Linux only; the step reports the limit on every system.
    if let Some(line) = limits.lines().find(|line| line.starts_with("Max open files")) {
        let numbers: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
        assert_eq!(numbers, ["400", "400"], "{line}");
    }
    let (mut client, session) = daemon.session();
    client.prompt(&session, "$ ulimit -Sn; ulimit -Hn\n");
    assert_eq!(client.event_of("tool_result")["payload"]["text"], "200\n400\n");
}

#[test]
fn connections_cannot_take_the_descriptors_that_runs_need() {
    let daemon = LimitedDaemon::start(128, 128);
    let (mut client, session) = daemon.session();
    let mut connections = Vec::new();
    let refused = (0..128).find(|_| match daemon.try_connect() {
        Some(stream) => {
            connections.push(stream);
            false
        }
        None => true,
    });
    assert!(refused.is_some() && connections.len() > 30, "{} clients were accepted", connections.len());
    client.ping();
    for _ in 0..5 {
        assert_eq!(client.run(&session, "$ ls /proc/self/fd | wc -l\n")["outcome"], "success");
    }
    drop(connections.pop());
    wait_for("a connection to be accepted", || daemon.try_connect().is_some());
    drop(connections);
    let (mut new, session) = wait_for_session(&daemon);
    assert_eq!(new.run(&session, "$ true\n")["outcome"], "success");
}

#[test]
fn descriptor_exhaustion_fails_only_the_run_that_needs_one() {
    let daemon = LimitedDaemon::start(48, 48);
    let (mut client, session) = daemon.session();
    let mut sessions = Vec::new();
    let mut failed = 0;
    // Each run holds some descriptors for as long as its step runs.
    for _ in 0..40 {
        let id = client.start(daemon.home.path());
        client.prompt(&id, "$ echo begun; sleep 1000\n");
        let event = loop {
            let event = client.event();
            let begun = event["type"] == "tool_output";
            if event["sessionId"] == json!(id) && (begun || event["type"] == "run_complete") {
                break event;
            }
        };
        if event["type"] == "run_complete" {
            assert_eq!(event["payload"]["outcome"], "failed", "{event}");
            failed += 1;
        } else {
            sessions.push(id);
        }
        if failed > 3 {
            break;
        }
    }
    assert!(failed > 0 && !sessions.is_empty(), "{failed} failed, {} run", sessions.len());
    // A new client may get a reply or not; the daemon and its existing clients continue either way.
    let waiting: Vec<_> = (0..20).filter_map(|_| UnixStream::connect(daemon.socket()).ok()).collect();
    client.ping();
    for id in &sessions {
        client.get("cancel_run", json!({"sessionId": id}));
        while client.event_of("run_complete")["sessionId"] != json!(id) {}
    }
    drop(waiting);
    assert_eq!(client.run(&session, "$ true\n")["outcome"], "success");
    let (mut new, session) = wait_for_session(&daemon);
    assert_eq!(new.run(&session, "$ true\n")["outcome"], "success");
}

/// A daemon with few descriptors, which is killed at the end of its test.
struct LimitedDaemon {
    home: TempDir,
    child: Child,
}

impl LimitedDaemon {
    /// Starts a daemon with a soft limit of `soft` descriptors and a hard limit of `hard`.
    fn start(soft: u32, hard: u32) -> Self {
        let home = TempDir::new().expect("a directory for the daemon");
        let script = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" daemon run --announce");
        let mut child = Command::new("/bin/sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_push")])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a daemon");
        let mut word = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut word).expect("its first line");
        let daemon = Self { home, child };
        assert_eq!(word.trim(), "ready");
        daemon
    }

    fn socket(&self) -> PathBuf {
        self.home.path().join(".push/run/pushd.sock")
    }

    fn session(&self) -> (Client, String) {
        let mut client = Client::connect(&self.socket());
        let session = client.start(self.home.path());
        (client, session)
    }

    /// Connects and gets a reply, or is rejected.
    fn try_connect(&self) -> Option<UnixStream> {
        let mut stream = UnixStream::connect(self.socket()).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).expect("a time limit");
        // A rejected client may be disconnected before it has sent anything.
        stream.write_all(request("hello", &json!({})).as_bytes()).ok()?;
        let mut first = [0];
        match stream.read(&mut first) {
            Ok(1) => Some(stream),
            Ok(_) => None,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
            Err(error) => panic!("neither let in nor turned away: {error}"),
        }
    }
}

impl Drop for LimitedDaemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A new client with a session, as soon as descriptors are free.
fn wait_for_session(daemon: &LimitedDaemon) -> (Client, String) {
    wait_for("room for a new client", || daemon.try_connect().is_some());
    daemon.session()
}
