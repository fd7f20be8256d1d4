//! A crowd of clients of the Pi protocol, over real WebSockets to a real daemon that is killed in between: new commands,
//! repetitions by id and by key, conflicts, dependencies, lost connections and commands that run out of time, at random;
//! everything that was told and answered is compared with a small reference afterwards.
//!
//! `PUSH_LONG=1` is the long form with 10,000 commands, `PUSH_PI_CROWD` another number of them, `PUSH_PI_CROWD_SEED` the
//! seed. A seed makes the same commands again, not the same order.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;
mod client;
mod command;
mod crowd;
mod deeds;
mod generator;
mod hearing;
mod model;
mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::daemon::{Daemon, TIMEOUT, wait_until};
use crate::support::websocket::{self, FrameSender};
use client::Client;
use command::{Asks, Command, Envelope};
use crowd::{Crowd, Fate, Life, Sent, Standing, lock};
use generator::{Generator, ask, sessions};
use hearing::{Heard, LAST, listen};
use model::{Known, Model};
use serde_json::{Value, json};
use tempfile::TempDir;
use trace::{Outcome, Step, Told};

const CLIENTS: usize = 50;
/// How long a command may take that may take only so long.
pub(crate) const COMMAND_MILLIS: u64 = 2_500;
/// How long a command waits for what it depends on.
pub(crate) const DEPENDENCY_MILLIS: u64 = 400;
/// How much the daemon may grow while it serves commands, in bytes: much more is remembered of none of them.
const GROWTH: u64 = 48 * 1024 * 1024;

#[test]
fn a_crowd_finds_nothing_done_twice_no_outcome_changed_and_nobody_stuck() {
    let long = std::env::var("PUSH_LONG").is_ok_and(|value| value == "1");
    let commands = number("PUSH_PI_CROWD").unwrap_or(if long { 10_000 } else { 2_000 });
    let seed = number("PUSH_PI_CROWD_SEED")
        .unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| u64::from(now.subsec_nanos())));
    println!("PUSH_PI_CROWD_SEED={seed} PUSH_PI_CROWD={commands}");
    let mut stage = Stage::new(seed, commands as usize);
    let begun = Instant::now();
    stage.play();
    println!("{commands} commands and their repetitions took {:.1} s", begun.elapsed().as_secs_f64());
    stage.judge();
}

#[test]
fn a_change_whose_beginning_nobody_heard_of_may_have_been_made() {
    let rename = Command { id: Some("c1-1".into()), key: None, asks: renaming("first") };
    let later = Command { id: Some("c1-2".into()), key: None, asks: renaming("second") };
    let cut = BTreeSet::from([rename.envelope()]);
    let mut model = Model::new(asks([&setup(), &rename, &later].into_iter()), cut);
    let mut first_life = whole(&setup(), None);
    first_life.push(told(&rename, Step::Accepted));
    model.walk(&first_life);
    model.restart();
    // The daemon had made the change before it was killed, so that the next change makes version 2.
    model.walk(&whole(&later, Some(2)));
    model.is_at_rest();
    deeds::judge(&model, &[]);
}

#[test]
fn changes_without_a_name_are_counted_even_if_others_like_them_were_heard_of() {
    let abort = Command { id: None, key: None, asks: ask("abort", Some("quick-0".into()), "") };
    let later = Command { id: Some("c1-2".into()), key: None, asks: renaming("second") };
    let mut model = Model::new(asks([&setup(), &abort, &later].into_iter()), BTreeSet::from([abort.envelope()]));
    let mut first_life = whole(&setup(), None);
    first_life.extend(whole(&abort, Some(1)));
    model.walk(&first_life);
    model.restart();
    model.walk(&whole(&later, Some(3)));
    let sent = |fate| Sent { life: 0, command: abort.clone(), fate };
    let sent = [sent(Fate::Answered), sent(Fate::Lost)];
    deeds::judge(&model, &unheard_without_name(&model, &sent, 2));
}

fn setup() -> Command {
    Command { id: Some("setup".into()), key: None, asks: ask("create_session", Some("quick-0".into()), "") }
}

fn renaming(name: &str) -> Asks {
    ask("set_session_name", Some("quick-0".into()), &format!("\"name\":\"{name}\""))
}

/// Everything that is heard of a command that succeeds.
fn whole(command: &Command, version: Option<u64>) -> Vec<Told> {
    let finished = Step::Finished { outcome: Outcome { error: None, version }, replayed: false };
    [Step::Accepted, Step::Started, finished].into_iter().map(|step| told(command, step)).collect()
}

