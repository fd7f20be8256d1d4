//! The daemon as a process of the system: the signals that stop it, and its limits of open file descriptors.

/// A signal to a running daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// The first one drains the daemon, the second one stops it immediately.
    Stop,
}

/// The limits of open file descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DescriptorLimits {
    /// The limit at startup, which steps inherit.
    pub(super) initial: u64,
    /// The limit after it was raised.
    pub(super) limit: u64,
}

impl DescriptorLimits {
    /// Returns how many connections leave enough descriptors for the journal and for steps.
    pub(super) fn max_connections(self) -> usize {
        let rest = self.limit.saturating_sub(OWN_DESCRIPTORS);
        usize::try_from(rest - (rest / 2).min(STEP_DESCRIPTORS)).unwrap_or(usize::MAX)
    }
}

/// The maximum number of descriptors that the daemon itself uses for its journal, log and runtime.
const OWN_DESCRIPTORS: u64 = 32;

/// The number of descriptors that are reserved for steps.
const STEP_DESCRIPTORS: u64 = 256;
