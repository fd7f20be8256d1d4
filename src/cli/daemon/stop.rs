//! `push daemon stop` and `push daemon restart`: lets what runs finish, then the daemon goes.

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::time::{Instant, interval, sleep, timeout};

use super::start;
use crate::cli::context::Context;
use crate::cli::exit::{CliError, Exit};
use crate::cli::input::TypedLines;
use crate::client::{Client, Request, end_process, process_is_alive};

/// Stop the daemon: no new runs, those which are active may finish
#[derive(Debug, Args)]
#[command(after_help = "\
A run may go on for 10 seconds (PUSH_GRACE_SECONDS of the daemon). Then somebody at a terminal is asked; elsewhere the step that still runs is ended and
reported as stopped. Clients that watch a session wait for the next start. What waits for an approval still waits when the daemon comes back.

Examples:
  push daemon stop
  push daemon stop --grace 5m
  push daemon stop --now")]
pub(crate) struct StopArgs {
    /// How long active runs may take to finish
    #[arg(long, value_name = "DURATION", value_parser = crate::cli::duration::limit, conflicts_with_all = ["now", "force"])]
    grace: Option<Duration>,
    /// At once; steps that run are ended
    #[arg(long)]
    now: bool,
    /// At once, and kill the daemon if it does not go
    #[arg(long, short)]
    force: bool,
}

impl StopArgs {
    /// Says how to stop: at once, or when active runs have finished.
    pub(super) const fn new(force: bool) -> Self {
        Self { grace: None, now: false, force }
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
/// How long somebody at a terminal may take to answer, before running steps are ended all the same.
const ANSWER: Duration = Duration::from_secs(60);
/// How long runs may go on when somebody chose to wait for them.
const PATIENT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The question whether to end what runs.
struct Question {
    /// When it is asked: after the grace.
    after: Duration,
    /// Where the answer is typed.
    typed: TypedLines,
}

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
    let active = number("activeRuns");
    let grace = if args.now || args.force { Some(Duration::ZERO) } else { args.grace };
    // The daemon's own grace is the default, not that of this client's environment.
    let asked_after = grace.or_else(|| number("graceMs").map(Duration::from_millis));
    // The user is not asked when nothing runs, or when an earlier daemon does not report its grace.
    let question = match asked_after {
        Some(after) if !args.now && !args.force && active.is_some_and(|count| count > 0) => {
            TypedLines::start(&context.console).map(|typed| Question { after, typed })
        }
        Some(_) | None => None,
    };
    // The daemon waits for the answer, but no longer than `ANSWER`.
    let until_ended = match &question {
        Some(question) => Some(question.after.saturating_add(ANSWER)),
        None => grace,
    };
    client.ask(Request::drain(until_ended.map(millis))).await?;
    let pid = number("pid").and_then(|pid| u32::try_from(pid).ok()).unwrap_or_default();
    if args.force {
        at_once(&mut client, pid, context).await?;
    } else {
        patiently(&mut client, active, question, context).await?;
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

/// Waits until the daemon closes the connection, and says now and then for how long; somebody who types is asked after the
/// grace whether to wait longer.
async fn patiently(
    client: &mut Client,
    active: Option<u64>,
    question: Option<Question>,
    context: &mut Context,
) -> Result<(), CliError> {
    let began = Instant::now();
    let runs = describe_runs(active);
    let mut progress = interval(PROGRESS);
    // Without a run it is gone before anybody could read that it is waited for.
    if active.is_none_or(|count| count == 0) {
        progress.tick().await;
    }
    let (grace, mut typed) = match question {
        Some(Question { after, typed }) => (after, Some(typed)),
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
                // The input has ended, which is no answer: the daemon ends what runs when the time for one is over.
                None => {
                    let seconds = ANSWER.as_secs();
                    context.console.note(&format!("no answer: what still runs is ended {seconds} s after the question"));
                    (typed, asking) = (None, false);
                }
                Some("y" | "yes") => {
                    client.ask(Request::drain(Some(0))).await?;
                    (typed, asking) = (None, false);
                }
                Some("n" | "no") => {
                    client.ask(Request::drain(Some(millis(PATIENT)))).await?;
                    (typed, asking) = (None, false);
                }
                Some(_) => context.console.ask(QUESTION),
            },
            () = &mut grace_over, if may_ask => {
                if let Some(typed) = &mut typed {
                    typed.discard();
                }
                asking = true;
                context.console.note(&format!("{runs} still at work after {} s", grace.as_secs()));
                context.console.ask(QUESTION);
            }
            _ = progress.tick(), if !asking => {
                let seconds = began.elapsed().as_secs();
                context.console.note(&format!("waiting for {runs} to finish ({seconds} s)"));
            }
        }
    }
}

/// Names what is waited for.
fn describe_runs(active: Option<u64>) -> String {
    match active {
        Some(1) => "a run".to_owned(),
        Some(count) if count > 1 => format!("{count} runs"),
        Some(_) | None => "pushd".to_owned(),
    }
}

const QUESTION: &str = "end what runs now? (n waits for it) [y/n]";

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Waits a moment, then ends the process: while our connection is open, the number is its.
async fn at_once(client: &mut Client, pid: u32, context: &Context) -> Result<(), CliError> {
    if timeout(AT_ONCE, client.closed()).await.is_ok() {
        return Ok(());
    }
    // With its pid file it would seem to have crashed, and clients that watch a session would start it again.
    let file = context.paths()?.address().pid;
    if std::fs::read_to_string(&file).is_ok_and(|text| text.trim() == pid.to_string()) {
        let _ = std::fs::remove_file(&file);
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
