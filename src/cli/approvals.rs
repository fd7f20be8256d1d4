//! `push approvals`: what waits for a word.

use serde_json::Value;

use super::context::{Context, now};
use super::exit::{CliError, Exit};
use super::ids;
use super::phrase::field;
use super::plain::plain_line;
use super::sessions::age;
use super::view::Echo;
use crate::client::Request;

/// List what waits for an approval
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  push approvals\n  push approvals @last --json | jq -r '.approvals[].approvalId'"
)]
pub(crate) struct ApprovalsArgs {
    /// Only of this session
    session: Option<String>,
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

/// Lists the approvals that wait.
pub(crate) async fn run(args: ApprovalsArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let session = match args.session {
        Some(typed) => Some(ids::session(&mut client, &typed).await?),
        None => None,
    };
    let answer = client.ask(Request::list_approvals(session.as_deref())).await?;
    if args.json {
        context.console.json(&answer)?;
        return Ok(Exit::SUCCESS);
    }
    let waiting = answer["approvals"].as_array().map(Vec::as_slice).unwrap_or_default();
    if waiting.is_empty() {
        context.console.note("nothing waits");
    }
    let mut view = context.view(Echo::Messages);
    for approval in waiting {
        let text = view.question(approval) + &where_and_when(approval, now());
        context.console.text(&text)?;
    }
    if !waiting.is_empty() {
        context.console.note("push approve ID, or push deny ID --comment WHY");
    }
    Ok(Exit::SUCCESS)
}

fn where_and_when(approval: &Value, now: u64) -> String {
    let session = plain_line(ids::short(&field(approval, "sessionId")));
    let expires = approval.get("expiresAt").and_then(Value::as_u64);
    let left = expires.map(|at| format!(", denied in {}", age(at.saturating_sub(now)))).unwrap_or_default();
    format!("  in {session}{left}\n")
}