fn told(command: &Command, step: Step) -> Told {
    let name = command.id.clone().unwrap_or_else(|| "anon:1".to_owned());
    Told { name, envelope: command.envelope(), step }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The daemon, its clients, and who watches them.
struct Stage {
    daemon: Daemon,
    crowd: Arc<Crowd>,
    commands: usize,
    /// What each client heard in each life.
    clients: Vec<JoinHandle<Vec<Heard>>>,
    watched: Vec<Heard>,
    /// How much memory the daemon had, in bytes, with how much was sent by then.
    memory: Vec<(usize, u64)>,
}

/// The connection that sees everything and asks for little.
struct Watcher {
    life: usize,
    mouth: FrameSender,
    answers: Receiver<String>,
    listening: JoinHandle<Heard>,
}

impl Stage {
    fn new(seed: u64, commands: usize) -> Self {
        let home = TempDir::new().expect("a directory");
        let (command, dependency) = (seconds(COMMAND_MILLIS), seconds(DEPENDENCY_MILLIS));
        let variables = [
            ("PUSH_PI_COMMANDS", "1000000"),
            ("PUSH_PI_SESSION_COMMANDS", "1000000"),
            ("PUSH_PI_SESSIONS", "1000"),
            ("PUSH_PI_COMMAND_SECONDS", command.as_str()),
            ("PUSH_PI_DEPENDENCY_SECONDS", dependency.as_str()),
        ];
        let daemon = Daemon::start_in(home, &variables, &["--pi=127.0.0.1:0"]);
        let crowd = Arc::new(Crowd::new(CLIENTS, 2, sessions()));
        let counted = daemon.home.path().join("counted");
        let mut stage = Self { daemon, crowd, commands, clients: Vec::new(), watched: Vec::new(), memory: Vec::new() };
        let life = stage.life(0);
        stage.crowd.begin(life);
        for client in 0..CLIENTS {
            let (crowd, counted) = (Arc::clone(&stage.crowd), counted.clone());
            stage.clients.push(thread::spawn(move || {
                let generator = Generator::new(seed, client, counted);
                Client::new(crowd, generator, commands / CLIENTS).live()
            }));
        }
        stage
    }

    fn life(&self, number: usize) -> Life {
        let at = self.daemon.connect().get("get_metrics", json!({}))["pi"].clone();
        Life { number, at: at.as_str().expect("an address").parse().expect("an address") }
    }

    fn play(&mut self) {
        let mut watcher = self.watch(0);
        self.crowd.ready.wait();
        for session in sessions() {
            let cwd = Value::from(self.daemon.cwd().to_string_lossy().into_owned());
            let asks = ask("create_session", Some(session.clone()), &format!("\"cwd\":{cwd}"));
            watcher.ask(&self.crowd, &format!("setup-{session}"), asks);
        }
        self.note_memory();
        self.crowd.ready.wait();
        for part in 1..4 {
            self.wait_for(self.commands * part / 8);
            self.note_memory();
        }
        self.wait_for(self.commands / 2);
        self.daemon.kill();
        self.watched.push(watcher.listening.join().expect("a listener"));
        self.daemon.restart();
        let life = self.life(1);
        self.crowd.begin(life);
        let mut watcher = self.watch(1);
        self.crowd.ready.wait();
        // A run that was cut asks its user what is to become of it.
        for session in talks() {
            watcher.ask(&self.crowd, &format!("stop-{session}"), ask("abort", Some(session), ""));
        }
        self.runs_are_over(&mut watcher, "cut");
        self.note_memory();
        self.crowd.ready.wait();
        for part in 5..8 {
            self.wait_for(self.commands * part / 8);
            self.note_memory();
        }
        self.rest(&mut watcher);
        self.note_memory();
        watcher.say(&self.crowd, LAST, ask("health_check", None, ""));
        self.watched.push(watcher.listening.join().expect("a listener"));
    }

    /// Waits until so many commands have been sent.
    fn wait_for(&self, sent: usize) {
        self.as_long_as_it_goes_on(|| self.crowd.sent() >= sent);
    }

    /// Waits until nobody asks for anything, and nothing runs.
    fn rest(&self, watcher: &mut Watcher) {
        self.as_long_as_it_goes_on(|| self.crowd.done.load(Ordering::Acquire) == CLIENTS);
        self.runs_are_over(watcher, "rest");
    }

    fn answered(&self) -> usize {
        lock(&self.crowd.book).sent.len()
    }

    /// Waits for something as long as commands are answered on the way.
    fn as_long_as_it_goes_on(&self, mut holds: impl FnMut() -> bool) {
        let (mut before, mut since) = (self.answered(), Instant::now());
        while !holds() {
            assert!(since.elapsed() < TIMEOUT, "nobody is answered any more");
            thread::sleep(Duration::from_millis(2));
            let now = self.answered();
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
    }

    fn runs_are_over(&self, watcher: &mut Watcher, when: &str) {
        for session in talks() {
            let mut asked = 0;
            wait_until("the runs are over", || {
                asked += 1;
                let asks = ask("get_state", Some(session.clone()), "");
                let state = watcher.ask(&self.crowd, &format!("{when}-{session}-{asked}"), asks);
                state["data"]["isStreaming"] == false
            });
        }
    }

    fn note_memory(&mut self) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.daemon.pid())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        self.memory.extend(kib.map(|kib| (self.crowd.sent(), kib * 1024)));
    }

    fn watch(&self, life: usize) -> Watcher {
        let (mut mouth, ear) = websocket::open(self.crowd.life(life).at).expect("a connection");
        let (answers, listening) = listen(ear, true);
        mouth.send_text("{\"type\":\"bogus\"}").expect("the daemon reads");
        answers.recv_timeout(TIMEOUT).expect("an answer");
        Watcher { life, mouth, answers, listening }
    }

    fn judge(mut self) {
        let heard: Vec<Vec<Heard>> = self.clients.drain(..).map(|client| client.join().expect("a client")).collect();
        let lives = self.crowd.lives;
        let mut of_life: Vec<Vec<Heard>> = (0..lives).map(|_| Vec::new()).collect();
        for heard in heard {
            heard.into_iter().zip(&mut of_life).for_each(|(heard, life)| life.push(heard));
        }
        let book = lock(&self.crowd.book);
        let cut = book.sent.iter().filter(|sent| sent.life + 1 < lives && sent.fate == Fate::Lost);
        let cut: BTreeSet<&Command> = cut.map(|sent| &sent.command).collect();
        let envelopes = cut.iter().map(|command| command.envelope()).collect();
        let mut model = Model::new(asks(book.sent.iter().map(|sent| &sent.command)), envelopes);
        for (number, (watched, others)) in self.watched.iter().zip(&of_life).enumerate() {
            if number > 0 {
                model.restart();
            }
            model.walk(&trace::of_all(watched, others));
        }
        model.is_at_rest();
        // What nobody heard of may have been done all the same.
        let unheard = |command: &&&Command| command.is_named() && !model.is_heard_of(&command.envelope());
        let mut unheard: Vec<&Asks> = cut.iter().filter(unheard).map(|command| &command.asks).collect();
        unheard.extend(unheard_without_name(&model, &book.sent, lives));
        self.journaled_versions_rise_by_one();
        let deeds = deeds::judge(&model, &unheard);
        answers::judge(&model, &book);
        all_are_admitted(&model, &book.sent);
        let lost = book.sent.iter().filter(|sent| sent.fate == Fate::Lost).count();
        let replays = model.ended.iter().filter(|ended| ended.replayed).count();
        let conflicts = model.ended.iter().filter(|ended| ended.leader.is_none()).count();
        println!("sent {}, lost {lost}, replayed {replays}, conflicts {conflicts}, {deeds:?}", book.sent.len());
        println!("memory: {:?}", self.memory.iter().map(|(sent, bytes)| (sent, bytes / 1024)).collect::<Vec<_>>());
        assert!(deeds.other_timeouts * 20 < deeds.executed, "the daemon is too slow: {deeds:?}");
        nothing_is_done_twice(&model, &unheard, &self.daemon.home.path().join("counted"));
        self.memory_is_bounded();
    }

    /// The journal has every version of a session once: what the clients did not hear of is nothing else than unheard.
    fn journaled_versions_rise_by_one(&self) {
        let mut reader = self.daemon.connect();
        for session in sessions() {
            let newest = reader.attach(&session, 0)["replay"]["toSeq"].as_u64().expect("a position");
            let mut versions = Vec::new();
            let mut seen = 0;
            while seen < newest {
                let event = reader.event();
                if event["sessionId"] == session.as_str() {
                    seen = seen.max(event["seq"].as_u64().expect("a number"));
                    versions.extend(event["sessionVersion"].as_u64());
                }
            }
            let gap = versions.windows(2).find(|pair| pair[1] != pair[0] + 1);
            assert_eq!(gap, None, "{session}: {versions:?}");
            assert!(versions.first().is_none_or(|first| *first <= 1), "{session}: {versions:?}");
        }
    }

    /// While the same is remembered of ever more commands, the daemon does not grow.
    fn memory_is_bounded(&self) {
        let least = self.memory.iter().map(|(_, bytes)| *bytes).min().unwrap_or(0);
        let most = self.memory.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        assert!(most - least < GROWTH, "grown by {} KiB: {:?}", (most - least) / 1024, self.memory);
    }
}

