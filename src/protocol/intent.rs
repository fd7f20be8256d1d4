//! The requests of clients as plain data, independent of any protocol.
//!
//! A protocol decodes a frame into a [`Request`]. The daemon mints ids, sanitizes texts and builds the kernel command.

use std::fmt;

use super::error::ErrorBody;
use super::operation::CommandRequest;
pub use super::participant_intent::{Join, OpenGate, ParticipantIntent};
use crate::kernel::environment::Environment;
use crate::kernel::event::{ApprovalScope, Budget, Criterion, Decision, Image};
use crate::kernel::id::{CallId, GateId, Json, MessageId, RunId, Seq, SessionId};

/// A decoded request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What the reply repeats of the request.
    pub tag: RequestTag,
    /// What the client wants.
    pub intent: Intent,
}

/// The parts of a request that its reply repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestTag {
    /// The id to answer under; if it is missing, the daemon generates one for a protocol that needs it.
    pub request_id: Option<String>,
    /// The type as sent.
    pub kind_name: String,
    /// The session that the request names.
    pub session: Option<SessionId>,
}

/// A frame that is not a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// The readable parts that the reply repeats.
    pub tag: RequestTag,
    /// Why it is refused.
    pub error: ErrorBody,
}

/// What a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intent {
    /// Introduce the client.
    Hello {
        /// The client's name.
        client_name: Option<String>,
        /// The client's version.
        client_version: Option<String>,
        /// The client's capabilities.
        capabilities: Vec<String>,
    },
    /// Test the connection.
    Ping,
    /// Capture the environment of the login shell again.
    Reload,
    /// Start a session.
    StartSession(Box<StartSession>),
    /// List sessions.
    ListSessions(ListSessions),
    /// List pending approvals.
    ListApprovals {
        /// Only of this session.
        session: Option<SessionId>,
        /// The revision of the list that the client knows: the reply waits for another one.
        known: Option<u64>,
    },
    /// Search the text of all sessions.
    Search(Box<Search>),
    /// Return the figures of all sessions.
    Stats(StatsQuery),
    /// List the grants of all repositories.
    ListGrants,
    /// Revoke a grant.
    RevokeGrant {
        /// The grant's id.
        id: String,
    },
    /// List the providers.
    ListProviders,
    /// Return the daemon's metrics.
    Metrics {
        /// Whether to probe the confinement that is available.
        sandbox: bool,
    },
    /// Check the journal.
    CheckJournal {
        /// Whether to verify every event.
        full: bool,
    },
    /// Accept no new runs, and exit when the active ones have ended.
    Drain {
        /// The grace period in milliseconds.
        grace_ms: Option<u64>,
    },
    /// Switch this connection to another protocol.
    SwitchProtocol(Box<SwitchProtocol>),
    /// A command that the command log admits.
    Command(Box<CommandRequest>),
    /// A request to one session.
    Session {
        /// The session.
        id: SessionId,
        /// The session request.
        body: SessionIntent,
    },
}

/// The parameters of a protocol switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchProtocol {
    /// The name of the new protocol.
    pub protocol: String,
    /// The user's working directory.
    pub cwd: Option<String>,
    /// The user's environment.
    pub environment: Option<Environment>,
}

/// The parameters of a session request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionIntent {
    /// Subscribe from a position on.
    Attach(Box<Attach>),
    /// Unsubscribe.
    Detach,
    /// Start a run.
    Prompt(Box<Prompt>),
    /// Queue a message behind the active run.
    Queue(Box<Prompt>),
    /// Send a message into the active run.
    Steer {
        /// The client's id for the message.
        message: Option<MessageId>,
        /// The text as sent.
        text: String,
        /// The attached images.
        images: Vec<Image>,
    },
    /// List the queued messages.
    ListQueue,
    /// Remove a queued message.
    Unqueue {
        /// The message.
        message: MessageId,
    },
    /// Vote on an approval.
    Decide(Box<ApprovalDecision>),
    /// Stop a run.
    Cancel {
        /// The run, by default the active one.
        run: Option<RunId>,
        /// The reason.
        reason: String,
    },
    /// Run a command of the user's own, beside any run.
    UserCommand(Box<UserCommand>),
    /// Stop commands of the user.
    StopUserCommand {
        /// The command, by default all of them.
        call: Option<CallId>,
    },
    /// Return the snapshot of the session.
    Snapshot,
    /// Return the messages of the session.
    Messages {
        /// The position after which the page starts.
        after: Seq,
        /// The maximum number of messages.
        limit: u32,
    },
    /// Rename the session.
    Rename {
        /// The new name.
        name: String,
    },
    /// End the session: it accepts no more messages.
    End,
    /// Compact the older part of the conversation into a summary.
    Compact {
        /// Instructions for the summary.
        instructions: Option<String>,
        /// The user's environment.
        environment: Option<Environment>,
    },
    /// Fork the session: start another one with its conversation.
    Fork(Box<Fork>),
    /// Delete the session with all of its data.
    Delete {
        /// Whether to report only what would be deleted.
        dry_run: bool,
        /// Whether imported session files are deleted too.
        with_imported_files: bool,
    },
    /// A request about participants, their messages and their approvals.
    Participant(ParticipantIntent),
}

