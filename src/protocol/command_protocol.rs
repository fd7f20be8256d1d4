//! What a protocol adds whose requests are commands of the command log: results, notices, and projections of sessions.

use std::sync::Arc;

use bytes::Bytes;

use super::Protocol;
use super::operation::UiResponse;
use super::operation_result::{OperationError, OperationResult, SessionInfo};
use super::session_file::{Entry, Header, IdGenerator, ParsedSession};
use crate::kernel::command::Snapshot;
use crate::kernel::command_log::{AdmissionRefusal, ErrorFormatter};
use crate::kernel::event::{Branch, Decision, Event};
use crate::kernel::id::{GateId, Json, Seq, SessionId};
use crate::kernel::import::Import;
use crate::kernel::time::Now;

/// A protocol whose requests are commands of the command log.
///
/// A line is a frame without a line feed, which all its receivers share. The text of a result is stored and sent again
/// to whoever repeats the command.
pub trait CommandProtocol: Protocol {
    /// Returns the name that marks the sessions of its clients, and their decisions.
    fn name(&self) -> &'static str;

    /// Returns how many characters a message may have.
    fn max_message_chars(&self) -> usize;

    /// Returns the empty projection of a session.
    fn projection(&self) -> Box<dyn SessionProjection>;

    /// Encodes the result of an operation as text, which may be empty.
    fn result(&self, result: &OperationResult) -> Arc<str>;

    /// Returns whether the result of a command of this kind quotes the messages of a session.
    fn quotes_messages(&self, kind: &str) -> bool;

    /// Formats why an operation failed.
    fn operation_error(&self, error: &OperationError) -> String;

    /// Formats why a command was not admitted.
    fn refusal(&self, refusal: &AdmissionRefusal) -> String;

    /// Returns how errors of the command log are formatted.
    fn error_formatter(&self) -> ErrorFormatter;

    /// Returns the line of a response.
    fn response(&self, response: &CommandResponse<'_>) -> Bytes;

    /// Returns the line of a command's lifecycle event.
    fn lifecycle(&self, command: &CommandLifecycle<'_>, stage: LifecycleStage<'_>) -> Bytes;

    /// Returns the line of a notice.
    fn notice(&self, notice: &Notice) -> Bytes;

    /// Returns a function that gives the line of a session's event the id that a client uses for the session.
    fn rename_session(&self, session: &SessionId, label: &SessionId) -> Box<dyn Fn(&Bytes) -> Bytes + Send>;
}

/// A notice to all connections of a protocol.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// A session was created.
    SessionCreated(Box<SessionInfo>),
    /// Clients do not see a session any more.
    SessionDeleted(SessionId),
    /// The daemon drains: it accepts no more commands and stops within this time.
    ShuttingDown {
        /// The grace period in milliseconds.
        grace_ms: u64,
    },
}

/// The response to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandResponse<'a> {
    /// The id of the request.
    pub id: Option<&'a str>,
    /// The command's type.
    pub command: &'a str,
    /// Whether the command succeeded.
    pub success: bool,
    /// The encoded result, or the error text of a failed command.
    pub body: &'a str,
    /// The session's version after the command.
    pub session_version: Option<u64>,
    /// Whether this repeats an earlier response.
    pub replayed: bool,
    /// Whether the command timed out.
    pub timed_out: bool,
}

/// The lifecycle stage of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifecycleStage<'a> {
    /// It was admitted.
    Accepted,
    /// It is running.
    Started,
    /// It has finished.
    Finished {
        /// The error, if it failed.
        error: Option<&'a str>,
        /// The session's version after the command.
        session_version: Option<u64>,
        /// Whether the outcome is that of an earlier command.
        replayed: bool,
    },
}

/// A command as lifecycle events describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandLifecycle<'a> {
    /// Its id, or the one the server assigned.
    pub command_id: &'a str,
    /// Its type.
    pub command: &'a str,
    /// The session it names.
    pub session: Option<&'a SessionId>,
    /// The ids of its dependencies.
    pub depends_on: &'a [String],
    /// The session version it requires.
    pub if_session_version: Option<u64>,
    /// Its idempotency key.
    pub idempotency_key: Option<&'a str>,
}

