//! A client with random actions: it follows sessions across all generations of the daemon.
//!
//! It keeps what any client would keep: the last position it saw, open approvals, and requests without a reply. A
//! worker has one session and fills it with work; a watcher follows all sessions, replays parts of them, and decides
//! approvals.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::connection::{Connection, ConnectionLost, Envelope, ReadResult};
use super::harness::{Harness, Moment, Phase};
use super::leftover;
use super::observations::{DeliveryMode, GrantedRequest, MessageResult, excerpt};
use super::request::Request;
use super::session_view::SessionView;
use super::workload;
use crate::support::random::Random;
use crate::support::schemas;

/// The role of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Worker,
    Watcher,
}

/// One client.
pub(crate) struct RandomClient {
    pub(super) harness: Arc<Harness>,
    pub(super) role: Role,
    pub(super) number: usize,
    pub(super) random: Random,
    generation: u64,
    /// By session.
    pub(super) views: BTreeMap<String, SessionView>,
    /// The session of a worker.
    pub(super) session: Option<String>,
    pub(super) pending: BTreeMap<String, Request>,
    /// Messages whose reply was lost.
    pub(super) unanswered: Vec<Request>,
    pub(super) messages_made: u64,
    pub(super) wants_pause: bool,
    pub(super) is_idle: bool,
}

/// Why a client disconnects from a live daemon.
enum Disconnect {
    Pause,
}

/// How long a client reads before its next action.
const TICK: Duration = Duration::from_millis(8);

impl RandomClient {
    pub(crate) fn new(harness: Arc<Harness>, role: Role, number: usize, random: Random) -> Self {
        Self {
            harness,
            role,
            number,
            random,
            generation: 0,
            views: BTreeMap::new(),
            session: None,
            pending: BTreeMap::new(),
            unanswered: Vec::new(),
            messages_made: 0,
            wants_pause: false,
            is_idle: false,
        }
    }

    /// Runs until the phase is `Done`.
    pub(crate) fn run(mut self) {
        while let Some(generation) = self.harness.next_generation(self.generation) {
            self.generation = generation;
            // Without watchers the daemon unloads an idle session.
            if self.role == Role::Watcher && self.random.one_in(3) {
                continue;
            }
            while let Ok(Disconnect::Pause) = self.run_connection() {
                self.disconnected();
                std::thread::sleep(Duration::from_millis(self.random.below(40)));
            }
            self.disconnected();
            if !self.harness.was_killed(generation) {
                let who = format!("{:?} {}", self.role, self.number);
                self.harness
                    .observations
                    .add_finding(format!("generation {generation}: {who} lost a daemon that was not killed"));
            }
        }
    }

    fn run_connection(&mut self) -> Result<Disconnect, ConnectionLost> {
        let mut connection = Connection::connect(&self.harness.socket())?;
        self.attach_all(&mut connection)?;
        loop {
            match connection.read_line(TICK) {
                ReadResult::Line(line) => self.handle_line(&line),
                ReadResult::Timeout => {
                    self.attach_all(&mut connection)?;
                    self.random_action(&mut connection)?;
                }
                ReadResult::Closed => return Err(ConnectionLost),
            }
            if self.random.one_in(12) {
                self.random_action(&mut connection)?;
            }
            if std::mem::take(&mut self.wants_pause) {
                return Ok(Disconnect::Pause);
            }
        }
    }

    /// Keeps unanswered messages to be sent again, and drops other requests.
    fn disconnected(&mut self) {
        for request in std::mem::take(&mut self.pending).into_values() {
            if let Request::Message { .. } = request {
                self.unanswered.push(request);
            }
        }
        for view in self.views.values_mut() {
            view.end_span(&self.harness.observations);
        }
    }

