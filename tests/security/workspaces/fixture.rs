//! A daemon whose owner keeps credentials and a configuration in the home, and a scripted model.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::daemon::{Client, Daemon};
use crate::support::model::{ModelServer, Reply, ServerDialect, call};

pub(crate) struct Fixture {
    pub(crate) daemon: Daemon,
    pub(crate) server: ModelServer,
}

/// The user's configuration, which must not change.
pub(crate) const CONFIGURATION: &str = "[approvals]\npreset = \"strict\"\nrules = [\"ask: read\"]\n";
pub(crate) const SECRET: &str = "a-private-key-of-the-owner";

impl Fixture {
    pub(crate) fn new() -> Self {
        let daemon = Daemon::start_with(&[("PUSH_MODEL_SILENCE_SECONDS", "5"), ("PUSH_MODEL_ATTEMPTS", "1")]);
        let fixture = Self { daemon, server: ModelServer::start() };
        for folder in ["work/sub", ".config/push", ".ssh"] {
            fs::create_dir_all(fixture.path(folder)).unwrap();
        }
        fs::write(fixture.path(".config/push/config.toml"), CONFIGURATION).unwrap();
        fs::write(fixture.path(".ssh/id_ed25519"), SECRET).unwrap();
        fixture
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.daemon.home.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn environment(&self) -> Value {
        json!({
            "PATH": std::env::var("PATH").unwrap_or_default(),
            "HOME": self.path(""),
            "OPENAI_BASE_URL": self.server.base_url(ServerDialect::OpenAi),
            "OPENAI_API_KEY": "sk-test-0123456789abcdef0123456789abcdef",
        })
    }

    pub(crate) fn start(&self, cwd: &Path) -> Value {
        json!({"cwd": cwd, "provider": "openai", "model": "test-model", "environment": self.environment()})
    }

    /// Starts a session with the scripted model.
    pub(crate) fn session(&self, cwd: &Path) -> (Client, String) {
        let mut client = self.daemon.connect();
        let started = client.get("start_session", self.start(cwd));
        (client, started["sessionId"].as_str().unwrap().to_owned())
    }

    /// Scripts the model to use tools, one after the other, and then to say that it is done.
    pub(crate) fn script(&self, calls: &[(&str, Value)]) {
        let turn = |(index, (tool, args)): (usize, &(&str, Value))| {
            Reply::turn([call(&format!("call_{index}"), tool, &args.to_string())])
        };
        let turns: Vec<Reply> = calls.iter().enumerate().map(turn).collect();
        self.server.forget_script();
        self.server.script(turns);
        self.server.usually(Reply::says("Done."));
    }

    /// Attaches to a session after a position, with the environment of the client's shell.
    pub(crate) fn reattach(&self, session: &str, seen: u64) -> Client {
        let mut client = self.daemon.connect();
        let attach = json!({"sessionId": session, "lastSeenSeq": seen, "environment": self.environment()});
        client.get("attach_session", attach);
        client
    }

    /// Fails if any file of the owner was changed.
    pub(crate) fn assert_untouched(&self) {
        assert_eq!(fs::read_to_string(self.path(".config/push/config.toml")).unwrap(), CONFIGURATION);
        assert_eq!(fs::read_to_string(self.path(".ssh/id_ed25519")).unwrap(), SECRET);
        let names = |folder: &str| fs::read_dir(self.path(folder)).unwrap().count();
        assert_eq!((names(".config/push"), names(".ssh")), (1, 1));
    }
}

/// Runs a message to its end, approves every request, and returns all events.
pub(crate) fn run_and_approve(client: &mut Client, session: &str, text: &str) -> Vec<Value> {
    client.prompt(session, text);
    approve_until_complete(client)
}

/// Approves every request until the run ends.
pub(crate) fn approve_until_complete(client: &mut Client) -> Vec<Value> {
    let mut events = Vec::new();
    loop {
        let event = client.event();
        if event["type"] == "approval_required" {
            let answer = client.decide(&event, "approve");
            assert_eq!(answer["ok"], true, "{answer}");
        }
        let over = event["type"] == "run_complete";
        events.push(event);
        if over {
            return events;
        }
    }
}

/// The tool results: status, error kind, and text or message of each.
pub(crate) fn tool_results(events: &[Value]) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let result = |event: &Value| {
        let payload = &event["payload"];
        let error = &payload["structuredError"];
        let message = if error.is_null() { payload["text"].to_string() } else { error.to_string() };
        (text(&payload["status"]), text(&error["code"]), message)
    };
    events.iter().filter(|event| event["type"] == "tool_result").map(result).collect()
}

/// The outcome of the run, and its events as text.
pub(crate) fn outcome(events: &[Value]) -> (String, String) {
    let payload = &events.last().unwrap()["payload"];
    let errors: Vec<String> = events.iter().filter(|event| event["type"] == "error").map(Value::to_string).collect();
    (payload["outcome"].as_str().unwrap().to_owned(), format!("{payload} {}", errors.join(" ")))
}
