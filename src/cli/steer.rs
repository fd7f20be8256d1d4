//! `push steer`: sends a message to the active run.

use super::context::Context;
use super::exit::{CliError, Exit};
use super::send::{new_message_id, print_run};
use super::{ids, message};
use crate::client::Request;

/// Send a message to the active run of a session
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  push steer @last 'leave the tests alone'")]
pub(crate) struct SteerArgs {
    /// The session
    session: String,
    /// The message; `-` reads standard input, `@FILE` a file
    message: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Steers the active run.
pub(crate) async fn run(args: SteerArgs, context: &mut Context) -> Result<Exit, CliError> {
    let text = message::read(&args.message)?;
    let mut client = context.client().await?;
    let session = ids::resolve_session(&mut client, &args.session).await?;
    let reply = client.request(Request::steer(&session, &new_message_id(), &text)).await;
    let reply = reply.map_err(|error| CliError::in_session(error, &session))?;
    print_run(&session, &reply, args.json, context)
}
