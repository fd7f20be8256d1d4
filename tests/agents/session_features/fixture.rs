//! A daemon in this process: real lanes, a real journal, the real supervisor, and a scripted model server.
//!
//! Commands that no protocol exposes yet are sent to the lanes directly; events are read from their subscriptions.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pushd::bounded_io::FileTasks;
use pushd::config::limits::Limits;
use pushd::config::paths::Paths;
use pushd::journal::{Create, Journal, Options};
use pushd::kernel::command::{Answer, Caller, Command, Prompt, Reply, Rights};
use pushd::kernel::environment::Environment;
use pushd::kernel::event::{Budget, Event, EventKind, Image, Opening, RunEvent, RunReport};
use pushd::kernel::id::{ConnectionId, Fingerprint, RunId, Seq, SessionId};
use pushd::provider::limits::Limits as ModelLimits;
use pushd::provider::playbook::Playbook;
use pushd::provider::{Provider, Starter};
use pushd::record;
use pushd::runtime::clock::Clock;
use pushd::runtime::confinement::Sandboxes;
use pushd::runtime::daily_spend::DailySpend;
use pushd::runtime::generate;
use pushd::runtime::grants::GrantStore;
use pushd::runtime::hub::Hub;
use pushd::runtime::index::SearchIndex;
use pushd::runtime::lane::{LaneError, LaneHandle, LaneReply, LaneRequest, ReplyGuard};
use pushd::runtime::login::LoginEnvironment;
use pushd::runtime::model_config::ModelConfig as Models;
use pushd::runtime::notify::NoticeQueue;
use pushd::runtime::outbox::{EventForm, Outbox, OutboxItem};
use pushd::runtime::services::{BROADCAST_CAPACITY, Latch, RunEndChannel, Services};
use pushd::runtime::session_files::SessionFiles;
use pushd::sandbox::LocalSandbox;
use pushd::tools::ToolSet;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use crate::support::model::{ModelServer, ServerDialect};

