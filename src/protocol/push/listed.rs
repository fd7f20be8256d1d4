//! The listing item of a session, decoded from the JSON that [`session_item`](super::encode::session_item)
//! wrote.

use serde::Deserialize;

use crate::kernel::time::Now;

/// The listing item of a session.
///
/// What earlier versions wrote lacks some of it: such a session belongs to no other protocol and is neither ended nor unloaded.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedSession {
    /// The working directory of its tools.
    pub cwd: String,
    /// The provider.
    pub provider: String,
    /// The model of the provider.
    pub model: Option<String>,
    /// Its display name.
    pub name: Option<String>,
    /// The other protocol that opened it, if any.
    pub protocol: Option<String>,
    /// The thinking level, if the session sets one.
    pub thinking: Option<String>,
    /// When it was opened, in milliseconds.
    opened_at: Option<u64>,
    /// Whether it accepts no more messages.
    #[serde(default)]
    pub ended: bool,
    /// Whether a client of another protocol has unloaded it.
    #[serde(default)]
    pub unloaded: bool,
}

impl ListedSession {
    /// Parses a listing item; `None` if only the id of the session is known.
    pub fn parse(summary: &str) -> Option<Self> {
        serde_json::from_str(summary).ok()
    }

    /// Returns when it was opened, if recorded.
    pub fn opened_at(&self) -> Option<Now> {
        self.opened_at.map(Now)
    }
}
