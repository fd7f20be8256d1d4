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
use pushd::kernel::event::{Budget, Event, EventKind, Image, Opening, RunReport};
use pushd::kernel::id::{Fingerprint, ParticipantId, RunId, Seq, SessionId};
use pushd::protocol::push::decode::Environment;
use pushd::protocol::push::record;
use pushd::provider::Provider;
use pushd::provider::limits::Limits as ModelLimits;
use pushd::provider::playbook::Playbook;
use pushd::runtime::clock::Clock;
use pushd::runtime::grants::Grants;
use pushd::runtime::hub::Hub;
use pushd::runtime::lane::{Asked, LaneHandle, Respond, Told, Trouble};
use pushd::runtime::login::LoginEnvironment;
use pushd::runtime::mint;
use pushd::runtime::models::House as Models;
use pushd::runtime::outbox::{Out, Outbox};
use pushd::runtime::session_files::SessionFiles;
use pushd::runtime::walls::Sandboxes;
use pushd::runtime::world::{Closing, DELETIONS, RunsOver, World};
use pushd::sandbox::Local;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use crate::model::{ModelServer, Speaks};

/// The longest wait before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon and a model server.
pub(crate) struct House {
    root: TempDir,
    pub(crate) server: ModelServer,
    hub: Arc<Hub>,
    speaks: Speaks,
}

impl House {
    pub(crate) fn new() -> Self {
        Self::speaking(Speaks::OpenAi)
    }

    pub(crate) fn speaking(speaks: Speaks) -> Self {
        let root = TempDir::new().expect("a directory");
        std::fs::create_dir_all(root.path().join("work")).expect("a workspace");
        std::fs::create_dir_all(root.path().join("home")).expect("a home");
        let hub = open(root.path());
        Self { root, server: ModelServer::start(), hub, speaks }
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
            (format!("{provider}_BASE_URL"), self.server.base_url(self.speaks)),
            (format!("{provider}_HOST"), self.server.base_url(self.speaks)),
            (format!("{provider}_API_KEY"), KEY.to_owned()),
        ]))
    }

    pub(crate) const fn provider(&self) -> &'static str {
        match self.speaks {
            Speaks::Ollama => "ollama",
            Speaks::OpenAi => "openai",
            Speaks::Anthropic => "anthropic",
        }
    }

    /// Starts a session with the provider of the server.
    pub(crate) async fn session(&self) -> Guest {
        self.session_of(self.provider()).await
    }

    pub(crate) async fn session_of(&self, provider: &str) -> Guest {
        let id = mint::session();
        let opened_at = self.hub.world().clock.now();
        let lane = self.hub.create(&id, Create { token_hash: [0; 32], start_key: None, opened_at });
        let mut guest = Guest::new(lane, 1, self);
        let opening = Opening {
            mode: "interactive".into(),
            provider: provider.into(),
            model: Some("test-model".into()),
            sandbox: "local".into(),
            cwd: self.cwd().to_string_lossy().into_owned(),
            ..Opening::default()
        };
        guest.grant(Command::Open(Box::new(opening))).await;
        guest
    }

    /// Attaches to a session from its first event.
    pub(crate) async fn back(&self, id: &SessionId) -> Guest {
        let lane = self.hub.lane(id).await.expect("a journal").expect("a session");
        let mut guest = Guest::new(lane, 2, self);
        guest.grant(Command::Attach { seen: Seq::ZERO, rights: Rights::ALL }).await;
        guest
    }

    /// The body of the nth model request.
    pub(crate) fn asked(&self, nth: usize) -> Value {
        let asked: Vec<_> = self.server.seen().into_iter().filter(|seen| seen.method == "POST").collect();
        asked.get(nth).unwrap_or_else(|| panic!("{} questions were asked", asked.len())).body.clone()
    }

    /// Waits for so many model requests.
    pub(crate) async fn has_asked(&self, questions: usize) {
        let asked = async {
            while self.questions() < questions {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, asked).await.expect("so many questions");
    }

    /// Waits until a command has created a file in the workspace.
    pub(crate) async fn has_made(&self, name: &str) {
        let made = async {
            while !self.cwd().join(name).exists() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, made).await.expect("a file");
    }

    /// Configures the context window of the model, in tokens.
    pub(crate) fn window(&self, tokens: usize) {
        let config = paths(self.root.path()).config;
        std::fs::create_dir_all(config.parent().expect("a directory")).expect("a directory");
        let text = format!("[providers.openai]\nkind = \"openai\"\ncontext_window = {tokens}\n");
        std::fs::write(config, text).expect("a configuration");
    }

    /// The number of model requests.
    pub(crate) fn questions(&self) -> usize {
        self.server.seen().iter().filter(|seen| seen.method == "POST").count()
    }

    /// Stops the daemon cleanly and starts another on the same files.
    pub(crate) async fn restart(&mut self) {
        close(&self.hub).await;
        self.hub = open(self.root.path());
    }

    /// Stops the daemon cleanly; dropping the returned directory removes its files.
    pub(crate) async fn close(self) -> TempDir {
        close(&self.hub).await;
        self.root
    }
}

