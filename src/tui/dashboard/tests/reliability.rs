//! Tests of what must not be decided too early, missed, or lost.

use crossterm::event::KeyCode;
use serde_json::json;

use super::{Screen, approval, request, requests, sessions};

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
