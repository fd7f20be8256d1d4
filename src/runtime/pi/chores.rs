//! What a bureau does unasked: it wakes the book, forgets what was deleted, and says that the daemon is about to end.

use std::sync::Arc;

use tokio::sync::broadcast::{self, error::RecvError};
use tracing::warn;

use super::bureau::Bureau;
use crate::kernel::command_log::Input;
use crate::protocol::pi::encode;
use crate::runtime::services::SessionChange;

/// Wakes the book when it wants to be.
pub(super) async fn wake(bureau: Arc<Bureau>) {
    let clock = bureau.server().hub().services().clock;
    loop {
        let next = bureau.next_deadline();
        tokio::select! {
            () = clock.sleep_until(next) => bureau.input(Input::Deadline),
            () = bureau.sooner() => {}
            () = bureau.parting() => return,
        }
    }
}

/// Forgets what was answered about sessions that are deleted, and tells everybody that they are gone.
pub(super) async fn forget_deleted(bureau: Arc<Bureau>) {
    let mut deleted = bureau.server().hub().services().deleted.subscribe();
    loop {
        match deleted.recv().await {
            Ok(session) => {
                bureau.input(Input::SessionDeleted(session.clone()));
                bureau.breaker().forget(&session);
                let active = bureau.sessions().remove(&session);
                if bureau.seats().remove(&session).is_some() || active {
                    bureau.tell_all(&encode::session_deleted(&session));
                }
            }
            Err(RecvError::Lagged(missed)) => {
                warn!(missed, "deleted sessions are remembered longer");
                catch_up(&bureau).await;
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// Tells everybody of sessions that other protocols open, and of those that they end.
pub(super) async fn announce_sessions(bureau: Arc<Bureau>, mut changes: broadcast::Receiver<SessionChange>) {
    loop {
        let session = match changes.recv().await {
            Ok(SessionChange::Opened(session)) => session,
            Ok(SessionChange::Ended(session)) => {
                bureau.sessions().remove(&session);
                // Of one that was deleted everybody was told.
                if let Ok(Some(entry)) = bureau.entry(&session).await
                    && !entry.is_unloaded()
                {
                    bureau.tell_all(&encode::session_deleted(&session));
                }
                continue;
            }
            Err(RecvError::Lagged(missed)) => {
                warn!(missed, "sessions were opened or ended that clients were not told of");
                catch_up(&bureau).await;
                continue;
            }
            Err(RecvError::Closed) => return,
        };
        // Those of this protocol are announced after the answer to whoever created them.
        if let Ok(Some(entry)) = bureau.entry(&session).await
            && entry.is_loaded()
            && !entry.is_own()
        {
            bureau.tell_all(&encode::session_created(&session, &bureau.listed_info(&entry).await));
        }
    }
}

/// Looks at which sessions are still active, after changes of them were missed.
async fn catch_up(bureau: &Bureau) {
    if let Err(error) = bureau.forget_inactive().await {
        warn!(%error, "sessions that have ended may count as active until the daemon starts again");
    }
}

/// Tells everybody when the daemon is asked to stop, and takes nothing more.
pub(super) async fn announce_the_end(bureau: Arc<Bureau>) {
    let world = bureau.server().hub().services();
    world.draining.wait().await;
    let grace = u64::try_from(world.limits.grace_period.as_millis()).unwrap_or(u64::MAX);
    bureau.tell_all(&encode::server_shutdown("graceful_shutdown", Some(grace)));
    bureau.input(Input::ShuttingDown);
}
