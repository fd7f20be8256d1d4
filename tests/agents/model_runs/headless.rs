//! Headless runs: a denial goes back to the model, and the report names the rule that would permit the call.

use std::process::Command;

use serde_json::{Value, json};

use crate::model_runs::exits::{push, wait_for_result};
use crate::model_runs::fixture::{Fixture, turn_with_call, variables};
use crate::support::model::{ReceivedRequest, Reply, ServerDialect};
use crate::support::skip::skip;

#[test]
fn a_headless_run_goes_on_after_a_denial_and_names_the_rule_and_the_remedy() {
    let fixture = Fixture::new();
    fixture.server.script([
        turn_with_call("Run.", "sandbox_exec", json!({"command": "touch 'a b'"})),
        turn_with_call("Read.", "sandbox_read_file", json!({"path": "sum.sh"})),
        Reply::says("Done without it."),
    ]);
    let (code, result) = wait_for_result(push(&fixture, ServerDialect::OpenAi, &[]).spawn().expect("push"));
    assert_eq!((code, &result["outcome"]), (Some(0), &json!("success")), "{result}");
    assert_eq!(result["summary"], "Done without it.");
    let [denial] = result["denials"].as_array().expect("denials").as_slice() else { panic!("{result}") };
    assert_eq!((&denial["kind"], &denial["by"]), (&json!("exec"), &json!("policy")), "{denial}");
    let reason = denial["reason"].as_str().expect("a reason");
    assert!(reason.contains("the preset strict asks about exec: touch a b"), "{reason}");
    assert!(reason.ends_with(r"; `push run --allow 'exec(touch a\ b)'` allows it"), "{reason}");
    let sent = fixture.sent_messages(1).last().expect("a result")["content"].to_string();
    assert!(sent.contains("DENIED_BY_POLICY") && sent.contains("the preset strict asks"), "{sent}");
    assert!(!fixture.cwd().join("a b").exists());
}

#[test]
fn the_remedy_in_the_report_permits_the_call() {
    let fixture = Fixture::new();
    let command = r#"printf '%s\n' "it's" > made; touch 'a b'"#;
    fixture.server.script([
        turn_with_call("Run.", "sandbox_exec", json!({ "command": command })),
        Reply::says("I cannot."),
        turn_with_call("Run.", "sandbox_exec", json!({ "command": command })),
        Reply::says("Done."),
    ]);
    let (code, result) = wait_for_result(push(&fixture, ServerDialect::OpenAi, &[]).spawn().expect("push"));
    assert_eq!(code, Some(3), "{result}");
    let reason = result["denials"][0]["reason"].as_str().expect("a reason");
    let options = reason.split("`push run ").nth(1).and_then(|rest| rest.split("` allows it").next());
    let options = options.unwrap_or_else(|| panic!("no remedy: {reason}"));
    // As a user would type it.
    let line = format!("exec \"$0\" run --headless --json --provider openai --model m {options} go");
    let mut shell = Command::new("/bin/sh");
    let own = fixture.daemon.command("push");
    shell.args(["-c", &line]).arg(own.get_program()).current_dir(fixture.cwd()).env_clear();
    for (name, value) in own.get_envs() {
        shell.envs(value.map(|value| (name, value)));
    }
    shell.envs(variables(ServerDialect::OpenAi, &fixture.server.base_url(ServerDialect::OpenAi)));
    let output = shell.output().expect("a shell");
    let text = String::from_utf8_lossy(&output.stderr);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{line}: {text}"));
    assert_eq!((output.status.code(), &result["denials"]), (Some(0), &json!([])), "{result}");
    assert!(fixture.cwd().join("a b").exists() && fixture.file("made") == "it's\n");
}

