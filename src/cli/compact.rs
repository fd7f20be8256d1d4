//! `push compact`: replaces the older part of a conversation by a summary.

use serde_json::json;

use super::context::Context;
use super::exit::{CliError, Exit};
use super::ids;
use super::sanitize::{sanitize, sanitize_line};
use crate::client::{Access, Client, Request};
use crate::kernel::event::{Compaction, ContextEvent, EventKind};

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
    let seen = client.request(Request::session_snapshot(&session)).await?.last_seq;
    client.attach(&session, seen, Access::Full).await?;
    let request = Request::compact_session(&session, args.instructions.as_deref());
    let began = client.request(request.with_environment(client.environment())).await?.seq;
    context.console.note("summarising");
    let Compaction { summary, tokens_before: before, .. } = outcome(&mut client, &session, began).await?;
    if args.json {
        context.console.json(&json!({"sessionId": session, "summary": summary, "tokensBefore": before}))?;
    } else {
        context.console.line(&sanitize(&summary))?;
        context.console.note(&format!("the conversation had about {before} tokens before"));
    }
    Ok(Exit::SUCCESS)
}

/// Waits until the compaction has succeeded or failed.
async fn outcome(client: &mut Client, session: &str, began: u64) -> Result<Compaction, CliError> {
    loop {
        let event = client.next().await?;
        if event.session != session || event.seq <= began {
            continue;
        }
        if let Some(EventKind::Context(ContextEvent::Compacted(compaction))) = event.recorded() {
            return Ok((**compaction).clone());
        }
        if let Some(EventKind::Context(ContextEvent::CompactionFailed { message, .. })) = event.recorded() {
            let message = sanitize_line(message.as_deref().unwrap_or_default());
            return Err(CliError::NotCompacted { session: session.to_owned(), message });
        }
    }
}
