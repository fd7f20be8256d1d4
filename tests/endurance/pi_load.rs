//! Many concurrent clients of the Pi protocol, over real WebSockets to a real daemon that is killed in between: new
//! commands, repetitions by id and by key, conflicts, dependencies, lost connections and timeouts, at random. All
//! lifecycle events and responses are then compared with a small reference model.
//!
//! `PUSH_LONG=1` is the long form with 10,000 commands, `PUSH_PI_CROWD` sets their number, `PUSH_PI_CROWD_SEED` the
//! seed. A seed reproduces the commands, not their order.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;
mod client;
mod command;
mod generator;
mod model;
mod outcomes;
mod received_lines;
mod shared_state;
mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::support::daemon::{Daemon, TIMEOUT, wait_until};
use crate::support::websocket::{self, FrameSender};
use client::Client;
use command::{Command, Envelope, Request};
use generator::{Generator, new_request, sessions};
use model::{Model, TrackedCommand};
use received_lines::{LAST, ReceivedLines, read_lines};
use serde_json::{Value, json};
use shared_state::{DaemonInstance, Delivery, Reuse, SentCommand, SharedState, lock};
use tempfile::TempDir;
use trace::{LifecycleEvent, Outcome, Phase};

const CLIENTS: usize = 50;
/// The time limit of a command that has one.
pub(crate) const COMMAND_MILLIS: u64 = 2_500;
/// How long a command waits for its dependencies.
pub(crate) const DEPENDENCY_MILLIS: u64 = 400;
/// How much memory the daemon may gain while it serves commands, in bytes.
const GROWTH: u64 = 48 * 1024 * 1024;

#[test]
fn concurrent_clients_find_nothing_done_twice_no_outcome_changed_and_no_command_stuck() {
    let long = std::env::var("PUSH_LONG").is_ok_and(|value| value == "1");
    let commands = number("PUSH_PI_CROWD").unwrap_or(if long { 10_000 } else { 2_000 });
    let seed = number("PUSH_PI_CROWD_SEED").unwrap_or(1);
    println!("PUSH_PI_CROWD_SEED={seed} PUSH_PI_CROWD={commands}");
    let mut test = LoadTest::new(seed, commands as usize);
    let started = Instant::now();
    test.run();
    println!("{commands} commands and their repetitions took {:.1} s", started.elapsed().as_secs_f64());
    test.check();
}

#[test]
fn a_change_whose_start_was_not_observed_may_have_been_made() {
    let rename = Command { id: Some("c1-1".into()), key: None, request: renaming("first") };
    let later = Command { id: Some("c1-2".into()), key: None, request: renaming("second") };
    let interrupted = BTreeSet::from([rename.envelope()]);
    let mut model = Model::new(requests_by_envelope([&setup(), &rename, &later].into_iter()), interrupted);
    let mut first_instance = complete_lifecycle(&setup(), None);
    first_instance.push(lifecycle_event(&rename, Phase::Accepted));
    model.process(&first_instance);
    model.restart();
    // The daemon had made the change before it was killed, so that the next change makes version 2.
    model.process(&complete_lifecycle(&later, Some(2)));
    model.assert_idle();
    outcomes::check(&model, &[]);
}

#[test]
fn changes_without_identity_are_counted_even_if_similar_ones_were_observed() {
    let abort = Command { id: None, key: None, request: new_request("abort", Some("quick-0".into()), "") };
    let later = Command { id: Some("c1-2".into()), key: None, request: renaming("second") };
    let mut model =
        Model::new(requests_by_envelope([&setup(), &abort, &later].into_iter()), BTreeSet::from([abort.envelope()]));
    let mut first_instance = complete_lifecycle(&setup(), None);
    first_instance.extend(complete_lifecycle(&abort, Some(1)));
    model.process(&first_instance);
    model.restart();
    model.process(&complete_lifecycle(&later, Some(3)));
    let sent = |delivery| SentCommand { instance: 0, command: abort.clone(), delivery };
    let sent = [sent(Delivery::Answered), sent(Delivery::Lost)];
    outcomes::check(&model, &unobserved_without_identity(&model, &sent, 2));
}

fn setup() -> Command {
    Command { id: Some("setup".into()), key: None, request: new_request("create_session", Some("quick-0".into()), "") }
}

fn renaming(name: &str) -> Request {
    new_request("set_session_name", Some("quick-0".into()), &format!("\"name\":\"{name}\""))
}

