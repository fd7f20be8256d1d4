//! `push daemon start`: starts the daemon in the background.

use clap::Args;

use crate::cli::context::Context;
use crate::cli::exit::{CliError, Exit};
use crate::client::Request;

/// Start the daemon in the background, if it is not running
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  push daemon start")]
pub(crate) struct StartArgs {}

/// Starts the daemon.
pub(super) async fn run(_args: StartArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let metrics = client.request(Request::metrics()).await?;
    let pid = metrics.pid.unwrap_or_default();
    context.console.note(&format!("pushd is running (pid {pid})"));
    Ok(Exit::SUCCESS)
}
