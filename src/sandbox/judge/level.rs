//! How much harm a call may do, and which kind of call it is.

/// How much harm a call may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// It only looks.
    Low,
    /// It changes what can be changed back.
    Medium,
    /// It reaches beyond the workspace, or changes what others rely on.
    High,
    /// It may destroy what cannot be brought back, or expose what cannot be hidden again.
    Critical,
}

impl Risk {
    /// Every risk, from low to critical.
    pub const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Critical];

    /// Returns its name, as rules spell it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// What kind of thing a tool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    /// It looks, and changes nothing.
    Read,
    /// It changes files of the workspace.
    Write,
    /// It runs a command, which may do anything.
    Exec,
    /// It changes the repository.
    Git,
    /// It talks to other machines.
    Network,
}

impl Category {
    /// Returns its name, as rules spell it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Exec => "exec",
            Self::Git => "git",
            Self::Network => "network",
        }
    }
}
