//! The scrolled view: its keys, and what happens while it is open.

use crossterm::event::KeyCode;
use serde_json::json;

use super::{Screen, plain, question};
use crate::tui::model::{Effect, Focus, Input, LeaveReason};
use crate::tui::scrolled;
use crate::tui::update::next_tick;

/// A view with rows `row 0` to `row 99` in a terminal of 24 rows, of which 23 show them.
fn screen() -> Screen {
    let mut screen = Screen::new();
    add_rows(&mut screen, 0..100);
    screen
}

fn add_rows(screen: &mut Screen, numbers: std::ops::Range<usize>) {
    screen.model.transcript.lines(numbers.map(|n| format!("row {n}").into()));
}

/// The first row, the last one that is not empty, and the status row.
fn shown(screen: &Screen) -> (String, String, String) {
    let view = screen.model.scrolled.as_ref().expect("it is open");
    let mut rows: Vec<_> = scrolled::draw(&screen.model, view).rows.iter().map(plain).collect();
    let status = rows.pop().unwrap();
    rows.retain(|row| !row.is_empty());
    (rows.first().cloned().unwrap_or_default(), rows.last().cloned().unwrap_or_default(), status)
}

fn rows(screen: &Screen) -> (String, String) {
    let (first, last, _) = shown(screen);
    (first, last)
}

fn pair(first: usize, last: usize) -> (String, String) {
    (format!("row {first}"), format!("row {last}"))
}

#[test]
fn keys_scroll_and_the_end_is_followed() {
    let mut screen = screen();
    drop(screen.key(KeyCode::PageDown));
    assert!(screen.model.scrolled.is_none(), "the live view is at the end");
    drop(screen.key(KeyCode::PageUp));
    assert_eq!(rows(&screen), pair(55, 77), "one row of the page before stays");
    drop(screen.key(KeyCode::Up));
    assert_eq!(rows(&screen), pair(54, 76));
    add_rows(&mut screen, 100..103);
    assert_eq!(rows(&screen), pair(54, 76), "new output does not move what is read");
    drop(screen.key(KeyCode::Home));
    assert_eq!(rows(&screen), pair(0, 22));
    assert!(shown(&screen).2.starts_with("scrolled: rows 1-23 of 103 · "), "{:?}", shown(&screen));
    drop(screen.key(KeyCode::PageDown));
    assert_eq!(rows(&screen), pair(22, 44));
    drop(screen.key(KeyCode::End));
    assert_eq!(rows(&screen), pair(80, 102));
    add_rows(&mut screen, 103..105);
    assert_eq!(rows(&screen), pair(82, 104), "new output is followed");
    screen.event("assistant_token", json!({"text": "not yet finished"}));
    assert_eq!(rows(&screen).1, "not yet finished");
    drop(screen.key(KeyCode::Up));
    drop(screen.key(KeyCode::Down));
    assert!(screen.model.scrolled.is_some());
    drop(screen.key(KeyCode::Down));
    assert!(screen.model.scrolled.is_none(), "at the end the live view returns");
}

#[test]
fn a_search_finds_the_nearest_match_above_and_moves_between_matches() {
    let mut screen = screen();
    drop(screen.key(KeyCode::PageUp));
    screen.type_text("/OW 3");
    drop(screen.key(KeyCode::Enter));
    assert!(shown(&screen).2.starts_with("no match for OW 3 · "), "{:?}", shown(&screen));
    screen.type_text("/ow 3");
    let view = screen.model.scrolled.as_ref().unwrap();
    let frame = scrolled::draw(&screen.model, view);
    assert_eq!((plain(frame.rows.last().unwrap()).as_str(), frame.cursor), ("/ow 3", Some((23, 5))));
    drop(screen.key(KeyCode::Enter));
    assert!(shown(&screen).2.starts_with("match 11 of 11 · n next, N previous"), "{:?}", shown(&screen));
    assert_eq!(rows(&screen), pair(32, 54), "the match is row 39");
    drop(screen.key(KeyCode::Char('N')));
    assert_eq!(rows(&screen), pair(32, 54), "row 38 is visible");
    drop(screen.key(KeyCode::Char('n')));
    drop(screen.key(KeyCode::Char('n')));
    assert!(shown(&screen).2.starts_with("match 1 of 11"), "{:?}", shown(&screen));
    assert_eq!(rows(&screen), pair(0, 22), "row 3");
    add_rows(&mut screen, 300..301);
    drop(screen.input(Input::Tick));
    assert!(shown(&screen).2.starts_with("match 1 of 12"), "{:?}", shown(&screen));
    screen.type_text("/a word");
    drop(screen.control('c'));
    assert!(shown(&screen).2.starts_with("match 1 of 12"), "the search before is kept: {:?}", shown(&screen));
}

