//! Pi over standard input and output, and over the local socket below it.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::daemon::{Client, Daemon, wait_until};
use crate::web::client::push_in;

#[test]
fn lines_go_through_and_the_end_of_the_input_ends_it_after_the_last_answer() {
    let daemon = Daemon::start();
    let mut bridge = bridge(&daemon);
    let mut input = bridge.stdin.take().unwrap();
    for _ in 0..50 {
        input.write_all(b"not json\n").unwrap();
    }
    input.write_all(b"a last line without its end").unwrap();
    drop(input);
    let output = bridge.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = json_lines(&output.stdout);
    assert_eq!(lines[0]["type"], "server_ready");
    let answers = lines.iter().filter(|line| line["error"] == "Invalid JSON").count();
    assert_eq!((answers, lines.len()), (50, 51));
}

#[test]
fn it_starts_a_daemon_and_standard_output_carries_nothing_but_lines() {
    let home = TempDir::new().unwrap();
    let output = push_in(&home, &["pi", "--stdio"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(json_lines(&output.stdout).len(), 1);
    assert!(push_in(&home, &["daemon", "status"]).status.success());
    assert!(push_in(&home, &["daemon", "stop", "--force"]).status.success());
    assert_eq!(push_in(&home, &["pi"]).status.code(), Some(64));
}

#[test]
fn a_daemon_that_cannot_be_reached_or_goes_away_is_69() {
    let home = TempDir::new().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_push"));
    command.args(["pi", "--stdio"]).env_clear().env("HOME", home.path()).env("PUSHD_SOCKET", "/tmp/x.sock");
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(69), 0));
    let mut daemon = Daemon::start();
    let mut bridge = bridge(&daemon);
    // Waiting for a process closes its standard input.
    let _input = bridge.stdin.take();
    let mut ready = String::new();
    let mut out = BufReader::new(bridge.stdout.take().unwrap());
    out.read_line(&mut ready).unwrap();
    daemon.kill();
    assert_eq!(bridge.wait().unwrap().code(), Some(69));
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

#[test]
fn bytes_that_follow_the_request_are_not_lost() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    let speak = json!({"v": "push.runtime.v1", "kind": "request", "requestId": "r", "type": "speak",
        "payload": {"protocol": "pi", "cwd": daemon.cwd()}});
    let ping = json!({"v": "push.runtime.v1", "kind": "request", "requestId": "p", "type": "ping"});
    client.send_raw(format!("{ping}\n{speak}\nnot json\nnor this\n").as_bytes());
    assert_eq!(client.next()["requestId"], "p", "what was asked before is answered before");
    assert_eq!(client.next()["payload"], json!({"speaking": true}));
    client.close_write();
    let rest = raw_lines(client);
    let words: Vec<&Value> = rest.iter().map(|line| &line["type"]).collect();
    assert_eq!(words, ["server_ready", "response", "response"]);
    // Lines of this protocol may be longer than requests.
    let mut client = daemon.connect();
    client.send_raw(format!("{speak}\n{}\n", "x".repeat(9 << 20)).as_bytes());
    client.close_write();
    client.next();
    assert_eq!(raw_lines(client)[1]["error"], "Invalid JSON");
}

#[test]
fn switching_protocols_ends_the_subscriptions() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.prompt(&session, "$ until [ -e go ]; do sleep 0.01; done");
    client.event_of("tool_call");
    client.get("speak", json!({"protocol": "pi"}));
    let mut other = daemon.connect();
    other.attach(&session, 0);
    std::fs::write(daemon.cwd().join("go"), "").unwrap();
    other.event_of("run_complete");
    client.close_write();
    let lines = raw_lines(client);
    assert!(lines.iter().all(|line| line["kind"] != "event"), "{lines:?}");
    let connections = || daemon.connect().get("get_metrics", json!({}))["connections"].clone();
    wait_until("it is gone", || connections() == 2);
}

#[test]
fn an_invalid_request_is_answered_and_the_connection_stays_open() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    for payload in [r#"{"protocol":"gopher"}"#, "{}", r#"{"protocol":"pi","cwd":"relative"}"#, r#"{"protocol":7}"#] {
        let line =
            format!(r#"{{"v":"push.runtime.v1","kind":"request","requestId":"r","type":"speak","payload":{payload}}}"#);
        client.send_raw(format!("{line}\n").as_bytes());
        assert_eq!(client.next()["error"]["code"], "INVALID_REQUEST", "{payload}");
    }
    client.ping();
}

pub(crate) fn bridge(daemon: &Daemon) -> Child {
    daemon.command("push").args(["pi", "--stdio"]).stdin(Stdio::piped()).spawn().unwrap()
}

fn json_lines(bytes: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "{text}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The lines of the other protocol up to the close of the connection.
fn raw_lines(mut client: Client) -> Vec<Value> {
    json_lines(&client.rest())
}
