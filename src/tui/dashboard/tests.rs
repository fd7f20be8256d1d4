//! Tests of the dashboard: inputs in, effects and rows out.

mod reliability;
mod snapshots;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::model::{Dashboard, DashboardExit, DashboardSetup, Effect, Input, PreviewStart, Watched};
use super::pane::Answer;
use super::update::{prepare, restart, update};
use super::view;
use crate::client::test_events::{complete, event};
use crate::client::{Event, Notice, SessionSnapshot};
use crate::tui::client_task::CallError;
use crate::tui::text::theme::Theme;

const NOW: u64 = 100_000_000;

/// A dashboard with a clock.
struct Screen {
    dashboard: Dashboard,
    now: u64,
    seq: u64,
}

impl Screen {
    fn new(size: (u16, u16)) -> Self {
        let setup = DashboardSetup {
            theme: Theme::plain(),
            handle: |id| id.trim_start_matches("sess_").to_owned(),
            directory: "/home/me".into(),
            is_local: true,
        };
        let mut screen = Self { dashboard: Dashboard::new(setup), now: NOW, seq: 0 };
        screen.input(Input::Resize(size.0, size.1));
        screen
    }

    /// A dashboard that has read these sessions and approvals.
    fn with(size: (u16, u16), sessions: &Value, approvals: &Value) -> Self {
        let mut screen = Self::new(size);
        screen.answer(1, &json!({"sessions": sessions, "nextCursor": null}));
        screen.answer(2, &json!({"approvals": approvals}));
        screen.input(Input::Tick);
        screen.wait(500);
        screen
    }

    fn input(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = update(&mut self.dashboard, input, self.now);
        effects.extend(prepare(&mut self.dashboard, self.now));
        // The application draws after every input.
        let now = self.now;
        let shown = self.dashboard.panes[self.dashboard.active].to_be_read();
        if let Some(shown) = shown {
            self.dashboard.panes.iter_mut().for_each(|pane| pane.mark_drawn(&shown, now));
        }
        effects
    }

    fn wait(&mut self, millis: u64) -> Vec<Effect> {
        self.now += millis;
        self.input(Input::Tick)
    }

    fn answer(&mut self, number: u64, reply: &Value) -> Vec<Effect> {
        self.input(Input::Answer(Answer { number, result: Ok(reply.to_string()) }))
    }

    fn refuse(&mut self, number: u64, code: &str) -> Vec<Effect> {
        let error = CallError { code: Some(code.to_owned()), message: format!("it is refused ({code})") };
        self.input(Input::Answer(Answer { number, result: Err(error) }))
    }

