//! Power loss: acknowledged data is there afterwards, and what is there was written, in order.
//!
//! A trace is the recording of what a journal did for one seed. Many crash states are tried for each trace. The
//! number of a state is its seed and also determines its trace. `PUSH_POWER_SEEDS` sets the number of states,
//! `PUSH_LONG=1` the long form, and `PUSH_POWER_SEED` tries one state alone.

use std::env;
use std::sync::atomic::{AtomicU64, Ordering as Order};
use std::thread;

use tempfile::TempDir;

use super::disk::crash::CrashSimulator;
use super::disk::ledger::{Driver, RequestLog, block_on};
use super::disk::model::{JournalContents, Model};
use super::disk::workload::Workload;
use super::disk::{Disk, Failure, FaultDuration, FaultSpec, Kind, Recording, directory};
use super::*;
use crate::random::Random;

#[test]
fn acknowledged_batches_survive_a_power_loss() {
    if let Some(seed) = number("PUSH_POWER_SEED") {
        return run_trace(seed / STATES, Some(seed));
    }
    let long = env::var("PUSH_LONG").is_ok_and(|value| value == "1");
    let states = number("PUSH_POWER_SEEDS").unwrap_or(if long { 100_000 } else { 300 });
    println!("{states} crash states");
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, |count| count.get()) {
            scope.spawn(|| {
                while let Some(trace) = Some(next.fetch_add(1, Order::Relaxed)).filter(|n| n * STATES < states) {
                    run_trace(trace, None);
                }
            });
        }
    });
}

#[test]
fn a_failed_sync_and_a_power_loss_keep_acknowledged_batches() {
    for number in 0..FAILING {
        try_states(
            &OperationTrace::with_failed_sync(number, AfterFailure::Nothing),
            "with a failed sync",
            number,
            None,
        );
    }
}

#[test]
fn batches_acknowledged_after_a_failed_sync_and_a_restart_survive_a_power_loss() {
    for number in 0..FAILING {
        try_states(
            &OperationTrace::with_failed_sync(number, AfterFailure::Restart),
            "with a failed sync and a restart",
            number,
            None,
        );
    }
}

#[test]
fn the_recording_matches_the_files() {
    for seed in 0..2 {
        let mut workload = Workload::new(seed);
        let options = workload.options();
        let opened = Driver::open(Disk::new(), options, RequestLog::default());
        let mut driver = opened.map_err(|refused| refused.1).expect("opens");
        for _ in 0..30 {
            driver = workload.step(driver);
        }
        // Closing is the last action of the writer, so the files no longer change.
        let (disk, _, outcome) = driver.close();
        outcome.expect("closes");
        let names: Vec<String> = std::fs::read_dir(disk.path())
            .expect("a directory")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        let files: Vec<_> = names.iter().map(|name| std::fs::read(disk.path().join(name)).expect("a file")).collect();
        let recording = disk.into_recording();
        let mut player = CrashSimulator::new(&recording);
        player.advance(recording.ops.len());
        assert!(names.iter().any(|name| name == DATABASE) && player.read(LOG).is_none(), "{names:?}");
        for (name, bytes) in names.iter().zip(files) {
            assert!(player.read(name) == Some(bytes), "seed {seed}: {name} differs from its record");
        }
    }
}

/// What follows a failed sync.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterFailure {
    Nothing,
    Restart,
}

/// The recording of what a journal did for one seed.
struct OperationTrace {
    recording: Recording,
    requests: RequestLog,
    model: Model,
}

impl OperationTrace {
    fn record(seed: u64) -> Self {
        let mut workload = Workload::new(seed);
        let options = workload.options();
        let mut driver =
            Driver::open(Disk::new(), options, RequestLog::default()).map_err(|refused| refused.1).expect("opens");
        for _ in 0..20 + workload.random.below(80) {
            driver = workload.step(driver);
        }
        Self::of(driver)
    }

