//! What leaves the journal, and what clients are told: deletion, limits of age and size, and the integrity check.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::daemon::{Client, Daemon, seq, types, wait_until};

#[test]
fn a_deleted_session_is_gone_for_every_client_and_from_every_file() {
    let mut daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.get("rename_session", rename_payload(&session, "a-planted-name"));
    client.run(&session, "A-planted-message.\n\n$ seq 30000; echo a-planted-output\n");
    let other = client.start(daemon.cwd());
    client.run(&other, "$ echo kept\n");
    let mut listener = daemon.connect();
    listener.attach(&session, 0);
    let state = daemon.home.path().join(".push/state");
    assert!(any_file_contains(&state, "planted"), "it was there");
    let size = client.get("delete_session", dry_run_payload(&session));
    assert_eq!(size["deleted"], false);
    assert!(size["bytes"].as_u64() > Some(100_000), "{size}");
    let deleted = client.get("delete_session", session_payload(&session));
    assert_eq!(deleted, json!({"deleted": true, "bytes": size["bytes"]}));
    assert!(!any_file_contains(&state, "planted"), "a byte of it is left");
    let events = listener.events_until("session_deleted");
    let [.., before, last] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((&before["type"], &last["payload"]), (&json!("run_complete"), &json!({"by": "cli"})));
    assert!(seq(last) > seq(before));
    listener.ping();
    for client in [&mut client, &mut listener] {
        for kind in ["attach_session", "get_session_snapshot", "get_session_messages", "delete_session"] {
            assert_eq!(client.refused(kind, session_payload(&session)), "SESSION_NOT_FOUND");
        }
        assert_eq!(client.refused("delete_session", dry_run_payload(&session)), "SESSION_NOT_FOUND");
        assert_eq!(listed_sessions(client), [other.as_str()]);
    }
    daemon.kill();
    daemon.restart();
    let mut client = daemon.connect();
    assert_eq!(listed_sessions(&mut client), [other.as_str()]);
    assert_eq!(client.get("check_journal", json!({"full": true}))["lossesTotal"], 0);
    assert!(!any_file_contains(&state, "planted"));
}

#[test]
fn a_session_in_which_something_runs_or_waits_is_not_deleted() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.prompt(&session, "$ echo begun; sleep 1000\n");
    client.event_of("tool_output");
    for payload in [session_payload(&session), dry_run_payload(&session)] {
        assert_eq!(client.refused("delete_session", payload), "RUN_IN_PROGRESS");
    }
    client.get("cancel_run", session_payload(&session));
    client.event_of("run_complete");
    client.prompt(&session, "$? echo asked\n");
    client.event_of("approval_required");
    assert_eq!(client.refused("delete_session", session_payload(&session)), "RUN_IN_PROGRESS");
    client.get("cancel_run", session_payload(&session));
    client.event_of("run_complete");
    assert_eq!(client.get("delete_session", session_payload(&session))["deleted"], true);
    assert_eq!(client.event_of("session_deleted")["sessionId"], session.as_str());
}

#[test]
fn a_late_reader_gets_the_remaining_events_and_then_session_deleted() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    // Far more than a socket buffers, and far more than a session keeps in memory.
    for (lines, whole) in [(100_000, true), (1_000_000, false)] {
        let mut late = daemon.connect();
        let session = if whole { session.clone() } else { client.start(daemon.cwd()) };
        late.attach(&session, 0);
        client.run(&session, &format!("$ seq {lines}\n"));
        client.get("delete_session", session_payload(&session));
        let events = late.events_until("session_deleted");
        let numbers: Vec<_> = events.iter().map(seq).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "out of order: {numbers:?}");
        let ended = types(&events).contains(&"run_complete".to_owned());
        assert!(ended || !whole, "what was in memory was not shown: {:?}", types(&events));
        late.ping();
        assert_eq!(late.refused("attach_session", session_payload(&session)), "SESSION_NOT_FOUND");
    }
}

