//! How the protocol words what the book has to say.

use crate::kernel::book::{BookFault, BookRefusal, Identity};
use crate::kernel::rate::TooFast;
use crate::protocol::pi::text;

/// Words why a command was not admitted.
pub(super) fn refusal(refusal: &BookRefusal) -> String {
    match refusal {
        BookRefusal::Busy { .. } => text::BUSY.to_owned(),
        BookRefusal::TooFast(TooFast::Session(_)) => text::RATE_LIMIT.to_owned(),
        BookRefusal::TooFast(TooFast::Overall(_)) => text::GLOBAL_RATE_LIMIT.to_owned(),
        BookRefusal::TooManyDependencies { limit } => {
            text::invalid("dependsOn", format_args!("must have at most {limit} entries"))
        }
        BookRefusal::ShuttingDown => text::SHUTTING_DOWN.to_owned(),
    }
}

/// Words why a command failed before it ran, or was not done in time.
pub(super) fn fault(fault: &BookFault) -> String {
    match fault {
        BookFault::Conflict { identity, name, earlier, asked } => {
            let identity = match identity {
                Identity::Id => text::Identity::Id,
                Identity::Key => text::Identity::Key,
            };
            text::conflict(identity, name, earlier, asked)
        }
        BookFault::UnknownDependency { dependency } => text::unknown_dependency(dependency),
        BookFault::DependencyFailed { dependency, error } => text::failed_dependency(dependency, error),
        BookFault::SameLane { dependency } => text::same_lane_dependency(dependency),
        BookFault::SelfDependency { name } => text::self_dependency(name),
        BookFault::DependencyTimeout { dependency, millis } => text::dependency_timeout(dependency, *millis),
        BookFault::TimedOut { name: _, kind, millis } => text::timed_out(kind, *millis),
        BookFault::NotKept => "the command could not be written down, and was not run".to_owned(),
        BookFault::Interrupted => text::INTERRUPTED.to_owned(),
    }
}
