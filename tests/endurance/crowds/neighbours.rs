//! A normal client next to bad ones: slow, silent, half-open and flooding clients change nothing for it.

use std::io::{BufRead, BufReader};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::crowds::listener::{Listener, connect, request, send};
use crate::support::daemon::{Client, Daemon};

#[test]
fn slow_silent_and_half_open_clients_do_not_change_the_latency_of_a_normal_one() {
    const EACH: usize = 60;
    const PINGS: usize = 400;
    let crowded = Daemon::start_with(&[("PUSH_FIRST_LINE_SECONDS", "600")]);
    let empty = Daemon::start();
    let (mut owner, session) = crowded.session();
    let stuck: Vec<_> = (0..EACH).map(|_| Listener::attach(&crowded, &session)).collect();
    // More than any socket buffers, so that a client that does not read really falls behind.
    owner.run(&session, "$ yes 'output that somebody should read' | head -c 2000000\n");
    let silent: Vec<_> = (0..EACH).map(|_| connect(&crowded)).collect();
    let halves: Vec<_> = (0..EACH).map(|number| half_open(&crowded, number)).collect();
    let mut beside = crowded.connect();
    let mut alone = empty.connect();
    // In turns, so that other load of the machine affects both.
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..PINGS {
        times[0].push(ping(&mut beside));
        times[1].push(ping(&mut alone));
    }
    let [crowd, none] = times.map(median);
    println!("median of a ping: {crowd:?} beside the crowd, {none:?} without one");
    assert!(crowd < 4 * none + Duration::from_millis(1), "{crowd:?} beside the crowd, {none:?} without one");
    let mut late = crowded.connect();
    assert_eq!(late.run(&session, "$ true\n")["outcome"], "success");
    drop((stuck, silent, halves));
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

fn ping(client: &mut Client) -> Duration {
    let begun = Instant::now();
    client.ping();
    begun.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
