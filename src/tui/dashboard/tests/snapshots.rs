//! Every view of the dashboard, compared with the snapshots in `src/tui/tests/views`.

use crossterm::event::KeyCode;
use ratatui::text::Line;
use serde_json::json;

use super::{Screen, approvals, hits, report_number, session, sessions};
use crate::client::{Notice, SessionSnapshot};
use crate::tui::dashboard::model::{Input, PreviewStart};
use crate::tui::dashboard::pane::Answer;
use crate::tui::dashboard::view;
use crate::tui::text::wrap::truncate;

fn compare(name: &str, screen: &Screen) {
    let (width, height) = screen.dashboard.shared.size;
    let frame = view::draw(&screen.dashboard);
    assert_eq!(frame.rows.len(), usize::from(height), "{name}");
    // As the writer shortens them.
    let row = |row: &Line<'static>| {
        let row = truncate(row, width);
        row.spans.iter().map(|span| span.content.as_ref()).collect::<String>().trim_end().to_owned() + "\n"
    };
    let text: String = frame.rows.iter().map(row).collect();
    let text = format!("---- cursor {:?}\n{text}", frame.cursor);
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tui/tests/views"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(format!("dashboard-{name}"), text));
}

fn listed(size: (u16, u16)) -> Screen {
    let mut screen = Screen::with(size, &sessions(), &approvals());
    screen.input(Input::Repositories(vec![("/home/me/project/deep".into(), "/home/me/project".into())]));
    screen
}

fn with_preview(mut screen: Screen) -> Screen {
    let entry = screen.dashboard.shared.sessions.selected().map(|entry| entry.item.session_id.clone()).unwrap();
    let width = screen.dashboard.watched.preview.as_ref().map_or(40, |(_, width)| *width);
    let snapshot = SessionSnapshot::default();
    screen.input(Input::Preview(Box::new(PreviewStart { session: entry.clone(), width, snapshot, history_end: 0 })));
    screen.event(&entry, "user_message", json!({"text": "Fix the sum, please."}));
    screen.event(&entry, "assistant_token", json!({"text": "I have **found** it.\n\n- one\n- two\n"}));
    screen
}

#[test]
fn the_sessions() {
    compare("sessions-wide", &with_preview(listed((120, 24))));
    compare("sessions", &listed((80, 20)));
    compare("sessions-narrow", &listed((40, 16)));
    compare("sessions-none", &Screen::with((80, 8), &json!([]), &json!([])));
    compare("sessions-unread", &Screen::new((80, 8)));
    let mut screen = listed((40, 16));
    screen.key(KeyCode::Char(' '));
    screen.wait(100);
    compare("preview-narrow", &with_preview(screen));
}

#[test]
fn fields_and_questions_about_a_session() {
    let mut screen = listed((80, 16));
    screen.type_text("/sum");
    compare("filter", &screen);
    screen.key(KeyCode::Enter);
    compare("filter-kept", &screen);
    let mut screen = listed((80, 16));
    screen.type_text("/nothing like this");
    compare("filter-without-result", &screen);
    for (key, name) in [('n', "new"), ('r', "rename"), ('e', "end"), ('d', "delete")] {
        let mut screen = listed((80, 16));
        screen.key(KeyCode::Char(key));
        compare(name, &screen);
    }
}

#[test]
fn the_approvals() {
    for (name, size) in [("approvals-wide", (120, 20)), ("approvals", (80, 20)), ("approvals-narrow", (40, 24))] {
        let mut screen = listed(size);
        screen.key(KeyCode::Char('2'));
        screen.wait(400);
        compare(name, &screen);
    }
    let mut screen = listed((80, 20));
    screen.key(KeyCode::Char('2'));
    screen.wait(400);
    screen.key(KeyCode::Char('v'));
    compare("approval-whole", &screen);
    screen.key(KeyCode::Esc);
    screen.key(KeyCode::Char('n'));
    screen.type_text("not now");
    compare("approval-reason", &screen);
    let mut screen = Screen::with((80, 8), &sessions(), &json!([]));
    screen.key(KeyCode::Char('2'));
    compare("approvals-none", &screen);
}

#[test]
fn the_search() {
    let mut screen = listed((80, 14));
    screen.key(KeyCode::Char('3'));
    compare("search-empty", &screen);
    screen.type_text("disk");
    let sent = screen.key(KeyCode::Enter);
    let (number, _) = super::request(&sent, "search");
    compare("search-running", &screen);
    screen.answer(number, &hits());
    compare("search", &screen);
}

#[test]
fn reports_and_keys() {
    for (key, name, text) in [
        ('4', "settings", "/home/me/.config/push/config.toml\nmodel  qwen3:8b  \u{1b}[2mfile, line 3\u{1b}[0m\n"),
        (
            '5',
            "doctor",
            "\u{1b}[32mok     \u{1b}[0m  disk: fine\n\u{1b}[31mproblem\u{1b}[0m  socket: gone\n         start it\n",
        ),
    ] {
        let mut screen = listed((80, 10));
        let effects = screen.key(KeyCode::Char(key));
        compare(&format!("{name}-unread"), &screen);
        screen.input(Input::Answer(Answer { number: report_number(&effects).unwrap(), result: Ok(text.into()) }));
        compare(name, &screen);
    }
    let mut screen = listed((80, 22));
    screen.key(KeyCode::Char('?'));
    compare("keys", &screen);
    let mut screen = listed((40, 24));
    screen.key(KeyCode::F(1));
    compare("keys-narrow", &screen);
}

#[test]
fn the_connection() {
    let mut screen = listed((80, 12));
    screen.input(Input::Notice(Notice::ConnectionLost));
    compare("reconnecting", &screen);
    screen.input(Input::Notice(Notice::DaemonStopped));
    compare("stopped", &screen);
    let many: Vec<_> = (0..300).map(|n| session(&format!("{n:04}"), "idle", n, "/p", "one of many")).collect();
    let mut screen = Screen::with((80, 12), &many.into(), &json!([]));
    screen.key(KeyCode::PageDown);
    screen.key(KeyCode::PageDown);
    compare("scrolled", &screen);
}
