//! Risk levels and categories of calls.

/// The risk of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// It only reads.
    Low,
    /// It makes changes that can be undone.
    Medium,
    /// It has effects outside the workspace, or changes what others rely on.
    High,
    /// It may destroy data irrecoverably or disclose secrets.
    Critical,
}

impl Risk {
    /// Every level, from low to critical.
    pub const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Critical];

    /// Returns its name, as rules spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// The category of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    /// It reads and changes nothing.
    Read,
    /// It changes files of the workspace.
    Write,
    /// It runs a command, which can do anything.
    Exec,
    /// It changes the repository.
    Git,
    /// It connects to other hosts.
    Network,
}

impl Category {
    /// Returns its name, as rules spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Exec => "exec",
            Self::Git => "git",
            Self::Network => "network",
        }
    }
}
