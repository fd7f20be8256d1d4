//! The environment of runs whose clients come over a WebSocket: that of the owner's login shell.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::Message;

use crate::caller::{Open, Socket};

#[test]
fn a_session_over_the_network_has_the_environment_of_the_login_shell() {
    let shells = TempDir::new().unwrap();
    let shell = script(&shells, "bash", PROFILE);
    let open =
        Open::with("[environment]\nkeep = [\"KEPT_TOKEN\"]", &[("SHELL", &shell), ("OWN", "daemon's")]);
    let mut socket = open.socket("/", &[]).works();
    create(&mut socket);
    let printed = bash(&mut socket, "env");
    for expected in [
        // Its value is hidden in what is shown.
        "KEPT_TOKEN=",
        "FROM_PROFILE=yes",
        "GIT_AUTHOR_NAME=Ann",
        "HOME=",
        "OWN=",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    for secret in ["GITHUB_TOKEN", "OPENAI_API_KEY", "PUSH_MEMORY"] {
        assert!(!printed.contains(secret), "{secret}: {printed}");
    }
    assert_eq!(asked(&shells), 1);
    bash(&mut socket, "true");
    assert_eq!(asked(&shells), 1, "it is captured once");
    let reloaded = open.push(&["daemon", "reload"]);
    assert!(reloaded.status.success(), "{reloaded:?}");
    assert_eq!(asked(&shells), 2);
}

#[test]
fn a_login_shell_that_cannot_be_asked_is_told_and_the_daemon_s_environment_is_used() {
    for (name, text, why) in [
        ("bash", "exit 7\n", "failed (exit status: 7)"),
        ("fish", PROFILE, "cannot be asked for its environment"),
        ("nologin", PROFILE, "cannot be asked for its environment"),
    ] {
        let shells = TempDir::new().unwrap();
        let shell = script(&shells, name, text);
        let open =
            Open::with("", &[("SHELL", &shell), ("OWN", "daemons"), ("OWN_TOKEN", "secret-0123456789")]);
        let mut socket = open.socket("/", &[]).works();
        create(&mut socket);
        let printed = bash(&mut socket, "env");
        assert!(printed.contains("OWN=daemons") && !printed.contains("OWN_TOKEN"), "{name}: {printed}");
        let log = String::from_utf8(open.push(&["log", "s"]).stdout).unwrap();
        let reload = open.push(&["daemon", "reload"]);
        let told = String::from_utf8(reload.stderr).unwrap();
        assert!(
            !reload.status.success() && told.contains(why) && told.contains(&shell),
            "{name}: {told} {log}"
        );
    }
}

#[test]
fn a_prompt_over_the_network_without_a_key_ends_with_what_is_missing() {
    let shells = TempDir::new().unwrap();
    let shell = script(&shells, "sh", PROFILE);
    let open = Open::with("[providers.openai]\nmodel = \"m\"", &[("SHELL", &shell)]);
    let mut socket = open.socket("/", &[]).works();
    create(&mut socket);
    let set = json!({"id": "m", "type": "set_model", "sessionId": "s", "provider": "openai", "modelId": "m"});
    assert_eq!(ask(&mut socket, set)["success"], true);
    let prompt = json!({"id": "p", "type": "prompt", "sessionId": "s", "message": "hello"});
    assert_eq!(ask(&mut socket, prompt)["success"], true);
    let ended = loop {
        let line = socket.json();
        if line["event"]["type"] == "agent_end" || line["type"] == "agent_end" {
            break line.to_string();
        }
    };
    assert!(ended.contains("openai has no key") && ended.contains("push config key openai"), "{ended}");
    let log = String::from_utf8(open.push(&["log", "s"]).stdout).unwrap();
    assert!(!log.contains("sent its environment"), "{log}");
}

#[test]
fn a_command_of_the_user_is_held_against_the_rules_of_the_directory_that_its_session_began_in() {
    let open = Open::with("", &[]);
    let home = open.daemon.home.path().canonicalize().unwrap();
    for folder in ["strict/.push", "lenient"] {
        fs::create_dir_all(home.join(folder)).unwrap();
    }
    let rules = "[approvals]\nrules = [\"deny: exec(touch*)\"]\n";
    fs::write(home.join("strict/.push/config.toml"), rules).unwrap();
    symlink("strict", home.join("named")).unwrap();
    let mut client = open.daemon.connect();
    let start = json!({"cwd": home.join("named"), "provider": "playbook"});
    let session = client.get("start_session", start)["sessionId"].as_str().unwrap().to_owned();
    fs::remove_file(home.join("named")).unwrap();
    symlink("lenient", home.join("named")).unwrap();
    let mut socket = open.socket("/", &[]).works();
    let bash = json!({"id": "b", "type": "bash", "sessionId": session, "command": "touch made"});
    let answer = ask(&mut socket, bash);
    assert_eq!(answer["success"], false, "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("deny: exec(touch*)"), "{answer}");
}

fn create(socket: &mut Socket) {
    let created = ask(socket, json!({"id": "c", "type": "create_session", "sessionId": "s"}));
    assert_eq!(created["success"], true, "{created}");
}

fn bash(socket: &mut Socket, command: &str) -> String {
    let bash = json!({"id": format!("bash {command}"), "type": "bash", "sessionId": "s", "command": command});
    let answer = ask(socket, bash);
    assert_eq!(answer["success"], true, "{answer}");
    answer["data"]["output"].as_str().unwrap().to_owned()
}

/// Sends a command and returns its response.
fn ask(socket: &mut Socket, command: Value) -> Value {
    socket.0.send(Message::text(command.to_string())).expect("the daemon reads");
    loop {
        let line = socket.json();
        if line["type"] == "response" && line["id"] == command["id"] {
            return line;
        }
    }
}

/// A shell whose profile says and sets something, and counts how often it is asked.
const PROFILE: &str = "echo x >> \"$(dirname \"$0\")/asked\"\necho Welcome.\n\
    export FROM_PROFILE=yes GIT_AUTHOR_NAME=Ann GITHUB_TOKEN=ghp_0123456789 OPENAI_API_KEY=sk-0123456789\n\
    export KEPT_TOKEN=kept-0123456789\nexec /bin/sh -c \"$2\"\n";

fn asked(shells: &TempDir) -> usize {
    fs::read_to_string(shells.path().join("asked")).unwrap_or_default().lines().count()
}

fn script(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name).to_str().unwrap().to_owned();
    // Written by another process: one that this process forks meanwhile would keep the file open for writing.
    let made = Command::new("/bin/sh")
        .args([
            "-c",
            "printf '%s' \"$1\" > \"$2\" && chmod 755 \"$2\"",
            "sh",
            &format!("#!/bin/sh\n{text}"),
            &path,
        ])
        .status();
    assert!(made.unwrap().success());
    path
}
