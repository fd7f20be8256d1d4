//! Failing servers: the run reports the reason, retries where that helps, and ends with the right exit code.

use serde_json::json;

use crate::model_runs::fixture::Fixture;
use crate::support::daemon::{Client, types};
use crate::support::model::{End, Fault, Reply, ServerDialect, call, fault, say};

#[test]
fn an_interrupted_turn_is_retried_and_counted_once() {
    for dialect in [ServerDialect::OpenAi, ServerDialect::Ollama, ServerDialect::Anthropic] {
        for broken in [Fault::Cut, Fault::CutInsideCharacter, Fault::Reset, Fault::EndEarly] {
            let fixture = Fixture::with_dialect(dialect);
            fixture.server.script([Reply::turn([say("Half a "), fault(broken.clone())]), Reply::says("The whole.")]);
            let (mut client, session) = fixture.start_run("hi");
            let events = client.events_until("run_complete");
            let over = &events.last().unwrap()["payload"];
            assert_eq!(over["outcome"], "success", "{dialect:?} {broken:?}: {over}");
            let warned = events.iter().find(|event| event["payload"]["code"] == "MODEL_TURN_INTERRUPTED");
            assert!(warned.is_some(), "{dialect:?} {broken:?}: {:?}", types(&events));
            let messages = client.get("get_session_messages", json!({"sessionId": session}));
            assert_eq!(messages["messages"][1]["text"], "The whole.", "{dialect:?} {broken:?}: {messages}");
            let snapshot = client.get("get_session_snapshot", json!({"sessionId": session}));
            assert_eq!(snapshot["lastAssistantText"], "The whole.", "{dialect:?} {broken:?}: {snapshot}");
            fixture.server.script([Reply::says("Again.")]);
            client.run(&session, "again");
            let sent = serde_json::to_string(&fixture.sent_messages(2)).unwrap();
            assert!(sent.contains("The whole.") && !sent.contains("Half a"), "{sent}");
        }
    }
}

