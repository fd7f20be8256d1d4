//! The closed enumerations of the wire, each mapped to the kernel's enum.

use serde::{Deserialize, Serialize};

use crate::kernel::command::Phase;
use crate::kernel::event::{
    ApprovalScope, CompactionFailure, CompactionReason, Decision, DenialEffect, LossCause, OutputStream,
    RecoveredPhase, RunOutcome, ToolOutcome,
};
use crate::kernel::gate::BudgetResource;
use crate::kernel::participant::{ParticipantKind, Right, Role};

macro_rules! words {
    ($(#[$doc:meta])* $wire:ident is $kernel:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub(crate) enum $wire {
            $(#[serde(rename = $word)] $variant),+
        }

        impl From<$kernel> for $wire {
            fn from(word: $kernel) -> Self {
                match word {
                    $($kernel::$variant => Self::$variant),+
                }
            }
        }

        impl From<$wire> for $kernel {
            fn from(word: $wire) -> Self {
                match word {
                    $($wire::$variant => Self::$variant),+
                }
            }
        }
    };
}

words!(
    /// The phase of a session.
    StateWord is Phase {
        Idle = "idle",
        Running = "running",
        Waiting = "awaiting_approval",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
    }
);
words!(
    /// How a run ended.
    OutcomeWord is RunOutcome { Success = "success", Failed = "failed", Cancelled = "cancelled", Denied = "denied" }
);
words!(
    /// The decision of an approval.
    DecisionWord is Decision { Approve = "approve", Deny = "deny" }
);
words!(
    /// The effect of a denial with a comment.
    DenialEffectWord is DenialEffect { EndRun = "end", InformModel = "continue", Dismiss = "dismiss" }
);
words!(
    /// The scope of an approval.
    ScopeWord is ApprovalScope { Once = "once", Run = "run", Session = "session", Always = "always" }
);
words!(
    /// The output stream of a tool.
    StreamWord is OutputStream { Stdout = "stdout", Stderr = "stderr" }
);
words!(
    /// The cause of a loss of events.
    CauseWord is LossCause { Damage = "damage", PowerLoss = "power", Retention = "retention" }
);
words!(
    /// The outcome of a tool call.
    ToolOutcomeWord is ToolOutcome { Succeeded = "done", Failed = "failed", Skipped = "skipped", Aborted = "cut" }
);
words!(
    /// The reason of a compaction.
    CompactionReasonWord is CompactionReason {
        Manual = "manual",
        Threshold = "threshold",
        Overflow = "overflow",
    }
);
words!(
    /// How a compaction failed.
    CompactionFailureWord is CompactionFailure { Failed = "failed", Aborted = "aborted" }
);
words!(
    /// The phase in which a restarted daemon found a run.
    RecoveredPhaseWord is RecoveredPhase { Working = "working", Waiting = "waiting", Unknown = "unknown", Stopping = "stopping" }
);

words!(
    /// What a participant is.
    ParticipantKindWord is ParticipantKind { Human = "human", Agent = "agent", Service = "service" }
);
words!(
    /// A role.
    RoleWord is Role {
        Observer = "observer",
        Driver = "driver",
        Navigator = "navigator",
        Adversary = "adversary",
        Approver = "approver",
        Admin = "admin",
    }
);
words!(
    /// A right.
    RightWord is Right {
        Read = "read",
        Prompt = "prompt",
        Steer = "steer",
        Decide = "approve",
        Interrupt = "interrupt",
        Fork = "fork",
        AddContext = "add_context",
        ManageParticipants = "manage_participants",
        EndSession = "end_session",
        Configure = "configure",
        Own = "own",
    }
);

words!(
    /// A resource that a budget limits.
    ResourceWord is BudgetResource { Cost = "cost", Turns = "turns", Tokens = "tokens", DailyCost = "daily_cost" }
);

/// What an approval is about that belongs to no call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SubjectWord {
    /// Its kind and its details say it.
    #[serde(rename = "other")]
    Other,
}

/// How a participant authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AuthenticationWord {
    /// It runs as the owner of the daemon.
    #[serde(rename = "local")]
    LocalUser,
    /// It presented a token.
    #[serde(rename = "token")]
    Token,
}

/// The only state in which a session starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum IdleWord {
    /// No run has started.
    #[serde(rename = "idle")]
    Idle,
}

/// How a message was delivered to an active run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DeliveryWord {
    /// It steers the run.
    #[serde(rename = "steer")]
    Steer,
}

/// Where a tool runs. Every tool of this daemon runs in the sandbox; the other values occur in older journals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SourceWord {
    /// In the sandbox.
    #[serde(rename = "sandbox")]
    Sandbox,
    /// Formerly used for acceptance checks.
    #[serde(rename = "acceptance")]
    Acceptance,
    /// Formerly used for user commands.
    #[serde(rename = "user")]
    User,
}

/// The purpose of a tool call that the model did not request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PurposeWord {
    /// An acceptance check.
    #[serde(rename = "acceptance")]
    Acceptance,
    /// A user command, outside any run.
    #[serde(rename = "user")]
    User,
}