    /// Attaches to every session that is not attached yet.
    fn attach_all(&mut self, connection: &mut Connection) -> Result<(), ConnectionLost> {
        if self.role == Role::Watcher {
            let known: Vec<_> = self.harness.observations.lock().events.keys().cloned().collect();
            for session in known {
                self.views.entry(session).or_default();
            }
        } else if self.session.is_none() {
            let starting = self.pending.values().any(|request| matches!(request, Request::Start { .. }));
            return if starting { Ok(()) } else { self.send(connection, Request::Start { number: self.number }) };
        }
        let missing = |(_, view): &(&String, &SessionView)| !view.is_attaching();
        let missing: Vec<_> = self.views.iter().filter(missing).map(|(id, view)| (id.clone(), view.last_seq)).collect();
        for (session, after) in missing {
            self.views.get_mut(&session).expect("it is followed").begin_attach();
            self.send(connection, Request::Attach { session, after })?;
        }
        Ok(())
    }

    fn handle_line(&mut self, line: &[u8]) {
        let line_text = std::str::from_utf8(line).unwrap_or_default();
        let envelope: Envelope<'_> = match serde_json::from_str(line_text) {
            Ok(envelope) => envelope,
            Err(error) => {
                return self.harness.observations.add_finding(format!("no message ({error}): {}", excerpt(line)));
            }
        };
        match envelope.kind {
            "event" => self.handle_event(&envelope, line),
            _ => {
                if let Err(problems) = schemas::validate_line(line_text) {
                    self.harness.observations.add_finding(format!("not valid: {problems:?} {}", excerpt(line)));
                }
                self.handle_reply(&envelope);
                self.harness.moment_reached(Moment::Answered);
            }
        }
    }

    fn handle_event(&mut self, envelope: &Envelope<'_>, line: &[u8]) {
        let (Some(session), Some(seq)) = (envelope.session_id, envelope.seq) else { return };
        let Some(view) = self.views.get_mut(session) else {
            return self
                .harness
                .observations
                .add_finding(format!("an event of a session nobody asked for: {}", excerpt(line)));
        };
        view.record_event(envelope, session, seq, line, &self.harness.observations);
        match envelope.r#type {
            "approval_required" => self.harness.moment_reached(Moment::ApprovalAsked),
            "tool_output" => self.harness.moment_reached(Moment::Output),
            "tool_result" => self.harness.moment_reached(Moment::StepOver),
            "run_recovered" => self.harness.moment_reached(Moment::Recovered),
            "session_snapshot" => self.harness.moment_reached(Moment::PrivateEvent),
            "run_complete" => {
                self.harness.moment_reached(Moment::RunOver);
                self.check_leftovers(envelope);
            }
            "status" if envelope.payload.get().contains("callId") => self.harness.moment_reached(Moment::StepStarted),
            _ => {}
        }
    }

    /// Checks that a completed run has left no process.
    fn check_leftovers(&mut self, envelope: &Envelope<'_>) {
        let cut_short = envelope.payload.get().contains("\"cancelled\"");
        if self.role == Role::Watcher || !(cut_short || self.random.one_in(4)) {
            return;
        }
        let (run, observations) = (envelope.run_id.unwrap_or_default(), &self.harness.observations);
        let accepted = MessageResult::Accepted { run: run.to_owned() };
        let messages: Vec<_> = {
            let seen = observations.lock();
            let ours = seen.messages.iter().filter(|(_, message)| message.result == accepted);
            ours.map(|(id, _)| workload::process_mark(&format!("{id}k"))).collect()
        };
        // Supervisors of an earlier generation end their processes; those are not waited for.
        let left = leftover::wait_for_none(&messages, None, Duration::from_secs(2));
        if !messages.is_empty() && !left.is_empty() {
            let generation = self.generation;
            observations.add_finding(format!("generation {generation}: {run} is over and has left {left:?}"));
        }
    }

    fn handle_reply(&mut self, envelope: &Envelope<'_>) {
        let request = envelope.request_id.and_then(|request_id| self.pending.remove(request_id));
        let Some(request) = request else {
            return self.harness.observations.add_finding(format!("an answer to nothing: {envelope:?}"));
        };
        let (granted, payload) = (envelope.ok == Some(true), envelope.payload());
        let observations = &self.harness.observations;
        match request {
            Request::Start { .. } => {
                let session = payload["sessionId"].as_str().map(str::to_owned);
                let Some(session) = session else {
                    return observations.add_finding(format!("no session: {envelope:?}"));
                };
                let view = self.views.entry(session.clone()).or_default();
                if payload["repeated"] != true {
                    view.begin_attach();
                    view.begin_span(self.generation, &session, 0, observations);
                }
                self.session = Some(session);
            }
            Request::Attach { session, after } => {
                let view = self.views.get_mut(&session).expect("it is followed");
                view.check_attach_reply(self.generation, &session, after, granted, &payload, observations);
            }
            Request::Message { id, delivery, .. } if granted => {
                let run = payload["runId"].as_str().unwrap_or_default().to_owned();
                observations.record_result(&id, MessageResult::Accepted { run });
                if delivery == DeliveryMode::Queue && payload["messageId"] != id.as_str() {
                    observations.add_finding(format!("{id} was queued under another name: {payload}"));
                }
            }
            Request::Message { id, delivery, payload } => match envelope.code().as_str() {
                "INTERNAL_ERROR" => {
                    observations.add_finding(format!("{id} failed: {envelope:?}"));
                    self.unanswered.push(Request::Message { id, delivery, payload });
                }
                code => observations.record_result(&id, MessageResult::Refused { code: code.to_owned() }),
            },
            Request::Decide { session, approval, decision, choice } if granted => {
                observations.lock().granted.push(GrantedRequest::Decision { session, approval, decision, choice });
            }
            Request::Cancel { session, run } if granted => {
                observations.lock().granted.push(GrantedRequest::Cancel { session, run })
            }
            Request::Remove { session, message } if granted => {
                observations.lock().granted.push(GrantedRequest::Removal { session, message });
            }
            Request::Rename { session, name } if granted => {
                observations.lock().granted.push(GrantedRequest::Name { session, name })
            }
            Request::Snapshot { .. } if granted => self.check_idle(&payload),
            Request::Decide { .. }
            | Request::Cancel { .. }
            | Request::Remove { .. }
            | Request::Rename { .. }
            | Request::Snapshot { .. } => {
                let code = envelope.code();
                let usual = ["APPROVAL_EXPIRED", "NO_ACTIVE_RUN", "INVALID_REQUEST"];
                if !usual.contains(&code.as_str()) {
                    observations.add_finding(format!("refused with {code}: {envelope:?}"));
                }
            }
        }
    }

    /// A session without work is idle once every request has its reply.
    fn check_idle(&mut self, snapshot: &Value) {
        let quiet = snapshot["activeRunId"].is_null() && snapshot["queued"] == 0;
        let all_answered = self.pending.is_empty() && self.unanswered.is_empty();
        if quiet && all_answered && !self.is_idle && self.harness.phase() == Phase::Finishing {
            self.is_idle = true;
            self.harness.mark_idle();
        }
    }

    pub(super) fn send(&mut self, connection: &mut Connection, request: Request) -> Result<(), ConnectionLost> {
        let (kind, payload) = request.encode(&self.harness, self.generation);
        let moment = if let Request::Decide { .. } = request { Moment::DecisionSent } else { Moment::RequestSent };
        if let Request::Message { id, .. } = &request {
            self.harness.observations.lock().messages.get_mut(id).expect("a message of ours").attempts += 1;
        }
        let sent = connection.send(kind, &payload);
        // A request that was interrupted may have arrived completely.
        let request_id = sent.as_ref().map_or_else(|_| "lost".to_owned(), Clone::clone);
        self.pending.insert(request_id, request);
        sent.map(|_| self.harness.moment_reached(moment))
    }
}
