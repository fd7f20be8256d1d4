//! Every view, compared with the snapshots in `src/tui/tests/views`. CONTRIBUTING.md says how to write them again.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::Line;
use serde_json::{Value, json};

use super::{Screen, plain, question};
use crate::client::{Notice, SessionSnapshot};
use crate::tui::client_task::{CallError, CallReply};
use crate::tui::model::{Connection, Focus, Input, Model, Setup};
use crate::tui::scrolled;
use crate::tui::text::theme::Theme;
use crate::tui::text::wrap::truncate;
use crate::tui::view;
use crate::tui::writer::encode;

/// A snapshot: finished lines, a rule, and the region with its cursor.
fn compare(name: &str, screen: &mut Screen) {
    compare_rows(name, screen, plain);
}

/// The same with the styles, as the parameters of their escape sequences.
fn compare_styles(name: &str, screen: &mut Screen) {
    compare_rows(name, screen, |row| {
        let mut text = String::new();
        encode(row, &mut text);
        let mut parts = text.split("\x1b[");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| {
            let (codes, rest) = part.split_once('m').unwrap();
            format!("{text}{{{codes}}}{rest}")
        })
    });
}

fn compare_rows(name: &str, screen: &mut Screen, show: fn(&Line<'_>) -> String) {
    let finished = screen.model.transcript.rows.unwritten().to_vec();
    screen.model.transcript.rows.mark_written();
    let (kind, frame) = match &screen.model.scrolled {
        Some(view) => ("screen", scrolled::draw(&screen.model, view)),
        None => ("region", view::draw(&screen.model)),
    };
    let rows = |rows: &[Line<'_>]| rows.iter().map(|row| show(row) + "\n").collect::<String>();
    let cursor = match frame.cursor {
        Some((row, column)) => format!("cursor at row {row}, column {column}"),
        None => "no cursor".to_owned(),
    };
    // As the writer shortens them.
    let drawn: Vec<_> = frame.rows.iter().map(|row| truncate(row, screen.model.size.0 - 1)).collect();
    let text = format!("{}---- {kind}, {cursor}\n{}", rows(&finished), rows(&drawn));
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tui/tests/views"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// A view of a session with a model.
fn screen(theme: Theme, size: (u16, u16), read_only: bool) -> Screen {
    let mut snapshot = SessionSnapshot::default();
    snapshot.meta.provider = "ollama".into();
    snapshot.meta.model = Some("qwen3:8b".into());
    let setup = Setup {
        theme,
        session: "s".into(),
        handle: "abc123".into(),
        snapshot,
        own_run: None,
        read_only,
        can_switch: true,
        history_end: 0,
        size,
        full_output: false,
        now: 1_000_000,
        new_id: || "msg_1".to_owned(),
    };
    Screen { model: Model::new(setup), now: 1_000_000, seq: 0 }
}

fn wide() -> Screen {
    screen(Theme::plain(), (80, 30), false)
}

fn narrow() -> Screen {
    screen(Theme::plain(), (40, 24), false)
}

/// A run that has started.
fn running(mut screen: Screen) -> Screen {
    screen.event("user_message", json!({"text": "Fix the sum."}));
    screen
}

#[test]
fn the_composer() {
    compare("composer-empty", &mut wide());
    let mut screen = wide();
    screen.model.composer.paste("first line\nsecond line, 漢字 and 🙂\n\nfourth line");
    compare("composer-lines", &mut screen);
    let mut screen = wide();
    screen.model.composer.paste(&"a line of a long paste\n".repeat(5000));
    screen.type_text(" and words");
    compare("composer-paste", &mut screen);
    let mut screen = running(wide());
    compare("composer-during-a-run", &mut screen);
    screen.model.composer.paste("a message that is longer than the terminal is wide, so that it is wrapped into rows");
    compare("composer-wrapped-during-a-run", &mut screen);
    let mut screen = wide();
    screen.event("session_ended", json!({}));
    compare("composer-ended-session", &mut screen);
}

#[test]
fn the_queue() {
    let mut screen = running(wide());
    screen.event("message_queued", json!({"messageId": "m1", "text": "first"}));
    screen.event("message_queued", json!({"messageId": "m2", "text": "second\nwith another line"}));
    compare("queue", &mut screen);
    drop(screen.key(KeyCode::Tab));
    assert_eq!(screen.model.focus, Focus::Queue);
    drop(screen.key(KeyCode::Down));
    compare("queue-focused", &mut screen);
    for n in 3..9 {
        screen.event("message_queued", json!({"messageId": format!("m{n}"), "text": format!("message {n}")}));
    }
    drop(screen.key(KeyCode::Esc));
    compare("queue-long", &mut screen);
    let mut screen = wide();
    screen.type_text("on its way");
    drop(screen.key(KeyCode::Enter));
    compare("queue-sending", &mut screen);
}

#[test]
fn completions() {
    let mut screen = wide();
    screen.type_text("/re");
    compare("completion-commands", &mut screen);
    drop(screen.model.composer.discard());
    for c in "see @sr".chars() {
        drop(screen.key(KeyCode::Char(c)));
    }
    let files = ["README.md", "src/lib.rs", "src/tui/mod.rs", "src/漢字.rs"].map(str::to_owned);
    drop(screen.input(Input::Files(files.into())));
    compare("completion-files", &mut screen);
    drop(screen.key(KeyCode::Down));
    compare("completion-files-second", &mut screen);
    let mut screen = wide();
    screen.type_text("?");
    compare("keys", &mut screen);
    let mut screen = narrow();
    screen.type_text("?");
    compare("keys-40-columns", &mut screen);
}

#[test]
fn approval_cards() {
    for (name, payload) in cards() {
        for (size, mut screen) in [("", wide()), ("-40-columns", narrow())] {
            screen.event("user_message", json!({"text": "go"}));
            screen.open_card(payload.clone());
            compare(&format!("card-{name}{size}"), &mut screen);
        }
    }
}

#[test]
fn the_states_of_a_card() {
    let open = || {
        let mut screen = running(wide());
        screen.open_card(question());
        screen
    };
    let mut screen = open();
    screen.event("approval_required", json!({"approvalId": "other", "kind": "exec", "title": "Approve command"}));
    screen.now += 2000;
    drop(screen.input(Input::Tick));
    compare("card-with-another-behind-it", &mut screen);
    let mut screen = open();
    drop(screen.decide('n'));
    compare("card-reason-empty", &mut screen);
    screen.type_text("use make check");
    compare("card-reason", &mut screen);
    let mut screen = open();
    drop(screen.decide('w'));
    compare("card-rule", &mut screen);
    let mut screen = open();
    drop(screen.decide('y'));
    compare("card-decision-sent", &mut screen);
    let number = screen.model.next_call - 1;
    let error = CallError { code: Some("INVALID_RULE".into()), message: "the rule is not valid".into() };
    drop(screen.input(Input::Reply { number, reply: Err(error) }));
    compare("card-decision-refused", &mut screen);
    let mut screen = running(wide());
    screen.model.composer.paste("a draft");
    screen.open_card(question());
    compare("card-over-a-draft", &mut screen);
    let mut screen = open();
    screen
        .event("approval_received", json!({"approvalId": "appr_1", "decision": "deny", "by": "cli", "comment": "no"}));
    compare("card-decided", &mut screen);
    let mut screen = screen_of_observer();
    screen.open_card(question());
    compare("card-read-only", &mut screen);
    let mut screen = running(wide());
    let mut payload = question();
    payload["quorum"] = json!({"rule": "majority"});
    screen.open_card(payload);
    screen.event("approval_vote", json!({"approvalId": "appr_1", "decision": "approve", "by": "ann"}));
    compare("card-votes", &mut screen);
}

#[test]
fn what_a_run_waits_for() {
    let shown = |name: &str, kind: &str, payload: Value| {
        let mut screen = running(wide());
        screen.now += 3000;
        screen.event(kind, payload);
        screen.now += 65_000;
        drop(screen.input(Input::Tick));
        compare(&format!("waiting-{name}"), &mut screen);
    };
    shown("model", "usage", json!({}));
    shown("thinking", "thinking_token", json!({"text": "hm"}));
    shown("writing", "assistant_token", json!({"text": "An answer that is not complete"}));
    let call = json!({"callId": "c", "toolName": "sandbox_exec", "args": {"command": "make"}});
    shown("tool", "tool_call", call);
    let retry = json!({"attempt": 2, "maxAttempts": 5, "delayMs": 90_000, "message": "503 overloaded"});
    shown("retry", "retry_started", retry);
    shown("compaction", "compaction_started", json!({"reason": "manual"}));
    let status = json!({"source": "provider", "phase": "loading the model", "detail": "qwen3:8b"});
    shown("provider", "status", status);
    shown("approval", "approval_required", question());
}

#[test]
fn a_conversation() {
    for (name, mut screen) in [("", wide()), ("-40-columns", narrow())] {
        converse(&mut screen);
        compare(&format!("conversation{name}"), &mut screen);
    }
    for (name, theme) in [("dark", Theme::dark()), ("light", Theme::light()), ("no-colour", Theme::plain())] {
        let mut conversation = screen(theme, (80, 30), false);
        converse(&mut conversation);
        compare_styles(&format!("conversation-{name}"), &mut conversation);
        let mut card = screen(theme, (80, 30), false);
        let (_, diff) = cards().into_iter().find(|(name, _)| *name == "diff").unwrap();
        card.open_card(diff);
        compare_styles(&format!("card-diff-{name}"), &mut card);
    }
}

#[test]
fn problems_and_the_state_of_the_connection() {
    let mut screen = running(wide());
    screen.event("warning", json!({"code": "W", "message": "the context is nearly full", "detail": "90 %"}));
    screen.event("error", json!({"code": "E", "message": "the provider refused the key"}));
    screen.event(
        "run_complete",
        json!({"outcome": "failed", "reason": "provider", "summary": "the provider refused the key"}),
    );
    compare("errors", &mut screen);
    let mut screen = wide();
    screen.type_text("/nonsense");
    drop(screen.key(KeyCode::Enter));
    compare("errors-unknown-command", &mut screen);
    let mut screen = running(wide());
    drop(screen.input(Input::Notice(Notice::ConnectionLost)));
    compare("reconnecting", &mut screen);
    drop(screen.input(Input::Notice(Notice::DaemonStopped)));
    assert_eq!(screen.model.connection, Connection::Stopped);
    compare("daemon-stopped", &mut screen);
    drop(screen.input(Input::Notice(Notice::Reconnected)));
    screen.event("run_recovered", json!({}));
    compare("reconnected", &mut screen);
    let mut screen = wide();
    screen.event(
        "session_snapshot",
        json!({"state": "idle", "activeRunId": null, "lastAssistantText": "The last answer."}),
    );
    compare("snapshot-after-a-gap", &mut screen);
    compare("read-only", &mut running(screen_of_observer()));
    let mut screen = wide();
    screen.model.other_approvals = ["a", "b"].map(str::to_owned).into();
    compare("approvals-of-other-sessions", &mut screen);
    let mut screen = running(wide());
    drop(screen.control('c'));
    compare("cancelling", &mut screen);
    let mut screen = wide();
    screen.type_text("sent");
    drop(screen.key(KeyCode::Enter));
    drop(screen.control('d'));
    compare("leaving", &mut screen);
}

#[test]
fn replies_to_commands() {
    let mut screen = wide();
    for (command, reply) in [
        ("/help", None),
        ("/queue", Some(CallReply::Queue(Vec::new()))),
        ("/approvals", Some(CallReply::Approvals(Vec::new()))),
        ("/rules", Some(CallReply::Rules(Vec::new()))),
        ("/status", Some(CallReply::Snapshot(Box::default()))),
    ] {
        screen.model.composer.paste(command);
        drop(screen.key(KeyCode::Enter));
        if let Some(reply) = reply {
            let number = screen.model.next_call - 1;
            drop(screen.input(Input::Reply { number, reply: Ok(reply) }));
        }
    }
    compare("commands", &mut screen);
}

#[test]
fn the_scrolled_view() {
    for (name, mut screen) in [("", wide()), ("-40-columns", narrow())] {
        screen.model.size.1 = 16;
        converse(&mut screen);
        screen.event("user_message", json!({"text": "And now the difference."}));
        screen.model.transcript.rows.mark_written();
        screen.type_text("a draft");
        drop(screen.key(KeyCode::PageUp));
        compare(&format!("scrolled{name}"), &mut screen);
        screen.type_text("/sum");
        compare(&format!("scrolled-search-typed{name}"), &mut screen);
        drop(screen.key(KeyCode::Enter));
        drop(screen.key(KeyCode::Char('N')));
        compare_styles(&format!("scrolled-match{name}"), &mut screen);
        screen.event("approval_required", question());
        compare(&format!("scrolled-approval{name}"), &mut screen);
    }
}

fn screen_of_observer() -> Screen {
    screen(Theme::plain(), (80, 30), true)
}

/// One approval of each kind.
fn cards() -> Vec<(&'static str, Value)> {
    let diff = "--- sum.sh\n+++ sum.sh\n@@ -1,2 +1,2 @@\n #!/bin/sh\n-echo $(($1 - $2))\n+echo $(($1 + $2))\n";
    let expires = 1_000_000 + 3_600_000;
    vec![
        (
            "command",
            json!({"approvalId": "a", "kind": "exec", "title": "Approve command", "summary": "rm -rf build\nmake -j4",
                "remember": "allow: exec(make -j4)\nallow: exec(rm -rf build)", "expiresAt": expires,
                "details": {"command": "rm -rf build\nmake -j4", "cwd": "sub", "risk": "high", "outside": true,
                    "reason": "the preset strict asks about high risk: rm -rf build; it removes whole directories"}}),
        ),
        (
            "diff",
            json!({"approvalId": "a", "kind": "write", "title": "Approve writing sum.sh", "expiresAt": expires,
                "summary": "change sum.sh: 1 insertion, 1 deletion", "remember": "allow: write(sum.sh)",
                "details": {"diff": diff, "path": "sum.sh", "files": ["sum.sh"], "insertions": 1, "deletions": 1,
                    "risk": "medium", "reason": "the preset strict asks about write: writing sum.sh"}}),
        ),
        (
            "network",
            json!({"approvalId": "a", "kind": "network", "title": "Approve fetching", "expiresAt": expires,
                "summary": "GET https://example.org/data.json", "remember": "allow: network(example.org)",
                "details": {"url": "https://example.org/data.json", "addresses": ["192.0.2.7"], "risk": "high",
                    "reason": "the preset standard asks about network: connecting to example.org"}}),
        ),
        (
            "question",
            json!({"approvalId": "a", "kind": "question", "title": "The model asks", "summary": "Which database?",
                "form": {"method": "select", "title": "Which database?", "options": ["SQLite", "PostgreSQL"]}}),
        ),
        (
            "question-text",
            json!({"approvalId": "a", "kind": "question", "title": "The model asks", "summary": "Which name?",
                "form": {"method": "input", "title": "Which name?"}}),
        ),
        (
            "budget",
            json!({"approvalId": "a", "kind": "budget", "title": "The budget of the run is used up",
                "summary": "the run has taken 1 of 1 turns; approving allows 1 more",
                "details": {"choices": ["raise", "stop"]}}),
        ),
    ]
}

/// A run with everything that a conversation shows.
fn converse(screen: &mut Screen) {
    screen.event("user_message", json!({"text": "Fix the sum, please.\nThe test fails."}));
    screen.event("thinking_token", json!({"text": "It subtracts.\nSo I add."}));
    screen.now += 4000;
    let text = "## What I found\n\nThe program **subtracts**; see `sum.sh` and [the manual](https://example.org/sum).\n\n\
                1. read it\n2. mend it\n   - with a test\n\n```rust\nfn sum(a: i32, b: i32) -> i32 {\n    a + b // 漢字\n}\n```\n\n\
                | case | result |\n|---|---:|\n| 2 + 3 | 5 |\n| 漢字 | 🙂 |\n\n> quoted words\n\n";
    for piece in text.split_inclusive(' ') {
        screen.event("assistant_token", json!({"text": piece}));
    }
    screen.event("assistant_done", json!({}));
    let args = json!({"path": "sum.sh", "old": "-", "new": "+"});
    screen.event("tool_call", json!({"callId": "e", "toolName": "sandbox_edit_file", "args": args}));
    let diff = "--- sum.sh\n+++ sum.sh\n@@ -1,2 +1,2 @@\n #!/bin/sh\n-echo $(($1 - $2))\n+echo $(($1 + $2))\n";
    let result = json!({"callId": "e", "toolName": "sandbox_edit_file", "durationMs": 9, "diff": diff, "text": "{}"});
    screen.event("tool_result", result);
    screen.event("tool_call", json!({"callId": "x", "toolName": "sandbox_exec", "args": {"command": "sh test.sh"}}));
    screen.event("tool_output", json!({"callId": "x", "text": "wrong: 2 + 3\n"}));
    let result = json!({"callId": "x", "toolName": "sandbox_exec", "durationMs": 28, "exitCode": 1, "isError": true});
    screen.event("tool_result", result);
    screen
        .event("usage", json!({"model": "qwen3:8b", "inputTokens": 12_345, "outputTokens": 678, "costMicroUsd": 4200}));
    screen.event("assistant_token", json!({"text": "It is\u{1b}[2J mended."}));
    screen.event("assistant_done", json!({}));
    screen.now += 61_000;
    screen.event("run_complete", json!({"summary": "It is mended."}));
    drop(screen.input(Input::Key(KeyEvent::new(KeyCode::Null, KeyModifiers::NONE))));
}