fn open(root: &Path) -> Arc<Hub> {
    let paths = paths(root);
    std::fs::create_dir_all(&paths.state).expect("a directory");
    let mut models = ModelLimits::default();
    models.retry.first_pause = Duration::from_millis(20);
    models.silence = PATIENCE;
    let keeper = Local::new(PathBuf::from(env!("CARGO_BIN_EXE_push")));
    let playbook: Arc<dyn Provider> = Arc::new(Playbook);
    let files = FileTasks::new(8, PATIENCE);
    Hub::new(Arc::new(World {
        limits: Limits::default(),
        clock: Clock::start(),
        journal: Journal::open(&paths.state, Options::default()).expect("a journal"),
        house: Models::new(&paths, models, files.clone()),
        files,
        grants: Arc::new(Grants::new(&paths.state)),
        session_files: SessionFiles::new(root, &paths.state),
        environments: Default::default(),
        login: LoginEnvironment::new(&std::env::temp_dir()),
        providers: BTreeMap::from([(playbook.name(), playbook)]),
        sandboxes: Sandboxes::new(keeper, &paths, Vec::new()),
        draining: Closing::new(),
        closing: Closing::new(),
        parting: Closing::new(),
        settled: Notify::new(),
        runs_over: RunsOver::new(),
        deleted: tokio::sync::broadcast::Sender::new(DELETIONS),
        session_changes: tokio::sync::broadcast::Sender::new(DELETIONS),
    }))
}

/// The paths of the daemon: next to the workspace, and hidden from its commands.
fn paths(root: &Path) -> Paths {
    let own = root.join("own");
    let told = |name: &str| match name {
        "PUSH_HOME" => Some(own.clone().into_os_string()),
        "PUSH_CONFIG" => Some(own.join("config.toml").into_os_string()),
        _ => None,
    };
    Paths::from_environment(&told).expect("paths")
}

async fn close(hub: &Arc<Hub>) {
    hub.world().closing.begin();
    timeout(PATIENCE, hub.all_ended()).await.expect("all lanes end");
    hub.world().parting.begin();
    hub.world().journal.clone().close().await.expect("a journal in order");
}

/// The key, which only the environment of the client contains.
pub(crate) const KEY: &str = "sk-test-0123456789abcdef0123456789abcdef";

/// A client of a session that sends commands and reads events.
pub(crate) struct Guest {
    lane: LaneHandle,
    outbox: Arc<Outbox>,
    environment: Environment,
    journal: Journal,
    /// The last event that was read, once it is subscribed.
    read: Option<Seq>,
    waiting: VecDeque<Event>,
    /// All events that were read.
    pub(crate) seen: Vec<Event>,
}

impl Guest {
    fn new(lane: LaneHandle, number: u64, house: &House) -> Self {
        let outbox = Outbox::new(ParticipantId(number));
        let (environment, journal) = (house.environment(), house.hub.world().journal.clone());
        Self { lane, outbox, environment, journal, read: None, waiting: VecDeque::new(), seen: Vec::new() }
    }

    pub(crate) fn id(&self) -> SessionId {
        self.lane.id().clone()
    }

    /// Sends a command, and returns the reply with the version of the session after it.
    pub(crate) async fn ask(&mut self, command: Command) -> (Reply, u64) {
        self.ask_if(command, None).await
    }

