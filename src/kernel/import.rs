//! A finished conversation to import, turn by turn.
//!
//! The import becomes ordinary events of finished runs and has no side effects: no provider is called and no tool
//! runs.

use super::event::{Adjustment, Branch, Image, ToolError, ToolOutcome, TurnUsage};
use super::id::{CallId, Json, MessageId, RunId, Seq};
use super::time::Now;

/// A conversation to import, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Import {
    /// The earlier point from which it continues, if that is not the newest.
    pub branch: Option<Branch>,
    /// Its parts, in order.
    pub parts: Vec<ImportedPart>,
    /// The new name of the session.
    pub name: Option<String>,
    /// The provider, the model and other settings from there on.
    pub settings: Adjustment,
}

/// The origin of an imported part.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Provenance {
    /// When it happened, if known.
    pub at: Option<Now>,
    /// The session file entry that held it; empty if the import adds the part itself.
    pub entry: Option<String>,
}

/// Where the verbatim context starts after an imported summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContextStart {
    /// After the summary; nothing before it is kept verbatim.
    AfterSummary,
    /// At the part of this import that this entry held; after the summary if no part did.
    Entry(String),
    /// At an event that the session already holds.
    Event(Seq),
}

/// One part of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportedPart {
    /// A message with the run that it started.
    Run(ImportedRun),
    /// A user command.
    UserCommand {
        /// The call.
        call: ImportedCall,
        /// Whether the model sees the call in its context.
        in_context: bool,
    },
    /// A summary that replaces the parts before a given one.
    Summary {
        /// The summary.
        text: String,
        /// The approximate number of tokens before the summary.
        tokens_before: u64,
        /// Where the verbatim context starts.
        context_start: ContextStart,
        /// The origin.
        source: Provenance,
    },
}

/// A message with the run that it started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedRun {
    /// The id of the run, minted by the driver.
    pub run: RunId,
    /// The id of the message, minted by the driver.
    pub message: MessageId,
    /// Its text.
    pub text: String,
    /// The attached images.
    pub images: Vec<Image>,
    /// The turns of the provider.
    pub turns: Vec<ImportedTurn>,
    /// The origin.
    pub source: Provenance,
}

/// A turn of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedTurn {
    /// Its reasoning; may be empty.
    pub thinking: String,
    /// Its text; may be empty.
    pub text: String,
    /// The id of the assistant's message, minted by the driver.
    pub message: MessageId,
    /// The model and its token usage.
    pub usage: TurnUsage,
    /// Its tool calls, in order.
    pub calls: Vec<ImportedCall>,
    /// The origin.
    pub source: Provenance,
}

/// A tool call with its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedCall {
    /// The id of the call, minted by the driver.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// Its arguments: a JSON object.
    pub args: Json,
    /// The duration, in milliseconds.
    pub millis: u64,
    /// The outcome.
    pub outcome: ToolOutcome,
    /// The exit code of a command that exited by itself.
    pub exit_code: Option<i32>,
    /// Its output.
    pub text: String,
    /// The error, if it failed.
    pub error: Option<ToolError>,
    /// The origin of the result.
    pub source: Provenance,
}

impl Import {
    /// Returns the number of steps and the size of their text in bytes.
    pub fn size(&self) -> (usize, usize) {
        let sizes = self.parts.iter().map(ImportedPart::size);
        sizes.fold((0, 0), |(steps, bytes), (more_steps, more_bytes)| {
            (steps.saturating_add(more_steps), bytes.saturating_add(more_bytes))
        })
    }
}

impl ImportedPart {
    fn size(&self) -> (usize, usize) {
        match self {
            Self::Run(run) => {
                let images = run.images.iter().map(|image| image.data.len());
                let texts = run.turns.iter().map(|turn| turn.thinking.len() + turn.text.len());
                let calls: Vec<_> = run.turns.iter().flat_map(|turn| &turn.calls).map(ImportedCall::bytes).collect();
                let steps = 1 + run.turns.len() + calls.len();
                (steps, run.text.len() + images.chain(texts).chain(calls).sum::<usize>())
            }
            Self::UserCommand { call, .. } => (1, call.bytes()),
            Self::Summary { text, .. } => (1, text.len()),
        }
    }
}

impl ImportedCall {
    fn bytes(&self) -> usize {
        self.args.as_str().len() + self.text.len()
    }
}
