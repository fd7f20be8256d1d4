//! Approval scopes and rules: over runs, sessions, restarts of the daemon and revocations.

use serde_json::{Value, json};

use crate::model_runs::fixture::{Fixture, turn_with_call};
use crate::support::daemon::Client;
use crate::support::model::Reply;

#[test]
fn an_approval_holds_once_by_default() {
    let fixture = Fixture::new();
    script_repeated_command(&fixture, 3);
    let (mut client, session) = fixture.start_run("go");
    let approval = client.event_of("approval_required");
    assert_eq!(approval["payload"]["remember"], "allow: exec(touch made)");
    assert_eq!(approval["payload"]["details"]["scopes"], json!(["once", "run", "session", "always"]));
    decide(&mut client, &approval, "once");
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
    assert!(next_run_asks(&mut client, &session));
}

#[test]
fn an_approval_for_the_run_ends_with_it() {
    let fixture = Fixture::new();
    fixture.server.script([
        turn_with_call("One.", "sandbox_exec", json!({"command": "touch made"})),
        turn_with_call("Two.", "sandbox_exec", json!({"command": "touch made"})),
        Reply::says("Done."),
    ]);
    script_repeated_command(&fixture, 1);
    let (mut client, session) = fixture.start_run("go");
    let approval = client.event_of("approval_required");
    decide(&mut client, &approval, "run");
    let events = client.events_until("run_complete");
    assert!(!events.iter().any(|event| event["type"] == "approval_required"), "{events:?}");
    assert_eq!(events.iter().filter(|event| event["type"] == "tool_result").count(), 2);
    assert!(next_run_asks(&mut client, &session));
}

#[test]
fn an_approval_for_the_run_survives_a_restart_and_one_for_once_does_not() {
    let mut fixture = Fixture::new();
    let exec = |command: &str| turn_with_call("", "sandbox_exec", json!({ "command": command }));
    fixture.server.script([
        exec("touch made"),
        exec("touch once"),
        exec("touch waits"),
        exec("touch made"),
        exec("touch once"),
        Reply::says("Done."),
    ]);
    let (mut client, session) = fixture.start_run("go");
    for (command, scope) in [("touch made", "run"), ("touch once", "once")] {
        let approval = client.event_of("approval_required");
        assert_eq!(approval["payload"]["summary"], command);
        decide(&mut client, &approval, scope);
    }
    let approval = client.event_of("approval_required");
    fixture.daemon.kill();
    fixture.daemon.restart();
    let last = approval["seq"].clone();
    let mut client = fixture.daemon.connect();
    let attach = json!({"sessionId": session, "lastSeenSeq": last, "environment": fixture.environment()});
    client.get("attach_session", attach);
    decide(&mut client, &approval, "once");
    let approval = client.event_of("approval_required");
    assert_eq!(approval["payload"]["summary"], "touch once", "what holds for the run is not asked about again");
    decide(&mut client, &approval, "once");
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
}

#[test]
fn an_approval_for_the_session_survives_a_restart_and_not_the_session() {
    let mut fixture = Fixture::new();
    script_repeated_command(&fixture, 3);
    let (mut client, session) = fixture.start_run("go");
    let approval = client.event_of("approval_required");
    decide(&mut client, &approval, "session");
    client.event_of("run_complete");
    fixture.daemon.kill();
    fixture.daemon.restart();
    let mut client = fixture.daemon.connect();
    let last = client.get("get_session_snapshot", json!({"sessionId": session}))["lastSeq"].clone();
    let attach = json!({"sessionId": session, "lastSeenSeq": last, "environment": fixture.environment()});
    client.get("attach_session", attach);
    assert!(!next_run_asks(&mut client, &session));
    let (mut client, _) = fixture.start_run("go");
    client.event_of("approval_required");
}

#[test]
fn an_always_approval_holds_in_the_repository_until_it_is_revoked() {
    let mut fixture = Fixture::new();
    script_repeated_command(&fixture, 4);
    let (mut client, _) = fixture.start_run("go");
    let approval = client.event_of("approval_required");
    decide(&mut client, &approval, "always");
    client.event_of("run_complete");
    fixture.daemon.kill();
    fixture.daemon.restart();
    let (mut client, session) = fixture.session();
    assert!(!next_run_asks(&mut client, &session));
    let grants = client.get("list_grants", json!({}))["grants"].clone();
    assert_eq!((&grants[0]["rule"], &grants[0]["by"]), (&json!("allow: exec(touch made)"), &json!("cli")));
    client.get("revoke_grant", json!({"grantId": grants[0]["grantId"]}));
    assert_eq!(client.refused("revoke_grant", json!({"grantId": grants[0]["grantId"]})), "APPROVAL_NOT_FOUND");
    assert!(next_run_asks(&mut client, &session));
}

