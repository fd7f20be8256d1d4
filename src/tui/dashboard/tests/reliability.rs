//! Tests of what must not be decided too early, missed, or lost.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::{NOW, Screen, approval, approvals, exit, request, requests, session, sessions};
use crate::client::Notice;
use crate::client::test_events::complete;
use crate::tui::clock::now;
use crate::tui::dashboard::model::{DashboardExit, Effect, Input};
use crate::tui::dashboard::update::restart;

fn control(screen: &mut Screen, c: char) -> Vec<Effect> {
    screen.input(Input::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)))
}

/// An approval that asks for a text.
fn question(id: &str, session: &str) -> Value {
    let mut question = complete(
        "approval_required",
        json!({"approvalId": id, "kind": "question", "title": "Question", "summary": "Which name?",
            "expiresAt": NOW + 3_600_000, "details": {"method": "input", "title": "Which name?"},
            "form": {"method": "input", "title": "Which name?"}}),
    );
    question["sessionId"] = session.into();
    question["runId"] = "r".into();
    question
}

#[test]
fn nothing_is_approved_before_the_directory_of_its_session_is_known() {
    let mut screen = Screen::with((120, 30), &json!([]), &json!([approval("appr_1", "sess_bbbb", "make")]));
    screen.key(KeyCode::Char('2'));
    screen.wait(400);
    assert!(screen.screen().contains("directory is not known yet"), "{}", screen.screen());
    for key in ['y', 'r', 's'] {
        assert_eq!(requests(&screen.key(KeyCode::Char(key))), [], "{key}");
    }
    let (number, _) = request(&screen.wait(2000), "list_sessions");
    screen.answer(number, &json!({"sessions": sessions(), "nextCursor": null}));
    let text = screen.screen();
    assert!(text.contains("in /home/me/project") && !text.contains("not known yet"), "{text}");
    assert_eq!(requests(&screen.key(KeyCode::Char('y'))), [], "the directory could not be read yet");
    screen.wait(400);
    request(&screen.key(KeyCode::Char('y')), "submit_approval");
}

#[test]
fn what_has_no_known_directory_can_be_denied() {
    let mut screen = Screen::with((120, 30), &json!([]), &json!([approval("appr_1", "sess_bbbb", "make")]));
    screen.key(KeyCode::Char('2'));
    screen.wait(400);
    screen.type_text("nno");
    let (_, payload) = request(&screen.key(KeyCode::Enter), "submit_approval");
    assert_eq!((&payload["decision"], &payload["comment"]), (&json!("deny"), &json!("no")));
}

#[test]
fn a_list_that_was_interrupted_is_read_to_its_end() {
    let mut screen = Screen::new((80, 24));
    let rows =
        |from: u64, to: u64| -> Vec<_> { (from..to).map(|n| session(&format!("{n}"), "idle", n, "/p", "x")).collect() };
    let sent = screen.answer(1, &json!({"sessions": rows(0, 3), "nextCursor": "c1"}));
    let (number, _) = request(&sent, "list_sessions");
    let sent = screen.answer(number, &json!({"sessions": rows(3, 6), "nextCursor": "c2"}));
    assert_eq!(request(&sent, "list_sessions").1["cursor"], "c2");
    // A session is opened and left again: the page is lost.
    restart(&mut screen.dashboard);
    let (number, _) = request(&screen.wait(100), "list_sessions");
    let sent = screen.answer(number, &json!({"sessions": rows(0, 3), "nextCursor": "c1"}));
    let (number, payload) = request(&sent, "list_sessions");
    assert_eq!(payload["cursor"], "c2");
    // A cursor that the daemon refuses is not used again.
    screen.refuse(number, "INVALID_REQUEST");
    let (number, _) = request(&screen.wait(2000), "list_sessions");
    let sent = screen.answer(number, &json!({"sessions": rows(0, 3), "nextCursor": "c1"}));
    let (number, payload) = request(&sent, "list_sessions");
    assert_eq!(payload["cursor"], "c1");
    let sent = screen.answer(number, &json!({"sessions": rows(3, 6), "nextCursor": "c2"}));
    let (number, _) = request(&sent, "list_sessions");
    screen.answer(number, &json!({"sessions": rows(6, 9), "nextCursor": null}));
    assert_eq!(screen.dashboard.shared.sessions.count(), 9);
    // From now on the first page is enough.
    let (number, _) = request(&screen.wait(2000), "list_sessions");
    assert_eq!(requests(&screen.answer(number, &json!({"sessions": rows(0, 3), "nextCursor": "c1"}))), []);
}

#[test]
fn a_deleted_session_is_no_longer_listed() {
    let mut screen = Screen::with((80, 24), &sessions(), &approvals());
    let selected = screen.dashboard.shared.sessions.selected().unwrap().item.session_id.clone();
    screen.key(KeyCode::Char('d'));
    let (number, _) = request(&screen.key(KeyCode::Char('y')), "delete_session");
    // Another change in between does not hide the answer.
    screen.key(KeyCode::Down);
    screen.key(KeyCode::Char('e'));
    let (other, _) = request(&screen.key(KeyCode::Char('y')), "end_session");
    screen.answer(number, &json!({}));
    assert!(screen.dashboard.shared.sessions.find(&selected).is_none());
    assert!(screen.dashboard.shared.approvals.of_session(&selected).is_none());
    screen.answer(other, &json!({}));
    assert_eq!(screen.dashboard.shared.sessions.count(), 3, "an ended session is still listed");
}

