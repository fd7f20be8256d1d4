//! Tests of the text of events.

use serde_json::{Value, json};

use super::*;
use crate::client::test_events::event;

#[test]
fn a_plan_is_a_list_of_steps_with_their_states() {
    let mut view = View::new(Palette::Plain, Echo::Messages, Reasoning::Hidden);
    let steps = json!([{"step": "read", "status": "done"}, {"step": "write", "status": "in_progress"}]);
    let call = json!({"callId": "c", "toolName": "update_plan", "args": {"steps": steps}});
    assert_eq!(view.event(&event("tool_call", call.clone())), "");
    let mut settled = result("c", "done", 0, 1, "the plan is shown");
    settled["toolName"] = json!("update_plan");
    let shown = view.event(&event("tool_result", settled));
    assert_eq!(shown, "plan: 1 of 2 steps done\n  done: read\n  in progress: write\n");
    assert_eq!(view.event(&event("tool_call", call)), "");
    let mut failed = result("c", "failed", 0, 1, "two steps are in progress");
    failed["toolName"] = json!("update_plan");
    let shown = view.event(&event("tool_result", failed));
    assert!(!shown.contains("steps done") && shown.contains("two steps are in progress"), "{shown}");
}

#[test]
fn a_run_is_rendered_in_order() {
    let shown = show(&[
        ("user_message", json!({"text": "fix it", "messageId": "m", "by": "cli"})),
        ("assistant_token", json!({"text": "I will "})),
        ("assistant_token", json!({"text": "look."})),
        ("assistant_done", json!({"messageId": "a"})),
        ("tool_call", call("c1", "make test")),
        ("status", json!({"source": "orchestrator", "phase": "Executing tool...", "callId": "c1"})),
        ("tool_output", json!({"callId": "c1", "stream": "stdout", "text": "one\ntw"})),
        ("tool_output", json!({"callId": "c1", "stream": "stdout", "text": "o"})),
        ("tool_result", result("c1", "done", 0, 1234, "one\ntwo")),
        (
            "run_complete",
            json!({"runId": "r", "outcome": "success", "summary": "1 step", "headless": {"exitCodeHint": 0}}),
        ),
    ]);
    assert_eq!(shown, "> fix it\nI will look.\n$ make test\n  one\n  two\n  exit 0, 1.2s\nsuccess: 1 step\n");
}

#[test]
fn output_that_was_not_streamed_is_shown_with_its_result() {
    let shown = show(&[
        ("tool_call", json!({"source": "sandbox", "toolName": "read", "args": {"path": "a.txt"}, "callId": "c"})),
        (
            "tool_result",
            json!({"toolName": "read", "callId": "c", "status": "done", "durationMs": 5, "isError": false, "text": "alpha\nbeta\n"}),
        ),
    ]);
    assert_eq!(shown, "read a.txt\n  alpha\n  beta\n  done, 5ms\n");
}

#[test]
fn a_diff_is_shown_unless_the_approval_of_the_call_showed_it() {
    let diff = "--- a\n+++ a\n@@ -1 +1 @@\n-one\n+two\n";
    let call = json!({"source": "sandbox", "toolName": "sandbox_write_file", "args": {"path": "a"}, "callId": "c"});
    let done = json!({"toolName": "sandbox_write_file", "callId": "c", "status": "done", "durationMs": 5, "isError": false,
        "text": "replaced a (4 bytes)", "diff": diff, "diffTruncated": true});
    let asked = |diff: &str| {
        json!({"approvalId": "appr_1", "kind": "write", "title": "Approve writing a", "summary": "change a",
            "details": {"diff": diff}, "options": ["approve", "deny"], "expiresAt": 1, "callId": "c"})
    };
    let shown = show(&[("tool_call", call.clone()), ("tool_result", done.clone())]);
    let lines = "  replaced a (4 bytes)\n  --- a\n  +++ a\n  @@ -1 +1 @@\n  -one\n  +two\n  … the diff is truncated\n";
    assert!(shown.ends_with(&format!("{lines}  done, 5ms\n")), "{shown}");
    let shown = show(&[("tool_call", call.clone()), ("approval_required", asked(diff)), ("tool_result", done.clone())]);
    assert_eq!(shown.matches("+two").count(), 1, "{shown}");
    let shown = show(&[("tool_call", call), ("approval_required", asked("another")), ("tool_result", done)]);
    assert!(shown.contains("  another\n") && shown.contains("+two"), "{shown}");
}

#[test]
fn a_long_result_is_truncated_with_a_note() {
    let text = "x\n".repeat(RESULT_LINES + 2);
    let shown = show(&[("tool_result", result("c", "done", 0, 0, &text))]);
    assert!(shown.contains("  … 2 more lines\n"), "{shown}");
}

#[test]
fn failures_name_their_code_and_their_cause() {
    let mut failed = result("c", "failed", 2, 61_000, "");
    failed["structuredError"] = json!({"type": "X", "message": "no such file", "retryable": false});
    assert_eq!(show(&[("tool_result", failed)]), "  exit 2, 1m01s: no such file\n");
    assert_eq!(
        show(&[("error", json!({"code": "X", "message": "it broke", "retryable": false, "detail": "here"}))]),
        "error: it broke (here)\n"
    );
}

