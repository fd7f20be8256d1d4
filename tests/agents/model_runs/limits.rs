//! Budgets, and conversations that exceed the context window.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use crate::model_runs::fixture::{Fixture, turn_with_call};
use crate::support::daemon::Client;
use crate::support::model::{Fault, Reply, ServerDialect, TurnCost, WindowReport, cases, fault, say};

#[test]
fn an_exhausted_budget_asks_and_a_raise_lets_the_run_continue() {
    let fixture = Fixture::new();
    fixture.server.script([
        turn_with_call("One.", "sandbox_read_file", json!({"path": "sum.sh"})).spends(usage(600)),
        turn_with_call("Two.", "sandbox_read_file", json!({"path": "sum.sh"})).spends(usage(600)),
        Reply::says("Done.").spends(usage(10)),
    ]);
    let (mut client, session) = fixture.session();
    prompt_with_budget(&mut client, &session, json!({"maxTokens": 1_000}));
    let approval = client.event_of("approval_required");
    assert_eq!(
        (&approval["payload"]["kind"], &approval["payload"]["details"]["choices"]),
        (&json!("budget"), &json!(["raise", "stop"]))
    );
    assert_eq!(client.get("get_session_snapshot", json!({"sessionId": session}))["state"], "awaiting_approval");
    client.decide(&approval, "approve");
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
    let sent = serde_json::to_string(&fixture.sent_messages(2)).unwrap();
    assert!(!sent.contains("raise_budget"), "that is nothing of the model's: {sent}");
}

#[test]
fn a_raise_has_an_effect_and_raises_nothing_else() {
    let fixture = Fixture::new();
    let look = || turn_with_call("On.", "sandbox_read_file", json!({"path": "sum.sh"}));
    fixture.server.script([look().spends(usage(9_000)), look().spends(usage(100)), look().spends(usage(100))]);
    fixture.server.usually(Reply::says("Done.").spends(usage(10)));
    let (mut client, session) = fixture.session();
    prompt_with_budget(&mut client, &session, json!({"maxTokens": 1_000, "maxTurns": 3}));
    let mut approval = Vec::new();
    let over = loop {
        let event = client.event();
        match event["type"].as_str().unwrap() {
            "approval_required" => {
                approval.push(event["payload"]["summary"].as_str().unwrap().to_owned());
                client.decide(&event, "approve");
            }
            "run_complete" => break event,
            _ => {}
        }
    };
    assert_eq!(over["payload"]["outcome"], "success");
    assert_eq!(
        approval,
        [
            "the run has used 9001 of 1000 tokens; approving allows 1000 more",
            "the run has taken 3 of 3 turns; approving allows 3 more"
        ]
    );
}

#[test]
fn usage_of_discarded_turns_counts() {
    let fixture = Fixture::with_dialect(ServerDialect::Anthropic);
    fixture.server.script([
        Reply::turn([say("Half a "), fault(Fault::Cut)]).spends(usage(700)),
        Reply::turn([]).spends(usage(600)),
        Reply::says("Done.").spends(usage(10)),
    ]);
    let (mut client, session) = fixture.session();
    prompt_with_budget(&mut client, &session, json!({"maxTokens": 5_000}));
    let events = client.events_until("run_complete");
    let used: Vec<_> = events
        .iter()
        .filter(|event| event["type"] == "usage")
        .map(|event| event["payload"]["inputTokens"].as_u64().unwrap())
        .collect();
    assert_eq!(used, [700, 600, 10]);
    fixture.server.script([Reply::says("Again.")]);
    client.run(&session, "again");
    let sent = serde_json::to_string(&fixture.sent_messages(3)).unwrap();
    assert!(sent.contains("Done.") && !sent.contains("Half a"), "{sent}");
}

#[test]
fn a_server_that_reports_no_usage_is_limited_by_estimates() {
    for (dialect, budget) in
        [(ServerDialect::OpenAi, json!({"maxTokens": 4_000})), (ServerDialect::Anthropic, json!({"maxCostUsd": 0.004}))]
    {
        let fixture = Fixture::with_dialect(dialect);
        configure(&fixture, "[[prices]]\nmodel = \"test-model\"\ninput = 1.0\noutput = 1.0\n");
        fixture.server.usually(turn_with_call("On.", "sandbox_read_file", json!({"path": "sum.sh"})));
        let (mut client, session) = fixture.session();
        prompt_with_budget(&mut client, &session, budget);
        let events = client.events_until("approval_required");
        assert_eq!(events.last().unwrap()["payload"]["kind"], "budget");
        let used: Vec<_> = events.iter().filter(|event| event["type"] == "usage").collect();
        assert!(used.iter().all(|event| event["payload"]["estimated"] == true), "{used:?}");
        assert!((1..9).contains(&used.len()), "{dialect:?}: {} turns", used.len());
    }
}