    fn key(&mut self, code: KeyCode) -> Vec<Effect> {
        self.input(Input::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    fn type_text(&mut self, text: &str) -> Vec<Effect> {
        text.chars().flat_map(|c| self.key(KeyCode::Char(c))).collect()
    }

    fn event(&mut self, session: &str, kind: &str, payload: Value) -> Vec<Effect> {
        self.seq += 1;
        let event = Event { session: session.to_owned(), seq: self.seq, at: self.now, ..event(kind, payload) };
        self.input(Input::Event { event: Box::new(event), is_replay: false })
    }

    fn screen(&self) -> String {
        let frame = view::draw(&self.dashboard);
        frame
            .rows
            .iter()
            .map(|row| {
                format!("{}\n", row.spans.iter().map(|span| span.content.as_ref()).collect::<String>().trim_end())
            })
            .collect()
    }
}

/// Returns the requests among effects: their numbers and lines.
fn requests(effects: &[Effect]) -> Vec<(u64, Value)> {
    let line = |effect: &Effect| {
        let Effect::Send(number, request) = effect else { return None };
        Some((*number, serde_json::from_str(&request.line("q")).unwrap()))
    };
    effects.iter().filter_map(line).collect()
}

/// Returns the only request of one type.
fn request(effects: &[Effect], kind: &str) -> (u64, Value) {
    let found: Vec<_> = requests(effects).into_iter().filter(|(_, line)| line["type"] == kind).collect();
    let [(number, line)] = found.as_slice() else { panic!("one {kind} was expected: {effects:?}") };
    (*number, line["payload"].clone())
}

fn report_number(effects: &[Effect]) -> Option<u64> {
    effects.iter().find_map(|effect| if let Effect::Report(number, _) = effect { Some(*number) } else { None })
}

fn exit(effects: &[Effect]) -> Option<DashboardExit> {
    effects.iter().find_map(|effect| if let Effect::Leave(exit) = effect { Some(exit.clone()) } else { None })
}

fn watched(effects: &[Effect]) -> Option<Watched> {
    effects.iter().rev().find_map(|effect| if let Effect::Watch(wanted) = effect { Some(wanted.clone()) } else { None })
}

fn session(id: &str, state: &str, age: u64, cwd: &str, title: &str) -> Value {
    json!({"sessionId": format!("sess_{id}"), "state": state, "updatedAt": NOW - age * 1000, "openedAt": NOW - 2 * age * 1000,
        "cwd": cwd, "provider": "ollama", "model": "qwen3:8b", "lastUserMessage": title})
}

fn sessions() -> Value {
    json!([
        session("aaaa", "completed", 5, "/home/me/site", "Build the site"),
        session("bbbb", "running", 30, "/home/me/project", "Fix the sum"),
        session("cccc", "awaiting_approval", 90, "/home/me/project/deep", "Commit \u{1b}[2Jit"),
        session("dddd", "failed", 7200, "/home/me/project", "漢字 and more words than fit into the column of the list"),
    ])
}

fn approval(id: &str, session: &str, command: &str) -> Value {
    let mut question = complete(
        "approval_required",
        json!({"approvalId": id, "kind": "exec", "title": "Approve command", "summary": command, "expiresAt": NOW + 3_600_000,
            "remember": "allow: exec(git commit*)", "details": {"command": command, "risk": "high", "reason": "commits ask"}}),
    );
    question["sessionId"] = session.into();
    question["runId"] = "r".into();
    question
}

fn approvals() -> Value {
    json!([approval("appr_1", "sess_cccc", "git commit -m 'fix'"), approval("appr_2", "sess_bbbb", "make install")])
}

#[test]
fn the_first_requests_list_sessions_and_approvals() {
    let mut screen = Screen::new((80, 24));
    drop(screen.dashboard.shared.take_effects());
    let mut screen = Screen { now: NOW + 10_000, ..screen };
    // Those of the start have no answer yet, so none is sent twice.
    assert_eq!(requests(&screen.input(Input::Tick)), []);
    restart(&mut screen.dashboard);
    let sent = screen.input(Input::Tick);
    assert_eq!(request(&sent, "list_sessions").1["limit"], 200);
    request(&sent, "list_approvals");
}

#[test]
fn further_pages_are_read_while_they_have_news() {
    let mut screen = Screen::new((80, 24));
    let page: Vec<_> = (0..3).map(|n| session(&format!("{n}"), "idle", n, "/p", "x")).collect();
    let sent = screen.answer(1, &json!({"sessions": page, "nextCursor": "c1"}));
    let (number, payload) = request(&sent, "list_sessions");
    assert_eq!((&payload["cursor"], &payload["limit"]), (&json!("c1"), &json!(1000)));
    let more: Vec<_> = (3..6).map(|n| session(&format!("{n}"), "idle", n, "/p", "x")).collect();
    screen.answer(number, &json!({"sessions": more, "nextCursor": null}));
    assert_eq!(screen.dashboard.shared.sessions.count(), 6);
    // The next reading begins with the newest ones, and ends with them if nothing has changed.
    let sent = screen.wait(2000);
    let (number, _) = request(&sent, "list_sessions");
    let sent = screen.answer(number, &json!({"sessions": page, "nextCursor": "c1"}));
    assert_eq!(requests(&sent), []);
    assert_eq!(screen.dashboard.shared.sessions.count(), 6);
    // A session that is missing among the newest ones was deleted.
    let (number, _) = request(&screen.wait(2000), "list_sessions");
    screen.answer(number, &json!({"sessions": [page[0], page[2]], "nextCursor": "c1"}));
    assert_eq!(screen.dashboard.shared.sessions.count(), 5);
}

#[test]
fn sessions_are_grouped_by_repository_and_those_that_wait_come_first() {
    let mut screen = Screen::with((80, 24), &sessions(), &json!([]));
    let found = vec![("/home/me/project/deep".to_owned(), "/home/me/project".to_owned())];
    screen.input(Input::Repositories(found));
    let text = screen.screen();
    let place = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words} in {text}"));
    assert!(place("/home/me/project · 3 sessions, 1 waiting") < place("cccc"));
    assert!(place("cccc") < place("bbbb") && place("bbbb") < place("dddd") && place("dddd") < place("/home/me/site"));
    assert!(text.contains("Commit it") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn the_cost_of_sessions_is_read_with_the_list_and_again_after_a_run() {
    let mut screen = Screen::with((80, 24), &sessions(), &json!([]));
    let (number, payload) = request(&screen.wait(2000), "get_stats");
    assert_eq!(payload["bySession"], true);
    screen.answer(number, &json!({"sessions": [{"sessionId": "sess_bbbb", "costMicroUsd": 1_234_500}]}));
    let screen_text = screen.screen();
    let row = screen_text.lines().find(|line| line.contains("bbbb")).unwrap();
    assert!(row.ends_with("qwen3:8b         $1.2345"), "{row:?}");
    let lists: Vec<_> = requests(&screen.wait(2000)).into_iter().map(|(number, _)| number).collect();
    for number in lists {
        screen.refuse(number, "X");
    }
    screen.event("sess_bbbb", "run_complete", json!({}));
    request(&screen.wait(10_000), "get_stats");
}

#[test]
fn directories_are_looked_up_once() {
    let mut screen = Screen::new((80, 24));
    let effects = screen.answer(1, &json!({"sessions": sessions(), "nextCursor": null}));
    let asked: Vec<_> = effects.iter().filter(|effect| matches!(effect, Effect::FindRepositories(_))).collect();
    assert!(matches!(asked.as_slice(), [Effect::FindRepositories(places)] if places.len() == 3), "{asked:?}");
    assert!(!screen.input(Input::Tick).iter().any(|effect| matches!(effect, Effect::FindRepositories(_))));
}

#[test]
fn a_filter_selects_and_enter_opens() {
    let mut screen = Screen::with((80, 24), &sessions(), &json!([]));
    screen.type_text("/SITE");
    assert!(screen.screen().contains("aaaa") && !screen.screen().contains("bbbb"), "{}", screen.screen());
    screen.key(KeyCode::Enter);
    assert_eq!(exit(&screen.key(KeyCode::Enter)), Some(DashboardExit::Open("sess_aaaa".into())));
    restart(&mut screen.dashboard);
    screen.key(KeyCode::Esc);
    assert!(screen.screen().contains("bbbb"));
}

#[test]
fn the_selection_follows_its_session_and_moves_on_when_it_is_gone() {
    let mut screen = Screen::with((80, 24), &sessions(), &json!([]));
    let selected = |screen: &Screen| screen.dashboard.shared.sessions.selected().map(|entry| entry.handle.clone());
    screen.key(KeyCode::End);
    let last = selected(&screen);
    screen.event("sess_bbbb", "approval_required", json!({"approvalId": "x"}));
    assert_eq!(selected(&screen), last);
    let id = format!("sess_{}", last.clone().unwrap());
    let error = CallError { code: Some("SESSION_NOT_FOUND".into()), message: String::new() };
    screen.input(Input::Unfollowed { session: id, error });
    assert!(selected(&screen).is_some() && selected(&screen) != last);
}

#[test]
fn rename_end_and_delete_are_sent_after_a_name_or_a_confirmation() {
    let mut screen = Screen::with((80, 24), &sessions(), &json!([]));
    screen.key(KeyCode::Char('r'));
    screen.type_text("a name");
    let (number, payload) = request(&screen.key(KeyCode::Enter), "rename_session");
    assert_eq!((&payload["sessionId"], &payload["name"]), (&json!("sess_cccc"), &json!("a name")));
    screen.refuse(number, "FORBIDDEN");
    assert!(screen.screen().contains("error: it is refused"), "{}", screen.screen());
    assert_eq!(requests(&screen.key(KeyCode::Char('e'))), []);
    assert!(screen.screen().contains("end cccc: it accepts no more messages?"));
    assert_eq!(requests(&screen.key(KeyCode::Char('n'))), []);
    screen.key(KeyCode::Char('e'));
    request(&screen.key(KeyCode::Char('y')), "end_session");
    screen.key(KeyCode::Char('d'));
    assert_eq!(request(&screen.key(KeyCode::Char('y')), "delete_session").1["withPiFiles"], false);
}

#[test]
fn a_new_session_starts_in_the_directory_of_the_selected_one() {
    let mut screen = Screen::with((80, 24), &sessions(), &json!([]));
    screen.key(KeyCode::Char('n'));
    assert!(screen.screen().contains("new session in: /home/me/project/deep"));
    assert_eq!(exit(&screen.key(KeyCode::Enter)), Some(DashboardExit::Start("/home/me/project/deep".into())));
}

#[test]
fn an_approval_is_decided_on_its_card_and_not_before_it_could_be_read() {
    let mut screen = Screen::with((120, 30), &sessions(), &approvals());
    screen.key(KeyCode::Char('2'));
    assert!(screen.screen().contains("git commit -m 'fix'"), "{}", screen.screen());
    assert_eq!(requests(&screen.key(KeyCode::Char('y'))), []);
    screen.wait(400);
    let (number, payload) = request(&screen.key(KeyCode::Char('y')), "submit_approval");
    assert_eq!((&payload["approvalId"], &payload["decision"]), (&json!("appr_1"), &json!("approve")));
    assert_eq!(requests(&screen.key(KeyCode::Char('y'))), [], "it is sent once");
    screen.answer(number, &json!({}));
    // The next card is another one, so the same key means nothing for a moment.
    assert!(screen.screen().contains("make install"), "{}", screen.screen());
    assert_eq!(requests(&screen.key(KeyCode::Char('y'))), []);
    screen.wait(400);
    screen.key(KeyCode::Char('n'));
    screen.type_text("not q");
    let (_, payload) = request(&screen.key(KeyCode::Enter), "submit_approval");
    assert_eq!((&payload["decision"], &payload["comment"]), (&json!("deny"), &json!("not q")));
}

#[test]
fn scopes_and_rules_are_those_of_the_inline_view() {
    for (key, scope) in [('r', "run"), ('s', "session")] {
        let mut screen = Screen::with((120, 30), &sessions(), &approvals());
        screen.key(KeyCode::Char('2'));
        screen.wait(400);
        assert_eq!(request(&screen.key(KeyCode::Char(key)), "submit_approval").1["scope"], scope);
    }
    let mut screen = Screen::with((120, 30), &sessions(), &approvals());
    screen.key(KeyCode::Char('2'));
    screen.wait(400);
    screen.key(KeyCode::Char('w'));
    screen.type_text("x");
    let (_, payload) = request(&screen.key(KeyCode::Enter), "submit_approval");
    assert_eq!((&payload["scope"], &payload["rule"]), (&json!("always"), &json!("allow: exec(git commit*)x")));
}

#[test]
fn what_is_not_shown_to_its_end_cannot_be_approved() {
    let long: String = (0..60).map(|n| format!("echo {n}\n")).collect();
    let mut screen = Screen::with((60, 16), &sessions(), &json!([approval("appr_1", "sess_cccc", &long)]));
    screen.key(KeyCode::Char('2'));
    screen.wait(400);
    assert_eq!(requests(&screen.key(KeyCode::Char('y'))), []);
    assert!(screen.screen().contains("a part is not shown"), "{}", screen.screen());
    screen.key(KeyCode::Char('v'));
    screen.key(KeyCode::Esc);
    assert_eq!(requests(&screen.key(KeyCode::Char('y'))), [], "only its beginning was shown");
    screen.key(KeyCode::Char('v'));
    screen.key(KeyCode::End);
    assert!(screen.screen().contains("echo 59"), "{}", screen.screen());
    screen.key(KeyCode::Esc);
    request(&screen.key(KeyCode::Char('y')), "submit_approval");
}

#[test]
fn approvals_come_and_go_with_events() {
    let mut screen = Screen::with((120, 30), &sessions(), &json!([]));
    screen.event("sess_bbbb", "approval_required", json!({"approvalId": "appr_9", "title": "Approve command"}));
    assert!(screen.screen().contains("!2 Approvals (1)"), "{}", screen.screen());
    screen.event("sess_bbbb", "approval_received", json!({"approvalId": "appr_9"}));
    assert!(screen.screen().contains(" 2 Approvals (0)"), "{}", screen.screen());
    // A list that was made before the decision does not bring it back.
    let (number, _) = request(&screen.wait(2000), "list_approvals");
    screen.answer(number, &json!({"approvals": [approval("appr_9", "sess_bbbb", "make")]}));
    assert!(screen.screen().contains(" 2 Approvals (0)"), "{}", screen.screen());
    // Who looks elsewhere is notified.
    screen.input(Input::Focus(false));
    let effects = screen.event("sess_bbbb", "approval_required", json!({"approvalId": "appr_10"}));
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Notify(_))), "{effects:?}");
}

