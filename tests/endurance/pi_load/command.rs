//! A command as a client sends it.

use serde_json::Value;

/// A command. Commands with the same id, key and envelope are the same; no generator makes two that differ otherwise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Command {
    pub(crate) id: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) request: Request,
}

/// A request, without id and key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Request {
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
        let request = &self.request;
        let mut line = format!("{{\"type\":{}", text(&request.kind));
        let names = [("id", &self.id), ("idempotencyKey", &self.key), ("sessionId", &request.session)];
        for (field, value) in names.into_iter().filter_map(|(field, value)| Some((field, value.as_ref()?))) {
            line += &format!(",\"{field}\":{}", text(value));
        }
        if !request.depends_on.is_empty() {
            line += &format!(",\"dependsOn\":{}", Value::from(request.depends_on.clone()));
        }
        if let Some(version) = request.if_version {
            line += &format!(",\"ifSessionVersion\":{version}");
        }
        if !request.rest.is_empty() {
            line += ",";
            line += &request.rest;
        }
        line + "}"
    }

    /// Whether it can be distinguished from commands with the same request.
    pub(crate) const fn has_identity(&self) -> bool {
        self.id.is_some() || self.key.is_some()
    }

    /// The part of it that lifecycle events contain.
    pub(crate) fn envelope(&self) -> Envelope {
        let request = &self.request;
        Envelope {
            id: self.id.clone(),
            key: self.key.clone(),
            kind: request.kind.clone(),
            session: request.session.clone(),
            depends_on: request.depends_on.clone(),
            if_version: request.if_version,
        }
    }
}

/// The part of a command that lifecycle events contain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Envelope {
    /// None if the daemon assigned the id.
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

/// Whether a kind of command only reads.
pub(crate) fn is_read(kind: &str) -> bool {
    kind.starts_with("get_") || kind.starts_with("list_") || matches!(kind, "switch_session" | "health_check")
}

/// How a kind of command is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    /// It is written after it ran: a kill may lose its outcome, though not its change.
    Later,
    /// Its change and its outcome are one commit. Its admission alone is stored only while it waits for its turn.
    OneCommit,
    /// Its admission is in the commit of each change, and its outcome follows.
    SeveralCommits,
}

impl Storage {
    pub(crate) fn of(kind: &str) -> Self {
        match kind {
            kind if is_read(kind) || kind.starts_with("abort") => Self::Later,
            "prompt" | "set_session_name" | "set_thinking_level" | "set_auto_compaction" | "set_auto_retry" => {
                Self::OneCommit
            }
            "create_session" | "delete_session" | "bash" => Self::SeveralCommits,
            other => panic!("how {other} is stored is not known"),
        }
    }
}

/// Whether a kind of command overtakes others in its lane.
pub(crate) fn overtakes(kind: &str) -> bool {
    is_read(kind) || kind.starts_with("abort")
}

/// Whether a kind of command has a time limit.
pub(crate) fn has_time_limit(kind: &str) -> bool {
    !matches!(kind, "create_session" | "delete_session" | "set_session_name")
}

/// Whether the success of a kind of command advances the version of its session.
pub(crate) fn changes_version(kind: &str) -> bool {
    !is_read(kind) && !matches!(kind, "create_session" | "delete_session")
}
