//! Tokens: created, presented, wrong, missing, revoked, and guessed.

use std::os::unix::fs::MetadataExt;

use serde_json::{Value, json};
use tungstenite::Message;

use crate::support::daemon::Daemon;
use crate::web::client::{PiDaemon, Socket, create_token, home_with_config, push_in, status};

#[test]
fn where_a_token_is_required_only_a_valid_one_is_admitted() {
    let (server, secret) = daemon_requiring_token(&[]);
    let bearer = format!("Bearer {secret}");
    let answer = server.upgrade_response("/pi", &[]);
    assert_eq!(status(&answer), "401", "{answer}");
    assert!(answer.to_ascii_lowercase().contains("www-authenticate: bearer"), "{answer}");
    let path = format!("/pi?token={secret}&access_token={secret}");
    assert_eq!(status(&server.upgrade_response(&path, &[])), "401", "not in the address");
    for wrong in ["Bearer ", "Bearer wrong", &format!("Bearer {}0", &bearer[7..]), &format!("Basic {secret}")] {
        assert_eq!(status(&server.upgrade_response("/pi", &[("Authorization", wrong)])), "401", "{wrong}");
    }
    server.socket("/pi", &[("authorization", &bearer)]).assert_ready();
    let offered = format!("pi, bearer.{secret}");
    server.socket("/", &[("sec-websocket-protocol", &offered)]).assert_ready();
    let answer = server.upgrade_response("/", &[("Sec-WebSocket-Protocol", &offered)]);
    assert_eq!(status(&answer), "101");
    assert!(!answer.contains(&secret), "it is not repeated: {answer}");
    // The host name is checked before the token.
    let page = [("Authorization", &*bearer), ("Origin", "https://evil.example")];
    assert_eq!(status(&server.upgrade_response("/pi", &page)), "403");
    let rebound = [("Authorization", &*bearer), ("Host", "evil.example")];
    assert_eq!(status(&server.upgrade_response("/pi", &rebound)), "421");
    let log = server.daemon.log();
    assert!(!log.contains(&secret), "a token is in the log");
}

#[test]
fn a_wrong_token_is_refused_also_where_none_is_needed() {
    let server = PiDaemon::new();
    server.socket("/", &[]).assert_ready();
    assert_eq!(status(&server.upgrade_response("/", &[("Authorization", "Bearer ptk_wrong")])), "401");
    let secret = create_token(&server.daemon.home);
    server.socket("/", &[("authorization", &format!("Bearer {secret}"))]).assert_ready();
}

#[test]
fn a_token_of_pi_has_the_rights_of_its_role() {
    let server = PiDaemon::new();
    let session = "of-the-owner";
    let mut number = 0;
    let mut ask = |socket: &mut Socket, mut command: Value| {
        number += 1;
        command["id"] = json!(format!("c{number}"));
        socket.0.send(Message::text(command.to_string())).unwrap();
        loop {
            let line = socket.json();
            if line["type"] == "response" && line["id"] == command["id"] {
                return line;
            }
        }
    };
    let mut owner = server.socket("/", &[]);
    let created = ask(&mut owner, json!({"type": "create_session", "sessionId": session}));
    assert_eq!(created["success"], true, "{created}");
    let roles = ["observer", "prompter", "approver", "owner"];
    for (at, role) in roles.into_iter().enumerate() {
        let made = server.push(&["token", "new", "--role", role]);
        let secret = String::from_utf8(made.stdout).unwrap();
        let mut socket = server.socket("/", &[("authorization", &format!("Bearer {}", secret.trim()))]);
        let export = server.daemon.home.path().join(format!("{role}.html"));
        for (command, from) in [
            (json!({"type": "get_state", "sessionId": session}), "observer"),
            (json!({"type": "create_session", "sessionId": role}), "prompter"),
            (json!({"type": "abort", "sessionId": session}), "prompter"),
            (json!({"type": "bash", "sessionId": session, "command": "true"}), "owner"),
            (json!({"type": "export_html", "sessionId": session, "outputPath": export}), "owner"),
            (json!({"type": "set_session_name", "sessionId": session, "name": role}), "owner"),
            (json!({"type": "new_session", "sessionId": session}), "owner"),
            (json!({"type": "delete_session", "sessionId": session}), "owner"),
        ] {
            let answer = ask(&mut socket, command.clone());
            let least = roles.iter().position(|role| *role == from).unwrap();
            assert_eq!(answer["success"] == true, at >= least, "{role}: {command} {answer}");
        }
        assert_eq!(export.exists(), role == "owner", "{role}");
    }
}

