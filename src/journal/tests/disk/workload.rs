//! A random workload: the batches that lanes commit, generated from a seed.

use bytes::Bytes;

use super::super::super::{Batch, Block, Checkpoint, Create, Durability, Meta, Options};
use super::ledger::Driver;
use super::model::{JournalContents, OPENED, SessionContents};
use crate::kernel::id::{Fingerprint, Seq};
use crate::kernel::time::Now;
use crate::random::Random;
use std::time::Duration;

/// The sessions and their positions.
pub(in super::super) struct Workload {
    pub(in super::super) random: Random,
    sessions: Vec<LaneState>,
    /// Makes all metadata, and with it every batch that has some, unique.
    tick: u64,
}

/// A session as its lane knows it.
struct LaneState {
    name: String,
    /// The last issued number.
    last: u64,
    /// The last number that may be issued.
    reserved: u64,
}

impl Workload {
    pub(in super::super) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), sessions: Vec::new(), tick: OPENED }
    }

    /// Continues with the contents of an existing journal.
    pub(in super::super) fn resume(seed: u64, seen: &JournalContents) -> Self {
        let lane = |(name, found): (&String, &SessionContents)| {
            let reserved = found.reserved.number();
            LaneState { name: name.clone(), last: found.end().max(reserved), reserved }
        };
        let sessions = seen.sessions.iter().map(lane).collect();
        Self { random: Random::new(seed), sessions, tick: 1_000_000 }
    }

    /// Limits that make much happen in little time.
    pub(in super::super) fn options(&mut self) -> Options {
        Options {
            // A delay that never passes, or has passed already: time must not influence the result.
            sync_within: Duration::from_secs(if self.random.one_in(4) { 0 } else { 3_600 }),
            checkpoint_pages: *self.random.pick(&[3, 12, 60]).expect("a bound"),
            group_bytes: *self.random.pick(&[2_000, 20_000, 1 << 22]).expect("a bound"),
            readers: 2,
            reserve_bytes: 8_192,
            boot: BOOT,
            ..Options::default()
        }
    }

    /// Runs one step; a step that is not a batch is finished when this returns.
    pub(in super::super) fn step(&mut self, driver: Driver) -> Driver {
        match self.random.below(40) {
            0 => {
                self.restore();
                return driver.reopen();
            }
            12..=13 => {
                self.restore();
                return driver.kill_and_reopen();
            }
            4..=5 => drop(JournalContents::read(&driver.journal, self.page()).expect("readable")),
            6..=11 => self.burst(&driver),
            _ => {
                let batch = self.batch();
                driver.commit(batch).expect("kept");
            }
        }
        driver
    }

    /// Continues above every number that may have been issued, as a lane does when it restores its session.
    ///
    /// The journal relies on it: the next reservation records durably that the session was in use.
    fn restore(&mut self) {
        for lane in &mut self.sessions {
            lane.last = lane.last.max(lane.reserved);
            lane.reserved = lane.last;
        }
    }

    /// Chooses a page size.
    pub(in super::super) fn page(&mut self) -> usize {
        *self.random.pick(&[2_000, 20_000, usize::MAX]).expect("a size")
    }

    /// Submits several batches so that they form one group.
    fn burst(&mut self, driver: &Driver) {
        driver.disk.hold_sync();
        let mut plug = self.batch();
        plug.durability = Durability::Synced;
        plug.token_hash = Some([9; 32]);
        let mut flight = vec![plug.session.as_str().to_owned()];
        driver.submit(plug);
        driver.disk.wait_until_held(|| driver.is_idle());
        let count = 1 + self.random.below(4);
        for _ in 0..count {
            let batch = self.batch_excluding(&flight);
            flight.push(batch.session.as_str().to_owned());
            driver.submit(batch);
        }
        driver.disk.release_sync();
        driver.wait_for_replies();
    }

    /// Generates a batch.
    pub(in super::super) fn batch(&mut self) -> Batch {
        self.batch_excluding(&[])
    }

    /// Generates a batch of a session that has none in `flight`, because a lane waits for a reply before it
    /// continues.
    fn batch_excluding(&mut self, flight: &[String]) -> Batch {
        let random = &mut self.random;
        self.tick += 1;
        let free: Vec<usize> =
            (0..self.sessions.len()).filter(|index| !flight.contains(&self.sessions[*index].name)).collect();
        let new = free.is_empty() || (self.sessions.len() < SESSIONS && random.one_in(8));
        if new {
            let name = format!("s{}", self.sessions.len());
            self.sessions.push(LaneState { name, last: 0, reserved: 0 });
        }
        let index = if new { self.sessions.len() - 1 } else { *random.pick(&free).expect("a session") };
        let LaneState { name, last, reserved } = &mut self.sessions[index];
        let mut batch = Batch::new(name.as_str().into());
        if random.one_in(3) {
            batch.durability = Durability::Synced;
        }
        if !new && random.one_in(20) {
            return batch;
        }
        if new {
            let start_key = random.one_in(2).then(|| (format!("key of {name}"), Fingerprint(self.tick.into())));
            batch.create = Some(Create { token_hash: [7; 32], start_key, opened_at: Now(OPENED) });
        }
        if !random.one_in(6) {
            let block = block(name, *last + 1 + random.below(30) / 28 * 7, random);
            *last = block.last.number();
            batch.block = Some(block);
        }
        if *last > *reserved || random.one_in(12) {
            // As lanes do: no number is published before its reservation is on disk. Sometimes a reservation is
            // lowered.
            *reserved = *last + random.below(10) / 3 * 60;
            batch.reserved_seq = Some(Seq::new(*reserved));
            batch.durability = Durability::Synced;
        }
        if random.one_in(12) {
            batch.token_hash = Some([random.below(250) as u8; 32]);
        }
        if *last > 0 && random.one_in(10) {
            let bytes = vec![b'c'; random.below(9_000) as usize];
            batch.checkpoint = Some(Checkpoint { seq: Seq::new(1 + random.below(*last)), bytes: bytes.into() });
        }
        if batch.is_empty() || !random.one_in(3) {
            batch.meta = Some(Meta {
                session: name.as_str().into(),
                state: "idle".into(),
                updated_at: Now(self.tick),
                opened_at: Now(OPENED),
                active_run: random.one_in(2).then(|| "run".into()),
                summary: "x".repeat(random.below(300) as usize),
            });
        }
        batch
    }
}

/// Generates a block that begins at `first`.
fn block(name: &str, first: u64, random: &mut Random) -> Block {
    let count = if random.one_in(3) { 1 + random.below(50) } else { 1 + random.below(4) };
    let width = if random.one_in(20) { 6_000 } else { random.below(120) as usize };
    let last = first + count - 1;
    let text: String = (first..=last).map(|seq| format!("{name} {seq} {:w$}\n", "", w = width)).collect();
    let count = u32::try_from(count).expect("a small block");
    Block { first: Seq::new(first), last: Seq::new(last), count, bytes: Bytes::from(text) }
}

/// The maximum number of sessions.
const SESSIONS: usize = 6;
/// The boot id before the power loss.
pub(in super::super) const BOOT: u128 = 1;
