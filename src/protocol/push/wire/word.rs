//! The closed vocabularies: each word of the wire beside the word of the kernel.

use serde::{Deserialize, Serialize};

use crate::kernel::command::Phase;
use crate::kernel::event::{
    CompactionEnding, CompactionReason, Decision, Denial, Ending, Found, Lasting, LossCause, Outcome,
    OutputStream,
};

macro_rules! words {
    ($(#[$doc:meta])* $wire:ident is $kernel:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub(in crate::protocol::push) enum $wire {
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
    /// What a session is doing.
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
    OutcomeWord is Outcome { Success = "success", Failed = "failed", Cancelled = "cancelled", Denied = "denied" }
);
words!(
    /// Yes or no.
    DecisionWord is Decision { Approve = "approve", Deny = "deny" }
);
words!(
    /// What a no with a comment means.
    DenialWord is Denial { Ends = "end", Told = "continue", Dismissed = "dismiss" }
);
words!(
    /// How long a yes holds.
    ScopeWord is Lasting { Once = "once", Run = "run", Session = "session", Always = "always" }
);
words!(
    /// Where a tool printed something.
    StreamWord is OutputStream { Out = "stdout", Err = "stderr" }
);
words!(
    /// Why events are gone.
    CauseWord is LossCause { Damage = "damage", Power = "power", Retention = "retention" }
);
words!(
    /// How a use of a tool ended.
    EndingWord is Ending { Done = "done", Failed = "failed", Skipped = "skipped", Cut = "cut" }
);
words!(
    /// Why a summary is made.
    CompactionReasonWord is CompactionReason {
        Manual = "manual",
        Threshold = "threshold",
        Overflow = "overflow",
    }
);
words!(
    /// How the making of a summary ended that there is none of.
    CompactionEndingWord is CompactionEnding { Failed = "failed", Aborted = "aborted" }
);
words!(
    /// What a returning daemon found a run doing.
    FoundWord is Found { Working = "working", Waiting = "waiting", Unknown = "unknown", Stopping = "stopping" }
);

/// The only state that a session begins in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::protocol::push) enum IdleWord {
    /// Nothing was asked yet.
    #[serde(rename = "idle")]
    Idle,
}

/// How a message came into a run that was active already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::protocol::push) enum DeliveryWord {
    /// It steers the run.
    #[serde(rename = "steer")]
    Steer,
}

/// Where a tool is used. Every tool of this daemon is used in the sandbox; the other words are those of older journals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::protocol::push) enum SourceWord {
    /// In the sandbox.
    #[serde(rename = "sandbox")]
    Sandbox,
    /// Formerly of acceptance checks.
    #[serde(rename = "acceptance")]
    Acceptance,
    /// Formerly of the user's own commands.
    #[serde(rename = "user")]
    User,
}

/// What a tool is used for, where the provider did not ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::protocol::push) enum PurposeWord {
    /// It checks the run.
    #[serde(rename = "acceptance")]
    Acceptance,
    /// The user did, beside any run.
    #[serde(rename = "user")]
    User,
}