/// The longest wait before a test fails.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// A daemon and a model server.
pub(crate) struct Fixture {
    root: TempDir,
    pub(crate) server: ModelServer,
    hub: Arc<Hub>,
    dialect: ServerDialect,
    tools: ToolSet,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with_dialect(ServerDialect::OpenAi)
    }

    pub(crate) fn with_dialect(dialect: ServerDialect) -> Self {
        Self::with(dialect, ToolSet::builtin())
    }

    /// A daemon whose models have these tools.
    pub(crate) fn with_tools(tools: ToolSet) -> Self {
        Self::with(ServerDialect::OpenAi, tools)
    }

    fn with(dialect: ServerDialect, tools: ToolSet) -> Self {
        let root = TempDir::new().expect("a directory");
        std::fs::create_dir_all(root.path().join("work")).expect("a workspace");
        std::fs::create_dir_all(root.path().join("home")).expect("a home");
        let hub = open(root.path(), &tools);
        Self { root, server: ModelServer::start(), hub, dialect, tools }
    }

    pub(crate) fn cwd(&self) -> PathBuf {
        self.root.path().join("work")
    }

    /// The environment of the client.
    pub(crate) fn environment(&self) -> Environment {
        let provider = self.provider().to_uppercase();
        let own = |name: &str, value: String| (name.to_owned(), value);
        let path = std::env::var("PATH").unwrap_or_default();
        Environment::new(BTreeMap::from([
            own("PATH", path),
            own("HOME", self.root.path().join("home").to_string_lossy().into_owned()),
            (format!("{provider}_BASE_URL"), self.server.base_url(self.dialect)),
            (format!("{provider}_HOST"), self.server.base_url(self.dialect)),
            (format!("{provider}_API_KEY"), KEY.to_owned()),
        ]))
    }

    pub(crate) const fn provider(&self) -> &'static str {
        match self.dialect {
            ServerDialect::Ollama => "ollama",
            ServerDialect::OpenAi => "openai",
            ServerDialect::Anthropic => "anthropic",
        }
    }

    /// Starts a session with the provider of the server.
    pub(crate) async fn session(&self) -> TestClient {
        self.session_of(self.provider()).await
    }

    pub(crate) async fn session_of(&self, provider: &str) -> TestClient {
        let id = generate::session();
        let opened_at = self.hub.services().clock.now();
        let lane = self.hub.create(&id, Create { token_hash: [0; 32], start_key: None, opened_at });
        let mut client = TestClient::new(lane, 1, self);
        let opening = Opening {
            mode: "interactive".into(),
            provider: provider.into(),
            model: Some("test-model".into()),
            sandbox: "local".into(),
            cwd: self.cwd().to_string_lossy().into_owned(),
            ..Opening::default()
        };
        client.send_accepted(Command::Open(Box::new(opening))).await;
        client
    }

    /// Attaches to a session from its first event.
    pub(crate) async fn attach(&self, id: &SessionId) -> TestClient {
        let lane = self.hub.lane(id).await.expect("a journal").expect("a session");
        let mut client = TestClient::new(lane, 2, self);
        client.send_accepted(Command::Attach { seen: Seq::ZERO, rights: Rights::ALL }).await;
        client
    }

    /// The body of the nth model request.
    pub(crate) fn request_body(&self, nth: usize) -> Value {
        let requests: Vec<_> = self.server.seen().into_iter().filter(|seen| seen.method == "POST").collect();
        requests.get(nth).unwrap_or_else(|| panic!("{} questions were asked", requests.len())).body.clone()
    }

    /// Waits for so many model requests.
    pub(crate) async fn wait_for_requests(&self, questions: usize) {
        let request = async {
            while self.request_count() < questions {
                tokio::task::yield_now().await;
            }
        };
        timeout(TIMEOUT, request).await.expect("so many questions");
    }

    /// Waits until a command has created a file in the workspace.
    pub(crate) async fn wait_for_file(&self, name: &str) {
        let made = async {
            while !self.cwd().join(name).exists() {
                tokio::task::yield_now().await;
            }
        };
        timeout(TIMEOUT, made).await.expect("a file");
    }

    /// Configures the context window of the model, in tokens.
    pub(crate) fn set_context_window(&self, tokens: usize) {
        let config = paths(self.root.path()).config;
        std::fs::create_dir_all(config.parent().expect("a directory")).expect("a directory");
        let text = format!("[providers.openai]\nkind = \"openai\"\ncontext_window = {tokens}\n");
        std::fs::write(config, text).expect("a configuration");
    }

    /// The number of model requests.
    pub(crate) fn request_count(&self) -> usize {
        self.server.seen().iter().filter(|seen| seen.method == "POST").count()
    }

    /// Stops the daemon cleanly and starts another on the same files.
    pub(crate) async fn restart(&mut self) {
        close(&self.hub).await;
        self.hub = open(self.root.path(), &self.tools);
    }

    /// Stops the daemon cleanly; dropping the returned directory removes its files.
    pub(crate) async fn close(self) -> TempDir {
        close(&self.hub).await;
        self.root
    }
}

fn open(root: &Path, tools: &ToolSet) -> Arc<Hub> {
    let paths = paths(root);
    std::fs::create_dir_all(&paths.state).expect("a directory");
    let mut models = ModelLimits::default();
    models.retry.first_pause = Duration::from_millis(20);
    models.idle_timeout = TIMEOUT;
    let supervisor = LocalSandbox::new(PathBuf::from(env!("CARGO_BIN_EXE_push")));
    let playbook: Arc<dyn Provider> = Arc::new(Playbook);
    let files = FileTasks::new(8, TIMEOUT);
    let clock = Clock::start();
    Hub::new(Arc::new(Services {
        limits: Limits::default(),
        daily_spend: DailySpend::new(clock.now()),
        index: SearchIndex::new(&paths.state),
        notices: NoticeQueue::default(),
        approvals_revision: tokio::sync::watch::Sender::new(1),
        clock,
        journal: Journal::open(&paths.state, Options::default()).expect("a journal"),
        model_config: Models::new(&paths, pushd::provider::dialect::BUILT_IN, models, files.clone()),
        tools: tools.clone(),
        files,
        grants: Arc::new(GrantStore::new(&paths.state)),
        session_files: SessionFiles::new(root, &paths.state),
        environments: Default::default(),
        login: LoginEnvironment::new(&std::env::temp_dir()),
        providers: BTreeMap::from([(playbook.name(), playbook)]),
        sandboxes: Sandboxes::new(supervisor, &paths, Vec::new()),
        draining: Latch::new(),
        closing: Latch::new(),
        disconnecting: Latch::new(),
        phase_changed: Notify::new(),
        run_ends: RunEndChannel::new(),
        deleted: tokio::sync::broadcast::Sender::new(BROADCAST_CAPACITY),
        session_changes: tokio::sync::broadcast::Sender::new(BROADCAST_CAPACITY),
    }))
}

