//! The encoding of a session's state as a checkpoint.
//!
//! Parts of the state that come from events are encoded as the lines of those events, so that one lossless codec
//! serves the journal and its checkpoints. An unreadable checkpoint loses nothing while the complete history exists,
//! because replaying the history yields the same state.

mod parts;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::kernel::command::SessionStatus;
use crate::kernel::effect::ModelChoice;
use crate::kernel::event::{Budget, ContextEvent, EventKind, Message, RunEvent, RunReport, SessionEvent, ToolEvent};
use crate::kernel::gate::{Gate, Voter};
use crate::kernel::id::{Fingerprint, GateId, MessageId, RunId, Seq};
use crate::kernel::idempotency::{IdempotencyCache, KeyEntry, KeySpace};
use crate::kernel::state::{ActiveCompaction, PendingStop, Run, RunUsage, State};
use crate::kernel::time::Now;
use crate::record::{self, RecordError};
use parts::{
    active_compaction, adjustment, adjustment_line, decision, decode_calls, decode_line, empty_report, encode_calls,
    event_line, gate_line, opening, owner_vote, owner_votes, participant_lines, participant_votes, participants,
    question, report,
};

/// The version that is written.
const VERSION: u32 = 2;
/// The oldest version that can be read; fields it lacks take their defaults.
const OLDEST_VERSION: u32 = 1;

