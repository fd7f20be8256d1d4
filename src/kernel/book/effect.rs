//! What the driver is to do, in order.

use std::sync::Arc;

use super::fault::BookRefusal;
use super::record::{Outcome, Record, Row, Settlement};
use super::submission::Ticket;

/// What the driver is to do.
///
/// Every submission is answered by exactly one `Refuse`, or by one `Accepted` and, later, one `Finished`. Between the
/// two there is one `Run` if it is executed, and none if it is a repetition or fails before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Answer that it was not admitted, and announce nothing.
    Refuse(Ticket, BookRefusal),
    /// Announce that it was admitted.
    Accepted(Ticket),
    /// Put the admission on disk, synced, and come back with `Kept` or `NotKept`.
    Keep(Ticket, Arc<Record>),
    /// Announce that it has started, and execute it; come back with `Finished`.
    Run(Ticket),
    /// Its time is over: stop it if that is possible; what it still reports is ignored.
    Abandon(Ticket),
    /// Write the outcome and come back with `Settled` or `NotSettled`; nobody hears of it before.
    Settle(Ticket, Settlement),
    /// Write the outcome some time soon; nothing waits for it.
    SettleLater(Settlement),
    /// Announce its end, then answer it.
    Finished {
        /// Which.
        ticket: Ticket,
        /// What came of it.
        outcome: Outcome,
        /// Whether it was not executed, because the same command was already.
        replayed: bool,
    },
    /// What is kept of it is not needed any more: remove it some time soon.
    Forget(Row),
}
