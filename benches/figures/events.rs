//! Throughput of live events to subscribers.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::daemon::Home;
use super::pump::pump;
use super::reading;
use super::replay;
use super::table::{Table, median};

/// The marker of the last event of a run.
pub(crate) const RUN_COMPLETE: &[u8] = b"\"type\":\"run_complete\"";
/// How often each measurement is taken.
const ROUNDS: usize = 3;

/// Measures live events: assistant tokens, and the output of a step.
pub(crate) fn measure(table: &mut Table) {
    for (listeners, words, output) in [(1, 200_000, 64_000_000), (50, 40_000, 8_000_000)] {
        let each = if listeners == 1 { "one client".into() } else { format!("{listeners} clients in all") };
        let deltas = measure_live(&prose(words), listeners);
        table.compare(
            format!("text deltas, to {each}"),
            "events/s",
            deltas.rate(),
            ("the same lines through bare sockets", deltas.raw_rate()),
        );
        let cost = format!("text deltas, to {each}: processor time an event");
        table.single(cost, "µs", deltas.cost);
        let step = format!("$ yes 'a line of output, neither short nor long' | head -c {output}\n");
        let printed = measure_live(&step, listeners);
        table.compare(
            format!("output of a step, to {each}"),
            "MB/s",
            printed.megabytes(),
            ("the same lines through bare sockets", printed.raw_megabytes()),
        );
    }
}

/// The measurements of a run, and of the same lines over bare sockets.
struct LiveResult {
    lines: usize,
    bytes: usize,
    listeners: usize,
    took: Duration,
    raw: Duration,
    /// The CPU time of the daemon per line, in microseconds.
    cost: f64,
}

impl LiveResult {
    fn rate(&self) -> f64 {
        (self.lines * self.listeners) as f64 / self.took.as_secs_f64()
    }

    fn raw_rate(&self) -> f64 {
        (self.lines * self.listeners) as f64 / self.raw.as_secs_f64()
    }

    fn megabytes(&self) -> f64 {
        (self.bytes * self.listeners) as f64 / 1e6 / self.took.as_secs_f64()
    }

    fn raw_megabytes(&self) -> f64 {
        (self.bytes * self.listeners) as f64 / 1e6 / self.raw.as_secs_f64()
    }
}

/// The number of lines per subscriber, and the duration.
pub(crate) struct RunStats {
    pub(crate) lines: usize,
    pub(crate) took: Duration,
}

fn measure_live(message: &str, listeners: usize) -> LiveResult {
    let home = Home::with_daemon();
    let mut took = Vec::new();
    let mut kept = Vec::new();
    let mut lines = 0;
    let mut costs = Vec::new();
    for _ in 0..ROUNDS {
        let session = home.session(&mut home.connect());
        let before = home.processor();
        let ran = run(&home, &session, message, listeners);
        costs.push((home.processor() - before) * 1e6 / ran.lines as f64);
        lines = ran.lines;
        took.push(ran.took.as_secs_f64());
        kept.clear();
        replay::replay_once(&home, &session, Some(&mut kept));
    }
    let raw = median((0..ROUNDS).map(|_| pump(&kept, listeners).as_secs_f64()).collect());
    let (took, raw) = (Duration::from_secs_f64(median(took)), Duration::from_secs_f64(raw));
    LiveResult { lines, bytes: kept.len(), listeners, took, raw, cost: median(costs) }
}

/// Runs a message with subscribers and returns how long it took until all of them had received everything.
pub(crate) fn run(home: &Home, session: &str, message: &str, listeners: usize) -> RunStats {
    let mut clients: Vec<_> = (0..listeners).map(|_| home.connect()).collect();
    for client in &mut clients {
        client.request("attach_session", json!({"sessionId": session}));
    }
    let reading: Vec<_> = clients
        .into_iter()
        .map(|mut client| thread::spawn(move || reading::read_until(&mut client.stream, RUN_COMPLETE, None)))
        .collect();
    let mut driver = home.connect();
    let begun = Instant::now();
    // The sender of a message is subscribed too; it detaches, so that only counted subscribers remain.
    driver.send("send_user_message", json!({"sessionId": session, "text": message}));
    driver.send("detach_session", json!({"sessionId": session}));
    let counts: Vec<_> = reading.into_iter().map(|thread| thread.join().expect("a listener")).collect();
    let took = begun.elapsed();
    assert!(counts.iter().all(|count| count.abs_diff(counts[0]) <= 1), "somebody missed something: {counts:?}");
    RunStats { lines: counts[0], took }
}

/// Returns a message of so many words and one step.
pub(crate) fn prose(words: usize) -> String {
    let words =
        ["some ", "words ", "that ", "are ", "said, ", "one ", "after ", "another\n"].iter().cycle().take(words);
    words.copied().collect::<String>() + "\n\n$ true\n"
}
