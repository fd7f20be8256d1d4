//! `push log`: prints the events of a session.

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
    let history = attach_from_earliest_retained(&mut client, &session, access).await?;
    let mut view = context.view(Echo::Messages);
    let mut seen = 0;
    while args.follow || seen < history.newest {
        let event = client.next().await?;
        seen = event.seq;
        if access == Access::History && !history.is_lost && matches!(event.content, EventContent::Snapshot(_)) {
            break;
        }
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

/// The history that follows.
#[derive(Debug, PartialEq, Eq)]
struct History {
    /// The last seq.
    newest: u64,
    /// Whether a snapshot replaces it.
    is_lost: bool,
}

/// Attaches from the earliest retained event.
///
/// If the daemon does not name the earliest seq, its snapshot replaces the lost events.
async fn attach_from_earliest_retained(
    client: &mut Client,
    session: &str,
    access: Access,
) -> Result<History, CliError> {
    let replay = client.attach(session, 0, access).await?;
    if !replay.gap {
        return Ok(History { newest: replay.to_seq, is_lost: false });
    }
    let seen = if let EventContent::Gap { earliest: Some(earliest), .. } = client.next().await?.content {
        earliest.saturating_sub(1)
    } else {
        0
    };
    let replay = client.attach(session, seen, access).await?;
    Ok(History { newest: replay.to_seq.max(1), is_lost: replay.gap })
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
            let newest = attach_from_earliest_retained(&mut client, "s", Access::ReadOnly).await.unwrap();
            (newest.newest, client.next().await.unwrap().seq)
        };
        let (found, _peer) = with_timeout(async { tokio::join!(work, script) }).await;
        assert_eq!(found, (150, 140));
    }

    fn gap(detail: &str) -> Value {
        json!({"code": "EVENT_GAP", "message": "gap", "detail": detail})
    }
}
