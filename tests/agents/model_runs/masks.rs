//! The approval of a model's call shows everything that would run, and no known secret value.

use std::fs;

use serde_json::{Value, json};

use crate::model_runs::fixture::{Fixture, KEY, turn_with_call};
use crate::support::daemon::Client;
use crate::support::model::Reply;
use crate::support::ordinary_user::also_as_an_ordinary_user;

/// A value that is secret only by the name of its variable.
const VALUE: &str = "correct-horse-battery-staple";

#[test]
fn an_approval_shows_everything_that_would_run_whatever_its_shape() {
    also_as_an_ordinary_user(an_approval_shows_everything_that_would_run_whatever_its_shape);
    for command in [
        r#"DB_PASSWORD="x$(touch PWNED; echo y)" true"#,
        ": '-----BEGIN PRIVATE KEY-----'\ntouch PWNED\n: '-----END PRIVATE KEY-----'",
        "TOKEN=dG91Y2ggUFdORUQK; echo $TOKEN | base64 -d | sh",
    ] {
        let fixture = Fixture::new();
        let args = json!({"command": command, "outside": true});
        fixture.server.script([turn_with_call("Run.", "sandbox_exec", args), Reply::says("Done.")]);
        let (mut client, session) = fixture.start_run("go");
        let intended = client.event_of("tool_call");
        let approval = client.event_of("approval_required")["payload"].clone();
        for shown in [&approval["summary"], &approval["details"]["command"], &intended["payload"]["args"]["command"]] {
            assert_eq!(shown, command, "{approval}");
        }
        assert_eq!(approval["details"]["maskedValues"], Value::Null);
        let listed: Value = serde_json::from_str(&push(&fixture, &["approvals", "--json"])).unwrap();
        assert_eq!(listed["approvals"][0]["details"]["command"], command);
        for words in [&["approvals"][..], &["approvals", "--whole"], &["show", &session]] {
            let screen = push(&fixture, words);
            for line in command.lines() {
                assert!(screen.contains(line), "push {words:?}: {screen}");
            }
        }
        assert!(!fixture.cwd().join("PWNED").exists(), "it has not run");
        decide(&mut client, &session, &approval, "approve");
        client.event_of("run_complete");
        assert!(fixture.cwd().join("PWNED").exists(), "what was shown is what runs");
        // A replay shows the same.
        let mut later = fixture.attach(&session);
        assert_eq!(later.event_of("approval_required")["payload"]["details"]["command"], command);
    }
}

#[test]
fn a_known_value_is_masked_and_counted_and_used_as_it_is() {
    also_as_an_ordinary_user(a_known_value_is_masked_and_counted_and_used_as_it_is);
    let fixture = Fixture::new();
    let command = format!("printf '%s\\n' {VALUE} >> made; DB_PASSWORD=\"$(echo [a-z])\" true");
    fixture.server.script([
        turn_with_call("Run.", "sandbox_exec", json!({"command": command})),
        turn_with_call(
            "Write.",
            "sandbox_write_file",
            json!({"path": "made", "content": format!("k={VALUE};touch x\n")}),
        ),
        Reply::says("Done."),
    ]);
    let (mut client, session) = session_with_value(&fixture);
    let approval = client.event_of("approval_required")["payload"].clone();
    assert_eq!(approval["details"]["command"], "printf '%s\\n' [redacted] >> made; DB_PASSWORD=\"$(echo [a-z])\" true");
    assert_eq!(
        (&approval["details"]["maskedValues"], &approval["title"]),
        (&json!(1), &json!("Approve command (1 secret value masked)"))
    );
    let screen = push(&fixture, &["approvals", "--whole"]);
    assert!(screen.contains("1 secret value is masked, each shown as [redacted]"), "{screen}");
    decide(&mut client, &session, &approval, "approve");
    let approval = client.event_of("approval_required")["payload"].clone();
    let diff = approval["details"]["diff"].as_str().unwrap();
    assert!(diff.contains("-[redacted]\n+k=[redacted];touch x\n"), "{diff}");
    assert_eq!(fixture.file("made"), format!("{VALUE}\n"), "the command had the value");
    decide(&mut client, &session, &approval, "approve");
    client.event_of("run_complete");
    assert_eq!(fixture.file("made"), format!("k={VALUE};touch x\n"));
    drop(client);
    super::hostile::assert_not_stored(&fixture, VALUE);
}

