//! What concerns the server: its sessions as a whole, and how it is.

use std::sync::Arc;
use std::time::Duration;

use super::{Done, Failure, Job, Result};
use crate::journal::ReadError;
use crate::kernel::command::{Answer, Command, QueueEntry};
use crate::kernel::event::Adjustment;
use crate::kernel::id::SessionId;
use crate::kernel::refusal::Refusal;
use crate::protocol::intent::StartSession;
use crate::protocol::pi::encode::{self, Circuit, Health, Metrics, SessionInfo, StoreMetrics};
use crate::protocol::pi::error_text;
use crate::provider::breaker::State;
use crate::runtime::generate;
use crate::runtime::pi::desk::{Answered, is_loaded};
use crate::runtime::pi::files;
use crate::runtime::pi::seat::Seat;
use crate::runtime::pi::seats::Sitting;
use crate::runtime::pi::session_list::Place;

impl Job {
    /// Lists the active sessions, and those of other protocols that are in memory.
    pub(super) async fn list_sessions(&self) -> Result {
        let mut rows: Vec<SessionInfo> = Vec::new();
        for entry in self.bureau.entries().await.map_err(unreadable)? {
            rows.push(self.bureau.listed_info(&entry).await);
        }
        rows.sort_by_key(|row| row.created_at);
        Ok(Done::new(encode::sessions(&rows), None))
    }

    pub(super) async fn create_session(&self, cwd: Option<&str>) -> Result {
        let id = self.asked.session.clone().unwrap_or_else(generate::session);
        let known = self.find(&id).await?;
        if known == Known::Loaded {
            return Err(Failure::said(error_text::session_exists(id.as_str())));
        }
        self.refuse_versions(&id)?;
        let cwd = cwd.unwrap_or(&self.peer.cwd);
        let seat = match known {
            Known::Unloaded => self.open_again(&id, cwd).await?,
            Known::Nowhere | Known::Loaded => self.open(&id, cwd, None).await?,
        };
        let (snapshot, version) = self.bureau.describe(&seat, None, &self.peer).await?;
        let info = self.info(&seat, &snapshot);
        let news = vec![encode::session_created(&id, &info)];
        Ok(Done { data: encode::created(&id, &info), version: Some(version), news })
    }

    /// Unloads a session: its file is written, and clients of this protocol see it no more.
    ///
    /// One that a client of this protocol began is brought to rest first. For other protocols nothing ends.
    pub(super) async fn delete_session(&self) -> Result {
        let seat = self.seat().await?;
        let (snapshot, _) = self.describe(&seat).await?;
        if snapshot.opening.mode == files::MODE {
            self.bring_to_rest(&seat).await?;
        }
        self.synchronize(&seat).await;
        self.unload(&seat).await?;
        self.bureau.sessions().remove(seat.session());
        self.bureau.seats().remove(seat.session());
        self.bureau.breaker().forget(seat.session());
        self.bureau.give_up(&seat).await;
        let news = vec![encode::session_deleted(seat.session())];
        Ok(Done { data: encode::deleted(), version: None, news })
    }

    pub(super) async fn switch_session(&self) -> Result {
        let seat = self.seat().await?;
        let (snapshot, version) = self.describe(&seat).await?;
        seat.subscribe(&self.mailbox, self.bureau.now());
        Ok(Done::at(encode::switched(&self.info(&seat, &snapshot)), version))
    }

    pub(super) fn health(&self) -> Result {
        let world = self.bureau.server().hub().services();
        let mut issues = Vec::new();
        let open: Vec<_> =
            world.model_config.circuits().into_iter().filter(|circuit| circuit.state == State::Open).collect();
        issues.extend(open.iter().map(|circuit| format!("the circuit of {} is open", circuit.provider)));
        let bash = self.bureau.breaker().report();
        if bash.open_session_count > 0 {
            issues.push(format!("shell commands are refused in {} sessions", bash.open_session_count));
        }
        if world.journal.is_full() {
            issues.push("the disk is full".to_owned());
        }
        if world.journal.has_failed() {
            issues.push("the journal could not be synced".to_owned());
        }
        let health = Health { issues, open_circuit: !open.is_empty(), open_bash_circuit: bash.open_session_count > 0 };
        Ok(Done::new(encode::health(&health), None))
    }

