//! What the view shows, and how it ends.

use std::io;

use super::client_task::AutoDecision;
use super::text::theme::Theme;
use crate::client::{Access, RequestError};

/// What the view shows.
pub(crate) struct Options {
    /// The session.
    pub(crate) session: String,
    /// The session as users name it.
    pub(crate) handle: String,
    /// The styles.
    pub(crate) theme: Theme,
    /// From where on the session is shown.
    pub(crate) start: StartPosition,
    /// What the user may do.
    pub(crate) access: Access,
    /// A message to send first.
    pub(crate) first_message: Option<String>,
    /// Decides approvals by a policy.
    pub(crate) auto_decision: Option<AutoDecision>,
}

/// From where on a session is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StartPosition {
    /// From a bounded number of events before the end.
    NearEnd,
    /// After this event.
    After(u64),
    /// The client follows the session already; the message of this run is not shown again.
    Run(String),
}

/// How the view ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// The user left.
    Detached {
        /// Whether a run is active.
        is_running: bool,
    },
    /// The user pressed Ctrl-C twice.
    Interrupted {
        /// Whether a run is active.
        is_running: bool,
    },
    /// The observer has seen what it waited for.
    Finished,
    /// The user left, and the terminal takes no output.
    Unwritable,
}

/// Why the view failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TuiError {
    /// The daemon cannot be reached or refused a request.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The terminal cannot be used.
    #[error("cannot use the terminal")]
    Terminal(#[from] io::Error),
}
