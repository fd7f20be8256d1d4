//! Events of the session itself.

use crate::kernel::id::{Json, Seq, SessionId};

/// An event of the session itself: its opening, its end, its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEvent {
    /// The session was opened, or opened again as a new one.
    Opened(Box<Opening>),
    /// The session was renamed.
    Renamed {
        /// The new name.
        name: String,
    },
    /// The session has ended and accepts no more messages.
    Ended {
        /// Who ended it.
        by: String,
    },
    /// The version was incremented for a change that records no other event.
    VersionBumped {
        /// The name of the change, chosen by its caller.
        change: String,
        /// Who made it.
        by: String,
    },
    /// The session was loaded from outside: its version is reset, and it accepts messages even if it had ended.
    Loaded {
        /// Who loaded it.
        by: String,
    },
    /// The provider, the model or other settings changed.
    Adjusted {
        /// The changed settings.
        adjustment: Box<Adjustment>,
        /// Who changed them.
        by: String,
    },
}

/// The parameters with which a session is opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Opening {
    /// The client's mode, such as interactive or headless.
    pub mode: String,
    /// The provider.
    pub provider: String,
    /// The model; `None` means the provider's default.
    pub model: Option<String>,
    /// The sandbox provider.
    pub sandbox: String,
    /// The confinement of a model's commands: a JSON object.
    pub confinement: Option<Json>,
    /// The working directory of the tools; an absolute path.
    pub cwd: String,
    /// The identity of that directory; older sessions have none.
    pub workspace: Option<WorkspaceIdentity>,
    /// The client's description of the repository.
    pub repo: Option<Json>,
    /// Metadata that the client wants stored.
    pub metadata: Option<Json>,
    /// A display name.
    pub name: Option<String>,
    /// The session that this one is a fork of.
    pub parent: Option<SessionId>,
    /// The last event of the parent that a fork starts from; zero if it inherits none. Events up to it are inherited.
    pub forked_at: Option<Seq>,
}

/// The identity of a session's working directory, which detects that another directory has replaced it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceIdentity {
    /// Its absolute path, with symbolic links resolved.
    pub path: String,
    /// The device and inode numbers, separated by a colon.
    pub file_id: String,
    /// The id of the boot for which these numbers are valid; empty where the system has none.
    pub boot: String,
}

/// Settings that differ from the opening; `None` where a setting is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Adjustment {
    /// The provider.
    pub provider: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The thinking level.
    pub thinking: Option<String>,
    /// Whether a conversation that becomes too long is compacted automatically.
    pub auto_compaction: Option<bool>,
    /// Whether a provider that does not answer is retried automatically.
    pub auto_retry: Option<bool>,
    /// The working directory, recorded after the session was opened.
    pub workspace: Option<WorkspaceIdentity>,
    /// Whether a client unloaded the session. Protocols with active sessions hide it until it is loaded again.
    pub unloaded: Option<bool>,
}

impl Adjustment {
    /// Applies a later adjustment. A new provider resets the model, unless the adjustment names one.
    pub fn add(&mut self, later: &Self) {
        if later.provider.is_some() {
            self.provider.clone_from(&later.provider);
            self.model = None;
        }
        if later.model.is_some() {
            self.model.clone_from(&later.model);
        }
        if later.thinking.is_some() {
            self.thinking.clone_from(&later.thinking);
        }
        self.auto_compaction = later.auto_compaction.or(self.auto_compaction);
        self.auto_retry = later.auto_retry.or(self.auto_retry);
        if later.workspace.is_some() {
            self.workspace.clone_from(&later.workspace);
        }
        self.unloaded = later.unloaded.or(self.unloaded);
    }
}
