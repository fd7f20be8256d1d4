//! Headless runs: a denial goes back to the model, and the report names the rule that would permit the call.

use std::process::Command;

use serde_json::{Value, json};

use crate::bench::{Bench, variables, wants};
use crate::exits::{ended, push};
use crate::model::{Reply, Seen, Speaks};
use crate::skip::skip;

#[test]
fn a_headless_run_goes_on_after_a_denial_and_names_the_rule_and_the_remedy() {
    let bench = Bench::new();
    bench.server.script([
        wants("Run.", "sandbox_exec", json!({"command": "touch 'a b'"})),
        wants("Read.", "sandbox_read_file", json!({"path": "sum.sh"})),
        Reply::says("Done without it."),
    ]);
    let (code, result) = ended(push(&bench, Speaks::OpenAi, &[]).spawn().expect("push"));
    assert_eq!((code, &result["outcome"]), (Some(0), &json!("success")), "{result}");
    assert_eq!(result["summary"], "Done without it.");
    let [denial] = result["denials"].as_array().expect("denials").as_slice() else { panic!("{result}") };
    assert_eq!((&denial["kind"], &denial["by"]), (&json!("exec"), &json!("policy")), "{denial}");
    let reason = denial["reason"].as_str().expect("a reason");
    assert!(reason.contains("the preset strict asks about exec: touch a b"), "{reason}");
    assert!(reason.ends_with(r"; `push run --allow 'exec(touch a\ b)'` allows it"), "{reason}");
    let told = bench.told(1).last().expect("a result")["content"].to_string();
    assert!(told.contains("DENIED_BY_POLICY") && told.contains("the preset strict asks"), "{told}");
    assert!(!bench.cwd().join("a b").exists());
}

#[test]
fn what_the_report_names_as_the_remedy_lets_the_call_go_ahead() {
    let bench = Bench::new();
    let command = r#"printf '%s\n' "it's" > made; touch 'a b'"#;
    bench.server.script([
        wants("Run.", "sandbox_exec", json!({ "command": command })),
        Reply::says("I cannot."),
        wants("Run.", "sandbox_exec", json!({ "command": command })),
        Reply::says("Done."),
    ]);
    let (code, result) = ended(push(&bench, Speaks::OpenAi, &[]).spawn().expect("push"));
    assert_eq!(code, Some(3), "{result}");
    let reason = result["denials"][0]["reason"].as_str().expect("a reason");
    let options = reason.split("`push run ").nth(1).and_then(|rest| rest.split("` allows it").next());
    let options = options.unwrap_or_else(|| panic!("no remedy: {reason}"));
    // As a user would type it.
    let line = format!("exec \"$0\" run --headless --json --provider openai --model m {options} go");
    let mut shell = Command::new("/bin/sh");
    let own = bench.daemon.command("push");
    shell.args(["-c", &line]).arg(own.get_program()).current_dir(bench.cwd()).env_clear();
    for (name, value) in own.get_envs() {
        shell.envs(value.map(|value| (name, value)));
    }
    shell.envs(variables(Speaks::OpenAi, &bench.server.base_url(Speaks::OpenAi)));
    let output = shell.output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{line}: {said}"));
    assert_eq!((output.status.code(), &result["denials"]), (Some(0), &json!([])), "{result}");
    assert!(bench.cwd().join("a b").exists() && bench.file("made") == "it's\n");
}

