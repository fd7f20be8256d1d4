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
    /// Capture the environment of the login shell anew.
    Reload,
    /// Begin a session.
    StartSession(Box<StartSession>),
    /// Which sessions are there?
    ListSessions(ListSessions),
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
    /// Summarise the older part of the conversation.
    Compact {
        /// What the summary should heed.
        instructions: Option<String>,
        /// The environment of whoever asks.
        environment: Option<Environment>,
    },
    /// Remove the session with everything of it.
    Delete {
        /// Whether it is only to be said what would be removed.
        dry_run: bool,
        /// Whether Pi session files that were imported are removed too.
        with_pi_files: bool,
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

/// Which sessions a client wants listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListSessions {
    /// How many at most.
    pub limit: u32,
    /// Where the page before ended.
    pub cursor: Option<String>,
    /// How their ids begin.
    pub prefix: Option<String>,
    /// Whether those that take no more messages are listed too.
    pub include_ended: bool,
}

/// When a client that listens is shown the state of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Summary {
    /// Only where events are missing.
    AfterGap,
    /// Always, after what it missed.
    Always,
}

/// How a client wants to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attach {
    /// The last event that it has seen.
    pub seen: Seq,
    /// When it is shown the state of the session.
    pub summary: Summary,
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
pub struct Environment {
    variables: BTreeMap<String, String>,
    source: Source,
}

/// Who an environment comes from.
#[derive(Clone, PartialEq, Eq, Default)]
enum Source {
    /// A client, which sent it.
    #[default]
    Client,
    /// The login shell of the daemon's owner.
    Login,
    /// The daemon itself, because the login shell could not be asked, with the reason.
    Daemon(String),
}

impl Environment {
    /// Takes names with their values, as a client sent them.
    pub const fn new(variables: BTreeMap<String, String>) -> Self {
        Self { variables, source: Source::Client }
    }

    /// Takes what the owner's login shell has.
    pub const fn of_login(variables: BTreeMap<String, String>) -> Self {
        Self { variables, source: Source::Login }
    }

    /// Takes what the daemon itself has, and why that is used.
    pub const fn of_daemon(variables: BTreeMap<String, String>, why: String) -> Self {
        Self { variables, source: Source::Daemon(why) }
    }

    /// Returns the names with their values.
    pub const fn variables(&self) -> &BTreeMap<String, String> {
        &self.variables
    }

    /// Hands the names with their values over.
    pub fn into_variables(self) -> BTreeMap<String, String> {
        self.variables
    }

    /// Returns whether a client sent it; any other stands in for one.
    pub const fn is_of_client(&self) -> bool {
        matches!(self.source, Source::Client)
    }

    /// Returns why it is not what it should be, if so.
    pub fn warning(&self) -> Option<&str> {
        match &self.source {
            Source::Client | Source::Login => None,
            Source::Daemon(why) => Some(why),
        }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Environment({} variables)", self.variables.len())
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
