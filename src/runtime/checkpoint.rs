//! The encoding of a session's state as a checkpoint.
//!
//! Parts of the state that come from events are encoded as the lines of those events, so that one lossless codec
//! serves the journal and its checkpoints. An unreadable checkpoint loses nothing while the complete history exists,
//! because replaying the history yields the same state.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::kernel::command::Openness;
use crate::kernel::effect::Voice;
use crate::kernel::event::{
    Adjustment, Budget, Decision, Event, EventKind, Message, Opening, Outcome, Question, RunReport,
};
use crate::kernel::gate::Gate;
use crate::kernel::id::{CallId, Fingerprint, GateId, MessageId, RunId, Seq, SessionId};
use crate::kernel::ledger::{Entry, Ledger, Scope};
use crate::kernel::state::{Call, Compacting, Run, Spent, Stage, State, Stopping};
use crate::kernel::time::Now;
use crate::protocol::push::encode;
use crate::protocol::push::record::{self, RecordError};

/// The version that is written.
const VERSION: u32 = 2;
/// The oldest version that can be read; fields it lacks take their defaults.
const OLDEST: u32 = 1;

/// Why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// It is not a JSON object of this structure.
    #[error("not a checkpoint: {0}")]
    Form(#[from] serde_json::Error),
    /// One of its lines is not an event.
    #[error("an event cannot be decoded: {0}")]
    Record(#[from] RecordError),
    /// It has an unsupported version.
    #[error("unsupported version {0}")]
    Version(u32),
    /// One of its lines is an event of another kind than its field requires.
    #[error("a field holds an event of the wrong kind")]
    Misplaced,
}

/// Encodes a state.
pub fn encode(state: &State) -> Vec<u8> {
    // Plain data: encoding cannot fail.
    serde_json::to_vec(&Written::of(state)).unwrap_or_default()
}

/// Returns whether a checkpoint can be decoded.
pub fn is_readable(bytes: &[u8]) -> bool {
    decode(bytes).is_ok()
}

/// Decodes a state.
pub fn decode(bytes: &[u8]) -> Result<State, CheckpointError> {
    let written: Written = serde_json::from_slice(bytes)?;
    if !(OLDEST..=VERSION).contains(&written.version) {
        return Err(CheckpointError::Version(written.version));
    }
    written.state()
}

type Line = Box<RawValue>;

#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    opening: Option<Line>,
    name: Option<String>,
    opened_at: u64,
    updated_at: u64,
    last_seq: u64,
    run: Option<WrittenRun>,
    gates: Vec<(Line, BTreeMap<String, bool>)>,
    settled_gates: Vec<String>,
    #[serde(default)]
    granted: VecDeque<String>,
    queue: Vec<Line>,
    ledger: Vec<WrittenEntry>,
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
}

#[derive(Serialize, Deserialize)]
struct WrittenRun {
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
    spent: WrittenSpent,
    /// The model of the run; absent in old versions, where the session's model applies.
    #[serde(default)]
    voice: Option<WrittenVoice>,
    #[serde(default)]
    retrying: Option<u32>,
}

#[derive(Serialize, Deserialize)]
struct WrittenVoice {
    provider: String,
    model: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
struct WrittenSpent {
    cost: u64,
    turns: u64,
    tokens: u64,
    raised: WrittenRaises,
}

#[derive(Default, Serialize, Deserialize)]
struct WrittenRaises {
    cost: Option<u64>,
    turns: Option<u64>,
    tokens: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct WrittenEntry {
    steer: bool,
    key: String,
    fingerprint: String,
    run: String,
}

impl Written {
    fn of(state: &State) -> Self {
        let gates = state.gates.values().filter_map(|gate| {
            let votes = gate.votes.iter().map(|(by, vote)| (by.clone(), *vote == Decision::Approve));
            Some((line(EventKind::GateOpened(Box::new(gate.question.clone())))?, votes.collect()))
        });
        let ledger = state.ledger.entries().map(|((scope, key), entry)| WrittenEntry {
            steer: *scope == Scope::Steer,
            key: key.as_str().to_owned(),
            fingerprint: format!("{:032x}", entry.fingerprint.0),
            run: entry.run.as_str().to_owned(),
        });
        let last_run = state.last_run.as_ref().and_then(|(run, outcome, exit_code)| {
            let report = RunReport { outcome: *outcome, exit_code: *exit_code, ..empty_report() };
            Some((run.as_str().to_owned(), line(EventKind::RunEnded(Box::new(report)))?))
        });
        let compaction = state.compaction.and_then(|Compacting { began, reason }| {
            Some((began.number(), line(EventKind::CompactionBegan { reason, by: None })?))
        });
        let queue =
            state.queue.iter().filter_map(|queued| line(EventKind::MessageQueued(Box::new(queued.clone()))));
        Self {
            version: VERSION,
            opening: state
                .opening
                .clone()
                .and_then(|opening| line(EventKind::SessionOpened(Box::new(opening)))),
            name: state.name.clone(),
            opened_at: state.opened_at.0,
            updated_at: state.updated_at.0,
            last_seq: state.last_seq.number(),
            run: state.run.as_ref().and_then(WrittenRun::of),
            gates: gates.collect(),
            settled_gates: state.settled_gates.iter().map(|gate| gate.as_str().to_owned()).collect(),
            granted: state.granted.clone(),
            queue: queue.collect(),
            ledger: ledger.collect(),
            last_text: state.last_text.clone(),
            last_message: state.last_message.clone(),
            last_run,
            ended: state.open == Openness::Ended,
            context_from: state.context_from.number(),
            session_version: state.version,
            adjusted: adjusted_line(&state.adjusted),
            asides: calls(&state.asides),
            compaction,
        }
    }

