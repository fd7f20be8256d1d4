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
    pub(in super::super) submitted: usize,
    /// The position in the recording when it was answered, and the answer.
    pub(in super::super) answer: Option<(usize, Result<(), CommitError>)>,
}

/// All submitted batches, in order.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct RequestLog {
    pub(in super::super) entries: Vec<Entry>,
    /// How many of them existed before the recording began.
    pub(in super::super) before: usize,
    /// Positions in the recording from which on a number of batches are durable, whatever their replies.
    pub(in super::super) floors: Vec<(usize, usize)>,
}

impl RequestLog {
    /// Returns how many batches must be there, and how many may, after a power loss at `cut`.
    pub(in super::super) fn bounds(&self, cut: usize) -> (usize, usize) {
        let floors = self.floors.iter().filter(|(at, _)| *at <= cut).map(|(_, count)| *count);
        let answered = self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let (at, result) = entry.answer.as_ref()?;
            let durable = result.is_ok() && entry.batch.durability == Durability::Synced && *at <= cut;
            durable.then_some(index + 1)
        });
        let least = floors.chain(answered).max().unwrap_or(0).max(self.before);
        let later = self.entries.iter().skip(self.before);
        let most = self.before + later.take_while(|entry| entry.submitted < cut).count();
        // A batch that changes nothing on the disk is durable as soon as it is submitted.
        (least, most.max(least))
    }
}

/// A journal on a disk, and the log of its batches.
pub(in super::super) struct Driver {
    pub(in super::super) disk: Disk,
    pub(in super::super) journal: Journal,
    options: Options,
    state: Arc<Mutex<DriverState>>,
    waker: Waker,
}

#[derive(Default)]
struct DriverState {
    requests: RequestLog,
    waiting: Vec<(usize, oneshot::Receiver<Result<(), CommitError>>)>,
    /// The batches whose reply was dropped.
    dropped: Vec<usize>,
}

impl Driver {
    /// Opens a journal on `disk`, which may hold the batches of `requests`.
    pub(in super::super) fn open(
        disk: Disk,
        options: Options,
        requests: RequestLog,
    ) -> Result<Self, Box<(Disk, OpenError)>> {
        let waker = Waker::from(Arc::new(UnparkWaker(thread::current())));
        let state = Arc::new(Mutex::new(DriverState { requests, ..DriverState::default() }));
        let (watched, woken) = (Arc::clone(&state), waker.clone());
        disk.set_observer(move |position| watched.lock().expect("not poisoned").collect_replies(position, &woken));
        match Journal::open_with_env(disk.env(), options) {
            Ok(journal) => {
                disk.names_synced();
                Ok(Self { disk, journal, options, state, waker })
            }
            Err(error) => Err(Box::new((disk, error))),
        }
    }

    /// Records that exactly the first `count` batches were found; they are durable from here on.
    pub(in super::super) fn set_found(&self, count: usize) {
        let position = self.disk.position();
        let mut state = self.state.lock().expect("not poisoned");
        state.requests.entries.truncate(count);
        state.requests.floors.push((position, count));
    }

    /// Submits a batch and returns its number.
    pub(in super::super) fn submit(&self, batch: Batch) -> usize {
        let handed = self.disk.position();
        // The lock is held so that the reply is not collected before its batch is registered.
        let mut state = self.state.lock().expect("not poisoned");
        let receiver = self.journal.commit(batch.clone());
        let number = state.requests.entries.len();
        state.requests.entries.push(Entry { batch, submitted: handed, answer: None });
        state.waiting.push((number, receiver));
        number
    }

    /// Waits until all batches are answered.
    pub(in super::super) fn wait_for_replies(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.disk.observe();
            let state = self.state.lock().expect("not poisoned");
            assert_eq!(state.dropped, [0; 0], "a batch was dropped without an answer");
            if state.waiting.is_empty() {
                return;
            }
            drop(state);
            assert!(Instant::now() < deadline, "a batch was not answered");
            thread::park_timeout(PATIENCE);
        }
    }

    /// Submits a batch and waits for its reply.
    pub(in super::super) fn commit(&self, batch: Batch) -> Result<(), CommitError> {
        let number = self.submit(batch);
        self.wait_for_replies();
        let state = self.state.lock().expect("not poisoned");
        state.requests.entries[number].answer.as_ref().expect("an answer").1.clone()
    }

    /// Closes the journal and opens it again on the same disk.
    pub(in super::super) fn reopen(self) -> Self {
        let Self { disk, journal, options, state, waker } = self;
        block_on(journal.close()).expect("closes");
        let closed = Self::position_and_count(&disk, &state);
        let journal = Journal::open_with_env(disk.env(), options).expect("opens again");
        disk.names_synced();
        state.lock().expect("not poisoned").requests.floors.push(closed);
        Self { disk, journal, options, state, waker }
    }

    /// Simulates a kill of the journal's process; everything acknowledged was written.
    pub(in super::super) fn kill(self) -> (Disk, RequestLog) {
        let Self { disk, journal, state, .. } = self;
        disk.kill();
        // Its result does not matter: it can change nothing.
        let _ = block_on(journal.close());
        disk.revive();
        let requests = state.lock().expect("not poisoned").requests.clone();
        (disk, requests)
    }

    /// Kills the journal and opens it again on the same disk.
    pub(in super::super) fn kill_and_reopen(self) -> Self {
        let options = self.options;
        let (disk, requests) = self.kill();
        let count = requests.entries.len();
        let driver = Self::open(disk, options, requests).map_err(|refused| refused.1).expect("opens again");
        driver.set_found(count);
        driver
    }

    /// Returns whether all batches are answered.
    pub(in super::super) fn is_idle(&self) -> bool {
        self.disk.observe();
        self.state.lock().expect("not poisoned").waiting.is_empty()
    }

    /// Closes the journal; returns the disk, the log of batches and the result.
    pub(in super::super) fn close(self) -> (Disk, RequestLog, Result<(), CommitError>) {
        let Self { disk, journal, state, .. } = self;
        let outcome = block_on(journal.close());
        if outcome.is_ok() {
            let closed = Self::position_and_count(&disk, &state);
            state.lock().expect("not poisoned").requests.floors.push(closed);
        }
        let requests = state.lock().expect("not poisoned").requests.clone();
        (disk, requests, outcome)
    }

    /// Returns the position in the recording and the number of batches.
    fn position_and_count(disk: &Disk, state: &Mutex<DriverState>) -> (usize, usize) {
        (disk.position(), state.lock().expect("not poisoned").requests.entries.len())
    }
}

impl DriverState {
    /// Collects all replies that have arrived.
    fn collect_replies(&mut self, position: &dyn Fn() -> usize, waker: &Waker) {
        let Self { requests, waiting, dropped } = self;
        waiting.retain_mut(|(number, receiver)| match Pin::new(receiver).poll(&mut Context::from_waker(waker)) {
            Poll::Pending => true,
            Poll::Ready(Ok(answer)) => {
                requests.entries[*number].answer = Some((position(), answer));
                false
            }
            Poll::Ready(Err(_)) => {
                dropped.push(*number);
                false
            }
        });
    }
}

/// Unparks a thread when woken.
struct UnparkWaker(Thread);

impl Wake for UnparkWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future without a runtime, so that reads run on this thread.
pub(in super::super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(UnparkWaker(thread::current())));
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