#[test]
fn a_budget_that_is_not_raised_ends_the_run_as_failed() {
    let fixture = Fixture::new();
    fixture.server.usually(turn_with_call("On.", "sandbox_read_file", json!({"path": "sum.sh"})));
    let (mut client, session) = fixture.session();
    prompt_with_budget(&mut client, &session, json!({"maxTurns": 2}));
    let approval = client.event_of("approval_required");
    client.decide(&approval, "deny");
    let over = client.event_of("run_complete");
    let payload = &over["payload"];
    assert_eq!(
        (&payload["outcome"], &payload["reason"], &payload["headless"]["exitCodeHint"]),
        (&json!("failed"), &json!("budget"), &json!(1))
    );
}

#[test]
fn a_cost_limit_needs_a_price_and_is_then_enforced() {
    let fixture = Fixture::with_dialect(ServerDialect::Anthropic);
    fixture.server.usually(turn_with_call("On.", "sandbox_read_file", json!({"path": "sum.sh"})).spends(usage(1_000)));
    let (mut client, session) = fixture.session();
    prompt_with_budget(&mut client, &session, json!({"maxCostUsd": 0.0025}));
    let error = client.event_of("error");
    assert_eq!(error["payload"]["code"], "PRICE_UNKNOWN", "{error}");
    client.event_of("run_complete");
    configure(&fixture, "[[prices]]\nmodel = \"test-model\"\ninput = 1.0\noutput = 1.0\n");
    prompt_with_budget(&mut client, &session, json!({"maxCostUsd": 0.0025}));
    let events = client.events_until("approval_required");
    let costs: Vec<_> = events
        .iter()
        .filter(|event| event["type"] == "usage")
        .map(|event| event["payload"]["costMicroUsd"].as_u64().unwrap())
        .collect();
    assert_eq!(costs, [1_001, 1_001, 1_001]);
    assert!(events.last().unwrap()["payload"]["summary"].as_str().unwrap().contains("$0.0025"), "{:?}", events.last());
}

#[test]
fn the_limit_of_the_day_counts_all_sessions_and_asks_before_the_next_turn() {
    let fixture = Fixture::with_dialect(ServerDialect::Anthropic);
    let price = "[[prices]]\nmodel = \"test-model\"\ninput = 1.0\noutput = 1.0\n";
    configure(&fixture, &format!("{price}[limits]\nmax_daily_cost_usd = 0.0015\n"));
    fixture.server.usually(Reply::says("Done.").spends(usage(1_000)));
    let (mut client, first) = fixture.session();
    for _ in 0..2 {
        prompt_with_budget(&mut client, &first, json!({}));
        assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
    }
    // The runs of the first session have cost $0.002002, so a run of another one asks before its first turn.
    let (mut client, second) = fixture.session();
    prompt_with_budget(&mut client, &second, json!({}));
    let approval = client.event_of("approval_required");
    let payload = &approval["payload"];
    assert_eq!((&payload["kind"], &payload["details"]["of"]), (&json!("budget"), &json!("dailyCostMicroUsd")));
    assert_eq!((&payload["details"]["spent"], &payload["details"]["limit"]), (&json!(2_002), &json!(1_500)));
    client.decide(&approval, "approve");
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
    prompt_with_budget(&mut client, &second, json!({}));
    let approval = client.event_of("approval_required");
    client.decide(&approval, "deny");
    let over = client.event_of("run_complete");
    assert_eq!((&over["payload"]["outcome"], &over["payload"]["reason"]), (&json!("failed"), &json!("budget")));
}

#[test]
fn a_project_limit_overrides_a_looser_limit_of_the_run() {
    let fixture = Fixture::new();
    let file = fixture.cwd().join(".push/config.toml");
    fs::create_dir_all(file.parent().unwrap()).expect("a directory");
    fs::write(&file, "[limits]\nmax_turns = 1\n").expect("a file");
    fixture.server.usually(turn_with_call("On.", "sandbox_read_file", json!({"path": "sum.sh"})));
    let (mut client, session) = fixture.session();
    prompt_with_budget(&mut client, &session, json!({"maxTurns": 5}));
    let approval = client.event_of("approval_required");
    assert_eq!(approval["payload"]["summary"], "the run has taken 1 of 1 turns; approving allows 1 more");
}

