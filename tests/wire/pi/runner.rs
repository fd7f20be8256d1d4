//! Runs a transcript over one transport.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::pi::agent_cli;
use crate::pi::external_writer;
use crate::pi::fixture::{Fixture, Setup, reply, write};
use crate::pi::line::{Connection, Transport};
use crate::pi::pattern::{Names, matches};
use crate::pi::rules::{self, Clients};
use crate::pi::schema;
use crate::pi::script::{self, Action, Step};
use crate::support::daemon::{Client, wait_until};
use crate::support::model::ServerDialect;

/// Runs a transcript.
pub(crate) fn run(transport: Transport, text: &str) {
    let steps = script::parse(text);
    let setup = Setup { model: steps.iter().any(|step| step.word == "model"), ..Setup::default() };
    let mut runner = TranscriptRunner {
        transport,
        setup,
        fixture: None,
        tracked_connections: BTreeMap::new(),
        names: Names::new(),
        push: None,
        made: 0,
        clients: Clients::One,
    };
    for step in &steps {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| runner.execute(step))) {
            eprintln!("line {}, over {transport:?}: {}", step.number, step.text);
            runner.show();
            resume_unwind(panic);
        }
    }
    runner.end();
}

struct TranscriptRunner {
    transport: Transport,
    setup: Setup,
    fixture: Option<Fixture>,
    tracked_connections: BTreeMap<char, TrackedConnection>,
    names: Names,
    push: Option<Client>,
    /// The number of generated ids.
    made: usize,
    clients: Clients,
}

/// A connection, and which of its lines were matched.
struct TrackedConnection {
    connection: Connection,
    /// Which lines were matched.
    matched: Vec<bool>,
    /// The line after which an ordered match is searched.
    after: usize,
    /// Whether it is closed.
    closed: bool,
}

impl TranscriptRunner {
    fn execute(&mut self, step: &Step) {
        let rest = self.substitute(&step.rest);
        match script::parse_step(step, &rest) {
            Some(action) => self.perform(step.on, action),
            None => self.perform_setup(step, &rest),
        }
    }

    /// Replaces names by their values, and `${x*9}` by nine letters.
    fn substitute(&mut self, text: &str) -> String {
        let mut filled = text.to_owned();
        if filled.contains("${home}") {
            filled = filled.replace("${home}", &self.fixture().home());
        }
        while let Some(at) = filled.find("${x*") {
            let end = at + filled[at..].find('}').expect("its end");
            let times = filled[at + 4..end].parse().expect("a number");
            filled.replace_range(at..=end, &"x".repeat(times));
        }
        for (name, value) in &self.names {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            filled = filled.replace(&format!("${{{name}}}"), &value);
        }
        assert!(!filled.contains("${"), "an unbound name: {filled}");
        filled
    }

    fn fixture(&mut self) -> &mut Fixture {
        self.fixture.get_or_insert_with(|| Fixture::new(&self.setup))
    }

    fn tracked(&mut self, on: char) -> &mut TrackedConnection {
        let transport = self.transport;
        if !self.tracked_connections.contains_key(&on) {
            let line = self.fixture().connect(transport);
            if !self.tracked_connections.is_empty() {
                self.clients = Clients::Several;
            }
            self.tracked_connections
                .insert(on, TrackedConnection { connection: line, matched: Vec::new(), after: 0, closed: false });
        }
        self.tracked_connections.get_mut(&on).expect("a connection")
    }

    fn perform(&mut self, on: char, action: Action) {
        match action {
            Action::Send { command, valid } => self.send(on, command, valid),
            Action::Raw(text) => self.tracked(on).connection.send_text(&text),
            Action::Ok { id, pattern } => {
                let answer = self.answer(on, id);
                assert_eq!(answer["success"], true, "a failure: {answer}");
                self.assert_matches(&pattern, &answer);
            }
            Action::Is { id, pattern } => {
                let answer = self.answer(on, id);
                self.assert_matches(&pattern, &answer);
            }
            Action::No { id, error } => {
                let answer = self.answer(on, id);
                assert_eq!(answer["success"], false, "a success: {answer}");
                assert!(answer.get("data").is_none(), "a failure with data: {answer}");
                let found = answer["error"].as_str().expect("an error");
                match error.strip_prefix('~') {
                    Some(part) => assert!(found.contains(part), "{part:?} is not in {found:?}"),
                    None => assert_eq!(found, error),
                }
            }
            Action::Comes(pattern) => drop(self.find(on, &pattern, 0)),
            Action::Follows(pattern) | Action::Event(pattern) => {
                let after = self.tracked(on).after;
                let at = self.find(on, &pattern, after);
                self.tracked(on).after = at + 1;
            }
            Action::Never(pattern) => assert_eq!(self.count(on, &pattern), 0, "{pattern} was received"),
            Action::Count(number, pattern) => assert_eq!(self.count(on, &pattern), number, "{pattern}"),
        }
    }