    pub(super) async fn metrics(&self) -> Result {
        let bureau = &self.bureau;
        let counts = bureau.read(|book| book.stats());
        let (used, limit) = bureau.rate();
        let questions = bureau.seats().open_questions();
        let sessions = bureau.entries().await.map_err(unreadable)?.len() as u64;
        let metrics = Metrics {
            session_count: sessions,
            connection_count: bureau.connected() as u64,
            pending_connection_count: 0,
            total_commands_executed: bureau.figures().total_executed(),
            rejected: bureau.figures().rejected(0),
            global_count: used,
            global_limit: limit,
            stores: StoreMetrics {
                in_flight_count: counts.in_flight as u64,
                outcome_count: counts.outcomes as u64,
                idempotency_cache_size: counts.keys as u64,
                max_in_flight_commands: bureau.limits().book.in_flight as u64,
                max_command_outcomes: bureau.limits().book.outcomes as u64,
                in_flight_rejections: bureau.figures().total_busy(),
                versioned_sessions: sessions,
                lane_count: counts.lanes as u64,
                pending_requests: questions,
                max_pending_requests: bureau.limits().sessions as u64 * QUESTIONS,
                ..StoreMetrics::default()
            },
            circuits: bureau.server().hub().services().model_config.circuits().iter().map(circuit).collect(),
            bash_circuit: bureau.breaker().report(),
            ..Metrics::default()
        };
        Ok(Done::new(encode::metrics(&metrics), None))
    }

    /// Finds out whether a session is there, without loading it.
    pub(super) async fn find(&self, id: &SessionId) -> Result<Known> {
        let hub = self.bureau.server().hub();
        Ok(match self.bureau.entry(id).await.map_err(unreadable)? {
            Some(entry) if entry.is_own() && !entry.is_loaded() => Known::Unloaded,
            // Those of other protocols are not given back by deleting or ending them.
            Some(_) => Known::Loaded,
            // It may be about to be stored, or nothing but its name is left of it.
            None => match hub.lane(id).await {
                Ok(None) => Known::Nowhere,
                Ok(Some(_)) => Known::Loaded,
                Err(error) => return Err(Failure::said(error.to_string())),
            },
        })
    }

    /// Refuses a command that believes in a version of a session that is not there.
    pub(super) fn refuse_versions(&self, id: &SessionId) -> Result<()> {
        match self.asked.if_session_version {
            Some(version) => Err(Failure::said(error_text::no_session_at_version(id.as_str(), version))),
            None => Ok(()),
        }
    }

    pub(super) fn refuse_too_many(&self) -> Result<()> {
        if self.bureau.sessions().len() < self.bureau.limits().sessions {
            return Ok(());
        }
        Err(self.too_many())
    }

