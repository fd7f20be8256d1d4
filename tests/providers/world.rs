//! The fixture of one case: a server, the models of its provider, and a directory for keys.

use std::collections::BTreeMap;
use std::time::Duration;

use pushd::provider::breaker;
use pushd::provider::dialect::Dialect;
use pushd::provider::error::ModelError;
use pushd::provider::keys::Keyring;
use pushd::provider::limits::Limits;
use pushd::provider::model::{Entry, Piece, Request, Thinking, TurnEnd};
use pushd::provider::registry::{Environment, Models, Ready, Settings, key_variable};
use pushd::provider::{Answering, retry};
use tempfile::TempDir;

use crate::model::{ModelServer, Reply, Seen, Speaks};

pub(crate) const KEY: &str = "test-key-123";
pub(crate) const MODEL: &str = "test-model";

pub(crate) struct World {
    pub(crate) dialect: Dialect,
    pub(crate) server: ModelServer,
    pub(crate) models: Models,
    pub(crate) environment: Environment,
    pub(crate) folder: TempDir,
}

/// The result of a request; adjacent text deltas are joined.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) parts: usize,
    pub(crate) end: TurnEnd,
    pub(crate) error: Option<ModelError>,
}

impl World {
    /// A fixture with default limits and these replies.
    pub(crate) fn new(dialect: Dialect, replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::with(dialect, limits(), replies)
    }

    /// A fixture with these limits.
    pub(crate) fn with(dialect: Dialect, limits: Limits, replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::set(dialect, limits, |_| {}, replies)
    }

    /// A fixture with changed settings.
    pub(crate) fn set(
        dialect: Dialect,
        limits: Limits,
        change: impl FnOnce(&mut Settings),
        replies: impl IntoIterator<Item = Reply>,
    ) -> Self {
        let server = ModelServer::start();
        server.script(replies);
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings::new(dialect);
        settings.base_url = Some(server.base_url(speaks(dialect)));
        change(&mut settings);
        let all = BTreeMap::from([(dialect.name().to_owned(), settings)]);
        let models = Models::new(all, folder.path().to_owned(), no_keyring(&folder), limits);
        let environment = BTreeMap::from([(key_variable(dialect.name()), KEY.to_owned())]);
        Self { dialect, server, models, environment, folder }
    }

    /// The resolved provider.
    pub(crate) async fn ready(&self) -> Ready {
        self.models.resolve(self.dialect.name(), Some(MODEL), &self.environment).await.unwrap()
    }

    /// Sends a simple request and reads the turn.
    pub(crate) async fn ask(&self) -> Asked {
        self.ask_this(&question()).await
    }

    /// Sends this request and reads the turn.
    pub(crate) async fn ask_this(&self, request: &Request) -> Asked {
        read(self.ready().await.ask(request)).await
    }

    /// The requests that the server has received.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.server.seen()
    }
}

impl Asked {
    /// The deltas of a complete turn.
    pub(crate) fn whole(self) -> Vec<Piece> {
        assert_eq!(self.error, None, "after {:?}", self.pieces);
        self.pieces
    }

    /// The error after these deltas.
    pub(crate) fn failed_after(self, pieces: &[Piece]) -> ModelError {
        assert_eq!(self.pieces, pieces);
        self.error.expect("the question fails")
    }
}

/// Reads a turn to its end.
pub(crate) async fn read(mut answering: Answering) -> Asked {
    let mut asked = Vec::new();
    let mut parts = 0;
    let error = loop {
        match answering.next().await {
            Ok(Some(pieces)) => {
                assert!(!pieces.is_empty(), "nothing is no reason to wake anybody");
                parts += pieces.len();
                pieces.into_iter().for_each(|piece| merge(&mut asked, piece));
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    Asked { pieces: asked, parts, end: answering.end(), error }
}

/// Limits with short pauses.
pub(crate) fn limits() -> Limits {
    Limits {
        connect: Duration::from_secs(10),
        first_byte: Duration::from_secs(20),
        silence: Duration::from_secs(20),
        retry: retry::Policy {
            attempts: 3,
            first_pause: Duration::from_millis(1),
            longest_pause: Duration::from_millis(2),
            longest_asked: Duration::from_secs(5),
        },
        breaker: breaker::Policy { failures: 1000, pause: Duration::from_secs(600) },
        ..Limits::default()
    }
}

/// A simple request.
pub(crate) fn question() -> Request {
    Request {
        model: MODEL.to_owned(),
        system: "Be brief.".to_owned(),
        entries: vec![Entry::user("Hello?".to_owned())],
        tools: Vec::new(),
        max_tokens: None,
        thinking: Thinking::Usual,
    }
}

pub(crate) const fn speaks(dialect: Dialect) -> Speaks {
    match dialect {
        Dialect::Ollama => Speaks::Ollama,
        Dialect::OpenAi => Speaks::OpenAi,
        Dialect::Anthropic => Speaks::Anthropic,
    }
}

pub(crate) fn said(text: &str) -> Piece {
    Piece::Said(text.to_owned())
}

/// A keyring with a missing program: no test uses the keyring of the user who runs it.
pub(crate) fn no_keyring(folder: &TempDir) -> Keyring {
    Keyring { program: Some(folder.path().join("no-such-program")), ..Keyring::default() }
}

fn merge(merged: &mut Vec<Piece>, piece: Piece) {
    match (merged.last_mut(), piece) {
        (Some(Piece::Said(last)), Piece::Said(text)) | (Some(Piece::Thought(last)), Piece::Thought(text)) => {
            last.push_str(&text);
        }
        (_, piece) => merged.push(piece),
    }
}
