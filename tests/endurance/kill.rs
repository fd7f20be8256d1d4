//! Kills the real daemon at random points while real clients use it, and compares its history afterwards with
//! everything the clients saw.
//!
//! `PUSH_KILLS` sets the number of kills, `PUSH_LONG=1` the long form, `PUSH_KILL_SEED` the seed. A seed reproduces
//! the clients, messages and kill points, but not the interleaving of their threads.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod actions;
mod client;
mod connection;
mod harness;
mod history;
mod leftover;
mod observations;
mod pi_client;
mod request;
mod session_view;
mod verify;
mod workload;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::random::Random;
use client::{RandomClient, Role};
use connection::Connection;
use harness::{Harness, Moment, Phase, TIMEOUT};
use observations::{GrantedRequest, Lines};
use pi_client::PiClient;
use request::mark;
use verify::{SessionVerifier, Tally};

/// The number of kills per home before it is verified.
const KILLS_PER_HOME: u64 = 50;
const WORKERS: usize = 4;
const WATCHERS: usize = 2;
/// The clients of the Pi protocol, each with a session that the watchers follow, too.
const PI_CLIENTS: usize = 2;

#[test]
fn a_killed_daemon_loses_nothing_and_does_nothing_twice() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let long = std::env::var("PUSH_LONG").is_ok_and(|value| value == "1");
    let kills = number("PUSH_KILLS").unwrap_or(if long { 10_000 } else { 200 });
    let seed = number("PUSH_KILL_SEED").unwrap_or(1);
    println!("{kills} kills, PUSH_KILL_SEED={seed}");
    let began = Instant::now();
    let mut left = kills;
    let mut home = 0;
    while left > 0 {
        let share = left.min(KILLS_PER_HOME);
        let seed = seed.wrapping_add(home);
        let tally = Scenario::new(seed).run(share);
        println!("{share} kills with seed {seed}, {:.1?} so far: {tally:?}", began.elapsed());
        left -= share;
        home += 1;
    }
}

#[test]
fn a_step_whose_run_is_cancelled_before_it_starts_is_not_started() {
    let harness = Harness::new("60");
    harness.start();
    let mut connection = Connection::connect(&harness.socket()).expect("a daemon");
    let mark = harness.home.path().display().to_string();
    let environment = json!({"PATH": std::env::var("PATH").unwrap_or_default(), "PUSH_KILL_MARK": mark});
    // One session each, because the next run of a session would remove leftovers of the run before.
    for _ in 0..20 {
        let start = json!({"cwd": harness.cwd(), "environment": environment});
        connection.send("start_session", &start).expect("a daemon");
        let session = connection.wait_for_event("session_started").payload["sessionId"].clone();
        let text = "$? setsid sleep 1000 & sleep 1000\n";
        connection.send("send_user_message", &json!({"sessionId": session, "text": text})).expect("a daemon");
        let approval = connection.wait_for_event("approval_required").payload["approvalId"].clone();
        let vote = json!({"sessionId": session, "approvalId": approval, "decision": "approve"});
        connection.send("submit_approval", &vote).expect("a daemon");
        connection.send("cancel_run", &json!({"sessionId": session})).expect("a daemon");
        assert_eq!(connection.wait_for_event("run_complete").payload["outcome"], "cancelled");
    }
    let left = leftover::wait_for_none(&[mark], harness.pid(), TIMEOUT / 4);
    assert!(left.is_empty(), "left over after all runs: {left:?}");
    // The first cancel may arrive while the holder of all supervisors starts.
    let children = harness.pid().map(|pid| leftover::wait_for_no_child(pid, TIMEOUT / 4)).unwrap_or_default();
    assert!(children.is_empty(), "the daemon has children after all runs: {children:?}");
}

/// One home of a daemon, from its first start to its verification.
struct Scenario {
    seed: u64,
    random: Random,
    harness: Arc<Harness>,
}

/// When to kill.
#[derive(Debug, Clone, Copy)]
enum KillPoint {
    /// While the daemon starts.
    Starting(Duration),
    /// This long after it reported that it is ready.
    Ready(Duration),
    /// When clients have seen the moment this many times.
    AtMoment(Moment, u64),
}