#[test]
fn the_selected_session_and_the_active_ones_are_followed() {
    let mut screen = Screen::new((120, 30));
    screen.answer(1, &json!({"sessions": sessions(), "nextCursor": null}));
    let wanted = watched(&screen.wait(100)).unwrap();
    assert_eq!(wanted.preview, Some(("sess_cccc".to_owned(), 51)));
    assert_eq!(wanted.active.into_iter().collect::<Vec<_>>(), ["sess_bbbb", "sess_cccc"]);
    // Moving over sessions reads none of them.
    assert!(watched(&screen.key(KeyCode::Down)).is_none_or(|wanted| wanted.preview.is_none()));
    assert!(watched(&screen.key(KeyCode::Down)).is_none_or(|wanted| wanted.preview.is_none()));
    assert!(watched(&screen.wait(100)).unwrap().preview.is_some());
    let snapshot = SessionSnapshot::default();
    let selected = screen.dashboard.shared.sessions.selected().unwrap().item.session_id.clone();
    screen.input(Input::Preview(Box::new(PreviewStart {
        session: selected.clone(),
        width: 51,
        snapshot,
        history_end: 0,
    })));
    screen.event(&selected, "user_message", json!({"text": "A message \u{1b}[2Jwith a sequence"}));
    screen.event(&selected, "assistant_token", json!({"text": "live text"}));
    assert!(screen.screen().contains("> A message with a sequence") && screen.screen().contains("live text"));
}