/// Why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// It is not a JSON object of this structure.
    #[error("not a checkpoint: {0}")]
    Malformed(#[from] serde_json::Error),
    /// One of its lines is not an event.
    #[error("an event cannot be decoded: {0}")]
    Record(#[from] RecordError),
    /// It has an unsupported version.
    #[error("unsupported version {0}")]
    Version(u32),
    /// An earlier version wrote it without folding events of a kind that this version knows.
    #[error("it was written by a version that did not know {0} events")]
    Incomplete(String),
    /// One of its lines is an event of another kind than its field requires.
    #[error("a field holds an event of the wrong kind")]
    WrongEventKind,
}

/// Encodes a state.
pub fn encode(state: &State) -> Vec<u8> {
    // Plain data: encoding cannot fail.
    serde_json::to_vec(&CheckpointData::from_state(state)).unwrap_or_default()
}

/// Returns whether a checkpoint can be decoded.
pub fn is_readable(bytes: &[u8]) -> bool {
    decode(bytes).is_ok()
}

/// Decodes a state.
pub fn decode(bytes: &[u8]) -> Result<State, CheckpointError> {
    let written: CheckpointData = serde_json::from_slice(bytes)?;
    if !(OLDEST_VERSION..=VERSION).contains(&written.version) {
        return Err(CheckpointError::Version(written.version));
    }
    if let Some(kind) = written.unknown_kinds.iter().find(|kind| record::is_known_kind(kind)) {
        return Err(CheckpointError::Incomplete(kind.clone()));
    }
    written.into_state()
}

type Line = Box<RawValue>;

#[derive(Serialize, Deserialize)]
struct CheckpointData {
    version: u32,
    opening: Option<Line>,
    name: Option<String>,
    opened_at: u64,
    updated_at: u64,
    last_seq: u64,
    run: Option<RunData>,
    gates: Vec<(Line, BTreeMap<String, bool>)>,
    settled_gates: Vec<String>,
    #[serde(default)]
    granted: VecDeque<String>,
    queue: Vec<Line>,
    ledger: Vec<KeyEntryData>,
    last_text: String,
    last_message: String,
    last_run: Option<(String, Line)>,
    ended: bool,
    #[serde(default)]
    context_from: u64,
    #[serde(default)]
    session_version: u64,
    /// The settings that differ from the opening, as one adjustment.
    #[serde(default)]
    adjusted: Option<Line>,
    #[serde(default)]
    asides: Vec<(Line, bool)>,
    /// The start of the active compaction, with its position.
    #[serde(default)]
    compaction: Option<(u64, Line)>,
    /// The participants, as the events with which they would join.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    participants: Vec<Line>,
    /// The votes of participants: the gate, the participant, and whether it approves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    participant_votes: Vec<(String, String, bool)>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_restricted_events: bool,
    /// The kinds of events that the writer did not know and did not fold.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    unknown_kinds: BTreeSet<String>,
}

#[derive(Serialize, Deserialize)]
struct RunData {
    id: String,
    message: Line,
    deadline: Option<u64>,
    steers: Vec<(u32, Line)>,
    begun: u32,
    done: u32,
    speaking: bool,
    calls: Vec<(Line, bool)>,
    /// The approved digests, by call.
    #[serde(default)]
    bound: BTreeMap<String, String>,
    #[serde(default)]
    granted: VecDeque<String>,
    last: Option<Line>,
    checks: Line,
    stopping: Option<Line>,
    #[serde(default)]
    torn: bool,
    #[serde(default)]
    spent: UsageData,
    /// The model of the run; absent in old versions, where the session's model applies.
    #[serde(default)]
    voice: Option<ModelChoiceData>,
    #[serde(default)]
    retrying: Option<u32>,
}

#[derive(Serialize, Deserialize)]
struct ModelChoiceData {
    provider: String,
    model: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
struct UsageData {
    cost: u64,
    turns: u64,
    tokens: u64,
    raised: UsageBaselineData,
}

#[derive(Default, Serialize, Deserialize)]
struct UsageBaselineData {
    cost: Option<u64>,
    turns: Option<u64>,
    tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    daily: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct KeyEntryData {
    steer: bool,
    key: String,
    fingerprint: String,
    run: String,
}

impl CheckpointData {
    fn from_state(state: &State) -> Self {
        let gates = state.gates.values().filter_map(|gate| Some((gate_line(gate)?, owner_votes(gate))));
        let ledger = state.idempotency.entries().map(|((scope, key), entry)| KeyEntryData {
            steer: *scope == KeySpace::Steer,
            key: key.as_str().to_owned(),
            fingerprint: format!("{:032x}", entry.fingerprint.0),
            run: entry.run.as_str().to_owned(),
        });
        let last_run = state.last_run.as_ref().and_then(|(run, outcome, exit_code)| {
            let report = RunReport { outcome: *outcome, exit_code: *exit_code, ..empty_report() };
            Some((run.as_str().to_owned(), event_line(EventKind::Run(RunEvent::Ended(Box::new(report))))?))
        });
        let compaction = state.compaction.and_then(|ActiveCompaction { start_seq: began, reason }| {
            Some((
                began.number(),
                event_line(EventKind::Context(ContextEvent::CompactionStarted { reason, by: None }))?,
            ))
        });
        let queue = state
            .queue
            .iter()
            .filter_map(|queued| event_line(EventKind::Run(RunEvent::MessageQueued(Box::new(queued.clone())))));
        Self {
            version: VERSION,
            opening: state
                .opening
                .clone()
                .and_then(|opening| event_line(EventKind::Session(SessionEvent::Opened(Box::new(opening))))),
            name: state.name.clone(),
            opened_at: state.opened_at.0,
            updated_at: state.updated_at.0,
            last_seq: state.last_seq.number(),
            run: state.run.as_deref().and_then(RunData::from_run),
            gates: gates.collect(),
            settled_gates: state.settled_gates.iter().map(|gate| gate.as_str().to_owned()).collect(),
            granted: state.granted.clone(),
            queue: queue.collect(),
            ledger: ledger.collect(),
            last_text: state.last_text.clone(),
            last_message: state.last_message.clone(),
            last_run,
            ended: state.open == SessionStatus::Ended,
            context_from: state.context_from.number(),
            session_version: state.version,
            adjusted: adjustment_line(&state.adjusted),
            asides: encode_calls(&state.user_commands),
            compaction,
            participants: participant_lines(state),
            participant_votes: participant_votes(state),
            has_restricted_events: state.has_restricted_events,
            unknown_kinds: state.unknown_kinds.clone(),
        }
    }

    fn into_state(self) -> Result<State, CheckpointError> {
        let opening = self.opening.map(|line| opening(&line)).transpose()?;
        let gates = self.gates.into_iter().map(|(line, votes)| {
            let (question, of_run) = question(&line)?;
            let run = self.run.as_ref().filter(|_| of_run).map(|run| RunId::from(run.id.as_str()));
            Ok((question.gate.clone(), Gate { run, question, votes: owner_vote(&votes) }))
        });
        let queue = self.queue.iter().map(|line| {
            let EventKind::Run(RunEvent::MessageQueued(queued)) = decode_line(line)? else {
                return Err(CheckpointError::WrongEventKind);
            };
            Ok(*queued)
        });
        let ledger = self.ledger.into_iter().map(|entry| {
            let scope = if entry.steer { KeySpace::Steer } else { KeySpace::Prompt };
            let number = u128::from_str_radix(&entry.fingerprint, 16).map_err(|_| CheckpointError::WrongEventKind)?;
            let run = RunId::from(entry.run);
            Ok(((scope, MessageId::from(entry.key)), KeyEntry { fingerprint: Fingerprint(number), run }))
        });
        let ledger: Vec<_> = ledger.collect::<Result<_, CheckpointError>>()?;
        let last_run = self
            .last_run
            .map(|(run, line)| report(&line).map(|report| (RunId::from(run), report.outcome, report.exit_code)));
        let mut state = State {
            opening,
            name: self.name,
            opened_at: Now(self.opened_at),
            updated_at: Now(self.updated_at),
            last_seq: Seq::new(self.last_seq),
            run: None,
            gates: gates.collect::<Result<_, CheckpointError>>()?,
            settled_gates: self.settled_gates.into_iter().map(GateId::from).collect(),
            granted: self.granted,
            queue: queue.collect::<Result<VecDeque<_>, CheckpointError>>()?,
            idempotency: IdempotencyCache::from_entries(ledger),
            last_text: self.last_text,
            last_message: self.last_message,
            last_run: last_run.transpose()?,
            open: if self.ended { SessionStatus::Ended } else { SessionStatus::Open },
            context_from: Seq::new(self.context_from),
            version: self.session_version,
            adjusted: self.adjusted.map(|line| adjustment(&line)).transpose()?.unwrap_or_default(),
            user_commands: decode_calls(self.asides, &BTreeMap::new())?,
            compaction: self.compaction.map(|(began, line)| active_compaction(began, &line)).transpose()?,
            participants: participants(&self.participants)?,
            has_restricted_events: self.has_restricted_events,
            unknown_kinds: self.unknown_kinds,
        };
        for (gate, participant, approves) in self.participant_votes {
            let gate = state.gates.get_mut(&GateId::from(gate)).ok_or(CheckpointError::WrongEventKind)?;
            gate.votes.insert(Voter::Participant(participant.into()), decision(approves));
        }
        state.run = self.run.map(|run| run.into_run(&state.model_choice()).map(Box::new)).transpose()?;
        Ok(state)
    }
}

impl RunData {
    fn from_run(run: &Run) -> Option<Self> {
        let steers = run.steers.iter().filter_map(|(at, steering)| {
            Some((*at, event_line(EventKind::Run(RunEvent::Steered(Box::new(steering.clone()))))?))
        });
        let bound =
            run.calls.iter().filter_map(|(id, call)| Some((id.as_str().to_owned(), call.approved_digest.clone()?)));
        let message = Message {
            message: run.message.clone(),
            text: run.text.clone(),
            images: Vec::new(),
            criteria: run.criteria.clone(),
            time_limit: None,
            budget: run.budget,
            rules: run.rules.clone(),
            needs_environment: run.needs_environment,
            fingerprint: Fingerprint(0),
            by: String::new(),
        };
        let count = u32::try_from(run.criteria.len()).unwrap_or(u32::MAX);
        let checks = RunReport { checks: run.checks.clone(), checks_requested: count, ..empty_report() };
        let stopping = run
            .stopping
            .clone()
            .map(|PendingStop { outcome, reason, by }| EventKind::Run(RunEvent::Stopping { outcome, reason, by }));
        let Budget { cost, turns, tokens } = run.spent.baseline;
        Some(Self {
            id: run.id.as_str().to_owned(),
            message: event_line(EventKind::Run(RunEvent::Started(Box::new(message))))?,
            deadline: run.deadline.map(|at| at.0),
            steers: steers.collect(),
            begun: run.steps_started,
            done: run.steps_done,
            speaking: run.text_open,
            calls: encode_calls(&run.calls),
            bound: bound.collect(),
            granted: run.granted.clone(),
            last: run
                .last_call
                .clone()
                .and_then(|last| event_line(EventKind::Tool(ToolEvent::Settled(Box::new(last))))),
            checks: event_line(EventKind::Run(RunEvent::Ended(Box::new(checks))))?,
            stopping: stopping.and_then(event_line),
            torn: run.history_damaged,
            spent: UsageData {
                cost: run.spent.cost,
                turns: run.spent.turns,
                tokens: run.spent.tokens,
                raised: UsageBaselineData { cost, turns, tokens, daily: run.spent.daily_baseline },
            },
            voice: Some(ModelChoiceData {
                provider: run.model_choice.provider.clone(),
                model: run.model_choice.model.clone(),
            }),
            retrying: run.retry_attempt,
        })
    }

    fn into_run(self, usual: &ModelChoice) -> Result<Run, CheckpointError> {
        let EventKind::Run(RunEvent::Started(message)) = decode_line(&self.message)? else {
            return Err(CheckpointError::WrongEventKind);
        };
        let steers = self.steers.into_iter().map(|(at, line)| {
            let EventKind::Run(RunEvent::Steered(steering)) = decode_line(&line)? else {
                return Err(CheckpointError::WrongEventKind);
            };
            Ok((at, *steering))
        });
        let last = self.last.map(|line| {
            let EventKind::Tool(ToolEvent::Settled(settlement)) = decode_line(&line)? else {
                return Err(CheckpointError::WrongEventKind);
            };
            Ok(*settlement)
        });
        let stopping = self.stopping.map(|line| {
            let EventKind::Run(RunEvent::Stopping { outcome, reason, by }) = decode_line(&line)? else {
                return Err(CheckpointError::WrongEventKind);
            };
            Ok(PendingStop { outcome, reason, by })
        });
        let UsageData { cost, turns, tokens, raised } = self.spent;
        let daily_baseline = raised.daily;
        let raised = Budget { cost: raised.cost, turns: raised.turns, tokens: raised.tokens };
        Ok(Run {
            id: RunId::from(self.id),
            budget: message.budget,
            rules: message.rules,
            needs_environment: message.needs_environment,
            spent: RunUsage { cost, turns, tokens, baseline: raised, daily_baseline },
            message: message.message,
            text: message.text,
            criteria: message.criteria,
            deadline: self.deadline.map(Now),
            steers: steers.collect::<Result<_, CheckpointError>>()?,
            steps_started: self.begun,
            steps_done: self.done,
            text_open: self.speaking,
            calls: decode_calls(self.calls, &self.bound)?,
            granted: self.granted,
            last_call: last.transpose()?,
            checks: report(&self.checks)?.checks,
            stopping: stopping.transpose()?,
            history_damaged: self.torn,
            // The other provider settings belong to the session, not to the run.
            model_choice: self.voice.map_or_else(
                || usual.clone(),
                |ModelChoiceData { provider, model }| ModelChoice { provider, model, ..usual.clone() },
            ),
            retry_attempt: self.retrying,
        })
    }
}