#[test]
fn an_approval_shows_the_exact_command_and_its_end() {
    let shown = show(&[
        ("assistant_token", json!({"text": "next"})),
        (
            "approval_required",
            json!({"approvalId": "appr_1", "kind": "exec", "title": "Run a command", "summary": "short",
                "details": {"command": "rm -rf build\nmake"}, "options": ["approve", "deny"], "expiresAt": 1}),
        ),
        ("approval_received", json!({"approvalId": "appr_1", "decision": "deny", "by": "cli", "comment": "no"})),
    ]);
    assert_eq!(shown, "next\n? Run a command (appr_1)\n  │ rm -rf build\n  │ make\ndenied by cli: no\n");
}

#[test]
fn acceptance_is_reported_check_by_check() {
    let shown = show(&[(
        "run_complete",
        json!({"runId": "r", "outcome": "failed", "reason": "acceptance", "summary": "1 of 2 checks passed",
            "acceptance": {"total": 2, "passed": 1, "results": [
                {"id": "build", "passed": true, "exitCode": 0, "output": ""},
                {"id": "test", "passed": false, "exitCode": 3, "output": "boom"}]},
            "headless": {"exitCodeHint": 4}}),
    )]);
    assert_eq!(shown, "check build: passed\ncheck test: failed (exit 3)\nfailed (acceptance): 1 of 2 checks passed\n");
}

#[test]
fn untrusted_text_is_sanitized_in_every_field() {
    let evil = "a\u{1b}]0;x\u{7}\u{1b}[2J\u{202e}b\u{9b}1m\r\u{8}c";
    let kinds = [
        "assistant_token",
        "thinking_token",
        "user_message",
        "message_queued",
        "message_unqueued",
        "tool_call",
        "tool_output",
        "tool_result",
        "approval_required",
        "approval_vote",
        "approval_received",
        "warning",
        "error",
        "run_recovered",
        "events_lost",
        "run_complete",
        "session_snapshot",
        "session_renamed",
        "session_ended",
        "status",
    ];
    let mut payload = json!({"args": {"command": evil}, "details": {"command": evil, "diff": evil, "message": evil,
        "files": [evil], "cwd": evil, "risk": evil},
        "structuredError": {"message": evil}, "isError": true, "scope": "always",
        "acceptance": {"results": [{"id": evil, "passed": false, "exitCode": 1}]},
        "pendingApproval": {"title": evil, "summary": evil, "approvalId": evil}});
    for name in [
        "text",
        "messageId",
        "toolName",
        "callId",
        "title",
        "summary",
        "approvalId",
        "by",
        "choice",
        "comment",
        "message",
        "detail",
        "reason",
        "state",
        "lastAssistantText",
        "name",
    ] {
        payload[name] = json!(evil);
    }
    for (kind, about) in kinds.into_iter().flat_map(|kind| ["exec", "write", "commit"].map(|about| (kind, about))) {
        payload["kind"] = json!(about);
        let event = event(kind, payload.clone());
        assert!(!matches!(event.content, EventContent::Unreadable { .. }), "{event:?}");
        let shown = View::new(Palette::Plain, Echo::Messages, Reasoning::Shown).event(&event);
        let harmless = |c: char| c == '\n' || !(c.is_control() || c == '\u{202e}');
        assert!(shown.chars().all(harmless), "{kind}: {shown:?}");
    }
}

#[test]
fn a_control_sequence_split_over_two_pieces_is_stripped() {
    let shown = show(&[
        ("tool_output", json!({"callId": "c", "stream": "stdout", "text": "a\u{1b}[3"})),
        ("tool_output", json!({"callId": "c", "stream": "stderr", "text": "b"})),
        ("tool_output", json!({"callId": "c", "stream": "stdout", "text": "1mc\n"})),
    ]);
    assert_eq!(shown, "  abc\n");
}

#[test]
fn provider_status_is_shown_and_other_status_is_not() {
    let loading = json!({"source": "provider", "phase": "openai is loading the model", "detail": "m, 5 s"});
    assert_eq!(show(&[("status", loading)]), "openai is loading the model (m, 5 s)\n");
    let busy = json!({"source": "orchestrator", "phase": "Waiting for model..."});
    assert_eq!(show(&[("status", busy)]), "");
}

#[test]
fn an_unknown_event_shows_nothing_and_an_unreadable_one_a_warning() {
    assert_eq!(show(&[("of_tomorrow", json!({"text": "x"}))]), "");
    assert_eq!(show(&[("usage", json!(7))]), "warning: this version of push cannot read the event \"usage\"\n");
}

#[test]
fn a_typed_message_is_not_repeated_but_steering_is_shown() {
    let mut view = View::new(Palette::Plain, Echo::Nothing, Reasoning::Hidden);
    assert_eq!(view.event(&event("user_message", json!({"text": "hi"}))), "");
    assert_eq!(view.event(&event("user_message", json!({"text": "hi", "delivery": "steer"}))), "> hi\n");
}

