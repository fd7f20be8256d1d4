//! Very many clients of one daemon: each receives everything, and an idle one costs next to nothing.

use std::io::{BufRead, BufReader};
use std::thread;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;

use crate::load::listener::{Listener, connect, connections, descriptors, memory, request, send, wait_for};
use crate::support::daemon::Daemon;
use crate::support::skip::skip;

/// The number of listeners that one thread reads.
const LISTENERS_PER_THREAD: usize = 50;

/// What an idle connection may cost the daemon, in bytes; measured at three quarters of it.
const IDLE_BYTES: u64 = 12 * 1024;

#[test]
fn a_thousand_clients_of_one_session_all_receive_every_event_in_order() {
    if !raise_descriptor_limit(1_100) {
        return;
    }
    let daemon = Daemon::start();
    let (_owner, session) = daemon.session();
    let mut driver = Listener::attach(&daemon, &session);
    let mut listeners: Vec<_> = (0..1_000).map(|_| Listener::attach(&daemon, &session)).collect();
    let mut reading = Vec::new();
    while !listeners.is_empty() {
        let share = listeners.split_off(listeners.len().saturating_sub(LISTENERS_PER_THREAD));
        // A listener that is read late has fallen behind meanwhile, and is served from memory or from the journal.
        reading.push(thread::spawn(move || share.into_iter().map(Listener::event_summary).collect::<Vec<_>>()));
    }
    let words = "a text of many words that is sent to every client ".repeat(10);
    let step = "$ i=0; while [ $i -lt 100 ]; do echo \"line $i of the output of a step\"; i=$((i+1)); done\n";
    let text = format!("{words}\n\n{step}\n{words}\n\n{step}");
    send(&mut driver.stream, request("send_user_message", &json!({"sessionId": session, "text": text})).as_bytes());
    let expected = driver.checked_event_summary();
    assert!(expected.events > 10, "{expected:?}");
    let mut received = 0;
    for share in reading {
        for summary in share.join().expect("a thread that reads") {
            assert_eq!(summary, expected, "the same events for every client");
            received += 1;
        }
    }
    assert_eq!(received, 1_000);
}

#[test]
fn ten_thousand_idle_clients_cost_little_and_delay_no_other_client() {
    const CLIENTS: u64 = 10_000;
    if !raise_descriptor_limit(CLIENTS + 500) {
        return;
    }
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.run(&session, "$ true\n");
    let before = memory(&mut client);
    let open_before = descriptors(&daemon);
    let hello = request("hello", &json!({}));
    let mut idle = Vec::new();
    for _ in 0..CLIENTS {
        let mut stream = connect(&daemon);
        send(&mut stream, hello.as_bytes());
        idle.push(stream);
    }
    for stream in &idle {
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).expect("an answer");
        assert!(answer.contains("\"ok\":true"), "{answer}");
    }
    assert_eq!(connections(&mut client), CLIENTS + 1);
    let each = memory(&mut client).saturating_sub(before) / CLIENTS;
    println!("{each} bytes for an idle connection");
    assert!(each <= IDLE_BYTES, "{each} bytes for an idle connection");
    assert_eq!(client.run(&session, "$ echo still served\n")["outcome"], "success");
    let (mut late, other) = daemon.session();
    assert_eq!(late.run(&other, "$ true\n")["outcome"], "success");
    drop((idle, late));
    wait_for("all of them to be gone", || connections(&mut client) == 1);
    wait_for("their descriptors to be closed", || descriptors(&daemon) == open_before);
}

/// Raises the descriptor limits of this test and the daemon as needed, or skips the test.
fn raise_descriptor_limit(needed: u64) -> bool {
    let (now, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    if most < needed {
        skip(&format!("load: {needed} descriptors are needed, and {most} may be had"));
        return false;
    }
    // Raised and never lowered: other tests of this program run at the same time.
    now >= needed || setrlimit(Resource::RLIMIT_NOFILE, most, most).is_ok()
}
