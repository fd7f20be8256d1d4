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

use super::checkpoint;
use super::hub::Hub;
use super::hub::removal::DeleteError;
use super::lane::Departure;
use super::world::RunOver;
use crate::config::limits::Retention;
use crate::journal::{MergeError, ReadError};
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::time::Now;

/// Keeps the journal within its limits until the daemon shuts down.
pub(super) async fn run(hub: Arc<Hub>) {
    let Some(mut runs_over) = hub.world().runs_over.listen() else { return };
    let limits = hub.world().limits.retention;
    let mut keeper = Keeper { hub: Arc::clone(&hub), limits, weights: BTreeMap::new(), looked: None };
    let first = tokio::time::sleep(limits.at_most_every.min(FIRST));
    tokio::pin!(first);
    loop {
        tokio::select! {
            biased;
            () = hub.world().closing.wait() => return,
            () = &mut first, if keeper.looked.is_none() => keeper.look_over().await,
            over = runs_over.recv() => {
                let Some(over) = over else { return };
                keeper.trim(over).await;
                if keeper.looked.is_some_and(|looked| looked.elapsed() >= limits.at_most_every) {
                    keeper.look_over().await;
                }
            }
        }
    }
}

struct Keeper {
    hub: Arc<Hub>,
    limits: Retention,
    /// The sizes of measured sessions, so that a long history is not summed up after every run.
    weights: BTreeMap<SessionId, u64>,
    /// The time of the last pass over the journal.
    looked: Option<Instant>,
}

impl Keeper {
    async fn look_over(&mut self) {
        if let Some(age) = self.limits.keep_for
            && let Err(error) = self.remove_older_than(age).await
        {
            warn!(%error, "cannot remove old sessions");
        }
        if let Some(most) = self.limits.keep_bytes
            && let Err(error) = self.remove_down_to(most).await
        {
            warn!(%error, "cannot shrink the journal");
        }
        self.looked = Some(Instant::now());
    }

    async fn remove_older_than(&self, age: Duration) -> Result<(), ReadError> {
        let millis = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let before = Now(self.hub.world().clock.now().0.saturating_sub(millis));
        let mut after = None;
        loop {
            let oldest = self.hub.world().journal.idle(after, PAGE).await?;
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

    async fn remove_down_to(&self, most: u64) -> Result<(), ReadError> {
        let journal = &self.hub.world().journal;
        let mut used = journal.used().await?;
        let mut after = None;
        while used > most {
            let oldest = journal.idle(after, PAGE).await?;
            let Some(last) = oldest.last().cloned() else {
                warn!(used, most, "the journal exceeds its limit, and no session in it can be removed");
                return Ok(());
            };
            for (_, session) in &oldest {
                if self.remove(session, "the journal exceeded its size limit").await.is_break() {
                    return Ok(());
                }
                used = journal.used().await?;
                if used <= most {
                    return Ok(());
                }
            }
            after = Some(last);
        }
        Ok(())
    }

    /// Removes a session unless it is active; breaks if the journal cannot remove anything at present.
    async fn remove(&self, session: &SessionId, reason: &'static str) -> ControlFlow<()> {
        match self.hub.delete(session, Departure::Retention).await {
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
    async fn trim(&mut self, over: RunOver) {
        let Some(most) = self.limits.session_bytes else { return };
        let RunOver { session, grown } = over;
        if let Some(weight) = self.weights.get_mut(&session) {
            *weight = weight.saturating_add(grown);
            if *weight <= most {
                return;
            }
        }
        let journal = &self.hub.world().journal;
        self.weights.remove(&session);
        match journal.weigh(session.clone(), most / 2).await {
            Ok(Some(weight)) if weight.bytes <= most => {
                if self.weights.len() >= WEIGHED {
                    self.weights.clear();
                }
                self.weights.insert(session, weight.bytes);
            }
            Ok(Some(weight)) => self.cut(session, weight.surplus, weight.bytes).await,
            Ok(None) => {}
            Err(error) => warn!(%session, %error, "cannot measure session"),
        }
    }

    async fn cut(&self, session: SessionId, up_to: Seq, bytes: u64) {
        let world = self.hub.world();
        // Without a readable checkpoint the history is the only copy of the session's state.
        match world.journal.checkpoint_stands(session.clone(), checkpoint::is_readable).await {
            Ok(true) => {}
            Ok(false) => return warn!(%session, "oldest events retained: the checkpoint cannot be read"),
            Err(error) => return warn!(%session, %error, "cannot remove oldest events"),
        }
        let Ok(cut) = world.journal.cut(session.clone(), up_to, world.clock.now()).await else { return };
        match cut {
            Ok(Seq::ZERO) => debug!(%session, bytes, "no event can be removed before the next checkpoint"),
            Ok(floor) => {
                info!(%session, bytes, %floor, reason = "the session exceeded its size limit", "oldest events removed");
                self.hub.forget(&session, floor).await;
            }
            Err(MergeError::Damaged { .. }) => match world.journal.mend(session.clone()).await {
                Ok(_) => {
                    debug!(%session, "session repaired; its oldest events are removed after its next run")
                }
                Err(error) => warn!(%session, %error, "cannot repair session to remove its oldest events"),
            },
            Err(error @ MergeError::Commit(_)) => warn!(%session, %error, "cannot remove oldest events"),
        }
    }
}

/// The latest time of the first pass, long enough not to slow the start down.
const FIRST: Duration = Duration::from_secs(60);
/// The number of idle sessions that one read returns.
const PAGE: u32 = 64;
/// The maximum number of cached session sizes.
const WEIGHED: usize = 1_024;
