//! `push send`: starts a run in a session and exits.

use serde_json::json;
use ulid::Ulid;

use super::context::Context;
use super::exit::{CliError, Exit};
use super::sanitize::sanitize_line;
use super::{ids, message};
use crate::client::{Request, RunReply};

/// Send a message to a session and exit; the run continues
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  push send @last 'now the tests'\n  push send @last @plan.md && push wait @last")]
pub(crate) struct SendArgs {
    /// The session
    session: String,
    /// The message; `-` reads standard input, `@FILE` a file
    message: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Sends a message.
pub(crate) async fn run(args: SendArgs, context: &mut Context) -> Result<Exit, CliError> {
    let text = message::read(&args.message)?;
    let mut client = context.client().await?;
    let session = ids::resolve_session(&mut client, &args.session).await?;
    let request = Request::send_user_message(&session, &new_message_id(), &text).with_environment(client.environment());
    let reply = client.request(request).await?;
    print_run(&session, &reply, args.json, context)
}

/// Prints the run that a message belongs to.
pub(crate) fn print_run(
    session: &str,
    reply: &RunReply,
    as_json: bool,
    context: &mut Context,
) -> Result<Exit, CliError> {
    let run = &reply.run_id;
    if as_json {
        context.console.json(&json!({"sessionId": session, "runId": run}))?;
    } else {
        context.console.line(&sanitize_line(run))?;
    }
    Ok(Exit::SUCCESS)
}

/// Generates the id of a message, which is also its idempotency key.
pub(crate) fn new_message_id() -> String {
    format!("msg_{}", Ulid::generate())
}
