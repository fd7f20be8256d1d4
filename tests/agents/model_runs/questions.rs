//! Questions of a model that are answered, dismissed or ignored; and images over the wire.

use serde_json::{Value, json};

use crate::model_runs::fixture::{Fixture, provider, turn_with_call, variables};
use crate::support::daemon::Client;
use crate::support::model::{Reply, ServerDialect};

#[test]
fn an_answer_becomes_the_result_of_the_question() {
    let fixture = Fixture::new();
    let colours = json!({"method": "select", "title": "Which colour?", "message": "For the door.",
        "options": ["red", "blue"]});
    fixture.server.script([turn_with_call("I ask.", "ask_user", colours), Reply::says("Blue it is.")]);
    let (mut client, session) = fixture.start_run("paint it");
    let approval = client.event_of("approval_required")["payload"].clone();
    assert_eq!((&approval["kind"], &approval["onDenial"]), (&json!("question"), &json!("dismiss")));
    assert_eq!(approval["summary"], "Which colour?\nFor the door.");
    assert_eq!(
        approval["form"],
        json!({"method": "select", "title": "Which colour?", "message": "For the door.", "options": ["red", "blue"]})
    );
    let listed = client.get("list_approvals", json!({}))["approvals"][0].clone();
    assert_eq!(listed["form"], approval["form"]);
    // An invalid or missing answer leaves the question open.
    for wrong in [json!("green"), json!(1), json!(["red"])] {
        assert_eq!(refusal_code(&mut client, &session, &approval, "approve", Some(wrong)), "INVALID_REQUEST");
    }
    assert_eq!(refusal_code(&mut client, &session, &approval, "approve", None), "INVALID_REQUEST");
    assert_eq!(refusal_code(&mut client, &session, &approval, "deny", Some(json!("red"))), "INVALID_REQUEST");
    client.get("submit_approval", vote(&session, &approval, "approve", Some(json!("blue"))));
    let received = client.event_of("approval_received")["payload"].clone();
    assert_eq!((&received["decision"], &received["answer"]), (&json!("approve"), &json!("blue")));
    let result = client.event_of("tool_result")["payload"].clone();
    assert_eq!((&result["status"], &result["text"]), (&json!("done"), &json!("\"blue\"")));
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
    assert_eq!(fixture.sent_messages(1).last().unwrap()["content"], "\"blue\"");
}

#[test]
fn a_question_that_is_dismissed_fails_and_the_run_goes_on() {
    let fixture = Fixture::new();
    fixture.server.script([turn_with_call("I ask.", "ask_user", confirm_form()), Reply::says("Then not.")]);
    let (mut client, session) = fixture.start_run("go");
    let approval = client.event_of("approval_required")["payload"].clone();
    client.get("submit_approval", vote(&session, &approval, "deny", None));
    let result = client.event_of("tool_result")["payload"].clone();
    assert_eq!(result["structuredError"]["code"], "DISMISSED");
    assert_eq!(result["structuredError"]["message"], "dismissed by cli");
    assert_eq!(client.event_of("run_complete")["payload"]["summary"], "Then not.");
}

#[test]
fn a_question_that_nobody_answers_in_time_fails_and_the_run_goes_on() {
    let fixture = Fixture::new();
    let mut soon = confirm_form();
    soon["timeoutSeconds"] = json!(1);
    fixture.server.script([turn_with_call("I ask.", "ask_user", soon), Reply::says("Nobody is there.")]);
    let (mut client, session) = fixture.start_run("go");
    let approval = client.event_of("approval_required")["payload"].clone();
    let received = client.event_of("approval_received")["payload"].clone();
    assert_eq!((&received["decision"], &received["by"]), (&json!("deny"), &json!("timeout")));
    let result = client.event_of("tool_result")["payload"].clone();
    assert_eq!(result["structuredError"]["code"], "TIMED_OUT");
    assert_eq!(client.event_of("run_complete")["payload"]["summary"], "Nobody is there.");
    let late = refusal_code(&mut client, &session, &approval, "approve", Some(json!(true)));
    assert_eq!(late, "APPROVAL_EXPIRED");
}

#[test]
fn a_question_survives_a_restart_and_an_invalid_one_is_reported_to_the_model() {
    let mut fixture = Fixture::new();
    let empty = json!({"method": "select", "title": "Which?", "options": []});
    fixture.server.script([
        turn_with_call("I ask badly.", "ask_user", empty),
        turn_with_call("I ask.", "ask_user", confirm_form()),
        Reply::says("Thank you."),
    ]);
    let (mut client, session) = fixture.start_run("go");
    let result = client.event_of("tool_result")["payload"].clone();
    assert_eq!(result["structuredError"]["code"], "BAD_ARGUMENTS");
    let approval = client.event_of("approval_required")["payload"].clone();
    fixture.daemon.kill();
    fixture.daemon.restart();
    let mut client = fixture.attach(&session);
    client.event_of("run_recovered");
    client.get("submit_approval", vote(&session, &approval, "approve", Some(json!(true))));
    assert_eq!(client.event_of("run_complete")["payload"]["summary"], "Thank you.");
    let sent = fixture.sent_messages(2);
    assert_eq!(sent.last().unwrap()["content"], "true");
}

