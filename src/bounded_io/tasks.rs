//! File operations that may never return: they run on blocking threads, limited by slots and by a deadline.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// The slots for one kind of work; clones share them.
///
/// A thread that is blocked by a file system keeps its slot until it returns, so that blocked threads cannot
/// accumulate. Work in one directory gets at most a quarter of the slots: a workspace that hangs leaves the rest to
/// others.
#[derive(Debug, Clone)]
pub struct FileTasks {
    slots: Arc<Semaphore>,
    /// The maximum number of slots for one directory.
    share: usize,
    /// The slots of directories with work in progress.
    shares: Arc<Mutex<BTreeMap<PathBuf, Weak<Semaphore>>>>,
    deadline: Duration,
}

/// Why a file task has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The file system did not answer before the deadline.
    #[error("the file system did not answer within {0:?}; is it a mount that hangs?")]
    Late(Duration),
    /// All slots were taken until the deadline.
    #[error(
        "too many file operations wait for a file system that does not answer; is it a mount that hangs?"
    )]
    Busy,
    /// The work panicked.
    #[error("the daemon failed while it read a file")]
    Failed,
}

impl FileTasks {
    /// Creates `slots` slots; each use of one is limited by `deadline`.
    pub fn new(slots: usize, deadline: Duration) -> Self {
        let share = slots.div_ceil(4);
        Self { slots: Arc::new(Semaphore::new(slots)), share, shares: Arc::default(), deadline }
    }

    /// Runs work in a directory, such as the workspace of a session, like [`Self::run`].
    pub async fn run_in<T: Send + 'static>(
        &self,
        directory: &Path,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let until = Instant::now() + self.deadline;
        let share = slot_of(self.share_of(directory), until).await?;
        self.run_until(until, move || {
            let _share = share;
            work()
        })
        .await
    }

    /// Runs blocking work off the async runtime and waits for it until the deadline.
    ///
    /// Work that misses the deadline continues in the background; its result is dropped.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        self.run_until(Instant::now() + self.deadline, work).await
    }

    async fn run_until<T: Send + 'static>(
        &self,
        until: Instant,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let slot = slot_of(Arc::clone(&self.slots), until).await?;
        let working = tokio::task::spawn_blocking(move || {
            let _slot = slot;
            work()
        });
        match timeout_at(until, working).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(_)) => Err(NoAnswer::Failed),
            Err(_) => Err(NoAnswer::Late(self.deadline)),
        }
    }

    /// Returns the slots of a directory; the entry is removed when no slot of it is in use.
    fn share_of(&self, directory: &Path) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = shares.get(directory).and_then(Weak::upgrade) {
            return known;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(self.share));
        shares.insert(directory.to_owned(), Arc::downgrade(&share));
        share
    }
}

async fn slot_of(slots: Arc<Semaphore>, until: Instant) -> Result<OwnedSemaphorePermit, NoAnswer> {
    match timeout_at(until, slots.acquire_owned()).await {
        Ok(Ok(slot)) => Ok(slot),
        Ok(Err(_)) | Err(_) => Err(NoAnswer::Busy),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn work_that_hangs_is_answered_for_and_keeps_its_slot() {
        let tasks = FileTasks::new(2, Duration::from_millis(20));
        let patient = FileTasks { deadline: Duration::from_secs(600), ..tasks.clone() };
        let (release, held) = mpsc::channel::<()>();
        let late = tasks.run(move || held.recv().is_ok()).await;
        assert_eq!(late, Err(NoAnswer::Late(Duration::from_millis(20))));
        // Other work is still served.
        assert_eq!(patient.run(|| 7).await, Ok(7));
        let (release_too, held) = mpsc::channel::<()>();
        assert!(tasks.run(move || held.recv().is_ok()).await.is_err());
        assert_eq!(tasks.slots.available_permits(), 0);
        assert_eq!(tasks.run(|| 7).await, Err(NoAnswer::Busy));
        drop((release, release_too));
        assert_eq!(patient.run(|| 8).await, Ok(8));
    }

    #[tokio::test]
    async fn a_directory_that_hangs_leaves_slots_to_others() {
        let tasks = FileTasks::new(8, Duration::from_millis(20));
        let patient = FileTasks { deadline: Duration::from_secs(600), ..tasks.clone() };
        let (hung, other) = (Path::new("/hung"), Path::new("/other"));
        let mut held = Vec::new();
        for answer in [NoAnswer::Late(tasks.deadline), NoAnswer::Late(tasks.deadline), NoAnswer::Busy] {
            let (release, waits) = mpsc::channel::<()>();
            held.push(release);
            assert_eq!(tasks.run_in(hung, move || waits.recv().is_ok()).await, Err(answer));
        }
        assert_eq!(tasks.slots.available_permits(), 6);
        assert_eq!(patient.run_in(other, || 7).await, Ok(7));
        drop(held);
        assert_eq!(patient.run_in(hung, || 8).await, Ok(8));
        // Every blocked thread has returned.
        drop(tasks.slots.acquire_many(8).await.unwrap());
        // No entry is kept for a directory without work in progress.
        assert_eq!(patient.run_in(other, || 9).await, Ok(9));
        assert_eq!(tasks.shares.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        let tasks = FileTasks::new(1, Duration::from_secs(60));
        let failed: Result<(), NoAnswer> = tasks.run(|| panic!("on purpose")).await;
        assert_eq!(failed, Err(NoAnswer::Failed));
        assert_eq!(tasks.run(|| 1).await, Ok(1));
    }
}
