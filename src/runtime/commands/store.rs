//! Stored commands: their admissions and outcomes.
//!
//! An outcome that quotes the messages of a session is stored unchanged: it has passed the session's redaction, and
//! contains calls that wait for an approval, of which a person must see every part. The other outcomes may contain text
//! from elsewhere, so they are redacted before they are written.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::journal::{CommandWrite, CommitError, Durability, Journal, ReadError};
use crate::kernel::command_log::{
    CommandLog, CommandLogLimits, CommandRecord, Effect, ErrorFormatter, OutcomeRecord, ReplyBody, RowId,
};
use crate::kernel::time::Now;
use crate::protocol::command_protocol::CommandProtocol;
use crate::redact::Redactor;

/// Restores the command log from the stored commands.
pub(super) async fn restore(
    journal: &Journal,
    limits: CommandLogLimits,
    format_error: ErrorFormatter,
    now: Now,
) -> Result<(CommandLog, Vec<Effect>), ReadError> {
    Ok(CommandLog::restore(limits, journal.load_commands().await?, format_error, now))
}

/// Persists an admission, synced; nobody waits for it.
pub(super) fn persist_admission(journal: &Journal, record: Arc<CommandRecord>) {
    // If it cannot be stored, neither can the effect of the command.
    drop(journal.write_commands(vec![CommandWrite::Admitted(record)], Durability::Synced));
}

/// Writes an outcome; the receiver is notified when it has its durability.
pub(super) fn persist_outcome(
    journal: &Journal,
    record: OutcomeRecord,
    protocol: &dyn CommandProtocol,
    durability: Durability,
) -> oneshot::Receiver<Result<(), CommitError>> {
    journal.write_commands(vec![CommandWrite::Settled(redacted(record, protocol))], durability)
}

/// Writes an outcome soon.
pub(super) fn defer_outcome(journal: &Journal, record: OutcomeRecord, protocol: &dyn CommandProtocol) {
    journal.defer_commands([redacted(record, protocol)], []);
}

/// Deletes a record soon.
pub(super) fn delete_record(journal: &Journal, row: RowId) {
    journal.defer_commands([], [row]);
}

/// The size up to which a reply body is stored.
const MAX_STORED_BYTES: usize = 64 * 1024;

fn redacted(mut record: OutcomeRecord, protocol: &dyn CommandProtocol) -> OutcomeRecord {
    let ReplyBody::Text(text) = &record.outcome.body else { return record };
    record.outcome.body = stored_body(Arc::clone(text), record.outcome.success, &record.record.kind, protocol);
    record
}

/// Returns the body of a reply to a command of a kind as it is stored.
pub(super) fn stored_body(text: Arc<str>, success: bool, kind: &str, protocol: &dyn CommandProtocol) -> ReplyBody {
    if text.len() > MAX_STORED_BYTES {
        // It is not written, and redaction takes time.
        return ReplyBody::TooLarge(text.len() as u64);
    }
    if text.is_empty() || (success && protocol.quotes_messages(kind)) {
        return ReplyBody::Text(text);
    }
    let redactor = Redactor::default();
    let hidden = if success { redactor.redact_json(&text) } else { redactor.redact(&text).into_owned() };
    ReplyBody::Text(if hidden.as_str() == text.as_ref() { text } else { hidden.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::command_log::CommandOutcome;
    use crate::kernel::id::Fingerprint;
    use crate::protocol::pi::PiProtocol;
    use crate::protocol::pi::decode::DecodeLimits;

    #[test]
    fn messages_of_a_session_are_stored_unchanged_and_other_results_are_redacted() {
        let call = r#"{"messages":["DB_PASSWORD=\"x$(touch PWNED; echo y)\" make test"]}"#;
        for kind in ["get_messages", "get_fork_messages", "get_last_assistant_text"] {
            assert_eq!(stored(kind, CommandOutcome::succeeded(call, None)), call, "{kind}");
            let failed = stored(kind, CommandOutcome::failed("DB_PASSWORD=correct-horse-battery is wrong"));
            assert!(!failed.contains("correct-horse"), "{kind}: {failed}");
        }
        let listed = stored("list_stored_sessions", CommandOutcome::succeeded(call, None));
        assert!(!listed.contains("PWNED"), "{listed}");
    }

    /// Returns the stored body of an outcome.
    fn stored(kind: &'static str, outcome: CommandOutcome) -> String {
        let record = CommandRecord {
            row: RowId(1),
            id: None,
            key: None,
            kind: kind.into(),
            session: None,
            fingerprint: Fingerprint(0),
            admitted_at: Now(0),
        };
        let protocol = PiProtocol::new(DecodeLimits::default(), &[]);
        match redacted(OutcomeRecord { record: Arc::new(record), outcome, at: Now(0) }, &protocol).outcome.body {
            ReplyBody::Text(text) => text.to_string(),
            body @ (ReplyBody::TooLarge(_) | ReplyBody::Removed) => format!("{body:?}"),
        }
    }
}
