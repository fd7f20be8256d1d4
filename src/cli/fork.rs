//! `push fork`: starts a session with the conversation of another.

use serde_json::json;
use ulid::Ulid;

use super::context::Context;
use super::exit::{CliError, Exit};
use super::ids;
use crate::client::Request;

/// Start a session with the conversation of another
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The fork has the messages of the session up to the given event, its settings and its directory, but no approvals. The session itself \
does not change. Prints the id of the fork.

Examples:
  push fork @last
  push fork @last --at 42 --name 'another way'")]
pub(crate) struct ForkArgs {
    /// The session
    session: String,
    /// The last event that the fork has, as `push log --jsonl` numbers them; by default the newest
    #[arg(long, value_name = "SEQ")]
    at: Option<u64>,
    /// The name of the fork; by default that of the session
    #[arg(long)]
    name: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Forks a session.
pub(crate) async fn run(args: ForkArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let session = ids::resolve_session(&mut client, &args.session).await?;
    let key = format!("key_{}", Ulid::generate());
    let request = Request::fork_session(&session, &key).with("atSeq", args.at).with("name", args.name);
    let fork = client.request(request).await?.session_id;
    if args.json {
        context.console.json(&json!({"sessionId": fork, "parentSessionId": session}))?;
    } else {
        context.console.line(&fork)?;
    }
    Ok(Exit::SUCCESS)
}
