//! What a client receives that attaches, reattaches or falls behind: everything once, in order, and never another
//! history.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::thread;

use crate::support::daemon::{Client, Daemon, seq, types, wait_until};
use serde_json::{Value, json};

#[test]
fn a_client_that_attaches_anywhere_in_a_stream_gets_every_event_exactly_once() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.prompt(&session, "$ until [ -e enough ]; do echo line; sleep 0.002; done; echo last\n");
    let mut attached = Vec::new();
    let mut received = Vec::new();
    for seen in 0..80 {
        // No further than the stream has come, and no slower.
        while received.last().map_or(0, seq) < seen {
            received.push(client.event());
        }
        let mut other = daemon.connect();
        let answer = other.attach(&session, seen);
        assert!(other.events.is_empty(), "events before the answer");
        assert_eq!((&answer["state"], &answer["replay"]["gap"]), (&json!("running"), &json!(false)));
        assert_eq!(answer["replay"]["fromSeq"], seen + 1);
        attached.push((seen, answer["replay"]["toSeq"].as_u64().unwrap(), other));
    }
    fs::write(daemon.cwd().join("enough"), "").unwrap();
    received.extend(client.events_until("run_complete"));
    for (seen, to, mut other) in attached {
        let got = other.events_until("run_complete");
        let missed: Vec<_> = received.iter().filter(|event| seq(event) > seen).cloned().collect();
        assert_eq!(got, missed, "behind {seen}");
        assert!(got.iter().any(|event| seq(event) == to) || seen == to, "{to} was promised");
    }
}

#[test]
fn a_position_that_was_never_issued_is_a_gap_for_that_client_alone() {
    let mut daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let mut own = 0;
    for beyond in [1, 5_000, 1 << 40] {
        client.prompt(&session, "Words before.\n\n$ true\n");
        let newest = seq(&client.event_of("run_complete"));
        let mut other = daemon.connect();
        own = attach_with_gap(&mut other, &session, newest, newest + beyond);
        let mut again = daemon.connect();
        for seen in [own - 1, own] {
            let answer = again.attach(&session, seen);
            assert_eq!((&answer["replay"]["gap"], &answer["replay"]["toSeq"]), (&json!(false), &json!(seen)));
        }
        again.ping();
        assert!(again.events.is_empty(), "nothing was missed: {:?}", again.events);
        client.prompt(&session, "$ true\n");
        let live = client.events_until("run_complete");
        assert!(seq(&live[0]) > own, "a number was used twice");
        assert_eq!(other.events_until("run_complete"), live);
        assert_eq!(again.events_until("run_complete"), live);
    }
    let kinds = types(&all_events(&daemon, &session, 6));
    assert!(!kinds.contains(&"session_snapshot".to_owned()), "it was journaled");
    daemon.kill();
    daemon.restart();
    assert_eq!(daemon.connect().attach(&session, own)["replay"]["gap"], false, "after a crash");
}

#[test]
fn a_second_attach_on_one_connection_replays_again() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.prompt(&session, "Some words.\n\n$ echo more\n");
    let received = client.events_until("run_complete");
    for seen in [0, 3, 0, seq(received.last().unwrap()), 1] {
        client.attach(&session, seen);
        assert_events(&mut client, received.iter().filter(|event| seq(event) > seen));
    }
    client.get("detach_session", json!({"sessionId": session}));
    daemon.connect().run(&session, "$ true\n");
    client.ping();
    assert!(client.events.is_empty(), "it does not listen any more");
}

