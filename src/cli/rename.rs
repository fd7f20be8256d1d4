//! `push rename`: renames a session.

use super::context::Context;
use super::exit::{CliError, Exit};
use super::ids;
use crate::client::Request;

/// Rename a session
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  push rename @last 'release 1.4'")]
pub(crate) struct RenameArgs {
    /// The session
    session: String,
    /// Its new name
    name: String,
}

/// Renames a session.
pub(crate) async fn run(args: RenameArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let session = ids::resolve_session(&mut client, &args.session).await?;
    client.request(Request::rename_session(&session, &args.name)).await?;
    context.console.note("session renamed");
    Ok(Exit::SUCCESS)
}
