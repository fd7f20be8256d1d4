//! Events of tool calls.

use crate::kernel::id::{CallId, Json};

/// An event of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolEvent {
    /// The intent of a tool call is recorded; nothing has happened yet.
    Intended(Box<Intention>),
    /// The tool call has started. From here on it may have changed the outside world.
    Started {
        /// The call.
        call: CallId,
        /// The name of the tool, for people.
        tool: String,
    },
    /// A chunk of the tool's output.
    Output {
        /// The call.
        call: CallId,
        /// The stream.
        stream: OutputStream,
        /// The text.
        text: String,
    },
    /// The tool call has a result, or is known never to run.
    Settled(Box<CallResult>),
}

/// The error kind of a tool call that the daemon ended because it shut down.
pub const STOPPED_WITH_DAEMON: &str = "STOPPED";

/// The intent to call a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intention {
    /// The id of the call.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// Its arguments, redacted.
    pub args: Json,
    /// The purpose of the call.
    pub purpose: Purpose,
}

/// The purpose of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A call of the provider.
    Work,
    /// The acceptance check with this index.
    Check(u32),
    /// A command of the user, outside any run.
    UserCommand {
        /// Whether the model sees the call in its context.
        in_context: bool,
    },
}

/// The output stream of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallResult {
    /// The call.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// The purpose of the call.
    pub purpose: Purpose,
    /// The duration, in milliseconds.
    pub millis: u64,
    /// The outcome.
    pub outcome: ToolOutcome,
    /// The exit code of a command that exited by itself.
    pub exit_code: Option<i32>,
    /// Its output, bounded and redacted.
    pub text: String,
    /// The error, if it failed.
    pub error: Option<ToolError>,
    /// What the call changed in files, for clients. The model does not receive it.
    pub diff: Option<Diff>,
}

impl CallResult {
    /// Returns a copy without the diff, which only the event keeps.
    #[must_use]
    pub fn without_diff(&self) -> Self {
        Self {
            call: self.call.clone(),
            tool: self.tool.clone(),
            purpose: self.purpose,
            millis: self.millis,
            outcome: self.outcome,
            exit_code: self.exit_code,
            text: self.text.clone(),
            error: self.error.clone(),
            diff: None,
        }
    }
}

/// A unified diff, bounded and redacted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diff {
    /// The text of the diff, or its beginning.
    pub text: String,
    /// Whether the text is only the beginning.
    pub truncated: bool,
}

/// The outcome of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolOutcome {
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// The user skipped it.
    Skipped,
    /// It was aborted, or never started.
    Aborted,
}

/// The error of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolError {
    /// A machine-readable kind.
    pub kind: String,
    /// Whether a retry may help.
    pub retryable: bool,
    /// A message for people.
    pub message: String,
    /// Details.
    pub detail: Option<String>,
}
