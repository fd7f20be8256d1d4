//! Throughput and latency of model output, from the server through the daemon to `push run --jsonl`.

use std::io::Read;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::daemon::Home;
use super::model::ServerDialect;
use super::table::{Table, median};
use super::token_server::{Pace, TOKEN, TokenServer};

/// The number of tokens of a long answer.
const TOKENS: usize = 20_000;
/// The number of tokens of a slow answer, at 50 per second.
const SLOW: usize = 150;
const ROUNDS: usize = 7;
const STARTS: usize = 40;
const MIB: f64 = 1024.0 * 1024.0;
const ALL: [(ServerDialect, &str); 3] =
    [(ServerDialect::OpenAi, "openai"), (ServerDialect::Ollama, "ollama"), (ServerDialect::Anthropic, "anthropic")];

/// Measures long and short answers.
pub(crate) fn measure(table: &mut Table) {
    for (speaks, name) in ALL {
        long(table, speaks, name);
    }
    short(table);
}

/// Measures slow answers.
pub(crate) fn pace(table: &mut Table) {
    for (speaks, name) in ALL {
        slow(table, speaks, name);
    }
}

fn long(table: &mut Table, speaks: ServerDialect, name: &str) {
    let home = Home::with_daemon();
    let server = TokenServer::start(speaks, TOKENS, Pace::Fast);
    let bare = (0..ROUNDS).map(|_| {
        let there = *server.read_bare().last().expect("a token");
        (there - server.sent_times()[0]).as_secs_f64()
    });
    let bare = TOKENS as f64 / median(bare.collect());
    let fresh = home.memory();
    let before = home.processor();
    let mut peak = None;
    let rounds = (0..ROUNDS).map(|_| {
        let received = record_output(&mut run(&home, speaks, name, &server));
        assert_eq!(received.ends.last(), Some(&(TOKENS * TOKEN.len())), "not all text arrived");
        let _ = *peak.get_or_insert_with(|| home.peak());
        (received.ended_at - server.sent_times()[0]).as_secs_f64()
    });
    let rate = TOKENS as f64 / median(rounds.collect());
    let cost = (home.processor() - before) * 1e6 / (TOKENS * ROUNDS) as f64;
    let raw = ("the same bytes over a bare connection", bare);
    table.compare(format!("{TOKENS} tokens of {name}, to push run --jsonl"), "tokens/s", rate, raw);
    table.single(format!("{TOKENS} tokens of {name}: processor time of the daemon, each"), "µs", cost);
    let name = format!("{TOKENS} tokens of {name}: memory of the daemon, at its peak");
    let peak = peak.expect("a round") / MIB;
    table.compare(name, "MiB", peak, ("before the run", fresh / MIB));
}

fn slow(table: &mut Table, speaks: ServerDialect, name: &str) {
    let home = Home::with_daemon();
    let server = TokenServer::start(speaks, SLOW, Pace::Every(Duration::from_millis(20)));
    let bare = server.read_bare();
    let bare = latencies(&server.sent_times(), &bare);
    let relayed = server.read_relayed();
    let relayed = latencies(&server.sent_times(), &relayed);
    let received = record_output(&mut run(&home, speaks, name, &server));
    let there: Vec<_> = (1..=SLOW).map(|token| received.time_of(token * TOKEN.len())).collect();
    let late = latencies(&server.sent_times(), &there);
    let (bare, relayed, late) = (median(bare), median(relayed), median(late));
    let what = format!("a token of {name} at 50 a second, from server to output, median");
    table.compare(what.clone(), "ms", late, ("over a bare connection", bare));
    table.compare(what, "ms", late, ("through bare relays that write as much", relayed));
}

fn short(table: &mut Table) {
    let home = Home::with_daemon();
    let server = TokenServer::start(ServerDialect::OpenAi, 1, Pace::Fast);
    let runs = (0..STARTS).map(|_| {
        let begun = Instant::now();
        record_output(&mut run(&home, ServerDialect::OpenAi, "openai", &server));
        begun.elapsed().as_secs_f64() * 1e3
    });
    let bare = (0..STARTS).map(|_| {
        let begun = Instant::now();
        home.push(&["--version"]).output().expect("the client");
        begun.elapsed().as_secs_f64() * 1e3
    });
    let raw = ("push --version", median(bare.collect()));
    table.compare("a run of one token, daemon running", "ms", median(runs.collect()), raw);
}

/// The output of a run with timestamps.
struct RunOutput {
    /// The number of answer bytes up to each event, and when the event was read.
    ends: Vec<usize>,
    times: Vec<Instant>,
    /// When the run ended.
    ended_at: Instant,
}

impl RunOutput {
    /// Returns when so many bytes had arrived.
    fn time_of(&self, bytes: usize) -> Instant {
        self.times[self.ends.partition_point(|end| *end < bytes)]
    }
}

fn run(home: &Home, speaks: ServerDialect, name: &str, server: &TokenServer) -> Command {
    let mut command = home.push(&["run", "--headless", "--jsonl", "--provider", name, "--model", "m", "hi"]);
    let (place, key) = match speaks {
        ServerDialect::Ollama => ("OLLAMA_HOST", "OLLAMA_API_KEY"),
        ServerDialect::OpenAi => ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
        ServerDialect::Anthropic => ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    };
    command.env(place, server.base_url(speaks)).env(key, "a-key-for-nobody");
    command
}

/// Runs a command to its end and records when each line arrived; the lines are parsed afterwards.
fn record_output(command: &mut Command) -> RunOutput {
    let mut child = command.spawn().expect("the client");
    let mut out = child.stdout.take().expect("its output");
    let (mut all, mut read) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let bytes = out.read(&mut buffer).expect("its output");
        if bytes == 0 {
            break;
        }
        all.extend_from_slice(&buffer[..bytes]);
        read.push((all.len(), Instant::now()));
    }
    assert!(child.wait().expect("its end").success(), "{}", String::from_utf8_lossy(&all));
    let (mut ends, mut times) = (Vec::new(), Vec::new());
    let (mut at, mut length) = (0, 0);
    for line in all.split_inclusive(|byte| *byte == b'\n') {
        at += line.len();
        let event: Value = serde_json::from_slice(line).expect("JSON");
        if event["type"] == "assistant_token" {
            length += event["payload"]["text"].as_str().expect("a text").len();
            ends.push(length);
            times.push(read[read.partition_point(|(length, _)| *length < at)].1);
        }
    }
    RunOutput { ends, times, ended_at: read.last().expect("a line").1 }
}

/// The latency of each token, in milliseconds.
fn latencies(sent: &[Instant], there: &[Instant]) -> Vec<f64> {
    assert_eq!(sent.len(), there.len());
    there.iter().zip(sent).map(|(there, sent)| (*there - *sent).as_secs_f64() * 1e3).collect()
}
