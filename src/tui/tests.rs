//! Tests of the state and its rows: inputs in, effects and rows out.

mod scrolled;
mod snapshots;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::card::Card;
use super::client_task::{Call, CallError, CallReply};
use super::model::{Effect, Focus, Input, LeaveReason, Model, Setup};
use super::options::SwitchTarget;
use super::text::theme::Theme;
use super::update::{next_tick, update};
use super::view;
use crate::client::test_events::{event, question as test_question};
use crate::client::{Event, Notice, SessionItem, SessionSnapshot};
use crate::display::approval::{Decision, PendingApproval, Scope};

/// A view with a clock.
struct Screen {
    model: Model,
    now: u64,
    seq: u64,
}

impl Screen {
    fn new() -> Self {
        let setup = Setup {
            theme: Theme::plain(),
            session: "s".into(),
            handle: "abc123".into(),
            snapshot: SessionSnapshot::default(),
            own_run: None,
            read_only: false,
            can_switch: true,
            history_end: 0,
            size: (60, 24),
            full_output: false,
            now: 1_000_000,
            new_id: || "msg_1".to_owned(),
        };
        Self { model: Model::new(setup), now: 1_000_000, seq: 0 }
    }

    fn input(&mut self, input: Input) -> Vec<Effect> {
        let effects = update(&mut self.model, input, self.now);
        // The application draws after every input.
        if let Some(card) = self.model.card.as_mut().filter(|_| self.model.scrolled.is_none()) {
            card.mark_drawn(self.now);
        }
        effects
    }

    /// Presses a letter on a card, and waits until it counts.
    fn decide(&mut self, letter: char) -> Vec<Effect> {
        let effects = self.key(KeyCode::Char(letter));
        if !effects.is_empty() {
            return effects;
        }
        self.now += 300;
        self.input(Input::Tick)
    }

    fn event(&mut self, kind: &str, payload: Value) -> Vec<Effect> {
        self.seq += 1;
        let event = Event { seq: self.seq, at: self.now, ..event(kind, payload) };
        self.input(Input::Event(Box::new(event)))
    }

    fn key(&mut self, code: KeyCode) -> Vec<Effect> {
        self.input(Input::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    fn control(&mut self, c: char) -> Vec<Effect> {
        self.input(Input::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)))
    }

    fn type_text(&mut self, text: &str) {
        for c in text.chars() {
            assert_eq!(self.key(KeyCode::Char(c)), []);
        }
    }

    fn wait(&mut self, millis: u64) {
        self.now += millis;
        // Requests for approvals of other sessions do not matter here.
        drop(self.input(Input::Tick));
    }

    fn region(&self) -> String {
        let rows = view::draw(&self.model).rows;
        rows.iter().map(|row| format!("{}\n", plain(row))).collect()
    }

    fn finished(&mut self) -> String {
        let rows = &mut self.model.transcript.rows;
        let text = rows.unwritten().iter().map(|row| format!("{}\n", plain(row))).collect();
        rows.mark_written();
        text
    }

    fn open_card(&mut self, payload: Value) {
        self.event("approval_required", payload);
        self.wait(400);
    }
}

fn plain(row: &ratatui::text::Line<'_>) -> String {
    row.spans.iter().map(|span| span.content.as_ref()).collect()
}

fn call(effects: &[Effect]) -> Call {
    let [Effect::Call(_, call)] = effects else { panic!("one request was expected: {effects:?}") };
    call.clone()
}

fn question() -> Value {
    json!({"approvalId": "appr_1", "kind": "exec", "title": "Approve command", "summary": "make", "remember": "allow: exec(make)",
        "details": {"command": "make install", "risk": "high", "reason": "commands ask"}})
}

