//! The items of a conversation: their entries in a request, and their estimated tokens.

use std::collections::BTreeMap;

use crate::agent::price;
use crate::kernel::event::{Ending, Image, Intention, Settlement};
use crate::kernel::id::{CallId, MessageId, Seq};
use crate::provider::model::{self, Entry, Outcome};
use crate::sandbox::output::Excerpt;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Its first event.
    pub(super) since: Seq,
    /// The event that completed it.
    pub(super) till: Seq,
    pub(super) said: Said,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    User {
        message: MessageId,
        note: Option<String>,
        text: String,
        images: Vec<Image>,
    },
    Assistant {
        carry: Option<String>,
        text: String,
        calls: Vec<Call>,
    },
    /// A command of the user outside the run.
    Aside {
        text: String,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) id: CallId,
    pub(super) tool: String,
    pub(super) args: String,
    /// The event that requested it.
    pub(super) since: Seq,
    pub(super) result: Option<Ended>,
}

/// The result of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// The event that completed the call.
    pub(super) since: Seq,
    pub(super) text: String,
    pub(super) outcome: Outcome,
    /// Whether the policy of the run denied the call.
    pub(super) denied_by_policy: bool,
}

/// The limits on the calls of an item, in bytes for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    result: usize,
    args: usize,
}

impl Extent {
    /// No limit.
    pub(super) const WHOLE: Self = Self { result: usize::MAX, args: usize::MAX };
    /// Only the beginnings and ends of results.
    pub(super) const TRIMMED: Self = Self { result: TRIMMED, args: usize::MAX };

    /// Limits results to `bytes`, and omits longer arguments.
    pub(super) const fn of(bytes: usize) -> Self {
        Self { result: bytes, args: bytes }
    }
}

impl Said {
    pub(super) fn entries(&self, whole: &BTreeMap<MessageId, String>, extent: Extent) -> Vec<Entry> {
        match self {
            Self::User { message, note, text, images } => {
                let text = whole.get(message).unwrap_or(text);
                let text = match note {
                    Some(note) => format!("[{note}]\n\n{text}"),
                    None => text.clone(),
                };
                vec![Entry::User { text, images: images.clone() }]
            }
            Self::Aside { text } => vec![Entry::user(text.clone())],
            // An empty turn has no entry.
            Self::Assistant { text, calls, .. } if text.trim().is_empty() && calls.is_empty() => Vec::new(),
            Self::Assistant { carry, text, calls } => {
                let wanted = calls.iter().map(|call| model::Wanted {
                    id: call.id.as_str().to_owned(),
                    tool: call.tool.clone(),
                    args: call.args_within(extent),
                });
                let (carry, said) = (carry.clone(), text.clone());
                let turn = Entry::Assistant { carry, said, calls: wanted.collect() };
                std::iter::once(turn).chain(calls.iter().map(|call| call.entry(extent))).collect()
            }
        }
    }

    /// Returns the entries for a summary request: images are only mentioned.
    pub(super) fn entries_for_summary(&self) -> Vec<Entry> {
        let mut entries = self.entries(&BTreeMap::new(), Extent::TRIMMED);
        for entry in &mut entries {
            if let Entry::User { text, images } = entry
                && !images.is_empty()
            {
                text.push_str(&format!("\n[pictures that came with it: {}]", images.len()));
                images.clear();
            }
        }
        entries
    }

    /// Returns the calls of the item.
    pub(super) fn calls(&self) -> &[Call] {
        match self {
            Self::Assistant { calls, .. } => calls,
            Self::User { .. } | Self::Aside { .. } => &[],
        }
    }

    /// Returns the sizes of its calls: of the result or of the arguments, whichever is larger.
    pub(super) fn results(&self) -> impl Iterator<Item = usize> {
        self.calls()
            .iter()
            .map(|call| call.result.as_ref().map_or(0, |result| result.text.len()).max(call.args.len()))
    }