    fn state(self) -> Result<State, CheckpointError> {
        let opening = self.opening.map(|line| opening(&line)).transpose()?;
        let gates = self.gates.into_iter().map(|(line, votes)| {
            let question = question(&line)?;
            let vote = |approves| if approves { Decision::Approve } else { Decision::Deny };
            let votes = votes.into_iter().map(|(by, approves)| (by, vote(approves))).collect();
            Ok((question.gate.clone(), Gate { question, votes }))
        });
        let queue = self.queue.iter().map(|line| {
            let EventKind::MessageQueued(queued) = event(line)? else {
                return Err(CheckpointError::Misplaced);
            };
            Ok(*queued)
        });
        let ledger = self.ledger.into_iter().map(|entry| {
            let scope = if entry.steer { Scope::Steer } else { Scope::Prompt };
            let number =
                u128::from_str_radix(&entry.fingerprint, 16).map_err(|_| CheckpointError::Misplaced)?;
            let run = RunId::from(entry.run);
            Ok(((scope, MessageId::from(entry.key)), Entry { fingerprint: Fingerprint(number), run }))
        });
        let ledger: Vec<_> = ledger.collect::<Result<_, CheckpointError>>()?;
        let last_run = self.last_run.map(|(run, line)| {
            report(&line).map(|report| (RunId::from(run), report.outcome, report.exit_code))
        });
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
            ledger: Ledger::from_entries(ledger),
            last_text: self.last_text,
            last_message: self.last_message,
            last_run: last_run.transpose()?,
            open: if self.ended { Openness::Ended } else { Openness::Open },
            context_from: Seq::new(self.context_from),
            version: self.session_version,
            adjusted: self.adjusted.map(|line| adjustment(&line)).transpose()?.unwrap_or_default(),
            asides: read_calls(self.asides, &BTreeMap::new())?,
            compaction: self.compaction.map(|(began, line)| compacting(began, &line)).transpose()?,
        };
        state.run = self.run.map(|run| run.run(&state.voice())).transpose()?;
        Ok(state)
    }
}

impl WrittenRun {
    fn of(run: &Run) -> Option<Self> {
        let steers = run
            .steers
            .iter()
            .filter_map(|(at, steering)| Some((*at, line(EventKind::Steered(Box::new(steering.clone())))?)));
        let bound =
            run.calls.iter().filter_map(|(id, call)| Some((id.as_str().to_owned(), call.bound.clone()?)));
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
        let asked = u32::try_from(run.criteria.len()).unwrap_or(u32::MAX);
        let checks = RunReport { checks: run.checks.clone(), checks_asked: asked, ..empty_report() };
        let stopping = run.stopping.clone().map(|Stopping { outcome, reason, by }| EventKind::Stopping {
            outcome,
            reason,
            by,
        });
        let Budget { cost, turns, tokens } = run.spent.raised;
        Some(Self {
            id: run.id.as_str().to_owned(),
            message: line(EventKind::RunStarted(Box::new(message)))?,
            deadline: run.deadline.map(|at| at.0),
            steers: steers.collect(),
            begun: run.begun,
            done: run.done,
            speaking: run.speaking,
            calls: calls(&run.calls),
            bound: bound.collect(),
            granted: run.granted.clone(),
            last: run.last.clone().and_then(|last| line(EventKind::CallSettled(Box::new(last)))),
            checks: line(EventKind::RunEnded(Box::new(checks)))?,
            stopping: stopping.and_then(line),
            torn: run.torn,
            spent: WrittenSpent {
                cost: run.spent.cost,
                turns: run.spent.turns,
                tokens: run.spent.tokens,
                raised: WrittenRaises { cost, turns, tokens },
            },
            voice: Some(WrittenVoice {
                provider: run.voice.provider.clone(),
                model: run.voice.model.clone(),
            }),
            retrying: run.retrying,
        })
    }

