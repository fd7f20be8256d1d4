//! What one connection hears: answers for its client, and the life of every command of everybody.

use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use crate::support::websocket::FrameReceiver;

/// The name of the last command of a life.
pub(crate) const LAST: &str = "the-last-one";

/// Every so many lines a digest of all that was heard is kept.
const STRIDE: usize = 1_024;

/// How many of its last lines a client keeps.
const TAIL: usize = 8_192;

/// What was heard of the lives of commands, from the first on.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) lines: usize,
    digest: DefaultHasher,
    /// After every so many lines, a digest of all of them.
    digests: Vec<u64>,
    /// The last lines, or all of them.
    pub(crate) tail: VecDeque<Vec<u8>>,
    keeps_all: bool,
    /// Whether the last command of all has ended.
    pub(crate) complete: bool,
}

impl Heard {
    fn hear(&mut self, line: &[u8]) {
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

    /// Sees that both have heard the same as far as both have heard anything.
    pub(crate) fn agrees_with(&self, other: &Self) {
        let both = self.digests.iter().zip(&other.digests);
        assert!(both.clone().all(|(one, other)| one == other), "two clients heard different things");
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

/// Listens on a thread of its own; answers come out of the channel.
pub(crate) fn listen(mut ear: FrameReceiver, keeps_all: bool) -> (Receiver<String>, JoinHandle<Heard>) {
    let (to, answers) = channel();
    let listening = thread::spawn(move || {
        let mut heard = Heard { keeps_all, ..Heard::default() };
        let mut line = Vec::new();
        while ear.read_message(&mut line).expect("the daemon speaks in time") {
            if sort(&mut heard, &line, &to) {
                heard.complete = true;
                break;
            }
        }
        heard
    });
    (answers, listening)
}

/// Puts a line where it belongs, and tells whether it was the end of the last command.
fn sort(heard: &mut Heard, line: &[u8], answers: &Sender<String>) -> bool {
    if line.starts_with(b"{\"type\":\"command_") {
        heard.hear(line);
        let end = b"{\"type\":\"command_finished\",\"data\":{\"commandId\":\"";
        return line.strip_prefix(end).is_some_and(|rest| rest.starts_with(LAST.as_bytes()));
    }
    let others = [&b"{\"type\":\"event\""[..], b"{\"type\":\"session_", b"{\"type\":\"server_"];
    if !others.iter().any(|other| line.starts_with(other)) {
        let line = String::from_utf8(line.to_vec()).expect("text");
        // Its client may have gone.
        let _ = answers.send(line);
    }
    false
}
