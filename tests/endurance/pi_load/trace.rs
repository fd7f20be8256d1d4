//! The lifecycle events of all commands, in order.

use serde_json::Value;

use crate::pi_load::command::Envelope;
use crate::pi_load::received_lines::ReceivedLines;

/// A lifecycle event.
#[derive(Debug, Clone)]
pub(crate) struct LifecycleEvent {
    /// The id of the command, also if the daemon assigned it.
    pub(crate) name: String,
    pub(crate) envelope: Envelope,
    pub(crate) phase: Phase,
}

/// The phase of a command.
#[derive(Debug, Clone)]
pub(crate) enum Phase {
    Accepted,
    Started,
    Finished { outcome: Outcome, replayed: bool },
}

/// The outcome of a command, as far as lifecycle events contain it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Outcome {
    pub(crate) error: Option<String>,
    pub(crate) version: Option<u64>,
}

impl Outcome {
    pub(crate) const fn is_success(&self) -> bool {
        self.error.is_none()
    }

    pub(crate) fn is_timeout(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.starts_with("Command '") && error.contains("timed out"))
    }
}

/// Merges the events of an instance: all clients received the same ones, some more than others.
pub(crate) fn merge(observer: &ReceivedLines, others: &[ReceivedLines]) -> Vec<LifecycleEvent> {
    assert_eq!(observer.first(), 0, "the observer keeps everything");
    let mut lines: Vec<&[u8]> = observer.tail.iter().map(Vec::as_slice).collect();
    for other in others {
        other.agrees_with(observer);
        assert!(other.first() <= lines.len(), "more lines were received than are kept");
        let further = other.tail.iter().skip(lines.len() - other.first());
        lines.extend(further.map(Vec::as_slice));
    }
    lines.into_iter().map(read).collect()
}

fn read(line: &[u8]) -> LifecycleEvent {
    let line: Value = serde_json::from_slice(line).expect("JSON");
    let data = &line["data"];
    let text = |field: &str| data[field].as_str().map(ToOwned::to_owned);
    let name = text("commandId").expect("a name");
    let depends_on = data["dependsOn"].as_array().expect("always a list").iter();
    let envelope = Envelope {
        id: (!name.starts_with("anon:")).then(|| name.clone()),
        key: text("idempotencyKey"),
        kind: text("commandType").expect("a type"),
        session: text("sessionId"),
        depends_on: depends_on.map(|id| id.as_str().expect("a name").to_owned()).collect(),
        if_version: data["ifSessionVersion"].as_u64(),
    };
    let phase = match line["type"].as_str().expect("a type") {
        "command_accepted" => Phase::Accepted,
        "command_started" => Phase::Started,
        "command_finished" => {
            let outcome = Outcome { error: text("error"), version: data["sessionVersion"].as_u64() };
            assert_eq!(data["success"].as_bool(), Some(outcome.is_success()), "{line}");
            Phase::Finished { outcome, replayed: data["replayed"] == true }
        }
        other => panic!("an unknown event: {other}"),
    };
    LifecycleEvent { name, envelope, phase }
}
