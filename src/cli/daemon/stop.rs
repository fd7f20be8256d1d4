//! `push daemon stop` and `push daemon restart`: drain the daemon and wait for its exit.

use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, interval, sleep, timeout};

use super::start;
use crate::cli::context::Context;
use crate::cli::exit::{CliError, Exit};
use crate::cli::input::InputLines;
use crate::client::{Client, Request, kill_process, process_is_alive};

/// Stop the daemon: no new runs start, and active runs may finish
#[derive(Debug, Args)]
#[command(after_help = "\
Active runs may continue for 10 seconds (PUSH_GRACE_SECONDS of the daemon). Then the command asks at a terminal; without one, running steps are stopped and \
reported as stopped. Attached clients wait for the next start. Pending approvals are still pending after the next start.

Examples:
  push daemon stop
  push daemon stop --grace 5m
  push daemon stop --now")]
pub(crate) struct StopArgs {
    /// Grace period for active runs [default: 10s, or PUSH_GRACE_SECONDS of the daemon]
    #[arg(long, value_name = "DURATION", value_parser = crate::cli::duration::limit, conflicts_with_all = ["now", "force"])]
    grace: Option<Duration>,
    /// Stop at once; running steps are stopped
    #[arg(long)]
    now: bool,
    /// Stop at once, and kill the daemon if it does not exit
    #[arg(long, short)]
    force: bool,
}

impl StopArgs {
    /// Returns the arguments to stop at once or after active runs have finished.
    pub(super) const fn new(force: bool) -> Self {
        Self { grace: None, now: false, force }
    }
}

/// Stop the daemon like `stop` and start it again
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  push daemon restart")]
pub(crate) struct RestartArgs {
    #[command(flatten)]
    stop: StopArgs,
}

/// How long the daemon may take to stop before it is killed.
const FORCE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the process may take to exit after it has closed its connections.
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);
/// How often to check whether the process is alive.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How often progress is printed.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// How long the daemon waits for an answer to the prompt before it stops running steps.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The grace period if the user chose to wait for the runs.
const LONGEST_GRACE: Duration = Duration::from_secs(7 * 24 * 3600);

/// The prompt whether to stop active runs.
struct StopPrompt {
    /// When to prompt: after the grace period.
    after: Duration,
    /// The input for the answer.
    input: InputLines,
}

/// Stops the daemon and waits until its process has exited.
pub(super) async fn run(args: StopArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = match context.client_if_running().await {
        Ok(client) => client,
        Err(error) if error.is_not_running() => {
            context.console.note("pushd is not running");
            return Ok(Exit::SUCCESS);
        }
        Err(error) => return Err(error),
    };
    let metrics = client.request(Request::metrics()).await?;
    let active = metrics.active_runs;
    let grace = if args.now || args.force { Some(Duration::ZERO) } else { args.grace };
    // The default is the grace period of the daemon, not that of this client's environment.
    let asked_after = grace.or_else(|| metrics.grace_ms.map(Duration::from_millis));
    // There is no prompt if no run is active, or if an older daemon does not report its grace period.
    let question = match asked_after {
        Some(after) if !args.now && !args.force && active.is_some_and(|count| count > 0) => {
            InputLines::start(&context.console).map(|typed| StopPrompt { after, input: typed })
        }
        Some(_) | None => None,
    };
    // The daemon waits for the answer, but no longer than `ANSWER_TIMEOUT`.
    let until_ended = match &question {
        Some(question) => Some(question.after.saturating_add(ANSWER_TIMEOUT)),
        None => grace,
    };
    client.request(Request::drain(until_ended.map(millis))).await?;
    let pid = metrics.pid.unwrap_or_default();
    if args.force {
        force_stop(&mut client, pid, context).await?;
    } else {
        wait_for_close(&mut client, active, question, context).await?;
    }
    wait_for_exit(pid).await?;
    context.console.note("pushd has stopped");
    Ok(Exit::SUCCESS)
}

