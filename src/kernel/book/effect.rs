//! Effects that the driver carries out in order.

use std::sync::Arc;

use super::fault::BookRefusal;
use super::record::{Outcome, Record, Row, Settlement};
use super::submission::Ticket;

/// One action for the driver.
///
/// Every submission gets exactly one `Refuse`, or one `Accept` and later one `Finish`. Between the two there is one
/// `Run` if the command is executed; a repetition, or a command that fails first, has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Reply that the command was not admitted; announce nothing.
    Refuse(Ticket, BookRefusal),
    /// Announce that the command was admitted.
    Accepted(Ticket),
    /// Persist the admission with a sync, and answer with `AdmissionPersisted` or `AdmissionFailed`.
    Keep(Ticket, Arc<Record>),
    /// Announce that the command has started, and execute it; answer with `Finished`.
    Run(Ticket),
    /// The command has timed out: stop it if possible. Its later reports are ignored.
    Abandon(Ticket),
    /// Write the outcome, and answer with `OutcomePersisted` or `OutcomeFailed`. The outcome is announced after that.
    Settle(Ticket, Settlement),
    /// Write the outcome soon; nothing waits for it.
    SettleLater(Settlement),
    /// Announce the end of the command, then reply to it.
    Finished {
        /// The submission.
        ticket: Ticket,
        /// Its outcome.
        outcome: Outcome,
        /// Whether the outcome comes from an earlier execution of the same command.
        replayed: bool,
    },
    /// Delete the stored record soon; it is not needed any more.
    Forget(Row),
}
