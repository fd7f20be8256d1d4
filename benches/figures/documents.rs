//! Search over a million events, the size of its index, and the export of a session of a million events.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::daemon::{self, Home};
use super::events::RUN_COMPLETE;
use super::reading;
use super::table::{Table, median, percentile};

/// The number of events.
const EVENTS: usize = 1_000_000;
/// The words of one message, each an event of its answer.
const WORDS: usize = 1_000;
/// The sessions that are searched.
const SESSIONS: usize = 100;
const ROUNDS: usize = 21;
const MIB: f64 = 1024.0 * 1024.0;

/// Searches a million events in a hundred sessions.
pub(crate) fn search(table: &mut Table) {
    let home = Home::with_daemon();
    let mut text = Text::new();
    let mut bytes = 0;
    let mut events = 0;
    let sessions: Vec<String> = (0..SESSIONS).map(|_| home.session(&mut home.connect())).collect();
    for number in 0..EVENTS / WORDS {
        let message = text.message(number);
        // The message is a document, and so is its answer.
        bytes += 2 * message.len();
        events += run(&home, &sessions[number % SESSIONS], &message);
    }
    let begun = Instant::now();
    let mut client = home.connect();
    while client.request("search", json!({"text": "nothing has this word zzzz"}))["complete"] != true {
        thread::sleep(Duration::from_millis(50));
    }
    table.single("the last events, until they are indexed", "ms", begun.elapsed().as_secs_f64() * 1e3);
    let cases = [
        ("a word of one message", "needle777".to_owned()),
        ("a word of every message", text.words[0].clone()),
        ("two words, both frequent", format!("{} {}", text.words[1], text.words[2])),
        ("a phrase that nothing contains", format!("\"{} {} {}\"", text.words[5], text.words[5], text.words[5])),
        ("a word that nothing contains", "zzzzzz".to_owned()),
    ];
    for (name, query) in cases {
        let times = (0..ROUNDS).map(|_| {
            let begun = Instant::now();
            home.connect().request("search", json!({"text": query}));
            begun.elapsed().as_secs_f64() * 1e3
        });
        table.single(format!("{name}, of {events} events, median"), "ms", median(times.collect()));
    }
    let times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            home.push(&["search", "needle777"]).status().expect("a search");
            begun.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    table.single("push search, a word of one message, median", "ms", median(times.clone()));
    table.single("push search, a word of one message, maximum", "ms", percentile(times, 1.0));
    let state = home.dir.path().join(".push/state");
    let (index, log) = (size(&state.join("pushd.index")), size(&state.join("pushd.index-wal")));
    let text = ("the text of the messages and answers", bytes as f64 / MIB);
    table.compare("the index", "MiB", index / MIB, text);
    table.compare("the index with its log", "MiB", (index + log) / MIB, text);
}

/// Exports a session of a million events, and one of a hundredth of that.
pub(crate) fn export(table: &mut Table) {
    let home = Home::with_daemon();
    let mut text = Text::new();
    let [short, long] = [EVENTS / 100, EVENTS].map(|most| {
        let session = home.session(&mut home.connect());
        let mut events = 0;
        while events < most {
            events += run(&home, &session, &text.message(events));
        }
        (session, events)
    });
    for format in ["html", "md", "json", "jsonl"] {
        let [(_, short_peak), (time, peak)] = [&short, &long].map(|(session, _)| export_once(&home, session, format));
        let events = long.1;
        table.single(format!("{format} of {events} events"), "s", time);
        table.compare(
            format!("{format} of {events} events, memory of the client at its peak"),
            "MiB",
            peak,
            ("of a hundredth of the events", short_peak),
        );
    }
    table.single("memory of the daemon at its peak", "MiB", home.peak() / MIB);
}

/// Exports a session and returns the time in seconds and the peak memory in MiB.
fn export_once(home: &Home, session: &str, format: &str) -> (f64, f64) {
    let begun = Instant::now();
    let mut child = home.push(&["export", session, "--format", format, "-o", "document"]).spawn().expect("a client");
    let mut peak = 0.0_f64;
    loop {
        // The peak only grows, so that the last look before its end misses little.
        peak = peak.max(daemon::try_peak(child.id()).unwrap_or_default());
        if let Some(status) = child.try_wait().expect("its end") {
            assert!(status.success(), "{format}");
            break;
        }
        thread::sleep(Duration::from_millis(2));
    }
    (begun.elapsed().as_secs_f64(), peak / MIB)
}

/// Runs a message and returns the number of lines received.
fn run(home: &Home, session: &str, message: &str) -> usize {
    let mut client = home.connect();
    client.send("send_user_message", json!({"sessionId": session, "text": message}));
    reading::read_until(&mut client.stream, RUN_COMPLETE, None)
}

fn size(path: &Path) -> f64 {
    fs::metadata(path).map_or(0.0, |data| data.len() as f64)
}

/// Text of words that are as unequally frequent as those of a language (the n-th is about 1/n as frequent as the first).
struct Text {
    words: Vec<String>,
    /// The sums of the frequencies up to each word.
    sums: Vec<f64>,
    state: u64,
}

impl Text {
    const VOCABULARY: usize = 30_000;

    fn new() -> Self {
        let mut text = Self { words: Vec::new(), sums: Vec::new(), state: 1 };
        let mut sum = 0.0;
        for number in 0..Self::VOCABULARY {
            let length = 2 + (text.random() % 5) + u64::from(number > 100) * (text.random() % 5);
            let word: String = (0..length).map(|_| char::from(b'a' + (text.random() % 25) as u8)).collect();
            text.words.push(format!("{word}{}", if number < 1_000 { "" } else { "y" }));
            sum += 1.0 / (number + 1) as f64;
            text.sums.push(sum);
        }
        text
    }

    /// The next number of a linear congruential generator.
    const fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.state >> 33
    }

    /// A message with one word of its own and a step that does nothing.
    fn message(&mut self, number: usize) -> String {
        let mut message = format!("needle{number} ");
        for count in 1..WORDS {
            let total = self.sums[self.sums.len() - 1];
            let at = self.random() as f64 / (1_u64 << 31) as f64 * total;
            let word = self.sums.partition_point(|sum| *sum < at).min(Self::VOCABULARY - 1);
            message += &self.words[word];
            message.push(if count % 12 == 0 { '\n' } else { ' ' });
        }
        message + "\n\n$ true\n"
    }
}