    fn run(self, usual: &Voice) -> Result<Run, CheckpointError> {
        let EventKind::RunStarted(message) = event(&self.message)? else {
            return Err(CheckpointError::Misplaced);
        };
        let steers = self.steers.into_iter().map(|(at, line)| {
            let EventKind::Steered(steering) = event(&line)? else { return Err(CheckpointError::Misplaced) };
            Ok((at, *steering))
        });
        let last = self.last.map(|line| {
            let EventKind::CallSettled(settlement) = event(&line)? else {
                return Err(CheckpointError::Misplaced);
            };
            Ok(*settlement)
        });
        let stopping = self.stopping.map(|line| {
            let EventKind::Stopping { outcome, reason, by } = event(&line)? else {
                return Err(CheckpointError::Misplaced);
            };
            Ok(Stopping { outcome, reason, by })
        });
        let WrittenSpent { cost, turns, tokens, raised } = self.spent;
        let raised = Budget { cost: raised.cost, turns: raised.turns, tokens: raised.tokens };
        Ok(Run {
            id: RunId::from(self.id),
            budget: message.budget,
            rules: message.rules,
            needs_environment: message.needs_environment,
            spent: Spent { cost, turns, tokens, raised },
            message: message.message,
            text: message.text,
            criteria: message.criteria,
            deadline: self.deadline.map(Now),
            steers: steers.collect::<Result<_, CheckpointError>>()?,
            begun: self.begun,
            done: self.done,
            speaking: self.speaking,
            calls: read_calls(self.calls, &self.bound)?,
            granted: self.granted,
            last: last.transpose()?,
            checks: report(&self.checks)?.checks,
            stopping: stopping.transpose()?,
            torn: self.torn,
            // The other provider settings belong to the session, not to the run.
            voice: self.voice.map_or_else(
                || usual.clone(),
                |WrittenVoice { provider, model }| Voice { provider, model, ..usual.clone() },
            ),
            retrying: self.retrying,
        })
    }
}

/// Encodes a part of the state as the line of its event.
fn line(kind: EventKind) -> Option<Line> {
    let nobody = SessionId::from("");
    // Some kinds of events require a run, so an empty one is set.
    let run = Some(RunId::from(""));
    let event = Event { seq: Seq::ZERO, at: Now::default(), run, version: None, origin: None, kind };
    let mut bytes = Vec::new();
    encode::event_line(&nobody, &event, &mut bytes);
    let text = String::from_utf8(bytes).ok()?;
    RawValue::from_string(text.trim_end().to_owned()).ok()
}

fn event(line: &RawValue) -> Result<EventKind, CheckpointError> {
    Ok(record::decode_event(line.get().as_bytes())?.kind)
}

fn calls(calls: &BTreeMap<CallId, Call>) -> Vec<(Line, bool)> {
    let written = calls.values().filter_map(|call| {
        let started = call.stage == Stage::Started;
        Some((line(EventKind::CallIntended(Box::new(call.intention.clone())))?, started))
    });
    written.collect()
}

fn read_calls(
    written: Vec<(Line, bool)>,
    bound: &BTreeMap<String, String>,
) -> Result<BTreeMap<CallId, Call>, CheckpointError> {
    let calls = written.into_iter().map(|(line, started)| {
        let EventKind::CallIntended(intention) = event(&line)? else {
            return Err(CheckpointError::Misplaced);
        };
        let stage = if started { Stage::Started } else { Stage::Intended };
        let bound = bound.get(intention.call.as_str()).cloned();
        Ok((intention.call.clone(), Call { intention: *intention, stage, bound }))
    });
    calls.collect()
}

fn adjusted_line(adjusted: &Adjustment) -> Option<Line> {
    let changed = Some(adjusted).filter(|adjusted| **adjusted != Adjustment::default())?;
    line(EventKind::Adjusted { adjustment: Box::new(changed.clone()), by: String::new() })
}

fn adjustment(line: &RawValue) -> Result<Adjustment, CheckpointError> {
    let EventKind::Adjusted { adjustment, by: _ } = event(line)? else {
        return Err(CheckpointError::Misplaced);
    };
    Ok(*adjustment)
}

fn compacting(began: u64, line: &RawValue) -> Result<Compacting, CheckpointError> {
    let EventKind::CompactionBegan { reason, by: _ } = event(line)? else {
        return Err(CheckpointError::Misplaced);
    };
    Ok(Compacting { began: Seq::new(began), reason })
}

fn opening(line: &RawValue) -> Result<Opening, CheckpointError> {
    let EventKind::SessionOpened(opening) = event(line)? else { return Err(CheckpointError::Misplaced) };
    Ok(*opening)
}

fn question(line: &RawValue) -> Result<Question, CheckpointError> {
    let EventKind::GateOpened(question) = event(line)? else { return Err(CheckpointError::Misplaced) };
    Ok(*question)
}

fn report(line: &RawValue) -> Result<RunReport, CheckpointError> {
    let EventKind::RunEnded(report) = event(line)? else { return Err(CheckpointError::Misplaced) };
    Ok(*report)
}

const fn empty_report() -> RunReport {
    RunReport {
        outcome: Outcome::Success,
        reason: None,
        summary: String::new(),
        checks: Vec::new(),
        checks_asked: 0,
        exit_code: 0,
    }
}
