//! Plays a transcript over one transport.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::pi::agent_cli;
use crate::pi::foreign;
use crate::pi::judge;
use crate::pi::line::{Line, Via};
use crate::pi::pattern::{Names, matches};
use crate::pi::rules::{self, Alone};
use crate::pi::script::{self, Act, Step};
use crate::pi::world::{Ground, World, reply, write};
use crate::support::daemon::{Client, wait_until};
use crate::support::model::ServerDialect;

/// Plays a transcript from beginning to end.
pub(crate) fn play(via: Via, text: &str) {
    let steps = script::read(text);
    let ground = Ground { model: steps.iter().any(|step| step.word == "model"), ..Ground::default() };
    let mut stage = Stage {
        via,
        ground,
        world: None,
        sides: BTreeMap::new(),
        names: Names::new(),
        push: None,
        made: 0,
        alone: Alone::Yes,
    };
    for step in &steps {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| stage.take(step))) {
            eprintln!("line {}, over {via:?}: {}", step.number, step.text);
            stage.show();
            resume_unwind(panic);
        }
    }
    stage.end();
}

struct Stage {
    via: Via,
    ground: Ground,
    world: Option<World>,
    sides: BTreeMap<char, Side>,
    names: Names,
    push: Option<Client>,
    /// How many ids were made.
    made: usize,
    alone: Alone,
}

/// A connection, and what of it was looked at.
struct Side {
    line: Line,
    /// Which lines were found already.
    taken: Vec<bool>,
    /// Behind which line the next one is looked for.
    behind: usize,
    /// Whether it is over.
    closed: bool,
}

impl Stage {
    fn take(&mut self, step: &Step) {
        let rest = self.filled_in(&step.rest);
        match script::act(step, &rest) {
            Some(act) => self.speak(step.on, act),
            None => self.arrange(step, &rest),
        }
    }

