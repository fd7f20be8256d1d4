//! A normal client next to slow, silent, half-open and flooding ones: it is served meanwhile.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

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
    const FLOODS: usize = 4;
    const TURNS: usize = 100;
    let daemon = Daemon::start();
    let (mut normal, session) = daemon.session();
    let done = Arc::new(AtomicBool::new(false));
    let floods: Vec<_> = (0..FLOODS).map(|_| flood(&daemon, &done)).collect();
    // The floods last until the normal client is served: if it had to wait for their end, neither would ever end.
    for _ in 0..TURNS {
        normal.ping();
    }
    assert_eq!(normal.run(&session, "$ echo in between\n")["outcome"], "success");
    done.store(true, Ordering::Relaxed);
    for (sending, counting) in floods {
        let sent = sending.join().expect("a flood");
        assert_eq!(counting.join().expect("the answers to a flood"), sent, "the floods are answered, too");
    }
}

/// Sends as many pings as it can until `done`, in one thread, and counts the answers in another.
fn flood(daemon: &Daemon, done: &Arc<AtomicBool>) -> (JoinHandle<usize>, JoinHandle<usize>) {
    const BATCH: usize = 100;
    let mut stream = connect(daemon);
    let answers = stream.try_clone().expect("another handle");
    let done = Arc::clone(done);
    let batch = request("ping", &json!({})).repeat(BATCH);
    let sending = thread::spawn(move || {
        let mut sent = 0;
        while !done.load(Ordering::Relaxed) {
            send(&mut stream, batch.as_bytes());
            sent += BATCH;
        }
        stream.shutdown(Shutdown::Write).expect("half of it is closed");
        sent
    });
    let counting =
        thread::spawn(move || BufReader::with_capacity(64 * 1024, answers).split(b'\n').map_while(Result::ok).count());
    (sending, counting)
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