#[test]
fn a_run_keeps_its_configuration_until_its_end() {
    let fixture = Fixture::new();
    fixture.server.script([
        turn_with_call("One.", "sandbox_exec", json!({"command": "true"})),
        turn_with_call("Two.", "sandbox_read_file", json!({"path": "sum.sh"})),
        Reply::says("Done."),
    ]);
    let (mut client, session) = fixture.start_run("go");
    let approval = client.event_of("approval_required");
    configure(&fixture, "[approvals]\npreset = \"trusted\"\n[limits]\nmax_turns = 1\n");
    client.decide(&approval, "approve");
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success", "nobody is asked again");
    fixture.server.script([turn_with_call("One.", "sandbox_read_file", json!({"path": "sum.sh"}))]);
    client.prompt(&session, "and now?");
    assert_eq!(client.event_of("approval_required")["payload"]["kind"], "budget", "the next run has it");
}

#[test]
fn an_overlong_conversation_continues_from_a_summary() {
    let fixture = Fixture::new();
    let (mut client, session) = fixture.session();
    let long = fill_window_up_to_next_question(&fixture, &mut client, &session);
    fixture.server.script([Reply::turn([say("SUMMARY OF IT ALL")]), Reply::says("answer 3")]);
    client.prompt(&session, &format!("and now? {long}"));
    let events = client.events_until("run_complete");
    let compacted = events.iter().find(|event| event["type"] == "context_compacted").expect("a summary");
    assert_eq!(compacted["payload"]["summary"], "SUMMARY OF IT ALL");
    let approval: Vec<_> = fixture.server.seen().into_iter().filter(|seen| seen.method == "POST").collect();
    let last = approval.last().unwrap().body["messages"].to_string();
    assert!(last.contains("SUMMARY OF IT ALL") && last.contains("and now?") && !last.contains("question 0"), "{last}");
    // The history itself stays complete, and the next turn continues from the summary.
    let messages = client.get("get_session_messages", json!({"sessionId": session})).to_string();
    assert!(messages.contains("question 0"));
    fixture.server.script([Reply::says("answer 4")]);
    client.run(&session, "still there?");
    let approval: Vec<_> = fixture.server.seen().into_iter().filter(|seen| seen.method == "POST").collect();
    let last = approval.last().unwrap().body["messages"].to_string();
    assert!(last.contains("SUMMARY OF IT ALL") && last.contains("answer 3") && !last.contains("question 0"), "{last}");
}

#[test]
fn a_server_that_finds_the_conversation_too_long_gets_a_shorter_one() {
    let fixture = Fixture::with_dialect(ServerDialect::OpenAi);
    let (mut client, session) = fixture.session();
    fixture.server.script([Reply::says("one"), Reply::says("two")]);
    client.run(&session, "first");
    client.run(&session, "second");
    let too_long = r#"{"error":{"message":"maximum context length exceeded","code":"context_length_exceeded"}}"#;
    fixture.server.script([Reply::status(400, too_long), Reply::says("THE SUMMARY"), Reply::says("three")]);
    assert_eq!(client.run(&session, "third")["outcome"], "success");
}

#[test]
fn an_incomplete_summary_is_requested_again_and_never_used() {
    let fixture = Fixture::new();
    let (mut client, session) = fixture.session();
    let long = fill_window_up_to_next_question(&fixture, &mut client, &session);
    fixture.server.script([cases::gets_too_long(), Reply::says("THE WHOLE SUMMARY"), Reply::says("answer 3")]);
    client.prompt(&session, &format!("and now? {long}"));
    let events = client.events_until("run_complete");
    let compacted = events.iter().find(|event| event["type"] == "context_compacted").expect("a summary");
    assert_eq!(compacted["payload"]["summary"], "THE WHOLE SUMMARY");
    let approval: Vec<_> = fixture.server.seen().into_iter().filter(|seen| seen.method == "POST").collect();
    assert!(approval.iter().all(|seen| seen.body.get("reasoning_effort").is_none()), "few servers know it");
    assert!(approval.iter().all(|seen| seen.body["tools"].is_array()), "calls without their tools are refused");
}

