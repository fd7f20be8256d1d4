//! Another program that appends to session files, as the pi coding agent does.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

/// Appends a message and an answer to the current branch.
pub(crate) fn turn(path: &Path, question: &str, answered: &str) {
    let text = fs::read_to_string(path).expect("a session file");
    let last: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
    let parent = if last["type"] == "session" { Value::Null } else { last["id"].clone() };
    let number = text.lines().count();
    let (first, second) = (format!("f0000{number:03}"), format!("f1000{number:03}"));
    let user = json!({"role": "user", "content": [{"type": "text", "text": question}], "timestamp": ASKED});
    let message = json!({
        "role": "assistant", "content": [{"type": "text", "text": answered}], "api": "openai-completions",
        "provider": "elsewhere", "model": "other-model", "stopReason": "stop", "timestamp": ANSWERED,
        "usage": {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2,
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}},
    });
    let lines = [
        json!({"type": "message", "id": first, "parentId": parent, "timestamp": "2026-01-02T00:00:00.000Z", "message": user}),
        json!({"type": "message", "id": second, "parentId": first, "timestamp": "2026-01-02T00:00:01.000Z", "message": message}),
    ];
    let mut file = OpenOptions::new().append(true).open(path).expect("a session file");
    for line in lines {
        writeln!(file, "{line}").expect("a line");
    }
}

/// The times of the message and the answer.
const ASKED: u64 = 1_767_312_000_000;
const ANSWERED: u64 = 1_767_312_001_000;

/// Appends a text.
pub(crate) fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).open(path).expect("a session file");
    file.write_all(text.as_bytes()).expect("a text");
}

/// Replaces the entry ids of a file by those of earlier versions, without the prefix of the session.
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

/// Marks the file that was selected last as pending in the index, as a daemon leaves it that is killed between the
/// selection and the next event.
pub(crate) fn awaits_branch_after(index: &Path, seq: u64) {
    let text = fs::read_to_string(index).expect("an index");
    let mut value: Value = serde_json::from_str(&text).expect("JSON");
    let files = value["files"].as_array_mut().expect("files");
    files.last_mut().expect("a file")["awaitsBranchAfter"] = seq.into();
    fs::write(index, value.to_string()).expect("an index");
}

/// Asserts that a file contains these texts, separated by ` / `, once each and in this order.
pub(crate) fn assert_contains(path: &Path, texts: &str) {
    let found = fs::read_to_string(path).expect("a session file");
    let mut from = 0;
    for text in texts.split(" / ") {
        let at = found[from..].find(text).unwrap_or_else(|| panic!("{text:?} is not behind byte {from} of {found}"));
        from += at + text.len();
        assert_eq!(found.matches(text).count(), 1, "{text:?} in {found}");
    }
}

/// Asserts that a file, if it exists, does not contain a text.
pub(crate) fn assert_lacks(path: &Path, text: &str) {
    let found = fs::read_to_string(path).unwrap_or_default();
    assert!(!found.contains(text), "{text:?} is in {found}");
}
