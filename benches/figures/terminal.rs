//! The inline view in a pseudo-terminal: start, attach to a long session, keys during a fast answer, and an idle client.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::daemon::{self, Home};
use super::model::ServerDialect;
use super::pty::Pty;
use super::replay::run_prose;
use super::table::{Table, median, percentile};
use super::token_server::{Pace, TokenServer};

const STARTS: usize = 25;
const EVENTS: usize = 1_000_000;
const SIZE: (u16, u16) = (120, 40);
/// The last text of the first frame: the status row.
const FRAME_END: &str = "? keys";
/// The rate of the answer, and its length.
const RATE: u32 = 5_000;
const TOKENS: usize = 50_000;
/// The time between two keys, about as of a fast typist.
const KEY_PAUSE: Duration = Duration::from_millis(40);
/// How many keys are measured without an answer.
const IDLE_KEYS: usize = 200;
/// How long an idle client is watched.
const WATCHED: Duration = Duration::from_secs(5);
const MIB: f64 = 1024.0 * 1024.0;

/// Measures the inline view.
pub(crate) fn measure(table: &mut Table) {
    start(table);
    attach(table);
    stream(table);
    idle(table);
}

/// The time to the first frame of `push chat` with a running daemon.
fn start(table: &mut Table) {
    let home = Home::with_daemon();
    let bare = ("push --version", median((0..STARTS).map(|_| time_of(&home, &["--version"], "push")).collect()));
    let frame = median((0..STARTS).map(|_| time_of(&home, &["chat"], FRAME_END)).collect());
    table.compare("push chat, to the first frame", "ms", frame, bare);
}

/// Runs the client in a terminal and returns the time until it has written a text, in milliseconds.
fn time_of(home: &Home, arguments: &[&str], text: &str) -> f64 {
    let begun = Instant::now();
    let mut client = Pty::start(at_terminal(home, arguments), SIZE);
    (client.wait_for(text) - begun).as_secs_f64() * 1e3
}

/// The time to attach to a long session, and the memory of the client.
fn attach(table: &mut Table) {
    let home = Home::with_daemon();
    let short = home.session(&mut home.connect());
    run_prose(&home, &short, 90);
    let long = home.session(&mut home.connect());
    let mut events = 0;
    while events < EVENTS {
        events += run_prose(&home, &long, 200_000);
    }
    let [(short, short_memory), (long, memory)] = [short, long].map(|session| {
        let rounds = (0..STARTS).map(|_| {
            let begun = Instant::now();
            let mut client = Pty::start(at_terminal(&home, &["attach", &session]), SIZE);
            client.wait_for("success: 1 step done");
            let drawn = client.wait_for(FRAME_END);
            ((drawn - begun).as_secs_f64() * 1e3, daemon::peak(client.pid()) / MIB)
        });
        let (times, peaks) = rounds.unzip();
        (median(times), median(peaks))
    });
    let name = format!("push attach to {events} events, to its last screen");
    table.compare(name, "ms", long, ("to a hundred events", short));
    let name = format!("push attach to {events} events, memory at its peak");
    table.compare(name, "MiB", memory, ("of a hundred events", short_memory));
}