    /// Takes a place among the active sessions; commands for others may do so at the same time.
    fn take_place(&self, id: &SessionId) -> Result<Place<'_>> {
        let place = self.bureau.sessions().take_place(id, self.bureau.limits().sessions);
        place.ok_or_else(|| self.too_many())
    }

    fn too_many(&self) -> Failure {
        self.bureau.figures().session_refused();
        Failure::said(error_text::SESSION_LIMIT)
    }

    /// Opens a session and subscribes the connection to it.
    pub(super) async fn open(&self, id: &SessionId, cwd: &str, name: Option<String>) -> Result<Sitting> {
        // Who looks for the session at the same time finds this place, and takes none of its own.
        let _one_at_a_time = self.bureau.seats().turn(id).await;
        let place = self.take_place(id)?;
        let opening = self.bureau.server().create_named(id, start(cwd, name)).await;
        let opening = opening.map_err(|body| Failure::said(body.message))?;
        let seat = self.bureau.take_seat(id.clone());
        seat.subscribe(&self.mailbox, self.bureau.now());
        let opened = self.bureau.ask(&seat, Command::Open(Box::new(opening)), None, &self.peer).await;
        if let Err(failure) = opened {
            seat.leave();
            return Err(failure);
        }
        let sitting = Sitting::new(&seat);
        place.keep();
        self.bureau.settle_in(&seat);
        Ok(sitting)
    }

    /// Opens a session again as a new one, which was deleted, and subscribes the connection to it.
    async fn open_again(&self, id: &SessionId, cwd: &str) -> Result<Sitting> {
        let opening = self.bureau.server().prepare_opening(start(cwd, None)).await;
        let opening = opening.map_err(|body| Failure::said(body.message))?;
        let command = Command::Reopen(Box::new(opening));
        self.take_back(id, command).await
    }

    /// Stops everything in a session and waits until that is so; what waits behind the run is not begun.
    pub(super) async fn bring_to_rest(&self, seat: &Arc<Seat>) -> Result<()> {
        self.unqueue_all(seat).await?;
        for command in [
            Command::StopCompaction,
            Command::StopUserCommand { call: None },
            Command::Cancel { run: None, reason: "session deleted".to_owned() },
        ] {
            match self.ask_further(seat, command).await {
                Ok(Answered { .. }) => {}
                Err(Failure::Refused(Refusal::NoCompaction | Refusal::NoUserCommand | Refusal::NoActiveRun)) => {}
                Err(failure) => return Err(failure),
            }
        }
        let at_rest = seat.wait_for(|story| !story.is_streaming());
        match tokio::time::timeout(REST, at_rest).await {
            Ok(()) => Ok(()),
            Err(_) => Err(Failure::said("what runs in the session could not be stopped in time")),
        }
    }

    async fn unqueue_all(&self, seat: &Arc<Seat>) -> Result<()> {
        let Answer::Queue(waiting) = self.ask_further(seat, Command::ListQueue).await?.answer else {
            return Err(Failure::said(error_text::INTERNAL));
        };
        for QueueEntry { message, .. } in waiting {
            match self.ask_further(seat, Command::Unqueue { message }).await {
                // It may have begun meanwhile, and is stopped then.
                Ok(Answered { .. }) | Err(Failure::Refused(Refusal::NotQueued)) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Has clients of the protocol see a session no more; one of their own only while nothing is active in it.
    async fn unload(&self, seat: &Arc<Seat>) -> Result<()> {
        let (snapshot, version) = self.bureau.describe(seat, None, &self.peer).await?;
        let own = snapshot.opening.mode == files::MODE;
        if own && (snapshot.run.is_some() || snapshot.queued > 0) {
            return Err(Failure::said(CHANGED));
        }
        let unloaded = Adjustment { unloaded: Some(true), ..Adjustment::default() };
        // A message of another client makes another version.
        let (command, at) = (Command::Adjust(Box::new(unloaded)), own.then_some(version));
        match self.bureau.ask(seat, command, at, &self.peer).await {
            Ok(Answered { .. }) => Ok(()),
            Err(Failure::Refused(Refusal::Stale { .. })) => Err(Failure::said(CHANGED)),
            Err(failure) => Err(failure),
        }
    }

    /// Brings a session back that was deleted or has ended.
    pub(super) async fn reopen(&self, id: &SessionId) -> Result<Sitting> {
        self.take_back(id, Command::Load).await
    }

    /// Makes a session active again by a command, and subscribes the connection to it.
    async fn take_back(&self, id: &SessionId, command: Command) -> Result<Sitting> {
        let _one_at_a_time = self.bureau.seats().turn(id).await;
        let place = self.take_place(id)?;
        let seat = self.bureau.take_seat(id.clone());
        if let Err(failure) = self.load(&seat, command).await {
            self.bureau.give_up(&seat).await;
            return Err(failure);
        }
        seat.subscribe(&self.mailbox, self.bureau.now());
        let sitting = Sitting::new(&seat);
        place.keep();
        self.bureau.settle_in(&seat);
        Ok(sitting)
    }

    async fn load(&self, seat: &Arc<Seat>, command: Command) -> Result<()> {
        self.bureau.attach_seat(seat, &self.peer).await?;
        let (snapshot, _) = self.bureau.describe(seat, None, &self.peer).await?;
        // What others began stays theirs, also after it has ended or a client of this protocol has deleted it.
        if is_loaded(&snapshot) || snapshot.opening.mode != files::MODE {
            return Err(Failure::said(error_text::session_exists(seat.session().as_str())));
        }
        if matches!(command, Command::Reopen(_)) {
            let voided = self.bureau.server().revoke_token(seat.session()).await;
            voided.map_err(|body| Failure::said(body.message))?;
        }
        self.bureau.ask(seat, command, None, &self.peer).await?;
        self.bureau.describe(seat, None, &self.peer).await?;
        Ok(())
    }
}

/// What is known of a session under an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// There is none.
    Nowhere,
    /// A client of the protocol began it, and they do not see it: it was deleted, or has ended.
    Unloaded,
    /// It is there, or belongs to another protocol.
    Loaded,
}

/// Returns how a session of the protocol is started.
fn start(cwd: &str, name: Option<String>) -> StartSession {
    StartSession {
        mode: files::MODE.to_owned(),
        provider: None,
        sandbox_provider: None,
        cwd: cwd.to_owned(),
        model: None,
        name,
        repo: None,
        metadata: None,
        environment: None,
        idempotency_key: None,
    }
}

fn unreadable(error: ReadError) -> Failure {
    Failure::said(format!("the sessions cannot be read: {error}"))
}

/// Somebody was faster than a deletion.
const CHANGED: &str = "the session was changed while it was being deleted; delete it again";
/// How many questions a session may have open, for the figures.
const QUESTIONS: u64 = 8;
/// How long what runs in a session may take to end.
const REST: Duration = Duration::from_secs(10);

fn circuit(report: &crate::provider::registry::CircuitReport) -> Circuit {
    Circuit {
        provider: report.provider.clone(),
        state: report.state.name().to_owned(),
        failures: u64::from(report.counts.consecutive_failures),
        opened: report.counts.opened,
        rejected: report.counts.refused,
    }
}
