//! Early writes: a few events in memory that survives the process, before they are in the database.
//!
//! A single commit takes a fifth of a millisecond, on another thread. To publish the output of a model sooner, its
//! events are first written to an in-memory file, which the kernel keeps when the process ends; the commit
//! follows. The next start commits the records that are missing in the database before anything is read. If the
//! machine stops, the file is lost, like everything that is not synced.
//!
//! Other users can see the file's name, and without a sandbox a model's commands can open it. Its records are
//! therefore encrypted and authenticated with a key that is stored beside the database and renewed in every epoch:
//! without read access to the database directory nobody can read or forge a record.
//!
//! Each session has at most one batch in flight, and each batch takes one of a few slots. If no slot is free, if
//! there is no such memory, or if an operation fails, the batch is published after its commit.

#[cfg(not(target_os = "linux"))]
#[path = "elsewhere.rs"]
mod os;
#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod os;
mod slip;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rusqlite::{Connection, OptionalExtension};
use sha2::{Digest, Sha256};

use super::AHEAD;
use super::apply::{self, Life};
use super::error::CommitError;
use super::files::{Ground, RawFile};
use super::record::Batch;
use super::row;
use super::spare::Spare;
use crate::kernel::id::{Seq, SessionId};
use slip::{KEY, Seal, Slip};

/// The slots for early writes of a journal.
pub(super) struct Ahead {
    path: PathBuf,
    seal: Seal,
    /// Created on first use, because most daemons write nothing early for most of their lifetime.
    file: OnceLock<Option<File>>,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    /// The session whose batch occupies each slot.
    used: [Option<SessionId>; PLACES],
    /// The nonce of the next record; each is used once with this key.
    sealed: u64,
    /// Whether the file has lost its name, so that the next epoch would not find it, or is closed.
    lost: bool,
}

/// A batch that was written early and is not known to be committed.
pub struct Early {
    ahead: Arc<Ahead>,
    place: usize,
    bytes: usize,
}

/// How many batches can be written early at once.
const PLACES: usize = 8;
/// The size of a slot.
const ROOM: usize = 8 * 1024;

impl Ahead {
    /// Commits what the previous epoch left, and returns the slots for this one and the number of recovered
    /// batches.
    ///
    /// There are no slots without an in-memory file system, or if an operation fails.
    pub(super) fn begin(
        ground: &Ground,
        connection: &Connection,
        life: &Life,
        spare: &Spare,
    ) -> (Option<Arc<Self>>, usize) {
        let Some(memory) = ground.memory.as_ref().filter(|memory| os::is_memory(memory)) else {
            return (None, 0);
        };
        let mut taken = 0;
        let begun =
            Self::begin_in(memory, ground, |slips| take_up(connection, life, spare, slips, &mut taken));
        if taken > 0 {
            tracing::info!(batches = taken, "committed the early writes of the previous process");
        }
        let begun = begun.inspect_err(
            |error| tracing::warn!(%error, memory = %memory.display(), "early writes are disabled"),
        );
        (begun.ok().map(Arc::new), taken)
    }

    fn begin_in(
        memory: &Path,
        ground: &Ground,
        take_up: impl FnOnce(Vec<Slip>) -> Result<(), CommitError>,
    ) -> io::Result<Self> {
        let path = memory.join(name(&fs::canonicalize(&ground.dir)?));
        let kept = (ground.open)(&ground.path(AHEAD))?;
        if let Some(file) = os::open(&path)? {
            take_up(read(&file, kept.as_ref())?).map_err(io::Error::other)?;
            // With the new key the old content is unreadable.
            fs::remove_file(&path)?;
        }
        let mut key = [0; KEY];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        kept.write_at(0, &key)?;
        let places = Mutex::new(Places::default());
        Ok(Self { path, seal: Seal::new(&key)?, file: OnceLock::new(), places })
    }

    /// Writes a batch that consists only of events after `after` into a slot.
    ///
    /// It never waits for a lock or for a disk.
    pub(super) fn put(self: &Arc<Self>, batch: &Batch, after: Seq) -> Option<Early> {
        let block = batch.block.as_ref().filter(|_| batch.is_plain())?;
        if block.bytes.len() > ROOM - slip::AROUND - batch.session.as_str().len() {
            return None;
        }
        let mut places = self.places.try_lock().ok()?;
        let file = self.file.get_or_init(|| self.make()).as_ref()?;
        let place = places.used.iter().position(Option::is_none).filter(|_| !places.lost)?;
        let sealed = self.seal.close(&batch.session, after, block, places.sealed)?;
        places.sealed += 1;
        file.write_at(at(place), &sealed).ok()?;
        places.used[place] = Some(batch.session.clone());
        Some(Early { ahead: Arc::clone(self), place, bytes: sealed.len() })
    }