/// All lifecycle events of a command that succeeds.
fn complete_lifecycle(command: &Command, version: Option<u64>) -> Vec<LifecycleEvent> {
    let finished = Phase::Finished { outcome: Outcome { error: None, version }, replayed: false };
    [Phase::Accepted, Phase::Started, finished].into_iter().map(|phase| lifecycle_event(command, phase)).collect()
}

fn lifecycle_event(command: &Command, phase: Phase) -> LifecycleEvent {
    let name = command.id.clone().unwrap_or_else(|| "anon:1".to_owned());
    LifecycleEvent { name, envelope: command.envelope(), phase }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The daemon, its clients and the observer.
struct LoadTest {
    daemon: Daemon,
    shared: Arc<SharedState>,
    commands: usize,
    /// The lines that each client received from each instance of the daemon.
    clients: Vec<JoinHandle<Vec<ReceivedLines>>>,
    observed: Vec<ReceivedLines>,
    /// Samples: the number of commands sent so far, and the memory of the daemon in bytes.
    memory: Vec<(usize, u64)>,
}

/// A connection that keeps all lines and sends few commands.
struct Observer {
    instance: usize,
    sender: FrameSender,
    answers: Receiver<String>,
    reader: JoinHandle<ReceivedLines>,
}

impl LoadTest {
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
        let shared = Arc::new(SharedState::new(CLIENTS, 2, sessions()));
        let counter_file = daemon.home.path().join("counted");
        let mut test = Self { daemon, shared, commands, clients: Vec::new(), observed: Vec::new(), memory: Vec::new() };
        let instance = test.instance(0);
        test.shared.announce(instance);
        for client in 0..CLIENTS {
            let (shared, counter_file) = (Arc::clone(&test.shared), counter_file.clone());
            test.clients.push(thread::spawn(move || {
                let generator = Generator::new(seed, client, counter_file);
                Client::new(shared, generator, commands / CLIENTS).run()
            }));
        }
        test
    }

    fn instance(&self, number: usize) -> DaemonInstance {
        let address = self.daemon.connect().get("get_metrics", json!({}))["pi"].clone();
        DaemonInstance { number, address: address.as_str().expect("an address").parse().expect("an address") }
    }

    fn run(&mut self) {
        let mut observer = self.observe(0);
        self.shared.ready.wait();
        for session in sessions() {
            let cwd = Value::from(self.daemon.cwd().to_string_lossy().into_owned());
            let request = new_request("create_session", Some(session.clone()), &format!("\"cwd\":{cwd}"));
            observer.execute(&self.shared, &format!("setup-{session}"), request);
        }
        self.sample_memory();
        self.shared.ready.wait();
        for part in 1..4 {
            self.wait_for(self.commands * part / 8);
            self.sample_memory();
        }
        self.wait_for(self.commands / 2);
        self.daemon.kill();
        self.observed.push(observer.reader.join().expect("a reader"));
        self.daemon.restart();
        let instance = self.instance(1);
        self.shared.announce(instance);
        let mut observer = self.observe(1);
        self.shared.ready.wait();
        // An interrupted run waits for a decision.
        for session in talk_sessions() {
            observer.execute(&self.shared, &format!("stop-{session}"), new_request("abort", Some(session), ""));
        }
        self.wait_for_runs(&mut observer, "cut");
        self.sample_memory();
        self.shared.ready.wait();
        for part in 5..8 {
            self.wait_for(self.commands * part / 8);
            self.sample_memory();
        }
        self.wait_until_idle(&mut observer);
        self.sample_memory();
        observer.transmit(&self.shared, LAST, new_request("health_check", None, ""));
        self.observed.push(observer.reader.join().expect("a reader"));
    }

    /// Waits until this number of commands has been sent.
    fn wait_for(&self, sent: usize) {
        self.wait_while_progressing(|| self.shared.sent() >= sent);
    }

    /// Waits until all clients are done and no run is active.
    fn wait_until_idle(&self, observer: &mut Observer) {
        self.wait_while_progressing(|| self.shared.done.load(Ordering::Acquire) == CLIENTS);
        self.wait_for_runs(observer, "rest");
    }

    fn answered(&self) -> usize {
        lock(&self.shared.record).sent.len()
    }

    /// Waits for a condition. Fails when no command is answered for the length of the timeout.
    fn wait_while_progressing(&self, mut holds: impl FnMut() -> bool) {
        let (mut before, mut since) = (self.answered(), Instant::now());
        while !holds() {
            assert!(since.elapsed() < TIMEOUT, "no command is answered");
            thread::sleep(Duration::from_millis(2));
            let now = self.answered();
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
    }

    fn wait_for_runs(&self, observer: &mut Observer, when: &str) {
        for session in talk_sessions() {
            let mut attempts = 0;
            wait_until("the runs are over", || {
                attempts += 1;
                let request = new_request("get_state", Some(session.clone()), "");
                let state = observer.execute(&self.shared, &format!("{when}-{session}-{attempts}"), request);
                state["data"]["isStreaming"] == false
            });
        }
    }

    fn sample_memory(&mut self) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.daemon.pid())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        self.memory.extend(kib.map(|kib| (self.shared.sent(), kib * 1024)));
    }

    fn observe(&self, instance: usize) -> Observer {
        let (mut sender, receiver) = websocket::open(self.shared.instance(instance).address).expect("a connection");
        let (answers, reader) = read_lines(receiver, true);
        sender.send_text("{\"type\":\"bogus\"}").expect("the daemon reads");
        answers.recv_timeout(TIMEOUT).expect("an answer");
        Observer { instance, sender, answers, reader }
    }

    fn check(mut self) {
        let received: Vec<Vec<ReceivedLines>> =
            self.clients.drain(..).map(|client| client.join().expect("a client")).collect();
        let instances = self.shared.instances;
        let mut by_instance: Vec<Vec<ReceivedLines>> = (0..instances).map(|_| Vec::new()).collect();
        for received in received {
            received.into_iter().zip(&mut by_instance).for_each(|(received, instance)| instance.push(received));
        }
        let record = lock(&self.shared.record);
        let interrupted =
            record.sent.iter().filter(|sent| sent.instance + 1 < instances && sent.delivery == Delivery::Lost);
        let interrupted: BTreeSet<&Command> = interrupted.map(|sent| &sent.command).collect();
        let envelopes = interrupted.iter().map(|command| command.envelope()).collect();
        let mut model = Model::new(requests_by_envelope(record.sent.iter().map(|sent| &sent.command)), envelopes);
        for (number, (observed, others)) in self.observed.iter().zip(&by_instance).enumerate() {
            if number > 0 {
                model.restart();
            }
            model.process(&trace::merge(observed, others));
        }
        model.assert_idle();
        // A command without any observed event may have been executed.
        let unobserved = |command: &&&Command| command.has_identity() && !model.is_observed(&command.envelope());
        let mut unobserved: Vec<&Request> =
            interrupted.iter().filter(unobserved).map(|command| &command.request).collect();
        unobserved.extend(unobserved_without_identity(&model, &record.sent, instances));
        self.journaled_versions_rise_by_one();
        let executions = outcomes::check(&model, &unobserved);
        answers::check(&model, &record);
        assert_all_admitted(&model, &record.sent);
        let lost = record.sent.iter().filter(|sent| sent.delivery == Delivery::Lost).count();
        let replays = model.ended.iter().filter(|ended| ended.replayed).count();
        let conflicts = model.ended.iter().filter(|ended| ended.leader.is_none()).count();
        println!("sent {}, lost {lost}, replayed {replays}, conflicts {conflicts}, {executions:?}", record.sent.len());
        println!("memory: {:?}", self.memory.iter().map(|(sent, bytes)| (sent, bytes / 1024)).collect::<Vec<_>>());
        assert!(executions.other_timeouts * 20 < executions.executed, "the daemon is too slow: {executions:?}");
        assert_nothing_done_twice(&model, &unobserved, &self.daemon.home.path().join("counted"));
        self.memory_is_bounded();
    }

    /// The journal contains every version of a session once, also those that no client observed.
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

    /// The memory of the daemon does not grow with the number of commands.
    fn memory_is_bounded(&self) {
        let least = self.memory.iter().map(|(_, bytes)| *bytes).min().unwrap_or(0);
        let most = self.memory.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        assert!(most - least < GROWTH, "grown by {} KiB: {:?}", (most - least) / 1024, self.memory);
    }
}

