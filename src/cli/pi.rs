//! `push pi --stdio`: the Pi protocol on standard input and output.

use clap::Args;

use super::context::Context;
use super::exit::{CliError, Exit};
use crate::client::{Bridged, Request};

/// Speak the Pi protocol with the daemon on standard input and output
#[derive(Debug, Args)]
#[command(after_help = "\
One JSON object a line in both directions; standard output carries nothing else. It ends when standard input does and
everything is answered. For WebSockets, `push daemon run --pi` or `[pi] enabled = true` opens a port.

Exit codes: 0 when the input has ended, 69 when the daemon cannot be reached or went away.

Examples:
  echo '{\"id\":\"1\",\"type\":\"list_sessions\"}' | push pi --stdio")]
pub(crate) struct PiArgs {
    /// Over standard input and output
    #[arg(long, required = true)]
    stdio: bool,
}

/// Passes lines on between the standard streams and the daemon.
pub(crate) async fn run(args: PiArgs, context: &mut Context) -> Result<Exit, CliError> {
    debug_assert!(args.stdio, "there is no other way");
    let client = context.client().await?;
    // A directory that is gone, or is not text, is left to each session to say.
    let cwd = std::env::current_dir().ok().and_then(|cwd| cwd.into_os_string().into_string().ok());
    let request = Request::speak("pi", cwd.as_deref()).with_environment(client.environment());
    let bridge = client.speak(request).await?;
    match bridge.pass(tokio::io::stdin(), tokio::io::stdout()).await {
        Bridged::Done => Ok(Exit::SUCCESS),
        Bridged::Lost => {
            context.console.error("pushd closed the connection");
            Ok(Exit::UNAVAILABLE)
        }
        Bridged::Output(error) => Err(error.into()),
    }
}
