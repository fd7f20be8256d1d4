//! `push log`: prints the events of a session.

use std::time::Duration;

use tokio::time::timeout;

use super::context::Context;
use super::exit::{CliError, Exit};
use super::ids;
use super::view::Echo;
use crate::client::{Access, Client, Event};

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
}

/// How long the daemon may send nothing before the history counts as complete.
const QUIET: Duration = Duration::from_secs(3);

/// Prints the history of a session.
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
            // The last seq may belong to an event for another subscriber only.
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

/// Attaches from the earliest retained event and returns the last seq.
///
/// If the daemon does not name the earliest seq, its snapshot replaces the lost events.
async fn attach_to_what_is_kept(client: &mut Client, session: &str) -> Result<u64, CliError> {
    let attached = client.attach(session, 0, Access::ReadOnly).await?;
    if !attached.gap {
        return Ok(attached.to);
    }
    let seen = match earliest(&client.next().await?) {
        Some(earliest) => earliest.saturating_sub(1),
        None => 0,
    };
    Ok(client.attach(session, seen, Access::ReadOnly).await?.to.max(1))
}

/// Reads the earliest retained seq from a gap warning.
fn earliest(event: &Event) -> Option<u64> {
    let (before, number) = event.text("detail").rsplit_once(' ')?;
    if event.text("code") == "EVENT_GAP" && before.ends_with("earliest retained seq is") {
        return number.parse().ok();
    }
    None
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::client::testing::{Daemon, replay, within};

    #[tokio::test]
    async fn what_is_still_kept_is_asked_for_when_the_beginning_is_gone() {
        let daemon = Daemon::new();
        let settings = daemon.settings();
        let script = async {
            let mut peer = daemon.greet("0.0.1").await;
            let first = peer.request("attach_session").await;
            peer.answer(
                &first,
                json!({"replay": {"fromSeq": 151, "toSeq": 150, "completed": false, "gap": true}}),
            )
            .await;
            peer.run_event(151, "warning", gap("Requested lastSeenSeq=0 but earliest retained seq is 140"))
                .await;
            peer.run_event(152, "session_snapshot", json!({})).await;
            let second = peer.request("attach_session").await;
            assert_eq!(second["payload"]["lastSeenSeq"], 139);
            peer.answer(&second, json!({"replay": replay(140, 150)})).await;
            peer.run_event(140, "status", json!({})).await;
            peer
        };
        let work = async {
            let mut client = Client::open(settings).await.unwrap();
            let newest = attach_to_what_is_kept(&mut client, "s").await.unwrap();
            (newest, client.next().await.unwrap().seq)
        };
        let (found, _peer) = within(async { tokio::join!(work, script) }).await;
        assert_eq!(found, (150, 140));
    }

    fn gap(detail: &str) -> Value {
        json!({"code": "EVENT_GAP", "message": "gap", "detail": detail})
    }
}