/// Stops the daemon and starts another.
pub(super) async fn restart(args: RestartArgs, context: &mut Context) -> Result<Exit, CliError> {
    run(args.stop, context).await?;
    start::run(start::StartArgs {}, context).await
}

/// Waits until the daemon closes the connection and prints progress. At a terminal it prompts after the grace period
/// whether to wait longer.
async fn wait_for_close(
    client: &mut Client,
    active: Option<u64>,
    question: Option<StopPrompt>,
    context: &mut Context,
) -> Result<(), CliError> {
    let began = Instant::now();
    let runs = describe_runs(active);
    let mut progress = interval(PROGRESS_INTERVAL);
    // Without an active run the daemon stops before a progress note would be useful.
    if active.is_none_or(|count| count == 0) {
        progress.tick().await;
    }
    let (grace, mut typed) = match question {
        Some(StopPrompt { after, input: typed }) => (after, Some(typed)),
        None => (Duration::ZERO, None),
    };
    let (grace_over, mut asking) = (sleep(grace), false);
    tokio::pin!(grace_over);
    loop {
        let may_ask = typed.is_some() && !asking;
        let answer = async {
            match &mut typed {
                Some(typed) if asking => typed.next().await,
                Some(_) | None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = client.closed() => return Ok(()),
            line = answer => match line.as_deref().map(str::trim) {
                // The input has ended without an answer: the daemon stops active runs after the timeout.
                None => {
                    let seconds = ANSWER_TIMEOUT.as_secs();
                    context.console.note(&format!("no answer: active runs are stopped {seconds} s after the prompt"));
                    (typed, asking) = (None, false);
                }
                Some("y" | "yes") => {
                    client.request(Request::drain(Some(0))).await?;
                    (typed, asking) = (None, false);
                }
                Some("n" | "no") => {
                    client.request(Request::drain(Some(millis(LONGEST_GRACE)))).await?;
                    (typed, asking) = (None, false);
                }
                Some(_) => context.console.prompt(STOP_PROMPT),
            },
            () = &mut grace_over, if may_ask => {
                if let Some(typed) = &mut typed {
                    typed.discard_pending();
                }
                asking = true;
                context.console.note(&format!("{runs} still active after {} s", grace.as_secs()));
                context.console.prompt(STOP_PROMPT);
            }
            _ = progress.tick(), if !asking => {
                let seconds = began.elapsed().as_secs();
                context.console.note(&format!("waiting for {runs} to finish ({seconds} s)"));
            }
        }
    }
}

/// Describes the active runs.
fn describe_runs(active: Option<u64>) -> String {
    match active {
        Some(1) => "1 run".to_owned(),
        Some(count) if count > 1 => format!("{count} runs"),
        Some(_) | None => "pushd".to_owned(),
    }
}

const STOP_PROMPT: &str = "stop active runs now? (n waits for them) [y/n]";

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Waits for the daemon to stop, then kills it. The pid cannot have been reused while the connection is open.
async fn force_stop(client: &mut Client, pid: u32, context: &Context) -> Result<(), CliError> {
    if timeout(FORCE_TIMEOUT, client.closed()).await.is_ok() {
        return Ok(());
    }
    // A killed daemon with a pid file looks like a crash, and attached clients would start a new one.
    let file = context.paths()?.address().pid;
    if std::fs::read_to_string(&file).is_ok_and(|text| text.trim() == pid.to_string()) {
        let _ = std::fs::remove_file(&file);
    }
    kill_process(pid).map_err(|source| CliError::File { action: "kill", what: format!("process {pid}"), source })
}

/// Waits until the process has exited: it closes its connections before it releases its lock.
async fn wait_for_exit(pid: u32) -> Result<(), CliError> {
    let deadline = Instant::now() + EXIT_TIMEOUT;
    while process_is_alive(pid) {
        if Instant::now() > deadline {
            return Err(CliError::StillRunning);
        }
        sleep(POLL_INTERVAL).await;
    }
    Ok(())
}
