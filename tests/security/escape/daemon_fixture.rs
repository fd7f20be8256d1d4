//! A real daemon that confines commands by one mechanism, with a scripted model server and a call that waits for the
//! owner's approval.
//!
//! The daemon's own files are outside of its user's home, which contains credentials. One daemon serves all attempts of
//! a mechanism, one after the other, each in a workspace of its own.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use pushd::sandbox::confinement::Mechanism;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::daemon::{Client, Daemon, wait_until};
use crate::support::model::{ModelServer, Reply, ServerDialect, call};
use crate::support::ordinary_user::visible_dir;
use crate::support::skip::skip;

/// The text of the credentials in the home.
pub(crate) const SECRET: &str = "kept-by-nobody-else";

pub(crate) struct DaemonFixture {
    pub(crate) daemon: Daemon,
    pub(crate) mechanism: Mechanism,
    server: ModelServer,
    /// The daemon's own files.
    moved: TempDir,
    /// The connection of the owner, whose call waits for approval.
    _owner: Client,
}

/// A tool call and its result: status, error code, and everything that it says.
pub(crate) struct ToolResult {
    pub(crate) status: String,
    pub(crate) code: String,
    pub(crate) text: String,
}

impl DaemonFixture {
    /// Starts a daemon that uses this mechanism alone; `None` if it does not work here.
    pub(crate) fn start(mechanism: Mechanism) -> Option<Self> {
        let directory = || tempfile::Builder::new().prefix("d").rand_bytes(4).tempdir_in(visible_dir()).unwrap();
        let (home, moved) = (directory(), directory());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(home.path().join(".push/run")).unwrap();
        let config = format!(
            "[approvals]\npreset = \"strict\"\n[sandbox]\nmechanism = \"{}\"\n\
             [pi]\nenabled = true\nlisten = '127.0.0.1:0'\n",
            setting(mechanism)
        );
        for (name, text) in [
            (".config/push/config.toml", config.as_str()),
            (".ssh/id_ed25519", SECRET),
            (".gemini/oauth", SECRET),
            (".netrc", SECRET),
            (".cargo/config.toml", "[build]\n"),
            (".gitconfig", "[user]\n\tname = t\n\temail = t@example.org\n"),
            ("private/.git/config", SECRET),
            ("owner/plain", ""),
        ] {
            let path = home.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let socket = home.path().join(".push/run/pushd.sock").display().to_string();
        let variables = [
            ("PUSH_HOME", moved.path().to_str().unwrap()),
            ("PUSHD_SOCKET", &socket),
            ("PUSH_LOG", "info,pushd::runtime::web=debug"),
        ];
        let daemon = Daemon::start_in(home, &variables, &[]);
        let mut owner = daemon.connect();
        let waiting = owner.start(&daemon.home.path().join("owner"));
        owner.prompt(&waiting, "$? touch approved");
        owner.event_of("approval_required");
        let fixture = Self { daemon, mechanism, server: ModelServer::start(), moved, _owner: owner };
        fixture.server.usually(Reply::says("Done."));
        fixture.works().then_some(fixture)
    }

    /// Tells whether commands are confined by the mechanism; skips the test otherwise.
    fn works(&self) -> bool {
        let (mut client, session) = self.session(&self.workspace("probe"), &[]);
        client.attach(&session, 0);
        let sandbox = client.event_of("session_started")["payload"]["sandbox"].clone();
        if sandbox["strength"] == "missing" {
            skip(&format!("a daemon cannot use {}: {}", self.mechanism.as_str(), sandbox["why"]));
            return false;
        }
        let layers = sandbox["layers"].to_string();
        let has = |layer: &str| layers.contains(&format!("\"{layer}\""));
        let (strength, as_expected) = match self.mechanism {
            Mechanism::Bubblewrap => ("full", has("bubblewrap")),
            Mechanism::Namespaces => ("full", has("namespaces") && !has("bubblewrap")),
            Mechanism::Rules => ("partial", has("landlock") && !has("namespaces")),
        };
        assert!(sandbox["strength"] == strength && as_expected, "{sandbox}");
        true
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.daemon.home.path().canonicalize().unwrap()
    }

    /// A directory in the home, created if it is missing.
    pub(crate) fn workspace(&self, name: &str) -> PathBuf {
        let path = self.home().join("work").join(name.replace([' ', '\'', ',', '/'], "-"));
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// A workspace that is a repository with one commit.
    pub(crate) fn repository(&self, name: &str) -> PathBuf {
        let path = self.workspace(name);
        git(&path, &["init", "-q", "-b", "main"]);
        fs::write(path.join("tracked"), "first\n").unwrap();
        git(&path, &["add", "tracked"]);
        git(&path, &["commit", "-q", "-m", "first"]);
        path
    }

    /// Starts a session with additional environment variables.
    pub(crate) fn session(&self, cwd: &Path, variables: &[(&str, &str)]) -> (Client, String) {
        let mut environment = json!({
            "PATH": std::env::var("PATH").unwrap_or_default(),
            "HOME": self.home(),
            "OPENAI_BASE_URL": self.server.base_url(ServerDialect::OpenAi),
            "OPENAI_API_KEY": "sk-test-0123456789abcdef0123456789abcdef",
        });
        for (name, value) in variables {
            environment[*name] = json!(value);
        }
        let mut client = self.daemon.connect();
        let start = json!({"cwd": cwd, "provider": "openai", "model": "m", "environment": environment});
        let session = client.get("start_session", start)["sessionId"].as_str().unwrap().to_owned();
        (client, session)
    }

    /// Scripts the model to use tools, one after the other.
    pub(crate) fn script(&self, calls: &[(&str, Value)]) {
        let turn = |(index, (tool, args)): (usize, &(&str, Value))| {
            Reply::turn([call(&format!("call_{index}"), tool, &args.to_string())])
        };
        self.server.forget_script();
        self.server.script(calls.iter().enumerate().map(turn));
    }

    /// Makes the model use tools, approves each call, and returns the results and the end of the run.
    pub(crate) fn use_tools(
        &self,
        (client, session): &mut (Client, String),
        calls: &[(&str, Value)],
    ) -> (Vec<ToolResult>, Value) {
        self.script(calls);
        client.prompt(session, "go");
        approve_until_complete(client)
    }

    /// Runs one command in a session of its own, and returns its result.
    pub(crate) fn run_command(&self, cwd: &Path, args: Value) -> ToolResult {
        let mut session = self.session(cwd, &[]);
        let (mut results, end) = self.use_tools(&mut session, &[("sandbox_exec", args)]);
        assert_eq!(results.len(), 1, "{end}");
        results.remove(0)
    }

    /// The process id of the holder of all supervisors.
    pub(crate) fn holder(&self) -> i32 {
        let daemon = self.daemon.pid().to_string();
        let is_holder = |pid: &i32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.starts_with("Name:\tstep-holder\n") && status.contains(&format!("\nPPid:\t{daemon}\n"))
        };
        processes().find(is_holder).expect("a holder")
    }

    /// The port for Pi.
    pub(crate) fn port(&self) -> String {
        let at = self.daemon.connect().get("get_metrics", json!({}))["pi"].as_str().unwrap().to_owned();
        at.rsplit(':').next().unwrap().to_owned()
    }

    /// A new token for the port.
    pub(crate) fn token(&self) -> String {
        let made = self.daemon.command("push").args(["token", "new"]).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    }

    /// The contents of the daemon's logs.
    pub(crate) fn log(&self) -> String {
        let files = fs::read_dir(self.moved.path().join("logs")).unwrap();
        files.flatten().map(|file| fs::read_to_string(file.path()).unwrap_or_default()).collect()
    }

    /// Checks that an attempt has approved nothing, left no process with its mark, and changed no file of the user.
    pub(crate) fn assert_unharmed(&self, mark: &str) {
        let wanted = format!("MARK={mark}");
        let carries = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
        };
        wait_until("no process of the attempt is left", || !processes().any(|pid| carries(&pid)));
        assert!(!self.home().join("owner/approved").exists(), "a command has approved");
        self.daemon.connect().ping();
        for name in [".ssh/id_ed25519", ".gemini/oauth", ".netrc", "private/.git/config"] {
            assert_eq!(fs::read_to_string(self.home().join(name)).unwrap(), SECRET, "{name}");
        }
        let names = |folder: &str| fs::read_dir(self.home().join(folder)).unwrap().count();
        assert_eq!((names(".config/push"), names(".ssh"), names("owner")), (1, 1, 1));
    }
}

