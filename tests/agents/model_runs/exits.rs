//! Exit codes of `push run --headless --json`.

use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::model_runs::fixture::{Fixture, provider, turn_with_call, variables};
use crate::support::daemon::wait_until;
use crate::support::model::{Fault, Reply, ServerDialect, cases};

#[test]
fn every_outcome_has_its_exit_code_in_every_dialect() {
    for dialect in [ServerDialect::Ollama, ServerDialect::OpenAi, ServerDialect::Anthropic] {
        let fixture = Fixture::with_dialect(dialect);
        let commit = turn_with_call("Commit.", "sandbox_git_commit", json!({"message": "no", "all": true}));
        let command = turn_with_call("Try.", "sandbox_exec", json!({"command": "true"}));
        for (reply, words, code, outcome, reason) in [
            (Reply::says("Done."), &[][..], 0, "success", Value::Null),
            (cases::wrong_key(), &[], 1, "failed", json!("provider_unauthorized")),
            (Reply::NotHttp, &[], 1, "failed", json!("provider_invalid_response")),
            (cases::declines(), &[], 1, "failed", refusal_reason(dialect)),
            (commit, &[], 3, "denied", json!("denied")),
            (command, &["--approve", "deny"], 3, "denied", json!("denied")),
            (Reply::says("I did nothing."), &["--accept", "sh test.sh"], 4, "failed", json!("acceptance")),
        ] {
            std::fs::write(fixture.cwd().join("new"), code.to_string()).expect("a file");
            fixture.server.script([reply]);
            // The answer of the model to a denial.
            fixture.server.usually(Reply::says("I cannot."));
            let result = wait_for_result(push(&fixture, dialect, words).spawn().expect("push"));
            assert_eq!((result.0, &result.1["exitCode"]), (Some(code), &json!(code)), "{dialect:?}: {result:?}");
            assert_eq!((&result.1["outcome"], &result.1["reason"]), (&json!(outcome), &reason), "{dialect:?}");
        }
    }
}

#[test]
fn an_interrupted_run_exits_with_2_in_every_dialect() {
    for dialect in [ServerDialect::Ollama, ServerDialect::OpenAi, ServerDialect::Anthropic] {
        for reply in [Reply::Never, Reply::HeadOnly, cases::breaks_off("one", Fault::Stall)] {
            let fixture = Fixture::with(dialect, &[("PUSH_MODEL_SILENCE_SECONDS", "60")]);
            fixture.server.script([reply]);
            let child = push(&fixture, dialect, &[]).spawn().expect("push");
            wait_until("the model is asked", || !fixture.server.seen().is_empty());
            let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
            kill(pid, Signal::SIGINT).expect("it is interrupted");
            let (code, result) = wait_for_result(child);
            assert_eq!((code, &result["exitCode"]), (Some(2), &json!(2)), "{dialect:?}: {result}");
            assert_eq!(result["outcome"], "cancelled", "{dialect:?}");
        }
    }
}

/// The client as a script would call it, with the environment of the server.
pub(crate) fn push(fixture: &Fixture, dialect: ServerDialect, words: &[&str]) -> Command {
    let mut command = fixture.daemon.command("push");
    command
        .args(["run", "--headless", "--json", "--provider", provider(dialect), "--model", "test-model"])
        .args(words)
        .arg("go")
        .envs(variables(dialect, &fixture.server.base_url(dialect)))
        .current_dir(fixture.cwd());
    command
}

/// The exit code and the printed result.
pub(crate) fn wait_for_result(child: Child) -> (Option<i32>, Value) {
    let output = child.wait_with_output().expect("its end");
    let text = String::from_utf8_lossy(&output.stderr);
    let result = serde_json::from_slice(&output.stdout);
    (output.status.code(), result.unwrap_or_else(|error| panic!("no result: {error}: {text}")))
}

fn refusal_reason(dialect: ServerDialect) -> Value {
    match dialect {
        ServerDialect::Ollama => json!("model_stopped"),
        ServerDialect::OpenAi | ServerDialect::Anthropic => json!("model_refused"),
    }
}