impl Watcher {
    /// Asks for something that must be granted, and returns the answer.
    fn ask(&mut self, crowd: &Crowd, id: &str, asks: Asks) -> Value {
        let command = self.command(crowd, id, asks);
        let line = self.answers.recv_timeout(TIMEOUT).expect("an answer");
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(answer["success"], true, "{answer}");
        crowd.over(self.life, command, Some(line));
        answer
    }

    /// Asks for something, and listens to no answer.
    fn say(&mut self, crowd: &Crowd, id: &str, asks: Asks) {
        let command = self.command(crowd, id, asks);
        crowd.over(self.life, command, None);
    }

    fn command(&mut self, crowd: &Crowd, id: &str, asks: Asks) -> Command {
        let command = Command { id: Some(format!("{id}-{}", self.life)), key: None, asks };
        crowd.sending(&command, Standing::New);
        self.mouth.send_text(&command.line()).expect("the daemon reads");
        command
    }
}

fn talks() -> impl Iterator<Item = String> {
    sessions().into_iter().filter(|session| session.starts_with("talk"))
}

fn seconds(millis: u64) -> String {
    format!("{}", millis as f64 / 1_000.0)
}

/// What is asked under which envelope; nobody may have asked two things under one.
fn asks<'a>(commands: impl Iterator<Item = &'a Command>) -> BTreeMap<Envelope, Asks> {
    let mut all: BTreeMap<Envelope, Asks> = BTreeMap::new();
    for command in commands {
        let before = all.entry(command.envelope()).or_insert_with(|| command.asks.clone());
        assert_eq!(*before, command.asks, "the test sends what it cannot tell apart");
    }
    all
}

