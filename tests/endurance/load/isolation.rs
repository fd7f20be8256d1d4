//! A normal client next to slow, silent, half-open and flooding ones: it is served meanwhile.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde_json::json;

use crate::load::listener::{Listener, MIB, connect, memory, request, send, wait_for};
use crate::support::daemon::Daemon;

#[test]
fn slow_silent_and_half_open_clients_do_not_block_a_normal_one() {
    const EACH: usize = 60;
    const PINGS: usize = 400;
    let daemon = Daemon::start_with(&[("PUSH_FIRST_LINE_SECONDS", "600")]);
    let (mut owner, session) = daemon.session();
    let blocked: Vec<_> = (0..EACH).map(|_| Listener::attach(&daemon, &session)).collect();
    let silent: Vec<_> = (0..EACH).map(|_| connect(&daemon)).collect();
    let halves: Vec<_> = (0..EACH).map(|number| half_open(&daemon, number)).collect();
    let mut normal = daemon.connect();
    let before = memory(&mut normal);
    // First more than any socket buffers, so that clients that do not read fall behind; then output for as long as the
    // normal client works.
    let (full, done) = (Path::new(daemon.cwd()).join("full"), Path::new(daemon.cwd()).join("done"));
    let line = "output that no blocked client reads";
    let step = format!("$ yes '{line}' | head -c 2000000; touch full; until [ -e done ]; do echo '{line}'; done\n");
    owner.prompt(&session, &step);
    wait_for("the first output", || full.exists());
    (0..PINGS).for_each(|_| normal.ping());
    let (mut other, other_session) = daemon.session();
    assert_eq!(other.run(&other_session, "$ true\n")["outcome"], "success");
    // The output is in the journal; a copy for each blocked client would be 120 MB.
    let grown = memory(&mut normal).saturating_sub(before);
    assert!(grown < 24 * MIB, "grown by {} KiB", grown / 1024);
    fs::write(done, "").expect("a file");
    assert_eq!(owner.event_of("run_complete")["payload"]["outcome"], "success");
    // Blocked clients were behind the whole time, and have lost nothing.
    let mut summaries = blocked.into_iter().take(3).map(Listener::event_summary);
    let first = summaries.next().expect("a client");
    assert!(first.bytes > 2_000_000, "{first:?}");
    assert!(summaries.all(|summary| summary == first), "the same events for every client");
    drop((silent, halves));
}

#[test]
fn a_normal_client_gets_its_turn_during_floods() {
    const FLOODS: u64 = 4;
    const PINGS: u64 = 40_000;
    const TURNS: u64 = 100;
    let daemon = Daemon::start();
    let (mut normal, session) = daemon.session();
    let answered = Arc::new(AtomicU64::new(0));
    let floods: Vec<_> = (0..FLOODS).flat_map(|_| flood(&daemon, PINGS, &answered)).collect();
    for _ in 0..TURNS {
        normal.ping();
    }
    assert_eq!(normal.run(&session, "$ echo in between\n")["outcome"], "success");
    let floods_answered = answered.load(Ordering::Relaxed);
    println!("{floods_answered} answers to the floods within {TURNS} turns of the normal client and a run");
    // Each turn of the normal client costs at most the replies the floods got meanwhile: queued behind them, it would
    // be last.
    assert!(floods_answered < FLOODS * PINGS, "the normal client had to wait for the floods");
    for part in floods {
        part.join().expect("a flood");
    }
    assert_eq!(answered.load(Ordering::Relaxed), FLOODS * PINGS, "the floods are answered, too");
}

/// Sends as many pings as it can, in one thread, and counts the answers in another.
fn flood(daemon: &Daemon, pings: u64, answered: &Arc<AtomicU64>) -> [thread::JoinHandle<()>; 2] {
    let mut stream = connect(daemon);
    let answers = stream.try_clone().expect("another handle");
    let answered = Arc::clone(answered);
    let hundred = request("ping", &json!({})).repeat(100);
    let sending = thread::spawn(move || (0..pings / 100).for_each(|_| send(&mut stream, hundred.as_bytes())));
    let counting = thread::spawn(move || {
        let mut lines = BufReader::with_capacity(64 * 1024, answers);
        let mut line = Vec::new();
        for _ in 0..pings {
            line.clear();
            assert!(lines.read_until(b'\n', &mut line).expect("an answer") > 0, "the flood was cut off");
            answered.fetch_add(1, Ordering::Relaxed);
        }
    });
    [sending, counting]
}

/// A connection that is half-open in one of three ways.
fn half_open(daemon: &Daemon, number: usize) -> UnixStream {
    let mut stream = connect(daemon);
    match number % 3 {
        0 => send(&mut stream, b"{\"v\":\"push.runtime.v1\",\"kind\":\"requ"),
        1 => {
            send(&mut stream, request("ping", &json!({})).as_bytes());
            stream.shutdown(Shutdown::Write).expect("half of it is closed");
        }
        _ => {
            send(&mut stream, request("ping", &json!({})).repeat(500).as_bytes());
            stream.shutdown(Shutdown::Read).expect("half of it is closed");
        }
    }
    stream
}
