//! A workspace with the context of tools, and a scripted HTTP server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use pushd::sandbox::confinement::{Confinement, Mechanism};
use pushd::sandbox::workspace::{ReachPolicy, WorkspaceDir};
use pushd::sandbox::{Chunk, ConfinementStrength, ExecutionPolicy, LocalSandbox, RunTree, SandboxProvider};
use pushd::tools::{
    ApprovalQuestion, ExecutionResult, Limits, Network, PinnedAddresses, Request, ToolContext, ToolError, ToolSet, run,
};

use serde_json::Value;
use tokio::sync::mpsc;

use crate::support::skip::skip;

/// A temporary workspace with its own HOME.
pub(crate) struct Fixture {
    pub(crate) context: ToolContext,
    dir: tempfile::TempDir,
    /// The confinement mechanism of its commands; `None` selects the best one.
    mechanism: Option<Mechanism>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::in_dir(&std::env::temp_dir())
    }

    fn in_dir(parent: &Path) -> Self {
        let dir = tempfile::tempdir_in(parent).unwrap();
        for folder in ["home", "work"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let config = "[user]\n\tname = Somebody\n\temail = somebody@example.org\n";
        std::fs::write(dir.path().join("home/.gitconfig"), config).unwrap();
        let local = LocalSandbox::new(PathBuf::from(env!("CARGO_BIN_EXE_push")));
        let context = ToolContext {
            workspace: WorkspaceDir::open(&dir.path().join("work"), ReachPolicy::Workspace).unwrap(),
            sandbox: Arc::new(RunTree::new(local)),
            env: vec![
                ("PATH".into(), std::env::var_os("PATH").unwrap()),
                ("HOME".into(), dir.path().join("home").into()),
            ],
            writable: Vec::new(),
            network: Network::Allowed,
            addresses: Arc::new(PinnedAddresses::with_system_resolver()),
            limits: Limits::default(),
            redact: Arc::new(str::to_owned),
            safe_cut: Arc::new(|text, at| at.min(text.len())),
            approved_digest: None,
        };
        Self { context, dir, mechanism: None }
    }

    /// A workspace that is a repository with one commit.
    pub(crate) fn repository() -> Self {
        Self::new().with_repository()
    }

    /// The same with confined commands, if this machine can; not below `/tmp`, which is private in confinement.
    #[cfg(target_os = "linux")]
    pub(crate) async fn confined() -> Option<Self> {
        let mut fixture = Self::in_dir(Path::new("/var/tmp")).with_repository();
        fixture.confine().await.then_some(fixture)
    }

    /// The same once for every mechanism with full confinement on this machine.
    #[cfg(target_os = "linux")]
    pub(crate) async fn confined_by_every_mechanism() -> Vec<Self> {
        let mut fixtures = Vec::new();
        for mechanism in [Mechanism::Namespaces, Mechanism::Bubblewrap] {
            let mut fixture = Self::in_dir(Path::new("/var/tmp")).with_repository();
            fixture.mechanism = Some(mechanism);
            if fixture.confine().await {
                fixtures.push(fixture);
            }
        }
        fixtures
    }

    /// Removes the git identity.
    pub(crate) fn without_identity(mut self) -> Self {
        self.git(&["config", "user.useConfigOnly", "true"]);
        let home = self.sibling("nobody");
        std::fs::create_dir(&home).unwrap();
        self.context.env.retain(|(name, _)| name != "HOME");
        self.context.env.push(("HOME".into(), home.into()));
        self
    }

    fn with_repository(self) -> Self {
        let fixture = self;
        fixture.git(&["init", "-q", "-b", "main"]);
        std::fs::write(fixture.path("tracked"), "first\n").unwrap();
        fixture.git(&["add", "tracked"]);
        fixture.git(&["commit", "-q", "-m", "first"]);
        fixture
    }

    /// Makes a subdirectory the workspace.
    pub(crate) fn enter(&mut self, folder: &str) {
        self.context.workspace = WorkspaceDir::open(&self.path(folder), ReachPolicy::Workspace).unwrap();
    }

    /// Confines commands from here on; returns whether this machine can.
    #[cfg(target_os = "linux")]
    pub(crate) async fn confine(&mut self) -> bool {
        let local = LocalSandbox::new(PathBuf::from(env!("CARGO_BIN_EXE_push")))
            .with_scratch_root(self.dir.path().join("scratch"));
        let local = match self.mechanism {
            Some(mechanism) => local.with_mechanism(mechanism),
            None => local,
        };
        let layers = local.layers().await;
        if layers.strength != ConfinementStrength::Full {
            skip(&format!("commands are not confined here: {}", layers.reason.unwrap_or_default()));
            return false;
        }
        let confinement = Confinement::new(self.context.workspace.path().canonicalize().unwrap());
        self.context.sandbox = local.open(ExecutionPolicy::Model(Box::new(confinement)));
        true
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("work").join(name)
    }

    /// Uses git as a user would, and returns what it prints.
    pub(crate) fn git(&self, args: &[&str]) -> String {
        let output = Command::new("git")
            .args(["-c", "core.fsmonitor=false", "-c", "commit.gpgSign=false", "--no-pager"])
            .args(args)
            .current_dir(self.dir.path().join("work"))
            .env_clear()
            .envs(self.context.env.iter().cloned())
            .output()
            .unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Makes a call after a decision.
    pub(crate) async fn run(&self, tool: &str, args: Value) -> ExecutionResult {
        // The decision resolves and pins the addresses; an error repeats in the call.
        let _looked_up = parse(tool, &args.to_string()).unwrap().resolve_addresses(&self.context).await;
        self.run_undecided(tool, args).await
    }

    /// Makes a call without a decision.
    pub(crate) async fn run_undecided(&self, tool: &str, args: Value) -> ExecutionResult {
        run(parse(tool, &args.to_string()).unwrap(), &self.context, mpsc::channel(1).0).await
    }

    /// A path next to the workspace.
    pub(crate) fn sibling(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Prepends directories to PATH.
    pub(crate) fn prepend_path(&mut self, directories: &str) {
        for (name, value) in &mut self.context.env {
            if name == "PATH" {
                *value = format!("{directories}:{}", value.to_string_lossy()).into();
            }
        }
    }

    /// The JSON result of a successful call.
    pub(crate) async fn json(&self, tool: &str, args: Value) -> Value {
        let outcome = self.run(tool, args).await;
        assert_eq!(outcome.error, None);
        serde_json::from_str(&outcome.text).unwrap()
    }

    pub(crate) async fn exec(&self, args: Value) -> (ExecutionResult, String) {
        let (out, mut chunks) = mpsc::channel::<Chunk>(4);
        let listen = async {
            let mut printed = Vec::new();
            while let Some(chunk) = chunks.recv().await {
                printed.extend_from_slice(&chunk.bytes);
            }
            String::from_utf8(printed).unwrap()
        };
        let request = parse("sandbox_exec", &args.to_string()).unwrap();
        tokio::join!(run(request, &self.context, out), listen)
    }

    pub(crate) async fn approval_question(&self, tool: &str, args: Value) -> Result<ApprovalQuestion, ToolError> {
        parse(tool, &args.to_string()).unwrap().approval_question(&self.context).await
    }
}

/// Parses a call of a built-in tool.
pub(crate) fn parse(tool: &str, args: &str) -> Result<Request, ToolError> {
    ToolSet::builtin().parse(tool, args)
}

/// A server on loopback that answers each path with the text of a function; it stays silent for an empty text.
pub(crate) struct Server {
    address: String,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(answer: impl Fn(&str) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stopped = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stopped);
        let thread = std::thread::spawn(move || {
            let mut silent = Vec::new();
            for stream in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let mut stream = stream.unwrap();
                let answer = answer(&requested_path(&stream));
                if answer.is_empty() {
                    silent.push(stream);
                    continue;
                }
                // The client may close the connection before the end.
                let _left = stream.write_all(answer.as_bytes());
                let _left = stream.shutdown(Shutdown::Write);
                let _left = stream.read(&mut [0]);
            }
        });
        Self { address, stopped, thread: Some(thread) }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // The thread ends when it is woken, or with the process; it is not joined, as a silent client may block it.
        drop(TcpStream::connect(&self.address));
        drop(self.thread.take());
    }
}

/// The path of a request.
fn requested_path(stream: &TcpStream) -> String {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    first.split(' ').nth(1).unwrap_or_default().to_owned()
}
