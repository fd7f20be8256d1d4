//! Events for people and for the record.

use crate::kernel::id::{Json, Seq};

/// Something for people or for the record, which changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoticeEvent {
    /// Progress information for people.
    Status {
        /// The reporting component.
        source: String,
        /// The current activity.
        phase: String,
        /// The object of the activity.
        detail: Option<String>,
    },
    /// A warning for the user.
    Warned {
        /// A machine-readable code.
        code: String,
        /// A message for people.
        message: String,
        /// Details.
        detail: Option<String>,
    },
    /// An error of the run or of the session.
    Failed {
        /// A machine-readable code.
        code: String,
        /// A message for people.
        message: String,
        /// Whether a retry may help.
        retryable: bool,
        /// Details.
        detail: Option<String>,
    },
    /// The events between `after` and this one are lost; this event has the last of their positions.
    EventsLost {
        /// The last position before the lost events.
        after: Seq,
        /// The cause.
        cause: LossCause,
    },
    /// An event of a kind that a later version recorded. It is kept and passed on unchanged, and changes nothing.
    Unknown(Box<UnknownEvent>),
}

/// An event of an unknown kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownEvent {
    /// The name of its kind.
    pub name: String,
    /// Its complete record: a JSON object.
    pub record: Json,
}

/// The code of the warning that the text before it was interrupted: that text is discarded and generated again.
pub const TURN_INTERRUPTED: &str = "MODEL_TURN_INTERRUPTED";

/// Returns whether a warning has the code [`TURN_INTERRUPTED`], or the one that older events have in its place.
pub fn is_turn_interrupted(code: &str) -> bool {
    matches!(code, TURN_INTERRUPTED | "MODEL_TURN_CUT")
}

/// Why events are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossCause {
    /// They were modified, or are missing although they had been on disk.
    Damage,
    /// They may have been sent to subscribers and were not on disk when the machine stopped.
    PowerLoss,
    /// Retention removed them.
    Retention,
}