/// Approves every call until the run ends.
pub(crate) fn approve_until_complete(client: &mut Client) -> (Vec<ToolResult>, Value) {
    let mut results = Vec::new();
    loop {
        let event = client.event();
        let payload = &event["payload"];
        match event["type"].as_str() {
            Some("approval_required") => {
                let answer = client.decide(&event, "approve");
                assert_eq!(answer["ok"], true, "{answer}");
            }
            Some("tool_result") => {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let error = &payload["structuredError"];
                results.push(ToolResult {
                    status: text(&payload["status"]),
                    code: text(&error["code"]),
                    text: format!(
                        "{}{}",
                        text(&payload["text"]),
                        if error.is_null() { String::new() } else { error.to_string() }
                    ),
                });
            }
            Some("run_complete") => return (results, payload.clone()),
            _ => {}
        }
    }
}

/// The value of `sandbox.mechanism` in the configuration.
fn setting(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::Bubblewrap => "bubblewrap",
        Mechanism::Namespaces => "namespaces",
        Mechanism::Rules => "landlock",
    }
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

pub(crate) fn git(at: &Path, words: &[&str]) {
    let name = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgSign=false"];
    let done = Command::new("git").args(name).args(words).current_dir(at).output().unwrap();
    assert!(done.status.success(), "git {words:?}: {done:?}");
}

/// Writes a program that leaves a trace when it runs.
pub(crate) fn write_trap(program: &Path, trace: &Path) {
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    fs::write(program, format!("#!/bin/sh\necho \"$0\" >> {0}\necho {0}\n", trace.display())).unwrap();
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
}