impl Observer {
    /// Sends a request that must succeed, and returns the response.
    fn execute(&mut self, shared: &SharedState, id: &str, request: Request) -> Value {
        let command = self.command(shared, id, request);
        let line = self.answers.recv_timeout(TIMEOUT).expect("an answer");
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(answer["success"], true, "{answer}");
        shared.finish(self.instance, command, Some(line));
        answer
    }

    /// Sends a request without waiting for the response.
    fn transmit(&mut self, shared: &SharedState, id: &str, request: Request) {
        let command = self.command(shared, id, request);
        shared.finish(self.instance, command, None);
    }

    fn command(&mut self, shared: &SharedState, id: &str, request: Request) -> Command {
        let command = Command { id: Some(format!("{id}-{}", self.instance)), key: None, request };
        shared.sending(&command, Reuse::Allowed);
        self.sender.send_text(&command.line()).expect("the daemon reads");
        command
    }
}

fn talk_sessions() -> impl Iterator<Item = String> {
    sessions().into_iter().filter(|session| session.starts_with("talk"))
}

fn seconds(millis: u64) -> String {
    format!("{}", millis as f64 / 1_000.0)
}

/// The request of each envelope. Two different requests must not have the same envelope.
fn requests_by_envelope<'a>(commands: impl Iterator<Item = &'a Command>) -> BTreeMap<Envelope, Request> {
    let mut all: BTreeMap<Envelope, Request> = BTreeMap::new();
    for command in commands {
        let before = all.entry(command.envelope()).or_insert_with(|| command.request.clone());
        assert_eq!(*before, command.request, "two requests have the same envelope");
    }
    all
}

