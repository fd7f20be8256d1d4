//! `push sessions`: lists the sessions.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::console::Style;
use super::context::{Context, now};
use super::exit::{CliError, Exit};
use super::format::{pad, truncate, width};
use super::ids;
use super::sanitize::sanitize_line;
pub(crate) use super::session_words::{age, title};
use crate::client::{Client, Request, SessionItem, SessionPage, SessionState};
use crate::kernel::command::Phase;

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
    if args.json {
        let SessionPage { sessions, .. } = list::<Value>(&mut client, args.all).await?;
        context.console.json(&json!({ "sessions": sessions }))?;
        return Ok(Exit::SUCCESS);
    }
    let SessionPage { sessions, next_cursor } = list(&mut client, args.all).await?;
    let table = table(&sessions, context);
    context.console.text(&table)?;
    if table.is_empty() {
        context.console.notice("no sessions; `push run MESSAGE` starts one");
    } else if next_cursor.is_some() {
        context.console.note("more sessions exist; `push sessions --all` lists them");
    }
    Ok(Exit::SUCCESS)
}

/// Lists the latest sessions, or all of them, each as a `T`.
async fn list<T: DeserializeOwned>(client: &mut Client, all: bool) -> Result<SessionPage<T>, CliError> {
    let request = Request::list_sessions(if all { PAGE } else { LATEST });
    let mut listed: SessionPage<T> = client.request(request.reading()).await?;
    while all && let Some(cursor) = listed.next_cursor.take() {
        let request = Request::list_sessions(PAGE).with("cursor", cursor);
        let page: SessionPage<T> = client.request(request.reading()).await?;
        listed.sessions.extend(page.sessions);
        listed.next_cursor = page.next_cursor;
    }
    Ok(listed)
}

/// Returns the sessions as a table.
pub(crate) fn table(sessions: &[SessionItem], context: &Context) -> String {
    let now = now();
    let palette = context.console.palette;
    let ids: Vec<String> = sessions.iter().map(|item| item.session_id.clone()).collect();
    let rows: Vec<[String; 4]> =
        sessions.iter().zip(ids::handles(&ids)).map(|(item, id)| row(item, &id, now)).collect();
    let columns = |column: usize| rows.iter().map(|row| width(&row[column])).max().unwrap_or_default();
    let widths = [0, 1, 2].map(columns);
    let mut lines = String::new();
    for (item, [id, state, age, title]) in sessions.iter().zip(&rows) {
        let style = match item.state {
            SessionState::Known(Phase::Waiting) => Style::Attention,
            SessionState::Known(Phase::Failed) => Style::Bad,
            SessionState::Known(Phase::Running) => Style::Good,
            SessionState::Known(Phase::Idle | Phase::Completed | Phase::Cancelled) | SessionState::Unknown(_) => {
                Style::Faint
            }
        };
        let state = palette.paint(style, &pad(state, widths[1]));
        // An age is ASCII.
        lines += format!("{}  {state}  {age:>1$}  {title}", pad(id, widths[0]), widths[2]).trim_end();
        lines.push('\n');
    }
    lines
}

fn row(item: &SessionItem, id: &str, now: u64) -> [String; 4] {
    let title = truncate(&sanitize_line(title(item)), 60);
    let place = sanitize_line(&item.cwd);
    [
        sanitize_line(id),
        sanitize_line(item.state.as_str()),
        age(now.saturating_sub(item.updated_at.unwrap_or_default())),
        if title.is_empty() { place } else { format!("{title}  {place}") },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_a_name_or_the_last_message_and_the_directory() {
        let first = item(json!({"sessionId": "sess_1", "state": "idle", "updatedAt": 1000, "cwd": "/p",
            "lastUserMessage": "fix\nit \u{1b}[2J"}));
        assert_eq!(row(&first, "sess_1", 91_000), ["sess_1", "idle", "1m", "fix it  /p"].map(str::to_owned));
        let named = item(json!({"sessionId": "sess_1", "name": "x", "lastUserMessage": "y"}));
        assert_eq!(row(&named, "sess_1", 0)[3], "x  ");
    }

    fn item(item: Value) -> SessionItem {
        serde_json::from_value(item).unwrap()
    }
}