#[test]
fn a_message_is_sent_and_comes_back_if_it_is_refused() {
    let mut screen = Screen::new();
    screen.type_text("hello");
    let sent = screen.key(KeyCode::Enter);
    assert_eq!(call(&sent), Call::Queue { id: "msg_1".into(), text: "hello".into() });
    assert!(screen.region().contains("sending: hello"), "{}", screen.region());
    screen.type_text("next");
    let error = CallError { code: Some("X".into()), message: "refused".into() };
    assert_eq!(screen.input(Input::Reply { number: 1, reply: Err(error) }), []);
    assert_eq!(screen.model.composer.message(), "hello\nnext");
    assert!(screen.finished().contains("error: refused"));
}

#[test]
fn nobody_leaves_before_a_message_is_confirmed() {
    let mut screen = Screen::new();
    screen.type_text("hello");
    drop(screen.key(KeyCode::Enter));
    assert_eq!(screen.control('d'), []);
    let left = screen.input(Input::Reply { number: 1, reply: Ok(CallReply::Done) });
    assert_eq!(left, [Effect::Leave(LeaveReason::Detached)]);
}

#[test]
fn ctrl_d_keeps_a_draft_and_ctrl_c_twice_leaves() {
    let mut screen = Screen::new();
    screen.type_text("x");
    assert_eq!(screen.control('d'), []);
    assert_eq!(screen.control('c'), []);
    assert!(screen.model.composer.is_empty(), "the history has it");
    screen.wait(2500);
    assert_eq!(screen.control('c'), []);
    assert_eq!(screen.control('c'), [Effect::Leave(LeaveReason::Interrupted)]);
}

#[test]
fn ctrl_c_cancels_a_run() {
    let mut screen = Screen::new();
    screen.event("user_message", json!({"text": "go"}));
    assert!(screen.region().contains("waiting for the model · 0s · Ctrl-C cancels"), "{}", screen.region());
    assert_eq!(call(&screen.control('c')), Call::Cancel);
    screen.event("run_complete", json!({"outcome": "cancelled"}));
    assert!(screen.model.run.is_none());
    screen.wait(3000);
    assert_eq!(next_tick(&screen.model), screen.model.hint.as_ref().map(|hint| hint.1), "only the hint disappears");
}

#[test]
fn an_idle_view_waits_for_nothing() {
    let mut screen = Screen::new();
    assert_eq!(next_tick(&screen.model), None);
    screen.type_text("draft");
    assert!(view::draw(&screen.model).is_typing);
    assert_eq!(next_tick(&screen.model), Some(screen.now + 3000), "then the cursor rests");
    screen.wait(3000);
    assert!(!view::draw(&screen.model).is_typing);
    assert_eq!(next_tick(&screen.model), None);
}

#[test]
fn a_card_does_not_take_keys_that_were_meant_for_the_composer() {
    let mut screen = Screen::new();
    screen.event("user_message", json!({"text": "go"}));
    screen.event("approval_required", question());
    assert_eq!(screen.model.focus, Focus::Card);
    screen.now += 100;
    assert_eq!(screen.key(KeyCode::Char('y')), [], "too early");
    assert_eq!(screen.model.composer.message(), "y");
    screen.now += 1000;
    assert_eq!(screen.key(KeyCode::Char('y')), [], "the composer has the focus");
    assert_eq!(screen.model.composer.message(), "yy");
    assert!(screen.region().contains("Tab answers"), "{}", screen.region());
    assert_eq!(screen.key(KeyCode::Tab), []);
    let Call::Decide { decision, .. } = call(&screen.decide('y')) else { panic!("no decision") };
    assert_eq!(decision, Decision::Approve(None));
    assert_eq!(screen.key(KeyCode::Char('y')), [], "a decision is sent once");
}

#[test]
fn a_card_that_opens_over_a_draft_leaves_the_focus() {
    let mut screen = Screen::new();
    screen.type_text("draft");
    screen.open_card(question());
    assert_eq!(screen.model.focus, Focus::Composer);
}

