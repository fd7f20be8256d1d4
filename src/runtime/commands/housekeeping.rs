//! The background tasks of the command service: deadlines, deleted and changed sessions, and the shutdown.

use std::sync::Arc;

use tokio::sync::broadcast::{self, error::RecvError};
use tracing::warn;

use super::service::CommandService;
use crate::kernel::command_log::Input;
use crate::protocol::command_protocol::Notice;
use crate::runtime::services::SessionChange;

/// Passes deadlines to the command log.
pub(super) async fn run_deadlines(service: Arc<CommandService>) {
    let clock = service.server().hub().services().clock;
    loop {
        let next = service.next_deadline();
        tokio::select! {
            () = clock.sleep_until(next) => service.input(Input::Deadline),
            () = service.earlier_deadline() => {}
            () = service.wait_for_disconnect() => return,
        }
    }
}

/// Removes the outcomes of deleted sessions, and notifies all connections of the deletion.
pub(super) async fn watch_deletions(service: Arc<CommandService>) {
    let mut deleted = service.server().hub().services().deleted.subscribe();
    loop {
        match deleted.recv().await {
            Ok(session) => {
                service.input(Input::SessionDeleted(session.clone()));
                service.breaker().forget(&session);
                let active = service.sessions().remove(&session);
                if service.views().remove(&session).is_some() || active {
                    service.notify(&Notice::SessionDeleted(session.clone()));
                }
            }
            Err(RecvError::Lagged(missed)) => {
                warn!(missed, "missed deletions of sessions");
                reconcile(&service).await;
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// Notifies all connections of sessions that clients of other protocols open or end.
pub(super) async fn watch_session_changes(
    service: Arc<CommandService>,
    mut changes: broadcast::Receiver<SessionChange>,
) {
    loop {
        let session = match changes.recv().await {
            Ok(SessionChange::Opened(session)) => session,
            Ok(SessionChange::Ended(session)) => {
                service.sessions().remove(&session);
                // The deletion by a client was announced with its response.
                if let Ok(Some(entry)) = service.entry(&session).await
                    && !entry.is_unloaded()
                {
                    service.notify(&Notice::SessionDeleted(session.clone()));
                }
                continue;
            }
            Err(RecvError::Lagged(missed)) => {
                warn!(missed, "missed changes of sessions; clients were not notified");
                reconcile(&service).await;
                continue;
            }
            Err(RecvError::Closed) => return,
        };
        // Sessions of this protocol are announced after the response to the client that created them.
        if let Ok(Some(entry)) = service.entry(&session).await
            && entry.is_loaded()
            && !entry.is_own()
        {
            service.notify(&Notice::SessionCreated(Box::new(service.listed_info(&entry).await)));
        }
    }
}

/// Removes sessions that are not active any more from the list, after changes were missed.
async fn reconcile(service: &CommandService) {
    if let Err(error) = service.forget_inactive().await {
        warn!(%error, "cannot update the list of active sessions; ended ones may count as active until a restart");
    }
}

/// Notifies all connections when the daemon drains, and admits no more commands.
pub(super) async fn watch_shutdown(service: Arc<CommandService>) {
    let services = service.server().hub().services();
    services.draining.wait().await;
    let grace_ms = u64::try_from(services.limits.grace_period.as_millis()).unwrap_or(u64::MAX);
    service.notify(&Notice::ShuttingDown { grace_ms });
    service.input(Input::ShuttingDown);
}