#[test]
fn colours_surround_what_is_painted_and_nothing_else() {
    let mut view = View::new(Palette::Colored, Echo::Messages, Reasoning::Shown);
    let shown = view.event(&event("run_complete", json!({"outcome": "success", "summary": "ok"})));
    assert_eq!(shown, "\u{1b}[32msuccess\u{1b}[0m: ok\n");
}

#[test]
fn errors_and_checks_are_not_repeated() {
    let error = json!({"code": "X", "message": "no model", "retryable": false});
    let over = json!({"outcome": "failed", "reason": "x", "summary": "no model"});
    assert_eq!(show(&[("error", error), ("run_complete", over)]), "error: no model\nfailed (x)\n");
    let mut check = call("c", "make");
    check["purpose"] = "acceptance".into();
    check["check"] = 1.into();
    let over = json!({"outcome": "failed", "summary": "no",
        "acceptance": {"results": [{"id": "check-2", "passed": false, "exitCode": 1}]}});
    let mut failed = result("c", "failed", 1, 0, "exit code 1");
    failed["noOutput"] = true.into();
    failed["structuredError"] = json!({"type": "X", "message": "exit code 1", "retryable": false});
    assert_eq!(
        show(&[("tool_call", check), ("tool_result", failed), ("run_complete", over.clone())]),
        "check 2: $ make\n  exit 1, 0ms\nfailed: no\n"
    );
    assert_eq!(show(&[("run_complete", over)]), "check check-2: failed (exit 1)\nfailed: no\n");
}

#[test]
fn results_of_parallel_calls_have_headings() {
    let looks = |id: &str, path: &str| json!({"source": "sandbox", "toolName": "sandbox_read_file", "args": {"path": path}, "callId": id});
    let read = |id: &str, text: &str| json!({"toolName": "sandbox_read_file", "callId": id, "status": "done", "durationMs": 1, "text": text});
    let shown = show(&[
        ("tool_call", looks("a", "one")),
        ("tool_call", looks("b", "two")),
        ("tool_result", read("b", "2")),
        ("tool_result", read("a", "1")),
    ]);
    assert_eq!(shown, "read one\nread two\n  2\n  done, 1ms\nread one\n  1\n  done, 1ms\n");
}

#[test]
fn a_failure_and_a_final_message_are_not_repeated() {
    let failed = json!({"toolName": "sandbox_edit_file", "callId": "c", "status": "failed", "durationMs": 0,
        "isError": true, "text": "no such text", "structuredError": {"message": "no such text"}});
    assert_eq!(show(&[("tool_result", failed)]), "  failed, 0ms: no such text\n");
    let over = json!({"outcome": "success", "summary": "All done."});
    let shown = show(&[
        ("assistant_token", json!({"text": "Before.\n"})),
        ("assistant_done", json!({})),
        ("assistant_token", json!({"text": "All do"})),
        ("assistant_token", json!({"text": "ne. \nReally."})),
        ("assistant_done", json!({})),
        ("run_complete", over),
    ]);
    assert_eq!(shown, "Before.\nAll done. \nReally.\nsuccess\n");
}

#[test]
fn raising_a_budget_is_an_approval_and_not_a_tool_call() {
    let shown = show(&[
        ("tool_call", json!({"toolName": "raise_budget", "args": {"of": "turns"}, "callId": "c"})),
        (
            "approval_required",
            json!({"approvalId": "appr_1", "kind": "budget", "title": "The budget of the run is used up",
                "summary": "the run has taken 2 of 2 turns", "details": {"choices": ["raise", "stop"]}}),
        ),
        ("tool_result", json!({"toolName": "raise_budget", "callId": "c", "status": "done", "text": "x"})),
    ]);
    assert_eq!(
        shown,
        "? The budget of the run is used up (appr_1)\n  the run has taken 2 of 2 turns\n  choices: raise, stop\n"
    );
}

#[test]
fn an_approval_lists_its_choices() {
    let asked = json!({"approvalId": "appr_1", "title": "Again?", "summary": "x", "details": {"choices": ["a", "b"]}});
    assert_eq!(show(&[("approval_required", asked)]), "? Again? (appr_1)\n  │ x\n  choices: a, b\n");
}

fn show(events: &[(&str, Value)]) -> String {
    let mut view = View::new(Palette::Plain, Echo::Messages, Reasoning::Shown);
    events.iter().map(|(kind, payload)| view.event(&event(kind, payload.clone()))).collect()
}

fn call(id: &str, command: &str) -> Value {
    json!({"source": "sandbox", "toolName": "exec", "args": {"command": command}, "callId": id})
}

fn result(id: &str, status: &str, code: i64, millis: u64, text: &str) -> Value {
    json!({"source": "sandbox", "toolName": "exec", "durationMs": millis, "isError": status == "failed",
        "text": text, "structuredError": null, "callId": id, "status": status, "exitCode": code})
}
