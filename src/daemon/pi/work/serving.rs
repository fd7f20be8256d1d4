//! What concerns the server: its sessions as a whole, and how it is.

use std::sync::Arc;
use std::time::Duration;

use super::{Done, Failure, Job, Result};
use crate::adapter::pi::encode::{self, Circuit, Health, Metrics, SessionInfo, Stores};
use crate::adapter::pi::text;
use crate::adapter::push::decode::StartSession;
use crate::daemon::mint;
use crate::daemon::pi::desk::Answered;
use crate::daemon::pi::files;
use crate::daemon::pi::seat::Seat;
use crate::daemon::pi::seats::Sitting;
use crate::kernel::command::{Command, Openness};
use crate::kernel::id::SessionId;
use crate::kernel::refusal::Refusal;
use crate::provider::breaker::State;

impl Job {
    /// Lists the sessions that are at work or in use, whoever began them.
    pub(super) async fn list_sessions(&self) -> Result {
        let lanes = self.bureau.server().hub().lanes();
        let mut ids: Vec<_> = lanes.iter().map(|lane| lane.id().clone()).collect();
        ids.extend(self.bureau.seats().sessions());
        ids.sort();
        ids.dedup();
        let mut rows: Vec<SessionInfo> = Vec::new();
        for id in ids.into_iter().take(LISTED) {
            // One that has ended or was deleted meanwhile is not there.
            let Ok(seat) = self.bureau.seat(&id, &self.peer).await else { continue };
            let Ok((snapshot, _)) = self.bureau.describe(&seat, None, &self.peer).await else { continue };
            rows.push(self.info(&seat, &snapshot));
        }
        rows.sort_by_key(|row| row.created_at);
        Ok(Done::new(encode::sessions(&rows), None))
    }

    pub(super) async fn create_session(&self, cwd: Option<&str>) -> Result {
        let id = self.asked.session.clone().unwrap_or_else(mint::session);
        self.refuse_known(&id).await?;
        self.refuse_versions(&id)?;
        self.refuse_too_many()?;
        let cwd = cwd.unwrap_or(&self.peer.cwd);
        let seat = self.open(&id, cwd, None).await?;
        let (snapshot, version) = self.bureau.describe(&seat, None, &self.peer).await?;
        let info = self.info(&seat, &snapshot);
        let news = vec![encode::session_created(&id, &info)];
        Ok(Done { data: encode::created(&id, &info), version: Some(version), news })
    }

    /// Lets go of a session: what runs in it is stopped, and it takes no more messages. Its history stays.
    pub(super) async fn delete_session(&self) -> Result {
        let seat = self.seat().await?;
        self.describe(&seat).await?;
        self.bring_to_rest(&seat).await?;
        self.ask_further(&seat, Command::End).await?;
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
        let world = self.bureau.server().hub().world();
        let mut issues = Vec::new();
        let open: Vec<_> =
            world.house.circuits().into_iter().filter(|circuit| circuit.state == State::Open).collect();
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
        let health =
            Health { issues, open_circuit: !open.is_empty(), open_bash_circuit: bash.open_session_count > 0 };
        Ok(Done::new(encode::health(&health), None))
    }

    pub(super) async fn metrics(&self) -> Result {
        let bureau = &self.bureau;
        let counts = bureau.read(|book| book.counts());
        let (used, limit) = bureau.rate();
        let questions = bureau.seats().open_questions();
        let metrics = Metrics {
            session_count: bureau.server().hub().lanes().len() as u64,
            connection_count: bureau.connected() as u64,
            pending_connection_count: 0,
            total_commands_executed: bureau.figures().total_executed(),
            rejected: bureau.figures().rejected(0),
            global_count: used,
            global_limit: limit,
            stores: Stores {
                in_flight_count: counts.in_flight as u64,
                outcome_count: counts.outcomes as u64,
                idempotency_cache_size: counts.keys as u64,
                max_in_flight_commands: bureau.limits().book.in_flight as u64,
                max_command_outcomes: bureau.limits().book.outcomes as u64,
                in_flight_rejections: bureau.figures().total_busy(),
                versioned_sessions: bureau.seats().len() as u64,
                lane_count: counts.lanes as u64,
                pending_requests: questions,
                max_pending_requests: bureau.limits().sessions as u64 * QUESTIONS,
                ..Stores::default()
            },
            circuits: bureau.server().hub().world().house.circuits().iter().map(circuit).collect(),
            bash_circuit: bureau.breaker().report(),
            ..Metrics::default()
        };
        Ok(Done::new(encode::metrics(&metrics), None))
    }

