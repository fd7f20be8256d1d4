//! Exit codes of `push run --headless --json`.

use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::bench::{Bench, provider, variables, wants};
use crate::daemon::wait_until;
use crate::model::{Fault, Reply, Speaks, cases};

#[test]
fn every_end_of_a_run_has_its_exit_code_in_every_dialect() {
    for speaks in [Speaks::Ollama, Speaks::OpenAi, Speaks::Anthropic] {
        let bench = Bench::speaking(speaks);
        let commit = wants("Commit.", "sandbox_git_commit", json!({"message": "no", "all": true}));
        let command = wants("Try.", "sandbox_exec", json!({"command": "true"}));
        for (reply, words, code, outcome, reason) in [
            (Reply::says("Done."), &[][..], 0, "success", Value::Null),
            (cases::wrong_key(), &[], 1, "failed", json!("provider_unauthorized")),
            (Reply::NotHttp, &[], 1, "failed", json!("provider_garbage")),
            (cases::declines(), &[], 1, "failed", declined(speaks)),
            (commit, &[], 3, "denied", json!("denied")),
            (command, &["--approve", "deny"], 3, "denied", json!("denied")),
            (Reply::says("I did nothing."), &["--accept", "sh test.sh"], 4, "failed", json!("acceptance")),
        ] {
            std::fs::write(bench.cwd().join("new"), code.to_string()).expect("a file");
            bench.server.script([reply]);
            // The answer of the model to a denial.
            bench.server.usually(Reply::says("I cannot."));
            let result = ended(push(&bench, speaks, words).spawn().expect("push"));
            assert_eq!(
                (result.0, &result.1["exitCode"]),
                (Some(code), &json!(code)),
                "{speaks:?}: {result:?}"
            );
            assert_eq!((&result.1["outcome"], &result.1["reason"]), (&json!(outcome), &reason), "{speaks:?}");
        }
    }
}

#[test]
fn an_interrupted_run_ends_with_two_in_every_dialect() {
    for speaks in [Speaks::Ollama, Speaks::OpenAi, Speaks::Anthropic] {
        for reply in [Reply::Never, Reply::HeadOnly, cases::breaks_off("one", Fault::Stall)] {
            let bench = Bench::with(speaks, &[("PUSH_MODEL_SILENCE_SECONDS", "60")]);
            bench.server.script([reply]);
            let child = push(&bench, speaks, &[]).spawn().expect("push");
            wait_until("the model is asked", || !bench.server.seen().is_empty());
            let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
            kill(pid, Signal::SIGINT).expect("it is interrupted");
            let (code, result) = ended(child);
            assert_eq!((code, &result["exitCode"]), (Some(2), &json!(2)), "{speaks:?}: {result}");
            assert_eq!(result["outcome"], "cancelled", "{speaks:?}");
        }
    }
}

/// The client as a script would call it, with the environment of the server.
pub(crate) fn push(bench: &Bench, speaks: Speaks, words: &[&str]) -> Command {
    let mut command = bench.daemon.command("push");
    command
        .args(["run", "--headless", "--json", "--provider", provider(speaks), "--model", "test-model"])
        .args(words)
        .arg("go")
        .envs(variables(speaks, &bench.server.base_url(speaks)))
        .current_dir(bench.cwd());
    command
}

/// The exit code and the printed result.
pub(crate) fn ended(child: Child) -> (Option<i32>, Value) {
    let output = child.wait_with_output().expect("its end");
    let said = String::from_utf8_lossy(&output.stderr);
    let result = serde_json::from_slice(&output.stdout);
    (output.status.code(), result.unwrap_or_else(|error| panic!("no result: {error}: {said}")))
}

fn declined(speaks: Speaks) -> Value {
    match speaks {
        Speaks::Ollama => json!("model_stopped"),
        Speaks::OpenAi | Speaks::Anthropic => json!("model_refused"),
    }
}