#[test]
fn a_restart_changes_no_published_event_and_reuses_no_seq() {
    let mut daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.prompt(&session, "Some words.\n\n$ echo one\n");
    let mut events = client.events_until("run_complete");
    for round in 0..6 {
        if round % 2 == 0 {
            daemon.stop()
        } else {
            daemon.kill()
        }
        daemon.restart();
        let mut client = daemon.connect();
        for seen in 0..=seq(events.last().unwrap()) {
            client.attach(&session, seen);
            assert_events(&mut client, events.iter().filter(|event| seq(event) > seen));
            // After a crash a block of positions is skipped, and every position in it equals the one before.
            if seen > 40 {
                break;
            }
        }
        client.attach(&session, seq(events.last().unwrap()));
        client.prompt(&session, "$ echo again\n");
        let more = client.events_until("run_complete");
        assert!(seq(&more[0]) > seq(events.last().unwrap()), "a number was used twice");
        events.extend(more);
    }
    assert_eq!(all_events(&daemon, &session, 7), events);
}

#[test]
fn no_seq_is_used_for_two_events_however_often_the_daemon_is_killed() {
    let mut daemon = Daemon::start();
    let (_, session) = daemon.session();
    let mut shown: BTreeMap<u64, Value> = BTreeMap::new();
    for round in 0..6 {
        let mut client = daemon.connect();
        client.attach(&session, shown.keys().next_back().copied().unwrap_or(0));
        let text = format!("Round {round} has some words.\n\n$ while :; do echo line; done\n");
        client.get("queue_message", json!({"sessionId": session, "text": text, "clientMessageId": text}));
        for _ in 0..10 + round * 7 {
            record_event(&mut shown, client.event());
        }
        daemon.kill();
        while let Some(line) = client.events.pop_front().or_else(|| client.try_next()) {
            record_event(&mut shown, line);
        }
        daemon.restart();
        let mut client = daemon.connect();
        client.attach(&session, shown.keys().next_back().copied().unwrap_or(0));
        client.ping();
        let approval = loop {
            let event = client.event();
            record_event(&mut shown, event.clone());
            if event["type"] == "approval_required" {
                break event;
            }
        };
        client.decide(&approval, "deny");
        client.events_until("run_complete").into_iter().for_each(|event| record_event(&mut shown, event));
    }
    for event in all_events(&daemon, &session, 6) {
        if let Some(previous) = shown.remove(&seq(&event)) {
            assert_eq!(previous, event);
        }
    }
    assert!(shown.is_empty(), "shown and not kept: {shown:?}");
}

#[test]
fn a_reply_precedes_the_events_of_its_request() {
    let daemon = Daemon::start();
    let (_, session) = daemon.session();
    let clients: Vec<_> = (0..6).map(|_| daemon.connect()).collect();
    let message = json!({"sessionId": session, "text": "$ :\n"});
    thread::scope(|scope| {
        for mut client in clients {
            let (session, message) = (session.as_str(), &message);
            scope.spawn(move || {
                client.attach(session, 0);
                for _ in 0..16 {
                    let run = client.get("queue_message", message.clone())["runId"].clone();
                    let early = client
                        .events
                        .drain(..)
                        .find(|event| event["runId"] == run || event["payload"]["queuedRunId"] == run);
                    assert!(early.is_none(), "{early:?} came before the answer");
                }
            });
        }
    });
}

#[test]
fn a_client_that_falls_behind_is_served_from_the_journal() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let mut stuck = daemon.connect();
    stuck.attach(&session, 0);
    client.prompt(&session, "$ seq 1 500000\n");
    let events = client.events_until("run_complete");
    let size: usize = events.iter().map(|event| event.to_string().len()).sum();
    assert!(size > 3_000_000, "the ring may hold it all: {size} bytes");
    assert_eq!(stuck.events_until("run_complete"), events, "who did not read meanwhile");
    assert_eq!(all_events(&daemon, &session, 1), events, "who came later");
    let middle = events.len() / 2;
    let mut other = daemon.connect();
    other.attach(&session, seq(&events[middle]));
    assert_eq!(other.events_until("run_complete"), events[middle + 1..], "who knew half of it");
    let text = |event: &Value| event["payload"]["text"].as_str().unwrap().to_owned();
    let output: String = events.iter().filter(|event| event["type"] == "tool_output").map(text).collect();
    assert!((1..=500_000).map(|number: u32| number.to_string()).eq(output.lines().map(str::to_owned)));
}

