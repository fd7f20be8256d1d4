//! Damage on disk, seen by the clients of a real daemon: it serves what is left and reports what is missing.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::daemon::{Daemon, seq, types, wait_until};

#[test]
fn a_damaged_block_is_missing_and_everything_around_it_is_there() {
    let (mut daemon, session) = with_history();
    daemon.stop();
    let database = Connection::open(daemon.database()).expect("the journal");
    let (first, last): (i64, i64) = database
        .query_row("SELECT first, last FROM block WHERE first > 2 AND last > first LIMIT 1", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .expect("a block in the middle that holds several events");
    database.execute("UPDATE block SET bytes = zeroblob(length(bytes)) WHERE first = ?1", [first]).expect("damaged");
    drop(database);
    daemon.restart();
    let events = replay(&daemon, &session);
    let missing: Vec<_> = events.iter().filter(|event| event["type"] == "events_lost").collect();
    assert_eq!(missing.len(), 1, "{:?}", types(&events));
    assert_eq!(missing[0]["payload"], json!({"afterSeq": first - 1, "untilSeq": last, "cause": "damage"}));
    assert_eq!(missing[0]["seq"], last);
    let numbers: Vec<_> = events.iter().map(seq).collect();
    let expected: Vec<_> = (1..first as u64).chain(last as u64..=*numbers.last().expect("events")).collect();
    assert_eq!(numbers, expected, "what precedes the damage and what follows it");
    // Every client gets the same, and the session continues.
    assert_eq!(replay(&daemon, &session), events);
    let inside = first as u64;
    let mut client = daemon.connect();
    client.attach(&session, inside);
    assert_eq!(client.event()["type"], "events_lost", "found while the session is in memory");
    daemon.stop();
    daemon.restart();
    let mut client = daemon.connect();
    let answer = client.attach(&session, inside);
    assert_eq!(answer["replay"]["gap"], true, "inside a hole that is known: {answer}");
    let mut client = daemon.connect();
    client.attach(&session, *numbers.last().expect("events"));
    assert_eq!(client.run(&session, "$ echo on\n")["outcome"], "success");
}

#[test]
fn a_history_that_lost_its_end_is_reported_as_incomplete() {
    let (mut daemon, session) = with_history();
    let newest = seq(replay(&daemon, &session).last().expect("events"));
    daemon.kill();
    let log = daemon.database().with_extension("db-wal");
    fs::write(&log, b"").expect("the log is cut");
    daemon.restart();
    let mut client = daemon.connect();
    let answer = client.ask("attach_session", json!({"sessionId": session, "lastSeenSeq": 0}));
    if answer["ok"] == true {
        let lost = client.event_of("events_lost");
        assert!(seq(&lost) > newest, "{lost}");
    } else {
        assert_eq!(answer["error"]["code"], "SESSION_NOT_FOUND");
        wait_until("the log names it", || daemon.log().contains("a session is missing from the journal"));
    }
}

#[test]
fn a_run_whose_events_are_lost_is_not_continued() {
    let mut daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.prompt(&session, "$ echo ran >> count\n\n$? echo asked\n");
    client.event_of("approval_required");
    daemon.kill();
    let database = Connection::open(daemon.database()).expect("the journal");
    let damaged = database
        .execute(
            "UPDATE block SET bytes = zeroblob(length(bytes))
             WHERE first > 2 AND first < (SELECT max(first) FROM block)",
            [],
        )
        .expect("damaged");
    assert!(damaged > 0);
    drop(database);
    daemon.restart();
    let mut client = daemon.connect();
    client.attach(&session, 0);
    let ended = client.event_of("run_complete");
    assert_eq!((&ended["payload"]["outcome"], &ended["payload"]["reason"]), (&json!("failed"), &json!("events_lost")));
    let count = fs::read_to_string(daemon.cwd().join("count")).expect("the step ran");
    assert_eq!(count, "ran\n", "no step was run again");
}

/// A daemon, and a session whose events lie in several blocks.
fn with_history() -> (Daemon, String) {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    // The output of a step lies in blocks that are too large to be merged.
    client.run(&session, "$ seq 1 60000\n");
    (daemon, session)
}

/// Everything that a client gets when it attaches from the beginning.
fn replay(daemon: &Daemon, session: &str) -> Vec<Value> {
    let mut client = daemon.connect();
    let answer = client.attach(session, 0);
    assert_eq!(answer["replay"]["gap"], false, "{answer}");
    let newest = answer["replay"]["toSeq"].as_u64().expect("a number");
    let mut events = Vec::new();
    while events.last().is_none_or(|event| seq(event) < newest) {
        events.push(client.event());
    }
    events
}

/// The fixture was written by the daemon of that schema: one session with one run of two steps, seventeen events.
#[test]
fn a_journal_of_the_first_schema_opens() {
    let mut daemon = daemon_with_fixture("journal-1000.db");
    let mut client = daemon.connect();
    let sessions = client.get("list_sessions", json!({}));
    let session = sessions["sessions"][0]["sessionId"].as_str().expect("a session").to_owned();
    let events = replay(&daemon, &session);
    assert_eq!(events.iter().map(seq).collect::<Vec<_>>(), (1..=17).collect::<Vec<_>>());
    client.attach(&session, 17);
    assert_eq!(client.run(&session, "$ echo three\n")["outcome"], "success");
    daemon.kill();
    daemon.restart();
    assert!(replay(&daemon, &session).len() > 17);
}

/// The fixture was written before events had a codec of their own: a session with a branch and Pi commands, one with a
/// pending approval, one of 60 steps, and checkpoints.
#[test]
fn a_journal_from_before_the_record_codec_opens() {
    let mut daemon = daemon_with_fixture("journal-1002.db");
    let mut client = daemon.connect();
    let sessions = client.get("list_sessions", json!({"includeEnded": true}));
    let sessions = sessions["sessions"].as_array().expect("a list");
    let named = |name: &str| {
        let session = sessions.iter().find(|session| session["name"] == name).expect(name);
        session["sessionId"].as_str().expect("an id").to_owned()
    };
    let (branched, waiting, long) = (named("two branches"), named("waiting"), named("finished-long"));
    let of_type = |events: &[Value], kind: &str| events.iter().filter(|event| event["type"] == kind).count();

    let messages = client.get("get_session_messages", json!({"sessionId": branched}));
    let texts = messages.to_string();
    assert!(texts.contains("First message") && texts.contains("Third message"), "{texts}");
    assert!(!texts.contains("Second message"), "on another branch: {texts}");
    let events = replay(&daemon, &branched);
    assert_eq!(of_type(&events, "run_complete"), 3);

    assert_eq!(of_type(&replay(&daemon, &waiting), "approval_required"), 1);
    assert_eq!(of_type(&replay(&daemon, &long), "tool_result"), 60);

    client.attach(&branched, seq(events.last().expect("an event")));
    // The session goes on; its step fails because the directory of the fixture is on no other machine.
    let end = client.run(&branched, "$ echo four\n");
    assert_eq!(end["outcome"], "failed", "{end}");
    assert!(end.to_string().contains("/tmp/fix/work"), "{end}");
    daemon.kill();
    daemon.restart();
    assert_eq!(of_type(&replay(&daemon, &branched), "run_complete"), 4);
}

/// A daemon whose state is a committed database and nothing else.
fn daemon_with_fixture(name: &str) -> Daemon {
    let mut daemon = Daemon::start();
    daemon.stop();
    let state = daemon.database().parent().expect("the state directory").to_owned();
    for file in fs::read_dir(&state).expect("the state").flatten() {
        if file.file_name() != "pushd.lock" {
            fs::remove_file(file.path()).expect("removed");
        }
    }
    let fixture = format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    fs::copy(fixture, daemon.database()).expect("the fixture");
    daemon.restart();
    daemon
}
