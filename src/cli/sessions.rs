//! `push sessions`: lists the sessions.

use serde_json::{Value, json};

use super::console::{Console, Style};
use super::context::{Context, now};
use super::exit::{CliError, Exit};
use super::format::truncate;
use super::ids;
use super::sanitize::sanitize_line;
use super::scope::{Scope, ScopeArgs};
pub(crate) use super::session_words::{age, title};
use super::table::{Cell, Column, plain, table};
use crate::client::{Client, Request, SessionItem, SessionPage, SessionState};
use crate::kernel::command::Phase;

/// List the sessions, latest first
#[derive(Debug, clap::Args)]
#[command(
    visible_aliases = ["ls", "ps"],
    after_help = "Examples:\n  push ls --here\n  push sessions --state running --state awaiting_approval\n  push sessions --all --json | jq -r '.sessions[].sessionId'"
)]
pub(crate) struct SessionsArgs {
    /// List all sessions, not only the latest 20
    #[arg(long)]
    all: bool,
    /// Only sessions in this state; may be repeated
    #[arg(long, value_name = "STATE", value_parser = STATES)]
    state: Vec<String>,
    #[command(flatten)]
    scope: ScopeArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The states by which sessions are selected.
const STATES: [&str; 7] = ["idle", "running", "awaiting_approval", "completed", "failed", "cancelled", ENDED];
/// The state that a list shows of a session that accepts no more messages.
const ENDED: &str = "ended";
/// How many sessions one request lists.
const PAGE: u64 = 100;
/// How many sessions are listed without `--all`.
const LATEST: usize = 20;

/// Lists the sessions.
pub(crate) async fn run(args: SessionsArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let filter = Filter { scope: args.scope.resolve(&client)?, states: args.state };
    let Listing { items, sessions, more } = list(&mut client, &filter, args.all).await?;
    if args.json {
        context.console.json(&json!({ "sessions": items }))?;
        return Ok(Exit::SUCCESS);
    }
    context.console.text(&session_table(&sessions, &context.console))?;
    if sessions.is_empty() && filter == Filter::default() {
        context.console.notice("no sessions; `push run MESSAGE` starts one");
    } else if sessions.is_empty() {
        context.console.notice("no session matches; `push sessions --all` lists every one");
    } else if more {
        context.console.note("more sessions exist; `push sessions --all` lists them");
    }
    Ok(Exit::SUCCESS)
}

/// Which sessions are listed.
#[derive(Debug, PartialEq, Eq, Default)]
struct Filter {
    scope: Scope,
    states: Vec<String>,
}

impl Filter {
    fn includes(&self, item: &SessionItem) -> bool {
        (self.states.is_empty() || self.states.iter().any(|word| word == state(item))) && self.scope.includes(item)
    }

    /// Returns whether every session after this one, which are older, is excluded.
    fn ends_at(&self, item: &SessionItem) -> bool {
        self.scope.since > item.updated_at
    }
}

/// Sessions, as they are on the wire and as the client reads them.
#[derive(Debug, Default)]
struct Listing {
    items: Vec<Value>,
    sessions: Vec<SessionItem>,
    /// Whether others match.
    more: bool,
}

/// Lists the latest sessions that match, or all that do.
async fn list(client: &mut Client, filter: &Filter, all: bool) -> Result<Listing, CliError> {
    let mut listing = Listing::default();
    let mut cursor = None;
    loop {
        let request = Request::list_sessions(PAGE).with_some("cursor", cursor);
        let page: SessionPage<Value> = client.request(request.reading()).await?;
        for value in page.sessions {
            let Ok(item) = serde_json::from_value::<SessionItem>(value.clone()) else { continue };
            if filter.ends_at(&item) {
                return Ok(listing);
            }
            if !filter.includes(&item) {
                continue;
            }
            if !all && listing.sessions.len() == LATEST {
                return Ok(Listing { more: true, ..listing });
            }
            listing.items.push(value);
            listing.sessions.push(item);
        }
        if page.next_cursor.is_none() {
            return Ok(listing);
        }
        cursor = page.next_cursor;
    }
}

/// Returns the sessions as a table.
pub(crate) fn session_table(sessions: &[SessionItem], console: &Console) -> String {
    let now = now();
    let ids: Vec<String> = sessions.iter().map(|item| item.session_id.clone()).collect();
    let rows: Vec<[Cell; 5]> = sessions.iter().zip(ids::handles(&ids)).map(|(item, id)| row(item, &id, now)).collect();
    let columns = [
        Column::whole("ID"),
        Column::shortened("STATE", 9),
        Column::whole("AGE"),
        Column::shortened("NAME", 8),
        Column::dropped("DIRECTORY", 12),
    ];
    table(columns, &rows, console)
}

fn row(item: &SessionItem, id: &str, now: u64) -> [Cell; 5] {
    let style = match item.state {
        SessionState::Known(Phase::Waiting) => Style::Attention,
        SessionState::Known(Phase::Failed) => Style::Bad,
        SessionState::Known(Phase::Running) => Style::Good,
        SessionState::Known(Phase::Idle | Phase::Completed | Phase::Cancelled) | SessionState::Unknown(_) => {
            Style::Faint
        }
    };
    [
        plain(sanitize_line(id)),
        (sanitize_line(state(item)), Some(style)),
        plain(age(now.saturating_sub(item.updated_at.unwrap_or_default()))),
        plain(truncate(&sanitize_line(title(item)), 60)),
        plain(sanitize_line(&item.cwd)),
    ]
}

/// Returns the state of a session, as lists show it.
fn state(item: &SessionItem) -> &str {
    if item.ended { ENDED } else { item.state.as_str() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_a_name_or_the_last_message_and_the_directory() {
        let first = item(json!({"sessionId": "sess_1", "state": "idle", "updatedAt": 1000, "cwd": "/p",
            "lastUserMessage": "fix\nit \u{1b}[2J"}));
        let texts = |item: &SessionItem| row(item, "sess_1", 91_000).map(|(text, _)| text);
        assert_eq!(texts(&first), ["sess_1", "idle", "1m", "fix it", "/p"]);
        let named =
            item(json!({"sessionId": "sess_1", "name": "x", "lastUserMessage": "y", "state": "failed", "ended": true}));
        assert_eq!(texts(&named)[1..4], ["ended", "1m", "x"].map(str::to_owned));
    }

    fn item(item: Value) -> SessionItem {
        serde_json::from_value(item).unwrap()
    }
}