#[test]
fn requests_during_a_deletion_do_not_restore_the_session() {
    let daemon = Daemon::start_with(&[("PUSH_PARK_SECONDS", "0.01")]);
    let mut client = daemon.connect();
    for round in 0..12 {
        let session = client.start(daemon.cwd());
        client.run(&session, "$ echo something\n");
        let (begin, gone) = (Barrier::new(5), AtomicBool::new(false));
        thread::scope(|scope| {
            let ask = |kind: &'static str, payload: Value| {
                let (begin, gone, daemon) = (&begin, &gone, &daemon);
                scope.spawn(move || {
                    let mut client = daemon.connect();
                    begin.wait();
                    while !gone.load(Ordering::Relaxed) {
                        client.ask(kind, payload.clone());
                    }
                })
            };
            ask("attach_session", session_payload(&session));
            ask("list_queue", session_payload(&session));
            ask("get_session_snapshot", session_payload(&session));
            let run = json!({"sessionId": session, "text": "$ true\n", "clientMessageId": "once"});
            ask("queue_message", run);
            begin.wait();
            // Also when an assertion below fails: the other threads would ask for ever.
            let _over = SetOnDrop(&gone);
            // A run that has just started prevents the deletion; retry.
            wait_until("it is deleted", || {
                client.ask("delete_session", session_payload(&session))["error"]["code"] != "RUN_IN_PROGRESS"
            });
            for _ in 0..3 {
                let code = client.refused("get_session_snapshot", session_payload(&session));
                assert_eq!(code, "SESSION_NOT_FOUND", "round {round}");
            }
        });
        assert_eq!(client.refused("attach_session", session_payload(&session)), "SESSION_NOT_FOUND", "round {round}");
        assert_eq!(listed_sessions(&mut client), [""; 0], "round {round}");
    }
    let database = Connection::open(daemon.database()).expect("the journal");
    for table in ["session", "block", "checkpoint", "doomed", "start_key"] {
        let rows: i64 =
            database.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("a count");
        assert_eq!(rows, 0, "rows of {table}");
    }
}

#[test]
fn idle_sessions_are_deleted_after_their_maximum_age() {
    // About a second.
    let daemon = Daemon::start_with(&[("PUSH_KEEP_DAYS", "0.00001"), ("PUSH_RETENTION_SECONDS", "0.1")]);
    let mut client = daemon.connect();
    let waiting = client.start(daemon.cwd());
    client.prompt(&waiting, "$? echo asked\n");
    client.event_of("approval_required");
    client.get("detach_session", session_payload(&waiting));
    let watched = client.start(daemon.cwd());
    client.run(&watched, "$ echo watched\n");
    // The youngest of them: when it has expired, the others have too.
    let left = client.start(daemon.cwd());
    client.run(&left, "$ echo left\n");
    client.get("detach_session", session_payload(&left));
    let active = client.start(daemon.cwd());
    let mut other = daemon.connect();
    wait_until("the session that was left is removed", || {
        client.run(&active, "$ true\n");
        other.ask("get_session_snapshot", session_payload(&left))["error"]["code"] == "SESSION_NOT_FOUND"
    });
    let mut names = listed_sessions(&mut client);
    names.sort();
    let mut expected = [waiting, watched, active];
    expected.sort();
    assert_eq!(names, expected, "what runs, waits or is listened to stays");
    wait_until("it is logged", || {
        let log = daemon.log();
        let line = log.lines().find(|line| line.contains("session removed")).unwrap_or_default();
        line.contains(&left) && line.contains("idle for longer than the limit")
    });
}

#[test]
fn the_oldest_sessions_are_deleted_when_the_journal_is_too_large() {
    const MAX_BYTES: u64 = 1_500_000;
    let daemon = Daemon::start_with(&[
        ("PUSH_KEEP_BYTES", &MAX_BYTES.to_string()),
        ("PUSH_RETENTION_SECONDS", "0.05"),
        ("PUSH_PARK_SECONDS", "0.05"),
    ]);
    let mut client = daemon.connect();
    let mut sessions = Vec::new();
    for _ in 0..8 {
        let session = client.start(daemon.cwd());
        client.run(&session, "$ seq 50000\n");
        client.get("detach_session", session_payload(&session));
        sessions.push(session);
    }
    let active = client.start(daemon.cwd());
    wait_until("it fits", || {
        client.run(&active, "$ true\n");
        client.get("check_journal", json!({}))["usedBytes"].as_u64() <= Some(MAX_BYTES)
    });
    client.get("delete_session", session_payload(&active));
    let mut left = listed_sessions(&mut client);
    left.reverse();
    assert!(!left.is_empty() && left.len() < 6, "{left:?} of {sessions:?}");
    assert_eq!(left, sessions[sessions.len() - left.len()..], "the newest are the ones that stay");
    assert!(daemon.log().contains("the journal exceeded its size limit"));
}

