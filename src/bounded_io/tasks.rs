//! File operations that may never return: they run on blocking threads, limited by slots and by a deadline.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The slots for one kind of work; clones share them.
///
/// A thread that is blocked by a file system keeps its slot until it returns, so that blocked threads cannot
/// accumulate. Work in one directory gets at most a quarter of the slots: a workspace that hangs leaves the rest to
/// others.
#[derive(Debug, Clone)]
pub struct FileTasks {
    slots: Arc<Slots>,
    /// The maximum number of slots for one directory.
    slots_per_directory: usize,
    /// The slots of directories with work in progress.
    directory_slots: Arc<Mutex<BTreeMap<PathBuf, Weak<Slots>>>>,
    /// How long work may take, and how long it waits while no other work ends.
    deadline: Duration,
}

/// A number of slots.
#[derive(Debug)]
struct Slots {
    free: Arc<Semaphore>,
    /// How often a slot was given back.
    returned: AtomicU64,
}

/// A slot in use.
struct Slot {
    slots: Arc<Slots>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.returned.fetch_add(1, Ordering::Relaxed);
    }
}

impl Slots {
    fn new(number: usize) -> Arc<Self> {
        Arc::new(Self { free: Arc::new(Semaphore::new(number)), returned: AtomicU64::new(0) })
    }

    /// Waits for a slot, as long as others are given back: many tasks on a busy machine are no file system that hangs.
    async fn acquire(self: Arc<Self>, deadline: Duration) -> Result<Slot, FileTaskError> {
        let mut acquiring = pin!(Arc::clone(&self.free).acquire_owned());
        loop {
            let returned = self.returned.load(Ordering::Relaxed);
            match timeout(deadline, &mut acquiring).await {
                Ok(Ok(permit)) => return Ok(Slot { slots: self, _permit: permit }),
                Err(_) if self.returned.load(Ordering::Relaxed) != returned => {}
                Ok(Err(_)) | Err(_) => return Err(FileTaskError::Busy),
            }
        }
    }
}

/// Why a file task has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FileTaskError {
    /// The file system did not answer before the deadline.
    #[error("the file system did not answer within {0:?}; check whether its mount responds")]
    TimedOut(Duration),
    /// All slots were taken, and none was given back before the deadline.
    #[error("too many file operations wait for a file system that does not answer; check whether its mount responds")]
    Busy,
    /// The work panicked.
    #[error("the daemon failed while it read a file")]
    Panicked,
}

impl FileTasks {
    /// Creates `slots` slots; each use of one is limited by `deadline`.
    pub fn new(slots: usize, deadline: Duration) -> Self {
        let slots_per_directory = slots.div_ceil(4);
        Self { slots: Slots::new(slots), slots_per_directory, directory_slots: Arc::default(), deadline }
    }

    /// Runs work in a directory, such as the workspace of a session, like [`Self::run`].
    pub async fn run_in<T: Send + 'static>(
        &self,
        directory: &Path,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, FileTaskError> {
        let share = self.slots_for(directory).acquire(self.deadline).await?;
        self.run(move || {
            let _share = share;
            work()
        })
        .await
    }

    /// Runs blocking work off the async runtime and waits for it until the deadline.
    ///
    /// Work that misses the deadline continues in the background; its result is dropped.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, FileTaskError> {
        let slot = Arc::clone(&self.slots).acquire(self.deadline).await?;
        let working = tokio::task::spawn_blocking(move || {
            let _slot = slot;
            work()
        });
        match timeout(self.deadline, working).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(_)) => Err(FileTaskError::Panicked),
            Err(_) => Err(FileTaskError::TimedOut(self.deadline)),
        }
    }

    /// Returns the slots of a directory; the entry is removed when no slot of it is in use.
    fn slots_for(&self, directory: &Path) -> Arc<Slots> {
        let mut shares = self.directory_slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = shares.get(directory).and_then(Weak::upgrade) {
            return known;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Slots::new(self.slots_per_directory);
        shares.insert(directory.to_owned(), Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_hung_task_times_out_and_keeps_its_slot() {
        let tasks = FileTasks::new(2, Duration::from_millis(20));
        let patient = FileTasks { deadline: Duration::from_secs(600), ..tasks.clone() };
        let (release, held) = mpsc::channel::<()>();
        let late = tasks.run(move || held.recv().is_ok()).await;
        assert_eq!(late, Err(FileTaskError::TimedOut(Duration::from_millis(20))));
        // Other work is still served.
        assert_eq!(patient.run(|| 7).await, Ok(7));
        let (release_too, held) = mpsc::channel::<()>();
        assert!(tasks.run(move || held.recv().is_ok()).await.is_err());
        assert_eq!(tasks.slots.free.available_permits(), 0);
        assert_eq!(tasks.run(|| 7).await, Err(FileTaskError::Busy));
        drop((release, release_too));
        assert_eq!(patient.run(|| 8).await, Ok(8));
    }

    #[tokio::test]
    async fn a_hung_directory_leaves_slots_for_others() {
        let tasks = FileTasks::new(8, Duration::from_millis(20));
        let patient = FileTasks { deadline: Duration::from_secs(600), ..tasks.clone() };
        let (hung, other) = (Path::new("/hung"), Path::new("/other"));
        let mut held = Vec::new();
        for answer in
            [FileTaskError::TimedOut(tasks.deadline), FileTaskError::TimedOut(tasks.deadline), FileTaskError::Busy]
        {
            let (release, waits) = mpsc::channel::<()>();
            held.push(release);
            assert_eq!(tasks.run_in(hung, move || waits.recv().is_ok()).await, Err(answer));
        }
        assert_eq!(tasks.slots.free.available_permits(), 6);
        assert_eq!(patient.run_in(other, || 7).await, Ok(7));
        drop(held);
        assert_eq!(patient.run_in(hung, || 8).await, Ok(8));
        // Every blocked thread has returned.
        drop(tasks.slots.free.acquire_many(8).await.unwrap());
        // No entry is kept for a directory without work in progress.
        assert_eq!(patient.run_in(other, || 9).await, Ok(9));
        assert_eq!(tasks.directory_slots.lock().unwrap().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn work_waits_longer_than_the_deadline_while_other_work_ends() {
        let (slots, deadline) = (Slots::new(1), Duration::from_secs(5));
        let held = Arc::clone(&slots).acquire(deadline).await.ok();
        let others = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(4)).await;
                slots.returned.fetch_add(1, Ordering::Relaxed);
            }
            drop(held);
        };
        let (waited, ()) = tokio::join!(Arc::clone(&slots).acquire(deadline), others);
        assert!(waited.is_ok(), "a slot is free after 12 s");
        assert!(Arc::clone(&slots).acquire(deadline).await.is_err(), "nothing ends");
    }

    #[tokio::test]
    async fn a_panic_is_reported() {
        let tasks = FileTasks::new(1, Duration::from_secs(60));
        let failed: Result<(), FileTaskError> = tasks.run(|| panic!("on purpose")).await;
        assert_eq!(failed, Err(FileTaskError::Panicked));
        assert_eq!(tasks.run(|| 1).await, Ok(1));
    }
}
