//! The inbox of a lane: control inputs, and commands in the order in which they were sent.
//!
//! Both queues share one lock and one waker, and allocate nothing while they are empty, because every session in memory
//! has an inbox. Requests of clients are bounded. Other inputs are not: a connection is closed once, and deletions and
//! retention wait for their own lock.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::task::coop::cooperative;

use super::{LaneInput, LaneRequest};
use crate::kernel::id::ConnectionId;

/// The sending end.
#[derive(Debug, Clone)]
pub(super) struct InboxSender(Arc<Shared>);

/// The receiving end. Dropped, it closes the inbox and drops what waits in it.
#[derive(Debug)]
pub(super) struct Inbox(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    capacity: usize,
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    control: VecDeque<LaneInput>,
    commands: VecDeque<NumberedRequest>,
    /// The number of commands sent so far.
    sent: u64,
    closed: bool,
    /// Wakes the lane, if it waits.
    waker: Option<Waker>,
}

/// A command with its number among those sent.
pub(super) type NumberedRequest = (u64, Box<LaneRequest>);

/// Why a request was not accepted; it is returned.
#[derive(Debug)]
pub(super) enum SendError {
    /// Too many requests wait.
    Full(Box<LaneRequest>),
    /// The lane has ended.
    Closed(Box<LaneRequest>),
}

/// Creates an inbox for so many commands, and so many control inputs.
pub(super) fn channel(capacity: usize) -> (InboxSender, Inbox) {
    let shared = Arc::new(Shared { capacity, queues: Mutex::default() });
    (InboxSender(Arc::clone(&shared)), Inbox(shared))
}

impl InboxSender {
    /// Sends a command, if there is space for it.
    pub(super) fn send_command(&self, request: Box<LaneRequest>) -> Result<(), SendError> {
        let mut queues = self.0.lock();
        if queues.closed {
            return Err(SendError::Closed(request));
        }
        if queues.commands.len() >= self.0.capacity {
            return Err(SendError::Full(request));
        }
        queues.sent += 1;
        let number = queues.sent;
        queues.commands.push_back((number, request));
        wake(queues);
        Ok(())
    }

    /// Sends a command that overtakes those of other senders, if there is space for it.
    pub(super) fn send_control(&self, request: Box<LaneRequest>) -> Result<(), SendError> {
        let mut queues = self.0.lock();
        if queues.closed {
            return Err(SendError::Closed(request));
        }
        if queues.control.len() >= self.0.capacity {
            return Err(SendError::Full(request));
        }
        let sent = queues.sent;
        queues.control.push_back(LaneInput::Control(request, sent));
        wake(queues);
        Ok(())
    }

    /// Sends an input that is not bounded; returns whether the inbox is open.
    pub(super) fn send_input(&self, input: LaneInput) -> bool {
        let mut queues = self.0.lock();
        if queues.closed {
            return false;
        }
        queues.control.push_back(input);
        wake(queues);
        true
    }

    /// Sends an input if there is space for it; returns whether it was sent.
    pub(super) fn try_send_input(&self, input: LaneInput) -> bool {
        self.0.lock().control.len() < self.0.capacity && self.send_input(input)
    }

    /// Returns whether the lane accepts no more inputs.
    pub(super) fn is_closed(&self) -> bool {
        self.0.lock().closed
    }
}

impl Inbox {
    /// Waits for the next control input. Cancel safe, as is [`Self::next_command`].
    pub(super) async fn next_control(&self) -> LaneInput {
        // A lane whose inbox is never empty lets other tasks run.
        cooperative(poll_fn(|cx| self.0.poll(cx, |queues| queues.control.pop_front()))).await
    }

    /// Waits for the next command.
    pub(super) async fn next_command(&self) -> Box<LaneRequest> {
        cooperative(poll_fn(|cx| self.0.poll(cx, Queues::pop_command))).await
    }

    /// Returns the next control input, if there is one.
    pub(super) fn try_next_control(&self) -> Option<LaneInput> {
        self.0.lock().control.pop_front()
    }

    /// Returns the next command, if there is one.
    pub(super) fn try_next_command(&self) -> Option<Box<LaneRequest>> {
        self.0.lock().pop_command()
    }

    /// Returns the commands of a sender among the first `sent` ones, and leaves those of other senders.
    pub(super) fn take_earlier(&self, sender: ConnectionId, sent: u64) -> VecDeque<NumberedRequest> {
        let mut queues = self.0.lock();
        let waiting = std::mem::take(&mut queues.commands).into_iter();
        let (own, others) = waiting.partition(|(number, request)| *number <= sent && request.caller.id == sender);
        queues.commands = others;
        own
    }

    /// Returns whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        let queues = self.0.lock();
        queues.control.is_empty() && queues.commands.is_empty()
    }

    /// Refuses further inputs.
    pub(super) fn close(&self) {
        self.0.lock().closed = true;
    }

    /// Returns the commands that wait.
    pub(super) fn drain_commands(&self) -> Vec<NumberedRequest> {
        std::mem::take(&mut self.0.lock().commands).into()
    }

    /// Frees the memory of queues that are empty.
    pub(super) fn shrink(&self) {
        let mut queues = self.0.lock();
        queues.control.shrink_to_fit();
        queues.commands.shrink_to_fit();
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let mut queues = self.0.lock();
        queues.closed = true;
        let left = (std::mem::take(&mut queues.control), std::mem::take(&mut queues.commands));
        // Requests answer when they are dropped, which must not happen under the lock.
        drop(queues);
        drop(left);
    }
}

