//! Formats tool results as text.
//!
//! Structured results are one line of JSON for the model. Results of unknown structure are returned unchanged.
//! Nothing is sanitized here; the view does that.

use serde_json::Value;

use super::format::{commit_stats, field};

/// Formats a tool result.
pub(crate) fn format_result(text: &str) -> String {
    let Ok(whole) = serde_json::from_str::<Value>(text) else { return text.to_owned() };
    let Some(parts) = whole.as_object() else { return text.to_owned() };
    let list = |name: &str| parts.get(name).and_then(Value::as_array);
    let word = |name: &str| parts.get(name).and_then(Value::as_str);
    let mut lines: Vec<String> = if let Some(entries) = list("entries") {
        entries.iter().map(entry).collect()
    } else if let Some(hits) = list("hits").or_else(|| list("paths")) {
        hits.iter().map(hit).collect()
    } else if let Some(untracked) = list("untracked") {
        let mut lines = vec![format!("on {}", word("branch").unwrap_or("no branch"))];
        for name in ["staged", "unstaged", "conflicted"] {
            lines.extend(list(name).into_iter().flatten().map(|file| format!("{name}: {}", format_file(file))));
        }
        lines.extend(untracked.iter().map(|file| format!("untracked: {}", format_file(file))));
        lines
    } else if let (Some(branch), Some(commit)) = (word("branch"), word("commit")) {
        let short: String = commit.chars().take(12).collect();
        vec![format!("{short} on {branch}: {}", commit_stats(&whole))]
    } else if let Some(files) = list("files") {
        files.iter().map(format_file).collect()
    } else {
        return text.to_owned();
    };
    if lines.is_empty() {
        lines.push("no results".to_owned());
    }
    if parts.get("truncated").and_then(Value::as_bool).unwrap_or_default() {
        lines.push("… and more".to_owned());
    }
    lines.join("\n")
}

fn entry(entry: &Value) -> String {
    let path = field(entry, "path");
    match field(entry, "kind").as_str() {
        "directory" => format!("{path}/"),
        "link" => format!("{path} -> {}", field(entry, "target")),
        _ => path,
    }
}

fn hit(hit: &Value) -> String {
    let path = hit.as_str().map_or_else(|| field(hit, "path"), str::to_owned);
    match hit.get("line").and_then(Value::as_u64) {
        Some(line) => format!("{path}:{line}: {}", field(hit, "text")),
        None => path,
    }
}

/// Formats a changed file: its name, and its change if there is one.
pub(crate) fn format_file(file: &Value) -> String {
    let Some(object) = file.as_object() else { return file.as_str().unwrap_or_default().to_owned() };
    let words = [field(file, "change"), field(file, "path")];
    let mut line = words.iter().filter(|word| !word.is_empty()).map(String::as_str).collect::<Vec<_>>().join(" ");
    let count = |name: &str| object.get(name).and_then(Value::as_u64);
    if let (Some(more), Some(less)) = (count("insertions"), count("deletions")) {
        line += &format!(" (+{more} -{less})");
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn structured_results_are_formatted_as_lines() {
        for (parts, lines) in [
            (
                json!({"entries": [{"kind": "directory", "path": "src"}, {"kind": "file", "path": "a", "bytes": 1},
                    {"kind": "link", "path": "l", "target": "a"}], "path": ".", "truncated": true}),
                "src/\na\nl -> a\n… and more",
            ),
            (
                json!({"hits": [{"path": "a", "line": 2, "text": "x = 1"}, {"path": "b"}], "truncated": false}),
                "a:2: x = 1\nb",
            ),
            (json!({"hits": []}), "no results"),
            (json!({"paths": ["src/a.rs", "b"], "truncated": true}), "src/a.rs\nb\n… and more"),
            (
                json!({"files": [{"change": "modified", "path": "a", "insertions": 1, "deletions": 2}]}),
                "modified a (+1 -2)",
            ),
            (
                json!({"branch": "main", "commit": "70605a5997778f77", "staged": [{"change": "added", "path": "s"}],
                    "unstaged": [], "conflicted": [], "untracked": ["n"], "truncated": false}),
                "on main\nstaged: added s\nuntracked: n",
            ),
            (
                json!({"branch": "main", "commit": "70605a5997778f779641", "filesChanged": 1, "insertions": 2, "deletions": 3}),
                "70605a599777 on main: 1 file changed, 2 insertions, 3 deletions",
            ),
        ] {
            assert_eq!(format_result(&parts.to_string()), lines);
        }
    }

    #[test]
    fn unknown_results_are_unchanged() {
        for text in ["", "plain\ntext", "{\"a\":1}", "[1]", "{\"hits\": 3}", "{\"entries\""] {
            assert_eq!(format_result(text), text);
        }
    }
}
