//! What a list says of a session, read back from how [`session_item`](super::super::encode::session_item) wrote it.

use serde::Deserialize;

use crate::kernel::time::Now;

/// What a list says of a session.
///
/// What earlier versions wrote lacks some of it: such a session belongs to no other protocol and is neither ended nor unloaded.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedSession {
    /// The directory of its tools.
    pub cwd: String,
    /// Who answers.
    pub provider: String,
    /// Which model of the provider.
    pub model: Option<String>,
    /// Its name for people.
    pub name: Option<String>,
    /// Through which other protocol it was opened.
    pub protocol: Option<String>,
    /// How much its model is to think, where that was said in it.
    pub thinking: Option<String>,
    /// When it was opened, in milliseconds.
    opened_at: Option<u64>,
    /// Whether it takes no more messages.
    #[serde(default)]
    pub ended: bool,
    /// Whether a client of another protocol has unloaded it.
    #[serde(default)]
    pub unloaded: bool,
}

impl ListedSession {
    /// Reads what a list says of a session; nothing where nobody knows more than its name.
    pub fn parse(summary: &str) -> Option<Self> {
        serde_json::from_str(summary).ok()
    }

    /// Returns when it was opened, where that is said.
    pub fn opened_at(&self) -> Option<Now> {
        self.opened_at.map(Now)
    }
}
