//! The inbox of a lane's commands, from which control takes the earlier commands of its own sender.
//!
//! Control has an inbox of its own and is handled before commands. A client that sends a message and then a cancel
//! means the run of that message, so the commands that the sender of a control command had sent before it are handled
//! first. Commands of other senders wait, and nothing here waits for a disk.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc::{self, error::TrySendError};

use super::LaneRequest;
use crate::kernel::id::ParticipantId;

/// The sending end.
#[derive(Debug, Clone)]
pub(super) struct CommandSender {
    channel: mpsc::Sender<Box<LaneRequest>>,
    /// The number of commands sent so far. It is locked while a command is sent, so that it counts those in the channel.
    sent: Arc<Mutex<u64>>,
}

/// The receiving end.
pub(super) struct CommandInbox {
    channel: mpsc::Receiver<Box<LaneRequest>>,
    /// The number of commands received so far.
    received: u64,
    /// Commands that were received in search of those of another sender, with their numbers; they precede those in
    /// the channel.
    deferred: VecDeque<NumberedRequest>,
}

/// A command with its number among those sent.
pub(super) type NumberedRequest = (u64, Box<LaneRequest>);

/// Creates an inbox for so many commands.
pub(super) fn channel(capacity: usize) -> (CommandSender, CommandInbox) {
    let (sender, receiver) = mpsc::channel(capacity);
    let inbox = CommandInbox { channel: receiver, received: 0, deferred: VecDeque::new() };
    (CommandSender { channel: sender, sent: Arc::default() }, inbox)
}

impl CommandSender {
    /// Sends a command, if there is space for it.
    pub(super) fn try_send(&self, request: Box<LaneRequest>) -> Result<(), TrySendError<Box<LaneRequest>>> {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        self.channel.try_send(request)?;
        *sent += 1;
        Ok(())
    }

    /// Returns the number of commands sent so far.
    pub(super) fn sent(&self) -> u64 {
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommandInbox {
    /// Waits for the next command; `None` if every sender is gone.
    pub(super) async fn next(&mut self) -> Option<Box<LaneRequest>> {
        if let Some((_, request)) = self.deferred.pop_front() {
            return Some(request);
        }
        let request = self.channel.recv().await?;
        self.received += 1;
        Some(request)
    }

    /// Returns the next command, if there is one.
    pub(super) fn try_next(&mut self) -> Option<Box<LaneRequest>> {
        self.deferred.pop_front().or_else(|| self.receive()).map(|(_, request)| request)
    }

    /// Returns the commands of a sender among the first `sent` ones, and leaves those of other senders.
    pub(super) fn take_earlier(&mut self, sender: ParticipantId, sent: u64) -> VecDeque<NumberedRequest> {
        while self.received < sent
            && let Some(numbered) = self.receive()
        {
            self.deferred.push_back(numbered);
        }
        let waiting = std::mem::take(&mut self.deferred).into_iter();
        let (own, others) = waiting.partition(|(number, request)| *number <= sent && request.caller.id == sender);
        self.deferred = others;
        own
    }

    /// Returns whether no command waits.
    pub(super) fn is_empty(&self) -> bool {
        self.deferred.is_empty() && self.channel.is_empty()
    }

    /// Refuses further commands.
    pub(super) fn close(&mut self) {
        self.channel.close();
    }

    /// Returns the commands that wait.
    pub(super) fn drain(&mut self) -> Vec<NumberedRequest> {
        let mut left = Vec::from(std::mem::take(&mut self.deferred));
        left.extend(std::iter::from_fn(|| self.receive()));
        left
    }

    fn receive(&mut self) -> Option<NumberedRequest> {
        let request = self.channel.try_recv().ok()?;
        self.received += 1;
        Some((self.received, request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::command::{Caller, Command, Rights};
    use crate::provider::Starter;
    use crate::runtime::lane::ReplyGuard;
    use crate::runtime::outbox::{EventForm, Outbox};

    #[test]
    fn only_earlier_commands_of_the_same_sender_are_taken() {
        let (sender, mut inbox) = channel(8);
        for (participant, name) in [(1, "a"), (2, "b"), (1, "c")] {
            sender.try_send(request(participant, name)).unwrap();
        }
        let sent = sender.sent();
        sender.try_send(request(1, "d")).unwrap();
        assert_eq!(names(inbox.take_earlier(ParticipantId(1), sent)), ["a", "c"]);
        assert_eq!(names(inbox.take_earlier(ParticipantId(1), sent)), [""; 0], "they are taken once");
        sender.try_send(request(2, "e")).unwrap();
        assert_eq!(inbox.try_next().map(|next| name(&next)).as_deref(), Some("b"), "it waited in its place");
        assert_eq!(names(inbox.take_earlier(ParticipantId(2), sender.sent())), ["e"]);
        assert!(!inbox.is_empty());
        let left = inbox.drain();
        assert_eq!(left.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [4]);
        assert_eq!(names(left), ["d"]);
        assert!(inbox.is_empty());
    }

    #[test]
    fn a_refused_command_is_not_counted() {
        let (sender, mut inbox) = channel(1);
        sender.try_send(request(1, "a")).unwrap();
        assert!(matches!(sender.try_send(request(1, "b")), Err(TrySendError::Full(_))));
        assert_eq!(sender.sent(), 1);
        assert_eq!(names(inbox.take_earlier(ParticipantId(1), sender.sent())), ["a"]);
        inbox.close();
        assert!(matches!(sender.try_send(request(1, "c")), Err(TrySendError::Closed(_))));
        assert_eq!(sender.sent(), 1);
    }

    fn request(participant: u64, name: &str) -> Box<LaneRequest> {
        let outbox = Outbox::new(ParticipantId(participant), EventForm::Record);
        Box::new(LaneRequest {
            caller: Caller { id: outbox.id(), source: "test".to_owned(), rights: Rights::ALL },
            command: Command::Rename { name: name.to_owned() },
            if_version: None,
            starter: Starter::Person,
            reply_guard: ReplyGuard::new(|_| {}),
            outbox,
            environment: None,
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