#[test]
fn a_session_whose_deletion_is_refused_is_still_listed() {
    let mut screen = Screen::with((80, 24), &sessions(), &json!([]));
    screen.key(KeyCode::Char('d'));
    let (number, _) = request(&screen.key(KeyCode::Char('y')), "delete_session");
    screen.refuse(number, "SESSION_BUSY");
    assert_eq!(screen.dashboard.shared.sessions.count(), 4);
}

#[test]
fn the_first_control_c_or_d_leaves_a_field_with_text() {
    for key in ['c', 'd'] {
        let mut screen = Screen::with((120, 30), &sessions(), &approvals());
        screen.key(KeyCode::Char('2'));
        screen.wait(400);
        screen.type_text("nbecause");
        assert_eq!(exit(&control(&mut screen, key)), None);
        assert!(!screen.screen().contains("because"), "{}", screen.screen());
        assert_eq!(exit(&control(&mut screen, key)), Some(DashboardExit::Quit));
    }
    let mut screen = Screen::with((120, 30), &sessions(), &json!([question("appr_1", "sess_bbbb")]));
    screen.key(KeyCode::Char('2'));
    screen.wait(400);
    screen.type_text("Anna");
    assert_eq!(exit(&control(&mut screen, 'c')), None);
    assert!(!screen.screen().contains("Anna"), "{}", screen.screen());
    assert_eq!(exit(&control(&mut screen, 'c')), Some(DashboardExit::Quit));
    let mut screen = Screen::with((120, 30), &sessions(), &json!([]));
    screen.type_text("r a name");
    assert_eq!(exit(&control(&mut screen, 'c')), None);
    assert!(!screen.screen().contains("a name"), "{}", screen.screen());
    assert_eq!(exit(&control(&mut screen, 'c')), Some(DashboardExit::Quit));
}

#[test]
fn unsent_texts_are_known_when_the_dashboard_ends() {
    let mut screen = Screen::with((120, 30), &sessions(), &approvals());
    assert_eq!(screen.dashboard.unsent_texts(), [""; 0]);
    screen.key(KeyCode::Char('2'));
    screen.wait(400);
    screen.type_text("nbecause");
    assert_eq!(exit(&screen.input(Input::Terminate)), Some(DashboardExit::Quit));
    assert_eq!(screen.dashboard.unsent_texts(), ["because"]);
}

#[test]
fn other_approvals_can_be_selected_beside_a_question_and_its_answer_is_kept() {
    let listed = json!([question("appr_1", "sess_bbbb"), approval("appr_2", "sess_cccc", "make install")]);
    let mut screen = Screen::with((120, 30), &sessions(), &listed);
    screen.key(KeyCode::Char('2'));
    screen.wait(400);
    screen.type_text("Anna");
    screen.key(KeyCode::PageDown);
    assert!(screen.screen().contains("y once") || screen.screen().contains("▌ …"), "{}", screen.screen());
    assert!(!screen.screen().contains("Anna"), "{}", screen.screen());
    screen.key(KeyCode::PageUp);
    assert!(screen.screen().contains("answer: Anna"), "{}", screen.screen());
    // Esc leaves the pane, not the answer.
    screen.wait(400);
    screen.key(KeyCode::Esc);
    assert!(!screen.screen().contains("answer: Anna"), "{}", screen.screen());
    screen.key(KeyCode::Char('2'));
    assert!(screen.screen().contains("answer: Anna"), "{}", screen.screen());
}

#[test]
fn a_message_about_an_opened_session_is_shown_when_the_dashboard_is_back() {
    let mut screen = Screen::new((80, 24));
    screen.dashboard.show_hint("error: it could not be opened");
    screen.now = now();
    screen.input(Input::Tick);
    assert_eq!(screen.dashboard.shared.hint(), Some("error: it could not be opened"));
}

#[test]
fn sessions_are_grouped_by_the_repository_that_the_daemon_lists() {
    let mut listed = sessions();
    listed[0]["repo"] = json!({"rootPath": "/home/me/project"});
    let mut screen = Screen::new((80, 24));
    let effects = screen.answer(1, &json!({"sessions": listed, "nextCursor": null}));
    let asked: Vec<_> = effects
        .iter()
        .filter_map(|effect| if let Effect::FindRepositories(places) = effect { Some(places.clone()) } else { None })
        .collect();
    assert_eq!(asked, [["/home/me/project", "/home/me/project/deep"]]);
    screen.input(Input::Repositories(vec![("/home/me/site".into(), "/elsewhere".into())]));
    assert!(screen.screen().contains("/home/me/project · 3 sessions"), "{}", screen.screen());
}

#[test]
fn many_ended_runs_do_not_read_the_costs_each_time() {
    let mut screen = Screen::with((80, 24), &sessions(), &json!([]));
    let (number, _) = request(&screen.wait(2000), "get_stats");
    screen.answer(number, &json!({"sessions": []}));
    let reads = |effects: &[Effect]| requests(effects).iter().filter(|(_, line)| line["type"] == "get_stats").count();
    for _ in 0..4 {
        screen.event("sess_bbbb", "run_complete", json!({}));
        assert_eq!(reads(&screen.wait(2000)), 0);
    }
    assert_eq!(reads(&screen.wait(2000)), 1);
}

#[test]
fn a_new_connection_follows_refused_sessions_again() {
    let mut screen = Screen::with((120, 30), &sessions(), &json!([]));
    let before = screen.dashboard.watched.clone();
    screen.input(Input::Notice(Notice::Reconnected));
    assert_ne!(screen.dashboard.watched, before);
    let before = screen.dashboard.watched.clone();
    control(&mut screen, 'l');
    assert_ne!(screen.dashboard.watched, before);
}