#[test]
fn an_unloaded_session_is_restored_unchanged() {
    let daemon = Daemon::start_with(&[("PUSH_PARK_SECONDS", "0.05")]);
    let (mut client, session) = daemon.session();
    client.prompt(&session, "Some words.\n\n$ echo one\n");
    let mut events = client.events_until("run_complete");
    drop(client);
    for round in 1..5 {
        let mut metrics = daemon.connect();
        wait_until("the session leaves memory", || resident_sessions(&mut metrics) == 0);
        let mut client = daemon.connect();
        assert_eq!(client.attach(&session, 0)["state"], "completed");
        client.prompt(&session, "$ echo again\n");
        let got: Vec<_> = (0..=round).flat_map(|_| client.events_until("run_complete")).collect();
        assert_eq!(got[..events.len()], events, "round {round}");
        assert_eq!(seq(&got[events.len()]), seq(events.last().unwrap()) + 1, "no number is wasted");
        events = got;
    }
}

#[test]
fn clients_that_disconnect_during_a_request_keep_no_session_in_memory() {
    let daemon = Daemon::start_with(&[("PUSH_PARK_SECONDS", "0.05")]);
    let mut sessions = Vec::new();
    for _ in 0..20 {
        sessions.push(daemon.session().1);
    }
    for _ in 0..20 {
        let mut client = daemon.connect();
        for session in &sessions {
            client.send("attach_session", json!({"sessionId": session}));
            client.send("send_user_message", json!({"sessionId": session, "text": "$ echo a; echo b\n"}));
        }
    }
    let mut metrics = daemon.connect();
    wait_until("all sessions leave memory", || resident_sessions(&mut metrics) == 0);
    wait_until("no connection is counted but this", || metrics.get("get_metrics", json!({}))["connections"] == 1);
}

/// Attaches at a position that was never issued, checks the reply, and returns the position of the snapshot.
fn attach_with_gap(client: &mut Client, session: &str, newest: u64, strange: u64) -> u64 {
    let answer = client.attach(session, strange);
    assert_eq!(answer["replay"]["gap"], true, "{strange} {answer}");
    assert_eq!(answer["replay"]["completed"], false);
    let (warning, snapshot) = (client.event(), client.event());
    assert_eq!((&warning["type"], &warning["payload"]["code"]), (&json!("warning"), &json!("EVENT_GAP")));
    assert_eq!(snapshot["type"], "session_snapshot");
    assert_eq!(snapshot["payload"]["lastSeq"], newest);
    assert_eq!(snapshot["payload"]["lastAssistantText"], "Words before.");
    assert_eq!(snapshot["payload"]["state"], "completed");
    assert_eq!((seq(&warning), seq(&snapshot)), (newest + 1, newest + 2));
    seq(&snapshot)
}

/// Checks that a client receives exactly these events.
fn assert_events<'a>(client: &mut Client, events: impl Iterator<Item = &'a Value>) {
    for event in events {
        assert_eq!(client.event(), *event);
    }
    client.ping();
    assert!(client.events.is_empty(), "told twice: {:?}", client.events);
}

/// The events a new client receives, up to the end of a number of runs.
fn all_events(daemon: &Daemon, session: &str, runs: usize) -> Vec<Value> {
    let mut client = daemon.connect();
    client.attach(session, 0);
    (0..runs).flat_map(|_| client.events_until("run_complete")).collect()
}

fn record_event(shown: &mut BTreeMap<u64, Value>, event: Value) {
    let number = seq(&event);
    let before = shown.insert(number, event.clone());
    assert!(before.is_none_or(|before| before == event), "{number} stands for two events");
}

fn resident_sessions(client: &mut Client) -> u64 {
    client.get("get_metrics", json!({}))["residentSessions"].as_u64().unwrap()
}
