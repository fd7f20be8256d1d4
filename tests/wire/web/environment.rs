//! Runs whose clients send no environment, over a WebSocket or the local socket, get that of the owner's login shell.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::Message;

use crate::support::daemon::{Client, wait_until};
use crate::web::client::{PiDaemon, Socket};

#[test]
fn a_session_over_the_network_has_the_environment_of_the_login_shell() {
    let shells = TempDir::new().unwrap();
    let shell = script(&shells, "bash", PROFILE);
    let server = PiDaemon::with(
        "[environment]\nkeep = [\"KEPT_TOKEN\"]",
        &[("SHELL", &shell), ("OWN", "daemon's"), ("PUSH_OWN", "daemon's")],
    );
    let mut socket = server.socket("/", &[]).assert_ready();
    create(&mut socket);
    let printed = bash(&mut socket, "env");
    for expected in [
        // Its value is redacted in events.
        "KEPT_TOKEN=",
        "FROM_PROFILE=yes",
        "GIT_AUTHOR_NAME=Ann",
        "HOME=",
        "OWN=",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    for secret in ["GITHUB_TOKEN", "OPENAI_API_KEY", "PUSH_OWN"] {
        assert!(!printed.contains(secret), "{secret}: {printed}");
    }
    assert_eq!(shell_starts(&shells), 1);
    bash(&mut socket, "true");
    assert_eq!(shell_starts(&shells), 1, "it is captured once");
    let reloaded = server.push(&["daemon", "reload"]);
    assert!(reloaded.status.success(), "{reloaded:?}");
    assert_eq!(shell_starts(&shells), 2);
}

#[test]
fn a_local_client_that_sends_no_environment_has_that_of_the_login_shell() {
    let shells = TempDir::new().unwrap();
    let shell = script(&shells, "fish", PROFILE);
    let server = PiDaemon::with("", &[("SHELL", &shell)]);
    let (printed, warnings) = local_run(&server);
    for expected in ["FROM_PROFILE=yes", "GIT_AUTHOR_NAME=Ann", "HOME="] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    assert!(!printed.contains("GITHUB_TOKEN"), "{printed}");
    assert_eq!(warnings, Vec::<Value>::new());
}

#[test]
fn a_local_client_without_environment_is_warned_if_the_login_shell_fails() {
    let shells = TempDir::new().unwrap();
    let shell = script(&shells, "bash", "exit 7\n");
    let server = PiDaemon::with("", &[("SHELL", &shell), ("OWN", "daemons")]);
    let (printed, warnings) = local_run(&server);
    assert!(printed.contains("OWN=daemons"), "{printed}");
    let codes: Vec<_> = warnings.iter().map(|warning| &warning["payload"]["code"]).collect();
    assert_eq!(codes, ["LOGIN_ENVIRONMENT_FAILED"], "{warnings:?}");
}

#[test]
fn a_cancel_does_not_wait_for_the_login_shell() {
    let shells = TempDir::new().unwrap();
    let shell = script(
        &shells,
        "bash",
        "cd \"$(dirname \"$0\")\"\necho x >> asked\n[ $(wc -l < asked) = 1 ] && sleep 6\nexit 7\n",
    );
    let server = PiDaemon::with("", &[("SHELL", &shell)]);
    let mut client = server.daemon.connect();
    let session = start_without_environment(&server, &mut client);
    let run = client.prompt(&session, "$ env");
    wait_until("the login shell is asked", || shell_starts(&shells) == 1);
    client.get("cancel_run", json!({"sessionId": session, "runId": run}));
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "cancelled");
    // The answer of the first shell was not waited for: the next run asks again.
    assert_eq!(client.run(&session, "$ env")["outcome"], "success");
    assert_eq!(shell_starts(&shells), 2);
}

#[test]
fn a_failing_login_shell_is_reported_and_the_daemon_s_environment_is_used() {
    for (name, text, why) in [
        ("bash", "exit 7\n", "failed (exit status: 7)"),
        ("tcsh", PROFILE, "is not supported"),
        ("nologin", PROFILE, "is not supported"),
    ] {
        let shells = TempDir::new().unwrap();
        let shell = script(&shells, name, text);
        let server = PiDaemon::with("", &[("SHELL", &shell), ("OWN", "daemons"), ("OWN_TOKEN", "secret-0123456789")]);
        let mut socket = server.socket("/", &[]).assert_ready();
        create(&mut socket);
        let printed = bash(&mut socket, "env");
        assert!(printed.contains("OWN=daemons") && !printed.contains("OWN_TOKEN"), "{name}: {printed}");
        let log = String::from_utf8(server.push(&["log", "s"]).stdout).unwrap();
        let reload = server.push(&["daemon", "reload"]);
        let stderr = String::from_utf8(reload.stderr).unwrap();
        assert!(!reload.status.success() && stderr.contains(why) && stderr.contains(&shell), "{name}: {stderr} {log}");
    }
}