#[test]
fn a_conversation_without_a_summary_is_trimmed_where_that_is_enough() {
    for refused in [cases::refuses(), cases::declines()] {
        let fixture = Fixture::new();
        let (mut client, session) = fixture.session();
        let long = fill_window_up_to_next_question(&fixture, &mut client, &session);
        let again = matches!(refused, Reply::Turn(_)).then(|| refused.clone());
        fixture.server.script([refused].into_iter().chain(again).chain([Reply::says("answer 3")]));
        client.prompt(&session, &format!("and now? {long}"));
        let events = client.events_until("run_complete");
        assert_eq!(events.last().unwrap()["payload"]["summary"], "answer 3");
        assert!(!events.iter().any(|event| event["type"] == "context_compacted"), "nothing was summarised");
        assert!(events.iter().any(|event| event["payload"]["code"] == "SUMMARY_FAILED"));
        let approval: Vec<_> = fixture.server.seen().into_iter().filter(|seen| seen.method == "POST").collect();
        let last = approval.last().unwrap().body["messages"].to_string();
        assert!(last.contains("question 0") && last.contains("and now?"), "{last}");
    }
}

#[test]
fn a_conversation_continues_in_a_small_window_reported_by_the_server() {
    for report in [WindowReport::InErrors, WindowReport::Nowhere, WindowReport::InTheList, WindowReport::InProperties] {
        let fixture = Fixture::new();
        fixture.server.usually(Reply::says("An answer."));
        let (mut client, session) = fixture.session();
        let window = window_for(&fixture, &mut client, &session, 3_000);
        fixture.server.has_window(window, report);
        let long = "so many words ".repeat(150);
        for round in 0..20 {
            let over = client.run(&session, &format!("question {round}: {long}"));
            assert_eq!(over["outcome"], "success", "{report:?} {round}: {over}");
        }
        let last = fixture.server.seen().last().unwrap().body["messages"].to_string();
        assert!(last.contains("question 19") && !last.contains("question 1:"), "{last}");
        let refused = fixture.server.refused();
        match report {
            WindowReport::InErrors => assert!((1..=3).contains(&refused), "learned once: {refused}"),
            WindowReport::InTheList | WindowReport::InProperties => assert!(refused <= 3, "{refused}"),
            WindowReport::Nowhere => assert!(refused > 0),
        }
    }
}

#[test]
fn a_listed_context_window_is_respected_before_a_request_is_refused() {
    for (dialect, provider) in [(ServerDialect::OpenAi, "openai"), (ServerDialect::Ollama, "ollama")] {
        let fixture = Fixture::with_dialect(dialect);
        fixture.server.usually(Reply::says("An answer."));
        let (mut client, session) = fixture.session();
        let window = window_for(&fixture, &mut client, &session, 12_000);
        fixture.server.has_window(window, WindowReport::InTheList);
        // The configuration assumes a larger window, so that pushd asks the server for the real one soon.
        let assumed = window * 2;
        configure(&fixture, &format!("[providers.{provider}]\nkind = \"{provider}\"\ncontext_window = {assumed}\n"));
        let long = "so many words ".repeat(150);
        for round in 0..30 {
            let over = client.run(&session, &format!("question {round}: {long}"));
            assert_eq!(over["outcome"], "success", "{dialect:?} {round}: {over}");
        }
        assert_eq!(fixture.server.refused(), 0, "{dialect:?}");
    }
}

#[test]
fn a_result_larger_than_the_window_is_truncated() {
    let fixture = Fixture::new();
    let (mut client, session) = fixture.session();
    fixture.server.script([Reply::says("Hello.")]);
    let window = window_for(&fixture, &mut client, &session, 2_000);
    fixture.server.has_window(window, WindowReport::InErrors);
    fs::write(fixture.cwd().join("long.txt"), "one line of many\n".repeat(2_000)).expect("a file");
    fixture.server.script([turn_with_call("Looking.", "sandbox_read_file", json!({"path": "long.txt"}))]);
    fixture.server.usually(Reply::says("Done."));
    let over = client.run(&session, "read it");
    assert_eq!((&over["outcome"], &over["summary"]), (&json!("success"), &json!("Done.")), "{over}");
    let last = fixture.server.seen().last().unwrap().body["messages"].to_string();
    assert!(last.contains("one line of many") && last.contains("read it"), "{last}");
}

