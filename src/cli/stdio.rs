//! `push stdio`: the Push protocol over standard input and output, for a client on another machine.

use clap::Args;

use super::context::Context;
use super::exit::{CliError, Exit};
use crate::client::{BridgeOutcome, Client};

/// Use the Push protocol over standard input and output
#[derive(Debug, Args)]
#[command(after_help = "\
The other end of `push --host`, which runs this command on another machine with ssh. One JSON object per line in both directions; \
standard output carries nothing else. Its user has all rights of the owner of the daemon. Runs have the environment of the \
owner's login shell, unless a request sends another one. The daemon is started if it is not running. The command exits when \
standard input has ended and all requests are answered, or when the daemon closes the connection.

Exit codes: 0 when the input has ended, 69 when the daemon cannot be reached or closed the connection, 75 with --resume when \
the daemon was stopped.

Examples:
  echo '{\"v\":\"push.runtime.v1\",\"kind\":\"request\",\"requestId\":\"1\",\"type\":\"ping\",\"payload\":{}}' | push stdio
  ssh box push stdio")]
pub(crate) struct StdioArgs {
    /// Do not start a daemon that was stopped: a client that reconnects waits for its next start
    #[arg(long)]
    resume: bool,
}

/// Copies lines between the standard streams and the daemon.
pub(crate) async fn run(args: StdioArgs, context: &mut Context) -> Result<Exit, CliError> {
    let client = match connect(args.resume, context).await {
        Err(error) if error.is_not_running() => {
            context.console.error("pushd was stopped");
            return Ok(Exit::STOPPED);
        }
        client => client?,
    };
    let bridge = client.into_bridge().await?;
    match bridge.relay(tokio::io::stdin(), tokio::io::stdout()).await {
        BridgeOutcome::Done => Ok(Exit::SUCCESS),
        BridgeOutcome::ConnectionLost => {
            context.console.error("pushd closed the connection");
            Ok(Exit::UNAVAILABLE)
        }
        BridgeOutcome::OutputFailed(error) => Err(error.into()),
    }
}

async fn connect(resume: bool, context: &Context) -> Result<Client, CliError> {
    // A daemon that crashed has left its pid file.
    if resume && !context.paths()?.address().pid.exists() {
        return context.client_if_running().await;
    }
    context.client().await
}
