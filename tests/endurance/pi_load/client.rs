//! One client: it sends commands, repeats its own and those of others, loses connections, and reconnects.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use serde_json::Value;

use crate::pi_load::command::Command;
use crate::pi_load::generator::Generator;
use crate::pi_load::received_lines::{ReceivedLines, read_lines};
use crate::pi_load::shared_state::{DaemonInstance, Reuse, SharedState};
use crate::support::daemon::TIMEOUT;
use crate::support::websocket::{self, FrameSender};

/// What a response is matched by: the id and the type of its command.
type Name = (Option<String>, String);

/// A client.
pub(crate) struct Client {
    shared: Arc<SharedState>,
    generator: Generator,
    /// How many new commands it still has to send.
    left: usize,
    instance: DaemonInstance,
    /// Commands without a response.
    pending: HashMap<Name, Vec<Command>>,
    waiting: usize,
    /// Some answered commands, to be repeated.
    answered: VecDeque<Command>,
    /// Commands that were unanswered when the daemon was killed.
    interrupted: Vec<Command>,
}

/// The connection was closed.
struct ConnectionLost;

impl Client {
    pub(crate) fn new(shared: Arc<SharedState>, generator: Generator, commands: usize) -> Self {
        let instance = shared.instance(0);
        let (pending, answered, interrupted) = (HashMap::new(), VecDeque::new(), Vec::new());
        Self { shared, generator, left: commands, instance, pending, waiting: 0, answered, interrupted }
    }

    /// Runs with every instance of the daemon, and returns the lines received from each.
    pub(crate) fn run(mut self) -> Vec<ReceivedLines> {
        let instances = self.shared.instances;
        (0..instances).map(|number| self.run_once(number)).collect()
    }

    fn run_once(&mut self, number: usize) -> ReceivedLines {
        self.instance = self.shared.instance(number);
        let (mut sender, receiver) = websocket::open(self.instance.address).expect("a connection");
        let (answers, reader) = read_lines(receiver, false);
        // After its first response, a connection receives all lifecycle events.
        sender.send_text("{\"type\":\"bogus\"}").expect("the daemon reads");
        let refused = answers.recv_timeout(TIMEOUT).expect("an answer");
        assert!(refused.contains("Unknown command type 'bogus'"), "{refused}");
        // The shared sessions are created when all clients are connected.
        self.shared.ready.wait();
        self.shared.ready.wait();
        let result = self.exchange(&mut sender, &answers);
        if number + 1 == self.shared.instances {
            self.shared.done.fetch_add(1, Ordering::Release);
        }
        drop(answers);
        let received = reader.join().expect("a reader");
        for command in self.pending.drain().flat_map(|(_, commands)| commands) {
            self.interrupted.push(command.clone());
            self.shared.finish(number, command, None);
        }
        self.waiting = 0;
        assert!(result.is_ok() || !received.complete, "the daemon closed the connection");
        received
    }

    fn exchange(&mut self, sender: &mut FrameSender, answers: &Receiver<String>) -> Result<(), ConnectionLost> {
        let mut again = std::mem::take(&mut self.interrupted);
        if self.instance.number > 0 {
            again.extend(self.answered.iter().cloned());
        }
        // The dependencies belonged to another instance of the daemon.
        again.retain(|command| command.request.depends_on.is_empty());
        while let Some(command) = again.pop() {
            self.shared.sending(&command, Reuse::Forbidden);
            let sent = self.transmit(sender, command);
            if sent.is_err() {
                self.interrupted.append(&mut again);
            }
            sent?;
            self.read_down_to(8, answers)?;
        }
        while self.left > 0 {
            self.left -= 1;
            self.send_next(sender)?;
            let most = self.generator.random.below(7) as usize;
            self.read_down_to(most, answers)?;
        }
        self.read_down_to(0, answers)
    }

    /// Sends a new command, and sometimes an earlier one.
    fn send_next(&mut self, sender: &mut FrameSender) -> Result<(), ConnectionLost> {
        let command = self.generator.next_command(&self.shared);
        if command.request.kind == "create_session" {
            self.shared.share_session(command.request.session.as_deref().unwrap_or_default());
        }
        if self.generator.random.one_in(60) {
            // Sent over a connection that is closed before any response.
            let Ok((mut other, _receiver)) = websocket::open(self.instance.address) else { return Err(ConnectionLost) };
            self.shared.sending(&command, Reuse::Allowed);
            let _ = other.send_text(&command.line());
            self.shared.finish(self.instance.number, command.clone(), None);
        }
        self.send(sender, command.clone())?;
        let named = command.id.is_some() || command.key.is_some();
        match self.generator.random.below(20) {
            0 if named => self.send(sender, command)?,
            1 if named => {
                let other = self.generator.conflicting(&command);
                self.send(sender, other)?;
            }
            2..5 => {
                if let Some(other) = self.shared.recent(&mut self.generator.random) {
                    self.repeat(sender, other)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Repeats a command, under the same or under a new id.
    fn repeat(&mut self, sender: &mut FrameSender, command: Command) -> Result<(), ConnectionLost> {
        if command.key.is_some() && self.generator.random.one_in(2) {
            let command = self.generator.by_key(&command);
            return self.send(sender, command);
        }
        if command.id.is_none() && command.key.is_none() {
            return Ok(());
        }
        self.send(sender, command)
    }

    fn send(&mut self, sender: &mut FrameSender, command: Command) -> Result<(), ConnectionLost> {
        self.shared.sending(&command, Reuse::Allowed);
        self.transmit(sender, command)
    }

    fn transmit(&mut self, sender: &mut FrameSender, command: Command) -> Result<(), ConnectionLost> {
        let sent = sender.send_text(&command.line());
        let name = (command.id.clone(), command.request.kind.clone());
        self.pending.entry(name).or_default().push(command);
        self.waiting += 1;
        sent.map_err(|_| ConnectionLost)
    }

    /// Reads responses until at most this number is outstanding.
    fn read_down_to(&mut self, most: usize, answers: &Receiver<String>) -> Result<(), ConnectionLost> {
        while self.waiting > most {
            match answers.recv_timeout(TIMEOUT) {
                Ok(line) => self.receive(line),
                Err(RecvTimeoutError::Disconnected) => return Err(ConnectionLost),
                Err(RecvTimeoutError::Timeout) => panic!("no answer to any of {:?}", self.pending),
            }
        }
        Ok(())
    }

    fn receive(&mut self, line: String) {
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        let id = answer["id"].as_str().map(ToOwned::to_owned);
        let name = (id, answer["command"].as_str().expect("a command").to_owned());
        let command = self.pending.get_mut(&name).and_then(Vec::pop);
        let command = command.unwrap_or_else(|| panic!("a response to no command: {line}"));
        self.waiting -= 1;
        if let (Some(session), Some(version)) = (&command.request.session, answer["sessionVersion"].as_u64()) {
            self.shared.note_version(session, version);
        }
        if command.id.is_some() {
            self.answered.push_back(command.clone());
            if self.answered.len() > 10 {
                self.answered.pop_front();
            }
        }
        self.shared.finish(self.instance.number, command, Some(line));
    }
}
