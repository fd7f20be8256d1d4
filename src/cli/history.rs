//! Reads the history of a session from its first event that still exists.

use super::exit::CliError;
use crate::client::{Access, Client, Event, EventContent};

/// Reads the events that a session has now.
#[derive(Debug)]
pub(crate) struct HistoryReader {
    history: History,
    access: Access,
    seen: u64,
}

impl HistoryReader {
    /// Attaches to a session.
    pub(crate) async fn open(client: &mut Client, session: &str, access: Access) -> Result<Self, CliError> {
        let history = attach_from_earliest_retained(client, session, access).await?;
        Ok(Self { history, access, seen: 0 })
    }

    /// Returns the next event; none at the end of the history.
    pub(crate) async fn next(&mut self, client: &mut Client) -> Result<Option<Event>, CliError> {
        if self.seen >= self.history.newest {
            return Ok(None);
        }
        let event = client.next().await?;
        self.seen = event.seq;
        let ends = self.access == Access::History && !self.history.is_lost;
        Ok(Some(event).filter(|event| !(ends && matches!(event.content, EventContent::Snapshot(_)))))
    }
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
