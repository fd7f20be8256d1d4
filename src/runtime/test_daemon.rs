//! A daemon without its process, for unit tests: the real socket, hub and journal, and a scripted provider.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::clock::Clock;
use super::confinement::Sandboxes;
use super::connection;
use super::daily_spend::DailySpend;
use super::environments::Environments;
use super::grants::GrantStore;
use super::hub::Hub;
use super::index::SearchIndex;
use super::lane::{LaneRequest, ReplyGuard};
use super::lifecycle::lost_line;
use super::login::LoginEnvironment;
use super::model_config::ModelConfig as ModelHouse;
use super::notify::NoticeQueue;
use super::outbox::{EventForm, Outbox};
use super::protocols::{self, ProtocolRegistry};
use super::server::Server;
use super::services::{BROADCAST_CAPACITY, Latch, RunEndChannel, Services};
use super::session_files::SessionFiles;
use crate::bounded_io::FileTasks;
use crate::config::limits::Limits;
use crate::config::paths::Paths;
use crate::config::settings::NO_MODEL;
use crate::journal::{Journal, Options};
use crate::kernel::command::{Caller, Command};
use crate::kernel::effect::{FinishReport, TurnRequest};
use crate::kernel::event::{DenialEffect, Purpose, RunOutcome};
use crate::kernel::id::{ConnectionId, MessageId};
use crate::provider::dialect::BUILT_IN;
use crate::provider::limits::Limits as ModelLimits;
use crate::provider::{Provider, Question, ReportSender, Starter, TurnFuture};
use crate::sandbox::LocalSandbox;
use crate::tools::{EXEC, ToolSet};
use crate::transport::line::{Line, Lines};
use crate::transport::local::{self, Address, DirectoryKind, Listener};

/// A provider whose first turn of a message does what the first word of the message says; other turns send a text.
#[derive(Default)]
pub(super) struct ScriptedProvider {
    turns: AtomicU32,
    turn_started: Notify,
    /// The messages whose first turn has started.
    seen_messages: Mutex<BTreeSet<MessageId>>,
    released: Arc<Notify>,
    warning_requested: Arc<Notify>,
}

impl ScriptedProvider {
    /// Waits until the provider has had so many turns.
    pub(super) async fn wait_for_turns(&self, turns: u32) {
        let enough = async {
            loop {
                let turned = self.turn_started.notified();
                if self.turns.load(Ordering::SeqCst) >= turns {
                    return;
                }
                turned.await;
            }
        };
        timeout(TIMEOUT, enough).await.unwrap();
    }

    /// Makes a turn that waits for a form emit a warning.
    pub(super) fn emit_warning(&self) {
        self.warning_requested.notify_one();
    }

    /// Releases a held turn.
    pub(super) fn release(&self) {
        self.released.notify_one();
    }
}

impl Provider for ScriptedProvider {
    fn name(&self) -> &'static str {
        NO_MODEL
    }

    fn turn(&self, turn: TurnRequest, mut reports: ReportSender) -> TurnFuture {
        self.turns.fetch_add(1, Ordering::SeqCst);
        self.turn_started.notify_waiters();
        let first = self.seen_messages.lock().unwrap().insert(turn.message);
        assert!(!(first && turn.text.starts_with("panic")), "the provider panics");
        let waits = first && turn.text.starts_with("wait");
        let asks = first && turn.text.starts_with("ask");
        let fills = first && turn.text.starts_with("form");
        let breaks = turn.text.starts_with("break");
        let word = Arc::clone(&self.warning_requested);
        let held = (first && turn.text.starts_with("hold")).then(|| Arc::clone(&self.released));
        Box::pin(async move {
            assert!(!breaks, "the turn panics");
            if waits {
                std::future::pending::<()>().await;
            }
            if let Some(released) = held {
                released.notified().await;
            }
            if asks || fills {
                let args = json!({"command": "true"}).to_string();
                let question = Question::plain("exec", "Run true".into(), "true".into(), args.clone());
                let form = fills.then(|| json!({"method": "confirm"}).to_string());
                let question = Question { denial: DenialEffect::InformModel, form, ..question };
                reports.request_call(EXEC, args, Purpose::Work, Some(question)).await?;
                if fills {
                    word.notified().await;
                    reports.warn("WORD", "a word", None).await?;
                    return std::future::pending().await;
                }
                return reports.end_turn().await;
            }
            reports.send_text("said").await?;
            reports.end_text().await?;
            let summary = "done".to_owned();
            reports.finish(FinishReport { outcome: RunOutcome::Success, reason: None, summary, error: None }).await
        })
    }
}