#[test]
fn a_card_shows_what_will_happen_and_its_keys() {
    let mut screen = Screen::new();
    screen.open_card(question());
    let region = screen.region();
    for text in [
        "▌ ? Approve command",
        "▌   │ make install",
        "▌   commands ask",
        "▌   can be remembered as allow: exec(make)",
        "▌   risk: high",
        "▌ y once, r this run, s this session, w always here, n",
    ] {
        assert!(region.contains(text), "{text}: {region}");
    }
}

#[test]
fn every_key_of_a_card_decides() {
    let decide = |keys: &[KeyCode]| {
        let mut screen = Screen::new();
        screen.open_card(question());
        let mut effects = Vec::new();
        for key in keys {
            effects = screen.key(*key);
            screen.now += 300;
            effects.extend(screen.input(Input::Tick));
        }
        let Call::Decide { decision, rule, .. } = call(&effects) else { panic!("no decision") };
        (decision, rule)
    };
    let text = |text: &str| text.chars().map(KeyCode::Char).chain([KeyCode::Enter]).collect::<Vec<_>>();
    assert_eq!(decide(&[KeyCode::Char('r')]), (Decision::ApproveForScope(Scope::Run), None));
    assert_eq!(decide(&[KeyCode::Char('s')]), (Decision::ApproveForScope(Scope::Session), None));
    assert_eq!(decide(&text("w")), (Decision::ApproveForScope(Scope::Always), None));
    let edited = Some("allow: exec(make)*".to_owned());
    assert_eq!(decide(&text("w*")), (Decision::ApproveForScope(Scope::Always), edited));
    assert_eq!(decide(&text("n")), (Decision::Deny(None), None));
    assert_eq!(decide(&text("nno")), (Decision::DenyWithReason("no".into()), None));
}

#[test]
fn a_sentence_typed_on_a_card_decides_nothing_and_is_kept() {
    for sentence in
        ["stop! why this?", "yes but", "really? n y s", "hello y", "what is it?", "no, use make", "view it", "12 files"]
    {
        let mut screen = Screen::new();
        screen.open_card(question());
        screen.type_text(sentence);
        screen.wait(1000);
        assert_eq!(screen.model.composer.message(), sentence);
        assert!(screen.model.pending.is_empty(), "{sentence}");
    }
}

#[test]
fn a_card_decides_nothing_before_it_was_drawn() {
    let pending = PendingApproval::new("s", None, &test_question(question()));
    let mut card = Card::new(pending);
    assert!(!card.is_armed(1_000_000));
    card.mark_drawn(1_000_000);
    card.mark_drawn(1_000_200);
    assert_eq!([1_000_299, 1_000_300].map(|now| card.is_armed(now)), [false, true]);
}

#[test]
fn a_card_that_leaves_out_rows_shows_risk_and_reason_and_is_not_approved_before_all_is_shown() {
    let mut payload = question();
    let lines: Vec<_> =
        (0..200).map(|n| format!("echo {n} # inside the sandbox, risk: low {}", "-".repeat(60))).collect();
    payload["details"]["command"] = json!(lines.join("\n"));
    let mut screen = Screen::new();
    screen.open_card(payload);
    for n in 0..6 {
        let entry = json!({"messageId": format!("q{n}"), "text": "later"});
        screen.event("message_queued", entry);
    }
    let region = screen.region();
    assert!(region.lines().count() <= 24, "{region}");
    for text in ["▌ ? Approve command", "▌   commands ask", "▌   risk: high", "more rows, v shows all"] {
        assert!(region.contains(text), "{text}: {region}");
    }
    let unmarked = region.lines().filter(|row| row.contains("risk: low") && !row.contains('│'));
    assert_eq!(unmarked.count(), 0, "{region}");
    assert_eq!(screen.decide('y'), []);
    assert!(screen.region().contains("a part is not shown"), "{}", screen.region());
    assert_eq!(screen.decide('v'), []);
    assert!(matches!(call(&screen.decide('y')), Call::Decide { .. }));
}

