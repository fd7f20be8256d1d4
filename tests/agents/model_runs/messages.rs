//! Messages and context of a run: steering, queueing, keys, thinking, instructions.

use std::fs;

use serde_json::json;

use crate::model_runs::fixture::{Fixture, KEY, provider, tool_call, turn_with_call};
use crate::support::daemon::types;
use crate::support::model::{Reply, ServerDialect, say, think};

#[test]
fn deltas_are_streamed_and_add_up_to_the_message() {
    let fixture = Fixture::with_dialect(ServerDialect::Anthropic);
    let words = ["Hello", ", ", "wörld", " 🦀", "."];
    let steps = [think("hm, "), think("well")].into_iter().chain(words.iter().map(|word| say(word)));
    fixture.server.script([Reply::turn(steps)]);
    let (mut client, session) = fixture.start_run("hi");
    let events = client.events_until("run_complete");
    let joined = |kind: &str| -> String {
        let of_kind = events.iter().filter(|event| event["type"] == kind);
        of_kind.map(|event| event["payload"]["text"].as_str().unwrap()).collect()
    };
    assert_eq!((joined("thinking_token"), joined("assistant_token")), ("hm, well".into(), words.concat()));
    assert!(types(&events).contains(&"usage".to_owned()), "{:?}", types(&events));
    let messages = client.get("get_session_messages", json!({"sessionId": session}));
    assert_eq!(messages["messages"][1]["text"], "Hello, wörld 🦀.");
}

#[test]
fn a_steering_message_reaches_the_model_in_its_next_turn() {
    let fixture = Fixture::new();
    fixture
        .server
        .script([turn_with_call("First.", "sandbox_exec", json!({"command": "true"})), Reply::says("Left it is.")]);
    let (mut client, session) = fixture.start_run("go right");
    let approval = client.event_of("approval_required");
    client.get("steer", json!({"sessionId": session, "text": "no, left"}));
    client.decide(&approval, "approve");
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
    let sent = fixture.sent_messages(1);
    assert_eq!(sent.last().unwrap()["content"], "no, left", "{sent:?}");
    let result = sent.iter().position(|message| message["role"] == "tool").expect("a result");
    assert_eq!(result + 2, sent.len(), "the result comes before it: {sent:?}");
}

#[test]
fn a_steering_message_precedes_waiting_calls() {
    let fixture = Fixture::new();
    fixture.server.script([
        Reply::turn([
            tool_call("sandbox_exec", json!({"command": "echo one >> done"})),
            tool_call("sandbox_exec", json!({"command": "echo two >> done"})),
        ]),
        Reply::says("Only one, then."),
    ]);
    let (mut client, session) = fixture.start_run("do both");
    let approval = client.event_of("approval_required");
    client.get("steer", json!({"sessionId": session, "text": "not the second"}));
    client.decide(&approval, "approve");
    assert_eq!(client.event_of("run_complete")["payload"]["summary"], "Only one, then.");
    assert_eq!(fixture.file("done"), "one\n");
    assert_eq!(fixture.sent_messages(1).last().unwrap()["content"], "not the second");
}

#[test]
fn a_queued_message_starts_after_the_run_with_its_context() {
    let fixture = Fixture::new();
    fixture.server.script([
        turn_with_call("One.", "sandbox_exec", json!({"command": "true"})),
        Reply::says("Done one."),
        Reply::says("Done two."),
    ]);
    let (mut client, session) = fixture.start_run("one");
    let approval = client.event_of("approval_required");
    client.get("queue_message", json!({"sessionId": session, "text": "two"}));
    client.decide(&approval, "approve");
    client.event_of("run_complete");
    let over = client.event_of("run_complete");
    assert_eq!(over["payload"]["summary"], "Done two.");
    let sent: Vec<_> =
        fixture.sent_messages(2).iter().map(|message| message["role"].as_str().unwrap().to_owned()).collect();
    assert_eq!(sent, ["system", "user", "assistant", "tool", "assistant", "user"]);
}

#[test]
fn a_key_from_the_shell_of_the_client_is_used_and_never_stored() {
    let fixture = Fixture::new();
    fixture.server.script([
        turn_with_call("Look.", "sandbox_exec", json!({"command": "echo my key is $OPENAI_API_KEY", "outside": true})),
        Reply::says(&format!("Your key is {KEY}.")),
    ]);
    let (mut client, session) = fixture.start_run("what is my key?");
    let approval = client.event_of("approval_required");
    client.decide(&approval, "approve");
    let events = client.events_until("run_complete");
    let received = serde_json::to_string(&events).unwrap();
    assert!(!received.contains(KEY) && received.contains("my key is ["), "{received}");
    let requests: Vec<_> = fixture.server.seen().into_iter().filter(|seen| seen.method == "POST").collect();
    assert_eq!(requests[0].headers["authorization"], format!("Bearer {KEY}"));
    assert!(!requests[1].body.to_string().contains(KEY), "the model is not told what a tool printed of it");
    drop(client);
    let state = fixture.daemon.home.path().join(".push");
    for file in ["state/pushd.db", "state/pushd.db-wal", "state/pushd.ahead", "logs/pushd.log"] {
        let bytes = fs::read(state.join(file)).unwrap_or_default();
        assert!(memchr::memmem::find(&bytes, KEY.as_bytes()).is_none(), "{file} of {session} has the key");
    }
}

