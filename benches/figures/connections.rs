//! Many connections, and latency under load from other clients.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;

use super::daemon::{Client, Home};
use super::events::{prose, run};
use super::pump;
use super::table::{Table, median, percentile};

const PINGS: usize = 3_000;
const LISTENERS: usize = 1_000;
const IDLE: usize = 10_000;
const KIB: f64 = 1024.0;

/// The latency of a small request, without and with load from other clients.
pub(crate) fn contention(table: &mut Table) {
    let home = Home::with_daemon();
    let mut client = home.connect();
    let alone = pings(&mut client);
    let raw = pump::round_trips(&[b'x'; 120], PINGS);
    table.compare("ping alone, median", "µs", median(alone.clone()), ("echo of a line", median(raw)));
    let over = Arc::new(AtomicBool::new(false));
    let busy = [busy_session(&home, &over), flood(&home, &over)];
    let under_load = pings(&mut client);
    let raw = pump::round_trips(&[b'x'; 120], PINGS);
    over.store(true, Ordering::Relaxed);
    for thread in busy {
        thread.join().expect("a load thread");
    }
    let name = "ping under load, median";
    table.compare(name, "µs", median(under_load.clone()), ("echo of a line under the same load", median(raw.clone())));
    let name = "ping under load, p99";
    let bare = percentile(raw, 0.99);
    table.compare(name, "µs", percentile(under_load, 0.99), ("echo of a line under the same load", bare));
    table.compare("ping alone, p99", "µs", percentile(alone.clone(), 0.99), ("its median", median(alone)));
}

fn pings(client: &mut Client) -> Vec<f64> {
    let ping = |_| {
        let begun = Instant::now();
        client.request("ping", json!({}));
        begun.elapsed().as_secs_f64() * 1e6
    };
    (0..PINGS).map(ping).collect()
}

/// A session that sends events continuously, with one subscriber that reads and one that does not.
fn busy_session(home: &Home, over: &Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let session = home.session(&mut home.connect());
    let mut blocked = home.connect();
    blocked.request("attach_session", json!({"sessionId": session}));
    let (mut driver, over) = (home.connect(), Arc::clone(over));
    thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            driver.send("send_user_message", json!({"sessionId": session, "text": prose(20_000)}));
            super::reading::read_until(&mut driver.stream, super::events::RUN_COMPLETE, None);
        }
        drop(blocked);
    })
}

/// A client that sends requests without a pause.
fn flood(home: &Home, over: &Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let (mut client, over) = (home.connect(), Arc::clone(over));
    let mut answers = client.stream.try_clone().expect("another handle");
    thread::spawn(move || {
        let reading = thread::spawn(move || while answers.read(&mut [0; 64 * 1024]).is_ok_and(|read| read > 0) {});
        let line = json!({"v": "push.runtime.v1", "kind": "request", "requestId": "req_1", "type": "ping",
            "payload": {}});
        let lines = format!("{line}\n").repeat(100);
        while !over.load(Ordering::Relaxed) {
            client.stream.write_all(lines.as_bytes()).expect("the daemon reads");
        }
        client.stream.shutdown(std::net::Shutdown::Both).expect("an end");
        reading.join().expect("the reader");
    })
}

/// A thousand subscribers of one session, and ten thousand idle connections.
pub(crate) fn many_connections(table: &mut Table) {
    let descriptors = raise_descriptor_limit();
    let home = Home::with_daemon();
    let session = home.session(&mut home.connect());
    let before = home.memory();
    let ran = run(&home, &session, &prose(2_000), LISTENERS);
    let rate = (ran.lines * LISTENERS) as f64 / ran.took.as_secs_f64();
    table.single(format!("text deltas, to {LISTENERS} clients in all"), "events/s", rate);
    let grown = (home.peak() - before) / LISTENERS as f64 / KIB;
    table.single(format!("memory for each of {LISTENERS} listeners, at its peak"), "KiB", grown);
    let count = IDLE.min(descriptors.saturating_sub(200));
    let home = Home::with_daemon();
    let before = home.memory();
    let mut idle: Vec<_> = (0..count).map(|_| home.connect().into_stream()).collect();
    for stream in &mut idle {
        ping_raw(stream);
    }
    let each = (home.memory() - before) / count as f64 / KIB;
    table.single(format!("memory for each of {count} idle connections"), "KiB", each);
    let times = pings(&mut home.connect());
    table.single(format!("ping with {count} idle connections, median"), "µs", median(times));
}

fn ping_raw(stream: &mut UnixStream) {
    let line = json!({"v": "push.runtime.v1", "kind": "request", "requestId": "req_1", "type": "ping", "payload": {}});
    stream.write_all(format!("{line}\n").as_bytes()).expect("the daemon reads");
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).expect("an answer");
        if buffer[..read].ends_with(b"\n") {
            return;
        }
    }
}

/// Raises the descriptor limit to the maximum, for this program and the daemons that it starts.
fn raise_descriptor_limit() -> usize {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("as many as are allowed");
    usize::try_from(most).unwrap_or(usize::MAX)
}