#[test]
fn a_refused_decision_is_explained_and_can_be_repeated() {
    let mut screen = Screen::new();
    screen.open_card(question());
    let [Effect::Call(number, _)] = screen.decide('y')[..] else { panic!("no request") };
    let error = CallError { code: Some("INVALID_RULE".into()), message: "the rule is not valid".into() };
    assert_eq!(screen.input(Input::Reply { number, reply: Err(error) }), []);
    assert!(screen.region().contains("! the rule is not valid"), "{}", screen.region());
    assert!(matches!(call(&screen.decide('y')), Call::Decide { .. }));
}

#[test]
fn choices_are_numbered_and_the_last_one_denies() {
    let payload = json!({"approvalId": "a", "kind": "unknown", "title": "t", "summary": "s",
        "details": {"choices": ["run_again", "skip", "stop"]}});
    for (key, decision) in
        [('1', Decision::Approve(Some("run_again".into()))), ('3', Decision::Deny(Some("stop".into())))]
    {
        let mut screen = Screen::new();
        screen.open_card(payload.clone());
        let Call::Decide { decision: sent, .. } = call(&screen.decide(key)) else { panic!("no decision") };
        assert_eq!(sent, decision);
    }
}

#[test]
fn a_card_shows_its_directory_risk_expiry_and_votes_that_were_cast_before_it_was_drawn() {
    let mut screen = Screen::new();
    screen.model.cwd = "/home/me/project".to_owned();
    screen.model.history_end = 2;
    let mut payload = question();
    payload["details"]["risk"] = json!("medium");
    payload["quorum"] = json!({"rule": "majority"});
    payload["expiresAt"] = json!(screen.now + 90_000);
    screen.event("approval_required", payload);
    screen.event("approval_vote", json!({"approvalId": "appr_1", "decision": "approve", "by": "cli"}));
    let region = screen.region().replace("\n▌   ", " ");
    for text in ["in /home/me/project", "risk: medium", "expires in 1m30s", "needs a majority; 1 to approve, 0 to deny"]
    {
        assert!(region.contains(text), "{text}: {region}");
    }
}

#[test]
fn a_plan_is_a_checklist_and_its_result_is_not_repeated() {
    let mut screen = Screen::new();
    let steps = json!([{"step": "read", "status": "done"}, {"step": "write\u{1b}[2J", "status": "in_progress"},
        {"step": "test", "status": "pending"}]);
    screen.event("tool_call", json!({"callId": "c", "toolName": "update_plan", "args": {"steps": steps}}));
    screen.event("tool_result", json!({"callId": "c", "toolName": "update_plan", "text": "the plan is shown"}));
    assert_eq!(screen.finished(), "plan: 1 of 3 steps done\n  ✓ read\n  ▸ write\n  ☐ test\n");
    assert!(!screen.region().contains("update plan"), "{}", screen.region());
}

#[test]
fn a_plan_that_is_refused_is_not_shown() {
    let mut screen = Screen::new();
    let steps = json!([{"step": "read", "status": "in_progress"}, {"step": "write", "status": "in_progress"}]);
    screen.event("tool_call", json!({"callId": "c", "toolName": "update_plan", "args": {"steps": steps}}));
    let error = json!({"type": "UNKNOWN", "message": "two steps are in progress"});
    screen.event(
        "tool_result",
        json!({"callId": "c", "toolName": "update_plan", "isError": true, "structuredError": error}),
    );
    let finished = screen.finished();
    assert!(!finished.contains("plan: ") && finished.starts_with("✗ "), "{finished}");
    assert!(finished.contains("failed"), "{finished}");
}

