//! Written ahead: a few events that the end of the process cannot take any more, before they are in the database.
//!
//! A commit that comes alone costs a fifth of a millisecond, on another thread. What a model says may be shown sooner: it
//! is put into a file that lies in memory, which the system keeps whatever becomes of the process that wrote it, and the
//! commit follows. What is found there at the next start and is missing in the database is put there before anybody
//! reads. A machine that stops takes the file with it, as it takes everything that is not synced.
//!
//! The file stands where others can see its name, and where there are no other walls a model's commands can open it. So
//! everything in it is sealed with a key that is kept beside the database and made anew in every life: whoever cannot
//! read the one can neither read nor forge the other.
//!
//! Each session has at most one batch on its way, and each takes one of a few places. Where none is free, where there is
//! no such memory, or when anything about it fails, the batch goes the usual way and is shown when it is committed.

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

/// The places of a journal.
pub(super) struct Ahead {
    path: PathBuf,
    seal: Seal,
    /// Made when it is first used: most daemons have nothing to put there for most of their life.
    file: OnceLock<Option<File>>,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    /// Whose batch is where.
    used: [Option<SessionId>; PLACES],
    /// How many slips were sealed with this key.
    sealed: u64,
    /// Whether the file has lost its name, under which the next life would look for it.
    lost: bool,
}

/// A batch that was put ahead and is not known to be committed.
pub struct Early {
    ahead: Arc<Ahead>,
    place: usize,
    bytes: usize,
}

/// How many batches can be ahead at once.
const PLACES: usize = 8;
/// How many bytes a place has.
const ROOM: usize = 8 * 1024;

impl Ahead {
    /// Takes up what the life before has left, and returns the places for this one, and how many batches that were.
    ///
    /// There are none where no file lies in memory, or when anything about it fails.
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
            tracing::info!(batches = taken, "what was shown and not committed is in the journal");
        }
        let begun = begun.inspect_err(
            |error| tracing::warn!(%error, memory = %memory.display(), "nothing is written ahead in this life"),
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
            // With another key, what lies there is of no use to anybody.
            fs::remove_file(&path)?;
        }
        let mut key = [0; KEY];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        kept.write_at(0, &key)?;
        let places = Mutex::new(Places::default());
        Ok(Self { path, seal: Seal::new(&key)?, file: OnceLock::new(), places })
    }

    /// Puts a batch that is nothing but events after `after` where the end of this process cannot take it.
    ///
    /// It never waits: for no lock, and for no disk.
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

    /// Leaves no trace of a session that is deleted.
    pub(super) fn forget(&self, session: &SessionId) {
        let mut places = self.lock();
        for place in 0..PLACES {
            if places.used[place].as_ref() == Some(session) {
                self.clear(&mut places, place, ROOM);
            }
        }
    }

    /// Ends in good order: unless something is left that is in no database, nothing stays.
    pub(super) fn end(&self) {
        let mut places = self.lock();
        places.lost = true;
        if places.used.iter().all(Option::is_none)
            && let Some(Some(_)) = self.file.get()
            && let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "what was written ahead cannot be removed");
        }
    }

    fn make(&self) -> Option<File> {
        let made = os::make(&self.path);
        made.inspect_err(|error| tracing::warn!(%error, "nothing is written ahead in this life")).ok()
    }

    /// Wipes a place and gives it free; one that cannot be wiped is not used again.
    fn clear(&self, places: &mut Places, place: usize, bytes: usize) {
        let Some(Some(file)) = self.file.get() else { return };
        if file.write_at(at(place), &[0; ROOM][..bytes]).is_ok() {
            places.used[place] = None;
        }
        // Looked at here, where nobody waits for it.
        places.lost |= !os::is_there(file);
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Early {
    /// Says that the batch is committed, so that its place is of no more use.
    pub fn done(self) {
        let mut places = self.ahead.lock();
        self.ahead.clear(&mut places, self.place, self.bytes);
    }
}

impl std::fmt::Debug for Early {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Early").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Puts into the database what is missing there, and counts it.
///
/// A slip that does not continue its session is of no use: it is there already.
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
                // One that does not fit is of no use in any life.
                Err(CommitError::Conflict(conflict)) => {
                    tracing::warn!(%conflict, "a batch cannot be taken up")
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

/// Reads whatever the key opens.
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

/// Names the file of the daemon that has its database in `state`.
pub(super) fn name(state: &Path) -> String {
    let digest = Sha256::digest(state.as_os_str().as_encoded_bytes());
    let digits: String = digest.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    format!("pushd-{}-{digits}", os::user())
}
