//! What a request asks for, as plain data: the daemon mints ids, makes texts safe and builds the command.

use std::collections::BTreeMap;
use std::fmt;

use crate::kernel::event::{Budget, Criterion, Decision, Image, Lasting};
use crate::kernel::id::{GateId, Json, MessageId, RunId, Seq, SessionId};

/// What is asked of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Introduce oneself.
    Hello {
        /// Who speaks.
        client_name: Option<String>,
        /// Which version of it.
        client_version: Option<String>,
        /// What it can do.
        capabilities: Vec<String>,
    },
    /// Is anybody there?
    Ping,
    /// Begin a session.
    StartSession(Box<StartSession>),
    /// Which sessions are there?
    ListSessions {
        /// How many at most.
        limit: u32,
        /// Where the page before ended.
        cursor: Option<String>,
        /// How their ids begin.
        prefix: Option<String>,
    },
    /// Which approvals are pending?
    ListApprovals {
        /// In this session alone.
        session: Option<SessionId>,
    },
    /// What may go ahead unasked, in every repository?
    ListGrants,
    /// Ask about it again.
    RevokeGrant {
        /// Which one.
        id: String,
    },
    /// Which providers are there?
    ListProviders,
    /// How is the daemon?
    Metrics {
        /// Whether it is to find out what holds a model's commands back.
        sandbox: bool,
    },
    /// Is everything there that was ever kept?
    CheckJournal {
        /// Whether every event is to be looked at.
        full: bool,
    },
    /// Take no new runs, and exit when the running ones are over.
    Drain {
        /// How long they may take, in milliseconds.
        grace_ms: Option<u64>,
    },
    /// Speak another protocol on this connection from now on.
    Speak(Box<Speak>),
    /// Something of one session.
    Session {
        /// Which one.
        id: SessionId,
        /// What.
        ask: SessionAsk,
    },
}

/// How a connection goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speak {
    /// What is spoken.
    pub protocol: Protocol,
    /// The directory in which the user is.
    pub cwd: Option<String>,
    /// The environment of the user.
    pub environment: Option<Environment>,
}

/// A protocol that the runtime speaks beside this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Pi.
    Pi,
}

/// What is asked of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionAsk {
    /// Listen, from a position on.
    Attach(Box<Attach>),
    /// Stop listening.
    Detach,
    /// Begin a run.
    Prompt(Box<Prompt>),
    /// Begin a run when the active one is over.
    Queue(Box<Prompt>),
    /// Speak into the active run.
    Steer {
        /// The client's id of the message.
        message: Option<MessageId>,
        /// The text as it was sent.
        text: String,
        /// The pictures that go with it.
        images: Vec<Image>,
    },
    /// Tell what waits.
    ListQueue,
    /// Take a waiting message back.
    Unqueue {
        /// Which one.
        message: MessageId,
    },
    /// Settle an approval.
    Decide(Box<Decide>),
    /// Stop a run.
    Cancel {
        /// Which one; the active one when not said.
        run: Option<RunId>,
        /// A word for why.
        reason: String,
    },
    /// Tell what a client needs to draw the session.
    Snapshot,
    /// Tell what was said.
    Messages {
        /// The position after which to begin.
        after: Seq,
        /// How many messages at most.
        limit: u32,
    },
    /// Give the session another name.
    Rename {
        /// The new name.
        name: String,
    },
    /// Take no more messages.
    End,
    /// Remove the session with everything of it.
    Delete {
        /// Whether it is only to be said what would be removed.
        dry_run: bool,
    },
}

/// How a session is to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartSession {
    /// How its user works with it.
    pub mode: String,
    /// Who answers.
    pub provider: Option<String>,
    /// Where tools run.
    pub sandbox_provider: Option<String>,
    /// The directory of its tools, an absolute path.
    pub cwd: String,
    /// Which model of the provider.
    pub model: Option<String>,
    /// A name for people.
    pub name: Option<String>,
    /// What the client says of the repository: an object.
    pub repo: Option<Json>,
    /// What the client wants remembered: an object.
    pub metadata: Option<Json>,
    /// The environment of the user.
    pub environment: Option<Environment>,
    /// What tells a repetition from another session.
    pub idempotency_key: Option<String>,
}

/// How a client wants to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attach {
    /// The last event that it has seen.
    pub seen: Seq,
    /// What entitles it, where its connection does not.
    pub token: Option<Token>,
    /// Whether it wants to watch alone.
    pub read_only: bool,
    /// The environment of the user.
    pub environment: Option<Environment>,
}

/// A message that begins a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The client's id of the message.
    pub message: Option<MessageId>,
    /// The text as it was sent.
    pub text: String,
    /// The pictures that go with it.
    pub images: Vec<Image>,
    /// What must hold after the run.
    pub criteria: Vec<Criterion>,
    /// How long the run may take, in milliseconds.
    pub time_limit: Option<u64>,
    /// What the run may use before somebody is asked.
    pub budget: Budget,
    /// Rules for its calls, as they were sent.
    pub rules: Vec<String>,
    /// The environment of the user.
    pub environment: Option<Environment>,
}

/// A vote at an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decide {
    /// Which approval.
    pub gate: GateId,
    /// The run it should belong to.
    pub run: Option<RunId>,
    /// Yes or no.
    pub decision: Decision,
    /// Which of its choices.
    pub choice: Option<String>,
    /// A comment as it was sent.
    pub comment: Option<String>,
    /// How long a yes holds.
    pub lasting: Lasting,
    /// What was filled in, as it was sent.
    pub answer: Option<Json>,
    /// The environment of the user.
    pub environment: Option<Environment>,
}

/// The environment of a user: names and values, of which none is shown in a log.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Takes names with their values.
    pub const fn new(variables: BTreeMap<String, String>) -> Self {
        Self(variables)
    }

    /// Returns the names with their values.
    pub const fn variables(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// Hands the names with their values over.
    pub fn into_variables(self) -> BTreeMap<String, String> {
        self.0
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Environment({} variables)", self.0.len())
    }
}

/// What entitles a client to attach; not shown in a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Takes a token as it was sent.
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the token, to be compared in constant time.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}
