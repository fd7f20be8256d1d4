//! The fixture of these tests: a daemon, a scripted model server, and a repository with a failing test.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::daemon::{Client, Daemon};
use crate::support::model::{ModelServer, Reply, ServerDialect, Step, call, say};

/// A daemon, a model server and a workspace.
pub(crate) struct Fixture {
    pub(crate) daemon: Daemon,
    pub(crate) server: ModelServer,
    dialect: ServerDialect,
}

impl Fixture {
    /// A daemon and a server with the OpenAI dialect.
    pub(crate) fn new() -> Self {
        Self::with_dialect(ServerDialect::OpenAi)
    }

    /// A daemon and a server with this dialect; the environment of the daemon has neither key nor base URL.
    pub(crate) fn with_dialect(dialect: ServerDialect) -> Self {
        Self::with(dialect, &[])
    }

    /// The same with extra environment variables for the daemon.
    pub(crate) fn with(dialect: ServerDialect, variables: &[(&str, &str)]) -> Self {
        Self::in_home(tempfile::TempDir::new().expect("a home"), dialect, variables)
    }

    /// The same in an existing home.
    pub(crate) fn in_home(home: tempfile::TempDir, dialect: ServerDialect, variables: &[(&str, &str)]) -> Self {
        let patience = [("PUSH_MODEL_SILENCE_SECONDS", "2"), ("PUSH_MODEL_ATTEMPTS", "2")];
        let variables: Vec<_> = patience.into_iter().chain(variables.iter().copied()).collect();
        let daemon = Daemon::start_in(home, &variables, &[]);
        repository(&daemon.home.path().join("work"));
        Self { daemon, server: ModelServer::start(), dialect }
    }

    /// The environment of the client: base URL and key of the server.
    pub(crate) fn environment(&self) -> Value {
        json!(variables(self.dialect, &self.server.base_url(self.dialect)))
    }

    /// The workspace.
    pub(crate) fn cwd(&self) -> PathBuf {
        self.daemon.home.path().join("work")
    }

    /// The user's configuration.
    pub(crate) fn config(&self) -> PathBuf {
        self.daemon.home.path().join(".config/push/config.toml")
    }

    /// Removes the project configuration, so that the user's preset (standard) applies.
    pub(crate) fn with_standard_preset(self) -> Self {
        fs::remove_dir_all(self.cwd().join(".push")).expect("a project's file");
        self
    }

    /// Starts a session in which the model answers.
    pub(crate) fn session(&self) -> (Client, String) {
        let mut client = self.daemon.connect();
        let start = json!({"cwd": self.cwd(), "provider": provider(self.dialect), "model": "test-model",
            "environment": self.environment()});
        let session = client.get("start_session", start)["sessionId"].as_str().expect("an id").to_owned();
        (client, session)
    }

    /// Starts a session and sends the message.
    pub(crate) fn start_run(&self, text: &str) -> (Client, String) {
        let (mut client, session) = self.session();
        client.prompt(&session, text);
        (client, session)
    }

    /// Writes a key to the key file and returns its path.
    pub(crate) fn store_key(&self, dialect: ServerDialect, key: &str) -> PathBuf {
        let folder = self.config().parent().expect("a folder").to_owned();
        fs::create_dir_all(&folder).expect("a directory");
        let keys = folder.join("keys.toml");
        fs::write(&keys, format!("{} = \"{key}\"\n", provider(dialect))).expect("a file");
        fs::set_permissions(&keys, fs::Permissions::from_mode(0o600)).expect("a file of one's own");
        keys
    }

    /// Attaches to a session from its first event, with the environment of the client.
    pub(crate) fn attach(&self, session: &str) -> Client {
        let mut client = self.daemon.connect();
        let attach = json!({"sessionId": session, "lastSeenSeq": 0, "environment": self.environment()});
        client.get("attach_session", attach);
        client
    }

    pub(crate) fn file(&self, name: &str) -> String {
        fs::read_to_string(self.cwd().join(name)).expect("a file")
    }

    /// The messages of the nth model request.
    pub(crate) fn sent_messages(&self, turn: usize) -> Vec<Value> {
        let requests: Vec<_> = self.server.seen().into_iter().filter(|seen| seen.method == "POST").collect();
        requests[turn].body["messages"].as_array().expect("messages").clone()
    }
}

/// The key, which only the environment of the client contains.
pub(crate) const KEY: &str = "sk-test-0123456789abcdef0123456789abcdef";

/// The provider name of a dialect.
pub(crate) fn provider(dialect: ServerDialect) -> &'static str {
    match dialect {
        ServerDialect::Ollama => "ollama",
        ServerDialect::OpenAi => "openai",
        ServerDialect::Anthropic => "anthropic",
    }
}

/// The environment of a client for a server at this base URL.
pub(crate) fn variables(dialect: ServerDialect, base_url: &str) -> BTreeMap<&'static str, String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let own = match dialect {
        ServerDialect::Ollama => vec![("OLLAMA_HOST", base_url)],
        ServerDialect::OpenAi => vec![("OPENAI_BASE_URL", base_url), ("OPENAI_API_KEY", KEY)],
        ServerDialect::Anthropic => vec![("ANTHROPIC_BASE_URL", base_url), ("ANTHROPIC_API_KEY", KEY)],
    };
    own.into_iter().map(|(name, value)| (name, value.to_owned())).chain([("PATH", path)]).collect()
}

/// A repository with a program whose test fails.
fn repository(at: &Path) {
    fs::create_dir(at).expect("a directory");
    fs::write(at.join("sum.sh"), "#!/bin/sh\necho $(($1 - $2))\n").expect("a file");
    fs::write(
        at.join("test.sh"),
        "#!/bin/sh\n[ \"$(sh sum.sh 2 3)\" = 5 ] && echo passed || { echo failed; exit 1; }\n",
    )
    .expect("a file");
    for words in [
        &["init", "-q", "-b", "main"][..],
        &["config", "user.name", "t"],
        &["config", "user.email", "t@example.org"],
        &["add", "."],
        &["commit", "-q", "-m", "begin"],
    ] {
        assert!(git(at, words).status.success(), "git {words:?}");
    }
    // The strict preset asks about everything but reads, whatever confinement this machine offers.
    fs::create_dir(at.join(".push")).expect("a directory");
    fs::write(at.join(".push/config.toml"), "[approvals]\npreset = \"strict\"\n").expect("a file");
    fs::write(at.join(".git/info/exclude"), ".push\n").expect("a file");
}

pub(crate) fn git(at: &Path, words: &[&str]) -> std::process::Output {
    Command::new("git").current_dir(at).args(words).output().expect("git")
}

/// A turn with a text and one tool call.
pub(crate) fn turn_with_call(text: &str, tool: &str, args: Value) -> Reply {
    Reply::turn([say(text), tool_call(tool, args)])
}

/// A tool call.
pub(crate) fn tool_call(tool: &str, args: Value) -> Step {
    call(&format!("id_{tool}"), tool, &args.to_string())
}
