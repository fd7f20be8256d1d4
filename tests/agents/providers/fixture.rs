//! The fixture of one case: a server, the models of its provider, and a directory for keys.

use std::collections::BTreeMap;
use std::time::Duration;

use pushd::provider::breaker;
use pushd::provider::dialect::{BUILT_IN, Dialect, find};
use pushd::provider::error::ModelError;
use pushd::provider::keys::Keyring;
use pushd::provider::limits::Limits;
use pushd::provider::model::{Delta, Entry, Request, Thinking, TurnEnd};
use pushd::provider::registry::{Environment, ModelHandle, ModelRegistry, Settings, key_variable};
use pushd::provider::{TurnStream, retry};
use tempfile::TempDir;

use crate::support::model::{ModelServer, ReceivedRequest, Reply, ServerDialect};

pub(crate) const KEY: &str = "test-key-123";
pub(crate) const MODEL: &str = "test-model";

pub(crate) struct Fixture {
    pub(crate) dialect: ServerDialect,
    pub(crate) server: ModelServer,
    pub(crate) models: ModelRegistry,
    pub(crate) environment: Environment,
    pub(crate) folder: TempDir,
}

/// The result of a request; adjacent text deltas are joined.
#[derive(Debug)]
pub(crate) struct TurnResult {
    pub(crate) deltas: Vec<Delta>,
    pub(crate) delta_count: usize,
    pub(crate) end: TurnEnd,
    pub(crate) error: Option<ModelError>,
}

impl Fixture {
    /// A fixture with default limits and these replies.
    pub(crate) fn new(dialect: ServerDialect, replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::with(dialect, limits(), replies)
    }

    /// A fixture with these limits.
    pub(crate) fn with(dialect: ServerDialect, limits: Limits, replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::with_settings(dialect, limits, |_| {}, replies)
    }

    /// A fixture with changed settings.
    pub(crate) fn with_settings(
        dialect: ServerDialect,
        limits: Limits,
        change: impl FnOnce(&mut Settings),
        replies: impl IntoIterator<Item = Reply>,
    ) -> Self {
        let server = ModelServer::start();
        server.script(replies);
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings::new(built_in(dialect));
        settings.base_url = Some(server.base_url(dialect));
        change(&mut settings);
        let all = BTreeMap::from([(dialect.name().to_owned(), settings)]);
        let models = ModelRegistry::new(all, folder.path().to_owned(), no_keyring(&folder), limits);
        let environment = BTreeMap::from([(key_variable(dialect.name()), KEY.to_owned())]);
        Self { dialect, server, models, environment, folder }
    }

    /// The resolved provider.
    pub(crate) async fn ready(&self) -> ModelHandle {
        self.models.resolve(self.dialect.name(), Some(MODEL), &self.environment).await.unwrap()
    }

    /// Sends a simple request and reads the turn.
    pub(crate) async fn send_simple(&self) -> TurnResult {
        self.send(&simple_request()).await
    }

    /// Sends this request and reads the turn.
    pub(crate) async fn send(&self, request: &Request) -> TurnResult {
        read_turn(self.ready().await.start_turn(request)).await
    }

    /// The requests that the server has received.
    pub(crate) fn seen(&self) -> Vec<ReceivedRequest> {
        self.server.seen()
    }
}

impl TurnResult {
    /// The deltas of a complete turn.
    pub(crate) fn completed(self) -> Vec<Delta> {
        assert_eq!(self.error, None, "after {:?}", self.deltas);
        self.deltas
    }

    /// The error after these deltas.
    pub(crate) fn failed_after(self, pieces: &[Delta]) -> ModelError {
        assert_eq!(self.deltas, pieces);
        self.error.expect("the question fails")
    }
}

/// Reads a turn to its end.
pub(crate) async fn read_turn(mut answering: TurnStream) -> TurnResult {
    let mut completion = Vec::new();
    let mut parts = 0;
    let error = loop {
        match answering.next().await {
            Ok(Some(pieces)) => {
                assert!(!pieces.is_empty(), "nothing is no reason to wake anybody");
                parts += pieces.len();
                pieces.into_iter().for_each(|piece| merge(&mut completion, piece));
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    TurnResult { deltas: completion, delta_count: parts, end: answering.end(), error }
}

/// Limits with short pauses.
pub(crate) fn limits() -> Limits {
    Limits {
        connect_timeout: Duration::from_secs(10),
        first_byte_timeout: Duration::from_secs(20),
        idle_timeout: Duration::from_secs(20),
        retry: retry::RetryPolicy {
            attempts: 3,
            first_pause: Duration::from_millis(1),
            max_pause: Duration::from_millis(2),
            max_retry_after: Duration::from_secs(5),
        },
        breaker: breaker::BreakerPolicy { failure_threshold: 1000, open_duration: Duration::from_secs(600) },
        ..Limits::default()
    }
}

/// A simple request.
pub(crate) fn simple_request() -> Request {
    Request {
        model: MODEL.to_owned(),
        system: "Be brief.".to_owned(),
        entries: vec![Entry::user("Hello?".to_owned())],
        tools: Vec::new(),
        max_tokens: None,
        thinking: Thinking::ServerDefault,
    }
}

/// The dialect of the product for a dialect of the server.
pub(crate) fn built_in(dialect: ServerDialect) -> &'static dyn Dialect {
    find(BUILT_IN, dialect.name()).unwrap()
}

pub(crate) fn text_delta(text: &str) -> Delta {
    Delta::Text(text.to_owned())
}

/// A keyring with a missing program: no test uses the keyring of the user who runs it.
pub(crate) fn no_keyring(folder: &TempDir) -> Keyring {
    Keyring { program: Some(folder.path().join("no-such-program")), ..Keyring::default() }
}

fn merge(merged: &mut Vec<Delta>, piece: Delta) {
    match (merged.last_mut(), piece) {
        (Some(Delta::Text(last)), Delta::Text(text)) | (Some(Delta::Thinking(last)), Delta::Thinking(text)) => {
            last.push_str(&text);
        }
        (_, piece) => merged.push(piece),
    }
}
