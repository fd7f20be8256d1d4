//! One case's world: a server, the models that ask it, and a folder for keys.

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

/// What came of a question; text that came in parts is put together.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) parts: usize,
    pub(crate) end: TurnEnd,
    pub(crate) error: Option<ModelError>,
}

impl World {
    /// A world with usual limits, and these replies.
    pub(crate) fn new(dialect: Dialect, replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::with(dialect, limits(), replies)
    }

    /// A world with its own limits.
    pub(crate) fn with(dialect: Dialect, limits: Limits, replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::set(dialect, limits, |_| {}, replies)
    }

    /// A world with its own settings.
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

    /// The provider, ready to be asked.
    pub(crate) async fn ready(&self) -> Ready {
        self.models.resolve(self.dialect.name(), Some(MODEL), &self.environment).await.unwrap()
    }

    /// Asks a simple question and reads the whole answer.
    pub(crate) async fn ask(&self) -> Asked {
        self.ask_this(&question()).await
    }

    /// Asks this and reads the whole answer.
    pub(crate) async fn ask_this(&self, request: &Request) -> Asked {
        read(self.ready().await.ask(request)).await
    }

    /// What the server was asked so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.server.seen()
    }
}

impl Asked {
    /// The pieces of an answer that was whole.
    pub(crate) fn whole(self) -> Vec<Piece> {
        assert_eq!(self.error, None, "after {:?}", self.pieces);
        self.pieces
    }

    /// What went wrong, after these pieces.
    pub(crate) fn failed_after(self, pieces: &[Piece]) -> ModelError {
        assert_eq!(self.pieces, pieces);
        self.error.expect("the question fails")
    }
}

/// Reads an answer to its end.
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

/// Limits under which nothing takes long.
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

/// A simple question.
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

/// A keyring whose program is not there: no test touches that of whoever runs it.
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