#[test]
fn an_edited_rule_is_granted_in_place_of_the_offered_one() {
    for scope in ["session", "always"] {
        let mut fixture = Fixture::new();
        let exec = |command: &str| turn_with_call("", "sandbox_exec", json!({ "command": command }));
        fixture.server.script([exec("cargo test"), exec("cargo build"), Reply::says("Done.")]);
        fixture.server.script([exec("cargo run"), exec("make"), Reply::says("Done.")]);
        let (mut client, session) = fixture.start_run("go");
        let approval = client.event_of("approval_required");
        assert_eq!(approval["payload"]["remember"], "allow: exec(cargo test)");
        let vote = |scope: &str, rule: &str| {
            json!({"sessionId": session, "approvalId": approval["payload"]["approvalId"], "decision": "approve",
                "scope": scope, "rule": rule})
        };
        for (scope, rule, reason) in [
            (scope, "allow: exec(make*)", "does not cover the call"),
            (scope, "deny: exec(cargo *)", "is not an allow rule"),
            (scope, "ask: exec", "is not an allow rule"),
            (scope, "cargo *", "is not a rule"),
            ("once", "allow: exec(cargo *)", "needs the scope"),
        ] {
            let refused = client.ask("submit_approval", vote(scope, rule));
            assert_eq!(refused["error"]["code"], "INVALID_REQUEST", "{refused}");
            assert!(refused["error"]["message"].as_str().unwrap().contains(reason), "{refused}");
        }
        client.get("submit_approval", vote(scope, "allow:exec(cargo *)"));
        let events = client.events_until("run_complete");
        assert!(!events.iter().any(|event| event["type"] == "approval_required"), "{events:?}");
        let received = events.iter().find(|event| event["type"] == "approval_received").unwrap();
        let expected = (&json!(scope), &json!("allow: exec(cargo *)"));
        assert_eq!((&received["payload"]["scope"], &received["payload"]["rule"]), expected);
        fixture.daemon.kill();
        fixture.daemon.restart();
        let mut client = fixture.attach(&session);
        let last = client.get("get_session_snapshot", json!({"sessionId": session}))["lastSeq"].clone();
        let attach = json!({"sessionId": session, "lastSeenSeq": last, "environment": fixture.environment()});
        client.get("attach_session", attach);
        let run = client.prompt(&session, "again");
        let approval = loop {
            let event = client.event();
            if event["type"] == "approval_required" && event["runId"] == run.as_str() {
                break event;
            }
        };
        assert_eq!(approval["payload"]["summary"], "make", "{approval}");
    }
}

#[test]
fn the_command_line_grants_an_edited_rule() {
    let fixture = Fixture::new();
    script_repeated_command(&fixture, 1);
    let (mut client, _) = fixture.start_run("go");
    let approval = client.event_of("approval_required");
    let id = approval["payload"]["approvalId"].as_str().unwrap();
    let approve = |rule: &str| {
        let mut push = fixture.daemon.command("push");
        push.args(["approve", id, "--for", "always", "--rule", rule]).output().unwrap()
    };
    let refused = approve("allow: exec(make)");
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("does not cover the call"), "{refused:?}");
    assert!(approve("allow: exec(touch *)").status.success());
    client.event_of("run_complete");
    let grants = client.get("list_grants", json!({}))["grants"].clone();
    assert_eq!(grants[0]["rule"], "allow: exec(touch *)");
}

#[test]
fn a_critical_call_needs_approval_every_time() {
    let fixture = Fixture::new();
    fixture.server.script([turn_with_call("Gone.", "sandbox_exec", json!({"command": "rm -rf ~"}))]);
    let (mut client, session) = fixture.start_run("go");
    let approval = client.event_of("approval_required");
    assert_eq!(approval["payload"]["details"]["risk"], "critical");
    assert_eq!(approval["payload"].get("remember"), None);
    let lasting = json!({"sessionId": session, "approvalId": approval["payload"]["approvalId"],
        "decision": "approve", "scope": "always"});
    assert_eq!(client.refused("submit_approval", lasting.clone()), "INVALID_REQUEST");
    let mut edited = lasting;
    edited["rule"] = json!("allow: exec");
    assert_eq!(client.refused("submit_approval", edited), "INVALID_REQUEST");
    client.decide(&approval, "deny");
    client.event_of("run_complete");
}