#[test]
fn a_server_that_is_down_fails_the_run_and_opens_its_circuit() {
    let fixture = Fixture::new();
    fixture.server.usually(Reply::status(500, r#"{"error":{"message":"out of order"}}"#));
    let (mut client, session) = fixture.session();
    for round in 0..5 {
        client.prompt(&session, "hi");
        let over = client.event_of("run_complete");
        assert_eq!(
            (&over["payload"]["outcome"], &over["payload"]["headless"]["exitCodeHint"]),
            (&json!("failed"), &json!(1))
        );
        assert_eq!(over["payload"]["reason"], "provider_failed", "round {round}: {over}");
    }
    // A changed configuration keeps the circuit open.
    std::fs::create_dir_all(fixture.config().parent().unwrap()).expect("a directory");
    std::fs::write(fixture.config(), "[providers.other]\nkind = \"openai\"\n").expect("a configuration");
    let metrics = client.get("get_metrics", json!({}));
    let circuit = &metrics["circuits"][0];
    assert_eq!((&circuit["provider"], &circuit["state"]), (&json!("openai"), &json!("open")), "{metrics}");
    // A run of a person is never refused by the open circuit: it probes the server and finds it available again.
    fixture.server.script([Reply::says("Back.")]);
    assert_eq!(client.run(&session, "hi")["outcome"], "success");
    let metrics = client.get("get_metrics", json!({}));
    assert_eq!(metrics["circuits"][0]["state"], "closed", "{metrics}");
}

#[test]
fn a_model_that_is_being_loaded_is_waited_for_and_shown() {
    let fixture = Fixture::new();
    let loading =
        || Reply::status(503, r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#);
    // More attempts than a failing server gets.
    fixture.server.script([loading(), loading(), loading(), Reply::says("Loaded.")]);
    let (mut client, _) = fixture.start_run("hi");
    let events = client.events_until("run_complete");
    assert_eq!(events.last().unwrap()["payload"]["outcome"], "success");
    let shown = events
        .iter()
        .find(|event| event["type"] == "status" && event["payload"]["phase"] == "openai is loading the model");
    assert!(shown.is_some_and(|event| event["payload"]["detail"] == "test-model, 0 s"), "{events:?}");
}

#[test]
fn every_failure_has_its_reason_and_exit_code_1() {
    let huge = Fault::HugeLine(9 * 1024 * 1024);
    let cases = [
        (Reply::status(401, r#"{"error":{"message":"bad key"}}"#), "provider_unauthorized"),
        (Reply::status(404, r#"{"error":{"message":"no such model","code":"model_not_found"}}"#), "model_not_found"),
        (
            Reply::status(429, r#"{"error":{"message":"slow down"}}"#).header("retry-after", "900"),
            "provider_rate_limited",
        ),
        (Reply::status(500, "{}"), "provider_failed"),
        (Reply::turn([fault(Fault::Garbage)]), "provider_invalid_response"),
        (Reply::turn([fault(huge)]), "provider_invalid_response"),
        (Reply::Never, "provider_timeout"),
        (Reply::HangUp, "provider_interrupted"),
    ];
    for (reply, reason) in cases {
        // Nine megabytes are slow on a busy machine and must not count as silence.
        let patience = if reason == "provider_timeout" { "2" } else { "60" };
        let fixture = Fixture::with(ServerDialect::OpenAi, &[("PUSH_MODEL_SILENCE_SECONDS", patience)]);
        fixture.server.usually(reply.clone());
        let (mut client, _) = fixture.start_run("hi");
        let over = run_result(&mut client);
        assert_eq!((over.0.as_str(), over.1), (reason, 1), "{reply:?}");
    }
}

#[test]
fn a_refusal_in_the_middle_of_a_tool_call_runs_nothing() {
    // Ollama has no such stop reason.
    for dialect in [ServerDialect::OpenAi, ServerDialect::Anthropic] {
        let fixture = Fixture::with_dialect(dialect);
        let half = call("c1", "sandbox_exec", "{\"command\": \"touch done");
        fixture.server.script([Reply::turn([say("I will"), half]).ends(End::Refused), Reply::says("On and on.")]);
        let (mut client, _) = fixture.start_run("go");
        let events = client.events_until("run_complete");
        assert_eq!(events.last().unwrap()["payload"]["reason"], "model_refused", "{dialect:?}");
        assert!(!types(&events).contains(&"tool_call".to_owned()), "{dialect:?}: {:?}", types(&events));
        assert_eq!(fixture.server.seen().len(), 1, "{dialect:?}");
    }
}

#[test]
fn a_retry_after_is_honoured() {
    let fixture = Fixture::new();
    let busy = Reply::status(429, r#"{"error":{"message":"slow down"}}"#).header("retry-after", "0");
    fixture.server.script([busy, Reply::says("Here.")]);
    let (mut client, _) = fixture.start_run("hi");
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
}

#[test]
fn without_a_key_the_run_says_what_to_set() {
    let fixture = Fixture::new();
    let mut client = fixture.daemon.connect();
    let start = json!({"cwd": fixture.cwd(), "provider": "openai", "model": "m", "environment": {"PATH": "/bin"}});
    let session = client.get("start_session", start)["sessionId"].as_str().unwrap().to_owned();
    client.prompt(&session, "hi");
    let error = client.event_of("error");
    assert_eq!(error["payload"]["code"], "PROVIDER_NOT_CONFIGURED");
    assert!(error["payload"]["message"].as_str().unwrap().contains("OPENAI_API_KEY"), "{error}");
    assert_eq!(run_result(&mut client), ("provider_not_configured".to_owned(), 1));
}

#[test]
fn an_unknown_provider_is_refused_at_session_start() {
    let fixture = Fixture::new();
    let mut client = fixture.daemon.connect();
    let start = json!({"cwd": fixture.cwd(), "provider": "nobody"});
    let refused = client.ask("start_session", start)["error"].clone();
    assert_eq!(refused["code"], "PROVIDER_NOT_CONFIGURED", "{refused}");
    assert!(refused.to_string().contains("[providers.nobody]"), "it says what to set: {refused}");
    fixture.store_key(ServerDialect::Anthropic, "another-key-0123456789");
    let providers = client.get("list_providers", json!({}));
    let names: Vec<_> =
        providers["providers"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["playbook", "anthropic", "ollama", "openai"]);
    let configured = |row: usize| providers["providers"][row]["configured"].clone();
    assert_eq!([configured(1), configured(3)], [true, false], "of the two that want a key one has it");
}

/// The reason and the exit code of the run.
fn run_result(client: &mut Client) -> (String, u64) {
    let over = client.event_of("run_complete");
    let payload = &over["payload"];
    let reason = payload["reason"].as_str().unwrap_or_default().to_owned();
    (reason, payload["headless"]["exitCodeHint"].as_u64().unwrap())
}