#[test]
fn a_search_shows_excerpts_and_opens_a_session() {
    let mut screen = Screen::with((80, 24), &sessions(), &json!([]));
    screen.key(KeyCode::Char('3'));
    screen.type_text("q disk?");
    let (number, payload) = request(&screen.key(KeyCode::Enter), "search");
    assert_eq!(payload["text"], "q disk?");
    screen.answer(number, &hits());
    assert!(screen.screen().contains("the [disk] is full"), "{}", screen.screen());
    screen.key(KeyCode::Down);
    assert_eq!(exit(&screen.key(KeyCode::Enter)), Some(DashboardExit::Open("sess_bbbb".into())));
}

fn hits() -> Value {
    let hit = |id: &str, text: &str| {
        json!({"sessionId": id, "cwd": "/home/me/site", "kind": "tool", "seq": 7, "ts": NOW - 60_000,
            "excerpt": [{"text": text, "match": false}, {"text": "disk", "match": true}, {"text": " is full", "match": false}]})
    };
    json!({"hits": [hit("sess_aaaa", "the \u{1b}[31m"), hit("sess_bbbb", "a ")], "complete": false, "missingSessions": 3})
}

#[test]
fn reports_are_made_when_their_pane_is_shown_and_again_on_demand() {
    let mut screen = Screen::with((80, 24), &sessions(), &json!([]));
    let number = report_number;
    let first = number(&screen.key(KeyCode::Char('5'))).unwrap();
    screen.input(Input::Answer(Answer { number: first, result: Ok("ok       disk: fine\n".into()) }));
    assert!(screen.screen().contains("ok       disk: fine"), "{}", screen.screen());
    assert_eq!(number(&screen.key(KeyCode::Tab)), None);
    assert_eq!(number(&screen.key(KeyCode::Char('5'))), None);
    let second = number(&screen.key(KeyCode::Char('r'))).unwrap();
    // A report that was interrupted says so, and can be made again.
    restart(&mut screen.dashboard);
    assert!(screen.screen().contains("! interrupted"), "{}", screen.screen());
    assert!(number(&screen.key(KeyCode::Char('r'))).unwrap() > second);
}

