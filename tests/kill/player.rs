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

use super::ask::Ask;
use super::follow::Following;
use super::leftover;
use super::random::Random;
use super::schemas;
use super::stage::{Act, Moment, Stage};
use super::wire::{Head, Heard, Lost, Wire};
use super::witness::{Fate, Granted, How, text};
use super::workload;

/// The role of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Worker,
    Watcher,
}

/// One client.
pub(crate) struct Player {
    pub(super) stage: Arc<Stage>,
    pub(super) role: Role,
    pub(super) number: usize,
    pub(super) random: Random,
    life: u64,
    /// By session.
    pub(super) following: BTreeMap<String, Following>,
    /// The session of a worker.
    pub(super) session: Option<String>,
    pub(super) pending: BTreeMap<String, Ask>,
    /// Messages whose reply was lost.
    pub(super) unanswered: Vec<Ask>,
    pub(super) made: u64,
    pub(super) tired: bool,
    pub(super) resting: bool,
}

/// Why a client disconnects from a live daemon.
enum Leave {
    Nap,
}

/// How long a client reads before its next action.
const TICK: Duration = Duration::from_millis(8);

impl Player {
    pub(crate) fn new(stage: Arc<Stage>, role: Role, number: usize, random: Random) -> Self {
        Self {
            stage,
            role,
            number,
            random,
            life: 0,
            following: BTreeMap::new(),
            session: None,
            pending: BTreeMap::new(),
            unanswered: Vec::new(),
            made: 0,
            tired: false,
            resting: false,
        }
    }

    /// Runs until the phase is `Done`.
    pub(crate) fn play(mut self) {
        while let Some(life) = self.stage.next_life(self.life) {
            self.life = life;
            // Without watchers the daemon unloads an idle session.
            if self.role == Role::Watcher && self.random.one_in(3) {
                continue;
            }
            while let Ok(Leave::Nap) = self.one_connection() {
                self.leave();
                std::thread::sleep(Duration::from_millis(self.random.below(40)));
            }
            self.leave();
            if !self.stage.was_killed(life) {
                let who = format!("{:?} {}", self.role, self.number);
                self.stage
                    .witness
                    .finding(format!("generation {life}: {who} lost a daemon that was not killed"));
            }
        }
    }

    fn one_connection(&mut self) -> Result<Leave, Lost> {
        let mut wire = Wire::connect(&self.stage.socket())?;
        self.join(&mut wire)?;
        loop {
            match wire.hear(TICK) {
                Heard::Line(line) => self.hear(&line),
                Heard::Nothing => {
                    self.join(&mut wire)?;
                    self.act(&mut wire)?;
                }
                Heard::End => return Err(Lost),
            }
            if self.random.one_in(12) {
                self.act(&mut wire)?;
            }
            if std::mem::take(&mut self.tired) {
                return Ok(Leave::Nap);
            }
        }
    }

    /// Keeps unanswered messages to be sent again, and drops other requests.
    fn leave(&mut self) {
        for ask in std::mem::take(&mut self.pending).into_values() {
            if let Ask::Message { .. } = ask {
                self.unanswered.push(ask);
            }
        }
        for following in self.following.values_mut() {
            following.end_stretch(&self.stage.witness);
        }
    }

    /// Attaches to every session that is not attached yet.
    fn join(&mut self, wire: &mut Wire) -> Result<(), Lost> {
        if self.role == Role::Watcher {
            let known: Vec<_> = self.stage.witness.lock().events.keys().cloned().collect();
            for session in known {
                self.following.entry(session).or_default();
            }
        } else if self.session.is_none() {
            let starting = self.pending.values().any(|ask| matches!(ask, Ask::Start { .. }));
            return if starting { Ok(()) } else { self.ask(wire, Ask::Start { number: self.number }) };
        }
        let missing = |(_, following): &(&String, &Following)| !following.is_joined();
        let missing: Vec<_> =
            self.following.iter().filter(missing).map(|(id, place)| (id.clone(), place.last)).collect();
        for (session, after) in missing {
            self.following.get_mut(&session).expect("it is followed").join();
            self.ask(wire, Ask::Attach { session, after })?;
        }
        Ok(())
    }

