//! Costs of an idle daemon: start-up, small requests, memory and wake-ups.

use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::daemon::{Client, Home};
use super::pump;
use super::stored;
use super::table::{Table, median};

const STARTS: usize = 15;
const ROUNDS: usize = 2_000;
const COMMITS: usize = 300;
const SESSIONS: usize = 1_000;
/// Enough sessions to fill the caches of the database.
const WARM: usize = 3_000;
/// How many sessions with messages are measured, and by how many clients they are created.
const LONG_SESSIONS: usize = 96;
const SENDERS: usize = 16;
/// The number of messages of each.
const MESSAGES: usize = 1_000;
/// How long a session is left alone before its memory is measured.
const SETTLE: Duration = Duration::from_secs(5);
const STORED: u32 = 100_000;
const KIB: f64 = 1024.0;

/// The time from the start of the process until clients can connect.
pub(crate) fn start(table: &mut Table) {
    let program = median((0..STARTS).map(|_| time_version()).collect());
    let fresh = (0..STARTS).map(|_| {
        let mut home = Home::new();
        time_start(&mut home)
    });
    table.compare("to ready, in a new home", "ms", median(fresh.collect()), ("push --version", program));
    let mut home = Home::with_daemon();
    home.stop();
    let again = (0..STARTS).map(|_| {
        let took = time_start(&mut home);
        home.stop();
        took
    });
    table.compare("to ready, again", "ms", median(again.collect()), ("push --version", program));
}

/// The start-up time with a very large number of stored sessions.
pub(crate) fn start_with_many(table: &mut Table) {
    let mut home = Home::with_daemon();
    let session = home.session(&mut home.connect());
    home.stop();
    stored::multiply(&home, &session, STORED);
    let program = median((0..STARTS).map(|_| time_version()).collect());
    let mut times = Vec::new();
    let mut memory = 0.0;
    for _ in 0..STARTS {
        times.push(time_start(&mut home));
        memory = home.memory() / KIB;
        home.stop();
    }
    let name = format!("to ready, with {STORED} stored sessions");
    table.compare(name, "ms", median(times), ("push --version", program));
    table.single(format!("memory of a daemon with {STORED} stored sessions"), "KiB", memory);
}

fn time_start(home: &mut Home) -> f64 {
    let begun = Instant::now();
    home.start();
    begun.elapsed().as_secs_f64() * 1e3
}

/// Runs `push --version` and returns the duration in milliseconds.
fn time_version() -> f64 {
    let begun = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_push"));
    command.arg("--version").stdout(Stdio::null()).status().expect("the program");
    begun.elapsed().as_secs_f64() * 1e3
}

/// The latency of small requests, one at a time.
pub(crate) fn requests(table: &mut Table) {
    let home = Home::with_daemon();
    let mut client = home.connect();
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        client.request("ping", json!({}));
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    let raw = median(pump::round_trips(&[b'x'; 120], ROUNDS));
    table.compare("ping", "µs", median(times), ("echo of a line", raw));
    let session = home.session(&mut client);
    let mut times = Vec::new();
    for number in 0..COMMITS {
        let begun = Instant::now();
        client.request("rename_session", json!({"sessionId": session, "name": format!("name {number}")}));
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    let name = "200 bytes appended to a file, and fdatasync";
    table.compare("a change, on disk and answered", "µs", median(times), (name, synced_writes(&home)));
}

fn synced_writes(home: &Home) -> f64 {
    let mut file = File::create(home.dir.path().join("raw")).expect("a file");
    let times = (0..COMMITS).map(|_| {
        let begun = Instant::now();
        file.write_all(&[b'x'; 200]).and_then(|()| file.sync_data()).expect("a disk");
        begun.elapsed().as_secs_f64() * 1e6
    });
    median(times.collect())
}

/// The memory of an idle daemon.
pub(crate) fn memory(table: &mut Table) {
    let home = Home::with_daemon();
    table.single("a fresh daemon", "KiB", home.memory() / KIB);
    let mut client = home.connect();
    // The first sessions fill shared caches.
    for _ in 0..WARM {
        home.session(&mut client);
    }
    let before = home.memory();
    for _ in 0..SESSIONS {
        home.session(&mut client);
    }
    table.single("each idle session in memory", "KiB", (home.memory() - before) / SESSIONS as f64 / KIB);
    let name = format!("each idle session after {MESSAGES} messages");
    table.single(name, "KiB", session_memory_after_messages());
    table.single("each parked session", "KiB", parked_session_memory());
}

/// The memory of a session after its messages, once its last client has detached.
fn session_memory_after_messages() -> f64 {
    let home = Home::with_daemon();
    let round = || {
        thread::scope(|scope| {
            for _ in 0..SENDERS {
                scope.spawn(|| {
                    let mut client = home.connect();
                    for _ in 0..LONG_SESSIONS / SENDERS {
                        send_messages(&home, &mut client);
                    }
                });
            }
        });
        thread::sleep(SETTLE);
        home.memory()
    };
    // Later rounds reuse memory that the first round has allocated.
    let before = round();
    (round() - before) / LONG_SESSIONS as f64 / KIB
}

/// Starts a session, sends its messages one by one, and detaches from it.
fn send_messages(home: &Home, client: &mut Client) {
    let session = home.session(client);
    for number in 0..MESSAGES {
        client.send("send_user_message", json!({"sessionId": session, "text": format!("message {number}")}));
        client.event("run_complete");
    }
    client.request("detach_session", json!({"sessionId": session}));
}

/// The memory that remains per evicted session.
fn parked_session_memory() -> f64 {
    let mut home = Home::new();
    home.park = "0.05";
    home.start();
    let mut client = home.connect();
    let mut round = || {
        for _ in 0..SESSIONS {
            home.session(&mut client);
        }
        while client.request("get_metrics", json!({}))["residentSessions"] != 0 {
            thread::sleep(Duration::from_millis(10));
        }
        home.memory()
    };
    // Later rounds reuse memory that the first rounds have allocated.
    let before = (0..4).map(|_| round()).fold(0.0, f64::max);
    let after = (0..2).map(|_| round()).fold(0.0, f64::max);
    (after - before) / (2 * SESSIONS) as f64 / KIB
}

/// The wake-ups of the threads of an idle daemon.
pub(crate) fn wake_ups(table: &mut Table) {
    let fresh = Home::with_daemon();
    let used = Home::with_daemon();
    let mut client = used.connect();
    let session = used.session(&mut client);
    client.request("attach_session", json!({"sessionId": session}));
    // A blocking thread of the pool exits after ten idle seconds.
    thread::sleep(Duration::from_secs(12));
    let before = (fresh.wake_ups(), used.wake_ups());
    thread::sleep(Duration::from_secs(5));
    table.single("of a fresh daemon, in 5 s", "", fresh.wake_ups() - before.0);
    table.single("of a daemon with a listener and its session, in 5 s", "", used.wake_ups() - before.1);
}