/// Sends a command and returns the response, and the events before it.
fn ask(socket: &mut Socket, command: &Value) -> (Value, Vec<Value>) {
    socket.0.send(Message::text(command.to_string())).unwrap();
    let mut before = Vec::new();
    loop {
        let line = socket.json();
        if line["type"] == "response" && line["id"] == command["id"] {
            return (line, before);
        }
        before.push(line["event"].clone());
    }
}

/// Waits for an event of a type.
fn wait_for(socket: &mut Socket, seen: Vec<Value>, kind: &str) -> Value {
    if let Some(event) = seen.into_iter().find(|event| event["type"] == kind) {
        return event;
    }
    loop {
        let line = socket.json();
        if line["event"]["type"] == kind {
            return line["event"].clone();
        }
    }
}

#[test]
fn the_steps_of_a_prompter_ask_and_run_confined() {
    let server = PiDaemon::new();
    let connect = |role: &str| {
        let made = server.push(&["token", "new", "--role", role]);
        let secret = String::from_utf8(made.stdout).unwrap();
        server.socket("/", &[("authorization", &format!("Bearer {}", secret.trim()))])
    };
    let (mut prompter, mut approver) = (connect("prompter"), connect("approver"));
    let project = server.daemon.home.path().join("project");
    std::fs::create_dir(&project).unwrap();
    let create = json!({"id": "c", "type": "create_session", "sessionId": "s", "cwd": project});
    let (created, _) = ask(&mut prompter, &create);
    assert_eq!(created["success"], true, "{created}");
    let (joined, _) = ask(&mut approver, &json!({"id": "j", "type": "switch_session", "sessionId": "s"}));
    assert_eq!(joined["success"], true, "{joined}");
    let outside = server.daemon.home.path().join("outside");
    let message = format!("$ touch inside && ! touch {}", outside.display());
    let (prompted, seen) =
        ask(&mut prompter, &json!({"id": "p", "type": "prompt", "sessionId": "s", "message": message}));
    assert_eq!(prompted["success"], true, "{prompted}");
    if !server.confines_commands() {
        let end = wait_for(&mut prompter, seen, "agent_end").to_string();
        assert!(!project.join("inside").exists(), "it must not run unconfined: {end}");
        return;
    }
    let question = wait_for(&mut prompter, seen, "extension_ui_request");
    assert!(!project.join("inside").exists(), "it asks first");
    let answer = |id: &str| {
        json!({"id": id, "type": "extension_ui_response", "sessionId": "s", "requestId": question["requestId"],
            "response": {"method": "confirm", "confirmed": true}})
    };
    let (refused, seen) = ask(&mut prompter, &answer("own"));
    assert_eq!(refused["success"], false, "a prompter may not approve: {refused}");
    let (approved, _) = ask(&mut approver, &answer("granted"));
    assert_eq!(approved["success"], true, "{approved}");
    let end = wait_for(&mut prompter, seen, "agent_end").to_string();
    assert!(project.join("inside").exists() && !outside.exists(), "{end}");
    // The same steps of the owner neither ask nor are confined.
    let mut owner = server.socket("/", &[]);
    let by_owner =
        json!({"id": "o", "type": "prompt", "sessionId": "s", "message": format!("$ touch {}", outside.display())});
    let (prompted, _) = ask(&mut owner, &by_owner);
    assert_eq!(prompted["success"], true, "{prompted}");
    wait_for(&mut prompter, Vec::new(), "agent_end");
    assert!(outside.exists());
}

