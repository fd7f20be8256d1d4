//! The entries of an exported session. Their JSON form is documented in `docs/export.md`.

use jiff::SignedDuration;
use jiff::civil::{DateTime, date};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::kernel::event::{ApprovalScope, Decision, Diff, Image, RunOutcome, TokenUsage, ToolError, ToolOutcome};
use crate::kernel::id::Json;
use crate::kernel::time::Now;

/// One entry.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Its position: the first event that a reader sees of it.
    pub seq: u64,
    /// The time of its first event.
    #[serde(serialize_with = "time")]
    pub at: Now,
    /// The run it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// What it is.
    pub content: Content,
}

/// The content of an entry.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Content {
    /// A message of a user.
    UserMessage {
        /// Its text.
        text: String,
        /// Its source; empty if it is unknown.
        by: String,
        /// How it reached the model.
        delivery: Delivery,
        /// The attached images.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        images: Vec<Attachment>,
    },
    /// A message of the assistant.
    AssistantMessage {
        /// The model; empty if it is unknown.
        model: String,
        /// Its content, in order.
        blocks: Vec<Block>,
        /// The usage of its turn.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// Whether its run ended before it was complete.
        interrupted: bool,
    },
    /// A command of the user outside the run.
    UserCommand {
        /// The command and its result.
        call: Box<ToolCall>,
    },
    /// An approval that belongs to no call above.
    Approval {
        /// The approval.
        approval: Box<Approval>,
    },
    /// The end of a run.
    RunEnded(Box<RunSummary>),
    /// A summary, which replaced everything before it for the model.
    Summary {
        /// The summary.
        text: String,
        /// The approximate number of tokens that it replaced.
        tokens_before: u64,
    },
    /// Anything else worth reading.
    Notice {
        /// How important it is.
        level: NoticeLevel,
        /// A machine-readable code; empty if there is none.
        #[serde(skip_serializing_if = "String::is_empty")]
        code: String,
        /// For people.
        text: String,
    },
}

/// How a message reached the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// It started a run.
    Prompt,
    /// It was delivered to the active run.
    Steering,
}

/// How important a notice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeLevel {
    /// For information.
    Info,
    /// A warning.
    Warning,
    /// An error.
    Error,
}

/// An image of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// Its MIME type.
    pub mime_type: String,
    /// The image, in base64.
    pub data: String,
}

/// A block of a message of the assistant.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Block {
    /// Reasoning.
    Thinking {
        /// The text.
        text: String,
    },
    /// Text for the user.
    Text {
        /// The text.
        text: String,
    },
    /// A tool call.
    ToolCall(Box<ToolCall>),
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// Its id; empty for a call that was announced and never requested.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// The call in one line or, for a command, the command.
    pub title: String,
    /// Whether the title is a command for a shell.
    #[serde(skip)]
    pub is_command: bool,
    /// Its arguments.
    #[serde(serialize_with = "raw_json")]
    pub args: Json,
    /// The outcome; none while it has no result.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "outcome")]
    pub outcome: Option<ToolOutcome>,
    /// The outcome in words.
    pub result: String,
    /// The exit code of a command that exited by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Its output.
    pub output: String,
    /// The error, if it failed.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "error")]
    pub error: Option<ToolError>,
    /// What it changed in files.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "diff")]
    pub diff: Option<Diff>,
    /// The approvals that it needed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Approval>,
}

/// An approval.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// Its id.
    pub approval_id: String,
    /// A machine-readable kind.
    pub kind: String,
    /// A title for people.
    pub title: String,
    /// The exact question.
    pub question: String,
    /// When it was asked.
    #[serde(serialize_with = "time")]
    pub asked_at: Now,
    /// The votes that did not decide it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub votes: Vec<Vote>,
    /// The decision; none while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Vote>,
    /// The decision in words; empty while it is open.
    pub result: String,
    /// How long an approval lasts.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "scope")]
    pub scope: Option<ApprovalScope>,
}

/// A vote on an approval.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Vote {
    /// Approve or deny.
    #[serde(serialize_with = "decision")]
    pub decision: Decision,
    /// Who voted.
    pub by: String,
    /// When.
    #[serde(serialize_with = "time")]
    pub at: Now,
    /// Its comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// Token counts and cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Turns of the provider.
    pub turns: u64,
    /// Input tokens, cached ones included.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Input tokens that were read from the provider's cache.
    pub cache_read_tokens: u64,
    /// Input tokens that were written to it.
    pub cache_write_tokens: u64,
    /// Cost in millionths of a US dollar, of the turns whose price is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_micro_usd: Option<u64>,
}

