//! Commands of a model do not see credentials in the user's home, wherever the daemon stores its own files.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::DirBuilderExt;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::model_runs::fixture::{Fixture, turn_with_call};
use crate::support::daemon::Client;
use crate::support::model::{Reply, ServerDialect};
use crate::support::ordinary_user::{also_as_an_ordinary_user, visible_dir};
use crate::support::skip::skip;

const SECRET: &str = "kept-by-nobody-else";

#[test]
fn credentials_stay_hidden_when_the_daemons_home_is_moved() {
    also_as_an_ordinary_user(credentials_stay_hidden_when_the_daemons_home_is_moved);
    let (fixture, _moved) = fixture_with_moved_daemon_home();
    let home = fixture.daemon.home.path().to_owned();
    let cat = |name: &str| json!({"command": format!("cat {}/{name}", home.display())});
    fixture.server.script([
        turn_with_call("Key.", "sandbox_exec", cat(".ssh/id")),
        turn_with_call("Token.", "sandbox_exec", cat(".gemini/oauth")),
        turn_with_call("Tool.", "sandbox_exec", cat(".cargo/config.toml")),
        Reply::says("Done."),
    ]);
    let (mut client, session) = fixture.start_run("go");
    client.get("attach_session", json!({"sessionId": session, "lastSeenSeq": 0}));
    let started = client.event_of("session_started");
    if started["payload"]["sandbox"]["strength"] == "missing" {
        return skip("nothing confines commands here");
    }
    let results = tool_results(&mut client);
    let text = |index: usize| results[index]["payload"]["text"].as_str().unwrap().to_owned();
    assert!(!results.iter().any(|result| result.to_string().contains(SECRET)), "{results:?}");
    assert!(text(0).contains(".ssh/id is hidden from commands because credentials are stored there"), "{}", text(0));
    let token = home.join(".gemini/oauth");
    let opens = format!("`readable = [\"{}\"]` under [sandbox] of the configuration opens it", token.display());
    assert!(text(1).contains(&opens), "{}", text(1));
    assert_eq!(text(2), "[build]\n");
    fs::create_dir_all(fixture.config().parent().unwrap()).unwrap();
    fs::write(fixture.config(), "[sandbox]\nreadable = [\"~/.gemini\"]\n").unwrap();
    fixture.server.script([turn_with_call("Token.", "sandbox_exec", cat(".gemini/oauth")), Reply::says("Done.")]);
    client.prompt(&session, "again");
    assert!(self::tool_results(&mut client)[0]["payload"]["text"].as_str().unwrap().contains(SECRET));
}

#[test]
fn tools_in_a_home_that_is_the_workspace_see_no_credential_store() {
    also_as_an_ordinary_user(tools_in_a_home_that_is_the_workspace_see_no_credential_store);
    let (fixture, _moved) = fixture_with_moved_daemon_home();
    fixture.server.script([
        turn_with_call("Key.", "sandbox_read_file", json!({"path": ".ssh/id"})),
        turn_with_call("Link.", "sandbox_read_file", json!({"path": "link"})),
        turn_with_call("List.", "sandbox_list_dir", json!({"path": ".ssh"})),
        turn_with_call("Search.", "sandbox_search", json!({"pattern": "kept-by-nobody"})),
        turn_with_call("Write.", "sandbox_write_file", json!({"path": ".ssh/id", "content": "x"})),
        turn_with_call("Other.", "sandbox_read_file", json!({"path": "plain"})),
        Reply::says("Done."),
    ]);
    let home = fixture.daemon.home.path();
    fs::write(home.join("plain"), "seen\n").unwrap();
    std::os::unix::fs::symlink(".ssh/id", home.join("link")).unwrap();
    let mut client = fixture.daemon.connect();
    let start = json!({"cwd": home, "provider": "openai", "model": "m", "environment": fixture.environment()});
    let session = client.get("start_session", start)["sessionId"].as_str().unwrap().to_owned();
    client.prompt(&session, "go");
    let results = tool_results(&mut client);
    assert!(!results.iter().any(|result| result.to_string().contains(SECRET)), "{results:?}");
    for index in [0, 1, 2, 4] {
        let kind = &results[index]["payload"]["structuredError"]["code"];
        assert_eq!(kind, "HIDDEN_PATH", "{index}: {}", results[index]);
    }
    assert!(results[3]["payload"]["text"].as_str().unwrap().contains("\"hits\":[]"), "{}", results[3]);
    assert_eq!(results[5]["payload"]["isError"], false, "{}", results[5]);
    assert_eq!(fs::read_to_string(home.join(".ssh/id")).unwrap(), SECRET);
}

/// The tool results of the run; every approval request is approved.
fn tool_results(client: &mut Client) -> Vec<Value> {
    let (mut results, mut approvals) = (Vec::new(), Vec::new());
    loop {
        let event = client.event();
        match event["type"].as_str() {
            Some("approval_required") if !approvals.contains(&event["payload"]["approvalId"]) => {
                approvals.push(event["payload"]["approvalId"].clone());
                client.decide(&event, "approve");
            }
            Some("tool_result") => results.push(event),
            Some("run_complete") => return results,
            _ => {}
        }
    }
}

/// A daemon whose files are outside of its user's home, which contains credentials. Neither is below `/tmp`, because a
/// confined command does not see the machine's `/tmp`.
fn fixture_with_moved_daemon_home() -> (Fixture, TempDir) {
    let directory = || tempfile::Builder::new().prefix("h").rand_bytes(4).tempdir_in(visible_dir()).unwrap();
    let (home, moved) = (directory(), directory());
    fs::DirBuilder::new().recursive(true).mode(0o700).create(home.path().join(".push/run")).unwrap();
    for (name, text) in [(".ssh/id", SECRET), (".gemini/oauth", SECRET), (".cargo/config.toml", "[build]\n")] {
        let path = home.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let socket = home.path().join(".push/run/pushd.sock").to_str().unwrap().to_owned();
    let variables = [("PUSH_HOME", moved.path().to_str().unwrap()), ("PUSHD_SOCKET", &socket)];
    let fixture = Fixture::in_home(home, ServerDialect::OpenAi, &variables).with_standard_preset();
    (fixture, moved)
}