/// The paths of the daemon: next to the workspace, and hidden from its commands.
fn paths(root: &Path) -> Paths {
    let own = root.join("own");
    let variables = |name: &str| match name {
        "PUSH_HOME" => Some(own.clone().into_os_string()),
        "PUSH_CONFIG" => Some(own.join("config.toml").into_os_string()),
        _ => None,
    };
    Paths::from_environment(&variables).expect("paths")
}

async fn close(hub: &Arc<Hub>) {
    hub.services().closing.set();
    timeout(TIMEOUT, hub.wait_for_lanes()).await.expect("all lanes end");
    hub.services().disconnecting.set();
    hub.services().journal.clone().close().await.expect("a journal in order");
}

/// The key, which only the environment of the client contains.
pub(crate) const KEY: &str = "sk-test-0123456789abcdef0123456789abcdef";

/// A client of a session that sends commands and reads events.
pub(crate) struct TestClient {
    lane: LaneHandle,
    outbox: Arc<Outbox>,
    environment: Environment,
    journal: Journal,
    /// The last event that was read, once it is subscribed.
    read_seq: Option<Seq>,
    waiting: VecDeque<Event>,
    /// All events that were read.
    pub(crate) seen: Vec<Event>,
}

impl TestClient {
    fn new(lane: LaneHandle, number: u64, fixture: &Fixture) -> Self {
        let outbox = Outbox::new(ConnectionId(number), EventForm::Record);
        let (environment, journal) = (fixture.environment(), fixture.hub.services().journal.clone());
        Self { lane, outbox, environment, journal, read_seq: None, waiting: VecDeque::new(), seen: Vec::new() }
    }

    pub(crate) fn id(&self) -> SessionId {
        self.lane.id().clone()
    }

    /// Sends a command, and returns the reply with the version of the session after it.
    pub(crate) async fn send(&mut self, command: Command) -> (Reply, u64) {
        self.send_if_version(command, None).await
    }

    pub(crate) async fn send_if_version(&mut self, command: Command, if_version: Option<u64>) -> (Reply, u64) {
        wait_for_reply(self.submit(command, if_version)).await
    }

    /// Sends two commands, the second a little later, without waiting for the first reply.
    pub(crate) async fn send_both(&mut self, first: Command, moment: u32, second: Command) -> (Reply, Reply) {
        let first = self.submit(first, None);
        for _ in 0..moment {
            tokio::task::yield_now().await;
        }
        let second = self.submit(second, None);
        (wait_for_reply(first).await.0, wait_for_reply(second).await.0)
    }

    fn submit(&self, command: Command, if_version: Option<u64>) -> PendingReply {
        let (sender, reply) = oneshot::channel();
        let respond = ReplyGuard::new(move |reply| drop(sender.send(reply)));
        let caller = Caller::owner(self.outbox.id(), "guest".into());
        let environment = Some(self.environment.clone());
        let outbox = Arc::clone(&self.outbox);
        let request = LaneRequest {
            caller,
            command,
            if_version,
            starter: Starter::Person,
            reply_guard: respond,
            outbox,
            environment,
            part: None,
        };
        assert!(self.lane.send_request(Box::new(request)).is_ok(), "the lane has ended");
        reply
    }

