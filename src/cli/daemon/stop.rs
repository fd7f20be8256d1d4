//! `push daemon stop` and `push daemon restart`: lets what runs finish, then the daemon goes.

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::time::{Instant, interval, sleep, timeout};

use super::start;
use crate::cli::context::Context;
use crate::cli::exit::{CliError, Exit};
use crate::client::{Client, Request, end_process, process_is_alive};

/// Stop the daemon: no new runs, those which are active may finish
#[derive(Debug, Args)]
#[command(after_help = "\
What waits for an approval still waits when the daemon comes back.

Examples:
  push daemon stop
  push daemon stop --grace 5
  push daemon stop --force")]
pub(crate) struct StopArgs {
    /// How long active runs may take to finish
    #[arg(long, value_name = "SECONDS", value_parser = crate::cli::run::seconds, conflicts_with = "force")]
    grace: Option<Duration>,
    /// At once; steps that run are cut short
    #[arg(long, short)]
    force: bool,
}

impl StopArgs {
    /// Says how to stop: at once, or when active runs have finished.
    pub(super) const fn new(force: bool) -> Self {
        Self { grace: None, force }
    }
}

/// Stop the daemon as `stop` does and start it again
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  push daemon restart")]
pub(crate) struct RestartArgs {
    #[command(flatten)]
    stop: StopArgs,
}

/// How long a daemon that was told to go at once may take.
const AT_ONCE: Duration = Duration::from_secs(5);
/// How long it may take to go after it has closed its connections.
const AFTERWARDS: Duration = Duration::from_secs(20);
/// How often the process is looked for.
const LOOK: Duration = Duration::from_millis(10);
/// How often progress is shown.
const PROGRESS: Duration = Duration::from_secs(2);

/// Stops the daemon and waits until it is gone.
pub(super) async fn run(args: StopArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = match context.client_if_running().await {
        Ok(client) => client,
        Err(error) if error.is_not_running() => {
            context.console.note("pushd is not running");
            return Ok(Exit::SUCCESS);
        }
        Err(error) => return Err(error),
    };
    let metrics = client.ask(Request::metrics()).await?;
    let number = |name| metrics.get(name).and_then(Value::as_u64);
    let grace = match (args.force, args.grace) {
        (true, _) => Some(0),
        (false, Some(grace)) => Some(u64::try_from(grace.as_millis()).unwrap_or(u64::MAX)),
        (false, None) => None,
    };
    client.ask(Request::drain(grace)).await?;
    let pid = number("pid").and_then(|pid| u32::try_from(pid).ok()).unwrap_or_default();
    if args.force {
        at_once(&mut client, pid).await?;
    } else {
        patiently(&mut client, number("activeRuns"), context).await;
    }
    gone(pid).await?;
    context.console.note("pushd has stopped");
    Ok(Exit::SUCCESS)
}

/// Stops the daemon and starts another.
pub(super) async fn restart(args: RestartArgs, context: &mut Context) -> Result<Exit, CliError> {
    run(args.stop, context).await?;
    start::run(start::StartArgs {}, context).await
}

/// Waits until the daemon closes the connection, and says now and then for how long.
async fn patiently(client: &mut Client, active: Option<u64>, context: &mut Context) {
    let began = Instant::now();
    let runs = match active {
        Some(1) => "a run".to_owned(),
        Some(count) if count > 1 => format!("{count} runs"),
        Some(_) | None => "pushd".to_owned(),
    };
    let mut progress = interval(PROGRESS);
    // Without a run it is gone before anybody could read that it is waited for.
    if active.is_none_or(|count| count == 0) {
        progress.tick().await;
    }
    let closed = client.closed();
    tokio::pin!(closed);
    loop {
        tokio::select! {
            () = &mut closed => return,
            _ = progress.tick() => {
                let seconds = began.elapsed().as_secs();
                context.console.note(&format!("waiting for {runs} to finish ({seconds} s)"));
            }
        }
    }
}

/// Waits a moment, then ends the process: while our connection is open, the number is its.
async fn at_once(client: &mut Client, pid: u32) -> Result<(), CliError> {
    if timeout(AT_ONCE, client.closed()).await.is_ok() {
        return Ok(());
    }
    end_process(pid).map_err(|source| CliError::File {
        action: "end",
        what: format!("process {pid}"),
        source,
    })
}

/// Waits until the process is gone: it closes connections before it lets go of its lock.
async fn gone(pid: u32) -> Result<(), CliError> {
    let deadline = Instant::now() + AFTERWARDS;
    while process_is_alive(pid) {
        if Instant::now() > deadline {
            return Err(CliError::StillThere);
        }
        sleep(LOOK).await;
    }
    Ok(())
}
