//! Commands on disk: what was admitted, and what came of it.
//!
//! What a command answered was said in a session before, where secrets are hidden by their values; here everything that
//! looks like one is hidden once more, as some answers come from elsewhere.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::spelling;
use crate::journal::{CommandWrite, CommitError, Durability, Journal, ReadError};
use crate::kernel::book::{Body, Book, BookLimits, Effect, Record, Row, Settlement};
use crate::kernel::time::Now;
use crate::redact::Redactor;

/// Opens the book with what is stored.
pub(super) async fn restore(
    journal: &Journal,
    limits: BookLimits,
    now: Now,
) -> Result<(Book, Vec<Effect>), ReadError> {
    Ok(Book::restore(limits, journal.load_commands().await?, spelling::fault, now))
}

/// Puts an admission on disk, synced.
pub(super) fn keep(journal: &Journal, record: Arc<Record>) -> oneshot::Receiver<Result<(), CommitError>> {
    journal.keep_commands(vec![CommandWrite::Admitted(record)], Durability::Synced)
}

/// Writes an outcome, and answers when it survives the end of this process.
pub(super) fn settle(
    journal: &Journal,
    settlement: Settlement,
) -> oneshot::Receiver<Result<(), CommitError>> {
    journal.keep_commands(vec![CommandWrite::Settled(safe(settlement))], Durability::Written)
}

/// Writes an outcome some time soon.
pub(super) fn settle_later(journal: &Journal, settlement: Settlement) {
    journal.keep_commands_later([safe(settlement)], []);
}

/// Removes what is kept of a command some time soon.
pub(super) fn forget(journal: &Journal, row: Row) {
    journal.keep_commands_later([], [row]);
}

/// How large an answer may be to be written down.
const KEPT: usize = 64 * 1024;

fn safe(mut settlement: Settlement) -> Settlement {
    let Body::Text(text) = &settlement.outcome.body else { return settlement };
    if text.len() > KEPT {
        // It is not going to be written, and going over it takes a moment.
        settlement.outcome.body = Body::TooLarge(text.len() as u64);
        return settlement;
    }
    let redactor = Redactor::default();
    let hidden = match settlement.outcome.success {
        true if text.is_empty() => return settlement,
        true => redactor.json(text),
        false => redactor.text(text).into_owned(),
    };
    if hidden.as_str() != text.as_ref() {
        settlement.outcome.body = Body::Text(hidden.into());
    }
    settlement
}
