//! Simulates a power loss on a recording: produces states of the disk that may be found afterwards.
//!
//! Operations synced before the crash are there. Of all later ones any part may be missing, down to single
//! sectors, for each file independently. Their order on the disk only shows in which of two writes to the same
//! position is on top, so losing the later one is the same as reordering them. A name has its value at the last
//! sync of the directory, or any later value.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{Op, Recording};
use crate::random::Random;

/// The possible disk contents at one position of a recording; it only moves forward.
pub(in super::super) struct CrashSimulator<'a> {
    recording: &'a Recording,
    at: usize,
    files: Vec<FileImage>,
    /// The durable names, and their changes since.
    names: BTreeMap<String, usize>,
    unsynced_names: Vec<(&'a str, Option<usize>)>,
}

/// One file: its durable content, and the later operations.
#[derive(Default, Clone)]
struct FileImage {
    durable: Vec<u8>,
    pending: Vec<PendingOp>,
}

/// An operation, and what is known about it.
#[derive(Clone, Copy)]
struct PendingOp {
    op: usize,
    status: OpStatus,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OpStatus {
    /// The next sync makes it durable.
    Unsynced,
    /// A sync failed; later syncs say nothing about it.
    SyncFailed,
    /// It is durable, but follows an operation whose sync failed.
    Durable,
}

/// How many of the operations that are not durable survive.
#[derive(Clone, Copy)]
enum Survival {
    All,
    None,
    /// The first so many percent.
    Prefix(u64),
    /// Each with this probability in percent.
    Random(u64),
}

impl<'a> CrashSimulator<'a> {
    pub(in super::super) fn new(recording: &'a Recording) -> Self {
        let found = recording.initial_files.values();
        let files = found.map(|bytes| FileImage { durable: bytes.clone(), pending: Vec::new() }).collect();
        let names = recording.initial_files.keys().enumerate().map(|(file, name)| (name.clone(), file)).collect();
        Self { recording, at: 0, files, names, unsynced_names: Vec::new() }
    }

    /// Moves to the moment after the first `cut` operations.
    pub(in super::super) fn advance(&mut self, cut: usize) {
        let recording = self.recording;
        for (index, op) in recording.ops.iter().enumerate().take(cut).skip(self.at) {
            match op {
                Op::Created { name, file } => {
                    self.image(*file);
                    self.unsynced_names.push((name, Some(*file)));
                }
                Op::Removed { name } => self.unsynced_names.push((name, None)),
                Op::NamesSynced => self.apply_names(),
                Op::Write { file, .. } | Op::Length { file, .. } => {
                    self.image(*file).pending.push(PendingOp { op: index, status: OpStatus::Unsynced });
                }
                Op::Synced { file, begun } => self.image(*file).sync(*begun, &recording.ops),
                Op::SyncFailed { file, begun, .. } => self.image(*file).fail_sync(*begun),
            }
        }
        self.at = self.at.max(cut);
    }

    /// Writes one of the possible states into `dir`.
    pub(in super::super) fn lose_power(&self, random: &mut Random, dir: &Path) {
        let mut names = self.names.clone();
        let mut changed: Vec<&str> = self.unsynced_names.iter().map(|(name, _)| *name).collect();
        changed.dedup();
        for name in changed {
            let mut values = vec![self.names.get(name).copied()];
            values.extend(self.unsynced_names.iter().filter(|(other, _)| *other == name).map(|(_, file)| *file));
            match values[random.below(values.len() as u64) as usize] {
                Some(file) => names.insert(name.to_owned(), file),
                None => names.remove(name),
            };
        }
        for (name, file) in names {
            let bytes = self.files[file].random_content(random, &self.recording.ops);
            fs::write(dir.join(name), bytes).expect("a file");
        }
    }

    /// Returns the content of a file as a reader sees it before the power loss.
    pub(in super::super) fn read(&self, name: &str) -> Option<Vec<u8>> {
        let known = self.unsynced_names.iter().rev().find(|(other, _)| *other == name).map(|(_, file)| *file);
        let file = known.unwrap_or_else(|| self.names.get(name).copied())?;
        let FileImage { durable, pending: later } = &self.files[file];
        let mut bytes = durable.clone();
        later.iter().for_each(|later| apply(&mut bytes, &self.recording.ops[later.op]));
        Some(bytes)
    }

    fn image(&mut self, file: usize) -> &mut FileImage {
        if self.files.len() <= file {
            self.files.resize(file + 1, FileImage::default());
        }
        &mut self.files[file]
    }

