//! A full disk and a failing disk under a real daemon: no acknowledged event is lost, runs can be ended, and every
//! client is told.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::daemon::{Client, Daemon, seq, wait_until};
use crate::support::skip::skip;
use crate::support::websocket;

const TICKS: &str = "$ until [ -e go ]; do echo tick; sleep 0.005; done\n";

#[test]
fn a_full_disk_is_survived() {
    let Some(mut daemon) = on_a_small_disk() else { return };
    let (mut running, run) = daemon.session();
    running.prompt(&run, TICKS);
    let mut events = running.events_until("tool_output");
    let (mut waiting, gate) = daemon.session();
    waiting.prompt(&gate, "$? echo asked\n");
    let approval = waiting.event_of("approval_required");
    let (mut idle, session) = daemon.session();
    idle.run(&session, "$ true\n");

    fill(&daemon);
    wait_until("a message is refused", || refusal(&mut idle, &session).as_deref() == Some("STORAGE_FULL"));
    assert_eq!(idle.refused("start_session", json!({"cwd": daemon.cwd()})), "STORAGE_FULL");
    assert_eq!(idle.refused("rename_session", json!({"sessionId": session, "name": "x"})), "STORAGE_FULL");
    assert_eq!(waiting.decide(&approval, "approve")["error"]["code"], "STORAGE_FULL");
    // Reads keep working, also in a session whose run waits for disk space.
    idle.ping();
    assert_eq!(idle.get("get_session_snapshot", json!({"sessionId": run}))["state"], "running");
    let mut watcher = daemon.connect();
    assert_eq!(watcher.attach(&run, 0)["replay"]["gap"], false);
    assert_eq!(seq(&watcher.event()), 1);
    assert_eq!(idle.get("list_sessions", json!({}))["sessions"].as_array().map(Vec::len), Some(3));
    // Requests that end something use the reserve.
    assert_eq!(waiting.decide(&approval, "deny")["ok"], true);
    assert_eq!(waiting.event_of("run_complete")["payload"]["outcome"], "denied");
    running.get("cancel_run", json!({"sessionId": run}));
    events.extend(running.events_until("run_complete"));
    assert_eq!(events.last().map(|event| event["payload"]["outcome"].clone()), Some(json!("cancelled")));

    free_space(&daemon);
    wait_until("a message is taken again", || refusal(&mut idle, &session).is_none());
    assert_eq!(idle.event_of("run_complete")["payload"]["outcome"], "success");
    daemon.stop();
}

#[test]
fn a_run_end_that_does_not_fit_waits_for_disk_space() {
    let Some(daemon) = on_a_small_disk() else { return };
    let (mut client, session) = daemon.session();
    client.prompt(&session, TICKS);
    client.events_until("tool_output");
    fs::File::options()
        .write(true)
        .open(state(&daemon).join("pushd.spare"))
        .and_then(|spare| spare.set_len(0))
        .expect("no spare room");
    fill(&daemon);
    let mut other = daemon.connect();
    wait_until("the disk is seen to be full", || {
        other.ask("start_session", json!({"cwd": daemon.cwd()}))["error"]["code"] == "STORAGE_FULL"
    });
    client.send("cancel_run", json!({"sessionId": session}));
    (0..500).for_each(|_| other.ping());
    let log = daemon.log();
    let tries = log.lines().filter(|line| line.contains("a commit failed")).count();
    assert!(tries < 50, "it was tried {tries} times");
    free_space(&daemon);
    let events = client.events_until("run_complete");
    assert_eq!(events.last().map(|event| event["payload"]["outcome"].clone()), Some(json!("cancelled")));
}

#[test]
fn a_run_that_waited_for_disk_space_continues_without_loss() {
    let Some(daemon) = on_a_small_disk() else { return };
    let (mut client, session) = daemon.session();
    client.prompt(&session, "$ until [ -e full ]; do sleep 0.01; done; seq 1 4000; touch through\n");
    client.events_until("tool_call");
    fill(&daemon);
    fs::write(daemon.cwd().join("full"), "").expect("a word to the step");
    let mut other = daemon.connect();
    wait_until("the disk is seen to be full", || {
        other.ask("start_session", json!({"cwd": daemon.cwd()}))["error"]["code"] == "STORAGE_FULL"
    });
    free_space(&daemon);
    let events = client.events_until("run_complete");
    assert_eq!(events.last().map(|event| event["payload"]["outcome"].clone()), Some(json!("success")));
    let printed: String = events
        .iter()
        .filter(|event| event["type"] == "tool_output")
        .filter_map(|event| event["payload"]["text"].as_str())
        .collect();
    let expected: String = (1..=4000).map(|number| format!("{number}\n")).collect();
    assert_eq!(printed, expected);
}