    fn hear(&mut self, line: &[u8]) {
        let line_text = std::str::from_utf8(line).unwrap_or_default();
        let head: Head<'_> = match serde_json::from_str(line_text) {
            Ok(head) => head,
            Err(error) => return self.stage.witness.finding(format!("no message ({error}): {}", text(line))),
        };
        match head.kind {
            "event" => self.event(&head, line),
            _ => {
                if let Err(problems) = schemas::judge_line(line_text) {
                    self.stage.witness.finding(format!("not valid: {problems:?} {}", text(line)));
                }
                self.answer(&head);
                self.stage.at(Moment::Answered);
            }
        }
    }

    fn event(&mut self, head: &Head<'_>, line: &[u8]) {
        let (Some(session), Some(seq)) = (head.session_id, head.seq) else { return };
        let Some(following) = self.following.get_mut(session) else {
            return self
                .stage
                .witness
                .finding(format!("an event of a session nobody asked for: {}", text(line)));
        };
        following.take(head, session, seq, line, &self.stage.witness);
        match head.r#type {
            "approval_required" => self.stage.at(Moment::ApprovalAsked),
            "tool_output" => self.stage.at(Moment::Output),
            "tool_result" => self.stage.at(Moment::StepOver),
            "run_recovered" => self.stage.at(Moment::Recovered),
            "session_snapshot" => self.stage.at(Moment::ToldAlone),
            "run_complete" => {
                self.stage.at(Moment::RunOver);
                self.look_for_leftovers(head);
            }
            "status" if head.payload.get().contains("callId") => self.stage.at(Moment::StepStarted),
            _ => {}
        }
    }

    /// Checks that a completed run has left no process.
    fn look_for_leftovers(&mut self, head: &Head<'_>) {
        let cut_short = head.payload.get().contains("\"cancelled\"");
        if self.role == Role::Watcher || !(cut_short || self.random.one_in(4)) {
            return;
        }
        let (run, witness) = (head.run_id.unwrap_or_default(), &self.stage.witness);
        let taken = Fate::Taken { run: run.to_owned() };
        let messages: Vec<_> = {
            let seen = witness.lock();
            let ours = seen.messages.iter().filter(|(_, message)| message.fate == taken);
            ours.map(|(id, _)| workload::trace(&format!("{id}k"))).collect()
        };
        // Supervisors of an earlier generation end their processes; those are not waited for.
        let left = leftover::wait_for_none(&messages, None, Duration::from_secs(2));
        if !messages.is_empty() && !left.is_empty() {
            let life = self.life;
            witness.finding(format!("generation {life}: {run} is over and has left {left:?}"));
        }
    }

    fn answer(&mut self, head: &Head<'_>) {
        let ask = head.request_id.and_then(|request| self.pending.remove(request));
        let Some(ask) = ask else {
            return self.stage.witness.finding(format!("an answer to nothing: {head:?}"));
        };
        let (granted, payload) = (head.ok == Some(true), head.payload());
        let witness = &self.stage.witness;
        match ask {
            Ask::Start { .. } => {
                let session = payload["sessionId"].as_str().map(str::to_owned);
                let Some(session) = session else { return witness.finding(format!("no session: {head:?}")) };
                let place = self.following.entry(session.clone()).or_default();
                if payload["repeated"] != true {
                    place.join();
                    place.begin_stretch(self.life, &session, 0, witness);
                }
                self.session = Some(session);
            }
            Ask::Attach { session, after } => {
                let place = self.following.get_mut(&session).expect("it is followed");
                place.attached(self.life, &session, after, granted, &payload, witness);
            }
            Ask::Message { id, how, .. } if granted => {
                let run = payload["runId"].as_str().unwrap_or_default().to_owned();
                witness.fate(&id, Fate::Taken { run });
                if how == How::Queue && payload["messageId"] != id.as_str() {
                    witness.finding(format!("{id} was queued under another name: {payload}"));
                }
            }
            Ask::Message { id, how, payload } => match head.code().as_str() {
                "INTERNAL_ERROR" => {
                    witness.finding(format!("{id} failed: {head:?}"));
                    self.unanswered.push(Ask::Message { id, how, payload });
                }
                code => witness.fate(&id, Fate::Refused { code: code.to_owned() }),
            },
            Ask::Decide { session, approval, decision, choice } if granted => {
                witness.lock().granted.push(Granted::Decision { session, approval, decision, choice });
            }
            Ask::Cancel { session, run } if granted => {
                witness.lock().granted.push(Granted::Cancel { session, run })
            }
            Ask::Remove { session, message } if granted => {
                witness.lock().granted.push(Granted::Removal { session, message });
            }
            Ask::Rename { session, name } if granted => {
                witness.lock().granted.push(Granted::Name { session, name })
            }
            Ask::Snapshot { .. } if granted => self.consider_rest(&payload),
            Ask::Decide { .. }
            | Ask::Cancel { .. }
            | Ask::Remove { .. }
            | Ask::Rename { .. }
            | Ask::Snapshot { .. } => {
                let code = head.code();
                let usual = ["APPROVAL_EXPIRED", "NO_ACTIVE_RUN", "INVALID_REQUEST"];
                if !usual.contains(&code.as_str()) {
                    witness.finding(format!("refused with {code}: {head:?}"));
                }
            }
        }
    }

    /// A session without work is idle once every request has its reply.
    fn consider_rest(&mut self, snapshot: &Value) {
        let quiet = snapshot["activeRunId"].is_null() && snapshot["queued"] == 0;
        let all_answered = self.pending.is_empty() && self.unanswered.is_empty();
        if quiet && all_answered && !self.resting && self.stage.act() == Act::Finishing {
            self.resting = true;
            self.stage.rest();
        }
    }

    pub(super) fn ask(&mut self, wire: &mut Wire, ask: Ask) -> Result<(), Lost> {
        let (kind, payload) = ask.request(&self.stage, self.life);
        let moment = if let Ask::Decide { .. } = ask { Moment::DecisionSent } else { Moment::RequestSent };
        if let Ask::Message { id, .. } = &ask {
            self.stage.witness.lock().messages.get_mut(id).expect("a message of ours").attempts += 1;
        }
        let sent = wire.send(kind, &payload);
        // A request that was interrupted may have arrived completely.
        let request = sent.as_ref().map_or_else(|_| "lost".to_owned(), Clone::clone);
        self.pending.insert(request, ask);
        sent.map(|_| self.stage.at(moment))
    }
}