    fn apply_names(&mut self) {
        for (name, file) in self.unsynced_names.drain(..) {
            match file {
                Some(file) => self.names.insert(name.to_owned(), file),
                None => self.names.remove(name),
            };
        }
    }
}

impl FileImage {
    fn sync(&mut self, begun: usize, ops: &[Op]) {
        for later in &mut self.pending {
            if later.op < begun && later.status == OpStatus::Unsynced {
                later.status = OpStatus::Durable;
            }
        }
        // Everything up to the first doubtful operation is durable.
        let certain = self.pending.iter().take_while(|later| later.status == OpStatus::Durable).count();
        for later in self.pending.drain(..certain) {
            apply(&mut self.durable, &ops[later.op]);
        }
    }

    fn fail_sync(&mut self, begun: usize) {
        for later in &mut self.pending {
            if later.op < begun && later.status == OpStatus::Unsynced {
                later.status = OpStatus::SyncFailed;
            }
        }
    }

    /// Returns one possible content.
    fn random_content(&self, random: &mut Random, ops: &[Op]) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        let survival = match random.below(8) {
            0 => Survival::All,
            1 => Survival::None,
            2..=4 => Survival::Prefix(random.below(100)),
            5 => Survival::Random(95),
            6 => Survival::Random(5),
            _ => Survival::Random(50),
        };
        let mut shrunk = false;
        for (number, later) in self.pending.iter().enumerate() {
            shrunk |= matches!(ops[later.op], Op::Length { .. });
            let kept = later.status == OpStatus::Durable
                || match survival {
                    Survival::All => true,
                    Survival::None => false,
                    Survival::Prefix(share) => (number as u64) * 100 < share * self.pending.len() as u64,
                    Survival::Random(chance) => random.below(100) < chance,
                };
            // Near the cut, and sometimes elsewhere, a write is torn.
            let torn = later.status != OpStatus::Durable && !matches!(survival, Survival::All | Survival::None);
            if torn && random.one_in(6) {
                tear(&mut bytes, &ops[later.op], random);
            } else if kept {
                apply(&mut bytes, &ops[later.op]);
            }
        }
        let loose = self.pending.iter().all(|later| later.status != OpStatus::Durable);
        if loose && !shrunk && bytes.len() > self.durable.len() {
            let (sectors, grown) = (bytes.len() / SECTOR, (bytes.len() - self.durable.len()) / SECTOR);
            match random.below(6) {
                // The length is an earlier one.
                0 => bytes.truncate((sectors * SECTOR).max(self.durable.len())),
                1 => {
                    bytes.truncate(self.durable.len().max((sectors - random.below(grown as u64 + 1) as usize) * SECTOR))
                }
                // The length is a later one, and the new bytes were not written.
                2 => bytes.resize(bytes.len() + random.below(3 * 4096) as usize, 0),
                _ => {}
            }
        }
        bytes
    }
}

/// Applies an operation completely.
fn apply(bytes: &mut Vec<u8>, op: &Op) {
    match op {
        Op::Write { at, bytes: written, .. } => put(bytes, *at as usize, written),
        Op::Length { len, .. } => bytes.resize(*len as usize, 0),
        Op::Created { .. } | Op::Removed { .. } | Op::NamesSynced | Op::Synced { .. } | Op::SyncFailed { .. } => {}
    }
}

/// Applies a write partially: some of the sectors that it touches.
fn tear(bytes: &mut Vec<u8>, op: &Op, random: &mut Random) {
    let Op::Write { at, bytes: written, .. } = op else { return };
    let at = *at as usize;
    let pieces: Vec<(usize, usize)> = (at / SECTOR..=(at + written.len() - 1) / SECTOR)
        .map(|sector| ((sector * SECTOR).max(at), ((sector + 1) * SECTOR).min(at + written.len())))
        .collect();
    let count = pieces.len() as u64;
    let (way, border) = (random.below(3), random.below(count + 1));
    for (number, (from, to)) in pieces.into_iter().enumerate() {
        let kept = match way {
            0 => (number as u64) < border,
            1 => (number as u64) >= border,
            _ => random.one_in(2),
        };
        if kept {
            put(bytes, from, &written[from - at..to - at]);
        }
    }
}

fn put(bytes: &mut Vec<u8>, at: usize, written: &[u8]) {
    let end = at + written.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at..end].copy_from_slice(written);
}

/// The unit that a disk writes atomically.
const SECTOR: usize = 512;
