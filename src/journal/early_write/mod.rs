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

mod early_record;
#[cfg(not(target_os = "linux"))]
#[path = "elsewhere.rs"]
mod os;
#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod os;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rusqlite::{Connection, OptionalExtension};
use sha2::{Digest, Sha256};

use super::EARLY_WRITE_KEY;
use super::apply::{self, Epoch};
use super::error::CommitError;
use super::files::{RawFile, StorageEnv};
use super::record::Batch;
use super::reserve::DiskReserve;
use super::row;
use crate::kernel::id::{Seq, SessionId};
use early_record::{EarlyRecord, KEY_BYTES, RecordCipher};

/// The slots for early writes of a journal.
pub(super) struct EarlyWrites {
    path: PathBuf,
    cipher: RecordCipher,
    /// Created on first use, because most daemons write nothing early for most of their lifetime.
    file: OnceLock<Option<File>>,
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    /// The session whose batch occupies each slot.
    owners: [Option<SessionId>; SLOT_COUNT],
    /// The nonce of the next record; each is used once with this key.
    next_nonce: u64,
    /// Whether the file has lost its name, so that the next epoch would not find it, or is closed.
    unusable: bool,
}

/// A batch that was written early and is not known to be committed.
pub struct EarlyWrite {
    early_writes: Arc<EarlyWrites>,
    slot: usize,
    bytes: usize,
}

/// How many batches can be written early at once.
const SLOT_COUNT: usize = 8;
/// The size of a slot.
const SLOT_BYTES: usize = 8 * 1024;

impl EarlyWrites {
    /// Commits what the previous epoch left, and returns the slots for this one and the number of recovered
    /// batches.
    ///
    /// There are no slots without an in-memory file system, or if an operation fails.
    pub(super) fn open(
        env: &StorageEnv,
        connection: &Connection,
        epoch: &Epoch,
        reserve: &DiskReserve,
    ) -> (Option<Arc<Self>>, usize) {
        let Some(memory) = env.memory_dir.as_ref().filter(|memory| os::is_tmpfs(memory)) else {
            return (None, 0);
        };
        let mut recovered = 0;
        let opened = Self::open_in(memory, env, |records| recover(connection, epoch, reserve, records, &mut recovered));
        if recovered > 0 {
            tracing::info!(batches = recovered, "committed the early writes of the previous process");
        }
        let opened =
            opened.inspect_err(|error| tracing::warn!(%error, memory = %memory.display(), "early writes are disabled"));
        (opened.ok().map(Arc::new), recovered)
    }

    fn open_in(
        memory: &Path,
        env: &StorageEnv,
        take_up: impl FnOnce(Vec<EarlyRecord>) -> Result<(), CommitError>,
    ) -> io::Result<Self> {
        let path = memory.join(file_name(&fs::canonicalize(&env.dir)?));
        let kept = (env.open_file)(&env.path(EARLY_WRITE_KEY))?;
        if let Some(file) = os::open(&path)? {
            take_up(read_records(&file, kept.as_ref())?).map_err(io::Error::other)?;
            // With the new key the old content is unreadable.
            fs::remove_file(&path)?;
        }
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        kept.write_at(0, &key)?;
        let slots = Mutex::new(Slots::default());
        Ok(Self { path, cipher: RecordCipher::new(&key)?, file: OnceLock::new(), slots })
    }

    /// Writes a batch that consists only of events after `after` into a slot.
    ///
    /// It never waits for a lock or for a disk.
    pub(super) fn write(self: &Arc<Self>, batch: &Batch, after: Seq) -> Option<EarlyWrite> {
        let block = batch.block.as_ref().filter(|_| batch.is_events_only())?;
        if block.bytes.len() > SLOT_BYTES - early_record::OVERHEAD_BYTES - batch.session.as_str().len() {
            return None;
        }
        let mut slots = self.slots.try_lock().ok()?;
        let file = self.file.get_or_init(|| self.create_file()).as_ref()?;
        let slot = slots.owners.iter().position(Option::is_none).filter(|_| !slots.unusable)?;
        let sealed = self.cipher.encrypt(&batch.session, after, block, slots.next_nonce)?;
        slots.next_nonce += 1;
        file.write_at(slot_offset(slot), &sealed).ok()?;
        slots.owners[slot] = Some(batch.session.clone());
        Some(EarlyWrite { early_writes: Arc::clone(self), slot, bytes: sealed.len() })
    }