/// A daemon without its process.
pub(super) struct TestDaemon {
    pub(super) root: Arc<TempDir>,
    address: Address,
    pub(super) server: Arc<Server>,
    pub(super) provider: Arc<ScriptedProvider>,
    serving: JoinHandle<()>,
}

impl TestDaemon {
    pub(super) fn new() -> Self {
        Self::start_in(Arc::new(TempDir::new().unwrap()), Limits::default(), Clock::start(), open)
    }

    /// Stops the daemon, has `change` change the journal, and starts it again.
    pub(super) async fn restart(self, change: impl AsyncFnOnce(&Journal)) -> Self {
        let root = self.stop_and_change(change).await;
        Self::start_in(root, Limits::default(), Clock::start(), open)
    }

    /// Stops the daemon and starts it again with a clock that is ahead.
    pub(super) async fn restart_later(self, by: Duration) -> Self {
        let root = self.stop_and_change(async |_| ()).await;
        Self::start_in(root, Limits::default(), Clock::start_ahead(by), open)
    }

    async fn stop_and_change(self, change: impl AsyncFnOnce(&Journal)) -> Arc<TempDir> {
        let root = Arc::clone(&self.root);
        self.close().await;
        let journal = open(root.path());
        change(&journal).await;
        journal.close().await.unwrap();
        root
    }

    /// Starts a daemon on a disk whose syncs a test can delay and make fail.
    pub(super) fn on_test_disk() -> (Self, Arc<TestDisk>) {
        Self::on_test_disk_with(Limits::default())
    }

    /// The same with other limits.
    pub(super) fn on_test_disk_with(limits: Limits) -> (Self, Arc<TestDisk>) {
        let root = Arc::new(TempDir::new().unwrap());
        let disk = Arc::new(TestDisk::default());
        let syncs = Arc::clone(&disk);
        let open = |directory: &Path| Journal::open_with_sync(directory, options(), move || syncs.sync()).unwrap();
        (Self::start_in(root, limits, Clock::start(), open), disk)
    }