#[test]
fn a_prompt_over_the_network_without_a_key_ends_with_what_is_missing() {
    let shells = TempDir::new().unwrap();
    let shell = script(&shells, "sh", PROFILE);
    let server = PiDaemon::with("[providers.openai]\nmodel = \"m\"", &[("SHELL", &shell)]);
    let mut socket = server.socket("/", &[]).assert_ready();
    create(&mut socket);
    let set = json!({"id": "m", "type": "set_model", "sessionId": "s", "provider": "openai", "modelId": "m"});
    assert_eq!(send_command(&mut socket, set)["success"], true);
    let prompt = json!({"id": "p", "type": "prompt", "sessionId": "s", "message": "hello"});
    assert_eq!(send_command(&mut socket, prompt)["success"], true);
    let ended = loop {
        let line = socket.json();
        if line["event"]["type"] == "agent_end" || line["type"] == "agent_end" {
            break line.to_string();
        }
    };
    assert!(ended.contains("openai has no key") && ended.contains("push config key openai"), "{ended}");
    let log = String::from_utf8(server.push(&["log", "s"]).stdout).unwrap();
    assert!(!log.contains("sent its environment"), "{log}");
}

#[test]
fn a_user_command_is_checked_against_the_rules_of_the_directory_its_session_started_in() {
    let server = PiDaemon::with("", &[]);
    let home = server.daemon.home.path().canonicalize().unwrap();
    for folder in ["strict/.push", "lenient"] {
        fs::create_dir_all(home.join(folder)).unwrap();
    }
    let rules = "[approvals]\nrules = [\"deny: exec(touch*)\"]\n";
    fs::write(home.join("strict/.push/config.toml"), rules).unwrap();
    symlink("strict", home.join("named")).unwrap();
    let mut client = server.daemon.connect();
    let start = json!({"cwd": home.join("named"), "provider": "playbook"});
    let session = client.get("start_session", start)["sessionId"].as_str().unwrap().to_owned();
    fs::remove_file(home.join("named")).unwrap();
    symlink("lenient", home.join("named")).unwrap();
    let mut socket = server.socket("/", &[]).assert_ready();
    let bash = json!({"id": "b", "type": "bash", "sessionId": session, "command": "touch made"});
    let answer = send_command(&mut socket, bash);
    assert_eq!(answer["success"], false, "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("deny: exec(touch*)"), "{answer}");
}

/// Runs `env` for a client on the local socket that sends no environment; returns what it printed and all warnings.
fn local_run(server: &PiDaemon) -> (String, Vec<Value>) {
    let mut client = server.daemon.connect();
    let session = start_without_environment(server, &mut client);
    client.prompt(&session, "$ env");
    let events = client.events_until("run_complete");
    let printed = events.iter().filter(|event| event["type"] == "tool_output");
    let printed = printed.map(|event| event["payload"]["text"].as_str().unwrap()).collect();
    (printed, events.into_iter().filter(|event| event["type"] == "warning").collect())
}

fn start_without_environment(server: &PiDaemon, client: &mut Client) -> String {
    let start = json!({"cwd": server.daemon.cwd(), "provider": "playbook"});
    client.get("start_session", start)["sessionId"].as_str().unwrap().to_owned()
}

fn create(socket: &mut Socket) {
    let created = send_command(socket, json!({"id": "c", "type": "create_session", "sessionId": "s"}));
    assert_eq!(created["success"], true, "{created}");
}

fn bash(socket: &mut Socket, command: &str) -> String {
    let bash = json!({"id": format!("bash {command}"), "type": "bash", "sessionId": "s", "command": command});
    let answer = send_command(socket, bash);
    assert_eq!(answer["success"], true, "{answer}");
    answer["data"]["output"].as_str().unwrap().to_owned()
}

/// Sends a command and returns its response.
fn send_command(socket: &mut Socket, command: Value) -> Value {
    socket.0.send(Message::text(command.to_string())).expect("the daemon reads");
    loop {
        let line = socket.json();
        if line["type"] == "response" && line["id"] == command["id"] {
            return line;
        }
    }
}

/// A shell whose profile prints and sets something, and counts its starts.
const PROFILE: &str = "echo x >> \"$(dirname \"$0\")/asked\"\necho Welcome.\n\
    export FROM_PROFILE=yes GIT_AUTHOR_NAME=Ann GITHUB_TOKEN=ghp_0123456789 OPENAI_API_KEY=sk-0123456789\n\
    export KEPT_TOKEN=kept-0123456789\nexec /bin/sh -c \"$2\"\n";

fn shell_starts(shells: &TempDir) -> usize {
    fs::read_to_string(shells.path().join("asked")).unwrap_or_default().lines().count()
}

fn script(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name).to_str().unwrap().to_owned();
    // Another process writes it: a concurrently forked child of this process would hold the file open for writing.
    let made = Command::new("/bin/sh")
        .args(["-c", "printf '%s' \"$1\" > \"$2\" && chmod 755 \"$2\"", "sh", &format!("#!/bin/sh\n{text}"), &path])
        .status();
    assert!(made.unwrap().success());
    path
}
