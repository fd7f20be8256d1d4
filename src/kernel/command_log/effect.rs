//! Effects that the driver carries out in order.

use std::sync::Arc;

use super::error::AdmissionRefusal;
use super::record::{CommandOutcome, CommandRecord, OutcomeRecord, RowId};
use super::submission::SubmissionId;

/// One action for the driver.
///
/// Every submission gets exactly one `Refuse`, or one `Accept` and later one `Finish`. Between the two there is one
/// `Run` if the command is executed; a repetition, or a command that fails first, has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Reply that the command was not admitted; announce nothing.
    Refuse(SubmissionId, AdmissionRefusal),
    /// Announce that the command was admitted.
    Accept(SubmissionId),
    /// Persist the admission of a command that has to wait; nothing waits for that.
    PersistAdmission(Arc<CommandRecord>),
    /// Announce that the command has started, and execute it; answer with `Finished`, or with `FinishedWithEffect` if
    /// its outcome was committed together with its effect.
    Run {
        /// The submission.
        ticket: SubmissionId,
        /// The identity to store with the effect.
        record: Option<Arc<CommandRecord>>,
    },
    /// The command has timed out: stop it if possible. Its later reports are ignored.
    Abandon(SubmissionId),
    /// Write the outcome, and answer with `OutcomePersisted` or `OutcomeFailed`. The outcome is announced after that.
    PersistOutcome(SubmissionId, OutcomeRecord),
    /// Write the outcome soon; nothing waits for it.
    PersistOutcomeLater(OutcomeRecord),
    /// Announce the end of the command, then reply to it.
    Finish {
        /// The submission.
        ticket: SubmissionId,
        /// Its outcome.
        outcome: CommandOutcome,
        /// Whether the outcome comes from an earlier execution of the same command.
        replayed: bool,
    },
    /// Delete the stored record soon; it is not needed any more.
    DeleteRecord(RowId),
}