    /// Starts a daemon that copies the files of its journal to a directory after each commit, under the number of the
    /// commit. The counter has the number of the next one.
    pub(super) fn copying_commits(copies: &Path) -> (Self, Arc<AtomicU32>) {
        let root = Arc::new(TempDir::new().unwrap());
        let (from, to, next) = (root.path().to_owned(), copies.to_owned(), Arc::new(AtomicU32::new(0)));
        let counter = Arc::clone(&next);
        let copy = move || {
            let copy = to.join(counter.load(Ordering::SeqCst).to_string());
            std::fs::create_dir(&copy)?;
            for name in ["pushd.db", "pushd.db-wal", "pushd.marks", "pushd.ahead"] {
                std::fs::copy(from.join(name), copy.join(name))?;
            }
            counter.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        let options = Options { sync_within: Duration::ZERO, ..options() };
        let open = |directory: &Path| Journal::open_with_sync(directory, options, copy).unwrap();
        (Self::start_in(root, Limits::default(), Clock::start(), open), next)
    }

    /// Starts a daemon that syncs only what something waits for.
    pub(super) fn without_background_syncs() -> Self {
        let root = Arc::new(TempDir::new().unwrap());
        let options = Options { sync_within: Duration::from_secs(3_600), ..options() };
        let open = |directory: &Path| Journal::open(directory, options).unwrap();
        Self::start_in(root, Limits::default(), Clock::start(), open)
    }

    fn start_in(root: Arc<TempDir>, limits: Limits, clock: Clock, open: impl FnOnce(&Path) -> Journal) -> Self {
        let file = |name: &str| root.path().join("run").join(name);
        let (socket, lock, pid) = (file("pushd.sock"), file("pushd.lock"), file("pushd.pid"));
        let address = Address { socket, lock, pid, directory: DirectoryKind::Default };
        let provider = Arc::new(ScriptedProvider::default());
        let named: Arc<dyn Provider> = Arc::<ScriptedProvider>::clone(&provider);
        let variable = |name: &str| match name {
            "PUSH_HOME" => Some(root.path().into()),
            "PUSH_CONFIG" => Some(root.path().join("config.toml").into()),
            _ => None,
        };
        let paths = Paths::from_environment(&variable).unwrap();
        let files = FileTasks::new(FILE_SLOTS, Duration::from_secs(60));
        let services = Arc::new(Services {
            limits,
            clock,
            daily_spend: DailySpend::new(clock.now()),
            journal: open(root.path()),
            model_config: ModelHouse::new(&paths, BUILT_IN, ModelLimits::default(), files.clone()),
            tools: ToolSet::builtin(),
            files,
            grants: Arc::new(GrantStore::new(root.path())),
            index: SearchIndex::new(root.path()),
            session_files: SessionFiles::new(root.path(), root.path()),
            environments: Environments::default(),
            login: LoginEnvironment::new(&std::env::temp_dir()),
            providers: BTreeMap::from([(named.name(), named)]),
            sandboxes: Sandboxes::new(LocalSandbox::this_program().unwrap(), &paths, Vec::new()),
            draining: Latch::new(),
            closing: Latch::new(),
            disconnecting: Latch::new(),
            phase_changed: Notify::new(),
            notices: NoticeQueue::default(),
            approvals_revision: tokio::sync::watch::Sender::new(1),
            run_ends: RunEndChannel::new(),
            deleted: tokio::sync::broadcast::Sender::new(BROADCAST_CAPACITY),
            session_changes: tokio::sync::broadcast::Sender::new(BROADCAST_CAPACITY),
        });
        let server = Server::new(Hub::new(services), &address.socket);
        let listener = Listener::bind(&address).unwrap();
        let protocols = ProtocolRegistry::new(Arc::clone(&server), protocols::BUILT_IN);
        let serving = tokio::spawn(async move {
            for connection in 1.. {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(connection::serve(Arc::clone(&protocols), stream, ConnectionId(connection)));
            }
        });
        Self { root, address, server, provider, serving }
    }

    pub(super) async fn client(&self) -> Client {
        let (from, to) = local::connect(&self.address).await.unwrap().into_split();
        Client { lines: Lines::new(from, 1 << 20), to, events: VecDeque::new() }
    }

    pub(super) async fn close(self) {
        let services = self.server.hub().services();
        services.closing.set();
        timeout(TIMEOUT, self.server.hub().wait_for_lanes()).await.unwrap();
        services.disconnecting.set();
        services.journal.clone().close().await.unwrap();
        self.serving.abort();
        // The socket is free when the task has ended.
        let _ = self.serving.await;
    }
}

/// The number of file threads of a test daemon.
pub(super) const FILE_SLOTS: usize = 4;

fn options() -> Options {
    Options { lost_line, ..Options::default() }
}

/// Opens the journal of a daemon that does not run.
pub(super) fn open(directory: &Path) -> Journal {
    Journal::open(directory, options()).unwrap()
}

/// A disk whose syncs wait or fail as a test demands.
#[derive(Default)]
pub(super) struct TestDisk {
    mode: Mutex<SyncMode>,
    changed: Condvar,
    entered: Notify,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum SyncMode {
    #[default]
    Succeed,
    /// The next sync succeeds, and every later one waits.
    SucceedOnce,
    Wait,
    Fail,
}

impl TestDisk {
    /// Makes every sync wait from now on.
    pub(super) fn hold(&self) {
        self.set(SyncMode::Wait);
    }

