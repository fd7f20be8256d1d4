//! A scripted model server for tests: it speaks three dialects on a free local port, and fails in every way a test
//! asks for.
//!
//! It runs in its own thread and stops with its handle. It records its requests.
#![allow(dead_code, unused_imports, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

pub(crate) mod cases;
mod dialects;
mod script;
mod serve;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::Value;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{oneshot, watch};

pub(crate) use script::{Delivery, End, Fault, Reply, Step, Turn, TurnCost, call, fault, say, think};
pub(crate) use serve::spoken;

/// The dialect of the server, chosen by the path of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerDialect {
    Ollama,
    OpenAi,
    Anthropic,
}

impl ServerDialect {
    /// The name of the provider.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ollama => "ollama",
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
        }
    }
}

/// An address at which nothing listens, reserved while this value lives.
#[derive(Debug)]
pub(crate) struct UnusedPort(TcpSocket);

impl UnusedPort {
    pub(crate) fn new() -> Self {
        let taken = TcpSocket::new_v4().unwrap();
        taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self(taken)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }
}

/// A request that the server received.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    /// By lower-case name.
    pub(crate) headers: BTreeMap<String, String>,
    /// The JSON body; null if there was none.
    pub(crate) body: Value,
}

/// A running server.
pub(crate) struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The state that the connections of a server share.
pub(crate) struct Shared {
    script: Mutex<VecDeque<Reply>>,
    /// The reply when the script is exhausted.
    usual: Mutex<Option<Reply>>,
    seen: Mutex<Vec<ReceivedRequest>>,
    connections: watch::Sender<usize>,
    hangups: watch::Sender<usize>,
    models: Mutex<Vec<String>>,
    window: Mutex<Option<Window>>,
    refused: Mutex<usize>,
}

/// The context window of the models.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// In tokens of four bytes.
    pub(crate) tokens: usize,
    pub(crate) report: WindowReport,
}

/// Where the server reports the context window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowReport {
    /// Nowhere.
    Nowhere,
    /// In the error for a prompt that is too long.
    InErrors,
    /// In the list of models, or in the description of one.
    InTheList,
    /// In its properties, like llama.cpp.
    InProperties,
}

impl ModelServer {
    /// Starts a server without a script.
    pub(crate) fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::new());
        let (stop, stopped) = oneshot::channel();
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    () = serve::listen(listener, for_thread) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, shared, stop: Some(stop), thread: Some(thread) }
    }

    /// Appends to the script, one reply per request.
    pub(crate) fn script(&self, replies: impl IntoIterator<Item = Reply>) {
        self.shared.script.lock().unwrap().extend(replies);
    }

    /// Drops the rest of the script.
    pub(crate) fn forget_script(&self) {
        self.shared.script.lock().unwrap().clear();
    }

    /// Sets the reply for when the script is exhausted.
    pub(crate) fn usually(&self, reply: Reply) {
        *self.shared.usual.lock().unwrap() = Some(reply);
    }

    /// Sets the list of models.
    pub(crate) fn has_models(&self, names: &[&str]) {
        *self.shared.models.lock().unwrap() = names.iter().map(|name| (*name).to_owned()).collect();
    }

    /// Sets the context window; longer prompts are refused, and use no reply of the script.
    pub(crate) fn has_window(&self, tokens: usize, report: WindowReport) {
        *self.shared.window.lock().unwrap() = Some(Window { tokens, report });
    }

    /// How many requests were refused because they were too long.
    pub(crate) fn refused(&self) -> usize {
        *self.shared.refused.lock().unwrap()
    }

    /// The address without any path.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The base URL that a client of the dialect is given.
    pub(crate) fn base_url(&self, dialect: ServerDialect) -> String {
        match dialect {
            ServerDialect::Ollama => self.url(),
            ServerDialect::OpenAi => format!("{}/v1", self.url()),
            ServerDialect::Anthropic => self.url(),
        }
    }

    /// All requests so far, oldest first.
    pub(crate) fn seen(&self) -> Vec<ReceivedRequest> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// The number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        *self.shared.connections.borrow()
    }

    /// Waits until this many clients have closed their connection in the middle of a response.
    pub(crate) async fn hangups(&self, count: usize) {
        self.shared.hangups.subscribe().wait_for(|seen| *seen >= count).await.unwrap();
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // A server that has ended has closed the channel.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Shared {
    fn new() -> Self {
        Self {
            script: Mutex::default(),
            usual: Mutex::default(),
            seen: Mutex::default(),
            connections: watch::Sender::new(0),
            hangups: watch::Sender::new(0),
            models: Mutex::new(vec!["test-model".to_owned()]),
            window: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    /// Refuses a prompt that is too long for the models.
    fn refuse_too_long(&self, asked: &Value) -> Option<Reply> {
        let window = (*self.window.lock().unwrap())?;
        let asked_for = asked["max_tokens"].as_u64().unwrap_or_default();
        let tokens = asked.to_string().len() / 4 + usize::try_from(asked_for).unwrap();
        if tokens <= window.tokens {
            return None;
        }
        *self.refused.lock().unwrap() += 1;
        let most = window.tokens;
        let message = match window.report {
            WindowReport::InErrors => format!("maximum context length is {most} tokens, not {tokens}"),
            WindowReport::Nowhere | WindowReport::InTheList | WindowReport::InProperties => {
                "this is more than the context window".to_owned()
            }
        };
        Some(Reply::status(400, &serde_json::json!({"error": {"message": message}}).to_string()))
    }

    fn next_reply(&self) -> Reply {
        let scripted = self.script.lock().unwrap().pop_front();
        scripted
            .or_else(|| self.usual.lock().unwrap().clone())
            .unwrap_or_else(|| Reply::status(500, r#"{"error":{"message":"the script is over"}}"#))
    }
}
