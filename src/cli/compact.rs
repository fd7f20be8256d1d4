//! `push compact`: a summary takes the place of the older part of a conversation.

use serde_json::{Value, json};

use super::context::Context;
use super::exit::{CliError, Exit};
use super::ids;
use super::phrase::field;
use super::plain::{plain, plain_line};
use crate::client::{Access, Client, Event, Request};

/// Have the model summarise the older part of a session's conversation
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The model is then told the summary in place of the older part; the history itself stays whole. A conversation that becomes too \
long is summarised without being asked; this does it earlier.

Examples:
  push compact @last
  push compact @last --instructions 'keep the names of all files'")]
pub(crate) struct CompactArgs {
    /// The session
    session: String,
    /// What the summary should heed
    #[arg(long, value_name = "TEXT")]
    instructions: Option<String>,
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

/// Compacts a session.
pub(crate) async fn run(args: CompactArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let session = ids::session(&mut client, &args.session).await?;
    let snapshot = client.ask(Request::session_snapshot(&session)).await?;
    let seen = snapshot.get("lastSeq").and_then(Value::as_u64).unwrap_or_default();
    client.attach(&session, seen, Access::Full).await?;
    let request = Request::compact_session(&session, args.instructions.as_deref());
    let began = client.ask(request.with_environment(client.environment())).await?;
    let began = began.get("seq").and_then(Value::as_u64).unwrap_or_default();
    context.console.note("summarising");
    let event = outcome(&mut client, &session, began).await?;
    if event.kind == "compaction_ended" {
        let message = plain_line(event.text("message"));
        return Err(CliError::NotCompacted { session, message });
    }
    let summary = field(&event.payload, "summary");
    let before = event.payload.get("tokensBefore").and_then(Value::as_u64).unwrap_or_default();
    if args.json {
        context.console.json(&json!({"sessionId": session, "summary": summary, "tokensBefore": before}))?;
    } else {
        context.console.line(&plain(&summary))?;
        context.console.note(&format!("the conversation had about {before} tokens"));
    }
    Ok(Exit::SUCCESS)
}

/// Waits until the summary is there, or it is known that none comes.
async fn outcome(client: &mut Client, session: &str, began: u64) -> Result<Event, CliError> {
    loop {
        let event = client.next().await?;
        let ends = matches!(event.kind.as_str(), "context_compacted" | "compaction_ended");
        if event.session == session && event.seq > began && ends {
            return Ok(event);
        }
    }
}
