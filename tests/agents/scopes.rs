//! Approval scopes and rules: over runs, sessions, restarts of the daemon and revocations.

use serde_json::{Value, json};

use crate::bench::{Bench, wants};
use crate::daemon::Client;
use crate::model::Reply;

#[test]
fn a_yes_holds_once_unless_more_is_said() {
    let bench = Bench::new();
    repeat(&bench, 3);
    let (mut client, session) = bench.begin("go");
    let asked = client.event_of("approval_required");
    assert_eq!(asked["payload"]["remember"], "allow: exec(touch made)");
    assert_eq!(asked["payload"]["details"]["scopes"], json!(["once", "run", "session", "always"]));
    decide(&mut client, &asked, "once");
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
    assert!(asks(&mut client, &session));
}

#[test]
fn a_yes_for_the_run_ends_with_it() {
    let bench = Bench::new();
    bench.server.script([
        wants("One.", "sandbox_exec", json!({"command": "touch made"})),
        wants("Two.", "sandbox_exec", json!({"command": "touch made"})),
        Reply::says("Done."),
    ]);
    repeat(&bench, 1);
    let (mut client, session) = bench.begin("go");
    let asked = client.event_of("approval_required");
    decide(&mut client, &asked, "run");
    let events = client.events_until("run_complete");
    assert!(!events.iter().any(|event| event["type"] == "approval_required"), "{events:?}");
    assert_eq!(events.iter().filter(|event| event["type"] == "tool_result").count(), 2);
    assert!(asks(&mut client, &session));
}

#[test]
fn a_yes_for_the_run_outlives_a_restart_and_one_for_once_does_not() {
    let mut bench = Bench::new();
    let exec = |command: &str| wants("", "sandbox_exec", json!({ "command": command }));
    bench.server.script([
        exec("touch made"),
        exec("touch once"),
        exec("touch waits"),
        exec("touch made"),
        exec("touch once"),
        Reply::says("Done."),
    ]);
    let (mut client, session) = bench.begin("go");
    for (command, scope) in [("touch made", "run"), ("touch once", "once")] {
        let asked = client.event_of("approval_required");
        assert_eq!(asked["payload"]["summary"], command);
        decide(&mut client, &asked, scope);
    }
    let asked = client.event_of("approval_required");
    bench.daemon.kill();
    bench.daemon.revive();
    let last = asked["seq"].clone();
    let mut client = bench.daemon.connect();
    let attach = json!({"sessionId": session, "lastSeenSeq": last, "environment": bench.environment()});
    client.get("attach_session", attach);
    decide(&mut client, &asked, "once");
    let asked = client.event_of("approval_required");
    assert_eq!(asked["payload"]["summary"], "touch once", "what holds for the run is not asked about again");
    decide(&mut client, &asked, "once");
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
}

#[test]
fn a_yes_for_the_session_outlives_a_restart_and_not_the_session() {
    let mut bench = Bench::new();
    repeat(&bench, 3);
    let (mut client, session) = bench.begin("go");
    let asked = client.event_of("approval_required");
    decide(&mut client, &asked, "session");
    client.event_of("run_complete");
    bench.daemon.kill();
    bench.daemon.revive();
    let mut client = bench.daemon.connect();
    let last = client.get("get_session_snapshot", json!({"sessionId": session}))["lastSeq"].clone();
    let attach = json!({"sessionId": session, "lastSeenSeq": last, "environment": bench.environment()});
    client.get("attach_session", attach);
    assert!(!asks(&mut client, &session));
    let (mut client, _) = bench.begin("go");
    client.event_of("approval_required");
}

#[test]
fn a_yes_for_always_holds_in_the_repository_until_it_is_revoked() {
    let mut bench = Bench::new();
    repeat(&bench, 4);
    let (mut client, _) = bench.begin("go");
    let asked = client.event_of("approval_required");
    decide(&mut client, &asked, "always");
    client.event_of("run_complete");
    bench.daemon.kill();
    bench.daemon.revive();
    let (mut client, session) = bench.session();
    assert!(!asks(&mut client, &session));
    let grants = client.get("list_grants", json!({}))["grants"].clone();
    assert_eq!((&grants[0]["rule"], &grants[0]["by"]), (&json!("allow: exec(touch made)"), &json!("cli")));
    client.get("revoke_grant", json!({"grantId": grants[0]["grantId"]}));
    assert_eq!(
        client.refused("revoke_grant", json!({"grantId": grants[0]["grantId"]})),
        "APPROVAL_NOT_FOUND"
    );
    assert!(asks(&mut client, &session));
}

#[test]
fn what_is_critical_is_asked_every_time() {
    let bench = Bench::new();
    bench.server.script([wants("Gone.", "sandbox_exec", json!({"command": "rm -rf ~"}))]);
    let (mut client, session) = bench.begin("go");
    let asked = client.event_of("approval_required");
    assert_eq!(asked["payload"]["details"]["risk"], "critical");
    assert_eq!(asked["payload"].get("remember"), None);
    let lasting = json!({"sessionId": session, "approvalId": asked["payload"]["approvalId"],
        "decision": "approve", "scope": "always"});
    assert_eq!(client.refused("submit_approval", lasting), "INVALID_REQUEST");
    client.decide(&asked, "deny");
    client.event_of("run_complete");
}

