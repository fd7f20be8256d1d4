//! `push log`: prints the events of a session.

use std::time::Duration;

use tokio::time::timeout;

use super::context::Context;
use super::exit::{CliError, Exit};
use super::ids;
use super::view::Echo;
use crate::client::{Access, Client, Event, EventContent};

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
const SILENCE_TIMEOUT: Duration = Duration::from_secs(3);

/// Prints the history of a session.
pub(crate) async fn run(args: LogArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let session = ids::resolve_session(&mut client, &args.session).await?;
    let newest = attach_from_earliest_retained(&mut client, &session).await?;
    let mut view = context.view(Echo::Messages);
    let mut seen = 0;
    while args.follow || seen < newest {
        let event = if args.follow {
            client.next().await?
        } else {
            // The last seq may belong to an event for another subscriber only.
            match timeout(SILENCE_TIMEOUT, client.next()).await {
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
async fn attach_from_earliest_retained(client: &mut Client, session: &str) -> Result<u64, CliError> {
    let replay = client.attach(session, 0, Access::ReadOnly).await?;
    if !replay.gap {
        return Ok(replay.to_seq);
    }
    let seen = if let EventContent::Gap { earliest: Some(earliest), .. } = client.next().await?.content {
        earliest.saturating_sub(1)
    } else {
        0
    };
    Ok(client.attach(session, seen, Access::ReadOnly).await?.to_seq.max(1))
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::client::testing::{ScriptedDaemon, replay, with_timeout};

    #[tokio::test]
    async fn after_a_gap_the_log_starts_with_the_earliest_retained_event() {
        let daemon = ScriptedDaemon::new();
        let settings = daemon.config();
        let script = async {
            let mut peer = daemon.handshake("0.0.1").await;
            let first = peer.request("attach_session").await;
            peer.answer(&first, json!({"replay": {"fromSeq": 151, "toSeq": 150, "completed": false, "gap": true}}))
                .await;
            peer.run_event(151, "warning", gap("Requested lastSeenSeq=0 but earliest retained seq is 140")).await;
            peer.run_event(152, "session_snapshot", json!({})).await;
            let second = peer.request("attach_session").await;
            assert_eq!(second["payload"]["lastSeenSeq"], 139);
            peer.answer(&second, json!({"replay": replay(140, 150)})).await;
            peer.run_event(140, "status", json!({})).await;
            peer
        };
        let work = async {
            let mut client = Client::open(settings).await.unwrap();
            let newest = attach_from_earliest_retained(&mut client, "s").await.unwrap();
            (newest, client.next().await.unwrap().seq)
        };
        let (found, _peer) = with_timeout(async { tokio::join!(work, script) }).await;
        assert_eq!(found, (150, 140));
    }

    fn gap(detail: &str) -> Value {
        json!({"code": "EVENT_GAP", "message": "gap", "detail": detail})
    }
}
