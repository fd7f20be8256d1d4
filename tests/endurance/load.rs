//! Many clients, and bad ones: a slow, silent, greedy or vanished client costs a bounded amount, and does not affect
//! others.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(unix)]

mod descriptor_limits;
mod isolation;
mod listener;
mod many_clients;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::process::Child;
use std::thread;
use std::time::Instant;

use crate::support::daemon::Daemon;
use listener::{
    Listener, MIB, TIMEOUT, connect, connections, descriptors, memory, metric, peak_memory, request, send, wait_for,
};
use serde_json::{Value, json};

#[test]
fn a_stuck_reader_among_fifty_changes_nothing_for_the_others() {
    let daemon = Daemon::start();
    let (mut watcher, session) = daemon.session();
    watcher.get("detach_session", json!({"sessionId": session}));
    let stuck = Listener::attach(&daemon, &session);
    let mut driver = Listener::attach(&daemon, &session);
    let others: Vec<_> = (0..48).map(|_| Listener::attach(&daemon, &session)).collect();
    let before = memory(&mut watcher);
    // Far more than the daemon may buffer for any client, in text and in the output of a step.
    let prose = "many words that are said one after the other ".repeat(1_000);
    let step = "$ yes 'a line of output that is neither short nor long' | head -c 48000000\n";
    let listening: Vec<_> = others.into_iter().map(|other| thread::spawn(move || other.event_summary())).collect();
    let prompt = json!({"sessionId": session, "text": format!("{prose}\n\n{step}")});
    send(&mut driver.stream, request("send_user_message", &prompt).as_bytes());
    let driven = driver.checked_event_summary();
    for listening in listening {
        assert_eq!(listening.join().expect("a listener"), driven, "the same events for every client");
    }
    assert!(driven.bytes > 48_000_000, "{driven:?}");
    // Memory grows no further for twice as much output; buffered for the stuck client, the output alone would be
    // twice the limit.
    let grown = memory(&mut watcher).max(peak_memory(&daemon)).saturating_sub(before);
    assert!(grown < 24 * MIB, "grown by {} KiB at its peak", grown / 1024);
    // Its events are not lost: they wait in the journal.
    assert_eq!(stuck.event_summary(), driven, "the late one misses nothing");
}

#[test]
fn ten_thousand_dropped_connections_leave_nothing_behind() {
    let daemon = Daemon::start_with(&[("PUSH_PARK_SECONDS", "0.05")]);
    let (mut client, session) = daemon.session();
    client.run(&session, "$ true\n");
    let attach = request("attach_session", &json!({"sessionId": session}));
    let mut before = 0;
    for batch in 0..100 {
        let mut dropped: Vec<_> = (0..100).map(|_| connect(&daemon)).collect();
        for (number, stream) in dropped.iter_mut().enumerate() {
            match number % 5 {
                0 => {}
                1 => send(stream, b"{\"v\":\"push.runtime.v1\",\"kind\":\"req"),
                2 => send(stream, request("hello", &json!({})).as_bytes()),
                // The first reply finds it gone, while its session still has the second request.
                3 => send(stream, (request("hello", &json!({})) + &attach).as_bytes()),
                // It is attached for certain, and disconnects in the middle of the events.
                _ => {
                    send(stream, attach.as_bytes());
                    let mut some = [0; 16];
                    stream.read_exact(&mut some).expect("the beginning of an answer");
                }
            }
        }
        drop(dropped);
        if batch == 0 {
            wait_for("the first to be gone", || connections(&mut client) == 1);
            before = descriptors(&daemon);
        }
    }
    wait_for("all connections to be gone", || connections(&mut client) == 1);
    // A thread that reads from the disk may have had a file open at first.
    wait_for("all descriptors to be closed", || descriptors(&daemon) <= before);
    client.get("detach_session", json!({"sessionId": session}));
    wait_for("the session to be parked", || metric(&mut client, "residentSessions") == 0);
    assert_eq!(client.run(&session, "$ true\n")["outcome"], "success");
}

