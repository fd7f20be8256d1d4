//! `push wait`: waits for the end of the active run and exits with its exit code.

use std::time::Duration;

use tokio::time::timeout;

use super::context::Context;
use super::exit::{CliError, Exit};
use super::report::{Progress, Report};
use super::view::Echo;
use super::{duration, ids};
use crate::client::{Access, Client, Request};

/// Wait until the active run of a session has ended
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The exit code is that of the run: 0 success, 1 failed, 2 cancelled, 3 denied, 4 acceptance failed. \
Without an active run it is that of the last run. 124 means that the timeout has expired; the run continues.

Examples:
  push wait @last
  push wait @last --timeout 10m || echo 'the run failed'")]
pub(crate) struct WaitArgs {
    /// The session
    session: String,
    /// The longest time to wait: 90s, 5m, 2h; a bare number is seconds
    #[arg(long, value_name = "DURATION", value_parser = duration::limit)]
    timeout: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Waits for the active run.
pub(crate) async fn run(args: WaitArgs, context: &mut Context) -> Result<Exit, CliError> {
    let work = async {
        let mut client = context.client().await?;
        let session = ids::resolve_session(&mut client, &args.session).await?;
        outcome(&mut client, &session).await
    };
    let report = match args.timeout {
        Some(limit) => match timeout(limit, work).await {
            Ok(report) => report?,
            Err(_) => return Ok(Exit::TIMED_OUT),
        },
        None => work.await?,
    };
    let exit = match report.progress() {
        Progress::Finished(exit) => exit,
        Progress::Running | Progress::Unknown => return Err(CliError::OutcomeLost),
    };
    if args.json {
        let mut result = report.to_json();
        if let Some(result) = result.as_object_mut() {
            // The client attached in the middle of the run, so it may have missed messages, denials and usage.
            result.remove("text");
            result.remove("denials");
            result.remove("usage");
        }
        context.console.json(&result)?;
    } else {
        let line = report.completion().map(|completion| context.view(Echo::Nothing).complete(completion));
        context.console.text(&line.unwrap_or_default())?;
    }
    Ok(exit)
}

/// Follows the active run to its end; without one, returns the report of the last run.
async fn outcome(client: &mut Client, session: &str) -> Result<Report, CliError> {
    let snapshot = client.request(Request::session_snapshot(session)).await?;
    let run = match (&snapshot.active_run_id, &snapshot.last_run) {
        (Some(run), _) => run,
        (None, Some(last)) => {
            let mut report = Report::new(session, &last.run_id);
            report.rebase(&snapshot);
            return Ok(report);
        }
        (None, None) => return Err(CliError::NoRun { session: session.to_owned() }),
    };
    let mut report = Report::new(session, run);
    client.attach(session, snapshot.last_seq, Access::ReadOnly).await?;
    while report.progress() == Progress::Running {
        let event = client.next().await?;
        if report.includes(&event) {
            report.follow(&event);
        }
    }
    Ok(report)
}
