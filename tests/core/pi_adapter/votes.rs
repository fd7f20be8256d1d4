//! Answers to questions, decoded as votes.

use pushd::kernel::event::{Decision, EventKind, GateEvent, GateQuestion};
use pushd::kernel::id::Json;
use pushd::protocol::command_protocol::Vote;
use pushd::protocol::operation::UiResponse;
use pushd::protocol::pi::projection::vote;
use serde_json::{Value, json};

use crate::pi_adapter::event_source::EventSource;

#[test]
fn a_plain_question_is_answered_by_yes_or_no() {
    let question = question(json!({}));
    let plain = |decision| Ok(Vote { decision, choice: None, answer: None });
    assert_eq!(vote(&question, &confirm(true)), plain(Decision::Approve));
    assert_eq!(vote(&question, &confirm(false)), plain(Decision::Deny));
    assert_eq!(vote(&question, &UiResponse::Cancelled), plain(Decision::Deny));
    let other = "Validation failed: response.method: must be 'confirm' or 'cancelled' to match the request";
    for response in [select("x"), input("x"), editor("x"), interview()] {
        assert_eq!(vote(&question, &response), Err(other.to_owned()), "{response:?}");
    }
}

#[test]
fn a_question_with_choices_is_answered_by_one_of_them() {
    let question = question(json!({ "choices": ["run_again", "skip", "stop"] }));
    let chosen = |decision, choice: &str| Ok(Vote { decision, choice: Some(choice.into()), answer: None });
    assert_eq!(vote(&question, &select("run_again")), chosen(Decision::Approve, "run_again"));
    assert_eq!(vote(&question, &select("skip")), chosen(Decision::Approve, "skip"));
    assert_eq!(vote(&question, &select("stop")), chosen(Decision::Deny, "stop"));
    assert_eq!(
        vote(&question, &select("dance")),
        Err("Validation failed: response.value: must be one of the options".to_owned())
    );
    assert_eq!(vote(&question, &confirm(true)).unwrap().decision, Decision::Approve);
    assert_eq!(
        vote(&question, &input("skip")),
        Err("Validation failed: response.method: must be 'select' or 'cancelled' to match the request".to_owned())
    );
}

#[test]
fn a_form_is_answered_by_its_method() {
    let form = |form: Value| question(json!({ "form": form }));
    let answer = |json: &str| Ok(Vote { decision: Decision::Approve, choice: None, answer: Some(Json::new(json)) });
    let choose = form(json!({ "method": "select", "options": ["A", { "value": "b", "label": "B" }] }));
    assert_eq!(vote(&choose, &select("A")), answer(r#""A""#));
    assert_eq!(vote(&choose, &select("b")), answer(r#""b""#));
    assert!(vote(&choose, &select("C")).is_err());
    assert!(vote(&choose, &confirm(true)).is_err());
    assert_eq!(vote(&choose, &UiResponse::Cancelled).unwrap().decision, Decision::Deny);
    let sure = form(json!({ "method": "confirm" }));
    assert_eq!(vote(&sure, &confirm(false)), answer("false"), "no is an answer, too");
    assert_eq!(vote(&form(json!({ "method": "input" })), &input("a\"b")), answer(r#""a\"b""#));
    assert_eq!(vote(&form(json!({ "method": "editor" })), &editor("")), answer(r#""""#));
    assert_eq!(vote(&form(json!({ "method": "interview" })), &interview()), answer(r#"{"q":1}"#));
    assert!(vote(&form(json!({ "method": "interview" })), &input("x")).is_err());
    let odd = form(json!({ "method": "dance" }));
    assert_eq!(vote(&odd, &confirm(true)).unwrap().answer, None, "what cannot be asked is a plain question");
}

fn question(payload: Value) -> GateQuestion {
    let mut payload = payload;
    payload["approvalId"] = json!("g");
    payload["callId"] = json!("c");
    let event = EventSource::default().event("approval_required", Some("r"), payload);
    let EventKind::Gate(GateEvent::Opened(question)) = event.kind else { panic!("{event:?}") };
    *question
}

fn confirm(confirmed: bool) -> UiResponse {
    UiResponse::Confirm { confirmed }
}

fn select(value: &str) -> UiResponse {
    UiResponse::Select { value: value.into() }
}

fn input(value: &str) -> UiResponse {
    UiResponse::Input { value: value.into() }
}

fn editor(value: &str) -> UiResponse {
    UiResponse::Editor { value: value.into() }
}

fn interview() -> UiResponse {
    UiResponse::Interview { responses: Json::new(r#"{"q":1}"#) }
}