#[test]
fn a_revoked_token_is_refused_and_the_others_still_work() {
    let (server, first) = daemon_requiring_token(&[]);
    let second = create_token(&server.daemon.home);
    let listed: Value = serde_json::from_slice(&server.push(&["token", "list", "--json"]).stdout).unwrap();
    let id = listed["tokens"][0]["tokenId"].as_str().unwrap();
    assert!(server.push(&["token", "revoke", id]).status.success());
    let brings = |secret: &str| {
        status(&server.upgrade_response("/", &[("Authorization", &format!("Bearer {secret}"))])).to_owned()
    };
    assert_eq!((brings(&first).as_str(), brings(&second).as_str()), ("401", "101"));
}

#[test]
fn after_ten_wrong_tokens_every_token_is_refused_for_a_while() {
    let (server, secret) = daemon_requiring_token(&[("PUSH_WRONG_TOKEN_SECONDS", "600")]);
    let brings = |token: &str| server.upgrade_response("/", &[("Authorization", &format!("Bearer {token}"))]);
    for _ in 0..30 {
        assert_eq!(status(&brings(&secret)), "101", "a right one costs nothing");
    }
    for _ in 0..10 {
        assert_eq!(status(&brings("ptk_wrong")), "401");
    }
    for token in ["ptk_wrong", &secret] {
        let answer = brings(token);
        assert_eq!(status(&answer), "429", "{answer}");
        assert!(answer.to_ascii_lowercase().contains("retry-after: "), "{answer}");
    }
    // The owner's socket needs none.
    server.daemon.connect().ping();
}

#[test]
fn an_unreadable_token_file_admits_no_client() {
    let (server, secret) = daemon_requiring_token(&[]);
    let file = server.daemon.home.path().join(".push/state/tokens.json");
    let kept = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, "{").unwrap();
    let brings = || status(&server.upgrade_response("/", &[("Authorization", &format!("Bearer {secret}"))])).to_owned();
    assert_eq!(brings(), "500");
    let listed = server.push(&["token", "list"]);
    assert!(!listed.status.success() && String::from_utf8_lossy(&listed.stderr).contains("cannot be read"));
    std::fs::write(&file, kept).unwrap();
    assert_eq!(brings(), "101");
}

#[test]
fn the_client_makes_lists_and_revokes_tokens_without_a_daemon() {
    let home = home_with_config("");
    let none = push_in(&home, &["token", "list", "--json"]);
    assert_eq!(serde_json::from_slice::<Value>(&none.stdout).unwrap(), json!({"tokens": []}));
    let made = push_in(&home, &["token", "new", "--name", "my laptop"]);
    let secret = String::from_utf8(made.stdout).unwrap();
    assert!(secret.starts_with("ptk_") && secret.trim_end().len() == 68, "{secret}");
    let state = home.path().join(".push/state");
    let file = state.join("tokens.json");
    let mode = |path: &std::path::Path| path.metadata().unwrap().mode() & 0o777;
    assert_eq!((mode(&state), mode(&file)), (0o700, 0o600));
    assert!(!std::fs::read_to_string(&file).unwrap().contains(secret.trim_end()));
    let listed = String::from_utf8(push_in(&home, &["token", "list"]).stdout).unwrap();
    let row = listed.lines().nth(1).unwrap();
    assert!(listed.starts_with("ID ") && row.starts_with("tok_") && row.ends_with("  my laptop"), "{listed}");
    assert!(!listed.contains(secret.trim_end()), "{listed}");
    for (wrong, code) in [(["token", "revoke", "tok_ZZZ"], 1), (["token", "new", "--name="], 1)] {
        assert_eq!(push_in(&home, &wrong).status.code(), Some(code), "{wrong:?}");
    }
    assert_eq!(push_in(&home, &["token"]).status.code(), Some(64));
    let id = row.split(' ').next().unwrap();
    let revoked = push_in(&home, &["token", "revoke", &id[4..]]);
    assert!(String::from_utf8(revoked.stdout).unwrap().starts_with(&format!("revoked {id}")));
    assert!(!home.path().join(".push/run").exists(), "no daemon was started");
}

/// A daemon that requires a token, and a valid token.
fn daemon_requiring_token(variables: &[(&str, &str)]) -> (PiDaemon, String) {
    let home = home_with_config("require_token = true");
    let secret = create_token(&home);
    (PiDaemon::from_daemon(Daemon::start_in(home, variables, &["--pi=127.0.0.1:0"])), secret)
}
