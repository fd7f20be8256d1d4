//! What everybody heard of all commands, in order.

use serde_json::Value;

use crate::pi_crowd::command::Envelope;
use crate::pi_crowd::hearing::Heard;

/// Something that everybody heard.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    /// The name of the command, made up or not.
    pub(crate) name: String,
    pub(crate) envelope: Envelope,
    pub(crate) step: Step,
}

/// How far a command has come.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Accepted,
    Started,
    Finished { outcome: Outcome, replayed: bool },
}

/// What came of a command, as far as everybody hears.
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

/// Puts together what was heard in a life: all have heard the same, and some longer than others.
pub(crate) fn of_all(watcher: &Heard, others: &[Heard]) -> Vec<Told> {
    assert_eq!(watcher.first(), 0, "the watcher keeps everything");
    let mut lines: Vec<&[u8]> = watcher.tail.iter().map(Vec::as_slice).collect();
    for other in others {
        other.agrees_with(watcher);
        assert!(other.first() <= lines.len(), "more was heard than is kept");
        let further = other.tail.iter().skip(lines.len() - other.first());
        lines.extend(further.map(Vec::as_slice));
    }
    lines.into_iter().map(read).collect()
}

fn read(line: &[u8]) -> Told {
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
    let step = match line["type"].as_str().expect("a type") {
        "command_accepted" => Step::Accepted,
        "command_started" => Step::Started,
        "command_finished" => {
            let outcome = Outcome { error: text("error"), version: data["sessionVersion"].as_u64() };
            assert_eq!(data["success"].as_bool(), Some(outcome.is_success()), "{line}");
            Step::Finished { outcome, replayed: data["replayed"] == true }
        }
        other => panic!("nobody tells of a {other}"),
    };
    Told { name, envelope, step }
}
