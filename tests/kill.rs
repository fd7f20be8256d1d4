//! Kills the real daemon at random points while real clients use it, and compares its history afterwards with
//! everything the clients saw.
//!
//! `PUSH_KILLS` sets the number of kills, `PUSH_LONG=1` the long form, `PUSH_KILL_SEED` the seed. A seed reproduces
//! the clients, messages and kill points, but not the interleaving of their threads.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "kill/ask.rs"]
mod ask;
#[path = "kill/follow.rs"]
mod follow;
#[path = "kill/history.rs"]
mod history;
#[path = "kill/judge.rs"]
mod judge;
#[path = "kill/leftover.rs"]
mod leftover;
#[path = "kill/mood.rs"]
mod mood;
#[path = "kill/player.rs"]
mod player;
#[path = "support/random.rs"]
mod random;
#[path = "support/schemas.rs"]
mod schemas;
#[path = "kill/stage.rs"]
mod stage;
#[path = "kill/wire.rs"]
mod wire;
#[path = "kill/witness.rs"]
mod witness;
#[path = "kill/workload.rs"]
mod workload;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use ask::mark;
use judge::{Tally, Trial};
use player::{Player, Role};
use random::Random;
use stage::{Act, Moment, PATIENCE, Stage};
use wire::Wire;
use witness::{Granted, Lines};

/// The number of kills per home before it is verified.
const KILLS_A_HOME: u64 = 50;
const WORKERS: usize = 4;
const WATCHERS: usize = 2;

#[test]
fn a_killed_daemon_loses_nothing_and_does_nothing_twice() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let long = std::env::var("PUSH_LONG").is_ok_and(|value| value == "1");
    let kills = number("PUSH_KILLS").unwrap_or(if long { 10_000 } else { 200 });
    let seed = number("PUSH_KILL_SEED").unwrap_or_else(fresh_seed);
    println!("{kills} kills, PUSH_KILL_SEED={seed}");
    let began = Instant::now();
    let mut left = kills;
    let mut home = 0;
    while left > 0 {
        let share = left.min(KILLS_A_HOME);
        let seed = seed.wrapping_add(home);
        let tally = Home::new(seed).live(share);
        println!("{share} kills with seed {seed}, {:.1?} so far: {tally:?}", began.elapsed());
        left -= share;
        home += 1;
    }
}

#[test]
fn a_step_whose_run_is_cancelled_on_its_way_to_its_start_is_not_started() {
    let stage = Stage::new("60");
    stage.start();
    let mut wire = Wire::connect(&stage.socket()).expect("a daemon");
    let mark = stage.home.path().display().to_string();
    let environment = json!({"PATH": std::env::var("PATH").unwrap_or_default(), "PUSH_KILL_MARK": mark});
    // One session each, because the next run of a session would remove leftovers of the run before.
    for _ in 0..20 {
        let start = json!({"cwd": stage.cwd(), "environment": environment});
        wire.send("start_session", &start).expect("a daemon");
        let session = wire.until("session_started").payload["sessionId"].clone();
        let text = "$? setsid sleep 1000 & sleep 1000\n";
        wire.send("send_user_message", &json!({"sessionId": session, "text": text})).expect("a daemon");
        let approval = wire.until("approval_required").payload["approvalId"].clone();
        let vote = json!({"sessionId": session, "approvalId": approval, "decision": "approve"});
        wire.send("submit_approval", &vote).expect("a daemon");
        wire.send("cancel_run", &json!({"sessionId": session})).expect("a daemon");
        assert_eq!(wire.until("run_complete").payload["outcome"], "cancelled");
    }
    let left = leftover::wait_for_none(&[mark], stage.pid(), PATIENCE / 4);
    assert!(left.is_empty(), "left over after all runs: {left:?}");
}

fn fresh_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or_default())
}

/// One home of a daemon, from its first start to its verification.
struct Home {
    seed: u64,
    random: Random,
    stage: Arc<Stage>,
}

