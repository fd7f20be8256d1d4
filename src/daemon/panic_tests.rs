//! A panic in one session stays there: the others go on, the session comes back from the journal, its listeners go on, and
//! whoever waited is answered.
//!
//! The panics come from the two places where code that is not the lane's own runs inside a lane: a provider that is
//! asked for a turn, and whoever takes an answer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use super::clock::Clock;
use super::connection;
use super::environments::Environments;
use super::grants::Grants;
use super::hub::Hub;
use super::lane::{Asked, Respond, Trouble};
use super::models::House as ModelHouse;
use super::outbox::Outbox;
use super::server::Server;
use super::walls::Sandboxes;
use super::world::{Closing, DELETIONS, RunsOver, World};
use crate::config::limits::Limits;
use crate::config::paths::Paths;
use crate::config::settings::NO_MODEL;
use crate::journal::{Journal, Options};
use crate::kernel::command::{Caller, Command, Rights};
use crate::kernel::effect::{Finish, Turn};
use crate::kernel::event::Outcome;
use crate::kernel::id::{MessageId, ParticipantId, SessionId};
use crate::provider::limits::Limits as ModelLimits;
use crate::provider::{Provider, Reports, Turning};
use crate::sandbox::Local;
use crate::transport::line::{Line, Lines};
use crate::transport::local::{self, Address, Directory, Listener};

#[tokio::test]
async fn a_provider_that_panics_breaks_its_session_for_a_moment_and_no_other() {
    let house = House::new();
    let (mut owner, mut watcher, mut neighbour) =
        (house.client().await, house.client().await, house.client().await);
    let session = owner.start().await;
    let other = neighbour.start().await;
    watcher.get("attach_session", json!({"sessionId": session, "lastSeenSeq": 0})).await;
    let run = owner.prompt(&session, "panic once, then speak").await;
    // The neighbour is served while the session is away, and after.
    assert_eq!(neighbour.run(&other, "speak").await["payload"]["outcome"], "success");
    for listener in [&mut owner, &mut watcher] {
        let events = listener.until("run_complete").await;
        assert_rising(&events);
        let recovered = events.iter().find(|event| event["type"] == "run_recovered").unwrap();
        assert_eq!((&recovered["runId"], &recovered["payload"]["found"]), (&json!(run), &json!("working")));
        let complete = events.last().unwrap();
        assert_eq!((&complete["runId"], &complete["payload"]["outcome"]), (&json!(run), &json!("success")));
    }
    assert_eq!(owner.run(&session, "speak").await["payload"]["outcome"], "success");
    assert_eq!(neighbour.run(&other, "speak").await["payload"]["outcome"], "success");
    house.close().await;
}

#[tokio::test]
async fn whoever_waits_for_a_lane_that_panics_is_answered_and_nothing_kept_is_lost() {
    let house = House::new();
    let (mut owner, mut neighbour) = (house.client().await, house.client().await);
    let session = owner.start().await;
    let other = neighbour.start().await;
    owner.run(&session, "speak").await;
    let run = owner.prompt(&session, "wait, then speak").await;
    house.provider.asked(2).await;
    // All are in the inbox before the lane runs; the first to be answered breaks it.
    let lane = house.server.hub().lane(&SessionId::from(session.clone())).await.unwrap().unwrap();
    let poison = Respond::new(|_| panic!("whoever takes this answer breaks the lane"));
    assert!(lane.ask(asked(poison)).is_ok());
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let (tell, told) = oneshot::channel();
            let respond = Respond::new(move |reply| drop(tell.send(reply)));
            assert!(lane.ask(asked(respond)).is_ok());
            told
        })
        .collect();
    for told in waiting {
        let told = timeout(PATIENCE, told).await.unwrap().expect("an answer");
        assert_eq!(told.unwrap_err(), Trouble::Interrupted);
    }
    assert_eq!(neighbour.run(&other, "speak").await["payload"]["outcome"], "success");
    // The listener goes on where it was; the run is asked for again from what is done.
    let events = owner.until("run_complete").await;
    assert_rising(&events);
    assert_eq!(events.last().unwrap()["runId"], json!(run));
    assert_eq!(events.last().unwrap()["payload"]["outcome"], "success");
    let mut late = house.client().await;
    late.get("attach_session", json!({"sessionId": session, "lastSeenSeq": 0})).await;
    let mut history = late.until("run_complete").await;
    history.extend(late.until("run_complete").await);
    assert_rising(&history);
    assert_eq!(history.iter().filter(|event| event["type"] == "run_recovered").count(), 1);
    house.close().await;
}

#[tokio::test]
async fn a_turn_that_panics_fails_its_run_and_nothing_else() {
    let house = House::new();
    let mut owner = house.client().await;
    let session = owner.start().await;
    let complete = owner.run(&session, "break").await;
    assert_eq!(complete["payload"]["outcome"], "failed", "{complete}");
    assert_eq!(owner.run(&session, "speak").await["payload"]["outcome"], "success");
    house.close().await;
}

/// Says something at each turn, but for the first turn of a message that says otherwise.
#[derive(Default)]
struct Moody {
    turns: AtomicU32,
    turned: Notify,
    /// The messages whose first turn is over.
    known: Mutex<BTreeSet<MessageId>>,
}

impl Moody {
    /// Waits until it has had so many turns.
    async fn asked(&self, turns: u32) {
        let enough = async {
            loop {
                let turned = self.turned.notified();
                if self.turns.load(Ordering::SeqCst) >= turns {
                    return;
                }
                turned.await;
            }
        };
        timeout(PATIENCE, enough).await.unwrap();
    }
}

