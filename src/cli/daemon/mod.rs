//! `push daemon`: runs, starts, stops and inspects the daemon.

mod logs;
mod reload;
mod start;
mod status;
mod stop;

use std::net::SocketAddr;

use clap::{Args, Subcommand};

use super::ServeOptions;
use super::context::Context;
use super::exit::{CliError, Exit};
use crate::client::Announcement;
use crate::config::listener::{ListenRequest, parse_address};

/// Run, start, stop or inspect the daemon
#[derive(Debug, Args)]
#[command(after_help = "\
Commands that need the daemon start it automatically.

Examples:
  push daemon status
  push daemon stop
  push daemon run                 in the foreground, as a service does")]
pub(crate) struct DaemonArgs {
    #[command(subcommand)]
    pub(crate) verb: DaemonVerb,
}

/// The verbs of `push daemon`.
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

/// Run the daemon in the foreground
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  push daemon run\n  PUSHD_SOCKET=$HOME/other/pushd.sock push daemon run\n  push daemon run --pi             with the Pi protocol at 127.0.0.1:3141\n  push daemon run --pi=127.0.0.1:0\n  push daemon run --http           with all protocols at 127.0.0.1:3140"
)]
pub(crate) struct ServeArgs {
    /// Write a status line to standard output when the daemon listens
    #[arg(long, hide = true)]
    announce: bool,
    #[command(flatten)]
    listen: ListenArgs,
}

/// Where the daemon listens besides its socket.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ListenArgs {
    /// Serve the Pi protocol over WebSockets at ADDR; default: the configured address (127.0.0.1:3141)
    ///
    /// ADDR is a port, or an IP address with a port; port 0 selects a free one, which `push daemon status` shows. An
    /// address that other machines can reach requires a token (`push token new`).
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true, value_parser = parse_address)]
    pi: Option<Option<SocketAddr>>,
    /// Serve all protocols over WebSockets at ADDR, each at its path (/push, /pi); default: the configured address
    /// (127.0.0.1:3140)
    ///
    /// ADDR and the access rules are those of --pi.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true, value_parser = parse_address)]
    http: Option<Option<SocketAddr>>,
}

/// Returns what an option requests.
const fn listen_request(option: Option<Option<SocketAddr>>) -> ListenRequest {
    match option {
        None => ListenRequest::FromConfig,
        Some(None) => ListenRequest::Enabled,
        Some(Some(address)) => ListenRequest::At(address),
    }
}

impl ServeArgs {
    /// Returns the options for the daemon.
    pub(crate) fn serve(&self) -> ServeOptions {
        let (pi, http) = (listen_request(self.listen.pi), listen_request(self.listen.http));
        ServeOptions { announcement: self.announce.then(Announcement::on_stdout), pi, http }
    }
}

/// Stops the daemon if it is running, and waits until its process has exited.
pub(crate) async fn stop(force: bool, context: &mut Context) -> Result<(), CliError> {
    stop::run(stop::StopArgs::new(force), context).await.map(drop)
}

/// Runs a verb of `push daemon`, except `run`.
pub(crate) async fn run(args: DaemonArgs, context: &mut Context) -> Result<Exit, CliError> {
    match args.verb {
        // Handled in `cli::main` before the client's runtime is created: the daemon has its own.
        DaemonVerb::Run(_) => Ok(Exit::FAILURE),
        DaemonVerb::Start(args) => start::run(args, context).await,
        DaemonVerb::Stop(args) => stop::run(args, context).await,
        DaemonVerb::Restart(args) => stop::restart(args, context).await,
        DaemonVerb::Status(args) => status::run(args, context).await,
        DaemonVerb::Logs(args) => logs::run(args, context).await,
        DaemonVerb::Reload(args) => reload::run(args, context).await,
    }
}
