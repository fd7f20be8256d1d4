//! A model's commands against the daemon that runs them: none of them can approve anything.

use std::fs;

use serde_json::{Value, json};

use crate::model_runs::fixture::{Fixture, turn_with_call};
use crate::support::daemon::{Client, wait_until};
use crate::support::model::Reply;

#[test]
fn no_command_of_a_model_can_approve_anything() {
    let fixture = Fixture::new();
    let (mut owner, gate) = session_with_pending_approval(&fixture);
    let home = fixture.daemon.home.path().display().to_string();
    // A client whose daemon closes the connection retries for a while.
    let push = format!("timeout 1 {}", env!("CARGO_BIN_EXE_push"));
    let ways = [
        format!("HOME={home} {push} approve"),
        format!("HOME={home} {push} approvals"),
        format!("HOME={home} {push} sessions"),
        format!("PUSHD_SOCKET={home}/.push/run/pushd.sock HOME=/tmp {push} approve"),
        // An orphan in its own session, while its command waits.
        format!(
            "touch running; (HOME={home} setsid sh -c '{push} approve >out 2>&1; rm running' & ) ; while [ -e running ]; do sleep 0.01; done; cat out"
        ),
        format!("env -i /bin/sh -c 'HOME={home} {push} approve'"),
    ];
    for way in &ways {
        for outside in [false, true] {
            let command = format!("{way}; echo left with $?");
            let result = run_command(&fixture, &json!({"command": command, "outside": outside}));
            let text = result["payload"]["text"].as_str().unwrap_or_default();
            assert!(text.contains("left with"), "{way}: {result}");
            assert!(!text.contains("approved") && !text.contains("$ touch"), "{way}: {text}");
            assert!(!fixture.daemon.home.path().join("approved").exists(), "{way}, outside: {outside}: {text}");
        }
    }
    let log = fixture.daemon.log();
    assert!(log.contains("connection of a model's command refused"), "{log}");
    // The same command from the owner's shell works.
    let approved = fixture.daemon.command("push").arg("approve").output().expect("the client");
    assert!(approved.status.success(), "{}", String::from_utf8_lossy(&approved.stderr));
    assert_eq!(owner.event_of("run_complete")["payload"]["outcome"], "success", "{gate}");
    assert!(fixture.daemon.home.path().join("approved").exists());
}

#[test]
fn no_command_of_a_model_connects_by_websocket_even_with_a_token() {
    let mut fixture = Fixture::new();
    fs::create_dir_all(fixture.config().parent().expect("a folder")).expect("a directory");
    fs::write(fixture.config(), "[pi]\nenabled = true\nlisten = '127.0.0.1:0'\n").expect("a file");
    fixture.daemon.stop();
    fixture.daemon.restart();
    let made = fixture.daemon.command("push").args(["token", "new"]).output().expect("the client");
    let token = String::from_utf8(made.stdout).expect("text").trim().to_owned();
    let at = fixture.daemon.connect().get("get_metrics", json!({}))["pi"].as_str().expect("a place").to_owned();
    let port = at.rsplit(':').next().expect("a port");
    let asks = |bearer: &str| {
        format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port} || exit 9; printf 'GET /pi HTTP/1.1\\r\\nHost: {at}\\r\\n{bearer}Connection: Upgrade\\r\\n\
             Upgrade: websocket\\r\\nSec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n' >&3; \
             read -r answer <&3; echo \"$answer\""
        )
    };
    let with_token = format!("Authorization: Bearer {token}\\r\\n");
    for bearer in ["", &with_token] {
        let way = asks(bearer);
        for way in [
            format!("bash -c '{}'", way.replace('\'', "'\\''")),
            // An orphan in its own session, while its command waits.
            format!(
                "touch running; (setsid bash -c '{}' >out 2>&1; rm running) & while [ -e running ]; do sleep 0.01; done; cat out",
                way.replace('\'', "'\\''")
            ),
        ] {
            let result = run_command(&fixture, &json!({"command": way, "outside": true}));
            let text = result["payload"]["text"].as_str().unwrap_or_default();
            assert!(text.contains("HTTP/1.1 403 Forbidden"), "{way}: {result}");
            // In confinement there is no such network.
            let result = run_command(&fixture, &json!({"command": way}));
            let text = result["payload"]["text"].as_str().unwrap_or_default();
            assert!(!text.contains("HTTP/1.1 101"), "{way}: {result}");
        }
    }
    let log = fixture.daemon.log();
    assert!(log.contains("a command of a model may not connect to the daemon"), "{log}");
    // The same command from the owner's shell works while a command of a model runs.
    fixture.server.script([
        turn_with_call("", "sandbox_exec", json!({"command": "touch up; until [ -e go ]; do sleep 0.01; done"})),
        Reply::says("done"),
    ]);
    let (mut client, _) = fixture.start_run("go");
    let approval = client.event_of("approval_required");
    client.decide(&approval, "approve");
    wait_until("the command runs", || fixture.cwd().join("up").exists());
    let output = std::process::Command::new("bash").args(["-c", &asks("")]).output().expect("a shell");
    assert!(output.stdout.starts_with(b"HTTP/1.1 101"), "{output:?}");
    fs::write(fixture.cwd().join("go"), "").expect("a file");
    client.event_of("run_complete");
}