/// When to kill.
#[derive(Debug, Clone, Copy)]
enum Point {
    /// While the daemon starts.
    Starting(Duration),
    /// This long after it reported that it is ready.
    Ready(Duration),
    /// When clients have seen the moment this many times.
    At(Moment, u64),
}

impl Home {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let park = if random.one_in(2) { "0.005" } else { "60" };
        Self { seed, random, stage: Arc::new(Stage::new(park)) }
    }

    fn live(mut self, kills: u64) -> Tally {
        let players = self.cast();
        for _ in 0..kills {
            let point = self.point();
            self.one_life(point);
        }
        let marks = [self.stage.home.path().display().to_string()];
        self.report_left(&marks, "after a kill");
        self.stage.turn_to(Act::Finishing);
        self.stage.start();
        self.stage.open();
        if !self.stage.all_rest(WORKERS) {
            self.stage.witness.finding("not every session becomes idle".to_owned());
        }
        self.report_left(&marks, "after all runs");
        let keepers = self.stage.pid().map(|pid| leftover::wait_for_no_child(pid, PATIENCE / 4));
        if let Some(keepers) = keepers.filter(|keepers| !keepers.is_empty()) {
            self.stage.witness.finding(format!("the daemon has children after all runs: {keepers:?}"));
        }
        self.stage.turn_to(Act::Over);
        self.stage.kill();
        for player in players {
            player.join().expect("a client that does not panic");
        }
        self.stage.start();
        let tally = self.judge();
        self.stage.kill();
        self.conclude();
        tally
    }

    fn cast(&mut self) -> Vec<std::thread::JoinHandle<()>> {
        let roles = [(Role::Worker, WORKERS), (Role::Watcher, WATCHERS)];
        let roles = roles.into_iter().flat_map(|(role, count)| std::iter::repeat_n(role, count));
        roles
            .enumerate()
            .map(|(number, role)| {
                let random = Random::new(self.random.next());
                let player = Player::new(Arc::clone(&self.stage), role, number, random);
                std::thread::spawn(move || player.play())
            })
            .collect()
    }

    fn point(&mut self) -> Point {
        let random = &mut self.random;
        let count = 1 + random.below(4);
        match random.below(26) {
            0 => Point::Starting(Duration::from_micros(random.below(100_000))),
            1 => Point::Ready(Duration::ZERO),
            2 | 3 => Point::Ready(Duration::from_micros(random.below(3_000))),
            4..=8 => Point::Ready(Duration::from_micros(random.below(50_000))),
            9 => Point::Ready(Duration::from_micros(random.below(600_000))),
            10 | 11 => Point::At(Moment::RequestSent, count * 2),
            12 | 13 => Point::At(Moment::DecisionSent, 1),
            14 => Point::At(Moment::Answered, count * 3),
            15 => Point::At(Moment::ApprovalAsked, 1),
            16 | 17 => Point::At(Moment::StepStarted, count),
            18 | 19 => Point::At(Moment::Output, 1 + random.below(30)),
            20 | 21 => Point::At(Moment::StepOver, count),
            22 => Point::At(Moment::Recovered, count),
            23 | 24 => Point::At(Moment::RunOver, count),
            _ => Point::At(Moment::ToldAlone, 1),
        }
    }

    fn one_life(&mut self, point: Point) {
        let stage = &self.stage;
        match point {
            Point::Starting(after) => {
                stage.spawn();
                pass(after);
                stage.kill();
            }
            Point::Ready(after) => {
                stage.start();
                stage.open();
                pass(after);
                stage.kill();
            }
            Point::At(moment, count) => {
                stage.start();
                stage.arm(moment, count);
                stage.open();
                stage.await_moment(Duration::from_millis(300));
            }
        }
        if self.random.one_in(8) {
            let life = self.stage.life();
            self.report_left(&[mark(&self.stage, life)], "after its generation");
        }
    }

    /// Reports processes that should have ended.
    fn report_left(&self, marks: &[String], when: &str) {
        let left = leftover::wait_for_none(marks, self.stage.pid(), PATIENCE / 4);
        if !left.is_empty() {
            let life = self.stage.life();
            self.stage.witness.finding(format!("generation {life}: left over {when}: {left:?}"));
        }
    }

    fn judge(&self) -> Tally {
        let sessions: Vec<_> = self.stage.witness.lock().events.keys().cloned().collect();
        let histories: BTreeMap<String, Lines> = sessions
            .into_iter()
            .map(|session| (session.clone(), history::fetch(&self.stage, &session)))
            .collect();
        let mut ledger = BTreeMap::new();
        for name in fs::read_to_string(self.stage.ledger()).unwrap_or_default().lines() {
            *ledger.entry(name.to_owned()).or_default() += 1;
        }
        let mut seen = self.stage.witness.lock();
        let mut findings = std::mem::take(&mut seen.findings);
        let mut tally = Tally::default();
        tally.stretches += seen.stretches.len();
        for (session, lines) in &histories {
            judge::compare(session, lines, &seen, &mut findings);
            let facts = history::open(lines, &mut findings);
            tally.events += facts.len();
            let mut trial = Trial::new(session, &ledger, &mut findings);
            trial.follow(&facts);
            trial.judge_steps();
            for (id, message) in seen.messages.iter().filter(|(_, message)| message.session == *session) {
                trial.judge_message(id, message);
                tally.repeated += usize::from(message.attempts > 1);
            }
            for granted in seen.granted.iter().filter(|granted| session_of(granted) == session) {
                trial.judge_grant(granted);
                match granted {
                    Granted::Decision { .. } => tally.decisions += 1,
                    Granted::Cancel { .. } => tally.cancels += 1,
                    Granted::Removal { .. } | Granted::Name { .. } => {}
                }
            }
            trial.count(&mut tally);
        }
        let steps: Vec<_> = seen.messages.values().flat_map(|message| &message.steps).collect();
        for name in ledger.keys().filter(|name| !steps.contains(name)) {
            findings.push(format!("{name:?} was executed without a request"));
        }
        seen.findings = findings;
        tally
    }

    /// Fails with all findings.
    fn conclude(self) {
        let mut findings = std::mem::take(&mut self.stage.witness.lock().findings);
        findings.extend(complaints(&self.stage));
        if findings.is_empty() {
            return;
        }
        let home = self.stage.home.path().display();
        let count = findings.len();
        findings.truncate(20);
        let seed = self.seed;
        // The home is copied, because it is removed with its handle.
        let kept = format!("{home}.kept");
        let _ = std::process::Command::new("cp").args(["-a", &home.to_string(), &kept]).status();
        panic!("{count} findings, PUSH_KILL_SEED={seed}, home kept at {kept}:\n  {}", findings.join("\n  "));
    }
}

fn session_of(granted: &Granted) -> &str {
    match granted {
        Granted::Decision { session, .. }
        | Granted::Cancel { session, .. }
        | Granted::Removal { session, .. }
        | Granted::Name { session, .. } => session,
    }
}

/// Errors in the daemon's own logs.
fn complaints(stage: &Stage) -> Vec<String> {
    let mut files = vec![stage.home.path().join("stderr")];
    let logs = fs::read_dir(stage.home.path().join(".push/logs")).into_iter().flatten().flatten();
    files.extend(logs.map(|entry| entry.path()));
    let texts = files.into_iter().map(|path| fs::read_to_string(path).unwrap_or_default());
    // A lock that is still held for a moment is reported, and retried.
    let is_bad = |line: &&str| {
        line.contains("panicked") || (line.contains("ERROR") && !line.contains("another pushd is running"))
    };
    texts
        .flat_map(|text| {
            text.lines().filter(is_bad).map(|line| format!("the daemon says: {line}")).collect::<Vec<_>>()
        })
        .collect()
}

/// Waits; a sleep is too coarse for the shortest times.
fn pass(time: Duration) {
    let until = Instant::now() + time;
    if time > Duration::from_millis(1) {
        std::thread::sleep(time);
    }
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}
