//! Tests of which text goes to which stream.

use serde_json::{Value, json};

use super::*;
use crate::cli::console::Palette;
use crate::cli::view::{Echo, Reasoning};
use crate::client::test_events::event;
use crate::kernel::event::TURN_INTERRUPTED;

#[test]
fn the_answer_of_a_model_is_its_final_message() {
    let events = [
        ("assistant_token", json!({"text": "I look "})),
        ("assistant_token", json!({"text": "first."})),
        ("assistant_done", json!({})),
        ("tool_call", call("a")),
        ("tool_output", output("a", "stdout", "listing\n")),
        ("tool_result", result("a", 0)),
        ("assistant_token", json!({"text": "It says "})),
        ("assistant_token", json!({"text": "new.\nAnd more."})),
        ("assistant_done", json!({})),
        ("tool_call", json!({"callId": "k", "source": "acceptance", "args": {"command": "make"}})),
        ("tool_output", output("k", "stdout", "checked\n")),
        ("tool_result", result("k", 0)),
        ("run_complete", json!({"outcome": "success", "summary": "It says new."})),
    ];
    let (out, err) = render(AnswerSource::Model, Verbosity::Normal, &events);
    assert_eq!(out, "It says new.\nAnd more.\n");
    assert_eq!(
        err,
        "I look first.\n$ run a\n  listing\n  exit 0, 1ms\ncheck 1: $ make\n  checked\n  exit 0, 1ms\nsuccess\n"
    );
    assert_eq!(render(AnswerSource::Model, Verbosity::Quiet, &events), (out, String::new()));
}

#[test]
fn an_incomplete_message_is_no_answer() {
    let cut = [
        ("assistant_token", json!({"text": "half a"})),
        ("warning", json!({"code": TURN_INTERRUPTED, "message": "again"})),
        ("assistant_token", json!({"text": "whole"})),
        ("assistant_done", json!({})),
        ("run_complete", json!({"outcome": "success", "summary": "whole"})),
    ];
    assert_eq!(render(AnswerSource::Model, Verbosity::Normal, &cut).0, "whole\n");
    let cancelled = [
        ("assistant_token", json!({"text": "half a"})),
        ("run_complete", json!({"outcome": "cancelled", "summary": ""})),
    ];
    let (out, err) = render(AnswerSource::Model, Verbosity::Normal, &cancelled);
    assert_eq!((out.as_str(), err.as_str()), ("", "half a\ncancelled\n"));
}

#[test]
fn the_answer_of_a_playbook_is_the_output_of_its_steps() {
    let events = [
        ("assistant_token", json!({"text": "Words."})),
        ("assistant_done", json!({})),
        ("tool_call", call("a")),
        ("tool_output", output("a", "stdout", "no line break")),
        ("tool_output", output("a", "stderr", "a \u{1b}[2Jcomplaint")),
        ("tool_result", result("a", 0)),
        ("run_complete", json!({"outcome": "success", "summary": "1 step done"})),
    ];
    let (out, err) = render(AnswerSource::Steps, Verbosity::Normal, &events);
    assert_eq!(out, "no line break");
    assert_eq!(err, "Words.\n$ run a\na complaint\n  exit 0, 1ms\nsuccess: 1 step done\n");
    assert_eq!(render(AnswerSource::Steps, Verbosity::Quiet, &events), (out, String::new()));
}

#[test]
fn quiet_shows_standard_error_of_a_failed_step_and_the_failure_of_the_run() {
    let events = [
        ("tool_call", call("a")),
        ("tool_output", output("a", "stderr", "harmless\n")),
        ("tool_result", result("a", 0)),
        ("tool_call", call("b")),
        ("tool_output", output("b", "stderr", "why")),
        ("tool_result", result("b", 1)),
        ("run_complete", json!({"outcome": "failed", "reason": "step_failed", "summary": "step 2"})),
    ];
    let (out, err) = render(AnswerSource::Steps, Verbosity::Quiet, &events);
    assert_eq!((out.as_str(), err.as_str()), ("", "why\nfailed (step_failed): step 2\n"));
}

fn render(source: AnswerSource, volume: Verbosity, events: &[(&str, Value)]) -> (String, String) {
    let view = View::new(Palette::Plain, Echo::Nothing, Reasoning::Hidden);
    let mut answer = AnswerView::new(source, volume, view);
    let mut all = StreamText::default();
    for (kind, payload) in events {
        let StreamText { out, err } = answer.event(&event(kind, payload.clone()), &[]);
        all.out += &out;
        all.err += &err;
    }
    (all.out, all.err)
}

fn call(id: &str) -> Value {
    json!({"callId": id, "source": "sandbox", "toolName": "sandbox_exec", "args": {"command": format!("run {id}")}})
}

fn output(id: &str, stream: &str, text: &str) -> Value {
    json!({"callId": id, "stream": stream, "text": text})
}

fn result(id: &str, code: i64) -> Value {
    json!({"callId": id, "toolName": "sandbox_exec", "exitCode": code, "durationMs": 1, "isError": code != 0,
        "text": "", "structuredError": if code == 0 { Value::Null } else { json!({"message": format!("exit code {code}")}) }})
}