    /// Erases the records of a deleted session.
    pub(super) fn forget(&self, session: &SessionId) {
        let mut places = self.lock();
        for place in 0..PLACES {
            if places.used[place].as_ref() == Some(session) {
                self.clear(&mut places, place, ROOM);
            }
        }
    }

    /// Removes the file on a clean close, unless it holds a record that is in no database.
    pub(super) fn end(&self) {
        let mut places = self.lock();
        places.lost = true;
        if places.used.iter().all(Option::is_none)
            && let Some(Some(_)) = self.file.get()
            && let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "cannot remove the early-write file");
        }
    }

    fn make(&self) -> Option<File> {
        let made = os::make(&self.path);
        made.inspect_err(|error| tracing::warn!(%error, "early writes are disabled")).ok()
    }

    /// Overwrites a slot with zeros and frees it; a slot that cannot be overwritten is not used again.
    fn clear(&self, places: &mut Places, place: usize, bytes: usize) {
        let Some(Some(file)) = self.file.get() else { return };
        if file.write_at(at(place), &[0; ROOM][..bytes]).is_ok() {
            places.used[place] = None;
        }
        // Checked here, because no caller waits for it.
        places.lost |= !os::is_there(file);
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Early {
    /// Frees the slot after the batch was committed.
    pub fn done(self) {
        let mut places = self.ahead.lock();
        self.ahead.clear(&mut places, self.place, self.bytes);
    }
}

impl std::fmt::Debug for Early {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EarlyWrite").field("slot", &self.place).finish_non_exhaustive()
    }
}

/// Commits the records that are missing in the database, and counts them.
///
/// A record that does not continue its session is skipped: it was committed already.
fn take_up(
    connection: &Connection,
    life: &Life,
    spare: &Spare,
    slips: Vec<Slip>,
    taken: &mut usize,
) -> Result<(), CommitError> {
    for slip in slips {
        let mut batch = Batch::new(slip.session);
        batch.block = Some(slip.block);
        loop {
            match take_up_one(connection, life, &batch, slip.after) {
                Ok(new) => *taken += usize::from(new),
                Err(CommitError::Full) if spare.spend() => continue,
                // A conflicting record will never apply, so it is skipped.
                Err(CommitError::Conflict(conflict)) => {
                    tracing::warn!(%conflict, "skipped an early write that conflicts with its session")
                }
                Err(error) => return Err(error),
            }
            break;
        }
    }
    Ok(())
}

fn take_up_one(connection: &Connection, life: &Life, batch: &Batch, after: Seq) -> Result<bool, CommitError> {
    let transaction = connection.unchecked_transaction()?;
    let Some(key) = apply::key(&transaction, &batch.session)? else { return Ok(false) };
    let reached: Option<i64> = transaction
        .prepare_cached("SELECT last FROM block WHERE session = ?1 ORDER BY first DESC LIMIT 1")?
        .query_row([key], |row| row.get(0))
        .optional()?;
    if reached.map_or(0, row::unsigned) != after.number() {
        return Ok(false);
    }
    apply::apply(&transaction, batch, life)?;
    transaction.commit()?;
    Ok(true)
}

/// Reads all records that the key decrypts.
fn read(file: &File, kept: &dyn RawFile) -> io::Result<Vec<Slip>> {
    let mut key = [0; KEY];
    if kept.read_at(0, &mut key)? < KEY {
        return Ok(Vec::new());
    }
    let seal = Seal::new(&key)?;
    let mut slips = Vec::new();
    let mut place = vec![0; ROOM];
    for index in 0..PLACES {
        let bytes = RawFile::read_at(file, at(index), &mut place)?;
        slips.extend(seal.open(&place[..bytes]));
    }
    Ok(slips)
}

const fn at(place: usize) -> u64 {
    (place * ROOM) as u64
}

/// Returns the file name for the daemon with its database in `state`.
pub(super) fn name(state: &Path) -> String {
    let digest = Sha256::digest(state.as_os_str().as_encoded_bytes());
    let digits: String = digest.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    format!("pushd-{}-{digits}", os::user())
}