/// Every command was admitted as often as it was sent, and no other command was.
fn assert_all_admitted(model: &Model, sent: &[SentCommand]) {
    let mut counts: BTreeMap<(usize, Envelope), (usize, usize)> = BTreeMap::new();
    for sent in sent {
        let (least, most) = counts.entry((sent.instance, sent.command.envelope())).or_default();
        *most += 1;
        *least += usize::from(sent.delivery == Delivery::Answered);
    }
    for (what, (least, most)) in counts {
        let admitted = model.admitted.get(&what).copied().unwrap_or(0);
        assert!((least..=most).contains(&admitted), "{what:?}: {admitted} times, and not {least} to {most}");
    }
}

/// Commands without id and key that were sent to a killed daemon and whose admission was not observed.
///
/// Two such commands cannot be distinguished, so they are counted.
fn unobserved_without_identity<'a>(model: &Model, sent: &'a [SentCommand], instances: usize) -> Vec<&'a Request> {
    let mut counts: BTreeMap<(usize, &Command), usize> = BTreeMap::new();
    for sent in sent.iter().filter(|sent| sent.instance + 1 < instances && !sent.command.has_identity()) {
        *counts.entry((sent.instance, &sent.command)).or_default() += 1;
    }
    let unobserved = counts.into_iter().flat_map(|((instance, command), count)| {
        let received = model.admitted.get(&(instance, command.envelope())).copied().unwrap_or(0);
        std::iter::repeat_n(&command.request, count.saturating_sub(received))
    });
    unobserved.collect()
}

/// Every executed command wrote at most one line, and every successful one exactly one.
fn assert_nothing_done_twice(model: &Model, unobserved: &[&Request], counter_file: &Path) {
    let mut traces: BTreeMap<String, usize> = BTreeMap::new();
    for line in fs::read_to_string(PathBuf::from(counter_file)).expect("a file").lines() {
        *traces.entry(line.to_owned()).or_default() += 1;
    }
    let mut executions: BTreeMap<&str, Vec<&TrackedCommand>> = BTreeMap::new();
    for known in model.known.iter().filter(|known| known.started.is_some()) {
        if let Some(name) = counter_name(&known.request) {
            executions.entry(name).or_default().push(known);
        }
    }
    assert!(!executions.is_empty(), "nothing was counted");
    // Commands that ran when the daemon was killed were interrupted.
    let certain = |known: &&&TrackedCommand| {
        let done = known.outcome.as_ref().is_some_and(Outcome::is_success);
        done && known.finished.is_some() && (known.request.kind == "bash" || known.instance > 0)
    };
    for (name, known) in &executions {
        let left = traces.remove(*name).unwrap_or(0);
        // The model permits a second execution only after the outcome was evicted.
        assert!(left <= known.len(), "{name} was done {left} times: {known:?}");
        assert!(left >= known.iter().filter(certain).count(), "{name} was not done: {known:?}");
    }
    for name in unobserved.iter().filter_map(|request| counter_name(request)) {
        assert!(traces.remove(name).unwrap_or(0) <= 1, "{name} was done twice");
    }
    assert!(traces.is_empty(), "executed and never started: {traces:?}");
}

/// The name that a step appends to the file.
fn counter_name(request: &Request) -> Option<&str> {
    request.rest.split_once("echo ")?.1.split(' ').next()
}
