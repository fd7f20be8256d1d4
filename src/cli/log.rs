//! `push log`: prints the events of a session.

use super::context::Context;
use super::exit::{CliError, Exit};
use super::history::HistoryReader;
use super::ids;
use super::view::Echo;
use crate::client::{Access, Event};

/// Show the history of a session
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  push log @last\n  push log @last --jsonl | jq -r 'select(.type==\"tool_call\").payload.args'\n  push log @last --follow"
)]
pub(crate) struct LogArgs {
    /// The session
    #[arg(default_value = "@last")]
    session: String,
    /// Print every event as a line of JSON
    #[arg(long)]
    jsonl: bool,
    /// Keep printing new events
    #[arg(long, short)]
    follow: bool,
    /// Also show messages that participants sent to each other; the session records that you looked
    #[arg(long)]
    as_owner: bool,
}

/// Prints the history of a session.
pub(crate) async fn run(args: LogArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let session = ids::resolve_session(&mut client, &args.session).await?;
    let access = match (args.as_owner, args.follow) {
        (true, _) => Access::AsOwner,
        (false, true) => Access::ReadOnly,
        // The newest events may be for others only, so that their numbers do not tell where the history ends.
        (false, false) => Access::History,
    };
    let mut history = HistoryReader::open(&mut client, &session, access).await?;
    let mut view = context.view(Echo::Messages);
    loop {
        let event = match history.next(&mut client).await? {
            Some(event) => event,
            None if args.follow => client.next().await?,
            None => break,
        };
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