    /// Sends a command that must be accepted.
    pub(crate) async fn send_accepted(&mut self, command: Command) -> Answer {
        self.send(command).await.0.expect("it is granted")
    }

    pub(crate) async fn prompt(&mut self, text: &str) -> RunId {
        self.prompt_with(text, Vec::new()).await
    }

    pub(crate) async fn prompt_with(&mut self, text: &str, images: Vec<Image>) -> RunId {
        let prompt = prompt(text, images);
        match self.send_accepted(Command::Prompt(Box::new(prompt))).await {
            Answer::Prompted { run, .. } => run,
            other => panic!("{other:?}"),
        }
    }

    /// Sends a message and waits for the end of its run.
    pub(crate) async fn run(&mut self, text: &str) -> RunReport {
        let run = self.prompt(text).await;
        self.until(|event| match &event.kind {
            EventKind::Run(RunEvent::Ended(report)) if event.run.as_ref() == Some(&run) => Some((**report).clone()),
            _ => None,
        })
        .await
    }

    /// Waits for the end of the run.
    pub(crate) async fn wait_for_run_end(&mut self) -> RunReport {
        self.until(|event| match &event.kind {
            EventKind::Run(RunEvent::Ended(report)) => Some((**report).clone()),
            _ => None,
        })
        .await
    }

    /// Reads events up to the first one that `find` accepts.
    pub(crate) async fn until<T>(&mut self, find: impl Fn(&Event) -> Option<T>) -> T {
        let search = async {
            loop {
                let event = self.next_event().await;
                if let Some(found) = find(&event) {
                    return found;
                }
            }
        };
        match timeout(TIMEOUT, search).await {
            Ok(found) => found,
            Err(_) => {
                panic!("it never happened; the last of it: {:?}", self.seen.iter().rev().take(5).collect::<Vec<_>>())
            }
        }
    }

    async fn next_event(&mut self) -> Event {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                self.seen.push(event.clone());
                return event;
            }
            for out in self.outbox.take() {
                if let OutboxItem::Subscribe { after, .. } = out {
                    self.read_seq = Some(after);
                }
            }
            if let Some(read) = self.read_seq {
                self.read_seq = Some(self.read_after(read).await);
            }
            if self.waiting.is_empty() {
                self.outbox.wait().await;
            }
        }
    }
}

impl TestClient {
    /// Reads the journal after an event; events are committed before they are published.
    async fn read_after(&mut self, mut seen: Seq) -> Seq {
        loop {
            let page = self.journal.page(self.id(), seen, 1 << 20).await.expect("a page");
            for line in page.blocks.iter().flat_map(|block| block.bytes.split_inclusive(|byte| *byte == b'\n')) {
                let event = record::decode_event(line).expect("an event");
                if event.seq > seen {
                    seen = event.seq;
                    self.waiting.push_back(event);
                }
            }
            if !page.more {
                return seen;
            }
        }
    }
}

type PendingReply = oneshot::Receiver<Result<LaneReply, LaneError>>;

async fn wait_for_reply(answering: PendingReply) -> (Reply, u64) {
    let reported = timeout(TIMEOUT, answering).await.expect("in time").expect("an answer").expect("no trouble");
    let LaneReply { result: reply, version, .. } = reported;
    (reply, version)
}

/// A message.
pub(crate) fn prompt(text: &str, images: Vec<Image>) -> Prompt {
    Prompt {
        run: generate::run(),
        message: generate::message(),
        text: text.into(),
        images,
        criteria: Vec::new(),
        time_limit: None,
        budget: Budget::default(),
        rules: Vec::new(),
        needs_environment: false,
        fingerprint: Fingerprint(1),
    }
}

/// The texts of a request's messages, each with its role.
pub(crate) fn texts(body: &Value) -> Vec<String> {
    let messages = body["messages"].as_array().expect("messages");
    let text = |message: &Value| {
        let content = &message["content"];
        let answer = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
        format!("{}: {answer}", message["role"].as_str().unwrap_or_default())
    };
    messages.iter().map(text).collect()
}