    pub(crate) async fn ask_if(&mut self, command: Command, if_version: Option<u64>) -> (Reply, u64) {
        answer(self.hand_in(command, if_version)).await
    }

    /// Sends two commands, the second a little later, without waiting for the first reply.
    pub(crate) async fn ask_both(&mut self, first: Command, moment: u32, second: Command) -> (Reply, Reply) {
        let first = self.hand_in(first, None);
        for _ in 0..moment {
            tokio::task::yield_now().await;
        }
        let second = self.hand_in(second, None);
        (answer(first).await.0, answer(second).await.0)
    }

    fn hand_in(&self, command: Command, if_version: Option<u64>) -> Answering {
        let (tell, told) = oneshot::channel();
        let respond = Respond::new(move |told| drop(tell.send(told)));
        let caller = Caller { id: self.outbox.id(), source: "guest".into(), rights: Rights::ALL };
        let environment = Some(self.environment.clone());
        let outbox = Arc::clone(&self.outbox);
        let asked = Asked { caller, command, if_version, respond, outbox, environment };
        assert!(self.lane.ask(Box::new(asked)).is_ok(), "the lane has ended");
        told
    }

    /// Sends a command that must be accepted.
    pub(crate) async fn grant(&mut self, command: Command) -> Answer {
        self.ask(command).await.0.expect("it is granted")
    }

    pub(crate) async fn prompt(&mut self, text: &str) -> RunId {
        self.prompt_with(text, Vec::new()).await
    }

    pub(crate) async fn prompt_with(&mut self, text: &str, images: Vec<Image>) -> RunId {
        let prompt = prompt(text, images);
        match self.grant(Command::Prompt(Box::new(prompt))).await {
            Answer::Prompted { run, .. } => run,
            other => panic!("{other:?}"),
        }
    }

    /// Sends a message and waits for the end of its run.
    pub(crate) async fn run(&mut self, text: &str) -> RunReport {
        let run = self.prompt(text).await;
        self.until(|event| match &event.kind {
            EventKind::RunEnded(report) if event.run.as_ref() == Some(&run) => Some((**report).clone()),
            _ => None,
        })
        .await
    }

    /// Waits for the end of the run.
    pub(crate) async fn over(&mut self) -> RunReport {
        self.until(|event| match &event.kind {
            EventKind::RunEnded(report) => Some((**report).clone()),
            _ => None,
        })
        .await
    }

    /// Reads events up to the first one that `find` accepts.
    pub(crate) async fn until<T>(&mut self, find: impl Fn(&Event) -> Option<T>) -> T {
        let search = async {
            loop {
                let event = self.next().await;
                if let Some(found) = find(&event) {
                    return found;
                }
            }
        };
        match timeout(PATIENCE, search).await {
            Ok(found) => found,
            Err(_) => panic!(
                "it never happened; the last of it: {:?}",
                self.seen.iter().rev().take(5).collect::<Vec<_>>()
            ),
        }
    }

    async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                self.seen.push(event.clone());
                return event;
            }
            for out in self.outbox.take() {
                if let Out::Subscribe { after, .. } = out {
                    self.read = Some(after);
                }
            }
            if let Some(read) = self.read {
                self.read = Some(self.read_after(read).await);
            }
            if self.waiting.is_empty() {
                self.outbox.woken().await;
            }
        }
    }
}

impl Guest {
    /// Reads the journal after an event; events are committed before they are published.
    async fn read_after(&mut self, mut seen: Seq) -> Seq {
        loop {
            let page = self.journal.page(self.id(), seen, 1 << 20).await.expect("a page");
            for line in
                page.blocks.iter().flat_map(|block| block.bytes.split_inclusive(|byte| *byte == b'\n'))
            {
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

type Answering = oneshot::Receiver<Result<Told, Trouble>>;

async fn answer(answering: Answering) -> (Reply, u64) {
    let told = timeout(PATIENCE, answering).await.expect("in time").expect("an answer").expect("no trouble");
    let Told { reply, version } = told;
    (reply, version)
}

/// A message.
pub(crate) fn prompt(text: &str, images: Vec<Image>) -> Prompt {
    Prompt {
        run: mint::run(),
        message: mint::message(),
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
        let said = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
        format!("{}: {said}", message["role"].as_str().unwrap_or_default())
    };
    messages.iter().map(text).collect()
}