/// The time from a key to the screen while a fast answer is drawn.
fn stream(table: &mut Table) {
    let home = Home::with_daemon();
    // Lines of twelve words, paragraphs of five lines.
    let token = |number: usize| match number % 60 {
        59 => format!("w{number}\n\n"),
        of if of % 12 == 11 => format!("w{number}\n"),
        _ => format!("w{number} "),
    };
    let server = TokenServer::speak(ServerDialect::Ollama, (0..TOKENS).map(token), ":\"w", Pace::Rate(RATE));
    let mut command = at_terminal(&home, &["chat", "--provider", "ollama", "--model", "m"]);
    command.env("OLLAMA_HOST", server.base_url(ServerDialect::Ollama));
    let mut client = Pty::start(command, SIZE);
    client.wait_for(FRAME_END);
    let mut keys = Keys::default();
    let alone = (0..IDLE_KEYS).map(|_| keys.press(&mut client)).collect();
    keys.clear(&mut client);
    client.type_text("Write.\r");
    client.wait_for("w99");
    let before = daemon::processor(client.pid());
    let begun = Instant::now();
    // The end of the answer is not part of it: its last paragraph is drawn at any rate.
    let until = begun + Duration::from_secs(1) * u32::try_from(TOKENS).expect("a number") / RATE * 9 / 10;
    let mut during = Vec::new();
    while Instant::now() < until {
        during.push(keys.press(&mut client));
    }
    let share = (daemon::processor(client.pid()) - before) / begun.elapsed().as_secs_f64();
    client.wait_for(&format!("w{}", TOKENS - 1));
    let drawn = Instant::now();
    let sent = server.sent_times();
    let behind = drawn.duration_since(*sent.last().expect("a token")).as_secs_f64() * 1e3;
    let rate = TOKENS as f64 / (*sent.last().expect("a token") - sent[0]).as_secs_f64();
    let (key, p99) = (median(during.clone()), percentile(during, 0.99));
    let alone: (f64, f64) = (median(Vec::clone(&alone)), percentile(alone, 0.99));
    table.single("answer that is drawn", "tokens/s", rate);
    table.single("its last token, from the server to the screen", "ms", behind);
    table.single("processor time of the client during the answer", "%", share * 100.0);
    table.compare("key to screen during the answer, median", "ms", key, ("without an answer", alone.0));
    table.compare("key to screen during the answer, p99", "ms", p99, ("without an answer", alone.1));
}

/// Keys that are typed into the composer.
#[derive(Default)]
struct Keys {
    typed: usize,
}

impl Keys {
    /// How many letters the composer holds before it is cleared.
    const LONGEST: usize = 60;

    /// Presses a key, and returns the time until the composer shows it, in milliseconds.
    fn press(&mut self, client: &mut Pty) -> f64 {
        if self.typed == Self::LONGEST {
            self.clear(client);
        }
        // Not in step with the drawings.
        client.skip_until(Instant::now() + KEY_PAUSE + Duration::from_micros(self.typed as u64 * 617 % 16_000));
        self.typed += 1;
        let begun = Instant::now();
        client.type_text("x");
        // The prompt is bold, the text is not.
        let shown = client.wait_for(&format!("› \x1b[0m{}", "x".repeat(self.typed)));
        (shown - begun).as_secs_f64() * 1e3
    }

    /// Removes the text.
    fn clear(&mut self, client: &mut Pty) {
        client.type_text("\x15");
        client.wait_for("message");
        self.typed = 0;
    }
}

/// The wake-ups and the processor time of a client that waits.
fn idle(table: &mut Table) {
    let home = Home::with_daemon();
    let session = home.session(&mut home.connect());
    run_prose(&home, &session, 90);
    let mut client = Pty::start(at_terminal(&home, &["attach", &session]), SIZE);
    client.wait_for(FRAME_END);
    // A blocking thread of the pool exits after ten idle seconds.
    client.skip_until(Instant::now() + Duration::from_secs(12));
    let pid = client.pid();
    let before = (daemon::wake_ups(pid), daemon::processor(pid));
    thread::sleep(WATCHED);
    let (wake_ups, time) = (daemon::wake_ups(pid) - before.0, daemon::processor(pid) - before.1);
    table.single(format!("wake-ups of an idle client, in {} s", WATCHED.as_secs()), "", wake_ups);
    table.single(format!("processor time of an idle client, in {} s", WATCHED.as_secs()), "µs", time * 1e6);
}

/// Returns the client with these arguments, for a terminal.
pub(crate) fn at_terminal(home: &Home, arguments: &[&str]) -> Command {
    let mut command = home.push(arguments);
    command.env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
    command
}
