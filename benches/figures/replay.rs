//! Replay of histories: a complete one, one stored in single-event blocks, and the end of a long one.

use std::time::{Duration, Instant};

use serde_json::json;

use super::daemon::Home;
use super::events::{RUN_COMPLETE, prose, run};
use super::pump::pump;
use super::reading;
use super::stored;
use super::table::{Table, median};

const ROUNDS: usize = 9;
const RESTARTS: usize = 5;
const RAW: &str = "the same lines through a bare socket";

/// Replays a history of twenty thousand events.
pub(crate) fn full_history(table: &mut Table) {
    let mut home = Home::with_daemon();
    let session = home.session(&mut home.connect());
    let events = run(&home, &session, &prose(20_000), 1).lines;
    let mut lines = Vec::new();
    replay_once(&home, &session, Some(&mut lines));
    let raw = |_| millis(pump(&lines, 1));
    let raw = median((0..ROUNDS).map(raw).collect());
    table.compare(format!("{events} events, session in memory"), "ms", resident(&home, &session), (RAW, raw));
    let restarted = restarted(&mut home, &session);
    table.compare(format!("{events} events, after a restart"), "ms", restarted, (RAW, raw));
    home.stop();
    let mut drops = stored::one_event_per_block(&home, &session);
    drops.start();
    replay_once(&drops, &session, None);
    let name = format!("{events} events, each committed on its own");
    table.compare(name, "ms", resident(&drops, &session), (RAW, raw));
}

/// Replays a history once and returns how long it took, in milliseconds.
pub(crate) fn replay_once(home: &Home, session: &str, keep: Option<&mut Vec<u8>>) -> f64 {
    let mut client = home.connect();
    let begun = Instant::now();
    client.attach(session);
    reading::read_until(&mut client.stream, RUN_COMPLETE, keep);
    millis(begun.elapsed())
}

fn resident(home: &Home, session: &str) -> f64 {
    median((0..ROUNDS).map(|_| replay_once(home, session, None)).collect())
}

fn restarted(home: &mut Home, session: &str) -> f64 {
    let rounds = (0..RESTARTS).map(|_| {
        home.stop();
        home.start();
        replay_once(home, session, None)
    });
    median(rounds.collect())
}

/// The cost per event in a growing session, and the time to replay the last ten events.
pub(crate) fn growth(table: &mut Table) {
    const RUN: usize = 20_000;
    const RUNS: usize = 3;
    let mut home = Home::with_daemon();
    let short = home.session(&mut home.connect());
    run_prose(&home, &short, 90);
    let session = home.session(&mut home.connect());
    let mut events = 0;
    let mut first = None;
    for size in [1_000, 10_000, 100_000, 1_000_000] {
        while events < size {
            events += run_prose(&home, &session, (size - events).clamp(500, 200_000));
        }
        let before = home.processor();
        let measured: usize = (0..RUNS).map(|_| run_prose(&home, &session, RUN)).sum();
        let cost = (home.processor() - before) * 1e6 / measured as f64;
        events += measured;
        let name = format!("processor time an event, behind {size} events");
        table.compare(name, "µs", cost, ("behind 1000 events", *first.get_or_insert(cost)));
    }
    let (near_short, near_long) = (missed_events(&home, &short), missed_events(&home, &session));
    table.compare("ten missed events of a million", "µs", near_long, ("of a hundred", near_short));
    let mut restarted = |session: &str| {
        let rounds = (0..RESTARTS).map(|_| {
            home.stop();
            home.start();
            missed_ten(&home, session)
        });
        median(rounds.collect())
    };
    let (near_short, near_long) = (restarted(&short), restarted(&session));
    let name = "ten missed events of a million, after a restart";
    table.compare(name, "µs", near_long, ("of a hundred", near_short));
}

/// Runs a message of so many words and returns the number of lines received.
pub(crate) fn run_prose(home: &Home, session: &str, words: usize) -> usize {
    let mut client = home.connect();
    client.send("send_user_message", json!({"sessionId": session, "text": prose(words)}));
    reading::read_until(&mut client.stream, RUN_COMPLETE, None)
}

fn missed_events(home: &Home, session: &str) -> f64 {
    median((0..50).map(|_| missed_ten(home, session)).collect())
}

/// Attaches ten events before the end and returns the time until they have arrived, in microseconds.
fn missed_ten(home: &Home, session: &str) -> f64 {
    let mut client = home.connect();
    let begun = Instant::now();
    let newest = client.request("get_session_snapshot", json!({"sessionId": session}))["lastSeq"].as_u64();
    let seen = newest.expect("a number") - 10;
    client.send("attach_session", json!({"sessionId": session, "lastSeenSeq": seen}));
    reading::read_until(&mut client.stream, RUN_COMPLETE, None);
    begun.elapsed().as_secs_f64() * 1e6
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