#[test]
fn another_session_is_chosen_from_a_list_and_a_new_one_is_started() {
    let mut screen = Screen::new();
    screen.type_text("draft");
    assert_eq!(screen.control('n'), [Effect::Switch(SwitchTarget::New)]);
    assert_eq!(call(&screen.control('p')), Call::ListSessions);
    let item = |id: &str, name: &str| {
        serde_json::from_value::<SessionItem>(json!({"sessionId": id, "state": "running", "name": name, "cwd": "/p"}))
    };
    let sessions = vec![item("s", "this one").unwrap(), item("t", "other").unwrap(), item("u", "third").unwrap()];
    assert_eq!(screen.input(Input::Reply { number: 1, reply: Ok(CallReply::Sessions(sessions)) }), []);
    let region = screen.region();
    assert!(region.contains("› other · running · /p") && !region.contains("this one"), "{region}");
    screen.type_text("thi");
    assert!(screen.region().contains("› third") && !screen.region().contains("other"), "{}", screen.region());
    assert_eq!(screen.key(KeyCode::Enter), [Effect::Switch(SwitchTarget::Session("u".into()))]);
    assert_eq!(screen.model.composer.message(), "draft");
    drop(screen.control('p'));
    screen.type_text("/status");
    assert_eq!(call(&screen.key(KeyCode::Enter)), Call::Snapshot);
    screen.model.can_switch = false;
    assert_eq!(screen.control('n'), []);
}

#[test]
fn an_approval_of_another_session_is_counted_and_notified_once() {
    let mut screen = Screen::new();
    drop(screen.input(Input::Focus(false)));
    let listed = |id: &str| {
        let listed = json!([{"sessionId": "other", "approvalId": id, "kind": "exec", "title": "t",
            "summary": "s", "details": {}, "options": ["approve", "deny"], "expiresAt": 1, "callId": "c"}]);
        serde_json::from_value::<Vec<crate::client::ListedApproval>>(listed).unwrap()
    };
    assert_eq!(next_tick(&screen.model), None, "an idle view does nothing");
    // One that replaces another is new.
    for (id, is_new) in [("a", true), ("a", false), ("b", true), ("b", false)] {
        let effects = screen.input(Input::Approvals(listed(id)));
        assert_eq!(matches!(effects[..], [Effect::Notify(_)]), is_new, "{effects:?}");
    }
    assert!(screen.region().contains("! 1 approval in another session"), "{}", screen.region());
}

#[test]
fn text_of_a_model_cannot_act_on_the_terminal() {
    let mut screen = Screen::new();
    screen.event("user_message", json!({"text": "go"}));
    screen.event("assistant_token", json!({"text": "a\u{1b}[2J\u{202e}b\n\n"}));
    screen.event(
        "tool_call",
        json!({"callId": "c", "toolName": "sandbox_exec", "args": {"command": "x\u{1b}]0;t\u{7}"}}),
    );
    screen.event("tool_output", json!({"callId": "c", "text": "o\u{9b}1mo\n"}));
    screen.event("tool_result", json!({"callId": "c", "toolName": "sandbox_exec", "exitCode": 0}));
    let all = screen.finished() + &screen.region();
    assert!(all.chars().all(|c| c == '\n' || !c.is_control()) && !all.contains('\u{202e}'), "{all:?}");
    assert!(all.contains("ab") && all.contains("oo"), "{all}");
}

#[test]
fn a_folded_call_is_one_line_with_the_end_of_its_output() {
    let mut screen = Screen::new();
    screen.event("user_message", json!({"text": "go"}));
    screen.event("tool_call", json!({"callId": "c", "toolName": "sandbox_exec", "args": {"command": "make"}}));
    for n in 0..10 {
        screen.event("tool_output", json!({"callId": "c", "text": format!("line {n}\n")}));
    }
    assert!(screen.region().contains("● $ make"), "{}", screen.region());
    screen.event("tool_result", json!({"callId": "c", "toolName": "sandbox_exec", "exitCode": 0, "durationMs": 5}));
    let text = screen.finished();
    assert!(text.contains("✓ $ make · exit 0, 5ms\n  … 7 lines before (Ctrl-O shows output)\n  line 7\n"), "{text}");
    assert_eq!(screen.control('o'), []);
    assert!(screen.finished().contains("  line 0\n"));
}