#[test]
fn a_message_that_can_never_fit_ends_its_run_and_not_the_session() {
    let fixture = Fixture::new();
    let (mut client, session) = fixture.session();
    fixture.server.usually(Reply::says("An answer."));
    let window = window_for(&fixture, &mut client, &session, 2_000);
    fixture.server.has_window(window, WindowReport::InErrors);
    let over = client.run(&session, &"far too many words ".repeat(3_000));
    assert_eq!((&over["outcome"], &over["reason"]), (&json!("failed"), &json!("context_too_long")), "{over}");
    let summary = over["summary"].as_str().unwrap();
    assert!(summary.contains("send a shorter message") && summary.contains(&window.to_string()), "{over}");
    client.prompt(&session, "then a short one");
    let events = client.events_until("run_complete");
    assert_eq!(events.last().unwrap()["payload"]["outcome"], "success", "{events:?}");
    assert!(events.iter().any(|event| event["type"] == "context_compacted"), "room was made: {events:?}");
    let seen = fixture.server.seen();
    let summarised = seen[seen.len() - 2].body["messages"].to_string();
    assert!(summarised.contains("is left out") && !summarised.contains("far too many words"), "{summarised}");
    let last = fixture.server.seen().last().unwrap().body["messages"].to_string();
    assert!(last.contains("then a short one") && !last.contains(&"far too many words ".repeat(20)), "{last}");
}

#[test]
fn a_session_is_compacted_on_request() {
    let fixture = Fixture::new();
    let (mut client, session) = fixture.session();
    fixture.server.script([Reply::says("one"), Reply::says("two")]);
    client.run(&session, "first question");
    client.run(&session, "second question");
    fixture.server.script([Reply::says("THE SUMMARY"), Reply::says("three")]);
    let compact = |words: &[&str]| {
        let mut push = fixture.daemon.command("push");
        let variables: BTreeMap<String, String> = serde_json::from_value(fixture.environment()).unwrap();
        push.arg("compact").arg(&session).args(words).envs(variables).output().expect("push")
    };
    let done = compact(&["--instructions", "keep all names"]);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "THE SUMMARY\n", "{done:?}");
    assert!(done.status.success(), "{done:?}");
    let approval = fixture.server.seen().last().unwrap().body["messages"].to_string();
    assert!(approval.contains("first question") && approval.contains("keep all names"), "{approval}");
    client.run(&session, "third question");
    let sent = fixture.server.seen().last().unwrap().body["messages"].to_string();
    assert!(sent.contains("THE SUMMARY") && !sent.contains("first question"), "{sent}");
    fixture.server.script([Reply::status(401, "no")]);
    let failed = compact(&[]);
    let text = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert_eq!((failed.status.code(), failed.stdout.len()), (Some(1), 0), "{failed:?}");
    assert!(text.contains("cannot compact session ") && text.contains("refuses the key"), "{text}");
}

/// Sends a short message, and returns a window with room for so many tokens besides the fixed part of a request.
fn window_for(fixture: &Fixture, client: &mut Client, session: &str, room: usize) -> usize {
    assert_eq!(client.run(session, "hello")["outcome"], "success");
    fixture.server.seen().last().unwrap().body.to_string().len() / 4 + room
}

/// Fills the conversation so that one more question of the returned length triggers a compaction.
fn fill_window_up_to_next_question(fixture: &Fixture, client: &mut Client, session: &str) -> String {
    let long = "so many words ".repeat(500);
    for round in 0..3 {
        fixture.server.script([Reply::says(&format!("answer {round}"))]);
        assert_eq!(client.run(session, &format!("question {round}: {long}"))["outcome"], "success");
    }
    // A window that a fourth question of that length exceeds.
    let approval = &fixture.server.seen()[0].body;
    let fixed = (approval["messages"][0].to_string().len() + approval["tools"].to_string().len()) / 4;
    let window = (fixed + 7 * long.len() / 8) * 10 / 8;
    configure(fixture, &format!("[providers.openai]\nkind = \"openai\"\ncontext_window = {window}\n"));
    long
}

fn prompt_with_budget(client: &mut Client, session: &str, budget: Value) {
    client.get("send_user_message", json!({"sessionId": session, "text": "go", "budget": budget}));
}

fn usage(tokens: u64) -> TurnCost {
    TurnCost { fresh: tokens, cache_read: 0, cache_write: 0, output: 1, dollars: 0.0 }
}

fn configure(fixture: &Fixture, text: &str) {
    let file = fixture.config();
    fs::create_dir_all(file.parent().unwrap()).expect("a directory");
    fs::write(file, text).expect("a configuration");
}