#[test]
fn a_call_that_cannot_be_shown_without_a_secret_is_refused() {
    also_as_an_ordinary_user(a_call_that_cannot_be_shown_without_a_secret_is_refused);
    let fixture = Fixture::new();
    let split = VALUE.replace("horse", "ho\"\"rse");
    let marked = format!("echo {KEY}; rm [redacted]");
    fixture.server.script([
        turn_with_call("Run.", "sandbox_exec", json!({"command": format!("echo {split} > made")})),
        turn_with_call("Run.", "sandbox_exec", json!({"command": marked})),
        turn_with_call("Ask.", "ask_user", json!({"method": "confirm", "title": format!("Is it {split}?")})),
        Reply::says("Then not."),
    ]);
    let (mut client, _) = session_with_value(&fixture);
    let events = client.events_until("run_complete");
    assert!(events.iter().all(|event| event["type"] != "approval_required"), "{events:?}");
    let errors: Vec<_> = events
        .iter()
        .filter(|event| event["type"] == "tool_result")
        .map(|event| event["payload"]["structuredError"]["code"].as_str().unwrap())
        .collect();
    assert_eq!(errors, ["SECRET_IN_CALL"; 3]);
    assert!(!fixture.cwd().join("made").exists());
    let sent = fixture.sent_messages(1).last().unwrap()["content"].to_string();
    assert!(sent.contains("environment variable"), "{sent}");
    drop(client);
    super::hostile::assert_not_stored(&fixture, KEY);
}

#[test]
fn a_value_that_is_shell_syntax_masks_nothing() {
    also_as_an_ordinary_user(a_value_that_is_shell_syntax_masks_nothing);
    let fixture = Fixture::new();
    let value = "; touch PWNED ;";
    fixture.server.script([
        turn_with_call("Run.", "sandbox_exec", json!({"command": format!("true {value} true")})),
        Reply::says("Then not."),
    ]);
    let (mut client, session) = fixture.session();
    let mut environment = fixture.environment();
    environment["X_TOKEN"] = json!(value);
    client.get("send_user_message", json!({"sessionId": session, "text": "go", "environment": environment}));
    let events = client.events_until("run_complete");
    let result = events.iter().find(|event| event["type"] == "tool_result").expect("a result");
    assert_eq!(result["payload"]["structuredError"]["code"], "SECRET_IN_CALL", "{result}");
    assert!(!fixture.cwd().join("PWNED").exists());
}

#[test]
fn a_long_difference_is_not_cut_in_the_middle_of_a_value() {
    also_as_an_ordinary_user(a_long_difference_is_not_cut_in_the_middle_of_a_value);
    let fixture = Fixture::new();
    // The difference is cut at 128 KiB; the value lies over that place.
    let head = "x".repeat(128 * 1024 - 60);
    let content = format!("{head}{VALUE}{VALUE}{VALUE}\n");
    fixture.server.script([
        turn_with_call("Write.", "sandbox_write_file", json!({"path": "long", "content": content})),
        Reply::says("Done."),
    ]);
    let (mut client, session) = session_with_value(&fixture);
    let approval = client.event_of("approval_required")["payload"].clone();
    assert_eq!(approval["details"]["diffTruncated"], true);
    let shown = approval.to_string();
    assert!((6..VALUE.len()).all(|length| !shown.contains(&VALUE[..length])), "half of a value is shown");
    decide(&mut client, &session, &approval, "deny");
    client.event_of("run_complete");
    assert!(fs::metadata(fixture.cwd().join("long")).is_err());
}

fn session_with_value(fixture: &Fixture) -> (Client, String) {
    let (mut client, session) = fixture.session();
    let mut environment = fixture.environment();
    environment["DB_PASSWORD"] = json!(VALUE);
    client.get("send_user_message", json!({"sessionId": session, "text": "go", "environment": environment}));
    (client, session)
}

fn decide(client: &mut Client, session: &str, approval: &Value, decision: &str) {
    let vote = json!({"sessionId": session, "approvalId": approval["approvalId"], "decision": decision});
    client.get("submit_approval", vote);
}

fn push(fixture: &Fixture, words: &[&str]) -> String {
    let output = fixture.daemon.command("push").args(words).output().expect("push");
    assert!(output.status.success(), "push {words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("a text")
}