impl Scenario {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let park = if random.one_in(2) { "0.005" } else { "60" };
        Self { seed, random, harness: Arc::new(Harness::new(park)) }
    }

    fn run(mut self, kills: u64) -> Tally {
        let clients = self.spawn_clients();
        for _ in 0..kills {
            let point = self.choose_kill_point();
            self.run_until_killed(point);
        }
        let marks = [self.harness.home.path().display().to_string()];
        self.report_leftovers(&marks, "after a kill");
        self.harness.set_phase(Phase::Finishing);
        self.harness.start();
        self.harness.admit_clients();
        if !self.harness.wait_all_idle(WORKERS + PI_CLIENTS) {
            self.harness.observations.add_finding("not every session becomes idle".to_owned());
        }
        self.report_leftovers(&marks, "after all runs");
        let children = self.harness.pid().map(|pid| leftover::wait_for_no_child(pid, TIMEOUT / 4));
        if let Some(children) = children.filter(|children| !children.is_empty()) {
            self.harness.observations.add_finding(format!("the daemon has children after all runs: {children:?}"));
        }
        self.harness.set_phase(Phase::Done);
        self.harness.kill();
        for client in clients {
            client.join().expect("a client that does not panic");
        }
        self.harness.start();
        let tally = self.verify();
        self.harness.kill();
        self.report_findings();
        tally
    }

    fn spawn_clients(&mut self) -> Vec<std::thread::JoinHandle<()>> {
        let roles = [(Role::Worker, WORKERS), (Role::Watcher, WATCHERS)];
        let roles = roles.into_iter().flat_map(|(role, count)| std::iter::repeat_n(role, count));
        let mut clients: Vec<_> = roles
            .enumerate()
            .map(|(number, role)| {
                let random = Random::new(self.random.next());
                let client = RandomClient::new(Arc::clone(&self.harness), role, number, random);
                std::thread::spawn(move || client.run())
            })
            .collect();
        clients.extend((0..PI_CLIENTS).map(|number| {
            let client = PiClient::new(Arc::clone(&self.harness), number, Random::new(self.random.next()));
            std::thread::spawn(move || client.run())
        }));
        clients
    }

    fn choose_kill_point(&mut self) -> KillPoint {
        let random = &mut self.random;
        let count = 1 + random.below(4);
        match random.below(26) {
            0 => KillPoint::Starting(Duration::from_micros(random.below(100_000))),
            1 => KillPoint::Ready(Duration::ZERO),
            2 | 3 => KillPoint::Ready(Duration::from_micros(random.below(3_000))),
            4..=8 => KillPoint::Ready(Duration::from_micros(random.below(50_000))),
            9 => KillPoint::Ready(Duration::from_micros(random.below(600_000))),
            10 | 11 => KillPoint::AtMoment(Moment::RequestSent, count * 2),
            12 | 13 => KillPoint::AtMoment(Moment::DecisionSent, 1),
            14 => KillPoint::AtMoment(Moment::Answered, count * 3),
            15 => KillPoint::AtMoment(Moment::ApprovalAsked, 1),
            16 | 17 => KillPoint::AtMoment(Moment::StepStarted, count),
            18 | 19 => KillPoint::AtMoment(Moment::Output, 1 + random.below(30)),
            20 | 21 => KillPoint::AtMoment(Moment::StepOver, count),
            22 => KillPoint::AtMoment(Moment::Recovered, count),
            23 | 24 => KillPoint::AtMoment(Moment::RunOver, count),
            _ => KillPoint::AtMoment(Moment::PrivateEvent, 1),
        }
    }

    fn run_until_killed(&mut self, point: KillPoint) {
        let harness = &self.harness;
        match point {
            KillPoint::Starting(after) => {
                harness.spawn();
                wait_precisely(after);
                harness.kill();
            }
            KillPoint::Ready(after) => {
                harness.start();
                harness.admit_clients();
                wait_precisely(after);
                harness.kill();
            }
            KillPoint::AtMoment(moment, count) => {
                harness.start();
                harness.arm(moment, count);
                harness.admit_clients();
                harness.await_moment(Duration::from_millis(300));
            }
        }
        if self.random.one_in(8) {
            let generation = self.harness.generation();
            self.report_leftovers(&[mark(&self.harness, generation)], "after its generation");
        }
    }

    /// Reports processes that should have ended.
    fn report_leftovers(&self, marks: &[String], when: &str) {
        let left = leftover::wait_for_none(marks, self.harness.pid(), TIMEOUT / 4);
        if !left.is_empty() {
            let generation = self.harness.generation();
            self.harness.observations.add_finding(format!("generation {generation}: left over {when}: {left:?}"));
        }
    }

    fn verify(&self) -> Tally {
        let sessions: Vec<_> = self.harness.observations.lock().events.keys().cloned().collect();
        let histories: BTreeMap<String, Lines> =
            sessions.into_iter().map(|session| (session.clone(), history::fetch(&self.harness, &session))).collect();
        let is_pi = |session: &&String| session.starts_with("pi-");
        let messages: BTreeMap<String, Vec<String>> = histories
            .keys()
            .filter(is_pi)
            .map(|session| (session.clone(), pi_client::fetch_messages(&self.harness, session)))
            .collect();
        let mut ledger = BTreeMap::new();
        for name in fs::read_to_string(self.harness.ledger()).unwrap_or_default().lines() {
            *ledger.entry(name.to_owned()).or_default() += 1;
        }
        let mut seen = self.harness.observations.lock();
        let mut findings = std::mem::take(&mut seen.findings);
        let mut tally = Tally::default();
        tally.spans += seen.spans.len();
        for (session, lines) in &histories {
            verify::compare_events(session, lines, &seen, &mut findings);
            let events = history::parse(lines, &mut findings);
            tally.events += events.len();
            if let Some(messages) = messages.get(session) {
                seen.pi.verify(session, &events, messages, &mut findings);
            }
            let mut verifier = SessionVerifier::new(session, &ledger, &mut findings);
            verifier.follow(&events);
            verifier.verify_steps();
            for (id, message) in seen.messages.iter().filter(|(_, message)| message.session == *session) {
                verifier.verify_message(id, message);
                tally.repeated += usize::from(message.attempts > 1);
            }
            for granted in seen.granted.iter().filter(|granted| session_of(granted) == session) {
                verifier.verify_grant(granted);
                match granted {
                    GrantedRequest::Decision { .. } => tally.decisions += 1,
                    GrantedRequest::Cancel { .. } => tally.cancels += 1,
                    GrantedRequest::Removal { .. } | GrantedRequest::Name { .. } => {}
                }
            }
            verifier.count(&mut tally);
        }
        (tally.pi_prompts, tally.pi_reads) = seen.pi.counts();
        tally.pi_repeated = seen.pi.repeated;
        let steps: Vec<_> = seen.messages.values().flat_map(|message| &message.steps).chain(seen.pi.steps()).collect();
        for name in ledger.keys().filter(|name| !steps.contains(name)) {
            findings.push(format!("{name:?} was executed without a request"));
        }
        seen.findings = findings;
        tally
    }

    /// Fails with all findings.
    fn report_findings(self) {
        let mut findings = std::mem::take(&mut self.harness.observations.lock().findings);
        findings.extend(logged_errors(&self.harness));
        if findings.is_empty() {
            return;
        }
        let home = self.harness.home.path().display();
        let count = findings.len();
        findings.truncate(20);
        let seed = self.seed;
        // The home is copied, because it is removed with its handle.
        let kept = format!("{home}.kept");
        let _ = std::process::Command::new("cp").args(["-a", &home.to_string(), &kept]).status();
        panic!("{count} findings, PUSH_KILL_SEED={seed}, home kept at {kept}:\n  {}", findings.join("\n  "));
    }
}

