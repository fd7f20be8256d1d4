//! Events that change what the model receives of the conversation.

use crate::kernel::id::Seq;

/// A change of the conversation that the model receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContextEvent {
    /// The conversation continues from an earlier point.
    Branched {
        /// The branch point.
        branch: Branch,
        /// Who branched.
        by: String,
    },
    /// A compaction of the older part of the conversation has started.
    CompactionStarted {
        /// Why it started.
        reason: CompactionReason,
        /// The client that asked for it; `None` if a run needs it.
        by: Option<String>,
    },
    /// A summary replaces the older part of the conversation.
    Compacted(Box<Compaction>),
    /// The compaction produced no summary; the conversation is unchanged.
    CompactionFailed {
        /// How it failed.
        failure: CompactionFailure,
        /// The reason, for people.
        message: Option<String>,
        /// Whether another attempt follows.
        will_retry: bool,
    },
}

/// A branch point: an earlier position from which the conversation continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Branch {
    /// The last event that still belongs to the conversation; zero means none.
    pub until: Seq,
    /// The first event that is part of the context verbatim, as it was at that point.
    pub from: Seq,
}

/// Why a compaction starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionReason {
    /// A client asked for it.
    Manual,
    /// The context has reached the compaction threshold.
    Threshold,
    /// The model server rejected the context as too long.
    Overflow,
}

/// How a compaction ended without a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionFailure {
    /// It failed.
    Failed,
    /// A client or the daemon aborted it.
    Aborted,
}

/// A summary that replaces the older part of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    /// The summary, redacted.
    pub summary: String,
    /// The first event that stays in the context verbatim.
    pub kept_from: Seq,
    /// The approximate number of tokens before the compaction.
    pub tokens_before: u64,
}