#[test]
fn a_flood_of_requests_without_a_reader_gets_backpressure_and_all_replies() {
    const PINGS: usize = 30_000;
    let daemon = Daemon::start();
    let mut normal = daemon.connect();
    let before = memory(&mut normal);
    let flood = request("ping", &json!({})).repeat(PINGS).into_bytes();
    let mut flooder = connect(&daemon);
    flooder.set_nonblocking(true).expect("a flood does not wait");
    let mut sent = 0;
    let mut held_back = 0;
    // A client is held back when its writes block while another client is served a hundred times.
    while held_back < 100 && sent < flood.len() {
        match flooder.write(&flood[sent..]) {
            Ok(more) => (sent, held_back) = (sent + more, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => held_back += 1,
            Err(error) => panic!("the flood broke: {error}"),
        }
        assert_eq!(normal.get("ping", json!({}))["pong"], true);
    }
    assert!(sent < flood.len(), "all of the flood went in though nobody read an answer");
    let grown = memory(&mut normal).saturating_sub(before);
    assert!(grown < 4 * MIB, "the flood costs {} KiB", grown / 1024);
    flooder.set_nonblocking(false).expect("a socket that waits");
    let mut reader = BufReader::new(flooder.try_clone().expect("another handle"));
    let rest = thread::spawn(move || send(&mut flooder, &flood[sent..]));
    let mut line = String::new();
    for number in 0..PINGS {
        line.clear();
        reader.read_line(&mut line).expect("an answer");
        assert!(line.contains("\"pong\":true"), "answer {number}: {line}");
    }
    rest.join().expect("the rest of the flood");
    assert_eq!(normal.get("ping", json!({}))["pong"], true);
}

#[test]
fn five_hundred_sessions_run_at_once() {
    let daemon = Daemon::start();
    let environment = json!({"PATH": std::env::var("PATH").unwrap_or_default()});
    let start = request("start_session", &json!({"cwd": daemon.cwd(), "environment": environment}));
    let mut clients: Vec<_> = (0..500).map(|_| Listener::new(connect(&daemon))).collect();
    for client in &mut clients {
        send(&mut client.stream, start.as_bytes());
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let session = client.until(|line| line["kind"] == "response")["payload"]["sessionId"].clone();
        let prompt = json!({"sessionId": session, "text": format!("$ echo session {number}\n")});
        send(&mut client.stream, request("send_user_message", &prompt).as_bytes());
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let result = client.until(|line| line["type"] == "tool_result");
        assert_eq!(result["payload"]["text"], format!("session {number}\n"), "{result}");
        let complete = client.until(|line| line["type"] == "run_complete");
        assert_eq!(complete["payload"]["outcome"], "success", "{complete}");
    }
    assert_eq!(metric(&mut daemon.connect(), "activeRuns"), 0);
}

#[test]
fn a_client_that_closed_its_sending_side_still_gets_all_replies() {
    let daemon = Daemon::start();
    let mut stream = connect(&daemon);
    let requested = request("ping", &json!({})) + &request("start_session", &json!({"cwd": daemon.cwd()}));
    send(&mut stream, (requested + &request("get_metrics", &json!({})).repeat(200)).as_bytes());
    stream.shutdown(Shutdown::Write).expect("nothing more is said");
    let lines: Vec<Value> = BufReader::new(stream)
        .lines()
        .map(|line| serde_json::from_str(&line.expect("a line")).expect("JSON"))
        .collect();
    let answers = lines.iter().filter(|line| line["kind"] == "response");
    assert_eq!(answers.filter(|line| line["ok"] == true).count(), 202);
}

#[test]
fn a_stop_request_is_answered_before_the_daemon_exits() {
    let mut daemon = Daemon::start();
    for _ in 0..20 {
        assert_eq!(daemon.connect().get("drain", json!({"graceMs": 0}))["draining"], true);
        daemon.ended();
        daemon.restart();
    }
}

#[test]
fn of_a_hundred_daemons_started_at_once_one_wins() {
    let mut daemon = Daemon::start();
    daemon.kill();
    let start = |_| daemon.command("push").args(["daemon", "run"]).spawn().expect("a daemon");
    let mut started: Vec<Child> = (0..100).map(start).collect();
    let deadline = Instant::now() + TIMEOUT;
    let mut losers = Vec::new();
    while started.len() > 1 && Instant::now() < deadline {
        let over = |child: &mut Child| child.try_wait().expect("its state").is_some();
        losers.extend(started.extract_if(.., over));
        thread::yield_now();
    }
    let winner = started.pop();
    let answered = winner.as_ref().map(|winner| (winner.id(), daemon.connect().get("get_metrics", json!({}))));
    for mut child in winner.into_iter().chain(started) {
        child.kill().expect("a daemon that runs");
        child.wait().expect("its end");
    }
    for mut loser in losers {
        let ended = loser.wait().expect("its end");
        let mut words = String::new();
        loser.stderr.take().expect("its words").read_to_string(&mut words).expect("words");
        assert!(!ended.success() && words.contains("another pushd is running"), "{ended}: {words}");
    }
    let (pid, metrics) = answered.expect("one daemon that runs");
    assert_eq!(metrics["pid"], pid);
}