    fn send(&mut self, on: char, mut command: Value, valid: Option<bool>) {
        self.made += 1;
        match command["id"].as_str() {
            Some("-") => drop(command.as_object_mut().expect("an object").remove("id")),
            Some(_) => {}
            None if command["id"].is_null() => command["id"] = json!(format!("c{}", self.made)),
            None => {}
        }
        if command["type"] == "create_session" && command.get("cwd").is_none() {
            command["cwd"] = json!(format!("{}/work", self.fixture().home()));
        }
        match valid {
            Some(true) => schema::assert_valid_command(&command),
            Some(false) => assert!(!schema::is_valid_command(&command), "the schemas allow {command}"),
            None => {}
        }
        self.tracked(on).connection.send(command);
    }

    /// Waits for the response to a command, or to the last one.
    fn answer(&mut self, on: char, id: Option<String>) -> Value {
        let pattern = match id {
            Some(id) => json!({"type": "response", "id": id}),
            None => match self.tracked(on).connection.sent.last() {
                Some(sent) => {
                    let id = &sent.command["id"];
                    let id = if id.is_string() { id.clone() } else { "$none".into() };
                    let kind = sent.command["type"].as_str().unwrap_or("unknown");
                    json!({"type": "response", "command": kind, "id": id})
                }
                None => json!({"type": "response"}),
            },
        };
        let at = self.find(on, &pattern, 0);
        self.tracked(on).connection.log[at].clone()
    }

    fn assert_matches(&mut self, pattern: &Value, value: &Value) {
        if let Err(why) = matches(pattern, value, &mut self.names) {
            panic!("{why}\n  in {value}");
        }
    }

    /// Waits for a line at or after `from` that was not matched yet; the oldest one is taken.
    fn find(&mut self, on: char, pattern: &Value, from: usize) -> usize {
        let mut names = self.names.clone();
        let tracked = self.tracked(on);
        let mut at = from;
        loop {
            while at < tracked.connection.log.len() {
                tracked.matched.resize(tracked.connection.log.len(), false);
                if !tracked.matched[at] && matches(pattern, &tracked.connection.log[at], &mut names).is_ok() {
                    tracked.matched[at] = true;
                    self.names = names;
                    return at;
                }
                at += 1;
            }
            assert!(tracked.connection.receive(), "the connection was closed before {pattern} was received");
        }
    }

    fn count(&mut self, on: char, pattern: &Value) -> usize {
        let names = self.names.clone();
        let log = &self.tracked(on).connection.log;
        log.iter().filter(|line| matches(pattern, line, &mut names.clone()).is_ok()).count()
    }