#[test]
fn the_client_answers_dismisses_and_says_what_is_missing() {
    let fixture = Fixture::new();
    let name = json!({"method": "interview", "title": "Who are you?", "fields": [{"name": "name"}, {"name": "age"}]});
    fixture.server.script([
        turn_with_call("I ask.", "ask_user", name),
        turn_with_call("And again.", "ask_user", confirm_form()),
        Reply::says("Good."),
    ]);
    let (mut client, _) = fixture.start_run("go");
    client.event_of("approval_required");
    let (code, text) = push(&fixture, &["approve"]);
    assert!(code == 64 && text.contains("--answer"), "{code} {text}");
    let (code, text) = push(&fixture, &["approve", "--answer", "Ann"]);
    assert!(code == 64 && text.contains("a JSON object with name, age"), "{code} {text}");
    let (code, text) = push(&fixture, &["approve", "--answer", r#"{"name":"Ann","age":"9"}"#]);
    assert!(code == 0 && text.starts_with("answered appr_"), "{code} {text}");
    assert_eq!(client.event_of("tool_result")["payload"]["text"], r#"{"age":"9","name":"Ann"}"#);
    client.event_of("approval_required");
    let (code, text) = push(&fixture, &["approve", "--answer", "no"]);
    assert!(code == 0, "{code} {text}");
    assert_eq!(client.event_of("tool_result")["payload"]["text"], "false");
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
}

#[test]
fn a_run_that_nobody_watches_dismisses_questions_and_goes_on() {
    let fixture = Fixture::new();
    for words in [&["--approve", "all"][..], &["--approve", "deny"]] {
        fixture.server.script([turn_with_call("I ask.", "ask_user", confirm_form()), Reply::says("I decided myself.")]);
        let mut command = fixture.daemon.command("push");
        command
            .args([
                "run",
                "--headless",
                "--json",
                "--provider",
                provider(ServerDialect::OpenAi),
                "--model",
                "test-model",
            ])
            .args(words)
            .arg("go")
            .envs(variables(ServerDialect::OpenAi, &fixture.server.base_url(ServerDialect::OpenAi)))
            .current_dir(fixture.cwd());
        let output = command.output().expect("push");
        let text = String::from_utf8_lossy(&output.stderr);
        let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{text}"));
        assert_eq!((output.status.code(), &result["summary"]), (Some(0), &json!("I decided myself.")), "{text}");
    }
}

#[test]
fn images_reach_the_model_and_are_part_of_their_message() {
    let fixture = Fixture::new();
    let (mut client, session) = fixture.session();
    let picture = |mime: &str, data: &str| json!({"mimeType": mime, "data": data});
    fixture.server.script([Reply::says("A cat.")]);
    let images = json!([picture("image/png", "aGk=")]);
    let payload = json!({"sessionId": session, "text": "look", "images": images, "clientMessageId": "m1"});
    client.get("send_user_message", payload.clone());
    assert_eq!(client.event_of("user_message")["payload"]["images"], images);
    client.event_of("run_complete");
    let sent = fixture.sent_messages(0).last().unwrap()["content"].clone();
    assert_eq!(sent[1]["image_url"]["url"], "data:image/png;base64,aGk=");
    // Another image under the same id is another message.
    let mut other = payload.clone();
    other["images"] = json!([picture("image/png", "aG8=")]);
    assert_eq!(client.get("send_user_message", payload)["repeated"], true);
    assert_eq!(client.refused("send_user_message", other), "INVALID_REQUEST");
}

fn confirm_form() -> Value {
    json!({"method": "confirm", "title": "Are you sure?"})
}

fn vote(session: &str, approval: &Value, decision: &str, answer: Option<Value>) -> Value {
    let mut vote = json!({"sessionId": session, "approvalId": approval["approvalId"], "decision": decision});
    if let Some(answer) = answer {
        vote["answer"] = answer;
    }
    vote
}

fn refusal_code(client: &mut Client, session: &str, approval: &Value, decision: &str, answer: Option<Value>) -> String {
    client.refused("submit_approval", vote(session, approval, decision, answer))
}

/// Runs the client, and returns its exit code and output.
fn push(fixture: &Fixture, words: &[&str]) -> (i32, String) {
    let output = fixture.daemon.command("push").args(words).output().expect("push");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}
