//! `push cancel`: cancels the active run of a session.

use super::context::Context;
use super::exit::{CliError, Exit};
use super::ids;
use crate::client::Request;

/// Cancel the active run of a session
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  push cancel @last\n  push cancel @last && push wait @last")]
pub(crate) struct CancelArgs {
    /// The session
    session: String,
}

/// Cancels the active run.
pub(crate) async fn run(args: CancelArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let session = ids::resolve_session(&mut client, &args.session).await?;
    let reply = client.request(Request::cancel_run(&session, None)).await;
    reply.map_err(|error| CliError::in_session(error, &session))?;
    context.console.note("cancelling the run");
    Ok(Exit::SUCCESS)
}