#[test]
fn a_run_has_rules_of_its_own() {
    let bench = Bench::new();
    bench.server.script([
        wants("One.", "sandbox_exec", json!({"command": "touch made"})),
        wants("Two.", "sandbox_exec", json!({"command": "touch made && touch other"})),
        Reply::says("Done."),
    ]);
    let (mut client, session) = bench.session();
    let rules = json!(["allow: exec(touch made)", "deny: exec(touch other)"]);
    client.get("send_user_message", json!({"sessionId": session, "text": "go", "rules": rules}));
    let events = client.events_until("run_complete");
    assert!(!events.iter().any(|event| event["type"] == "approval_required"), "{events:?}");
    let results: Vec<_> = events.iter().filter(|event| event["type"] == "tool_result").collect();
    assert_eq!(results[0]["payload"]["isError"], false);
    assert_eq!(results[1]["payload"]["structuredError"]["code"], "DENIED_BY_RULE", "{results:?}");
    assert!(bench.cwd().join("made").exists() && !bench.cwd().join("other").exists());
    let wrong = json!({"sessionId": session, "text": "go", "rules": ["perhaps: exec"]});
    assert_eq!(client.refused("send_user_message", wrong), "INVALID_REQUEST");
}

#[test]
fn behind_walls_commands_and_writes_go_ahead_and_commits_are_asked_about() {
    let bench = Bench::new().without_strictness();
    bench.server.script([
        wants("Touch.", "sandbox_exec", json!({"command": "touch made"})),
        wants("Write.", "sandbox_write_file", json!({"path": "new", "content": "x"})),
        wants("Outside.", "sandbox_exec", json!({"command": "touch made", "outside": true})),
        wants("Network.", "sandbox_exec", json!({"command": "true", "network": true})),
        wants("Commit.", "sandbox_git_commit", json!({"message": "m", "all": true})),
        Reply::says("Done."),
    ]);
    let (mut client, session) = bench.begin("go");
    client.get("attach_session", json!({"sessionId": session, "lastSeenSeq": 0}));
    let started = client.event_of("session_started");
    assert_eq!(started["payload"]["sandboxProvider"], "local");
    let full = started["payload"]["sandbox"]["strength"] == "full";
    let mut asked = Vec::new();
    loop {
        let event = client.event();
        match event["type"].as_str() {
            Some("approval_required") if asked.last() != Some(&event["payload"]["summary"]) => {
                asked.push(event["payload"]["summary"].clone());
                client.decide(&event, "approve");
            }
            Some("run_complete") => break,
            _ => {}
        }
    }
    let expected = if full {
        json!(["touch made", "true", "m"])
    } else {
        json!(["touch made", "create new: 1 insertion, 0 deletions", "touch made", "true", "m"])
    };
    assert_eq!(json!(asked), expected, "{started}");
}

#[test]
fn a_session_may_be_without_walls_where_its_user_says_so() {
    let bench = Bench::new().without_strictness();
    repeat(&bench, 1);
    let mut client = bench.daemon.connect();
    let start = json!({"cwd": bench.cwd(), "provider": "openai", "model": "m", "sandboxProvider": "none",
        "environment": bench.environment()});
    let session = client.get("start_session", start)["sessionId"].as_str().unwrap().to_owned();
    let started = client.event_of("session_started");
    assert_eq!(started["payload"]["sandboxProvider"], "none");
    assert_eq!(started["payload"]["sandbox"]["strength"], "missing");
    assert!(asks(&mut client, &session));
    let start = json!({"cwd": bench.cwd(), "provider": "openai", "sandboxProvider": "moon"});
    assert_eq!(client.refused("start_session", start), "SANDBOX_UNAVAILABLE");
    std::fs::create_dir(bench.cwd().join(".push")).unwrap();
    std::fs::write(bench.cwd().join(".push/config.toml"), "[sandbox]\nprovider = \"local\"\n").unwrap();
    let start = json!({"cwd": bench.cwd(), "provider": "openai", "sandboxProvider": "none"});
    assert_eq!(client.refused("start_session", start), "SANDBOX_UNAVAILABLE");
}

/// Scripts the same command for so many runs.
fn repeat(bench: &Bench, runs: usize) {
    let run = || [wants("Touch.", "sandbox_exec", json!({"command": "touch made"})), Reply::says("Done.")];
    bench.server.script((0..runs).flat_map(|_| run()));
}

fn decide(client: &mut Client, asked: &Value, scope: &str) {
    let payload = json!({"sessionId": asked["sessionId"], "approvalId": asked["payload"]["approvalId"],
        "decision": "approve", "scope": scope});
    client.get("submit_approval", payload);
}

/// Whether another run of the session asks before the command.
fn asks(client: &mut Client, session: &str) -> bool {
    client.prompt(session, "again");
    loop {
        let event = client.event();
        match event["type"].as_str() {
            Some("approval_required") => return true,
            Some("run_complete") => return false,
            _ => {}
        }
    }
}
