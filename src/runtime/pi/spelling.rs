//! How the protocol words what the book has to say.

use crate::kernel::command_log::{AdmissionRefusal, CommandError, MatchedBy};
use crate::kernel::rate::RateExceeded;
use crate::protocol::pi::error_text;

/// Words why a command was not admitted.
pub(super) fn refusal(refusal: &AdmissionRefusal) -> String {
    match refusal {
        AdmissionRefusal::Busy { .. } => error_text::BUSY.to_owned(),
        AdmissionRefusal::RateLimited(RateExceeded::Session(_)) => error_text::RATE_LIMIT.to_owned(),
        AdmissionRefusal::RateLimited(RateExceeded::Overall(_)) => error_text::GLOBAL_RATE_LIMIT.to_owned(),
        AdmissionRefusal::TooManyDependencies { limit } => {
            error_text::invalid("dependsOn", format_args!("must have at most {limit} entries"))
        }
        AdmissionRefusal::ShuttingDown => error_text::SHUTTING_DOWN.to_owned(),
    }
}

/// Words why a command failed before it ran, or was not done in time.
pub(super) fn fault(fault: &CommandError) -> String {
    match fault {
        CommandError::Conflict { matched_by: identity, name, earlier, requested: asked } => {
            let identity = match identity {
                MatchedBy::Id => error_text::MatchedBy::Id,
                MatchedBy::Key => error_text::MatchedBy::Key,
            };
            error_text::conflict(identity, name, earlier, asked)
        }
        CommandError::UnknownDependency { dependency } => error_text::unknown_dependency(dependency),
        CommandError::DependencyFailed { dependency, error } => error_text::failed_dependency(dependency, error),
        CommandError::SameLane { dependency } => error_text::same_lane_dependency(dependency),
        CommandError::SelfDependency { name } => error_text::self_dependency(name),
        CommandError::DependencyTimeout { dependency, millis } => error_text::dependency_timeout(dependency, *millis),
        CommandError::TimedOut { name: _, kind, millis } => error_text::timed_out(kind, *millis),
        CommandError::NotPersisted => "the command could not be written down, and was not run".to_owned(),
        CommandError::Interrupted => error_text::INTERRUPTED.to_owned(),
    }
}
