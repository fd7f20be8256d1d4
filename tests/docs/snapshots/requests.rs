//! The bodies of requests to the three kinds of model servers, as a run of the real daemon sends them.

use std::fs;

use serde_json::{Value, json};

use super::compare;
use crate::support::home::Home;
use crate::support::model::{ModelServer, Reply, ServerDialect, call, say, think};

#[test]
fn requests_to_ollama_are_as_reviewed() {
    check("ollama", "OLLAMA_HOST", ServerDialect::Ollama);
}

#[test]
fn requests_to_a_chat_completions_server_are_as_reviewed() {
    check("openai", "OPENAI_BASE_URL", ServerDialect::OpenAi);
}

#[test]
fn requests_to_a_messages_server_are_as_reviewed() {
    check("anthropic", "ANTHROPIC_BASE_URL", ServerDialect::Anthropic);
}

/// Two turns: the first thinks, speaks and makes two calls, of which one fails; the second gets their results.
fn check(provider: &str, variable: &str, dialect: ServerDialect) {
    let server = ModelServer::start();
    let calls = ["sum.sh", "missing.sh"].map(|path| json!({"path": path}).to_string());
    let calls = [call("c1", "sandbox_read_file", &calls[0]), call("c2", "sandbox_read_file", &calls[1])];
    let turn = [think("Two files."), say("I look.")].into_iter().chain(calls);
    server.script([Reply::turn(turn), Reply::says("Done.")]);
    let url = server.base_url(dialect);
    let home = Home::with(&[(variable, url.as_str())]);
    let project = home.path().join("project");
    fs::create_dir(&project).expect("a directory");
    fs::write(project.join("sum.sh"), "echo $(($1 + $2))\n").expect("a file");
    fs::write(project.join("AGENTS.md"), "Write shell scripts.\n").expect("a file");
    fs::create_dir_all(home.path().join(".config/push")).expect("a directory");
    let configuration = format!("[providers.{provider}]\nthinking = \"high\"\ncontext_window = 65536\n");
    home.write(".config/push/config.toml", &configuration);
    let project = project.display().to_string();
    home.ok(&["run", "--headless", "--provider", provider, "--model", "test-model", "--cwd", &project, "Look at it."]);

    let seen = server.seen().into_iter().filter(|seen| seen.body["messages"].is_array());
    let mut seen: Vec<_> = seen.collect();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!(seen[0].body["tools"], seen[1].body["tools"]);
    seen[1].body["tools"] = json!("as before");
    let texts = seen.iter().map(|seen| format!("POST {}\n{}\n", seen.path, readable(&seen.body)));
    let text = texts.collect::<Vec<_>>().join("\n").replace(&home.path().display().to_string(), "/home/ann");
    compare("requests", provider, &numbered_calls(text));
}

/// The body as JSON in which a text of several lines is a list of them.
fn readable(body: &Value) -> String {
    let mut body = body.clone();
    split_lines(&mut body);
    serde_json::to_string_pretty(&body).expect("JSON")
}

/// Replaces the ids of calls, `call_` and a ULID, by numbers.
fn numbered_calls(mut text: String) -> String {
    let mut number = 0;
    while let Some(start) = text.find("call_0") {
        number += 1;
        let id = text[start..start + "call_".len() + 26].to_owned();
        text = text.replace(&id, &format!("call {number}"));
    }
    text
}

fn split_lines(value: &mut Value) {
    match value {
        Value::String(text) if text.contains('\n') => *value = text.split('\n').collect(),
        Value::Array(values) => values.iter_mut().for_each(split_lines),
        Value::Object(fields) => fields.values_mut().for_each(split_lines),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