#[test]
fn a_model_that_cannot_continue_without_the_denied_call_ends_the_run_as_denied() {
    let fixture = Fixture::new();
    let commit = || turn_with_call("Commit.", "sandbox_git_commit", json!({"message": "no", "all": true}));
    std::fs::write(fixture.cwd().join("new"), "x").expect("a file");
    fixture.server.script([commit(), Reply::says("I may not commit.")]);
    let (code, result) = wait_for_result(push(&fixture, ServerDialect::OpenAi, &[]).spawn().expect("push"));
    assert_eq!((code, &result["outcome"], &result["reason"]), (Some(3), &json!("denied"), &json!("denied")));
    assert_eq!(result["summary"], "I may not commit.", "{result}");
    let reason = result["denials"][0]["reason"].as_str().expect("a reason");
    assert!(reason.ends_with("; `push run --allow 'git(commit)'` allows it"), "{reason}");
    // A model that only repeats the denied call gets no request after ten denials.
    let before = request_count(&fixture.server.seen());
    fixture.server.usually(commit());
    let (code, result) = wait_for_result(push(&fixture, ServerDialect::OpenAi, &[]).spawn().expect("push"));
    assert_eq!((code, &result["outcome"]), (Some(3), &json!("denied")), "{result}");
    assert_eq!(request_count(&fixture.server.seen()) - before, 10);
    assert_eq!(result["denials"].as_array().map(Vec::len), Some(10), "{result}");
}

#[test]
fn a_detached_headless_run_goes_on_after_a_denial_too() {
    let fixture = Fixture::new();
    fixture.server.script([
        turn_with_call("Run.", "sandbox_exec", json!({"command": "touch made"})),
        turn_with_call("Read.", "sandbox_read_file", json!({"path": "sum.sh"})),
        Reply::says("Done without it."),
    ]);
    let (code, ids) = wait_for_result(push(&fixture, ServerDialect::OpenAi, &["--detach"]).spawn().expect("push"));
    assert_eq!(code, Some(0), "{ids}");
    let mut wait = fixture.daemon.command("push");
    wait.args(["wait", "--json", ids["sessionId"].as_str().expect("a session")]);
    let (code, result) = wait_for_result(wait.current_dir(fixture.cwd()).spawn().expect("push"));
    assert_eq!((code, &result["outcome"]), (Some(0), &json!("success")), "{result}");
}

#[test]
fn an_unanalysable_command_runs_in_full_confinement_and_asks_without() {
    let fixture = Fixture::new().with_standard_preset();
    let commands = [
        "NODE_ENV=test printenv NODE_ENV",
        "PYTHONPATH=src printenv PYTHONPATH",
        "[[ -f sum.sh ]]; echo bracketed",
        "bash -c 'cat <(echo substituted)'; cat <<< x || true",
    ];
    let calls = || commands.map(|command| turn_with_call("Run.", "sandbox_exec", json!({ "command": command })));
    let (mut client, session) = fixture.session();
    client.get("attach_session", json!({"sessionId": session, "lastSeenSeq": 0}));
    let started = client.event_of("session_started");
    if started["payload"]["sandbox"]["strength"] == "full" {
        fixture.server.script(calls().into_iter().chain([Reply::says("Done.")]));
        let (code, result) = wait_for_result(push(&fixture, ServerDialect::OpenAi, &[]).spawn().expect("push"));
        assert_eq!((code, &result["denials"]), (Some(0), &json!([])), "{result}");
        // A rule that may match a part of it asks, and a headless run cannot ask.
        fixture.server.script([
            turn_with_call("Run.", "sandbox_exec", json!({"command": "cat <(echo x)"})),
            Reply::says("I cannot."),
        ]);
        let words = ["--deny", "exec(rm*)"];
        let (code, result) = wait_for_result(push(&fixture, ServerDialect::OpenAi, &words).spawn().expect("push"));
        let reason = result["denials"][0]["reason"].as_str().expect("a reason");
        assert!(reason.contains("the rule `deny: exec(rm*)` of this run may apply to a command"), "{reason}");
        assert_eq!(code, Some(3), "{result}");
    } else {
        skip("there is no full sandbox here");
    }
    fixture.server.script(calls().into_iter().chain([Reply::says("I cannot.")]));
    let words = ["--sandbox", "none", "--allow", "exec"];
    let (_, result) = wait_for_result(push(&fixture, ServerDialect::OpenAi, &words).spawn().expect("push"));
    // A variable that is only data is allowed with its command.
    assert_eq!(result["denials"].as_array().map(Vec::len), Some(commands.len() - 1), "{result}");
}

/// The number of model requests.
fn request_count(seen: &[ReceivedRequest]) -> usize {
    seen.iter().filter(|seen| seen.method == "POST").count()
}
