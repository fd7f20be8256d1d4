//! Another program that writes to session files: it appends, as the pi coding agent does.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

/// Appends a message and an answer to the branch that counts, and returns what the file held before.
pub(crate) fn turn(path: &Path, asked: &str, answered: &str) {
    let text = fs::read_to_string(path).expect("a session file");
    let last: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
    let parent = if last["type"] == "session" { Value::Null } else { last["id"].clone() };
    let number = text.lines().count();
    let (first, second) = (format!("f0000{number:03}"), format!("f1000{number:03}"));
    let user = json!({"role": "user", "content": [{"type": "text", "text": asked}], "timestamp": ASKED});
    let said = json!({
        "role": "assistant", "content": [{"type": "text", "text": answered}], "api": "openai-completions",
        "provider": "elsewhere", "model": "other-model", "stopReason": "stop", "timestamp": ANSWERED,
        "usage": {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2,
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}},
    });
    let lines = [
        json!({"type": "message", "id": first, "parentId": parent, "timestamp": "2026-01-02T00:00:00.000Z", "message": user}),
        json!({"type": "message", "id": second, "parentId": first, "timestamp": "2026-01-02T00:00:01.000Z", "message": said}),
    ];
    let mut file = OpenOptions::new().append(true).open(path).expect("a session file");
    for line in lines {
        writeln!(file, "{line}").expect("a line");
    }
}

/// When the message and the answer were said.
const ASKED: u64 = 1_767_312_000_000;
const ANSWERED: u64 = 1_767_312_001_000;

/// Appends a text.
pub(crate) fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).open(path).expect("a session file");
    file.write_all(text.as_bytes()).expect("a text");
}

/// Gives the entries of a file the ids that earlier versions gave them, without the prefix of the session.
pub(crate) fn as_earlier_version(path: &Path) {
    let text = fs::read_to_string(path).expect("a session file");
    let mut lines = text.lines();
    let mut plain = format!("{}\n", lines.next().expect("a header"));
    for line in lines {
        let mut entry: Value = serde_json::from_str(line).expect("JSON");
        for key in ["id", "parentId"] {
            let id = entry[key].as_str().and_then(|id| id.split_once('-')).map(|(_, id)| id.to_owned());
            if let Some(id) = id {
                entry[key] = id.into();
            }
        }
        plain.push_str(&format!("{entry}\n"));
    }
    fs::write(path, plain).expect("a session file");
}

/// Makes the file that was chosen last one of which it is not known yet whether the session has gone on in it, as a daemon
/// leaves it that dies in between.
pub(crate) fn awaits_branch_after(index: &Path, seq: u64) {
    let text = fs::read_to_string(index).expect("an index");
    let mut value: Value = serde_json::from_str(&text).expect("JSON");
    let files = value["files"].as_array_mut().expect("files");
    files.last_mut().expect("a file")["awaitsBranchAfter"] = seq.into();
    fs::write(index, value.to_string()).expect("an index");
}

/// Makes sure that a file holds texts in this order, separated by ` / `, each of them once.
pub(crate) fn holds(path: &Path, texts: &str) {
    let found = fs::read_to_string(path).expect("a session file");
    let mut from = 0;
    for text in texts.split(" / ") {
        let at = found[from..].find(text).unwrap_or_else(|| panic!("{text:?} is not behind byte {from} of {found}"));
        from += at + text.len();
        assert_eq!(found.matches(text).count(), 1, "{text:?} in {found}");
    }
}

/// Makes sure that a file, if it is there, does not hold a text.
pub(crate) fn lacks(path: &Path, text: &str) {
    let found = fs::read_to_string(path).unwrap_or_default();
    assert!(!found.contains(text), "{text:?} is in {found}");
}