#[test]
fn thinking_is_folded_and_shown_on_request() {
    let mut screen = Screen::new();
    screen.event("user_message", json!({"text": "go"}));
    screen.event("thinking_token", json!({"text": "secret\nthoughts"}));
    assert!(screen.region().contains("thinking"), "{}", screen.region());
    screen.wait(3000);
    screen.event("assistant_token", json!({"text": "answer\n\n"}));
    let text = screen.finished();
    assert!(text.contains("∴ thought for 3s (Ctrl-T shows it)") && !text.contains("secret"), "{text}");
    screen.event("assistant_done", json!({}));
    assert_eq!(screen.control('t'), []);
    assert!(screen.finished().contains("  secret\n  thoughts\n"));
}

#[test]
fn the_region_fits_every_size() {
    let mut screen = Screen::new();
    screen.event("user_message", json!({"text": "go"}));
    screen.event("message_queued", json!({"messageId": "m", "text": "漢字".repeat(50)}));
    screen.open_card(question());
    screen.model.composer.paste(&"漢字🙂 ".repeat(60));
    for width in [1, 2, 8, 40, 60, 200] {
        for height in [1, 2, 5, 24, 100] {
            drop(screen.input(Input::Resize(width, height)));
            let frame = view::draw(&screen.model);
            let text = super::writer::InlineWriter::default().draw(&[], &frame, (width, height));
            assert!(text.matches("\r\n").count() < usize::from(height), "{width}x{height}: {text}");
        }
    }
}

#[test]
fn a_lost_connection_is_shown_until_it_is_back() {
    let mut screen = Screen::new();
    drop(screen.input(Input::Notice(Notice::ConnectionLost)));
    assert!(screen.region().contains("! reconnecting to pushd"), "{}", screen.region());
    drop(screen.input(Input::Notice(Notice::Reconnected)));
    assert!(!screen.region().contains("reconnecting"), "{}", screen.region());
    assert!(screen.finished().contains("reconnected to pushd; continuing after event 0"));
}

#[test]
fn commands_are_executed_and_unknown_ones_stay_in_the_composer() {
    let mut screen = Screen::new();
    screen.type_text("/rename my session");
    assert_eq!(call(&screen.key(KeyCode::Enter)), Call::Rename { name: "my session".into() });
    screen.type_text("/nonsense");
    assert_eq!(screen.key(KeyCode::Enter), []);
    assert_eq!(screen.model.composer.message(), "/nonsense");
    drop(screen.model.composer.discard());
    screen.type_text("/usr/bin is full");
    assert!(matches!(call(&screen.key(KeyCode::Enter)), Call::Queue { .. }), "a path is no command");
    screen.type_text("!make test");
    assert_eq!(call(&screen.key(KeyCode::Enter)), Call::RunCommand { command: "make test".into() });
}

#[test]
fn somebody_who_looks_elsewhere_is_notified() {
    let mut screen = Screen::new();
    drop(screen.input(Input::Focus(false)));
    screen.event("user_message", json!({"text": "go"}));
    assert!(matches!(screen.event("approval_required", question())[..], [Effect::Notify(_)]));
    drop(screen.input(Input::Focus(true)));
    assert_eq!(screen.event("run_complete", json!({})), []);
}

#[test]
fn a_question_mark_shows_the_keys_and_can_begin_a_message() {
    let mut screen = Screen::new();
    screen.type_text("?");
    assert!(screen.region().contains("Alt-Enter"), "{}", screen.region());
    screen.type_text("$ make");
    assert!(!screen.region().contains("Alt-Enter"), "{}", screen.region());
    assert_eq!(screen.model.composer.message(), "?$ make");
}

#[test]
fn the_keys_are_shown_beside_a_card_as_far_as_there_is_room() {
    let mut screen = Screen::new();
    screen.event("user_message", json!({"text": "go"}));
    drop(screen.event("approval_required", question()));
    screen.type_text("?");
    assert!(screen.region().contains("Alt-Enter"), "{}", screen.region());
    assert!(screen.region().contains('…'), "{}", screen.region());
}