#[test]
fn a_run_has_rules_of_its_own() {
    let fixture = Fixture::new();
    fixture.server.script([
        turn_with_call("One.", "sandbox_exec", json!({"command": "touch made"})),
        turn_with_call("Two.", "sandbox_exec", json!({"command": "touch made && touch other"})),
        Reply::says("Done."),
    ]);
    let (mut client, session) = fixture.session();
    let rules = json!(["allow: exec(touch made)", "deny: exec(touch other)"]);
    client.get("send_user_message", json!({"sessionId": session, "text": "go", "rules": rules}));
    let events = client.events_until("run_complete");
    assert!(!events.iter().any(|event| event["type"] == "approval_required"), "{events:?}");
    let results: Vec<_> = events.iter().filter(|event| event["type"] == "tool_result").collect();
    assert_eq!(results[0]["payload"]["isError"], false);
    assert_eq!(results[1]["payload"]["structuredError"]["code"], "DENIED_BY_RULE", "{results:?}");
    assert!(fixture.cwd().join("made").exists() && !fixture.cwd().join("other").exists());
    let wrong = json!({"sessionId": session, "text": "go", "rules": ["perhaps: exec"]});
    assert_eq!(client.refused("send_user_message", wrong), "INVALID_REQUEST");
}

#[test]
fn in_confinement_commands_and_writes_go_ahead_and_commits_need_approval() {
    let fixture = Fixture::new().with_standard_preset();
    fixture.server.script([
        turn_with_call("Touch.", "sandbox_exec", json!({"command": "touch made"})),
        turn_with_call("Write.", "sandbox_write_file", json!({"path": "new", "content": "x"})),
        turn_with_call("Outside.", "sandbox_exec", json!({"command": "touch made", "outside": true})),
        turn_with_call("Network.", "sandbox_exec", json!({"command": "true", "network": true})),
        turn_with_call("Commit.", "sandbox_git_commit", json!({"message": "m", "all": true})),
        Reply::says("Done."),
    ]);
    let (mut client, session) = fixture.start_run("go");
    client.get("attach_session", json!({"sessionId": session, "lastSeenSeq": 0}));
    let started = client.event_of("session_started");
    assert_eq!(started["payload"]["sandboxProvider"], "local");
    let full = started["payload"]["sandbox"]["strength"] == "full";
    let mut approval = Vec::new();
    loop {
        let event = client.event();
        match event["type"].as_str() {
            Some("approval_required") if approval.last() != Some(&event["payload"]["summary"]) => {
                approval.push(event["payload"]["summary"].clone());
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
    assert_eq!(json!(approval), expected, "{started}");
}

#[test]
fn a_session_may_run_unconfined_if_its_user_says_so() {
    let fixture = Fixture::new().with_standard_preset();
    script_repeated_command(&fixture, 1);
    let mut client = fixture.daemon.connect();
    let start = json!({"cwd": fixture.cwd(), "provider": "openai", "model": "m", "sandboxProvider": "none",
        "environment": fixture.environment()});
    let session = client.get("start_session", start)["sessionId"].as_str().unwrap().to_owned();
    let started = client.event_of("session_started");
    assert_eq!(started["payload"]["sandboxProvider"], "none");
    assert_eq!(started["payload"]["sandbox"]["strength"], "missing");
    assert!(next_run_asks(&mut client, &session));
    let start = json!({"cwd": fixture.cwd(), "provider": "openai", "sandboxProvider": "moon"});
    assert_eq!(client.refused("start_session", start), "SANDBOX_UNAVAILABLE");
    std::fs::create_dir(fixture.cwd().join(".push")).unwrap();
    std::fs::write(fixture.cwd().join(".push/config.toml"), "[sandbox]\nprovider = \"local\"\n").unwrap();
    let start = json!({"cwd": fixture.cwd(), "provider": "openai", "sandboxProvider": "none"});
    assert_eq!(client.refused("start_session", start), "SANDBOX_UNAVAILABLE");
}

/// Scripts the same command for so many runs.
fn script_repeated_command(fixture: &Fixture, runs: usize) {
    let run = || [turn_with_call("Touch.", "sandbox_exec", json!({"command": "touch made"})), Reply::says("Done.")];
    fixture.server.script((0..runs).flat_map(|_| run()));
}

fn decide(client: &mut Client, approval: &Value, scope: &str) {
    let payload = json!({"sessionId": approval["sessionId"], "approvalId": approval["payload"]["approvalId"],
        "decision": "approve", "scope": scope});
    client.get("submit_approval", payload);
}

/// Whether another run of the session asks before the command.
fn next_run_asks(client: &mut Client, session: &str) -> bool {
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