impl Shared {
    /// Takes something from the queues, or registers the lane for the next input.
    fn poll<T>(&self, cx: &Context<'_>, take: impl FnOnce(&mut Queues) -> Option<T>) -> Poll<T> {
        let mut queues = self.lock();
        if let Some(taken) = take(&mut queues) {
            return Poll::Ready(taken);
        }
        // Only the task of the lane receives, so that one waker is enough for both queues.
        match &mut queues.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none @ None => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queues {
    fn pop_command(&mut self) -> Option<Box<LaneRequest>> {
        self.commands.pop_front().map(|(_, request)| request)
    }
}

/// Releases the lock, then wakes the lane.
fn wake(mut queues: MutexGuard<'_, Queues>) {
    let waker = queues.waker.take();
    drop(queues);
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::command::{Caller, Command};
    use crate::provider::Starter;
    use crate::runtime::lane::{LaneError, ReplyGuard};
    use crate::runtime::outbox::{EventForm, Outbox};

    #[test]
    fn only_earlier_commands_of_the_same_sender_are_taken() {
        let (sender, inbox) = channel(8);
        for (connection, name) in [(1, "a"), (2, "b"), (1, "c")] {
            sender.send_command(request(connection, name)).unwrap();
        }
        let sent = 3;
        sender.send_command(request(1, "d")).unwrap();
        assert_eq!(names(inbox.take_earlier(ConnectionId(1), sent)), ["a", "c"]);
        assert_eq!(names(inbox.take_earlier(ConnectionId(1), sent)), [""; 0], "they are taken once");
        sender.send_command(request(2, "e")).unwrap();
        assert_eq!(inbox.try_next_command().map(|next| name(&next)).as_deref(), Some("b"), "it waited in its place");
        assert_eq!(names(inbox.take_earlier(ConnectionId(2), 5)), ["e"]);
        assert!(!inbox.is_empty());
        let left = inbox.drain_commands();
        assert_eq!(left.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [4]);
        assert_eq!(names(left), ["d"]);
        assert!(inbox.is_empty());
    }

    #[test]
    fn a_refused_command_is_not_counted() {
        let (sender, inbox) = channel(1);
        sender.send_command(request(1, "a")).unwrap();
        assert!(matches!(sender.send_command(request(1, "b")), Err(SendError::Full(_))));
        sender.send_control(request(1, "cancel")).unwrap();
        assert!(matches!(sender.send_control(request(1, "cancel")), Err(SendError::Full(_))));
        assert!(!sender.try_send_input(LaneInput::Disconnected(ConnectionId(1))));
        assert!(sender.send_input(LaneInput::Disconnected(ConnectionId(1))), "it is never refused by an open inbox");
        let Some(LaneInput::Control(_, sent)) = inbox.try_next_control() else { panic!("control") };
        assert_eq!(sent, 1);
        assert_eq!(names(inbox.take_earlier(ConnectionId(1), sent)), ["a"]);
        inbox.close();
        assert!(matches!(sender.send_command(request(1, "c")), Err(SendError::Closed(_))));
        assert!(!sender.send_input(LaneInput::Disconnected(ConnectionId(1))));
    }

    #[tokio::test]
    async fn an_input_wakes_the_lane_whichever_queue_it_waits_for() {
        let (sender, inbox) = channel(8);
        for _ in 0..2 {
            let sending = sender.clone();
            let sent = tokio::spawn(async move { sending.send_command(request(1, "a")).unwrap() });
            tokio::select! {
                biased;
                _ = inbox.next_control() => panic!("no control was sent"),
                next = inbox.next_command() => assert_eq!(name(&next), "a"),
            }
            sent.await.unwrap();
        }
    }

    #[test]
    fn requests_in_a_dropped_inbox_are_answered() {
        let (sender, inbox) = channel(8);
        let (answer, answered) = std::sync::mpsc::channel();
        let mut waiting = request(1, "a");
        waiting.reply_guard = ReplyGuard::new(move |reply| answer.send(reply).unwrap());
        sender.send_command(waiting).unwrap();
        drop(inbox);
        assert_eq!(answered.recv().unwrap(), Err(LaneError::Interrupted));
        assert!(sender.is_closed());
    }

    fn request(connection: u64, name: &str) -> Box<LaneRequest> {
        let outbox = Outbox::new(ConnectionId(connection), EventForm::Record);
        Box::new(LaneRequest {
            caller: Caller::owner(outbox.id(), "test".to_owned()),
            command: Command::Rename { name: name.to_owned() },
            if_version: None,
            starter: Starter::Person,
            reply_guard: ReplyGuard::new(|_| {}),
            outbox,
            environment: None,
            part: None,
        })
    }

    fn names(requests: impl IntoIterator<Item = NumberedRequest>) -> Vec<String> {
        requests.into_iter().map(|(_, request)| name(&request)).collect()
    }

    fn name(request: &LaneRequest) -> String {
        let Command::Rename { name } = &request.command else { panic!("not a rename") };
        name.clone()
    }
}
