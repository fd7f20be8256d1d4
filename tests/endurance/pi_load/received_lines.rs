//! The lines that a connection receives: responses for its client, and the lifecycle events of all commands.

use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use crate::support::websocket::FrameReceiver;

/// The id of the last command.
pub(crate) const LAST: &str = "the-last-one";

/// After how many lines a digest is stored.
const STRIDE: usize = 1_024;

/// How many of the last lines a client keeps.
const TAIL: usize = 8_192;

/// The received lifecycle events, from the first one on.
#[derive(Default)]
pub(crate) struct ReceivedLines {
    pub(crate) lines: usize,
    digest: DefaultHasher,
    /// Digests of all lines up to each multiple of the stride.
    digests: Vec<u64>,
    /// The last lines, or all of them.
    pub(crate) tail: VecDeque<Vec<u8>>,
    keeps_all: bool,
    /// Whether the last command of all has ended.
    pub(crate) complete: bool,
}

impl ReceivedLines {
    fn record(&mut self, line: &[u8]) {
        self.lines += 1;
        self.digest.write(line);
        if self.lines.is_multiple_of(STRIDE) {
            self.digests.push(self.digest.finish());
        }
        self.tail.push_back(line.to_vec());
        if !self.keeps_all && self.tail.len() > TAIL {
            self.tail.pop_front();
        }
    }

    /// Checks that both received the same lines, as far as both received any.
    pub(crate) fn agrees_with(&self, other: &Self) {
        let both = self.digests.iter().zip(&other.digests);
        assert!(both.clone().all(|(one, other)| one == other), "two clients received different lines");
        // From here on both have every line.
        let common = self.lines.min(other.lines);
        let first = self.first().max(other.first());
        for line in first..common {
            assert_eq!(
                String::from_utf8_lossy(&self.tail[line - self.first()]),
                String::from_utf8_lossy(&other.tail[line - other.first()]),
                "line {line}"
            );
        }
    }

    /// The number of the first line that is kept.
    pub(crate) fn first(&self) -> usize {
        self.lines - self.tail.len()
    }
}

/// Reads on a separate thread; responses are sent to the channel.
pub(crate) fn read_lines(
    mut receiver: FrameReceiver,
    keeps_all: bool,
) -> (Receiver<String>, JoinHandle<ReceivedLines>) {
    let (to, answers) = channel();
    let reader = thread::spawn(move || {
        let mut received = ReceivedLines { keeps_all, ..ReceivedLines::default() };
        let mut line = Vec::new();
        while receiver.read_message(&mut line).expect("a line before the timeout") {
            if dispatch(&mut received, &line, &to) {
                received.complete = true;
                break;
            }
        }
        received
    });
    (answers, reader)
}

/// Dispatches a line, and returns whether it was the end of the last command.
fn dispatch(received: &mut ReceivedLines, line: &[u8], answers: &Sender<String>) -> bool {
    if line.starts_with(b"{\"type\":\"command_") {
        received.record(line);
        let end = b"{\"type\":\"command_finished\",\"data\":{\"commandId\":\"";
        return line.strip_prefix(end).is_some_and(|rest| rest.starts_with(LAST.as_bytes()));
    }
    let others = [&b"{\"type\":\"event\""[..], b"{\"type\":\"session_", b"{\"type\":\"server_"];
    if !others.iter().any(|other| line.starts_with(other)) {
        let line = String::from_utf8(line.to_vec()).expect("text");
        // The client may have ended.
        let _ = answers.send(line);
    }
    false
}
