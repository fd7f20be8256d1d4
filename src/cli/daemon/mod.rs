//! `push daemon`: the life of the daemon itself.

mod logs;
mod reload;
mod start;
mod status;
mod stop;

use std::net::SocketAddr;

use clap::{Args, Subcommand};

use super::Serve;
use super::context::Context;
use super::exit::{CliError, Exit};
use crate::client::Announcement;
use crate::config::pi::{Asked, address};

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
    Reload(reload::ReloadArgs),
}

/// Be the daemon, in the foreground
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  push daemon run\n  PUSHD_SOCKET=$HOME/other/pushd.sock push daemon run\n  push daemon run --pi             with the Pi protocol at 127.0.0.1:3141\n  push daemon run --pi=127.0.0.1:0"
)]
pub(crate) struct ServeArgs {
    /// Tell the client at the other end of standard output when it listens
    #[arg(long, hide = true)]
    announce: bool,
    #[command(flatten)]
    listen: ListenArgs,
}

/// Where the daemon listens beside its socket.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ListenArgs {
    /// Speak Pi over WebSockets, at ADDR or where the configuration has it (127.0.0.1:3141)
    ///
    /// ADDR is a port, or an IP address with a port; port 0 picks a free one, which `push daemon status` shows. An address
    /// that other machines reach needs a token (`push token new`).
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true, value_parser = address)]
    pi: Option<Option<SocketAddr>>,
}

impl ListenArgs {
    /// Returns where Pi is to be spoken.
    const fn pi(self) -> Asked {
        match self.pi {
            None => Asked::Nothing,
            Some(None) => Asked::Somewhere,
            Some(Some(address)) => Asked::At(address),
        }
    }
}

impl ServeArgs {
    /// Returns what the daemon is to be told.
    pub(crate) fn serve(&self) -> Serve {
        Serve { announcement: self.announce.then(Announcement::promised), pi: self.listen.pi() }
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
        DaemonVerb::Reload(args) => reload::run(args, context).await,
    }
}