#[test]
fn approving_from_another_shell_does_not_change_the_environment_of_the_run() {
    let fixture = Fixture::new();
    fixture.server.script([
        turn_with_call("Look.", "sandbox_exec", json!({"command": "echo from $SHELL_NAME"})),
        Reply::says("Done."),
        Reply::says("Again."),
    ]);
    let (mut client, session) = fixture.session();
    let mut environment = fixture.environment();
    environment["SHELL_NAME"] = json!("one");
    let message = json!({"sessionId": session, "text": "go", "environment": environment});
    client.get("send_user_message", message);
    let approval = client.event_of("approval_required");
    let mut other = fixture.daemon.connect();
    environment["SHELL_NAME"] = json!("two");
    environment["OPENAI_API_KEY"] = json!("another-key");
    other.get(
        "submit_approval",
        json!({"sessionId": session, "approvalId": approval["payload"]["approvalId"], "decision": "approve",
            "environment": environment}),
    );
    let result = client.event_of("tool_result");
    assert_eq!(result["payload"]["text"], "from one\n", "{result}");
    client.event_of("run_complete");
    client.run(&session, "and now?");
    let keys: Vec<_> =
        fixture.server.seen().iter().filter_map(|seen| seen.headers.get("authorization").cloned()).collect();
    let own = format!("Bearer {KEY}");
    assert_eq!(keys, [own.as_str(), own.as_str(), "Bearer another-key"], "the next run has what was brought last");
}

#[test]
fn project_instructions_reach_the_model() {
    let fixture = Fixture::new();
    fs::write(fixture.cwd().join("AGENTS.md"), "Always use tabs.").expect("a file");
    fixture.server.script([Reply::says("Yes.")]);
    let (mut client, _) = fixture.start_run("hi");
    client.event_of("run_complete");
    let sent = fixture.sent_messages(0);
    let system = sent[0]["content"].as_str().unwrap();
    assert!(system.contains("Always use tabs.") && system.contains(fixture.cwd().to_str().unwrap()), "{system}");
}

#[test]
fn long_instructions_are_truncated_with_a_notice() {
    let fixture = Fixture::new();
    let text = format!("Always use tabs.\n{}LAST WORD\n", "Be brief, please.\n".repeat(3_000));
    fs::write(fixture.cwd().join("AGENTS.md"), text).expect("a file");
    fixture.server.script([Reply::says("Yes.")]);
    let (mut client, _) = fixture.start_run("hi");
    client.event_of("run_complete");
    let sent = fixture.sent_messages(0);
    let system = sent[0]["content"].as_str().unwrap();
    assert!(system.contains("Always use tabs.") && !system.contains("LAST WORD"), "{system}");
    assert!(system.ends_with("please.\n[AGENTS.md is longer; only its first 32768 bytes are shown]"));
}

#[test]
fn the_thinking_level_of_the_provider_is_sent() {
    for (dialect, headers) in [
        (ServerDialect::OpenAi, json!({"reasoning_effort": "high"})),
        (ServerDialect::Ollama, json!({"think": true})),
        (ServerDialect::Anthropic, json!({"output_config": {"effort": "high"}})),
    ] {
        let fixture = Fixture::with_dialect(dialect);
        fs::create_dir_all(fixture.config().parent().unwrap()).expect("a directory");
        let section = format!("[providers.{}]\n", provider(dialect));
        fs::write(fixture.config(), format!("{section}thinking = \"high\"\n")).expect("a configuration");
        fixture.server.script([Reply::says("Yes."), Reply::says("Yes.")]);
        let (mut client, session) = fixture.start_run("hi");
        client.event_of("run_complete");
        fs::write(fixture.config(), section).expect("a configuration");
        client.run(&session, "and now?");
        let requests: Vec<_> = fixture.server.seen().into_iter().filter(|seen| seen.method == "POST").collect();
        for (key, value) in headers.as_object().unwrap() {
            assert_eq!((&requests[0].body[key], requests[1].body.get(key)), (value, None), "{dialect:?}");
        }
    }
}

#[test]
fn signed_thinking_is_sent_back_with_its_calls() {
    let fixture = Fixture::with_dialect(ServerDialect::Anthropic);
    fixture.server.script([
        Reply::turn([think("deep"), tool_call("sandbox_read_file", json!({"path": "sum.sh"}))]),
        Reply::says("Done."),
    ]);
    let (mut client, _) = fixture.start_run("think");
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
    let sent = serde_json::to_string(&fixture.sent_messages(1)).unwrap();
    assert!(sent.contains("\"thinking\":\"deep\"") && sent.contains("signature"), "{sent}");
}