#[test]
fn nobody_leaves_before_a_change_is_confirmed() {
    let mut screen = Screen::with((80, 24), &sessions(), &json!([]));
    screen.key(KeyCode::Char('e'));
    let (number, _) = request(&screen.key(KeyCode::Char('y')), "end_session");
    assert_eq!(exit(&screen.key(KeyCode::Char('q'))), None);
    assert_eq!(exit(&screen.answer(number, &json!({}))), Some(DashboardExit::Quit));
}

#[test]
fn a_stopped_daemon_is_not_asked_and_a_restarted_one_is_asked_at_once() {
    let mut screen = Screen::with((80, 24), &sessions(), &json!([]));
    screen.input(Input::Notice(Notice::DaemonStopped));
    assert_eq!(requests(&screen.wait(60_000)), []);
    assert!(screen.screen().contains("pushd was stopped"));
    request(&screen.input(Input::Notice(Notice::Reconnected)), "list_sessions");
}

#[test]
fn ten_thousand_sessions_are_filtered_and_only_visible_rows_are_drawn() {
    let many: Vec<_> = (0..10_000)
        .map(|n| {
            session(&format!("{n:05}"), if n < 100 { "running" } else { "idle" }, n, &format!("/p/{}", n % 50), "words")
        })
        .collect();
    let mut screen = Screen::with((120, 40), &Value::from(many), &json!([]));
    assert_eq!(view::draw(&screen.dashboard).rows.len(), 40);
    assert_eq!(screen.dashboard.watched.active.len(), 100);
    screen.type_text("/09999");
    assert!(screen.screen().contains("09999") && !screen.screen().contains("00001"), "{}", screen.screen());
}