    /// Makes a sync fail, and optionally opens the journal again before the power loss.
    fn with_failed_sync(seed: u64, afterwards: AfterFailure) -> Self {
        let mut workload = Workload::new(seed);
        let options = workload.options();
        let driver =
            Driver::open(Disk::new(), options, RequestLog::default()).map_err(|refused| refused.1).expect("opens");
        for _ in 0..workload.random.below(20) {
            driver.commit(workload.batch()).expect("kept");
        }
        let kind = *workload.random.pick(&[Kind::OwnSync, Kind::Sync]).expect("a kind");
        let nth = 1 + workload.random.below(4);
        driver.disk.fail(FaultSpec { kind, nth, failure: Failure::Broken, duration: FaultDuration::Once });
        for _ in 0..40 {
            let _ = driver.commit(workload.batch());
        }
        driver.disk.clear_fault();
        let (disk, mut requests, _) = driver.close();
        // Refused batches are not there; unsynced ones may be.
        requests
            .entries
            .retain(|entry| matches!(entry.answer, Some((_, Ok(()) | Err(CommitError::SyncFailed { .. })))));
        let mut model = Model::of(requests.entries.iter().map(|entry| &entry.batch));
        let mut disk = disk;
        if afterwards == AfterFailure::Restart {
            let driver =
                Driver::open(disk, options, requests.clone()).map_err(|refused| refused.1).expect("opens again");
            let seen = JournalContents::read(&driver.journal, usize::MAX).expect("readable");
            let count = model.find(&seen, 0, requests.entries.len()).expect("a state that was written");
            driver.set_found(count);
            let mut workload = Workload::resume(seed, &seen);
            for _ in 0..10 {
                driver.commit(workload.batch()).expect("kept");
            }
            let (next, next_requests, outcome) = driver.close();
            outcome.expect("closes");
            model = Model::of(next_requests.entries.iter().map(|entry| &entry.batch));
            (disk, requests) = (next, next_requests);
        }
        Self { recording: disk.into_recording(), requests, model }
    }

    fn of(driver: Driver) -> Self {
        let (disk, requests, outcome) = driver.close();
        outcome.expect("closes");
        let model = Model::of(requests.entries.iter().map(|entry| &entry.batch));
        Self { recording: disk.into_recording(), requests, model }
    }

    /// Chooses the moment of the power loss, often right after a reply or after opening.
    fn crash_position(&self, random: &mut Random) -> usize {
        let entries = self.requests.entries.iter();
        let answers: Vec<usize> = entries.filter_map(|entry| Some(entry.answer.as_ref()?.0)).collect();
        let opened: Vec<usize> = self.requests.floors.iter().map(|(at, _)| *at).collect();
        let length = self.recording.ops.len();
        let moments = match random.below(6) {
            0 => &opened[..],
            1..=3 => &answers[..],
            _ => &[],
        };
        match random.pick(moments) {
            Some(at) => (at + random.below(3) as usize).min(length),
            None => random.below(length as u64 + 1) as usize,
        }
    }
}

/// Records a trace and tries its states.
fn run_trace(number: u64, only: Option<u64>) {
    try_states(&OperationTrace::record(number), "whole", number, only);
}

/// Tries the states of a trace, or only one of them.
fn try_states(trace: &OperationTrace, kind: &str, number: u64, only: Option<u64>) {
    let mut states: Vec<(usize, u64)> = (number * STATES..(number + 1) * STATES)
        .filter(|seed| only.is_none_or(|only| only == *seed))
        .map(|seed| (trace.crash_position(&mut Random::new(seed)), seed))
        .collect();
    states.sort_unstable();
    let mut player = CrashSimulator::new(&trace.recording);
    for (cut, seed) in states {
        player.advance(cut);
        let mut random = Random::new(!seed);
        let dir = crash_directory(&player, &mut random);
        let name =
            format!("PUSH_POWER_SEED={seed}, trace {number} ({kind}), cut {cut} of {}", trace.recording.ops.len());
        if random.one_in(6) {
            crash_again(trace, cut, dir, &mut random, &name);
        } else {
            verify(trace, cut, dir, &mut random, &name);
        }
    }
}

/// Creates the directory as found after the power loss.
fn crash_directory(player: &CrashSimulator<'_>, random: &mut Random) -> TempDir {
    let dir = directory();
    player.lose_power(random, dir.path());
    if random.one_in(3) {
        // The shared memory of the log is a file too, and is never synced.
        let shared = (0..32 * 1024).map(|_| random.below(256) as u8).collect::<Vec<_>>();
        std::fs::write(dir.path().join("pushd.db-shm"), shared).expect("a file");
    }
    dir
}

