//! What the fields of events are called when people read them.
//!
//! Pure. What it returns is still foreign text, except where it says otherwise: the view makes it harmless.

use serde_json::Value;

use super::console::Style;
use super::plain::plain_line;
use crate::client::Event;
use crate::kernel::gate::POLICY;

/// Returns a text of an object; empty when there is none under that name.
pub(super) fn field(object: &Value, name: &str) -> String {
    object.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns what exactly an approval is about: the command where there is one.
pub(super) fn asked(payload: &Value) -> String {
    let command = payload.get("details").map(|details| field(details, "command")).unwrap_or_default();
    if command.is_empty() { field(payload, "summary") } else { command }
}

/// Returns the answers that an approval takes where there are more than two.
pub(super) fn choices(payload: &Value) -> Vec<String> {
    let choices = payload.pointer("/details/choices").and_then(Value::as_array);
    choices.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns why something was not approved, with the comment of whoever denied it; harmless.
pub(super) fn refused_by(by: &str, comment: &str) -> String {
    let comment = plain_line(comment);
    match by {
        "timeout" => "nobody answered in time".to_owned(),
        "cancel" => "the run was cancelled".to_owned(),
        POLICY if comment.is_empty() => "nobody can be asked in this run".to_owned(),
        POLICY => comment,
        by if comment.is_empty() => format!("denied by {}", plain_line(by)),
        by => format!("denied by {}: {comment}", plain_line(by)),
    }
}

/// Returns how a use of a tool reads, after the prompt that goes before what a person would type in a shell.
pub(super) fn invocation(payload: &Value) -> (&'static str, String) {
    let tool = field(payload, "toolName");
    let tool = tool.strip_prefix("sandbox_").unwrap_or(&tool);
    let tool = tool.strip_suffix("_file").unwrap_or(tool).replace('_', " ");
    let Some(args) = payload.get("args") else { return ("", tool) };
    let command = field(args, "command");
    if !command.is_empty() {
        return ("$ ", command);
    }
    let named = ["pattern", "path", "url", "message"].map(|name| field(args, name));
    if let Some(name) = named.iter().find_map(|text| text.trim().lines().next()) {
        return ("", format!("{tool} {name}"));
    }
    let bare = args.as_object().is_none_or(serde_json::Map::is_empty);
    ("", if bare { tool } else { format!("{tool} {args}") })
}

/// Returns how a use of a tool ended, and how that is to be painted.
pub(super) fn ending(event: &Event) -> (Style, String) {
    let time = duration(event.payload.get("durationMs").and_then(Value::as_u64).unwrap_or_default());
    let code = event.payload.get("exitCode").and_then(Value::as_i64);
    let fault = event.payload.get("structuredError").map(|fault| field(fault, "message")).unwrap_or_default();
    let failed = event.payload.get("isError").and_then(Value::as_bool).unwrap_or_default();
    let mut words = match (event.text("status"), code) {
        ("skipped", _) => return (Style::Faint, "skipped".to_owned()),
        ("cut", _) if fault.is_empty() => "cut short".to_owned(),
        ("cut", _) => return (Style::Bad, plain_line(&fault)),
        (_, Some(code)) => format!("exit {code}, {time}"),
        (_, None) if failed => format!("failed, {time}"),
        (_, None) => format!("done, {time}"),
    };
    // The code says it already.
    let is_news = !fault.is_empty() && code.is_none_or(|code| fault != format!("exit code {code}"));
    if failed && is_news {
        words += &format!(": {}", plain_line(&fault));
    }
    (if failed { Style::Bad } else { Style::Faint }, words)
}

/// Returns a time as people say it.
pub(super) fn duration(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0 => format!("{millis}ms"),
        1..60 => format!("{seconds}.{}s", millis % 1000 / 100),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// Returns what a restart of the daemon means for the run.
pub(super) fn recovered(found: &str) -> String {
    let now = match found {
        "waiting" => "the run still waits for an approval",
        "unknown" => "nobody knows how the step ended that was running",
        "stopping" => "the run is being stopped",
        _ => "the run goes on",
    };
    format!("the daemon was started again: {now}")
}

/// Says which events are gone, and why.
pub(super) fn lost(payload: &Value) -> String {
    let number = |field: &str| payload.get(field).and_then(Value::as_u64).unwrap_or_default();
    let (first, last) = (number("afterSeq").saturating_add(1), number("untilSeq"));
    let why = match payload.get("cause").and_then(Value::as_str).unwrap_or_default() {
        "power" => "what was not on disk when the machine stopped is gone",
        "retention" => "old events were removed, as is set",
        _ => "the journal was damaged",
    };
    format!("events {first} to {last} are missing: {why}")
}

/// Returns a number of things as people say it.
pub(super) fn count(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

/// Returns how much a commit changes.
pub(super) fn extent(object: &Value) -> String {
    let number = |name: &str| object.get(name).and_then(Value::as_u64).unwrap_or_default();
    let files = count(number("filesChanged"), "file");
    let (more, less) = (count(number("insertions"), "insertion"), count(number("deletions"), "deletion"));
    format!("{files} changed, {more}, {less}")
}

/// Returns a number of bytes as people say it.
pub(super) fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut tenths = u128::from(bytes) * 10;
    while tenths >= 10_240 && unit + 1 < units.len() {
        tenths /= 1024;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{}.{} {}", tenths / 10, tenths % 10, units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_say_them() {
        assert_eq!(
            [0, 1023, 1024, 1536, 5 << 20].map(size),
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 MiB"]
        );
    }

    #[test]
    fn one_thing_is_not_several() {
        let extent = extent(&serde_json::json!({"filesChanged": 1, "insertions": 2, "deletions": 0}));
        assert_eq!(extent, "1 file changed, 2 insertions, 0 deletions");
    }

    #[test]
    fn times_read_as_people_say_them() {
        for (millis, text) in [
            (0, "0ms"),
            (950, "950ms"),
            (1000, "1.0s"),
            (59_999, "59.9s"),
            (60_000, "1m00s"),
            (3_723_000, "1h02m"),
        ] {
            assert_eq!(duration(millis), text);
        }
    }
}
