//! Benchmarks of the daemon, each with a baseline of the machine from the same run: `cargo bench`.
//!
//! They start the real programs and use the real socket. `cargo bench -- --json FILE` (or the variable
//! `PUSH_BENCH_JSON`) also writes the results as JSON; any other word after `--` selects the groups that contain it.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, reason = "a measurement that cannot be taken ends the program")]
#![allow(missing_docs, reason = "a program has no users of its items")]

mod cancel;
mod connections;
mod daemon;
mod dashboard;
mod documents;
mod events;
mod idle;
#[path = "../../tests/support/model/mod.rs"]
mod model;
mod models;
mod pi;
#[path = "../../tests/support/pty.rs"]
mod pty;
mod pump;
mod reading;
mod relay;
mod replay;
mod runs;
#[cfg(target_os = "linux")]
mod sandbox;
mod stored;
mod table;
mod terminal;
mod token_server;
#[path = "../../tests/support/websocket.rs"]
mod wire;

use std::path::PathBuf;

use table::Table;

fn main() {
    let mut json = std::env::var_os("PUSH_BENCH_JSON").map(PathBuf::from);
    let mut wanted = None;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            // Passed by cargo to every benchmark.
            "--bench" => {}
            "--json" => json = Some(words.next().expect("--json needs a file").into()),
            _ => wanted = Some(word),
        }
    }
    let mut table = Table::new(wanted);
    table.group("events", events::measure);
    table.group("replay", replay::full_history);
    table.group("growth", replay::growth);
    table.group("requests", idle::requests);
    table.group("isolation", connections::contention);
    table.group("fan-out", connections::many_connections);
    table.group("runs", runs::measure);
    #[cfg(target_os = "linux")]
    table.group("sandbox", sandbox::measure);
    table.group("models", models::measure);
    table.group("models, slow", models::pace);
    table.group("cancel", cancel::measure);
    table.group("pi", pi::measure);
    table.group("terminal", terminal::measure);
    table.group("search", documents::search);
    table.group("export", documents::export);
    table.group("dashboard", dashboard::measure);
    table.group("start", idle::start);
    table.group("stored", idle::start_with_many);
    table.group("memory", idle::memory);
    table.group("wake-ups", idle::wake_ups);
    table.print();
    if let Some(path) = json {
        std::fs::write(&path, table.json()).expect("the figures are written down");
    }
}