/// The parameters of a new session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartSession {
    /// The mode: `interactive` or `headless`.
    pub mode: String,
    /// The provider.
    pub provider: Option<String>,
    /// The sandbox provider.
    pub sandbox_provider: Option<String>,
    /// The working directory of its tools, an absolute path.
    pub cwd: String,
    /// The model of the provider.
    pub model: Option<String>,
    /// The display name.
    pub name: Option<String>,
    /// The client's description of the repository: an object.
    pub repo: Option<Json>,
    /// Client metadata: an object.
    pub metadata: Option<Json>,
    /// The user's environment.
    pub environment: Option<Environment>,
    /// The idempotency key.
    pub idempotency_key: Option<String>,
}

/// The parameters of a fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fork {
    /// The last event that it inherits, by default the newest.
    pub at: Option<Seq>,
    /// Its display name, by default that of its parent.
    pub name: Option<String>,
    /// The idempotency key.
    pub idempotency_key: Option<String>,
}

/// The parameters of a session listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListSessions {
    /// The maximum number of sessions.
    pub limit: u32,
    /// The cursor where the previous page ended.
    pub cursor: Option<String>,
    /// The prefix of their ids.
    pub prefix: Option<String>,
    /// Whether ended sessions are included.
    pub include_ended: bool,
}

/// The parameters of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// The words to search for.
    pub text: String,
    /// Only in these; in everything if empty.
    pub kinds: Vec<SearchKind>,
    /// Only what began at or after this time, in milliseconds since 1970.
    pub since: Option<u64>,
    /// Only in sessions whose directory is this one or below it.
    pub directory: Option<String>,
    /// The maximum number of hits.
    pub limit: u32,
}

/// What is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchKind {
    /// Messages of users and of the assistant.
    Message,
    /// The arguments and the output of tool calls.
    Tool,
    /// The names of sessions.
    Name,
}

/// The parameters of a request for figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsQuery {
    /// Only from the day of this time on, in milliseconds since 1970.
    pub since: Option<u64>,
    /// Only of sessions whose directory is this one or below it.
    pub directory: Option<String>,
    /// Whether the cost of each session is wanted, too.
    pub by_session: bool,
}

/// When an attaching client receives a snapshot of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotMode {
    /// Only after a gap.
    AfterGap,
    /// Always, after the replay.
    Always,
}

/// The parameters of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attach {
    /// The last event that the client has seen.
    pub seen: Seq,
    /// When the client receives a snapshot.
    pub snapshot: SnapshotMode,
    /// The attach token, for a connection that has no permission of its own.
    pub token: Option<Token>,
    /// Whether to attach read-only.
    pub read_only: bool,
    /// Whether the owner reads everything, also what is not for it; that is recorded.
    pub as_owner: bool,
    /// The user's environment.
    pub environment: Option<Environment>,
}

/// A message that starts a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The client's id for the message.
    pub message: Option<MessageId>,
    /// The text as sent.
    pub text: String,
    /// The attached images.
    pub images: Vec<Image>,
    /// The acceptance criteria of the run.
    pub criteria: Vec<Criterion>,
    /// The time limit of the run in milliseconds.
    pub time_limit: Option<u64>,
    /// The budget of the run; exceeding it asks the user.
    pub budget: Budget,
    /// Rules for its tool calls, as sent.
    pub rules: Vec<String>,
    /// The user's environment.
    pub environment: Option<Environment>,
}

/// A command of the user's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserCommand {
    /// The text for the shell.
    pub command: String,
    /// Whether the model sees the command and its output.
    pub in_context: bool,
    /// The user's environment.
    pub environment: Option<Environment>,
}

/// A vote on an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalDecision {
    /// The approval.
    pub gate: GateId,
    /// The run the approval must belong to.
    pub run: Option<RunId>,
    /// The decision.
    pub decision: Decision,
    /// The chosen one of its choices.
    pub choice: Option<String>,
    /// A comment, as sent.
    pub comment: Option<String>,
    /// The scope of an approval.
    pub scope: ApprovalScope,
    /// The rule to grant in place of the offered one, as sent.
    pub rule: Option<String>,
    /// The answer to a form, as sent.
    pub answer: Option<Json>,
    /// The user's environment.
    pub environment: Option<Environment>,
}

/// A token that permits attaching; it never appears in a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Wraps a token as sent.
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the token; compare it in constant time.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}
