//! What was said elsewhere and is taken in: a conversation that is over, turn by turn.
//!
//! It becomes ordinary events of finished runs and causes nothing: no provider is asked and no tool is used.

use super::event::{Adjustment, Branch, Ending, Fault, Image, Taken};
use super::id::{CallId, Json, MessageId, RunId, Seq};
use super::time::Now;

/// A conversation, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Import {
    /// The earlier point from which it goes on, where that is not the newest.
    pub branch: Option<Branch>,
    /// What it consists of.
    pub turns: Vec<Imported>,
    /// The name that the session has from there on.
    pub name: Option<String>,
    /// Who answers from there on, and how.
    pub settings: Adjustment,
}

/// Where a part of a conversation comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Provenance {
    /// When it happened, where that is known.
    pub at: Option<Now>,
    /// The entry of the file that it stood in; empty for what the import adds and no file holds.
    pub entry: Option<String>,
}

/// The first part of a conversation that a summary does not stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// There is none before the summary.
    Nothing,
    /// The part of this import that stood in this entry; none where no part did.
    Entry(String),
    /// What the session holds from an event on.
    Since(Seq),
}

/// One part of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Imported {
    /// A message and what came of it.
    Run(ImportedRun),
    /// A tool that was used for the user.
    Aside {
        /// The use.
        call: ImportedCall,
        /// Whether the provider is told of it.
        told: bool,
    },
    /// A summary that stands for what is before one of the parts.
    Summary {
        /// The summary.
        text: String,
        /// How many tokens the conversation had before, about.
        tokens_before: u64,
        /// What is still told word by word.
        kept: Kept,
        /// Where it comes from.
        source: Provenance,
    },
}

/// A message and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedRun {
    /// The run, freshly minted.
    pub run: RunId,
    /// The message, freshly minted.
    pub message: MessageId,
    /// Its text.
    pub text: String,
    /// The pictures that go with it.
    pub images: Vec<Image>,
    /// The turns of the provider.
    pub turns: Vec<ImportedTurn>,
    /// Where it comes from.
    pub source: Provenance,
}

/// A turn of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedTurn {
    /// Its reasoning; may be empty.
    pub thought: String,
    /// What it said; may be empty.
    pub text: String,
    /// The message that it said, freshly minted.
    pub message: MessageId,
    /// The model and what it used.
    pub taken: Taken,
    /// The tools that it had used, in order.
    pub calls: Vec<ImportedCall>,
    /// Where it comes from.
    pub source: Provenance,
}

/// A use of a tool, from its arguments to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedCall {
    /// This use, freshly minted.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// Its arguments: a JSON object.
    pub args: Json,
    /// How long it took, in milliseconds.
    pub millis: u64,
    /// How it ended.
    pub ending: Ending,
    /// The exit code of a command that ended by itself.
    pub exit_code: Option<i32>,
    /// What it printed.
    pub text: String,
    /// What went wrong.
    pub fault: Option<Fault>,
    /// Where its result comes from.
    pub source: Provenance,
}

impl Import {
    /// Returns how many steps there are, and how many bytes of text they have.
    pub fn size(&self) -> (usize, usize) {
        let sizes = self.turns.iter().map(Imported::size);
        sizes.fold((0, 0), |(steps, bytes), (more_steps, more_bytes)| {
            (steps.saturating_add(more_steps), bytes.saturating_add(more_bytes))
        })
    }
}

impl Imported {
    fn size(&self) -> (usize, usize) {
        match self {
            Self::Run(run) => {
                let images = run.images.iter().map(|image| image.data.len());
                let said = run.turns.iter().map(|turn| turn.thought.len() + turn.text.len());
                let calls: Vec<_> =
                    run.turns.iter().flat_map(|turn| &turn.calls).map(ImportedCall::bytes).collect();
                let steps = 1 + run.turns.len() + calls.len();
                (steps, run.text.len() + images.chain(said).chain(calls).sum::<usize>())
            }
            Self::Aside { call, .. } => (1, call.bytes()),
            Self::Summary { text, .. } => (1, text.len()),
        }
    }
}

impl ImportedCall {
    fn bytes(&self) -> usize {
        self.args.as_str().len() + self.text.len()
    }
}