    pub(super) fn tokens(&self, extent: Extent) -> u64 {
        match self {
            Self::User { note, text, images, .. } => {
                let pictures = PICTURE_TOKENS.saturating_mul(images.len() as u64);
                tokens_of(text.len() + note.as_ref().map_or(0, String::len)) + pictures
            }
            Self::Aside { text } => tokens_of(text.len()),
            Self::Assistant { carry, text, calls } => {
                let own = text.len() + carry.as_ref().map_or(0, String::len);
                let calls = calls.iter().map(|call| {
                    let result = call.result.as_ref().map_or(0, |result| result.text.len());
                    call.args_within(extent).len() + call.tool.len() + result.min(extent.result)
                });
                tokens_of(own) + calls.map(tokens_of).sum::<u64>()
            }
        }
    }
}

impl Call {
    /// Returns the arguments, or an object that states their omission if they exceed the limit.
    fn args_within(&self, extent: Extent) -> String {
        let bytes = self.args.len();
        if bytes <= extent.args.max(OMITTED) {
            return self.args.clone();
        }
        serde_json::json!({ "omitted": format!("{bytes} bytes, which do not fit") }).to_string()
    }

    fn entry(&self, extent: Extent) -> Entry {
        let (text, outcome) = match &self.result {
            Some(result) => (result.text.as_str(), result.outcome),
            None => ("its outcome is unknown", Outcome::Failed),
        };
        let mut excerpt = Excerpt::new(extent.result);
        excerpt.push(text);
        let (id, tool, text) = (self.id.as_str().to_owned(), self.tool.clone(), excerpt.finish());
        Entry::Result { id, tool, text, outcome }
    }
}

/// Describes a command of the user and its result for the model.
pub(super) fn aside(intention: &Intention, settlement: &Settlement) -> String {
    let args: serde_json::Value = serde_json::from_str(intention.args.as_str()).unwrap_or_default();
    let what = match args.get("command").and_then(serde_json::Value::as_str) {
        Some(command) => format!("`{command}`"),
        None => format!("{} {}", intention.tool, intention.args.as_str()),
    };
    let mut text = format!("[The user ran {what} beside the conversation");
    match (settlement.exit_code, settlement.ending) {
        (Some(code), _) => text.push_str(&format!("; it exited with {code}]")),
        (None, Ending::Done) => text.push(']'),
        (None, Ending::Failed | Ending::Skipped) => text.push_str("; it failed]"),
        (None, Ending::Cut) => text.push_str("; it was stopped]"),
    }
    let mut excerpt = Excerpt::new(ASIDE);
    excerpt.push(&result(settlement).0);
    let printed = excerpt.finish();
    if !printed.trim().is_empty() {
        text.push_str(&format!("\n{}", printed.trim_end()));
    }
    text
}

/// Returns the text of a call's result, with its error, and its outcome.
pub(super) fn result(settlement: &Settlement) -> (String, Outcome) {
    let outcome = match settlement.ending {
        Ending::Done => Outcome::Fine,
        Ending::Failed | Ending::Skipped | Ending::Cut => Outcome::Failed,
    };
    let mut text = match (&settlement.fault, settlement.ending) {
        (Some(fault), _) => match &fault.detail {
            Some(detail) => format!("{}: {}\n{detail}\n", fault.kind, fault.message),
            None => format!("{}: {}\n", fault.kind, fault.message),
        },
        (None, Ending::Skipped) => "the user chose to go on without it\n".to_owned(),
        (None, Ending::Cut) => "it was cut short\n".to_owned(),
        (None, Ending::Failed) => "it failed\n".to_owned(),
        (None, Ending::Done) => String::new(),
    };
    text.push_str(&settlement.text);
    (text, outcome)
}

/// Estimates the number of tokens of this many bytes, including the overhead of an entry.
pub(super) const fn tokens_of(bytes: usize) -> u64 {
    price::tokens_of(bytes) + 8
}

/// The size of a trimmed result.
const TRIMMED: usize = 2_000;
/// Arguments up to this length are never omitted: the replacement is about as long.
const OMITTED: usize = 64;
/// The maximum size of the output of a user command.
const ASIDE: usize = 16_000;
/// The approximate cost of an image: servers scale large ones down.
const PICTURE_TOKENS: u64 = 1_600;
