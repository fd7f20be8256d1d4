//! One client of the crowd: it asks, repeats itself and others, loses connections, and comes back.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use serde_json::Value;

use crate::pi_crowd::command::Command;
use crate::pi_crowd::crowd::{Crowd, Life, Standing};
use crate::pi_crowd::generator::Generator;
use crate::pi_crowd::hearing::{Heard, listen};
use crate::support::daemon::TIMEOUT;
use crate::support::websocket::{self, FrameSender};

/// Which answer is to which command.
type Name = (Option<String>, String);

/// A client.
pub(crate) struct Client {
    crowd: Arc<Crowd>,
    generator: Generator,
    /// How many commands of its own it still has to send.
    left: usize,
    life: Life,
    /// What it waits for.
    asked: HashMap<Name, Vec<Command>>,
    waiting: usize,
    /// Some of what was answered, to be asked again.
    answered: VecDeque<Command>,
    /// What the end of a daemon left without an answer.
    cut: Vec<Command>,
}

/// The daemon is gone.
struct Gone;

impl Client {
    pub(crate) fn new(crowd: Arc<Crowd>, generator: Generator, commands: usize) -> Self {
        let life = crowd.life(0);
        let (asked, answered, cut) = (HashMap::new(), VecDeque::new(), Vec::new());
        Self { crowd, generator, left: commands, life, asked, waiting: 0, answered, cut }
    }

    /// Lives through all lives of the daemon and returns what it heard in each.
    pub(crate) fn live(mut self) -> Vec<Heard> {
        let lives = self.crowd.lives;
        (0..lives).map(|number| self.live_once(number)).collect()
    }

    fn live_once(&mut self, number: usize) -> Heard {
        self.life = self.crowd.life(number);
        let (mut mouth, ear) = websocket::open(self.life.at).expect("a connection");
        let (answers, listening) = listen(ear, false);
        // Whoever is answered hears of everything that comes.
        mouth.send_text("{\"type\":\"bogus\"}").expect("the daemon reads");
        let refused = answers.recv_timeout(TIMEOUT).expect("an answer");
        assert!(refused.contains("Unknown command type 'bogus'"), "{refused}");
        // Once everybody is there, what everybody needs is made.
        self.crowd.ready.wait();
        self.crowd.ready.wait();
        let over = self.take_part(&mut mouth, &answers);
        if number + 1 == self.crowd.lives {
            self.crowd.done.fetch_add(1, Ordering::Release);
        }
        drop(answers);
        let heard = listening.join().expect("a listener");
        for command in self.asked.drain().flat_map(|(_, commands)| commands) {
            self.cut.push(command.clone());
            self.crowd.over(number, command, None);
        }
        self.waiting = 0;
        assert!(over.is_ok() || !heard.complete, "the daemon went away by itself");
        heard
    }

    fn take_part(&mut self, mouth: &mut FrameSender, answers: &Receiver<String>) -> Result<(), Gone> {
        let mut again = std::mem::take(&mut self.cut);
        if self.life.number > 0 {
            again.extend(self.answered.iter().cloned());
        }
        // What came of the things that it depended on is another daemon's.
        again.retain(|command| command.asks.depends_on.is_empty());
        while let Some(command) = again.pop() {
            self.crowd.sending(&command, Standing::Old);
            let sent = self.say(mouth, command);
            if sent.is_err() {
                self.cut.append(&mut again);
            }
            sent?;
            self.read_down_to(8, answers)?;
        }
        while self.left > 0 {
            self.left -= 1;
            self.act(mouth)?;
            let most = self.generator.random.below(7) as usize;
            self.read_down_to(most, answers)?;
        }
        self.read_down_to(0, answers)
    }

    /// Sends a new command, and now and then something that was sent before.
    fn act(&mut self, mouth: &mut FrameSender) -> Result<(), Gone> {
        let command = self.generator.fresh(&self.crowd);
        if command.asks.kind == "create_session" {
            self.crowd.open_to_all(command.asks.session.as_deref().unwrap_or_default());
        }
        if self.generator.random.one_in(60) {
            // Sent, and hung up before anything was heard.
            let Ok((mut other, _ear)) = websocket::open(self.life.at) else { return Err(Gone) };
            self.crowd.sending(&command, Standing::New);
            let _ = other.send_text(&command.line());
            self.crowd.over(self.life.number, command.clone(), None);
        }
        self.send(mouth, command.clone())?;
        let named = command.id.is_some() || command.key.is_some();
        match self.generator.random.below(20) {
            0 if named => self.send(mouth, command)?,
            1 if named => {
                let other = self.generator.conflicting(&command);
                self.send(mouth, other)?;
            }
            2..5 => {
                if let Some(other) = self.crowd.recent(&mut self.generator.random) {
                    self.repeat(mouth, other)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Sends again what somebody sent, the same or under another name.
    fn repeat(&mut self, mouth: &mut FrameSender, command: Command) -> Result<(), Gone> {
        if command.key.is_some() && self.generator.random.one_in(2) {
            let command = self.generator.by_key(&command);
            return self.send(mouth, command);
        }
        if command.id.is_none() && command.key.is_none() {
            return Ok(());
        }
        self.send(mouth, command)
    }

    fn send(&mut self, mouth: &mut FrameSender, command: Command) -> Result<(), Gone> {
        self.crowd.sending(&command, Standing::New);
        self.say(mouth, command)
    }

    fn say(&mut self, mouth: &mut FrameSender, command: Command) -> Result<(), Gone> {
        let said = mouth.send_text(&command.line());
        let name = (command.id.clone(), command.asks.kind.clone());
        self.asked.entry(name).or_default().push(command);
        self.waiting += 1;
        said.map_err(|_| Gone)
    }

    /// Reads answers until it waits for no more than so many.
    fn read_down_to(&mut self, most: usize, answers: &Receiver<String>) -> Result<(), Gone> {
        while self.waiting > most {
            match answers.recv_timeout(TIMEOUT) {
                Ok(line) => self.hear(line),
                Err(RecvTimeoutError::Disconnected) => return Err(Gone),
                Err(RecvTimeoutError::Timeout) => panic!("no answer to any of {:?}", self.asked),
            }
        }
        Ok(())
    }

    fn hear(&mut self, line: String) {
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        let id = answer["id"].as_str().map(ToOwned::to_owned);
        let name = (id, answer["command"].as_str().expect("a command").to_owned());
        let command = self.asked.get_mut(&name).and_then(Vec::pop);
        let command = command.unwrap_or_else(|| panic!("an answer to nothing: {line}"));
        self.waiting -= 1;
        if let (Some(session), Some(version)) = (&command.asks.session, answer["sessionVersion"].as_u64()) {
            self.crowd.heard_of(session, version);
        }
        if command.id.is_some() {
            self.answered.push_back(command.clone());
            if self.answered.len() > 10 {
                self.answered.pop_front();
            }
        }
        self.crowd.over(self.life.number, command, Some(line));
    }
}
