//! `push daemon reload`: makes the daemon read the login shell's environment again.

use clap::Args;

use crate::cli::context::Context;
use crate::cli::exit::{CliError, Exit};
use crate::cli::sanitize::sanitize_line;
use crate::client::Request;

/// Read the environment of your login shell again
#[derive(Debug, Args)]
#[command(after_help = "\
Network clients (Pi over a WebSocket) send no environment; their runs use that of your login shell, which the daemon \
reads once. Active runs keep their environment. The configuration needs no reload: every run reads it.

Examples:
  push daemon reload")]
pub(crate) struct ReloadArgs {}

/// Reloads.
pub(super) async fn run(_args: ReloadArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let reply = client.request(Request::reload()).await?;
    context.console.note(&format!("read {} environment variables", reply.variables));
    if let Some(reason) = reply.warning {
        context.console.error(&sanitize_line(&reason));
        return Ok(Exit::FAILURE);
    }
    Ok(Exit::SUCCESS)
}