#[test]
fn a_session_that_is_too_large_loses_its_oldest_events_and_continues() {
    let mut daemon = Daemon::start_with(&[("PUSH_SESSION_BYTES", "400000"), ("PUSH_PARK_SECONDS", "0.05")]);
    let (mut client, session) = daemon.session();
    client.run(&session, "$ seq 200000\n");
    let whole = client.get("delete_session", dry_run_payload(&session))["bytes"].as_u64();
    assert!(whole > Some(1_000_000), "without a checkpoint nothing can be cut: {whole:?}");
    drop(client);
    let mut client = daemon.connect();
    wait_until("it is parked, with a checkpoint", || client.get("get_metrics", json!({}))["residentSessions"] == 0);
    client.get("resume_session", json!({"sessionId": session, "lastSeenSeq": u64::from(u32::MAX)}));
    client.run(&session, "$ echo more\n");
    wait_until("it is cut", || {
        client.get("delete_session", dry_run_payload(&session))["bytes"].as_u64() < Some(400_000)
    });
    wait_until("that is logged", || daemon.log().contains("oldest events removed"));
    for life in ["the same", "the next"] {
        // The live session is notified in the background.
        wait_until("who comes from the beginning is told of the gap", || {
            let mut late = daemon.connect();
            late.attach(&session, 0)["replay"]["gap"] == true
        });
        let mut late = daemon.connect();
        late.attach(&session, 0);
        let warning = late.event_of("warning");
        assert_eq!(warning["payload"]["code"], "EVENT_GAP", "{life} life: {warning}");
        late.event_of("session_snapshot");
        let detail = warning["payload"]["detail"].as_str().expect("a detail");
        let earliest: u64 = detail.rsplit_once(' ').expect("a number").1.parse().expect("a number");
        let attached = late.attach(&session, earliest - 1);
        assert_eq!(attached["replay"]["gap"], false, "{life} life: {attached}");
        let first = late.event();
        assert!(seq(&first) >= earliest, "{first}");
        assert_eq!(late.events_until("run_complete").last().expect("events")["payload"]["outcome"], "success");
        assert_eq!(late.get("check_journal", json!({"full": true}))["lossesTotal"], 0, "it was on purpose");
        if life == "the same" {
            drop(client);
            daemon.stop();
            daemon.restart();
            client = daemon.connect();
        }
    }
    client.get("resume_session", json!({"sessionId": session, "lastSeenSeq": u64::from(u32::MAX)}));
    assert_eq!(client.run(&session, "$ echo on\n")["outcome"], "success");
}

