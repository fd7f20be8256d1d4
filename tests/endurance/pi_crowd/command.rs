//! A command as a client sends it.

use serde_json::Value;

/// A command. Two with the same names and the same envelope are the same: no generator makes two that differ in the rest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Command {
    pub(crate) id: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) asks: Asks,
}

/// What is asked, whatever it is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Asks {
    pub(crate) kind: String,
    pub(crate) session: Option<String>,
    pub(crate) depends_on: Vec<String>,
    pub(crate) if_version: Option<u64>,
    /// The remaining fields, as JSON without its braces.
    pub(crate) rest: String,
}

impl Command {
    /// The message.
    pub(crate) fn line(&self) -> String {
        let asks = &self.asks;
        let mut line = format!("{{\"type\":{}", text(&asks.kind));
        let names = [("id", &self.id), ("idempotencyKey", &self.key), ("sessionId", &asks.session)];
        for (field, value) in names.into_iter().filter_map(|(field, value)| Some((field, value.as_ref()?))) {
            line += &format!(",\"{field}\":{}", text(value));
        }
        if !asks.depends_on.is_empty() {
            line += &format!(",\"dependsOn\":{}", Value::from(asks.depends_on.clone()));
        }
        if let Some(version) = asks.if_version {
            line += &format!(",\"ifSessionVersion\":{version}");
        }
        if !asks.rest.is_empty() {
            line += ",";
            line += &asks.rest;
        }
        line + "}"
    }

    /// Whether it can be told apart from others that ask for the same.
    pub(crate) const fn is_named(&self) -> bool {
        self.id.is_some() || self.key.is_some()
    }

    /// What everybody hears of it; the rest is nobody's business.
    pub(crate) fn envelope(&self) -> Envelope {
        let asks = &self.asks;
        Envelope {
            id: self.id.clone(),
            key: self.key.clone(),
            kind: asks.kind.clone(),
            session: asks.session.clone(),
            depends_on: asks.depends_on.clone(),
            if_version: asks.if_version,
        }
    }
}

/// What everybody hears of a command.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Envelope {
    /// None where the daemon made a name up.
    pub(crate) id: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) kind: String,
    pub(crate) session: Option<String>,
    pub(crate) depends_on: Vec<String>,
    pub(crate) if_version: Option<u64>,
}

fn text(text: &str) -> String {
    Value::from(text).to_string()
}

/// Whether a kind of command only looks.
pub(crate) fn looks(kind: &str) -> bool {
    kind.starts_with("get_") || kind.starts_with("list_") || matches!(kind, "switch_session" | "health_check")
}

/// Whether a kind of command runs at once and is written down later, so that a kill may make the daemon forget it.
pub(crate) fn is_light(kind: &str) -> bool {
    looks(kind) || kind.starts_with("abort")
}

/// Whether a kind of command waits for nobody in its lane.
pub(crate) fn overtakes(kind: &str) -> bool {
    looks(kind) || kind.starts_with("abort")
}

/// Whether a kind of command may run out of time.
pub(crate) fn is_limited(kind: &str) -> bool {
    !matches!(kind, "create_session" | "delete_session" | "set_session_name")
}

/// Whether the success of a kind of command makes the session's version one higher.
pub(crate) fn bumps(kind: &str) -> bool {
    !looks(kind) && !matches!(kind, "create_session" | "delete_session")
}
