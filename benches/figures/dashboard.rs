//! The dashboard in a pseudo-terminal, with many sessions of which some are active.

use std::time::{Duration, Instant};

use serde_json::json;

use super::daemon::{self, Home};
use super::pty::Pty;
use super::stored;
use super::table::{Table, median, percentile};
use super::terminal::at_terminal;

const STORED: u32 = 10_000;
const ACTIVE: usize = 100;
const SIZE: (u16, u16) = (160, 50);
/// A part of the status row.
const FRAME_END: &str = "q quit";
/// What is typed into the filter: it matches every session.
const FILTER: &str = "playbook";
const ROUNDS: usize = 40;
/// The time between two keys, about as of a fast typist.
const KEY_PAUSE: Duration = Duration::from_millis(40);
const MIB: f64 = 1024.0 * 1024.0;

/// Measures the dashboard.
pub(crate) fn measure(table: &mut Table) {
    let mut home = Home::with_daemon();
    let session = home.session(&mut home.connect());
    home.stop();
    stored::multiply(&home, &session, STORED);
    home.start();
    let mut client = home.connect();
    for number in 0..ACTIVE {
        let session = home.session(&mut client);
        let message = json!({"sessionId": session, "clientMessageId": format!("msg_{number}"),
            "text": "$ while echo word; do sleep 1; done"});
        client.request("send_user_message", message);
    }
    let begun = Instant::now();
    let mut view = Pty::start(at_terminal(&home, &[]), SIZE);
    let drawn = view.wait_for(FRAME_END);
    let listed = view.wait_for(&format!("Sessions ({})", STORED as usize + ACTIVE + 1));
    table.single("to the first frame", "ms", (drawn - begun).as_secs_f64() * 1e3);
    table.single(format!("to the list of {STORED} sessions"), "ms", (listed - begun).as_secs_f64() * 1e3);
    let before = (Instant::now(), daemon::processor(view.pid()));
    let mut letters = Vec::new();
    let mut screens = Vec::new();
    for round in 0..ROUNDS {
        pause(&mut view, round);
        view.type_text("/");
        view.wait_for("filter: ");
        for typed in 1..=FILTER.len() {
            pause(&mut view, round + typed);
            let text = format!("filter: \x1b[0m{}", &FILTER[..typed]);
            letters.push(press(&mut view, &FILTER[typed - 1..typed], &text));
        }
        pause(&mut view, round);
        view.type_text("\x1b");
        view.wait_for(FRAME_END);
        pause(&mut view, round);
        screens.push(press(&mut view, "?", "any key goes back"));
        pause(&mut view, round);
        screens.push(press(&mut view, "?", "SESSION"));
    }
    let share = (daemon::processor(view.pid()) - before.1) / before.0.elapsed().as_secs_f64();
    let active = format!("{STORED} sessions, {ACTIVE} active");
    let (median_of, p99_of) = (median(letters.clone()), percentile(letters, 0.99));
    table.single(format!("letter of the filter to screen, {active}, median"), "ms", median_of);
    table.single(format!("letter of the filter to screen, {active}, p99"), "ms", p99_of);
    let (median_of, p99_of) = (median(screens.clone()), percentile(screens, 0.99));
    table.single(format!("key to a whole screen, {active}, median"), "ms", median_of);
    table.single(format!("key to a whole screen, {active}, p99"), "ms", p99_of);
    table.single("processor time of the client", "%", share * 100.0);
    table.single("memory of the client at its peak", "MiB", daemon::peak(view.pid()) / MIB);
}

/// Waits for about the time between two keys, not in step with the drawings.
fn pause(view: &mut Pty, round: usize) {
    view.skip_until(Instant::now() + KEY_PAUSE + Duration::from_micros(round as u64 * 617 % 16_000));
}

/// Presses a key, and returns the time until a text is drawn, in milliseconds.
fn press(view: &mut Pty, key: &str, text: &str) -> f64 {
    let begun = Instant::now();
    view.type_text(key);
    (view.wait_for(text) - begun).as_secs_f64() * 1e3
}
