//! Retention: removes sessions that were idle for too long, and whatever exceeds the size limits of the journal.
//!
//! The first pass runs some time after the start, later ones only when a run ends: an idle daemon is not woken. A
//! session with a run, a pending decision or a subscriber is never removed. From a session that grows too large the
//! oldest events are removed, up to its checkpoint.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::hub::Hub;
use super::hub::removal::DeleteError;
use super::lane::DeletionCause;
use super::services::RunEnd;
use crate::config::limits::Retention;
use crate::journal::{JobError, ReadError};
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::time::Now;
use crate::record::checkpoint;

/// Keeps the journal within its limits until the daemon shuts down.
pub(super) async fn run(hub: Arc<Hub>) {
    let Some(mut run_ends) = hub.services().run_ends.take_receiver() else { return };
    let limits = hub.services().limits.retention;
    let mut task = RetentionTask { hub: Arc::clone(&hub), limits, sizes: BTreeMap::new(), last_pass: None };
    let first = tokio::time::sleep(limits.min_interval.min(FIRST_PASS_DELAY));
    tokio::pin!(first);
    loop {
        tokio::select! {
            biased;
            () = hub.services().closing.wait() => return,
            () = &mut first, if task.last_pass.is_none() => task.run_pass().await,
            run_end = run_ends.recv() => {
                let Some(run_end) = run_end else { return };
                task.limit_session_size(run_end).await;
                if task.last_pass.is_some_and(|last_pass| last_pass.elapsed() >= limits.min_interval) {
                    task.run_pass().await;
                }
            }
        }
    }
}

struct RetentionTask {
    hub: Arc<Hub>,
    limits: Retention,
    /// The sizes of measured sessions, so that a long history is not summed up after every run.
    sizes: BTreeMap<SessionId, u64>,
    /// The time of the last pass over the journal.
    last_pass: Option<Instant>,
}

impl RetentionTask {
    async fn run_pass(&mut self) {
        if let Some(age) = self.limits.keep_for
            && let Err(error) = self.remove_older_than(age).await
        {
            warn!(%error, "cannot remove old sessions");
        }
        if let Some(limit) = self.limits.keep_bytes
            && let Err(error) = self.shrink_to(limit).await
        {
            warn!(%error, "cannot shrink the journal");
        }
        self.last_pass = Some(Instant::now());
    }

    async fn remove_older_than(&self, age: Duration) -> Result<(), ReadError> {
        let millis = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let before = Now(self.hub.services().clock.now().0.saturating_sub(millis));
        let mut after = None;
        loop {
            let oldest = self.hub.services().journal.idle_sessions(after, SESSIONS_PER_PAGE).await?;
            for (_, session) in oldest.iter().filter(|(at, _)| *at < before) {
                if self.remove(session, "idle for longer than the limit").await.is_break() {
                    return Ok(());
                }
            }
            match oldest.last() {
                Some((at, session)) if *at < before => after = Some((*at, session.clone())),
                Some(_) | None => return Ok(()),
            }
        }
    }

    async fn shrink_to(&self, limit: u64) -> Result<(), ReadError> {
        let journal = &self.hub.services().journal;
        let mut used = journal.used_bytes().await?;
        let mut after = None;
        while used > limit {
            let oldest = journal.idle_sessions(after, SESSIONS_PER_PAGE).await?;
            let Some(last) = oldest.last().cloned() else {
                warn!(used, limit, "the journal exceeds its limit, and no session in it can be removed");
                return Ok(());
            };
            for (_, session) in &oldest {
                if self.remove(session, "the journal exceeded its size limit").await.is_break() {
                    return Ok(());
                }
                used = journal.used_bytes().await?;
                if used <= limit {
                    return Ok(());
                }
            }
            after = Some(last);
        }
        Ok(())
    }

    /// Removes a session unless it is active; breaks if the journal cannot remove anything at present.
    async fn remove(&self, session: &SessionId, reason: &'static str) -> ControlFlow<()> {
        match self.hub.delete(session, DeletionCause::Retention).await {
            Ok(bytes) => info!(%session, bytes, reason, "session removed"),
            Err(DeleteError::Active | DeleteError::NotFound) => debug!(%session, "session retained"),
            Err(DeleteError::Closing) => return ControlFlow::Break(()),
            Err(error @ DeleteError::Read(_)) => warn!(%session, %error, "cannot remove session"),
            Err(error @ DeleteError::Journal(_)) => {
                warn!(%session, %error, "cannot remove session");
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// Removes the oldest events of a session whose run has ended, if the session exceeds its limit.
    async fn limit_session_size(&mut self, run_end: RunEnd) {
        let Some(limit) = self.limits.session_bytes else { return };
        let RunEnd { session, new_bytes } = run_end;
        if let Some(bytes) = self.sizes.get_mut(&session) {
            *bytes = bytes.saturating_add(new_bytes);
            if *bytes <= limit {
                return;
            }
        }
        let journal = &self.hub.services().journal;
        self.sizes.remove(&session);
        match journal.measure(session.clone(), limit / 2).await {
            Ok(Some(size)) if size.bytes <= limit => {
                if self.sizes.len() >= MAX_CACHED_SIZES {
                    self.sizes.clear();
                }
                self.sizes.insert(session, size.bytes);
            }
            Ok(Some(size)) => self.remove_oldest_events(session, size.removable_up_to, size.bytes).await,
            Ok(None) => {}
            Err(error) => warn!(%session, %error, "cannot measure session"),
        }
    }

    async fn remove_oldest_events(&self, session: SessionId, up_to: Seq, bytes: u64) {
        let services = self.hub.services();
        // Without a readable checkpoint the history is the only copy of the session's state.
        match services.journal.is_checkpoint_valid(session.clone(), checkpoint::is_readable).await {
            Ok(true) => {}
            Ok(false) => return warn!(%session, "oldest events retained: the checkpoint cannot be read"),
            Err(error) => return warn!(%session, %error, "cannot remove oldest events"),
        }
        let Ok(result) = services.journal.retain_after(session.clone(), up_to, services.clock.now()).await else {
            return;
        };
        match result {
            Ok(Seq::ZERO) => debug!(%session, bytes, "no event can be removed before the next checkpoint"),
            Ok(floor) => {
                info!(%session, bytes, %floor, reason = "the session exceeded its size limit", "oldest events removed");
                self.hub.raise_floor(&session, floor).await;
                services.index.trim(&session, floor).await;
            }
            Err(JobError::Damaged { .. }) => match services.journal.repair(session.clone()).await {
                Ok(_) => {
                    debug!(%session, "session repaired; its oldest events are removed after its next run")
                }
                Err(error) => warn!(%session, %error, "cannot repair session to remove its oldest events"),
            },
            Err(error @ JobError::Commit(_)) => warn!(%session, %error, "cannot remove oldest events"),
        }
    }
}

/// The latest time of the first pass, long enough not to slow the start down.
const FIRST_PASS_DELAY: Duration = Duration::from_secs(60);
/// The number of idle sessions that one read returns.
const SESSIONS_PER_PAGE: u32 = 64;
/// The maximum number of cached session sizes.
const MAX_CACHED_SIZES: usize = 1_024;