    /// Steps outside the protocol: configuration, files, the daemon, another client.
    fn perform_setup(&mut self, step: &Step, rest: &str) {
        let (first, more) = rest.split_once(' ').unwrap_or((rest, ""));
        match step.word.as_str() {
            "env" => {
                let (name, value) = rest.split_once('=').expect("a variable");
                self.before().variables.push((name.to_owned(), value.to_owned()));
            }
            "config" => self.before().config.push(rest.to_owned()),
            "file" => {
                let text = script::pattern(more).as_str().expect("a text").to_owned();
                match &self.fixture {
                    Some(fixture) => write(&fixture.path(first), &text),
                    None => self.setup.files.push((first.to_owned(), text)),
                }
            }
            "agent" => {
                let (flags, message) = rest.split_once(" / ").expect("flags and a message");
                let words: Vec<&str> = flags.split_whitespace().chain([message]).collect();
                let fixture = self.fixture();
                let model = fixture.model.as_ref().expect("a model").base_url(ServerDialect::OpenAi);
                agent_cli::run(fixture.daemon.home.path(), &model, &words);
            }
            "foreign" => {
                let (question, answered) = more.split_once(" / ").expect("a message and an answer");
                let path = self.fixture().path(first);
                external_writer::turn(&path, question, answered);
            }
            "older" => external_writer::as_earlier_version(&self.fixture().path(first)),
            "append" => {
                external_writer::append(&self.fixture().path(first), script::pattern(more).as_str().expect("a text"))
            }
            "remove" => std::fs::remove_file(self.fixture().path(first)).expect("a file"),
            "absent" => assert!(!self.fixture().path(first).exists(), "{first} still exists"),
            "contains" => external_writer::assert_contains(&self.fixture().path(first), more),
            "lacks" => external_writer::assert_lacks(&self.fixture().path(first), more),
            "model" => {
                let reply = reply(&script::pattern(rest));
                self.fixture().model.as_ref().expect("a model").script([reply]);
            }
            "request" => self.check_model_request(first, more),
            "requests" => {
                let number: usize = first.parse().expect("a number");
                let model = self.fixture().model.as_ref().expect("a model");
                let turns = || model.seen().iter().filter(|seen| seen.method == "POST").count();
                wait_until("a request to the model", || turns() >= number);
            }
            "link" => std::os::unix::fs::symlink(more, self.fixture().path(first)).expect("a link"),
            "touch" => write(&self.fixture().path(first), ""),
            "until" => self.fixture().wait_for_file(first, more),
            "parked" => {
                let client = self.client();
                wait_until("no session is in memory", || client.get("get_metrics", json!({}))["residentSessions"] == 0);
            }
            "connect" => drop(self.tracked(step.on)),
            "close" => {
                let code = self.tracked(step.on).connection.finish();
                assert!(code.is_none_or(|code| code == 0), "push pi --stdio ended with {code:?}");
                self.tracked(step.on).closed = true;
            }
            "closed" => {
                self.tracked(step.on).connection.read_to_end();
                self.tracked(step.on).closed = true;
            }
            "term" => {
                let pid = i32::try_from(self.fixture().daemon.pid()).expect("a process id");
                kill(Pid::from_raw(pid), Signal::SIGTERM).expect("a signal to the daemon");
            }
            "kill" => {
                self.fixture().daemon.kill();
                self.restart();
                self.fixture().restart_daemon();
            }
            "crash" => {
                self.fixture().daemon.kill();
                let index = self.fixture().path("~/.push/state/session-files.json");
                external_writer::awaits_branch_after(&index, first.parse().expect("a number"));
                self.restart();
                self.fixture().restart_daemon();
            }
            "replace" => {
                self.fixture().replace();
                self.restart();
            }
            "restart" => {
                assert!(self.fixture().daemon.ended().success(), "the daemon failed");
                self.restart();
                self.fixture().restart_daemon();
            }
            "cli" => drop(self.fixture().cli(&rest.split_whitespace().collect::<Vec<_>>())),
            "push" => self.push(first, more),
            "pushno" => {
                let (kind, payload) = more.split_once(' ').expect("a request");
                assert_eq!(self.client().refused(kind, script::pattern(payload)), first);
            }
            "pushev" => {
                let event = self.client().event_of(first);
                self.assert_matches(&script::pattern(more), &event);
            }
            other => panic!("unknown step {other}"),
        }
    }

    fn before(&mut self) -> &mut Setup {
        assert!(self.fixture.is_none(), "the daemon runs already");
        &mut self.setup
    }

    /// Matches the body of a request to the model, by its number.
    fn check_model_request(&mut self, number: &str, pattern: &str) {
        let number: usize = number.parse().expect("a number");
        let seen = self.fixture().model.as_ref().expect("a model").seen();
        let requests: Vec<_> = seen.iter().filter(|seen| seen.method == "POST").collect();
        self.assert_matches(&script::pattern(pattern), &requests[number].body);
    }

    /// Drops the connections, which are closed.
    fn restart(&mut self) {
        for tracked in std::mem::take(&mut self.tracked_connections).into_values() {
            rules::check(&tracked.connection.log, &tracked.connection.sent, Clients::Several);
        }
        self.push = None;
    }

    fn client(&mut self) -> &mut Client {
        self.clients = Clients::Several;
        if self.push.is_none() {
            self.push = Some(self.fixture().daemon.connect());
        }
        self.push.as_mut().expect("a client")
    }

    /// A request of the Push protocol that must succeed; a pattern for its response follows `->`.
    fn push(&mut self, kind: &str, more: &str) {
        let (payload, pattern) = more.split_once(" -> ").unwrap_or((more, "{}"));
        let answer = self.client().get(kind, script::pattern(payload));
        self.assert_matches(&script::pattern(pattern), &answer);
    }

    fn end(mut self) {
        let clients = self.clients;
        for tracked in self.tracked_connections.values_mut() {
            if !tracked.closed {
                tracked.connection.send(json!({"type": "health_check", "id": "the-last"}));
                while tracked.connection.log.last().is_none_or(|line| line["id"] != "the-last") {
                    assert!(tracked.connection.receive(), "the connection was closed");
                }
                let code = tracked.connection.finish();
                assert!(code.is_none_or(|code| code == 0), "push pi --stdio ended with {code:?}");
            }
            rules::check(&tracked.connection.log, &tracked.connection.sent, clients);
        }
    }

    fn show(&self) {
        for (name, tracked) in &self.tracked_connections {
            for line in &tracked.connection.log {
                eprintln!("{name}: {}", line.to_string().chars().take(600).collect::<String>());
            }
        }
        if let Some(fixture) = &self.fixture {
            let log = fixture.daemon.log();
            eprintln!("{}", log.lines().rev().take(10).collect::<Vec<_>>().join("\n"));
        }
    }
}
