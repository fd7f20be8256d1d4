//! Commands on disk: what was admitted, and what came of it.
//!
//! An answer that quotes the messages of a session is kept as it was given: what it says has passed the session's redaction, and
//! among it are calls that wait for an approval, of which a person must see every part, whatever its shape. Other answers may
//! come from elsewhere, so that everything in them that looks like a secret is hidden before they are written.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::spelling;
use crate::journal::{CommandWrite, CommitError, Durability, Journal, ReadError};
use crate::kernel::command_log::{
    CommandLog, CommandLogLimits, CommandRecord, Effect, OutcomeRecord, ReplyBody, RowId,
};
use crate::kernel::time::Now;
use crate::protocol::pi::kind::Kind as CommandKind;
use crate::redact::Redactor;

/// Opens the book with what is stored.
pub(super) async fn restore(
    journal: &Journal,
    limits: CommandLogLimits,
    now: Now,
) -> Result<(CommandLog, Vec<Effect>), ReadError> {
    Ok(CommandLog::restore(limits, journal.load_commands().await?, spelling::fault, now))
}

/// Puts an admission on disk, synced.
pub(super) fn keep(journal: &Journal, record: Arc<CommandRecord>) -> oneshot::Receiver<Result<(), CommitError>> {
    journal.write_commands(vec![CommandWrite::Admitted(record)], Durability::Synced)
}

/// Writes an outcome, and answers when it survives the end of this process.
pub(super) fn settle(journal: &Journal, settlement: OutcomeRecord) -> oneshot::Receiver<Result<(), CommitError>> {
    journal.write_commands(vec![CommandWrite::Settled(safe(settlement))], Durability::Written)
}

/// Writes an outcome some time soon.
pub(super) fn settle_later(journal: &Journal, settlement: OutcomeRecord) {
    journal.defer_commands([safe(settlement)], []);
}

/// Removes what is kept of a command some time soon.
pub(super) fn forget(journal: &Journal, row: RowId) {
    journal.defer_commands([], [row]);
}

/// How large an answer may be to be written down.
const KEPT: usize = 64 * 1024;

/// The commands whose answers quote the messages of a session.
const QUOTING: [CommandKind; 3] =
    [CommandKind::GetMessages, CommandKind::GetForkMessages, CommandKind::GetLastAssistantText];

fn safe(mut settlement: OutcomeRecord) -> OutcomeRecord {
    let ReplyBody::Text(text) = &settlement.outcome.body else { return settlement };
    if text.len() > KEPT {
        // It is not going to be written, and going over it takes a moment.
        settlement.outcome.body = ReplyBody::TooLarge(text.len() as u64);
        return settlement;
    }
    if settlement.outcome.success && QUOTING.iter().any(|kind| kind.name() == settlement.record.kind) {
        return settlement;
    }
    let redactor = Redactor::default();
    let hidden = match settlement.outcome.success {
        true if text.is_empty() => return settlement,
        true => redactor.redact_json(text),
        false => redactor.redact(text).into_owned(),
    };
    if hidden.as_str() != text.as_ref() {
        settlement.outcome.body = ReplyBody::Text(hidden.into());
    }
    settlement
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::command_log::CommandOutcome;
    use crate::kernel::id::Fingerprint;

    #[test]
    fn messages_of_a_session_are_kept_as_they_were_given_and_other_answers_are_redacted() {
        let call = r#"{"messages":["DB_PASSWORD=\"x$(touch PWNED; echo y)\" make test"]}"#;
        for kind in QUOTING {
            assert_eq!(kept(kind, CommandOutcome::succeeded(call, None)), call, "{}", kind.name());
            let failed = kept(kind, CommandOutcome::failed("DB_PASSWORD=correct-horse-battery is wrong"));
            assert!(!failed.contains("correct-horse"), "{}: {failed}", kind.name());
        }
        let listed = kept(CommandKind::ListStoredSessions, CommandOutcome::succeeded(call, None));
        assert!(!listed.contains("PWNED"), "{listed}");
    }

    /// What is written of an answer.
    fn kept(kind: CommandKind, outcome: CommandOutcome) -> String {
        let record = CommandRecord {
            row: RowId(1),
            id: None,
            key: None,
            kind: kind.name().into(),
            session: None,
            fingerprint: Fingerprint(0),
            admitted_at: Now(0),
        };
        match safe(OutcomeRecord { record: Arc::new(record), outcome, at: Now(0) }).outcome.body {
            ReplyBody::Text(text) => text.to_string(),
            body @ (ReplyBody::TooLarge(_) | ReplyBody::Removed) => format!("{body:?}"),
        }
    }
}
