//! The batches of a journal and its replies, each with its position in the recording of the disk.
//!
//! Replies are collected before every change on the disk, by the thread that makes the change: a reply that
//! arrives before its sync is detected.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use tokio::sync::oneshot;

use super::super::super::{Batch, CommitError, Durability, Journal, OpenError, Options};
use super::{Disk, PATIENCE};

/// A submitted batch.
#[derive(Debug, Clone)]
pub(in super::super) struct Entry {
    pub(in super::super) batch: Batch,
    /// The position in the recording when it was submitted.
    pub(in super::super) handed: usize,
    /// The position in the recording when it was answered, and the answer.
    pub(in super::super) answer: Option<(usize, Result<(), CommitError>)>,
}

/// All submitted batches, in order.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Story {
    pub(in super::super) entries: Vec<Entry>,
    /// How many of them existed before the recording began.
    pub(in super::super) before: usize,
    /// Positions in the recording from which on a number of batches are durable, whatever their replies.
    pub(in super::super) floors: Vec<(usize, usize)>,
}

impl Story {
    /// Returns how many batches must be there, and how many may, after a power loss at `cut`.
    pub(in super::super) fn bounds(&self, cut: usize) -> (usize, usize) {
        let said = self.floors.iter().filter(|(at, _)| *at <= cut).map(|(_, count)| *count);
        let answered = self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let (at, result) = entry.answer.as_ref()?;
            let durable = result.is_ok() && entry.batch.durability == Durability::Synced && *at <= cut;
            durable.then_some(index + 1)
        });
        let least = said.chain(answered).max().unwrap_or(0).max(self.before);
        let later = self.entries.iter().skip(self.before);
        let most = self.before + later.take_while(|entry| entry.handed < cut).count();
        // A batch that changes nothing on the disk is durable as soon as it is submitted.
        (least, most.max(least))
    }
}

/// A journal on a disk, and the log of its batches.
pub(in super::super) struct Driver {
    pub(in super::super) disk: Disk,
    pub(in super::super) journal: Journal,
    options: Options,
    told: Arc<Mutex<Told>>,
    waker: Waker,
}

#[derive(Default)]
struct Told {
    story: Story,
    waiting: Vec<(usize, oneshot::Receiver<Result<(), CommitError>>)>,
    /// The batches whose reply was dropped.
    forgotten: Vec<usize>,
}

impl Driver {
    /// Opens a journal on `disk`, which may hold the batches of `requests`.
    pub(in super::super) fn open(
        disk: Disk,
        options: Options,
        story: Story,
    ) -> Result<Self, Box<(Disk, OpenError)>> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let told = Arc::new(Mutex::new(Told { story, ..Told::default() }));
        let (watched, woken) = (Arc::clone(&told), waker.clone());
        disk.watched_by(move |position| watched.lock().expect("not poisoned").look(position, &woken));
        match Journal::open_on(disk.ground(), options) {
            Ok(journal) => {
                disk.names_synced();
                Ok(Self { disk, journal, options, told, waker })
            }
            Err(error) => Err(Box::new((disk, error))),
        }
    }

    /// Records that exactly the first `count` batches were found; they are durable from here on.
    pub(in super::super) fn found(&self, count: usize) {
        let position = self.disk.position();
        let mut told = self.told.lock().expect("not poisoned");
        told.story.entries.truncate(count);
        told.story.floors.push((position, count));
    }

    /// Submits a batch and returns its number.
    pub(in super::super) fn hand(&self, batch: Batch) -> usize {
        let handed = self.disk.position();
        // The lock is held so that the reply is not collected before its batch is registered.
        let mut told = self.told.lock().expect("not poisoned");
        let receiver = self.journal.commit(batch.clone());
        let number = told.story.entries.len();
        told.story.entries.push(Entry { batch, handed, answer: None });
        told.waiting.push((number, receiver));
        number
    }

    /// Waits until all batches are answered.
    pub(in super::super) fn settle(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.disk.look();
            let told = self.told.lock().expect("not poisoned");
            assert_eq!(told.forgotten, [0; 0], "a batch was dropped without an answer");
            if told.waiting.is_empty() {
                return;
            }
            drop(told);
            assert!(Instant::now() < deadline, "a batch was not answered");
            thread::park_timeout(PATIENCE);
        }
    }

    /// Submits a batch and waits for its reply.
    pub(in super::super) fn commit(&self, batch: Batch) -> Result<(), CommitError> {
        let number = self.hand(batch);
        self.settle();
        let told = self.told.lock().expect("not poisoned");
        told.story.entries[number].answer.as_ref().expect("an answer").1.clone()
    }

    /// Closes the journal and opens it again on the same disk.
    pub(in super::super) fn reopen(self) -> Self {
        let Self { disk, journal, options, told, waker } = self;
        wait(journal.close()).expect("closes");
        let closed = Self::count(&disk, &told);
        let journal = Journal::open_on(disk.ground(), options).expect("opens again");
        disk.names_synced();
        told.lock().expect("not poisoned").story.floors.push(closed);
        Self { disk, journal, options, told, waker }
    }

    /// Simulates a kill of the journal's process; everything acknowledged was written.
    pub(in super::super) fn die(self) -> (Disk, Story) {
        let Self { disk, journal, told, .. } = self;
        disk.kill();
        // Its result does not matter: it can change nothing.
        let _ = wait(journal.close());
        disk.revive();
        let story = told.lock().expect("not poisoned").story.clone();
        (disk, story)
    }

    /// Kills the journal and opens it again on the same disk.
    pub(in super::super) fn rise(self) -> Self {
        let options = self.options;
        let (disk, story) = self.die();
        let count = story.entries.len();
        let driver = Self::open(disk, options, story).map_err(|refused| refused.1).expect("opens again");
        driver.found(count);
        driver
    }

    /// Returns whether all batches are answered.
    pub(in super::super) fn is_settled(&self) -> bool {
        self.disk.look();
        self.told.lock().expect("not poisoned").waiting.is_empty()
    }

    /// Closes the journal; returns the disk, the log of batches and the result.
    pub(in super::super) fn close(self) -> (Disk, Story, Result<(), CommitError>) {
        let Self { disk, journal, told, .. } = self;
        let outcome = wait(journal.close());
        if outcome.is_ok() {
            let closed = Self::count(&disk, &told);
            told.lock().expect("not poisoned").story.floors.push(closed);
        }
        let story = told.lock().expect("not poisoned").story.clone();
        (disk, story, outcome)
    }

    /// Returns the position in the recording and the number of batches.
    fn count(disk: &Disk, told: &Mutex<Told>) -> (usize, usize) {
        (disk.position(), told.lock().expect("not poisoned").story.entries.len())
    }
}

impl Told {
    /// Collects all replies that have arrived.
    fn look(&mut self, position: &dyn Fn() -> usize, waker: &Waker) {
        let Self { story, waiting, forgotten } = self;
        waiting.retain_mut(|(number, receiver)| {
            match Pin::new(receiver).poll(&mut Context::from_waker(waker)) {
                Poll::Pending => true,
                Poll::Ready(Ok(answer)) => {
                    story.entries[*number].answer = Some((position(), answer));
                    false
                }
                Poll::Ready(Err(_)) => {
                    forgotten.push(*number);
                    false
                }
            }
        });
    }
}

/// Unparks a thread when woken.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future without a runtime, so that reads run on this thread.
pub(in super::super) fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        assert!(Instant::now() < deadline, "an answer did not come");
        thread::park_timeout(PATIENCE);
    }
}