/// Opens a crash state and compares it with the replies.
fn verify(trace: &OperationTrace, cut: usize, dir: TempDir, random: &mut Random, name: &str) {
    let options = Options { readers: 1, reserve_bytes: 0, boot: 99, ..Options::default() };
    let journal = Journal::open(dir.path(), options).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    let (found, count) = read_back(trace, cut, &journal, name);
    let mut workload = Workload::resume(random.next(), &found);
    let batches: Vec<Batch> = (0..3).map(|_| Batch { durability: Durability::Synced, ..workload.batch() }).collect();
    for batch in &batches {
        let answer = block_on(journal.commit(batch.clone())).expect("an answer");
        answer.unwrap_or_else(|error| panic!("{name}: what follows is refused: {error:?}"));
    }
    block_on(journal.close()).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    let journal = Journal::open(dir.path(), options).unwrap_or_else(|error| panic!("{name}: again: {error:?}"));
    let seen = JournalContents::read(&journal, usize::MAX).unwrap_or_else(|error| panic!("{name}: again: {error:?}"));
    let kept = trace.requests.entries.iter().take(count).map(|entry| &entry.batch);
    let model = Model::of(kept.chain(&batches));
    let whole = count + batches.len();
    assert_eq!(
        model.find(&seen, whole, whole),
        Some(whole),
        "{name}: opened again:\n{}",
        model.describe_differences(&seen, whole)
    );
    for (session, before) in &found.sessions {
        assert_eq!(seen.sessions[session].holes, before.holes, "{name}: the holes of {session}");
    }
    block_on(journal.close()).unwrap_or_else(|error| panic!("{name}: {error:?}"));
}

/// Reads everything and determines how many of the batches are there.
fn read_back(trace: &OperationTrace, cut: usize, journal: &Journal, name: &str) -> (JournalContents, usize) {
    let seen = JournalContents::read(journal, 20_000).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    let (least, most) = trace.requests.bounds(cut);
    let Some(count) = trace.model.find(&seen, least, most) else {
        let short = trace.model.find(&seen, 0, least);
        panic!(
            "{name}: {least} to {most} batches should be there, there are {short:?}; least:\n{}most:\n{}",
            trace.model.describe_differences(&seen, least),
            trace.model.describe_differences(&seen, most)
        );
    };
    let shown = trace
        .requests
        .entries
        .iter()
        .filter(|entry| entry.answer.as_ref().is_some_and(|(at, result)| *at <= cut && result.is_ok()));
    let unexplained = Model::unexplained(&seen, shown.map(|entry| &entry.batch));
    assert_eq!(unexplained, [""; 0], "{name}: events are lost without a report; there is {seen:#?}");
    let losses = block_on(journal.losses(1_000)).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    let strange: Vec<_> = losses.iter().filter(|loss| loss.cause != LossReason::Power.as_str()).collect();
    assert!(strange.is_empty(), "{name}: nothing was damaged: {strange:?}");
    (seen, count)
}

/// Loses power again while the crash state is opened or soon after.
fn crash_again(trace: &OperationTrace, cut: usize, dir: TempDir, random: &mut Random, name: &str) {
    let name = format!("{name}, and again");
    let mut workload = Workload::new(random.next());
    let options = Options { boot: 2, ..workload.options() };
    let requests = RequestLog { before: 0, floors: Vec::new(), entries: trace.requests.entries.clone() };
    let mut driver =
        Driver::open(Disk::on(dir), options, requests).unwrap_or_else(|refused| panic!("{name}: {:?}", refused.1));
    let (seen, count) = read_back(trace, cut, &driver.journal, &name);
    driver.set_found(count);
    let mut workload = Workload::resume(random.next(), &seen);
    for _ in 0..random.below(6) {
        driver = workload.step(driver);
    }
    let mut trace = OperationTrace::of(driver);
    // A disk returns the same content on every read: the first batches count as there from the start.
    trace.requests.before = count;
    let cut = random.below(trace.recording.ops.len() as u64 + 1) as usize;
    let mut player = CrashSimulator::new(&trace.recording);
    player.advance(cut);
    verify(&trace, cut, crash_directory(&player, random), random, &name);
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

/// How many states of a trace are tried.
const STATES: u64 = 25;
/// How many traces have a failing sync.
const FAILING: u64 = 6;