    /// Refuses the name of a session that is there, whoever has it and in whatever state.
    pub(super) async fn refuse_known(&self, id: &SessionId) -> Result<()> {
        match self.bureau.server().hub().lane(id).await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(Failure::said(text::session_exists(id.as_str()))),
            Err(error) => Err(Failure::said(error.to_string())),
        }
    }

    /// Refuses a command that believes in a version of a session that is not there.
    pub(super) fn refuse_versions(&self, id: &SessionId) -> Result<()> {
        match self.asked.if_session_version {
            Some(version) => Err(Failure::said(text::no_session_at_version(id.as_str(), version))),
            None => Ok(()),
        }
    }

    pub(super) fn refuse_too_many(&self) -> Result<()> {
        if self.bureau.seats().len() < self.bureau.limits().sessions {
            return Ok(());
        }
        self.bureau.figures().session_refused();
        Err(Failure::said(text::SESSION_LIMIT))
    }

    /// Opens a session and subscribes the connection to it.
    pub(super) async fn open(&self, id: &SessionId, cwd: &str, name: Option<String>) -> Result<Sitting> {
        let start = StartSession {
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
        };
        let opening = self.bureau.server().begin(id, start).await;
        let opening = opening.map_err(|body| Failure::said(body.message))?;
        // Who looks for the session at the same time finds this place, and takes none of its own.
        let turn = self.bureau.seats().turn(id);
        let _one_at_a_time = turn.lock().await;
        let seat = self.bureau.take_seat(id.clone());
        seat.subscribe(&self.mailbox, self.bureau.now());
        let opened = self.bureau.ask(&seat, Command::Open(Box::new(opening)), None, &self.peer).await;
        if let Err(failure) = opened {
            seat.leave();
            return Err(failure);
        }
        let sitting = Sitting::new(&seat);
        self.bureau.settle_in(&seat);
        Ok(sitting)
    }

    /// Stops everything in a session and waits until that is so.
    pub(super) async fn bring_to_rest(&self, seat: &Arc<Seat>) -> Result<()> {
        for command in [
            Command::StopCompaction,
            Command::StopAside { call: None },
            Command::Cancel { run: None, reason: "session deleted".to_owned() },
        ] {
            match self.ask_further(seat, command).await {
                Ok(Answered { .. }) => {}
                Err(Failure::Refused(Refusal::NoCompaction | Refusal::NoAside | Refusal::NoActiveRun)) => {}
                Err(failure) => return Err(failure),
            }
        }
        let at_rest = seat.wait_for(|story| !story.is_streaming());
        match tokio::time::timeout(REST, at_rest).await {
            Ok(()) => Ok(()),
            Err(_) => Err(Failure::said("what runs in the session could not be stopped in time")),
        }
    }

    /// Brings a session that was let go of back, if it is one.
    pub(super) async fn reopen(&self, id: &SessionId) -> Result<Sitting> {
        let turn = self.bureau.seats().turn(id);
        let _one_at_a_time = turn.lock().await;
        let seat = self.bureau.take_seat(id.clone());
        if let Err(failure) = self.load(&seat).await {
            self.bureau.give_up(&seat).await;
            return Err(failure);
        }
        seat.subscribe(&self.mailbox, self.bureau.now());
        let sitting = Sitting::new(&seat);
        self.bureau.settle_in(&seat);
        Ok(sitting)
    }

    async fn load(&self, seat: &Arc<Seat>) -> Result<()> {
        self.bureau.attach_seat(seat, &self.peer).await?;
        let (snapshot, _) = self.bureau.describe(seat, None, &self.peer).await?;
        if snapshot.open == Openness::Open {
            return Err(Failure::said(text::session_exists(seat.session().as_str())));
        }
        self.bureau.ask(seat, Command::Load, None, &self.peer).await?;
        Ok(())
    }
}

/// How many sessions are listed.
const LISTED: usize = 1_000;
/// How many questions a session may have open, for the figures.
const QUESTIONS: u64 = 8;
/// How long what runs in a session may take to end.
const REST: Duration = Duration::from_secs(10);

fn circuit(report: &crate::provider::registry::CircuitReport) -> Circuit {
    Circuit {
        provider: report.provider.clone(),
        state: report.state.name().to_owned(),
        failures: u64::from(report.counts.failures_in_a_row),
        opened: report.counts.opened,
        rejected: report.counts.refused,
    }
}