    /// Makes one sync succeed, which may be one that waits, and every later one wait.
    pub(super) fn allow_one(&self) {
        self.set(SyncMode::SucceedOnce);
    }

    /// Makes every sync succeed, including one that waits.
    pub(super) fn recover(&self) {
        self.set(SyncMode::Succeed);
    }

    /// Makes every sync fail, including one that waits.
    pub(super) fn fail(&self) {
        self.set(SyncMode::Fail);
    }

    /// Waits until a sync waits.
    pub(super) async fn wait_until_held(&self) {
        timeout(TIMEOUT, self.entered.notified()).await.unwrap();
    }

    fn set(&self, mode: SyncMode) {
        *self.mode.lock().unwrap() = mode;
        self.changed.notify_all();
    }

    fn sync(&self) -> io::Result<()> {
        let mut mode = self.mode.lock().unwrap();
        if *mode == SyncMode::Wait {
            self.entered.notify_one();
        }
        while *mode == SyncMode::Wait {
            mode = self.changed.wait(mode).unwrap();
        }
        if *mode == SyncMode::SucceedOnce {
            *mode = SyncMode::Wait;
        }
        if *mode == SyncMode::Fail { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }
}

/// A client over the real socket.
pub(super) struct Client {
    lines: Lines<local::ReadHalf>,
    to: local::WriteHalf,
    events: VecDeque<Value>,
}

impl Client {
    pub(super) async fn start(&mut self) -> String {
        self.get("start_session", json!({"cwd": "/"})).await["sessionId"].as_str().unwrap().to_owned()
    }

    pub(super) async fn prompt(&mut self, session: &str, text: &str) -> String {
        let prompt = json!({"sessionId": session, "text": text});
        self.get("send_user_message", prompt).await["runId"].as_str().unwrap().to_owned()
    }

    pub(super) async fn run(&mut self, session: &str, text: &str) -> Value {
        self.prompt(session, text).await;
        self.until("run_complete").await.pop().unwrap()
    }

    /// Sends a request that must succeed, and returns its payload.
    pub(super) async fn get(&mut self, kind: &str, payload: Value) -> Value {
        self.send(kind, payload).await;
        let answer = self.answer().await;
        assert_eq!(answer["ok"], true, "{answer}");
        answer["payload"].clone()
    }

    /// Sends a request without waiting for the response.
    pub(super) async fn send(&mut self, kind: &str, payload: Value) {
        let request = json!({"v": "push.runtime.v1", "kind": "request", "requestId": "r", "type": kind,
            "payload": payload});
        self.send_line(&request).await;
    }

    /// Sends a line of whichever protocol the connection speaks.
    pub(super) async fn send_line(&mut self, line: &Value) {
        self.to.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// Returns the next response.
    pub(super) async fn answer(&mut self) -> Value {
        loop {
            let line = self.line().await;
            if line["kind"] == "response" {
                return line;
            }
            self.events.push_back(line);
        }
    }

    /// Returns all events up to and including the next one of a type.
    pub(super) async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = match self.events.pop_front() {
                Some(event) => event,
                None => self.line().await,
            };
            let last = event["type"] == kind;
            events.push(event);
            if last {
                return events;
            }
        }
    }

    pub(super) async fn line(&mut self) -> Value {
        match timeout(TIMEOUT, self.lines.next()).await.unwrap().unwrap() {
            Some(Line::Whole(line)) => serde_json::from_slice(&line).unwrap(),
            other => panic!("no line: {other:?}"),
        }
    }
}

pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a request of the owner, from a connection of its own.
pub(super) fn lane_request(command: Command, respond: ReplyGuard) -> Box<LaneRequest> {
    let outbox = Outbox::new(ConnectionId(u64::MAX), EventForm::Record);
    let caller = Caller::owner(outbox.id(), "test".to_owned());
    Box::new(LaneRequest {
        caller,
        command,
        if_version: None,
        starter: Starter::Person,
        reply_guard: respond,
        outbox,
        environment: None,
        part: None,
    })
}