#[test]
fn other_clients_connect_while_a_command_of_a_model_runs() {
    let fixture = Fixture::new();
    fixture.server.script([
        turn_with_call("", "sandbox_exec", json!({"command": "touch up; until [ -e go ]; do sleep 0.01; done"})),
        Reply::says("done"),
    ]);
    let (mut client, _) = fixture.start_run("go");
    let approval = client.event_of("approval_required");
    client.decide(&approval, "approve");
    wait_until("the command runs", || fixture.cwd().join("up").exists());
    fixture.daemon.connect().ping();
    let listed = fixture.daemon.command("push").arg("sessions").output().expect("the client");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    fs::write(fixture.cwd().join("go"), "").expect("a file");
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
}

#[test]
fn a_model_s_command_sees_neither_the_daemon_s_home_nor_keys() {
    let fixture = Fixture::new();
    let home = fixture.daemon.home.path().to_owned();
    fs::create_dir_all(home.join(".ssh")).expect("a directory");
    fs::write(home.join(".ssh/id_ed25519"), "hidden-word").expect("a file");
    let command = format!(
        "ls -A {0}/.push {0}/.ssh; cat {0}/.ssh/id_ed25519; env; touch {0}/escaped .git/escaped; echo in > inside; pwd",
        home.display()
    );
    let result = run_command(&fixture, &json!({"command": command}));
    let text = result["payload"]["text"].as_str().unwrap_or_default();
    for word in ["state", "pushd", "hidden-word", "id_ed25519", "OPENAI_API_KEY"] {
        // The error names the file that it could not open.
        let is_printed = text.lines().filter(|line| !line.contains("No such file")).any(|line| line.contains(word));
        assert!(!is_printed, "{word}: {text}");
    }
    assert!(text.contains("TMPDIR=/tmp"), "{text}");
    assert!(!home.join("escaped").exists() && !fixture.cwd().join(".git/escaped").exists());
    assert_eq!(fixture.file("inside"), "in\n");
}

/// Makes the model run a command, approves it, and returns its result.
fn run_command(fixture: &Fixture, args: &Value) -> Value {
    fixture.server.script([turn_with_call("", "sandbox_exec", args.clone()), Reply::says("done")]);
    let (mut client, _) = fixture.start_run("go");
    let approval = client.event_of("approval_required");
    client.decide(&approval, "approve");
    let result = client.event_of("tool_result");
    client.event_of("run_complete");
    result
}

/// A session of the owner that waits for an approval.
fn session_with_pending_approval(fixture: &Fixture) -> (Client, Value) {
    let (mut client, session) = fixture.daemon.session();
    client.prompt(&session, "$? touch approved");
    let gate = client.event_of("approval_required");
    (client, gate)
}