/// The view that a protocol has of one session, folded from the session's events.
pub trait SessionProjection: Send {
    /// Folds an event without producing output.
    fn apply(&mut self, event: &Event);

    /// Folds events and returns the lines of their protocol events.
    fn project(&mut self, session: &SessionId, events: &[Event]) -> Vec<Bytes>;

    /// Returns the lines of the open questions, for a new subscriber.
    fn open_requests(&self, session: &SessionId, now: Now) -> Vec<Bytes>;

    /// Returns the encoded result of a query of the conversation.
    fn query(&self, query: ConversationQuery<'_>) -> Arc<str>;

    /// Exports the conversation as a page.
    fn export(&self, heading: &Heading) -> String;

    /// Returns whether a run is active.
    fn is_streaming(&self) -> bool;

    /// Returns whether the conversation has no message.
    fn is_empty(&self) -> bool;

    /// Returns the number of visible messages.
    fn message_count(&self) -> u64;

    /// Returns the tokens of the conversation when the model last processed it; unknown after a compaction.
    fn context_tokens(&self) -> Option<u64>;

    /// Returns the position of the last branch event.
    fn last_branch(&self) -> Option<Seq>;

    /// Finds the fork point that excludes a message and everything after it.
    fn fork_point(&self, entry: &str) -> Option<ForkPoint>;

    /// Returns the number of open questions.
    fn open_questions(&self) -> u64;

    /// Returns whether a question is open.
    fn has_question(&self, gate: &GateId) -> bool;

    /// Converts the response to an open question into a vote, or returns the text of the error; `None` if the question
    /// is not open.
    fn vote(&self, gate: &GateId, response: &UiResponse) -> Option<Result<Vote, String>>;

    /// Returns what another program has written to the session's file, if anything.
    fn foreign_entries(
        &self,
        file: SessionFileState<'_>,
        snapshot: &Snapshot,
        ids: &mut dyn IdGenerator,
    ) -> Option<Import>;

    /// Returns the entries that the session's file lacks, and the settings that are newer than the file's.
    ///
    /// # Errors
    ///
    /// Returns why an entry cannot be written.
    fn missing_entries(
        &self,
        file: SessionFileState<'_>,
        snapshot: &Snapshot,
        header: &Header,
    ) -> Result<Vec<Entry>, String>;

    /// Returns the ids of the file's branch up to the entry before a message of the session.
    fn file_path_before(&self, file: SessionFileState<'_>, entry: &str) -> Vec<String>;
}

/// A query of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConversationQuery<'a> {
    /// The visible messages.
    Messages,
    /// The messages that a fork can start from.
    ForkMessages,
    /// The text of the last assistant message.
    LastText,
    /// The summary that replaces the older part of the conversation.
    Summary,
    /// The statistics of the session.
    Statistics {
        /// The session.
        session: &'a SessionId,
        /// The file it is written to.
        file: Option<&'a str>,
    },
}

/// The header of an exported conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heading {
    /// The session.
    pub session: SessionId,
    /// Its display name.
    pub name: Option<String>,
    /// The working directory of its tools.
    pub cwd: String,
    /// When it was exported.
    pub at: Now,
}

/// The branch point of a fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkPoint {
    /// The text of the message, for the user to edit.
    pub text: String,
    /// Where the conversation continues.
    pub branch: Branch,
}

/// A vote on a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vote {
    /// The decision.
    pub decision: Decision,
    /// The chosen one of the question's choices.
    pub choice: Option<String>,
    /// The answer to the form.
    pub answer: Option<Json>,
}

/// The file of a session, as it was read.
#[derive(Debug, Clone, Copy)]
pub struct SessionFileState<'a> {
    /// The prefix of the ids of the session's entries: several sessions may share a file.
    pub id_prefix: &'a str,
    /// The last event that a fork has inherited. The entries up to it have the ids that another session gave them.
    pub inherited: Seq,
    /// The content; `None` if the file does not exist.
    pub stored: Option<&'a ParsedSession>,
}