impl Usage {
    /// Adds the usage of a turn.
    pub(super) fn add(&mut self, turn: &TokenUsage) {
        self.turns += 1;
        self.input_tokens = self.input_tokens.saturating_add(turn.input);
        self.output_tokens = self.output_tokens.saturating_add(turn.output);
        self.cache_read_tokens = self.cache_read_tokens.saturating_add(turn.cache_read);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(turn.cache_write);
        if let Some(cost) = turn.cost {
            self.cost_micro_usd = Some(self.cost_micro_usd.unwrap_or(0).saturating_add(cost));
        }
    }

    /// Returns it as text; nothing where no turn was counted.
    pub(super) fn text(&self) -> Option<String> {
        let (input, output) = (super::grouped(self.input_tokens), super::grouped(self.output_tokens));
        let cost = self.cost_micro_usd.map(|cost| format!(", {}", super::dollars(cost))).unwrap_or_default();
        (self.turns > 0).then(|| format!("{input} tokens in, {output} out{cost}"))
    }
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunSummary {
    /// The outcome.
    #[serde(serialize_with = "run_outcome")]
    pub outcome: RunOutcome,
    /// A machine-readable reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence for people.
    pub summary: String,
    /// The exit code for scripts.
    pub exit_code: u8,
    /// From its first message to its end; absent if its start is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Its usage.
    pub usage: Usage,
    /// The acceptance checks that ran.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
}

/// The result of an acceptance check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// The id of the criterion.
    pub id: String,
    /// Whether it passed.
    pub passed: bool,
    /// The exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Its output.
    pub output: String,
}

impl From<&Image> for Attachment {
    fn from(image: &Image) -> Self {
        Self { mime_type: image.mime.clone(), data: image.data.clone() }
    }
}

/// Returns a time in UTC with milliseconds, as in `2026-02-28T10:00:00.000Z`.
pub(super) fn timestamp(at: Now) -> String {
    const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);
    let since = i64::try_from(at.0).map_or(SignedDuration::MAX, SignedDuration::from_millis);
    format!("{:.3}Z", EPOCH.saturating_add(since))
}

/// Returns the name of an outcome.
pub(super) const fn run_outcome_name(outcome: RunOutcome) -> &'static str {
    match outcome {
        RunOutcome::Success => "success",
        RunOutcome::Failed => "failed",
        RunOutcome::Cancelled => "cancelled",
        RunOutcome::Denied => "denied",
    }
}

pub(super) fn time<S: Serializer>(at: &Now, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&timestamp(*at))
}

pub(super) fn optional_time<S: Serializer>(at: &Option<Now>, to: S) -> Result<S::Ok, S::Error> {
    at.map(timestamp).serialize(to)
}

fn run_outcome<S: Serializer>(outcome: &RunOutcome, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(run_outcome_name(*outcome))
}

fn outcome<S: Serializer>(outcome: &Option<ToolOutcome>, to: S) -> Result<S::Ok, S::Error> {
    let name = outcome.map(|outcome| match outcome {
        ToolOutcome::Succeeded => "succeeded",
        ToolOutcome::Failed => "failed",
        ToolOutcome::Skipped => "skipped",
        ToolOutcome::Aborted => "aborted",
    });
    name.serialize(to)
}

fn decision<S: Serializer>(decision: &Decision, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match decision {
        Decision::Approve => "approve",
        Decision::Deny => "deny",
    })
}

fn scope<S: Serializer>(scope: &Option<ApprovalScope>, to: S) -> Result<S::Ok, S::Error> {
    let name = scope.map(|scope| match scope {
        ApprovalScope::Once => "once",
        ApprovalScope::Run => "run",
        ApprovalScope::Session => "session",
        ApprovalScope::Always => "always",
    });
    name.serialize(to)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ErrorJson<'a> {
    kind: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
}

fn error<S: Serializer>(error: &Option<ToolError>, to: S) -> Result<S::Ok, S::Error> {
    let json = error.as_ref().map(|error| ErrorJson {
        kind: &error.kind,
        message: &error.message,
        detail: error.detail.as_deref(),
    });
    json.serialize(to)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DiffJson<'a> {
    text: &'a str,
    truncated: bool,
}

fn diff<S: Serializer>(diff: &Option<Diff>, to: S) -> Result<S::Ok, S::Error> {
    diff.as_ref().map(|diff| DiffJson { text: &diff.text, truncated: diff.truncated }).serialize(to)
}

/// Writes JSON as it was recorded; anything else as a string.
fn raw_json<S: Serializer>(json: &Json, to: S) -> Result<S::Ok, S::Error> {
    match serde_json::from_str::<&RawValue>(json.as_str()) {
        Ok(value) => value.serialize(to),
        Err(_) => to.serialize_str(json.as_str()),
    }
}
