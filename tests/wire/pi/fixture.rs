//! The fixture of a transcript: a home, a daemon in it, and a model server if needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::pi::line::{Connection, Transport};
use crate::support::daemon::{Daemon, wait_until};
use crate::support::model::{End, Fault, ModelServer, Reply, ServerDialect, Step, TurnCost, call, fault, say, think};

/// The setup before the daemon starts.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) variables: Vec<(String, String)>,
    /// Lines of the configuration.
    pub(crate) config: Vec<String>,
    /// Files of the home and their contents.
    pub(crate) files: Vec<(String, String)>,
    /// Whether there is a model server; otherwise the provider is the playbook.
    pub(crate) model: bool,
}

/// A home with a daemon in it.
pub(crate) struct Fixture {
    pub(crate) daemon: Daemon,
    pub(crate) model: Option<ModelServer>,
    pub(crate) address: String,
    /// Whether another daemon has replaced the first one, which this fixture must end.
    replaced: bool,
}

impl Fixture {
    pub(crate) fn new(setup: &Setup) -> Self {
        let home = TempDir::new().expect("a home");
        let model = setup.model.then(ModelServer::start);
        let mut config = String::new();
        if let Some(model) = &model {
            let location = model.base_url(ServerDialect::Ollama);
            config = format!(
                "provider = \"ollama\"\nmodel = \"test-model\"\n[providers.ollama]\nbase_url = \"{location}\"\n"
            );
        }
        config.extend(setup.config.iter().map(|line| format!("{line}\n")));
        write(&home.path().join(".config/push/config.toml"), &config);
        fs::create_dir_all(home.path().join("work")).expect("a directory for sessions");
        for (name, text) in &setup.files {
            write(&location(home.path(), name), text);
        }
        let variables: Vec<_> = setup.variables.iter().map(|(name, value)| (&**name, &**value)).collect();
        let daemon = Daemon::start_in(home, &variables, &["--pi=127.0.0.1:0"]);
        let mut fixture = Self { daemon, model, address: String::new(), replaced: false };
        fixture.find();
        fixture
    }

    /// Connects a client.
    pub(crate) fn connect(&self, transport: Transport) -> Connection {
        Connection::connect(transport, &self.daemon, &self.address)
    }

    /// Starts the daemon again, at another address.
    pub(crate) fn restart_daemon(&mut self) {
        self.daemon.restart();
        self.find();
    }

    /// Restarts the daemon by `push daemon restart`.
    pub(crate) fn replace(&mut self) {
        self.replaced = true;
        self.cli(&["daemon", "restart"]);
        assert!(self.daemon.ended().success(), "the daemon failed");
        self.find();
    }

    /// Runs `push`, which must succeed, and returns its output.
    pub(crate) fn cli(&self, words: &[&str]) -> String {
        let output = self.daemon.command("push").args(words).output().expect("push");
        assert!(output.status.success(), "push {words:?}: {output:?}");
        String::from_utf8(output.stdout).expect("a text")
    }

    /// A path in the directory of the sessions, or in the home where it begins with `~/`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        location(self.daemon.home.path(), name)
    }

    pub(crate) fn home(&self) -> String {
        self.daemon.home.path().to_string_lossy().into_owned()
    }

    /// Waits until a file contains a text; with an empty text, until it exists.
    pub(crate) fn wait_for_file(&self, name: &str, text: &str) {
        let path = self.path(name);
        let holds = || fs::read_to_string(&path).is_ok_and(|found| found.contains(text));
        wait_until(&format!("{text:?} is in {name}"), holds);
    }

    fn find(&mut self) {
        let status: Value = serde_json::from_str(&self.cli(&["daemon", "status", "--json"])).expect("JSON");
        self.address = status["pi"].as_str().expect("an address").to_owned();
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if self.replaced {
            // It may have ended already.
            let _ = self.daemon.command("push").args(["daemon", "stop", "--force"]).output();
        }
    }
}

fn location(home: &Path, name: &str) -> PathBuf {
    name.strip_prefix("~/").map_or_else(|| home.join("work").join(name), |name| home.join(name))
}

/// Writes a file and the directories above it.
pub(crate) fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("a file");
}

/// Parses a reply of the model: a text, a list of steps, or an object with more settings.
pub(crate) fn reply(value: &Value) -> Reply {
    match value {
        Value::String(text) => Reply::says(text),
        Value::Array(steps) => Reply::turn(steps.iter().map(step)),
        Value::Object(_) => {
            if let Some(status) = value["status"].as_u64() {
                let body = value["body"].as_str().unwrap_or("{}");
                let reply = Reply::status(u16::try_from(status).expect("a status"), body);
                let later = value["retry-after"].as_str();
                return later.map_or_else(|| reply.clone(), |later| reply.clone().header("retry-after", later));
            }
            if value["never"] == true {
                return Reply::Never;
            }
            let steps = value["steps"].as_array().expect("steps").iter().map(step);
            let reply = Reply::turn(steps);
            let reply = if value["end"] == "length" { reply.ends(End::Length) } else { reply };
            let reply = match value["pace"].as_u64() {
                Some(millis) => reply.delivered(crate::support::model::Delivery::Paced(Duration::from_millis(millis))),
                None => reply,
            };
            match (value["in"].as_u64(), value["out"].as_u64()) {
                (Some(fresh), Some(output)) => {
                    reply.spends(TurnCost { fresh, cache_read: 0, cache_write: 0, output, dollars: 0.0 })
                }
                _ => reply,
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => panic!("{value} is not a reply of a model"),
    }
}

fn step(value: &Value) -> Step {
    if let Some(text) = value["say"].as_str() {
        return say(text);
    }
    if let Some(text) = value["think"].as_str() {
        return think(text);
    }
    match (value.as_str(), value["call"].as_str()) {
        (_, Some(tool)) => call(value["id"].as_str().unwrap_or("call_1"), tool, &value["args"].to_string()),
        (Some("stall"), _) => fault(Fault::Stall),
        (Some("cut"), _) => fault(Fault::Cut),
        _ => panic!("{value} is not a step"),
    }
}