#[test]
fn a_draft_is_kept_and_a_paste_returns_to_it() {
    let mut screen = screen();
    screen.type_text("my draft");
    drop(screen.key(KeyCode::PageUp));
    screen.type_text("xyz");
    drop(screen.key(KeyCode::Esc));
    assert_eq!(screen.model.composer.message(), "my draft");
    drop(screen.key(KeyCode::PageUp));
    screen.type_text("/");
    drop(screen.input(Input::Paste("row 4\n".into())));
    drop(screen.key(KeyCode::Enter));
    assert!(shown(&screen).2.contains("match"), "{:?}", shown(&screen));
    drop(screen.input(Input::Paste(" pasted".into())));
    assert!(screen.model.scrolled.is_none(), "it can be seen");
    assert_eq!(screen.model.composer.message(), "my draft pasted");
}

#[test]
fn an_approval_is_announced_and_cannot_be_decided_in_the_view() {
    let mut screen = screen();
    screen.event("user_message", json!({"text": "Go on."}));
    drop(screen.key(KeyCode::PageUp));
    screen.event("approval_required", question());
    assert_eq!(screen.model.focus, Focus::Card);
    assert!(shown(&screen).2.starts_with("! approval wanted: q shows it · "), "{:?}", shown(&screen));
    screen.wait(1000);
    assert!(next_tick(&screen.model).unwrap() > screen.now + 50, "nothing waits for the card to be armed");
    assert_eq!(screen.key(KeyCode::Char('y')), []);
    screen.wait(1000);
    assert!(!screen.model.card.as_ref().unwrap().is_armed(screen.now), "it was not drawn");
    drop(screen.key(KeyCode::Char('q')));
    screen.wait(400);
    assert!(screen.model.card.as_ref().unwrap().is_armed(screen.now));
    // A card that was visible is hidden by the view, and a letter that waits on it decides nothing.
    drop(screen.key(KeyCode::Char('y')));
    drop(screen.key(KeyCode::PageUp));
    screen.wait(1000);
    let card = screen.model.card.as_ref().unwrap();
    assert!(!card.is_sent && !card.is_armed(screen.now));
}

#[test]
fn ctrl_c_cancels_ctrl_d_leaves_and_ctrl_p_returns() {
    let mut screen = screen();
    screen.event("user_message", json!({"text": "Go on."}));
    drop(screen.key(KeyCode::PageUp));
    assert!(matches!(screen.control('c')[..], [Effect::Call(_, crate::tui::client_task::Call::Cancel)]));
    assert!(shown(&screen).2.starts_with("cancelling the run"), "{:?}", shown(&screen));
    drop(screen.control('p'));
    assert!(screen.model.scrolled.is_none() && screen.model.palette.is_some());
    drop(screen.key(KeyCode::Esc));
    drop(screen.key(KeyCode::PageUp));
    let number = screen.model.next_call - 2;
    drop(screen.input(Input::Reply { number, reply: Ok(crate::tui::client_task::CallReply::Done) }));
    assert_eq!(screen.control('d'), [Effect::Leave(LeaveReason::Detached)]);
}

#[test]
fn rows_that_are_wider_than_the_terminal_now_are_wrapped() {
    let mut screen = Screen::new();
    screen.model.transcript.lines((0..10).map(|n| format!("{n} {}", "x".repeat(50)).into()));
    drop(screen.input(Input::Resize(28, 11)));
    drop(screen.key(KeyCode::PageUp));
    drop(screen.key(KeyCode::End));
    let view = screen.model.scrolled.as_ref().unwrap();
    let drawn: Vec<_> = scrolled::draw(&screen.model, view).rows.iter().map(plain).collect();
    assert_eq!(drawn.len(), 11);
    assert!(drawn[0].starts_with("5 x") && drawn[9].starts_with("xxx"), "{drawn:?}");
    drop(screen.key(KeyCode::PageUp));
    assert!(rows(&screen).0.starts_with("1 x"), "{:?}", rows(&screen));
}