#[test]
fn a_daemon_on_a_full_disk_can_be_stopped_and_restarted() {
    let Some(mut daemon) = on_a_small_disk() else { return };
    let (mut client, session) = daemon.session();
    assert_eq!(client.run(&session, "$ echo kept\n")["outcome"], "success");
    let newest = client.attach(&session, 0)["replay"]["toSeq"].clone();
    fill(&daemon);
    wait_until("a message is refused", || refusal(&mut client, &session).as_deref() == Some("STORAGE_FULL"));
    let copy = daemon.home.path().join("copy");
    // The small disk disappears with the daemon, so its files are copied while it runs.
    free_space(&daemon);
    fill(&daemon);
    copy_state(&daemon, &copy);
    daemon.stop();
    let mut next = Daemon::start();
    next.stop();
    for file in fs::read_dir(&copy).expect("the copy").flatten() {
        fs::copy(file.path(), next.home.path().join(".push/state").join(file.file_name())).expect("a file");
    }
    next.restart();
    let mut client = next.connect();
    let attached = client.attach(&session, 0);
    assert!(attached["replay"]["toSeq"].as_u64() >= newest.as_u64(), "{attached}");
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
}

#[test]
fn after_a_failed_sync_nothing_is_accepted_until_a_restart() {
    let Some((mut daemon, disk)) = on_a_failing_disk() else { return };
    let (mut running, run) = daemon.session();
    running.prompt(&run, TICKS);
    running.events_until("tool_output");
    let (mut waiting, gate) = daemon.session();
    waiting.prompt(&gate, "$? echo asked\n");
    let approval = waiting.event_of("approval_required");
    let (mut idle, session) = daemon.session();
    idle.run(&session, "$ true\n");

    disk.fail();
    wait_until("a message is refused", || refusal(&mut idle, &session).as_deref() == Some("STORAGE_FAILED"));
    disk.recover();
    assert_eq!(refusal(&mut idle, &session).as_deref(), Some("STORAGE_FAILED"), "it was tried again in hope");
    assert_eq!(idle.refused("start_session", json!({"cwd": daemon.cwd()})), "STORAGE_FAILED");
    // The active run ends with the reason; the waiting approval can be denied, and not approved.
    let ended = running.events_until("run_complete");
    assert!(ended.iter().any(|event| event["payload"]["code"] == "STORAGE_FAILED"), "{ended:?}");
    assert_eq!(ended.last().map(|event| event["payload"]["reason"].clone()), Some(json!("storage_failed")));
    assert_eq!(waiting.decide(&approval, "approve")["error"]["code"], "STORAGE_FAILED");
    assert_eq!(waiting.decide(&approval, "deny")["ok"], true);
    assert_eq!(waiting.event_of("run_complete")["payload"]["outcome"], "denied");
    let mut reader = daemon.connect();
    assert_eq!(reader.attach(&session, 0)["replay"]["gap"], false);
    assert_eq!(reader.event_of("run_complete")["payload"]["outcome"], "success");
    assert_eq!(reader.get("list_sessions", json!({}))["sessions"].as_array().map(Vec::len), Some(3));

    daemon.kill();
    daemon.restart();
    let mut client = daemon.connect();
    // Published events that could not be stored are a gap for the clients that saw them.
    let seen = ended.last().map(seq).expect("an event");
    assert_eq!(client.attach(&run, seen)["replay"]["gap"], true);
    // The message during the failure may have been stored: then its run ends before the next one starts.
    client.attach(&session, 0);
    wait_until("a message is taken again", || refusal(&mut client, &session).is_none());
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
}