/// What was sent was admitted once for each time that it was sent, and nothing else was.
fn all_are_admitted(model: &Model, sent: &[Sent]) {
    let mut counts: BTreeMap<(usize, Envelope), (usize, usize)> = BTreeMap::new();
    for sent in sent {
        let (least, most) = counts.entry((sent.life, sent.command.envelope())).or_default();
        *most += 1;
        *least += usize::from(sent.fate == Fate::Answered);
    }
    for (what, (least, most)) in counts {
        let admitted = model.admitted.get(&what).copied().unwrap_or(0);
        assert!((least..=most).contains(&admitted), "{what:?}: {admitted} times, and not {least} to {most}");
    }
}

/// What was sent without a name to a daemon that was killed, as often as nobody heard that it was admitted.
///
/// Two such commands cannot be told apart, so that they are counted.
fn unheard_without_name<'a>(model: &Model, sent: &'a [Sent], lives: usize) -> Vec<&'a Asks> {
    let mut counts: BTreeMap<(usize, &Command), usize> = BTreeMap::new();
    for sent in sent.iter().filter(|sent| sent.life + 1 < lives && !sent.command.is_named()) {
        *counts.entry((sent.life, &sent.command)).or_default() += 1;
    }
    let unheard = counts.into_iter().flat_map(|((life, command), count)| {
        let heard = model.admitted.get(&(life, command.envelope())).copied().unwrap_or(0);
        std::iter::repeat_n(&command.asks, count.saturating_sub(heard))
    });
    unheard.collect()
}

/// Everything that was executed left at most one trace, and what succeeded left one.
fn nothing_is_done_twice(model: &Model, unheard: &[&Asks], counted: &Path) {
    let mut traces: BTreeMap<String, usize> = BTreeMap::new();
    for line in fs::read_to_string(PathBuf::from(counted)).expect("a file").lines() {
        *traces.entry(line.to_owned()).or_default() += 1;
    }
    let mut executions: BTreeMap<&str, Vec<&Known>> = BTreeMap::new();
    for known in model.known.iter().filter(|known| known.started.is_some()) {
        if let Some(name) = counts(&known.asks) {
            executions.entry(name).or_default().push(known);
        }
    }
    assert!(!executions.is_empty(), "nothing was counted");
    // What ran when the daemon was killed was cut.
    let certain = |known: &&&Known| {
        let done = known.outcome.as_ref().is_some_and(Outcome::is_success);
        done && known.finished.is_some() && (known.asks.kind == "bash" || known.life > 0)
    };
    for (name, known) in &executions {
        let left = traces.remove(*name).unwrap_or(0);
        // The reference has seen to it that a second execution is one of something that was long forgotten.
        assert!(left <= known.len(), "{name} was done {left} times: {known:?}");
        assert!(left >= known.iter().filter(certain).count(), "{name} was not done: {known:?}");
    }
    for name in unheard.iter().filter_map(|asks| counts(asks)) {
        assert!(traces.remove(name).unwrap_or(0) <= 1, "{name} was done twice");
    }
    assert!(traces.is_empty(), "done and never begun: {traces:?}");
}

/// The name under which a step counts itself.
fn counts(asks: &Asks) -> Option<&str> {
    asks.rest.split_once("echo ")?.1.split(' ').next()
}
