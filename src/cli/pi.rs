//! `push pi --stdio`: the Pi protocol over standard input and output.

use clap::Args;

use super::context::Context;
use super::exit::{CliError, Exit};
use crate::client::{BridgeOutcome, Request};

/// Use the Pi protocol over standard input and output
#[derive(Debug, Args)]
#[command(after_help = "\
One JSON object per line in both directions; standard output carries nothing else. The command exits when standard input has ended and \
all requests are answered. For WebSockets, `push daemon run --pi` or `[pi] enabled = true` opens a port.

Exit codes: 0 when the input has ended, 69 when the daemon cannot be reached or closed the connection.

Examples:
  echo '{\"id\":\"1\",\"type\":\"list_sessions\"}' | push pi --stdio")]
pub(crate) struct PiArgs {
    /// Use standard input and output
    #[arg(long, required = true)]
    stdio: bool,
}

/// Copies lines between the standard streams and the daemon.
pub(crate) async fn run(args: PiArgs, context: &mut Context) -> Result<Exit, CliError> {
    debug_assert!(args.stdio, "clap requires --stdio");
    let client = context.client().await?;
    // Without a valid current directory every session has to name its own; on another machine it is the home directory.
    let here = || std::env::current_dir().ok()?.into_os_string().into_string().ok();
    let cwd = if context.is_remote() { None } else { here() };
    let request = Request::switch_protocol("pi", cwd.as_deref()).with_environment(client.environment());
    let bridge = client.switch_protocol(request).await?;
    match bridge.relay(tokio::io::stdin(), tokio::io::stdout()).await {
        BridgeOutcome::Done => Ok(Exit::SUCCESS),
        BridgeOutcome::ConnectionLost => {
            context.console.error("pushd closed the connection");
            Ok(Exit::UNAVAILABLE)
        }
        BridgeOutcome::OutputFailed(error) => Err(error.into()),
    }
}
