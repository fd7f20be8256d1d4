//! What the daemon costs when little happens: starting, small requests, and memory.

use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::json;

use super::daemon::Home;
use super::pump;
use super::table::{Table, median};

const STARTS: usize = 15;
const ROUNDS: usize = 2_000;
const COMMITS: usize = 300;
const SESSIONS: usize = 1_000;
const KIB: f64 = 1024.0;

/// From the start of the program to the moment when clients can connect.
pub(crate) fn start(table: &mut Table) {
    let program = (0..STARTS).map(|_| {
        let begun = Instant::now();
        let mut command = Command::new(env!("CARGO_BIN_EXE_push"));
        command.arg("--version").stdout(Stdio::null()).status().expect("the program");
        begun.elapsed().as_secs_f64() * 1e3
    });
    let program = median(program.collect());
    let fresh = (0..STARTS).map(|_| {
        let mut home = Home::new();
        started(&mut home)
    });
    table.beside("to ready, in a new home", "ms", median(fresh.collect()), ("push --version", program));
    let mut home = Home::with_daemon();
    home.stop();
    let again = (0..STARTS).map(|_| {
        let took = started(&mut home);
        home.stop();
        took
    });
    table.beside("to ready, again", "ms", median(again.collect()), ("push --version", program));
}

fn started(home: &mut Home) -> f64 {
    let begun = Instant::now();
    home.start();
    begun.elapsed().as_secs_f64() * 1e3
}

/// Small requests, one after the other.
pub(crate) fn requests(table: &mut Table) {
    let home = Home::with_daemon();
    let mut client = home.connect();
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        client.get("ping", json!({}));
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    let raw = median(pump::round_trips(&[b'x'; 120], ROUNDS));
    table.beside("ping", "µs", median(times), ("a line there and back", raw));
    let session = home.session(&mut client);
    let mut times = Vec::new();
    for number in 0..COMMITS {
        let begun = Instant::now();
        client.get("rename_session", json!({"sessionId": session, "name": format!("name {number}")}));
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    let name = "200 bytes appended to a file, and fdatasync";
    table.beside("a change, on disk and answered", "µs", median(times), (name, synced_writes(&home)));
}

fn synced_writes(home: &Home) -> f64 {
    let mut file = File::create(home.place.path().join("raw")).expect("a file");
    let times = (0..COMMITS).map(|_| {
        let begun = Instant::now();
        file.write_all(&[b'x'; 200]).and_then(|()| file.sync_data()).expect("a disk");
        begun.elapsed().as_secs_f64() * 1e6
    });
    median(times.collect())
}

/// The memory of a daemon that has nothing to do.
pub(crate) fn memory(table: &mut Table) {
    let home = Home::with_daemon();
    table.alone("a fresh daemon", "KiB", home.memory() / KIB);
    let mut client = home.connect();
    // The first ones fill caches that all share.
    for _ in 0..SESSIONS / 10 {
        home.session(&mut client);
    }
    let before = home.memory();
    for _ in 0..SESSIONS {
        home.session(&mut client);
    }
    table.alone("each idle session in memory", "KiB", (home.memory() - before) / SESSIONS as f64 / KIB);
}