#[test]
fn the_integrity_check_finds_damage_and_names_it() {
    let mut daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.run(&session, "$ seq 60000\n");
    let sound = client.start(daemon.cwd());
    client.run(&sound, "$ echo sound\n");
    let check = client.get("check_journal", json!({"full": true}));
    assert_eq!(check["proof"]["found"], json!([]), "{check}");
    assert_eq!((&check["proof"]["sessions"], &check["proof"]["problemsTotal"]), (&json!(2), &json!(0)));
    assert!(check["proof"]["bytes"].as_u64() > Some(300_000), "{check}");
    daemon.stop();
    let database = Connection::open(daemon.database()).expect("the journal");
    let (first, last): (i64, i64) = database
        .query_row("SELECT first, last FROM block ORDER BY length(bytes) DESC LIMIT 1", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .expect("a block of the output, which the other session does not have");
    let damaged = database
        .execute("UPDATE block SET bytes = zeroblob(length(bytes)) WHERE first = ?1 AND last = ?2", [first, last])
        .expect("damaged");
    assert_eq!(damaged, 1);
    database
        .execute("UPDATE checkpoint SET seq = seq + 1 WHERE session = (SELECT max(key) FROM session)", [])
        .expect("damaged");
    drop(database);
    daemon.restart();
    let mut client = daemon.connect();
    assert_eq!(client.get("check_journal", json!({}))["losses"], json!([]), "nobody has looked yet");
    let check = client.get("check_journal", json!({"full": true}));
    let found = &check["proof"]["found"];
    assert_eq!(found.as_array().map(Vec::len), Some(1), "{check}");
    assert_eq!(
        (&found[0]["sessionId"], &found[0]["afterSeq"], &found[0]["untilSeq"], &found[0]["cause"]),
        (&json!(session), &json!(first - 1), &json!(last), &json!("damage"))
    );
    assert_eq!((&check["losses"], &check["setAsideBlocks"]), (found, &json!(1)));
    assert_eq!(check["proof"]["problemsTotal"], 1, "{check}");
    assert_eq!(check["proof"]["problems"][0]["sessionId"], sound.as_str());
    let again = client.get("check_journal", json!({"full": true}));
    assert_eq!((&again["proof"]["found"], &again["lossesTotal"]), (&json!([]), &json!(1)));
    client.get("delete_session", session_payload(&session));
    let after = client.get("check_journal", json!({}));
    assert_eq!((&after["lossesTotal"], &after["setAsideBlocks"]), (&json!(0), &json!(0)), "{after}");
}

#[test]
fn after_a_kill_truncated_sessions_are_reported_before_they_are_opened() {
    let mut daemon = Daemon::start();
    let mut client = daemon.connect();
    let sessions: Vec<String> = (0..3).map(|_| client.start(daemon.cwd())).collect();
    for session in &sessions {
        client.run(session, "$ echo one\n");
        client.run(session, "$ echo two\n");
    }
    daemon.kill();
    let database = Connection::open(daemon.database()).expect("the journal");
    let damaged = database
        .execute(
            "DELETE FROM block WHERE session = (SELECT key FROM session WHERE id = ?1)
             AND first = (SELECT max(first) FROM block WHERE session = (SELECT key FROM session WHERE id = ?1))",
            [&sessions[1]],
        )
        .expect("damaged");
    assert_eq!(damaged, 1);
    drop(database);
    daemon.restart();
    let mut client = daemon.connect();
    let mut check = Value::Null;
    wait_until("the loss is found", || {
        check = client.get("check_journal", json!({}));
        check["lossesTotal"] != 0
    });
    assert_eq!((&check["lossesTotal"], &check["leftInOrder"]), (&json!(1), &json!(false)), "{check}");
    assert_eq!(check["losses"][0]["sessionId"], sessions[1].as_str());
    assert_eq!(client.get("get_metrics", json!({}))["residentSessions"], 0, "nobody has opened one");
    client.attach(&sessions[1], 0);
    client.event_of("events_lost");
}

fn session_payload(session: &str) -> Value {
    json!({"sessionId": session})
}

fn dry_run_payload(session: &str) -> Value {
    json!({"sessionId": session, "dryRun": true})
}

fn rename_payload(session: &str, name: &str) -> Value {
    json!({"sessionId": session, "name": name})
}

/// The listed sessions, newest first.
fn listed_sessions(client: &mut Client) -> Vec<String> {
    let listed = client.get("list_sessions", json!({}));
    let sessions = listed["sessions"].as_array().expect("a list");
    sessions.iter().map(|item| item["sessionId"].as_str().expect("a name").to_owned()).collect()
}

/// Tells whether a file in a directory contains a word.
fn any_file_contains(directory: &Path, word: &str) -> bool {
    let places = fs::read_dir(directory).expect("a directory").flatten().filter_map(|entry| {
        let bytes = fs::read(entry.path()).unwrap_or_default();
        let at = bytes.windows(word.len()).position(|window| window == word.as_bytes())?;
        let around = &bytes[at.saturating_sub(60)..bytes.len().min(at + 60)];
        Some(format!("{:?} at {at}: {}", entry.file_name(), String::from_utf8_lossy(around)))
    });
    let places: Vec<_> = places.collect();
    places.iter().for_each(|place| println!("{word} in {place}"));
    !places.is_empty()
}

/// Sets the flag when dropped.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
