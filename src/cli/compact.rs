//! `push compact`: replaces the older part of a conversation by a summary.

use serde_json::{Value, json};

use super::context::Context;
use super::exit::{CliError, Exit};
use super::format::field;
use super::ids;
use super::sanitize::{sanitize, sanitize_line};
use crate::client::{Access, Client, Event, Request};

/// Summarise the older part of a session's conversation
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The model then receives the summary in place of the older part; the stored history does not change. A conversation that becomes too \
long is summarised automatically; this command does it earlier.

Examples:
  push compact @last
  push compact @last --instructions 'keep the names of all files'")]
pub(crate) struct CompactArgs {
    /// The session
    session: String,
    /// Instructions for the summary
    #[arg(long, value_name = "TEXT")]
    instructions: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Compacts a session.
pub(crate) async fn run(args: CompactArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let session = ids::resolve_session(&mut client, &args.session).await?;
    let snapshot = client.request(Request::session_snapshot(&session)).await?;
    let seen = snapshot.get("lastSeq").and_then(Value::as_u64).unwrap_or_default();
    client.attach(&session, seen, Access::Full).await?;
    let request = Request::compact_session(&session, args.instructions.as_deref());
    let began = client.request(request.with_environment(client.environment())).await?;
    let began = began.get("seq").and_then(Value::as_u64).unwrap_or_default();
    context.console.note("summarising");
    let event = outcome(&mut client, &session, began).await?;
    if event.kind == "compaction_ended" {
        let message = sanitize_line(event.text("message"));
        return Err(CliError::NotCompacted { session, message });
    }
    let summary = field(&event.payload, "summary");
    let before = event.payload.get("tokensBefore").and_then(Value::as_u64).unwrap_or_default();
    if args.json {
        context.console.json(&json!({"sessionId": session, "summary": summary, "tokensBefore": before}))?;
    } else {
        context.console.line(&sanitize(&summary))?;
        context.console.note(&format!("the conversation had about {before} tokens before"));
    }
    Ok(Exit::SUCCESS)
}

/// Waits until the compaction has succeeded or failed.
async fn outcome(client: &mut Client, session: &str, began: u64) -> Result<Event, CliError> {
    loop {
        let event = client.next().await?;
        let ends = matches!(event.kind.as_str(), "context_compacted" | "compaction_ended");
        if event.session == session && event.seq > began && ends {
            return Ok(event);
        }
    }
}
