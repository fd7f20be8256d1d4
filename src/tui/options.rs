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
    /// What was written in this session before, and not sent.
    pub(crate) draft: Option<String>,
    /// Whether the view may end with [`ViewExit::Switch`].
    pub(crate) can_switch: bool,
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

/// The session to show next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SwitchTarget {
    /// One that exists.
    Session(String),
    /// A new one in the same directory, with the same model.
    New,
}

/// How the view ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ViewExit {
    /// The user wants another session.
    Switch {
        /// The session.
        target: SwitchTarget,
        /// What was written and not sent.
        draft: String,
    },
    /// The user left.
    Detached {
        /// Whether a run is active.
        is_running: bool,
    },
    /// A signal ended the program.
    Signalled {
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
    /// The task that owns the connection has ended without a report.
    #[error("the connection to pushd has failed because of a defect in push; run the command again")]
    ConnectionTask,
}
