//! `push end`: ends a session, so that it accepts no more messages.

use super::context::Context;
use super::exit::{CliError, Exit};
use super::ids;
use crate::client::Request;

/// End a session: it stays readable and accepts no more messages
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  push end @last")]
pub(crate) struct EndArgs {
    /// The session
    session: String,
}

/// Ends a session.
pub(crate) async fn run(args: EndArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let session = ids::resolve_session(&mut client, &args.session).await?;
    client.request(Request::end_session(&session)).await?;
    context.console.note("session ended");
    Ok(Exit::SUCCESS)
}
