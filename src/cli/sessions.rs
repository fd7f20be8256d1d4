//! `push sessions`: lists the sessions.

use serde_json::{Value, json};

use super::console::Style;
use super::context::{Context, now};
use super::exit::{CliError, Exit};
use super::format::{field, pad, truncate, width};
use super::ids;
use super::sanitize::sanitize_line;
use crate::client::Request;

/// List the sessions, latest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  push sessions\n  push sessions --all --json | jq -r '.sessions[].sessionId'")]
pub(crate) struct SessionsArgs {
    /// List all sessions, not only the latest 20
    #[arg(long)]
    all: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How many sessions one request lists.
const PAGE: u64 = 100;
/// How many sessions are listed without `--all`.
const LATEST: u64 = 20;

/// Lists the sessions.
pub(crate) async fn run(args: SessionsArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let mut answer = client.request(Request::list_sessions(if args.all { PAGE } else { LATEST })).await?;
    let mut sessions = answer["sessions"].as_array().cloned().unwrap_or_default();
    while args.all
        && let Some(cursor) = answer.get("nextCursor").filter(|cursor| !cursor.is_null()).cloned()
    {
        answer = client.request(Request::list_sessions(PAGE).with("cursor", cursor)).await?;
        sessions.extend(answer["sessions"].as_array().cloned().unwrap_or_default());
    }
    let sessions = Value::Array(sessions);
    if args.json {
        context.console.json(&json!({ "sessions": sessions }))?;
        return Ok(Exit::SUCCESS);
    }
    let table = table(&sessions, context);
    context.console.text(&table)?;
    if table.is_empty() {
        context.console.note("no sessions yet; `push run MESSAGE` starts one");
    } else if answer.get("nextCursor").is_some_and(|cursor| !cursor.is_null()) {
        context.console.note("more sessions exist; `push sessions --all` lists them");
    }
    Ok(Exit::SUCCESS)
}

/// Returns the sessions as a table.
pub(crate) fn table(sessions: &Value, context: &Context) -> String {
    let now = now();
    let palette = context.console.palette;
    let items = sessions.as_array().map(Vec::as_slice).unwrap_or_default();
    let ids = ids::column(sessions, "sessionId");
    let rows: Vec<[String; 4]> = items.iter().zip(ids::handles(&ids)).map(|(item, id)| row(item, &id, now)).collect();
    let columns = |column: usize| rows.iter().map(|row| width(&row[column])).max().unwrap_or_default();
    let widths = [0, 1, 2].map(columns);
    let mut lines = String::new();
    for [id, state, age, title] in &rows {
        let style = match state.as_str() {
            "awaiting_approval" => Style::Attention,
            "failed" => Style::Bad,
            "running" => Style::Good,
            _ => Style::Faint,
        };
        let state = palette.paint(style, &pad(state, widths[1]));
        // An age is ASCII.
        lines += format!("{}  {state}  {age:>1$}  {title}", pad(id, widths[0]), widths[2]).trim_end();
        lines.push('\n');
    }
    lines
}

fn row(item: &Value, id: &str, now: u64) -> [String; 4] {
    let updated = item.get("updatedAt").and_then(Value::as_u64).unwrap_or_default();
    let named = field(item, "name");
    let title = if named.is_empty() { field(item, "lastUserMessage") } else { named };
    let place = field(item, "cwd");
    let title = truncate(&sanitize_line(&title), 60);
    let place = sanitize_line(&place);
    [
        sanitize_line(id),
        sanitize_line(&field(item, "state")),
        age(now.saturating_sub(updated)),
        if title.is_empty() { place } else { format!("{title}  {place}") },
    ]
}

/// Formats an age.
pub(crate) fn age(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_a_name_or_the_last_message_and_the_directory() {
        let item = json!({"sessionId": "sess_1", "state": "idle", "updatedAt": 1000, "cwd": "/p",
            "lastUserMessage": "fix\nit \u{1b}[2J"});
        assert_eq!(row(&item, "sess_1", 91_000), ["sess_1", "idle", "1m", "fix it  /p"].map(str::to_owned));
        let named = json!({"sessionId": "sess_1", "name": "x", "lastUserMessage": "y"});
        assert_eq!(row(&named, "sess_1", 0)[3], "x  ");
    }

    #[test]
    fn ages_are_short() {
        assert_eq!([59_000, 60_000, 7_200_000, 172_800_000].map(age), ["59s", "1m", "2h", "2d"]);
    }
}