impl Provider for Moody {
    fn name(&self) -> &'static str {
        NO_MODEL
    }

    fn turn(&self, turn: Turn, mut reports: Reports) -> Turning {
        self.turns.fetch_add(1, Ordering::SeqCst);
        self.turned.notify_waiters();
        let first = self.known.lock().unwrap().insert(turn.message);
        assert!(!(first && turn.text.starts_with("panic")), "the provider panics");
        let waits = first && turn.text.starts_with("wait");
        let breaks = turn.text.starts_with("break");
        Box::pin(async move {
            assert!(!breaks, "the turn panics");
            if waits {
                std::future::pending::<()>().await;
            }
            reports.say("said").await?;
            reports.done_saying().await?;
            let summary = "done".to_owned();
            reports.finish(Finish { outcome: Outcome::Success, reason: None, summary, fault: None }).await
        })
    }
}

/// Everything of a daemon but its process.
struct House {
    _root: TempDir,
    address: Address,
    server: Arc<Server>,
    provider: Arc<Moody>,
}

impl House {
    fn new() -> Self {
        let root = TempDir::new().unwrap();
        let file = |name: &str| root.path().join("run").join(name);
        let (socket, lock, pid) = (file("pushd.sock"), file("pushd.lock"), file("pushd.pid"));
        let address = Address { socket, lock, pid, directory: Directory::Default };
        let provider = Arc::new(Moody::default());
        let named: Arc<dyn Provider> = Arc::<Moody>::clone(&provider);
        let place = root.path().as_os_str().to_owned();
        let paths = Paths::from_environment(&|name| (name == "PUSH_HOME").then(|| place.clone())).unwrap();
        let world = Arc::new(World {
            limits: Limits::default(),
            clock: Clock::start(),
            journal: Journal::open(root.path(), Options::default()).unwrap(),
            house: ModelHouse::new(&paths, ModelLimits::default()),
            grants: Arc::new(Grants::new(root.path())),
            environments: Environments::default(),
            providers: BTreeMap::from([(named.name(), named)]),
            sandboxes: Sandboxes::new(Local::this_program().unwrap(), &paths),
            draining: Closing::new(),
            closing: Closing::new(),
            parting: Closing::new(),
            settled: Notify::new(),
            runs_over: RunsOver::new(),
            deleted: tokio::sync::broadcast::Sender::new(DELETIONS),
        });
        let server = Server::new(Hub::new(world), &address.socket);
        let listener = Listener::bind(&address).unwrap();
        let serving = Arc::clone(&server);
        tokio::spawn(async move {
            for connection in 1.. {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(connection::serve(Arc::clone(&serving), stream, ParticipantId(connection)));
            }
        });
        Self { _root: root, address, server, provider }
    }

    async fn client(&self) -> Client {
        let (from, to) = local::connect(&self.address).await.unwrap().into_split();
        Client { lines: Lines::new(from, 1 << 20), to, events: VecDeque::new() }
    }

    async fn close(self) {
        let world = self.server.hub().world();
        world.closing.begin();
        timeout(PATIENCE, self.server.hub().all_ended()).await.unwrap();
        world.parting.begin();
        world.journal.clone().close().await.unwrap();
    }
}

/// A client over the real socket.
struct Client {
    lines: Lines<local::ReadHalf>,
    to: local::WriteHalf,
    events: VecDeque<Value>,
}

impl Client {
    async fn start(&mut self) -> String {
        self.get("start_session", json!({"cwd": "/"})).await["sessionId"].as_str().unwrap().to_owned()
    }

    async fn prompt(&mut self, session: &str, text: &str) -> String {
        let asked = json!({"sessionId": session, "text": text});
        self.get("send_user_message", asked).await["runId"].as_str().unwrap().to_owned()
    }

    async fn run(&mut self, session: &str, text: &str) -> Value {
        self.prompt(session, text).await;
        self.until("run_complete").await.pop().unwrap()
    }

    /// Asks for something that must be granted.
    async fn get(&mut self, kind: &str, payload: Value) -> Value {
        let request = json!({"v": "push.runtime.v1", "kind": "request", "requestId": "r", "type": kind,
            "payload": payload});
        self.to.write_all(format!("{request}\n").as_bytes()).await.unwrap();
        loop {
            let line = self.line().await;
            if line["kind"] == "response" {
                assert_eq!(line["ok"], true, "{line}");
                return line["payload"].clone();
            }
            self.events.push_back(line);
        }
    }

    /// Returns all events up to the next one of a type, which is the last.
    async fn until(&mut self, kind: &str) -> Vec<Value> {
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

    async fn line(&mut self) -> Value {
        match timeout(PATIENCE, self.lines.next()).await.unwrap().unwrap() {
            Some(Line::Whole(line)) => serde_json::from_slice(&line).unwrap(),
            other => panic!("no line: {other:?}"),
        }
    }
}

fn asked(respond: Respond) -> Box<Asked> {
    let outbox = Outbox::new(ParticipantId(u64::MAX));
    let caller = Caller { id: outbox.id(), source: "test".to_owned(), rights: Rights::ALL };
    let command = Command::Describe;
    Box::new(Asked { caller, command, if_version: None, respond, outbox, environment: None })
}

fn assert_rising(events: &[Value]) {
    let numbers: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
}

const PATIENCE: Duration = Duration::from_secs(60);
