//! Retention: sessions that nobody has touched for long, and what is more than the journal may hold, are removed.
//!
//! It looks once some time after the start, and then only when a run is over: nothing wakes an idle daemon. A session in
//! which something runs or waits, or to which somebody listens, is never removed; of one that grows too large the oldest
//! events are cut off, up to its checkpoint.

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

/// Keeps the journal within its limits until the daemon closes.
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
    /// How much the sessions hold that were weighed, so that a long history is not added up after every run.
    weights: BTreeMap<SessionId, u64>,
    /// When the whole journal was looked over last.
    looked: Option<Instant>,
}

impl Keeper {
    async fn look_over(&mut self) {
        if let Some(age) = self.limits.keep_for
            && let Err(error) = self.remove_older_than(age).await
        {
            warn!(%error, "old sessions could not be removed");
        }
        if let Some(most) = self.limits.keep_bytes
            && let Err(error) = self.remove_down_to(most).await
        {
            warn!(%error, "the journal could not be made smaller");
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
                if self.remove(session, "it was not touched for too long").await.is_break() {
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
                warn!(used, most, "the journal is too large, and nothing in it can be removed");
                return Ok(());
            };
            for (_, session) in &oldest {
                if self.remove(session, "the journal was too large").await.is_break() {
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

    /// Removes a session unless something goes on in it; breaks off when nothing can be removed at present.
    async fn remove(&self, session: &SessionId, reason: &'static str) -> ControlFlow<()> {
        match self.hub.delete(session, Departure::Retention).await {
            Ok(bytes) => info!(%session, bytes, reason, "session removed"),
            Err(DeleteError::Active | DeleteError::NotFound) => debug!(%session, "a session stays"),
            Err(DeleteError::Closing) => return ControlFlow::Break(()),
            Err(error @ DeleteError::Read(_)) => warn!(%session, %error, "a session cannot be removed"),
            Err(error @ DeleteError::Journal(_)) => {
                warn!(%session, %error, "a session cannot be removed");
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// Cuts the oldest events off a session whose run is over, if it has grown too large.
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
            Err(error) => warn!(%session, %error, "a session cannot be weighed"),
        }
    }

    async fn cut(&self, session: SessionId, up_to: Seq, bytes: u64) {
        let world = self.hub.world();
        // Without a checkpoint that can be read, the history is all that there is of the session.
        match world.journal.checkpoint_stands(session.clone(), checkpoint::is_readable).await {
            Ok(true) => {}
            Ok(false) => return warn!(%session, "a session is not cut: its checkpoint cannot be read"),
            Err(error) => return warn!(%session, %error, "a session cannot be cut"),
        }
        let Ok(cut) = world.journal.cut(session.clone(), up_to, world.clock.now()).await else { return };
        match cut {
            Ok(Seq::ZERO) => debug!(%session, bytes, "nothing can be cut before the next checkpoint"),
            Ok(floor) => {
                info!(%session, bytes, %floor, reason = "the session was too large", "oldest events removed");
                self.hub.forget(&session, floor).await;
            }
            Err(MergeError::Damaged { .. }) => match world.journal.mend(session.clone()).await {
                Ok(_) => debug!(%session, "a session is cut after its next run: it was damaged"),
                Err(error) => warn!(%session, %error, "a damaged session cannot be cut"),
            },
            Err(error @ MergeError::Commit(_)) => warn!(%session, %error, "a session cannot be cut"),
        }
    }
}

/// When the journal is looked over for the first time, at the latest: not while everybody waits for the start.
const FIRST: Duration = Duration::from_secs(60);
/// How many old sessions are asked for at once.
const PAGE: u32 = 64;
/// How many sessions are remembered with their weight.
const WEIGHED: usize = 1_024;
