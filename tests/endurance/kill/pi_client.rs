//! A client of the Pi protocol with random actions: prompts, reads, answers to questions, and repetitions.
//!
//! It keeps what such a client keeps: the prompts without a response, which it sends again under the same id, and the
//! questions of its session. Everything it was told is compared with the history at the end.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::connection::{Connection, ConnectionLost, ReadResult};
use super::harness::{Harness, Moment, Phase, TIMEOUT};
use super::history::HistoryEvent;
use super::observations::excerpt;
use super::request::environment;
use super::workload;
use crate::support::random::Random;

/// What the clients of the protocol sent and were told.
#[derive(Default)]
pub(crate) struct PiObservations {
    /// By the id of the command.
    prompts: BTreeMap<String, Prompt>,
    /// By session: the messages of the user in each answer to a query.
    reads: Vec<(String, Vec<String>)>,
    /// How many prompts were sent more than once.
    pub(crate) repeated: usize,
}

struct Prompt {
    session: String,
    command: Value,
    steps: Vec<String>,
    /// Whether it succeeded, once it is answered.
    success: Option<bool>,
}

impl PiObservations {
    /// Returns the names of all steps.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &String> {
        self.prompts.values().flat_map(|prompt| &prompt.steps)
    }

    /// Returns the number of prompts that succeeded, and of queries.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.prompts.values().filter(|prompt| prompt.success == Some(true)).count(), self.reads.len())
    }

    /// Compares the history of a session, and its messages as a client reads them, with everything that was told.
    pub(crate) fn verify(&self, session: &str, events: &[HistoryEvent], last: &[String], findings: &mut Vec<String>) {
        for (id, prompt) in self.prompts.iter().filter(|(_, prompt)| prompt.session == session) {
            let mark = mark(id);
            let begun =
                events.iter().filter(|event| event.kind == "user_message" && event.text("text").contains(&mark));
            let (begun, read) = (begun.count(), last.iter().filter(|text| text.contains(&mark)).count());
            let fits = match prompt.success {
                Some(true) => begun == 1,
                Some(false) => begun == 0,
                None => begun <= 1,
            };
            if !fits || read != begun {
                let success = prompt.success;
                findings.push(format!("{session}: {id} ({success:?}) is there {begun} times and read {read} times"));
            }
        }
        for (_, read) in self.reads.iter().filter(|(of, _)| of == session) {
            if !last.starts_with(read) {
                let (read, last) = (read.len(), last.len());
                findings.push(format!(
                    "{session}: {read} messages that were read are no beginning of the {last} in the end"
                ));
            }
        }
    }
}

/// The text by which a prompt is found: the name of its first step.
fn mark(id: &str) -> String {
    format!("{id}k0")
}

/// One client.
pub(crate) struct PiClient {
    harness: Arc<Harness>,
    number: usize,
    random: Random,
    generation: u64,
    session: String,
    is_created: bool,
    pending: BTreeMap<String, Pending>,
    /// The ids of prompts whose response was lost.
    unanswered: Vec<String>,
    /// Open questions, with their options.
    questions: BTreeMap<String, Vec<String>>,
    sent: u64,
    is_streaming: bool,
    is_idle: bool,
}

/// A command without a response.
enum Pending {
    Open,
    Prompt(String),
    State,
    Messages,
    Other,
}

/// How long a client reads before its next action.
const TICK: Duration = Duration::from_millis(8);

impl PiClient {
    pub(crate) fn new(harness: Arc<Harness>, number: usize, random: Random) -> Self {
        let session = format!("pi-{}-{number}", harness.name());
        Self {
            harness,
            number,
            random,
            generation: 0,
            session,
            is_created: false,
            pending: BTreeMap::new(),
            unanswered: Vec::new(),
            questions: BTreeMap::new(),
            sent: 0,
            is_streaming: true,
            is_idle: false,
        }
    }

    /// Runs until the phase is `Done`.
    pub(crate) fn run(mut self) {
        while let Some(generation) = self.harness.next_generation(self.generation) {
            self.generation = generation;
            let _ = self.run_connection();
            for pending in std::mem::take(&mut self.pending).into_values() {
                if let Pending::Prompt(id) = pending {
                    self.unanswered.push(id);
                }
            }
            self.questions.clear();
            if !self.harness.was_killed(generation) {
                self.add_finding(&format!("generation {generation}: it lost a daemon that was not killed"));
            }
        }
    }

    fn run_connection(&mut self) -> Result<(), ConnectionLost> {
        let mut connection = connect(&self.harness, self.generation)?;
        let kind = if self.is_created { "switch_session" } else { "create_session" };
        let open = json!({"type": kind, "sessionId": self.session, "cwd": self.harness.cwd()});
        self.send(&mut connection, open, Pending::Open)?;
        loop {
            match connection.read_line(TICK) {
                ReadResult::Line(line) => self.handle_line(&line),
                ReadResult::Timeout => self.random_action(&mut connection)?,
                ReadResult::Closed => return Err(ConnectionLost),
            }
            if self.random.one_in(12) {
                self.random_action(&mut connection)?;
            }
        }
    }

