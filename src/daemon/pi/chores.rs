//! What a bureau does unasked: it wakes the book, forgets what was deleted, and says that the daemon is about to end.

use std::sync::Arc;

use tokio::sync::broadcast::error::RecvError;
use tracing::warn;

use super::bureau::Bureau;
use crate::adapter::pi::encode;
use crate::kernel::book::Input;

/// Wakes the book when it wants to be.
pub(super) async fn wake(bureau: Arc<Bureau>) {
    let clock = bureau.server().hub().world().clock;
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
    let mut deleted = bureau.server().hub().world().deleted.subscribe();
    loop {
        match deleted.recv().await {
            Ok(session) => {
                bureau.input(Input::Erased(session.clone()));
                bureau.breaker().forget(&session);
                if bureau.seats().remove(&session).is_some() {
                    bureau.tell_all(&encode::session_deleted(&session));
                }
            }
            Err(RecvError::Lagged(missed)) => warn!(missed, "deleted sessions are remembered longer"),
            Err(RecvError::Closed) => return,
        }
    }
}

/// Tells everybody when the daemon is asked to stop, and takes nothing more.
pub(super) async fn announce_the_end(bureau: Arc<Bureau>) {
    let world = bureau.server().hub().world();
    world.draining.wait().await;
    let grace = u64::try_from(world.limits.grace.as_millis()).unwrap_or(u64::MAX);
    bureau.tell_all(&encode::server_shutdown("graceful_shutdown", Some(grace)));
    bureau.input(Input::ShuttingDown);
}