    /// Replaces names by what they stand for, and `${x*9}` by nine letters.
    fn filled_in(&mut self, text: &str) -> String {
        let mut filled = text.to_owned();
        if filled.contains("${home}") {
            filled = filled.replace("${home}", &self.world().home());
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
        assert!(!filled.contains("${"), "a name that nobody gave: {filled}");
        filled
    }

    fn world(&mut self) -> &mut World {
        self.world.get_or_insert_with(|| World::new(&self.ground))
    }

    fn side(&mut self, on: char) -> &mut Side {
        let via = self.via;
        if !self.sides.contains_key(&on) {
            let line = self.world().connect(via);
            if !self.sides.is_empty() {
                self.alone = Alone::No;
            }
            self.sides.insert(on, Side { line, taken: Vec::new(), behind: 0, closed: false });
        }
        self.sides.get_mut(&on).expect("a connection")
    }

    fn speak(&mut self, on: char, act: Act) {
        match act {
            Act::Send { command, valid } => self.send(on, command, valid),
            Act::Raw(text) => self.side(on).line.send_text(&text),
            Act::Ok { id, pattern } => {
                let answer = self.answer(on, id);
                assert_eq!(answer["success"], true, "a failure: {answer}");
                self.hold(&pattern, &answer);
            }
            Act::Is { id, pattern } => {
                let answer = self.answer(on, id);
                self.hold(&pattern, &answer);
            }
            Act::No { id, error } => {
                let answer = self.answer(on, id);
                assert_eq!(answer["success"], false, "a success: {answer}");
                assert!(answer.get("data").is_none(), "a failure with data: {answer}");
                let found = answer["error"].as_str().expect("an error");
                match error.strip_prefix('~') {
                    Some(part) => assert!(found.contains(part), "{part:?} is not in {found:?}"),
                    None => assert_eq!(found, error),
                }
            }
            Act::Comes(pattern) => drop(self.find(on, &pattern, 0)),
            Act::Follows(pattern) | Act::Event(pattern) => {
                let behind = self.side(on).behind;
                let at = self.find(on, &pattern, behind);
                self.side(on).behind = at + 1;
            }
            Act::Never(pattern) => assert_eq!(self.count(on, &pattern), 0, "{pattern} came"),
            Act::Count(number, pattern) => assert_eq!(self.count(on, &pattern), number, "{pattern}"),
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
            command["cwd"] = json!(format!("{}/work", self.world().home()));
        }
        match valid {
            Some(true) => judge::command(&command),
            Some(false) => assert!(!judge::allows(&command), "the schemas allow {command}"),
            None => {}
        }
        self.side(on).line.send(command);
    }

    /// Waits for the answer to a command, or to the last.
    fn answer(&mut self, on: char, id: Option<String>) -> Value {
        let pattern = match id {
            Some(id) => json!({"type": "response", "id": id}),
            None => match self.side(on).line.sent.last() {
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
        self.side(on).line.log[at].clone()
    }

    fn hold(&mut self, pattern: &Value, value: &Value) {
        if let Err(why) = matches(pattern, value, &mut self.names) {
            panic!("{why}\n  in {value}");
        }
    }

    /// Waits for a line that nobody has found yet, behind `from`; the oldest counts.
    fn find(&mut self, on: char, pattern: &Value, from: usize) -> usize {
        let mut names = self.names.clone();
        let side = self.side(on);
        let mut at = from;
        loop {
            while at < side.line.log.len() {
                side.taken.resize(side.line.log.len(), false);
                if !side.taken[at] && matches(pattern, &side.line.log[at], &mut names).is_ok() {
                    side.taken[at] = true;
                    self.names = names;
                    return at;
                }
                at += 1;
            }
            assert!(side.line.hear(), "the connection was closed before {pattern} came");
        }
    }

    fn count(&mut self, on: char, pattern: &Value) -> usize {
        let names = self.names.clone();
        let log = &self.side(on).line.log;
        log.iter().filter(|line| matches(pattern, line, &mut names.clone()).is_ok()).count()
    }

    /// What is no word of the protocol: the surroundings, files, the daemon, another client.
    fn arrange(&mut self, step: &Step, rest: &str) {
        let (first, more) = rest.split_once(' ').unwrap_or((rest, ""));
        match step.word.as_str() {
            "env" => {
                let (name, value) = rest.split_once('=').expect("a variable");
                self.before().variables.push((name.to_owned(), value.to_owned()));
            }
            "config" => self.before().config.push(rest.to_owned()),
            "file" => {
                let text = script::pattern(more).as_str().expect("a text").to_owned();
                match &self.world {
                    Some(world) => write(&world.path(first), &text),
                    None => self.ground.files.push((first.to_owned(), text)),
                }
            }
            "agent" => {
                let (flags, message) = rest.split_once(" / ").expect("flags and a message");
                let words: Vec<&str> = flags.split_whitespace().chain([message]).collect();
                let world = self.world();
                let model = world.model.as_ref().expect("a model").base_url(ServerDialect::OpenAi);
                agent_cli::run(world.daemon.home.path(), &model, &words);
            }
            "foreign" => {
                let (asked, answered) = more.split_once(" / ").expect("a message and an answer");
                let path = self.world().path(first);
                foreign::turn(&path, asked, answered);
            }
            "older" => foreign::as_earlier_version(&self.world().path(first)),
            "append" => foreign::append(&self.world().path(first), script::pattern(more).as_str().expect("a text")),
            "remove" => std::fs::remove_file(self.world().path(first)).expect("a file"),
            "gone" => assert!(!self.world().path(first).exists(), "{first} is still there"),
            "holds" => foreign::holds(&self.world().path(first), more),
            "lacks" => foreign::lacks(&self.world().path(first), more),
            "model" => {
                let reply = reply(&script::pattern(rest));
                self.world().model.as_ref().expect("a model").script([reply]);
            }
            "told" => self.told(first, more),
            "asked" => {
                let number: usize = first.parse().expect("a number");
                let model = self.world().model.as_ref().expect("a model");
                let turns = || model.seen().iter().filter(|seen| seen.method == "POST").count();
                wait_until("the model is asked", || turns() >= number);
            }
            "link" => std::os::unix::fs::symlink(more, self.world().path(first)).expect("a link"),
            "touch" => write(&self.world().path(first), ""),
            "until" => self.world().until_file(first, more),
            "parked" => {
                let client = self.client();
                wait_until("no session is in memory", || client.get("get_metrics", json!({}))["residentSessions"] == 0);
            }
            "connect" => drop(self.side(step.on)),
            "close" => {
                let code = self.side(step.on).line.finish();
                assert!(code.is_none_or(|code| code == 0), "the bridge ended with {code:?}");
                self.side(step.on).closed = true;
            }
            "closed" => {
                self.side(step.on).line.until_closed();
                self.side(step.on).closed = true;
            }
            "term" => {
                let pid = i32::try_from(self.world().daemon.pid()).expect("a process id");
                kill(Pid::from_raw(pid), Signal::SIGTERM).expect("the daemon is asked");
            }
            "kill" => {
                self.world().daemon.kill();
                self.restart();
                self.world().start_again();
            }
            "dies" => {
                self.world().daemon.kill();
                let index = self.world().path("~/.push/state/session-files.json");
                foreign::awaits_branch_after(&index, first.parse().expect("a number"));
                self.restart();
                self.world().start_again();
            }
            "replace" => {
                self.world().replace();
                self.restart();
            }
            "again" => {
                assert!(self.world().daemon.ended().success(), "the daemon did not end well");
                self.restart();
                self.world().start_again();
            }
            "cli" => drop(self.world().cli(&rest.split_whitespace().collect::<Vec<_>>())),
            "push" => self.push(first, more),
            "pushno" => {
                let (kind, payload) = more.split_once(' ').expect("a request");
                assert_eq!(self.client().refused(kind, script::pattern(payload)), first);
            }
            "pushev" => {
                let event = self.client().event_of(first);
                self.hold(&script::pattern(more), &event);
            }
            other => panic!("{other} is no word"),
        }
    }

    fn before(&mut self) -> &mut Ground {
        assert!(self.world.is_none(), "the daemon runs already");
        &mut self.ground
    }

    /// Looks at what a model was told, by the number of the question: a pattern for its messages.
    fn told(&mut self, number: &str, pattern: &str) {
        let number: usize = number.parse().expect("a number");
        let seen = self.world().model.as_ref().expect("a model").seen();
        let asked: Vec<_> = seen.iter().filter(|seen| seen.method == "POST").collect();
        self.hold(&script::pattern(pattern), &asked[number].body);
    }

    /// Forgets the connections, which are over.
    fn restart(&mut self) {
        for side in std::mem::take(&mut self.sides).into_values() {
            rules::hold(&side.line.log, &side.line.sent, Alone::No);
        }
        self.push = None;
    }

    fn client(&mut self) -> &mut Client {
        self.alone = Alone::No;
        if self.push.is_none() {
            self.push = Some(self.world().daemon.connect());
        }
        self.push.as_mut().expect("a client")
    }

    /// A request of the Push protocol that must be granted; what follows `->` is what its answer must look like.
    fn push(&mut self, kind: &str, more: &str) {
        let (payload, pattern) = more.split_once(" -> ").unwrap_or((more, "{}"));
        let answer = self.client().get(kind, script::pattern(payload));
        self.hold(&script::pattern(pattern), &answer);
    }

    fn end(mut self) {
        let alone = self.alone;
        for side in self.sides.values_mut() {
            if !side.closed {
                side.line.send(json!({"type": "health_check", "id": "the-last"}));
                while side.line.log.last().is_none_or(|line| line["id"] != "the-last") {
                    assert!(side.line.hear(), "the connection was closed");
                }
                let code = side.line.finish();
                assert!(code.is_none_or(|code| code == 0), "the bridge ended with {code:?}");
            }
            rules::hold(&side.line.log, &side.line.sent, alone);
        }
    }

    fn show(&self) {
        for (name, side) in &self.sides {
            for line in &side.line.log {
                eprintln!("{name}: {}", line.to_string().chars().take(600).collect::<String>());
            }
        }
        if let Some(world) = &self.world {
            let log = world.daemon.log();
            eprintln!("{}", log.lines().rev().take(10).collect::<Vec<_>>().join("\n"));
        }
    }
}