#[test]
fn a_cancel_after_a_failed_sync_ends_the_processes() {
    let Some((daemon, disk)) = on_a_failing_disk() else { return };
    let (mut client, session) = daemon.session();
    client.prompt(&session, "$ echo $$ > pid; echo begun; exec sleep 1000\n");
    client.event_of("tool_output");
    let pid = fs::read_to_string(daemon.cwd().join("pid")).expect("the step's process").trim().to_owned();
    disk.fail();
    let answer = client.ask("cancel_run", json!({"sessionId": session}));
    assert!(answer["ok"] == true || answer["error"]["code"] == "STORAGE_FAILED", "{answer}");
    client.event_of("run_complete");
    wait_until("the process is gone", || !Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn an_abort_works_when_nothing_can_be_written() {
    let Some((daemon, disk)) = on_a_failing_disk_with(&["--pi=127.0.0.1:0"]) else { return };
    let (mut push, other) = daemon.session();
    let mut pi = PiClient::connect(&daemon);
    let cwd = daemon.cwd();
    let created = pi.ask(&json!({"id": "1", "type": "create_session", "sessionId": "s1", "cwd": cwd}));
    assert_eq!(created["success"], true, "{created}");
    let message = "$ echo $$ > pid; exec sleep 1000\n";
    let prompted = pi.ask(&json!({"id": "2", "type": "prompt", "sessionId": "s1", "message": message}));
    assert_eq!(prompted["success"], true, "{prompted}");
    let pid = || fs::read_to_string(daemon.cwd().join("pid")).unwrap_or_default().trim().to_owned();
    wait_until("the step runs", || !pid().is_empty());
    disk.fail();
    let rename = json!({"sessionId": other, "name": "unkept"});
    wait_until("the disk is seen to fail", || {
        push.ask("rename_session", rename.clone())["error"]["code"] == "STORAGE_FAILED"
    });
    let aborted = pi.ask(&json!({"id": "3", "type": "abort", "sessionId": "s1"}));
    assert_eq!(aborted["success"], true, "{aborted}");
    wait_until("the process is gone", || !Path::new(&format!("/proc/{}", pid())).exists());
    // Aborting a user command, a retry wait or a compaction works too, whether there is one or not.
    for (id, kind) in [("4", "abort_bash"), ("5", "abort_retry"), ("6", "abort_compaction")] {
        let aborted = pi.ask(&json!({"id": id, "type": kind, "sessionId": "s1"}));
        assert_eq!(aborted["success"], true, "{aborted}");
    }
    let refused = pi.ask(&json!({"id": "7", "type": "prompt", "sessionId": "s1", "message": "$ true\n"}));
    assert_eq!(refused["success"], false, "{refused}");
}

#[test]
fn on_a_full_disk_pi_aborts_and_dismisses_and_grants_nothing() {
    let Some(daemon) = on_a_small_disk_with(&["--pi=127.0.0.1:0"]) else { return };
    let (mut push, other) = daemon.session();
    let mut pi = PiClient::connect(&daemon);
    let step = "$ echo $$ > pid; exec sleep 1000\n";
    for (session, message) in [("running", step), ("asking", "$? touch granted\n")] {
        let create = json!({"id": session, "type": "create_session", "sessionId": session, "cwd": daemon.cwd()});
        assert_eq!(pi.ask(&create)["success"], true);
        let prompt = json!({"id": message, "type": "prompt", "sessionId": session, "message": message});
        assert_eq!(pi.ask(&prompt)["success"], true);
    }
    let request = pi.event("asking", "extension_ui_request")["requestId"].clone();
    let pid = || fs::read_to_string(daemon.cwd().join("pid")).unwrap_or_default().trim().to_owned();
    wait_until("the step runs", || !pid().is_empty());
    fill(&daemon);
    let rename = json!({"sessionId": other, "name": "x"});
    wait_until("the disk is seen to be full", || {
        push.ask("rename_session", rename.clone())["error"]["code"] == "STORAGE_FULL"
    });
    let answer = |id: &str, response: Value| {
        json!({"id": id, "type": "extension_ui_response", "sessionId": "asking", "requestId": request,
            "response": response})
    };
    let refused = pi.ask(&answer("grant", json!({"method": "confirm", "confirmed": true})));
    assert_eq!(refused["success"], false, "{refused}");
    assert!(refused["error"].as_str().is_some_and(|error| error.contains("the disk is full")), "{refused}");
    // A full disk alone ends no step: the step runs until it is aborted.
    let process = PathBuf::from(format!("/proc/{}", pid()));
    assert!(process.exists(), "the step has ended");
    let aborted = pi.ask(&json!({"id": "abort", "type": "abort", "sessionId": "running"}));
    assert_eq!(aborted["success"], true, "{aborted}");
    wait_until("the process is gone", || !process.exists());
    let dismissed = pi.ask(&answer("dismiss", json!({"method": "cancelled"})));
    assert_eq!(dismissed["success"], true, "{dismissed}");
    pi.event("asking", "agent_end");
    assert!(!daemon.cwd().join("granted").exists());
}

#[test]
fn a_pi_abort_is_done_while_a_sync_is_held() {
    let Some((daemon, disk)) = on_a_failing_disk_with(&["--pi=127.0.0.1:0"]) else { return };
    let (mut push, other) = daemon.session();
    let mut pi = PiClient::connect(&daemon);
    let create = json!({"id": "1", "type": "create_session", "sessionId": "s1", "cwd": daemon.cwd()});
    assert_eq!(pi.ask(&create)["success"], true);
    let message = "$ echo $$ > pid; exec sleep 1000\n";
    let prompt = json!({"id": "2", "type": "prompt", "sessionId": "s1", "message": message});
    assert_eq!(pi.ask(&prompt)["success"], true);
    let pid = || fs::read_to_string(daemon.cwd().join("pid")).unwrap_or_default().trim().to_owned();
    wait_until("the step runs", || !pid().is_empty());
    let process = PathBuf::from(format!("/proc/{}", pid()));
    disk.hold();
    push.send("rename_session", json!({"sessionId": other, "name": "held"}));
    wait_until("a sync is held", || disk.is_held());
    pi.send(&json!({"id": "3", "type": "abort", "sessionId": "s1"}));
    wait_until("the process is gone", || !process.exists());
    disk.release();
    assert_eq!(pi.answer("3")["success"], true);
}

/// A client of the Pi protocol.
struct PiClient {
    sender: websocket::FrameSender,
    receiver: websocket::FrameReceiver,
    /// Events that arrived while the client waited for a reply.
    events: Vec<Value>,
}

impl PiClient {
    fn connect(daemon: &Daemon) -> Self {
        let at = daemon.connect().get("get_metrics", json!({}))["pi"].clone();
        let at = at.as_str().and_then(|at| at.parse().ok()).expect("an address");
        let (sender, receiver) = websocket::open(at).expect("a connection");
        Self { sender, receiver, events: Vec::new() }
    }

    /// Sends a command and returns its reply.
    fn ask(&mut self, command: &Value) -> Value {
        self.send(command);
        self.answer(command["id"].as_str().expect("an id"))
    }

    fn send(&mut self, command: &Value) {
        self.sender.send_text(&command.to_string()).expect("the daemon reads");
    }

    /// Returns the reply to a command.
    fn answer(&mut self, id: &str) -> Value {
        loop {
            let received = self.read();
            if received["type"] == "response" && received["id"] == id {
                return received;
            }
            self.events.push(received);
        }
    }

    /// Returns the next event of a type in a session.
    fn event(&mut self, session: &str, kind: &str) -> Value {
        let is_it = |line: &Value| line["sessionId"] == session && line["event"]["type"] == kind;
        if let Some(at) = self.events.iter().position(is_it) {
            return self.events.remove(at)["event"].clone();
        }
        loop {
            let received = self.read();
            if is_it(&received) {
                return received["event"].clone();
            }
        }
    }

    fn read(&mut self) -> Value {
        let mut message = Vec::new();
        assert!(self.receiver.read_message(&mut message).expect("a message"), "the connection is over");
        serde_json::from_slice(&message).expect("JSON")
    }
}

/// Sends a message and returns why it was refused, if it was.
fn refusal(client: &mut Client, session: &str) -> Option<String> {
    let answer = client.ask("send_user_message", json!({"sessionId": session, "text": "$ true\n"}));
    match answer["error"]["code"].as_str() {
        // Accepted: its run ends before the next message is sent.
        None => {
            if answer["ok"] == true {
                client.events.clear();
            }
            None
        }
        Some("RUN_IN_PROGRESS") => Some("RUN_IN_PROGRESS".into()),
        Some(code) => Some(code.to_owned()),
    }
}

/// A daemon whose state lies on a file system of a few megabytes, in its own mount namespace.
fn on_a_small_disk() -> Option<Daemon> {
    on_a_small_disk_with(&[])
}

/// The same, with arguments for the daemon.
fn on_a_small_disk_with(arguments: &[&str]) -> Option<Daemon> {
    let root = nix::unistd::geteuid().is_root();
    let flags = if root { "-m" } else { "-Urm" };
    let able = Command::new("unshare").args([flags, "true"]).output().is_ok_and(|out| out.status.success());
    if !able {
        skip("a small disk: no mount name space can be made here");
        return None;
    }
    let script = "mkdir -p -m 700 \"$HOME/.push\" \"$HOME/.push/state\" && \
                  mount -t tmpfs -o size=8m,mode=700 tmpfs \"$HOME/.push/state\" && exec \"$@\"";
    let script = format!("{script} {}", arguments.join(" "));
    Some(Daemon::start_with_launcher(&["unshare", flags, "sh", "-c", &script, "sh"]))
}

/// The state directory as the daemon sees it.
fn state(daemon: &Daemon) -> PathBuf {
    let home = daemon.home.path().strip_prefix("/").expect("an absolute path");
    Path::new("/proc").join(daemon.pid().to_string()).join("root").join(home).join(".push/state")
}

/// Fills the small disk.
fn fill(daemon: &Daemon) {
    let mut file = fs::File::create(state(daemon).join("filler")).expect("a file");
    let mut chunk = vec![7; 64 * 1024];
    loop {
        match file.write(&chunk) {
            Ok(_) => {}
            Err(_) if chunk.len() > 1 => chunk.truncate(chunk.len() / 2),
            Err(_) => return,
        }
    }
}

fn free_space(daemon: &Daemon) {
    fs::remove_file(state(daemon).join("filler")).expect("room");
}

fn copy_state(daemon: &Daemon, to: &Path) {
    fs::create_dir(to).expect("a directory");
    for name in ["pushd.db", "pushd.db-wal", "pushd.marks", "pushd.ahead"] {
        fs::copy(state(daemon).join(name), to.join(name)).expect("a copy");
    }
}

/// A disk whose syncs fail on demand.
struct FailingDisk {
    dir: TempDir,
}

impl FailingDisk {
    fn switch(&self) -> PathBuf {
        self.dir.path().join("fail")
    }

    fn fail(&self) {
        fs::write(self.switch(), "").expect("the disk fails");
    }

    /// Makes every later sync block.
    fn hold(&self) {
        fs::write(self.dir.path().join("fail.hold"), "").expect("syncs wait");
    }

    /// Tells whether a sync blocks or has blocked.
    fn is_held(&self) -> bool {
        self.dir.path().join("fail.held").exists()
    }

    /// Unblocks every sync.
    fn release(&self) {
        fs::remove_file(self.dir.path().join("fail.hold")).expect("syncs go on");
    }

    fn recover(&self) {
        fs::remove_file(self.switch()).expect("the disk is well again");
    }
}

/// A daemon on a disk whose syncs can be made to fail.
fn on_a_failing_disk() -> Option<(Daemon, FailingDisk)> {
    on_a_failing_disk_with(&[])
}

/// The same, with arguments for the daemon.
fn on_a_failing_disk_with(arguments: &[&str]) -> Option<(Daemon, FailingDisk)> {
    let disk = FailingDisk { dir: tempfile::tempdir().expect("a directory") };
    let (library, switch) = (failing_sync(disk.dir.path())?, disk.switch());
    let variables =
        [("LD_PRELOAD", library.to_str().expect("a path")), ("PUSH_TEST_SYNC_FAILS", switch.to_str().expect("a path"))];
    let home = tempfile::tempdir().expect("a directory for the daemon");
    let daemon = Daemon::start_in(home, &variables, arguments);
    Some((daemon, disk))
}

/// Builds the library that makes `fdatasync` fail on demand.
fn failing_sync(dir: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/failing_sync.c");
    let library = dir.join("failing_sync.so");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).output();
    match built {
        Ok(out) if out.status.success() => Some(library),
        Ok(out) => panic!("{}", String::from_utf8_lossy(&out.stderr)),
        Err(_) => {
            skip("a failing sync: there is no C compiler");
            None
        }
    }
}