    /// Erases the records of a deleted session.
    pub(super) fn erase_session(&self, session: &SessionId) {
        let mut slots = self.lock();
        for slot in 0..SLOT_COUNT {
            if slots.owners[slot].as_ref() == Some(session) {
                self.wipe(&mut slots, slot, SLOT_BYTES);
            }
        }
    }

    /// Removes the file on a clean close, unless it holds a record that is in no database.
    pub(super) fn close(&self) {
        let mut slots = self.lock();
        slots.unusable = true;
        if slots.owners.iter().all(Option::is_none)
            && let Some(Some(_)) = self.file.get()
            && let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "cannot remove the early-write file");
        }
    }

    fn create_file(&self) -> Option<File> {
        let made = os::create(&self.path);
        made.inspect_err(|error| tracing::warn!(%error, "early writes are disabled")).ok()
    }

    /// Overwrites a slot with zeros and frees it; a slot that cannot be overwritten is not used again.
    fn wipe(&self, slots: &mut Slots, slot: usize, bytes: usize) {
        let Some(Some(file)) = self.file.get() else { return };
        if file.write_at(slot_offset(slot), &[0; SLOT_BYTES][..bytes]).is_ok() {
            slots.owners[slot] = None;
        }
        // Checked here, because no caller waits for it.
        slots.unusable |= !os::is_linked(file);
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EarlyWrite {
    /// Frees the slot after the batch was committed.
    pub fn release(self) {
        let mut slots = self.early_writes.lock();
        self.early_writes.wipe(&mut slots, self.slot, self.bytes);
    }
}

impl std::fmt::Debug for EarlyWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EarlyWrite").field("slot", &self.slot).finish_non_exhaustive()
    }
}

/// Commits the records that are missing in the database, and counts them.
///
/// A record that does not continue its session is skipped: it was committed already.
fn recover(
    connection: &Connection,
    epoch: &Epoch,
    reserve: &DiskReserve,
    records: Vec<EarlyRecord>,
    recovered: &mut usize,
) -> Result<(), CommitError> {
    for record in records {
        let mut batch = Batch::new(record.session);
        batch.block = Some(record.block);
        loop {
            match recover_record(connection, epoch, &batch, record.after) {
                Ok(new) => *recovered += usize::from(new),
                Err(CommitError::Full) if reserve.release() => continue,
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

fn recover_record(connection: &Connection, epoch: &Epoch, batch: &Batch, after: Seq) -> Result<bool, CommitError> {
    let transaction = connection.unchecked_transaction()?;
    let Some(key) = apply::key(&transaction, &batch.session)? else { return Ok(false) };
    let reached: Option<i64> = transaction
        .prepare_cached("SELECT last FROM block WHERE session = ?1 ORDER BY first DESC LIMIT 1")?
        .query_row([key], |row| row.get(0))
        .optional()?;
    if reached.map_or(0, row::unsigned) != after.number() {
        return Ok(false);
    }
    apply::apply(&transaction, batch, epoch)?;
    transaction.commit()?;
    Ok(true)
}

/// Reads all records that the key decrypts.
fn read_records(file: &File, kept: &dyn RawFile) -> io::Result<Vec<EarlyRecord>> {
    let mut key = [0; KEY_BYTES];
    if kept.read_at(0, &mut key)? < KEY_BYTES {
        return Ok(Vec::new());
    }
    let seal = RecordCipher::new(&key)?;
    let mut records = Vec::new();
    let mut slot = vec![0; SLOT_BYTES];
    for index in 0..SLOT_COUNT {
        let bytes = RawFile::read_at(file, slot_offset(index), &mut slot)?;
        records.extend(seal.decrypt(&slot[..bytes]));
    }
    Ok(records)
}

const fn slot_offset(slot: usize) -> u64 {
    (slot * SLOT_BYTES) as u64
}

/// Returns the file name for the daemon with its database in `state`.
pub(super) fn file_name(state: &Path) -> String {
    let digest = Sha256::digest(state.as_os_str().as_encoded_bytes());
    let digits: String = digest.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    format!("pushd-{}-{digits}", os::user_id())
}