fn session_of(granted: &GrantedRequest) -> &str {
    match granted {
        GrantedRequest::Decision { session, .. }
        | GrantedRequest::Cancel { session, .. }
        | GrantedRequest::Removal { session, .. }
        | GrantedRequest::Name { session, .. } => session,
    }
}

/// Errors in the daemon's own logs.
fn logged_errors(harness: &Harness) -> Vec<String> {
    let mut files = vec![harness.home.path().join("stderr")];
    let logs = fs::read_dir(harness.home.path().join(".push/logs")).into_iter().flatten().flatten();
    files.extend(logs.map(|entry| entry.path()));
    let texts = files.into_iter().map(|path| fs::read_to_string(path).unwrap_or_default());
    // A lock that is still held for a moment is reported, and retried.
    let is_bad = |line: &&str| {
        line.contains("panicked") || (line.contains("ERROR") && !line.contains("another pushd is running"))
    };
    texts
        .flat_map(|text| text.lines().filter(is_bad).map(|line| format!("the daemon says: {line}")).collect::<Vec<_>>())
        .collect()
}

/// Waits; a sleep is too coarse for the shortest times.
fn wait_precisely(time: Duration) {
    let until = Instant::now() + time;
    if time > Duration::from_millis(1) {
        std::thread::sleep(time);
    }
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}
