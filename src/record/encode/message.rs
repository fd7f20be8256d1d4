//! Encodes user messages of events.

use crate::kernel::event::{Budget, Criterion, Image, Message, Steering};
use crate::kernel::id::{Fingerprint, RunId};
use crate::record::wire::event::{BudgetItem, CriterionItem, ImageItem, UserMessage};
use crate::record::wire::word::DeliveryWord;
use crate::record::wire::{some_text, text};

/// Encodes a message that starts a run, immediately or from the queue.
pub(super) fn user_message<'a>(message: &'a Message, queued: Option<&'a RunId>) -> UserMessage<'a> {
    UserMessage {
        message_id: text(message.message.as_str()),
        text: text(&message.text),
        chars: queued.is_none().then(|| chars(&message.text)),
        preview: queued.is_none().then(|| text(preview(&message.text))),
        by: text(&message.by),
        fingerprint: hex(message.fingerprint).into(),
        images: message.images.iter().map(image).collect(),
        acceptance_criteria: message.criteria.iter().map(criterion).collect(),
        timeout_ms: message.time_limit,
        budget: budget(&message.budget),
        rules: message.rules.iter().map(|rule| text(rule)).collect(),
        needs_environment: message.needs_environment,
        delivery: None,
        queued_run_id: queued.map(|run| text(run.as_str())),
    }
}

/// Encodes a steering message.
pub(super) fn steered(steering: &Steering) -> UserMessage<'_> {
    UserMessage {
        message_id: text(steering.message.as_str()),
        text: text(&steering.text),
        chars: Some(chars(&steering.text)),
        preview: Some(text(preview(&steering.text))),
        by: text(&steering.by),
        fingerprint: hex(steering.fingerprint).into(),
        images: steering.images.iter().map(image).collect(),
        acceptance_criteria: Vec::new(),
        timeout_ms: None,
        budget: None,
        rules: Vec::new(),
        needs_environment: false,
        delivery: Some(DeliveryWord::Steer),
        queued_run_id: None,
    }
}

/// Maximum characters of a preview.
const PREVIEW_CHARS: usize = 280;

fn chars(text: &str) -> u64 {
    text.chars().count() as u64
}

fn preview(text: &str) -> &str {
    text.char_indices().nth(PREVIEW_CHARS).map_or(text, |(end, _)| &text[..end])
}

fn budget(budget: &Budget) -> Option<BudgetItem> {
    let Budget { cost, turns, tokens } = *budget;
    (*budget != Budget::default()).then_some(BudgetItem {
        max_cost_micro_usd: cost,
        max_turns: turns,
        max_tokens: tokens,
    })
}

fn hex(fingerprint: Fingerprint) -> String {
    format!("{:032x}", fingerprint.0)
}

fn criterion(criterion: &Criterion) -> CriterionItem<'_> {
    CriterionItem {
        id: text(&criterion.id),
        check: text(&criterion.check),
        exit_code: criterion.exit_code,
        description: some_text(criterion.description.as_ref()),
    }
}

fn image(image: &Image) -> ImageItem<'_> {
    ImageItem { mime_type: text(&image.mime), data: text(&image.data) }
}
