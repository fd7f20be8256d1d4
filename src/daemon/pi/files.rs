//! The session files that are written: one for each session that the protocol's clients began.
//!
//! They are written from the story whenever something of the conversation has ended, whole or not at all. The journal
//! stays the truth; a file is what other programs read.

use std::path::PathBuf;
use std::sync::Arc;

use tracing::warn;

use super::bureau::Bureau;
use super::connection::Peer;
use super::seat::Seat;
use crate::adapter::pi::encode::iso;
use crate::adapter::pi::story::{self, Role, Story};
use crate::daemon::mint;
use crate::kernel::command::Snapshot;
use crate::kernel::id::{CallId, MessageId, RunId, Seq, SessionId};
use crate::sessionfile::store::Store;
use crate::sessionfile::{self, Change, Entry, Header, Names, Stored};

/// Fresh names for what is taken in from a file.
pub(super) struct Minted;

impl Names for Minted {
    fn run(&mut self) -> RunId {
        mint::run()
    }

    fn message(&mut self) -> MessageId {
        mint::message()
    }

    fn said(&mut self) -> MessageId {
        mint::assistant_message()
    }

    fn call(&mut self) -> CallId {
        mint::call()
    }
}

/// How sessions of the protocol's clients are marked.
pub(super) const MODE: &str = "pi";

/// Returns the file of a session; those that others began have none.
pub(super) fn path(store: &Store, session: &SessionId, snapshot: &Snapshot) -> Option<PathBuf> {
    let own = snapshot.opening.mode == MODE;
    own.then(|| store.path_for(snapshot.opening.cwd.as_ref(), session.as_str(), snapshot.opened_at))
}

/// Writes the file of a session whenever there is something new to write, as long as the seat is taken.
pub(super) async fn keep(bureau: Arc<Bureau>, seat: Arc<Seat>) {
    let nobody = Peer { environment: None, cwd: String::new() };
    while seat.unsaved().await {
        let Ok((snapshot, _)) = bureau.describe(&seat, None, &nobody).await else { continue };
        let store = bureau.store();
        let Some(path) = path(&store, seat.session(), &snapshot) else { return };
        let session = seat.session().clone();
        let written = seat.tell(entries);
        let write = move || {
            let (header, mut entries) = (header(&session, &snapshot), written?);
            entries.extend(closing(&entries, &snapshot));
            store.prepare().map_err(|error| error.to_string())?;
            store.write(&path, &header, &entries).map_err(|error| error.to_string())
        };
        let failed = match tokio::task::spawn_blocking(write).await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error,
            Err(_) => "the daemon failed while it was written".to_owned(),
        };
        warn!(session = %seat.session(), error = %failed, "the file of a session could not be written");
    }
}

/// Tells whether a file holds the conversation that a session tells.
pub(super) fn same_conversation(seat: &Seat, stored: &Stored) -> bool {
    let Ok(own) = seat.tell(entries) else { return false };
    let messages = |entries: &[Entry]| -> Vec<Change> {
        let told = entries.iter().map(|entry| entry.change.clone());
        told.filter(|change| matches!(change, Change::Message(_) | Change::Compaction { .. })).collect()
    };
    let branch: Vec<_> = stored.branch().into_iter().cloned().collect();
    messages(&own) == messages(&branch)
}

fn header(session: &SessionId, snapshot: &Snapshot) -> Header {
    Header::new(session.as_str(), snapshot.opening.cwd.as_str(), snapshot.opened_at)
}

/// Returns the conversation as entries: its messages are written in a file as they are told.
fn entries(story: &Story) -> Result<Vec<Entry>, String> {
    let mut text = String::from(
        "{\"type\":\"session\",\"version\":3,\"id\":\"x\",\"timestamp\":\"1970-01-01T00:00:00.000Z\",\"cwd\":\"/\"}\n",
    );
    let mut parent: Option<String> = None;
    for entry in story.entries() {
        let (id, at) = (entry.id(), iso(entry.at));
        let before = serde_json::to_string(&parent).unwrap_or_default();
        let line = match &entry.role {
            Role::CompactionSummary { tokens_before, kept_from } => {
                let summary: serde_json::Value = serde_json::from_str(&entry.json).unwrap_or_default();
                let first_kept = first_kept(story, *kept_from);
                serde_json::json!({
                    "type": "compaction", "id": id, "parentId": parent, "timestamp": at,
                    "summary": summary["summary"], "firstKeptEntryId": first_kept, "tokensBefore": tokens_before,
                })
                .to_string()
            }
            Role::User | Role::Assistant { .. } | Role::ToolResult | Role::BashExecution => {
                let message = &entry.json;
                format!(
                    "{{\"type\":\"message\",\"id\":\"{id}\",\"parentId\":{before},\"timestamp\":\"{at}\",\"message\":{message}}}"
                )
            }
        };
        text.push_str(&line);
        text.push('\n');
        parent = Some(id);
    }
    let stored = sessionfile::parse(text.as_bytes(), &sessionfile::Limits::default());
    Ok(stored.map_err(|error| error.to_string())?.entries)
}

/// Returns the first entry that is told word by word behind a summary.
fn first_kept(story: &Story, kept_from: Seq) -> String {
    let kept = |entry: &&story::Entry| {
        entry.seq >= kept_from && !matches!(entry.role, Role::CompactionSummary { .. })
    };
    story.entries().find(kept).map(story::Entry::id).unwrap_or_default()
}

/// Returns what is said at the end of a file: who answers, how much it thinks, and the session's name.
fn closing(entries: &[Entry], snapshot: &Snapshot) -> Vec<Entry> {
    let model = snapshot
        .model()
        .map(|model| Change::Model { provider: snapshot.provider().to_owned(), model: model.clone() });
    let thinking = snapshot.adjusted.thinking.clone().map(|level| Change::Thinking { level });
    let name = snapshot.name.clone().map(|name| Change::Name(Some(name)));
    let mut parent = entries.last().map(|entry| entry.id.clone());
    let mut closing = Vec::new();
    for (id, change) in [("model", model), ("thinking", thinking), ("name", name)] {
        if let Some(change) = change {
            let entry = Entry { id: id.to_owned(), parent, at: snapshot.updated_at, change };
            parent = Some(entry.id.clone());
            closing.push(entry);
        }
    }
    closing
}