    fn random_action(&mut self, connection: &mut Connection) -> Result<(), ConnectionLost> {
        if !self.is_created || self.pending.len() > 3 || self.harness.phase() == Phase::Done {
            return Ok(());
        }
        if let Some(id) = self.unanswered.pop() {
            self.harness.observations.lock().pi.repeated += 1;
            return self.send_prompt(connection, id);
        }
        let is_finishing = self.harness.phase() == Phase::Finishing;
        let action = if is_finishing { self.random.below(4) } else { self.random.below(12) };
        match action {
            0 => self.send(connection, json!({"type": "get_state"}), Pending::State),
            1 => self.send(connection, json!({"type": "get_messages"}), Pending::Messages),
            2 | 3 => self.answer_question(connection),
            4 => self.repeat_prompt(connection),
            5 => {
                let name = format!("name {}", self.random.below(1_000_000));
                self.send(connection, json!({"type": "set_session_name", "name": name}), Pending::Other)
            }
            6 if self.random.one_in(4) => self.send(connection, json!({"type": "abort"}), Pending::Other),
            _ => self.new_prompt(connection),
        }
    }

    fn new_prompt(&mut self, connection: &mut Connection) -> Result<(), ConnectionLost> {
        let open = |prompt: &&Prompt| prompt.session == self.session && prompt.success.is_none();
        if self.harness.observations.lock().pi.prompts.values().filter(open).count() > 2 {
            return Ok(());
        }
        self.sent += 1;
        let id = format!("{}p{}x{}", self.harness.name(), self.number, self.sent);
        let is_steer = self.random.one_in(4);
        let work = if is_steer {
            workload::steering(&mut self.random, &id, &self.harness.ledger())
        } else {
            workload::message(&mut self.random, &id, &self.harness.ledger(), false)
        };
        let behaviour = if is_steer { "steer" } else { "followUp" };
        let command = json!({"type": "prompt", "idempotencyKey": format!("key-{id}"), "message": work.text,
            "streamingBehavior": behaviour});
        let prompt = Prompt { session: self.session.clone(), command, steps: work.steps, success: None };
        self.harness.observations.lock().pi.prompts.insert(id.clone(), prompt);
        self.send_prompt(connection, id)
    }

    /// Sends a prompt that has succeeded once more.
    fn repeat_prompt(&mut self, connection: &mut Connection) -> Result<(), ConnectionLost> {
        let known: Vec<_> = {
            let seen = self.harness.observations.lock();
            let own = seen.pi.prompts.iter().filter(|(_, prompt)| prompt.session == self.session);
            let answered = own.filter(|(_, prompt)| prompt.success == Some(true)).map(|(id, _)| id.clone());
            // Two copies under way would get two responses under one id.
            answered.filter(|id| !self.pending.contains_key(id)).collect()
        };
        match self.random.pick(&known).cloned() {
            Some(id) => self.send_prompt(connection, id),
            None => Ok(()),
        }
    }

    fn send_prompt(&mut self, connection: &mut Connection, id: String) -> Result<(), ConnectionLost> {
        let mut command = self.harness.observations.lock().pi.prompts[&id].command.clone();
        command["id"] = json!(id);
        self.send(connection, command, Pending::Prompt(id))
    }

    fn answer_question(&mut self, connection: &mut Connection) -> Result<(), ConnectionLost> {
        let open: Vec<_> = self.questions.keys().cloned().collect();
        let Some(id) = self.random.pick(&open).cloned() else { return Ok(()) };
        let options = self.questions.remove(&id).unwrap_or_default();
        let response = match self.random.pick(&options) {
            Some(option) => json!({"method": "select", "value": option}),
            None => json!({"method": "confirm", "confirmed": !self.random.one_in(8)}),
        };
        let answer = json!({"type": "extension_ui_response", "requestId": id, "response": response});
        self.harness.moment_reached(Moment::DecisionSent);
        self.send(connection, answer, Pending::Other)
    }

    fn send(
        &mut self,
        connection: &mut Connection,
        mut command: Value,
        pending: Pending,
    ) -> Result<(), ConnectionLost> {
        self.sent += 1;
        if command["id"].is_null() {
            command["id"] = json!(format!("{}-{}", self.session, self.sent));
        }
        command["sessionId"] = json!(self.session);
        self.pending.insert(command["id"].as_str().expect("an id").to_owned(), pending);
        connection.send_line(&command)?;
        self.harness.moment_reached(Moment::RequestSent);
        Ok(())
    }