#[test]
fn a_model_that_cannot_go_on_without_what_was_denied_ends_the_run_as_denied() {
    let bench = Bench::new();
    let commit = || wants("Commit.", "sandbox_git_commit", json!({"message": "no", "all": true}));
    std::fs::write(bench.cwd().join("new"), "x").expect("a file");
    bench.server.script([commit(), Reply::says("I may not commit.")]);
    let (code, result) = ended(push(&bench, Speaks::OpenAi, &[]).spawn().expect("push"));
    assert_eq!((code, &result["outcome"], &result["reason"]), (Some(3), &json!("denied"), &json!("denied")));
    assert_eq!(result["summary"], "I may not commit.", "{result}");
    let reason = result["denials"][0]["reason"].as_str().expect("a reason");
    assert!(reason.ends_with("; `push run --allow 'git(commit)'` allows it"), "{reason}");
    // A model that only repeats the denied call gets no request after ten denials.
    let before = turns(&bench.server.seen());
    bench.server.usually(commit());
    let (code, result) = ended(push(&bench, Speaks::OpenAi, &[]).spawn().expect("push"));
    assert_eq!((code, &result["outcome"]), (Some(3), &json!("denied")), "{result}");
    assert_eq!(turns(&bench.server.seen()) - before, 10);
    assert_eq!(result["denials"].as_array().map(Vec::len), Some(10), "{result}");
}

#[test]
fn a_detached_headless_run_goes_on_after_a_denial_too() {
    let bench = Bench::new();
    bench.server.script([
        wants("Run.", "sandbox_exec", json!({"command": "touch made"})),
        wants("Read.", "sandbox_read_file", json!({"path": "sum.sh"})),
        Reply::says("Done without it."),
    ]);
    let (code, ids) = ended(push(&bench, Speaks::OpenAi, &["--detach"]).spawn().expect("push"));
    assert_eq!(code, Some(0), "{ids}");
    let mut wait = bench.daemon.command("push");
    wait.args(["wait", "--json", ids["sessionId"].as_str().expect("a session")]);
    let (code, result) = ended(wait.current_dir(bench.cwd()).spawn().expect("push"));
    assert_eq!((code, &result["outcome"]), (Some(0), &json!("success")), "{result}");
}

#[test]
fn what_cannot_be_analysed_runs_in_full_confinement_and_asks_without() {
    let bench = Bench::new().without_strictness();
    let commands = [
        "NODE_ENV=test printenv NODE_ENV",
        "PYTHONPATH=src printenv PYTHONPATH",
        "[[ -f sum.sh ]]; echo bracketed",
        "bash -c 'cat <(echo substituted)'; cat <<< x || true",
    ];
    let calls = || commands.map(|command| wants("Run.", "sandbox_exec", json!({ "command": command })));
    let (mut client, session) = bench.session();
    client.get("attach_session", json!({"sessionId": session, "lastSeenSeq": 0}));
    let started = client.event_of("session_started");
    if started["payload"]["sandbox"]["strength"] == "full" {
        bench.server.script(calls().into_iter().chain([Reply::says("Done.")]));
        let (code, result) = ended(push(&bench, Speaks::OpenAi, &[]).spawn().expect("push"));
        assert_eq!((code, &result["denials"]), (Some(0), &json!([])), "{result}");
        // A rule that may match a part of it asks, and a headless run cannot ask.
        bench.server.script([
            wants("Run.", "sandbox_exec", json!({"command": "cat <(echo x)"})),
            Reply::says("I cannot."),
        ]);
        let words = ["--deny", "exec(rm*)"];
        let (code, result) = ended(push(&bench, Speaks::OpenAi, &words).spawn().expect("push"));
        let reason = result["denials"][0]["reason"].as_str().expect("a reason");
        assert!(reason.contains("the rule `deny: exec(rm*)` of this run may be about a command"), "{reason}");
        assert_eq!(code, Some(3), "{result}");
    } else {
        skip("there is no full sandbox here");
    }
    bench.server.script(calls().into_iter().chain([Reply::says("I cannot.")]));
    let words = ["--sandbox", "none", "--allow", "exec"];
    let (_, result) = ended(push(&bench, Speaks::OpenAi, &words).spawn().expect("push"));
    // A variable that is only data is allowed with its command.
    assert_eq!(result["denials"].as_array().map(Vec::len), Some(commands.len() - 1), "{result}");
}

/// The number of model requests.
fn turns(seen: &[Seen]) -> usize {
    seen.iter().filter(|seen| seen.method == "POST").count()
}
