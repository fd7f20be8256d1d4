//! `push log`: what happened in a session.

use std::time::Duration;

use tokio::time::timeout;

use super::context::Context;
use super::exit::{CliError, Exit};
use super::ids;
use super::view::Echo;
use crate::client::{Access, Client, Event};

/// Show what happened in a session
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  push log @last\n  push log @last --jsonl | jq -r 'select(.type==\"tool_call\").payload.args'\n  push log @last --follow"
)]
pub(crate) struct LogArgs {
    /// The session
    #[arg(default_value = "@last")]
    session: String,
    /// Every event as a line of JSON
    #[arg(long)]
    jsonl: bool,
    /// Go on with what happens
    #[arg(long, short)]
    follow: bool,
}

/// How long the daemon may be silent before what it has sent is all there is.
const QUIET: Duration = Duration::from_secs(3);

/// Shows the history of a session.
pub(crate) async fn run(args: LogArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let session = ids::session(&mut client, &args.session).await?;
    let newest = attach_to_what_is_kept(&mut client, &session).await?;
    let mut view = context.view(Echo::Messages);
    let mut seen = 0;
    while args.follow || seen < newest {
        let event = if args.follow {
            client.next().await?
        } else {
            // The newest number may be one that was given to another listener alone.
            match timeout(QUIET, client.next()).await {
                Ok(event) => event?,
                Err(_) => break,
            }
        };
        seen = event.seq;
        if args.jsonl {
            context.console.raw_json(&event.line)?;
        } else {
            show(&mut view, &event, context)?;
        }
    }
    let rest = view.end_line();
    context.console.text(&rest)?;
    Ok(Exit::SUCCESS)
}

fn show(view: &mut super::view::View, event: &Event, context: &mut Context) -> Result<(), CliError> {
    let text = view.event(event);
    Ok(context.console.text(&text)?)
}

/// Attaches from the first event that is still kept, and returns the newest.
async fn attach_to_what_is_kept(client: &mut Client, session: &str) -> Result<u64, CliError> {
    let attached = client.attach(session, 0, Access::ReadOnly).await?;
    if !attached.gap || attached.from < 2 {
        return Ok(attached.to);
    }
    Ok(client.attach(session, attached.from - 1, Access::ReadOnly).await?.to)
}