    fn handle_line(&mut self, line: &[u8]) {
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            return self.add_finding(&format!("no message: {}", excerpt(line)));
        };
        if message["type"] == "response" {
            self.handle_response(&message);
            self.harness.moment_reached(Moment::Answered);
        } else if message["type"] == "event" && message["event"]["type"] == "extension_ui_request" {
            let request = &message["event"];
            if matches!(request["method"].as_str(), Some("confirm" | "select")) {
                let options = request["options"].as_array().into_iter().flatten();
                let options = options.filter_map(|option| option.as_str().or(option["value"].as_str()));
                let id = request["requestId"].as_str().unwrap_or_default().to_owned();
                self.questions.insert(id, options.map(str::to_owned).collect());
                self.harness.moment_reached(Moment::ApprovalAsked);
            }
        } else if message["event"]["type"] == "agent_end" {
            self.harness.moment_reached(Moment::RunOver);
        }
    }

    fn handle_response(&mut self, message: &Value) {
        let Some(pending) = message["id"].as_str().and_then(|id| self.pending.remove(id)) else {
            return self.add_finding(&format!("an answer to nothing: {message}"));
        };
        let success = message["success"] == true;
        match pending {
            // The response to the command that created it may be lost.
            Pending::Open if success || message["error"].to_string().contains("already exists") => {
                self.is_created = true;
                self.harness.observations.lock().events.entry(self.session.clone()).or_default();
            }
            Pending::Open => self.add_finding(&format!("its session is not there: {message}")),
            Pending::Prompt(id) => {
                let mut seen = self.harness.observations.lock();
                let prompt = seen.pi.prompts.get_mut(&id).expect("a prompt of ours");
                let before = prompt.success.replace(success);
                drop(seen);
                if before.is_some_and(|before| before != success) {
                    self.add_finding(&format!("{id} was answered with {before:?} and then: {message}"));
                }
            }
            Pending::State if success => self.is_streaming = message["data"]["isStreaming"] != false,
            Pending::Messages if success => self.record_messages(user_messages(&message["data"])),
            Pending::State | Pending::Messages => self.add_finding(&format!("a query failed: {message}")),
            // Whatever was asked may be over.
            Pending::Other => {}
        }
    }

    fn record_messages(&mut self, messages: Vec<String>) {
        let mut seen = self.harness.observations.lock();
        let own = seen.pi.prompts.iter().filter(|(_, prompt)| prompt.session == self.session);
        let accepted = own.filter(|(_, prompt)| prompt.success == Some(true));
        let missing = accepted.filter(|(id, _)| !messages.iter().any(|text| text.contains(&mark(id)))).count();
        seen.pi.reads.push((self.session.clone(), messages));
        drop(seen);
        let all_answered = self.pending.is_empty() && self.unanswered.is_empty();
        let is_quiet = missing == 0 && all_answered && !self.is_streaming;
        if is_quiet && !self.is_idle && self.harness.phase() == Phase::Finishing {
            self.is_idle = true;
            self.harness.mark_idle();
        }
    }

    fn add_finding(&self, what: &str) {
        self.harness.observations.add_finding(format!("{}: {what}", self.session));
    }
}

/// Opens a connection of the local socket and continues it in the Pi protocol.
fn connect(harness: &Harness, generation: u64) -> Result<Connection, ConnectionLost> {
    let mut connection = Connection::connect(&harness.socket())?;
    let payload = json!({"protocol": "pi", "cwd": harness.cwd(), "environment": environment(harness, generation)});
    connection.send("speak", &payload)?;
    loop {
        match connection.read_line(TIMEOUT) {
            ReadResult::Line(line) if line.starts_with(b"{\"type\":\"server_ready\"") => return Ok(connection),
            ReadResult::Line(_) => {}
            ReadResult::Timeout => panic!("no greeting"),
            ReadResult::Closed => return Err(ConnectionLost),
        }
    }
}

/// Returns the messages of the user in a session, as a client reads them.
pub(crate) fn fetch_messages(harness: &Harness, session: &str) -> Vec<String> {
    let mut connection = connect(harness, harness.generation()).expect("a daemon that was not killed");
    let query = json!({"id": format!("last-{session}"), "type": "get_messages", "sessionId": session});
    connection.send_line(&query).expect("a daemon that was not killed");
    loop {
        let ReadResult::Line(line) = connection.read_line(TIMEOUT) else { panic!("no messages of {session}") };
        let message: Value = serde_json::from_slice(&line).expect("a message");
        if message["type"] == "response" {
            assert_eq!(message["success"], true, "{message}");
            return user_messages(&message["data"]);
        }
    }
}

fn user_messages(data: &Value) -> Vec<String> {
    let messages = data["messages"].as_array().into_iter().flatten();
    messages.filter(|message| message["role"] == "user").map(|message| message["content"].to_string()).collect()
}
