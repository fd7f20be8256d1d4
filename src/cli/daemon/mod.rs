//! `push daemon`: the life of the daemon itself.

mod logs;
mod start;
mod status;
mod stop;

use clap::{Args, Subcommand};

use super::Serve;
use super::context::Context;
use super::exit::{CliError, Exit};
use crate::client::Announcement;

/// Run, start, stop or look at the daemon
#[derive(Debug, Args)]
#[command(after_help = "\
Nobody needs to start it: every verb does so when it is missing.

Examples:
  push daemon status
  push daemon stop
  push daemon run                 in the foreground, as a service does")]
pub(crate) struct DaemonArgs {
    #[command(subcommand)]
    pub(crate) verb: DaemonVerb,
}

/// What may be done with the daemon.
#[derive(Debug, Subcommand)]
pub(crate) enum DaemonVerb {
    Run(ServeArgs),
    Start(start::StartArgs),
    Stop(stop::StopArgs),
    Restart(stop::RestartArgs),
    Status(status::StatusArgs),
    Logs(logs::LogsArgs),
}

/// Be the daemon, in the foreground
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  push daemon run\n  PUSHD_SOCKET=$HOME/other/pushd.sock push daemon run")]
pub(crate) struct ServeArgs {
    /// Tell the client at the other end of standard output when it listens
    #[arg(long, hide = true)]
    announce: bool,
}

impl ServeArgs {
    /// Returns what the daemon is to be told.
    pub(crate) fn serve(&self) -> Serve {
        Serve { announcement: self.announce.then(Announcement::promised) }
    }
}

/// Stops the daemon, if one runs, and waits until it is gone.
pub(crate) async fn stop(force: bool, context: &mut Context) -> Result<(), CliError> {
    stop::run(stop::StopArgs::new(force), context).await.map(drop)
}

/// Does what is asked of the daemon; being it is not for here.
pub(crate) async fn run(args: DaemonArgs, context: &mut Context) -> Result<Exit, CliError> {
    match args.verb {
        // It was dealt with before there was a runtime: the daemon has its own.
        DaemonVerb::Run(_) => Ok(Exit::FAILURE),
        DaemonVerb::Start(args) => start::run(args, context).await,
        DaemonVerb::Stop(args) => stop::run(args, context).await,
        DaemonVerb::Restart(args) => stop::restart(args, context).await,
        DaemonVerb::Status(args) => status::run(args, context).await,
        DaemonVerb::Logs(args) => logs::run(args, context).await,
    }
}
