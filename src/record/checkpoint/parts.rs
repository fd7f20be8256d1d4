//! Parts of a checkpoint that are encoded as the lines of events.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::{CheckpointError, Line};
use crate::kernel::audience::Audience;
use crate::kernel::event::{
    Adjustment, ContextEvent, Decision, Event, EventKind, GateEvent, GateQuestion, Opening, ParticipantEvent, RunEvent,
    RunOutcome, RunReport, SessionEvent, ToolEvent,
};
use crate::kernel::gate::{Gate, Voter};
use crate::kernel::id::{CallId, ParticipantId, RunId, Seq, SessionId};
use crate::kernel::participant::Participant;
use crate::kernel::state::{ActiveCall, ActiveCompaction, CallStage, State};
use crate::kernel::time::Now;
use crate::record;

/// Encodes a part of the state as the line of its event.
pub(super) fn event_line(kind: EventKind) -> Option<Line> {
    // Some kinds of events require a run, so an empty one is set.
    event_line_of(Some(RunId::from("")), kind)
}

/// Encodes a gate. The line of a gate that belongs to no run names none.
pub(super) fn gate_line(gate: &Gate) -> Option<Line> {
    let run = gate.run.as_ref().map(|_| RunId::from(""));
    event_line_of(run, EventKind::Gate(GateEvent::Opened(Box::new(gate.question.clone()))))
}

fn event_line_of(run: Option<RunId>, kind: EventKind) -> Option<Line> {
    let nobody = SessionId::from("");
    let event =
        Event { seq: Seq::ZERO, at: Now::default(), run, version: None, origin: None, audience: Audience::All, kind };
    let mut bytes = Vec::new();
    record::event_line(&nobody, &event, &mut bytes);
    let text = String::from_utf8(bytes).ok()?;
    RawValue::from_string(text.trim_end().to_owned()).ok()
}

pub(super) fn decode_line(line: &RawValue) -> Result<EventKind, CheckpointError> {
    Ok(record::decode_event(line.get().as_bytes())?.kind)
}

pub(super) fn encode_calls(calls: &BTreeMap<CallId, ActiveCall>) -> Vec<(Line, bool)> {
    let written = calls.values().filter_map(|call| {
        let started = call.stage == CallStage::Started;
        Some((event_line(EventKind::Tool(ToolEvent::Intended(Box::new(call.intention.clone()))))?, started))
    });
    written.collect()
}

pub(super) fn decode_calls(
    written: Vec<(Line, bool)>,
    bound: &BTreeMap<String, String>,
) -> Result<BTreeMap<CallId, ActiveCall>, CheckpointError> {
    let calls = written.into_iter().map(|(line, started)| {
        let EventKind::Tool(ToolEvent::Intended(intention)) = decode_line(&line)? else {
            return Err(CheckpointError::WrongEventKind);
        };
        let stage = if started { CallStage::Started } else { CallStage::Intended };
        let bound = bound.get(intention.call.as_str()).cloned();
        Ok((intention.call.clone(), ActiveCall { intention: *intention, stage, approved_digest: bound }))
    });
    calls.collect()
}

pub(super) fn adjustment_line(adjusted: &Adjustment) -> Option<Line> {
    let changed = Some(adjusted).filter(|adjusted| **adjusted != Adjustment::default())?;
    event_line(EventKind::Session(SessionEvent::Adjusted { adjustment: Box::new(changed.clone()), by: String::new() }))
}

pub(super) fn adjustment(line: &RawValue) -> Result<Adjustment, CheckpointError> {
    let EventKind::Session(SessionEvent::Adjusted { adjustment, by: _ }) = decode_line(line)? else {
        return Err(CheckpointError::WrongEventKind);
    };
    Ok(*adjustment)
}

pub(super) fn active_compaction(began: u64, line: &RawValue) -> Result<ActiveCompaction, CheckpointError> {
    let EventKind::Context(ContextEvent::CompactionStarted { reason, by: _ }) = decode_line(line)? else {
        return Err(CheckpointError::WrongEventKind);
    };
    Ok(ActiveCompaction { start_seq: Seq::new(began), reason })
}

pub(super) fn opening(line: &RawValue) -> Result<Opening, CheckpointError> {
    let EventKind::Session(SessionEvent::Opened(opening)) = decode_line(line)? else {
        return Err(CheckpointError::WrongEventKind);
    };
    Ok(*opening)
}

/// Decodes the question of a gate, and whether the gate belongs to the run.
pub(super) fn question(line: &RawValue) -> Result<(GateQuestion, bool), CheckpointError> {
    let event = record::decode_event(line.get().as_bytes())?;
    let EventKind::Gate(GateEvent::Opened(question)) = event.kind else {
        return Err(CheckpointError::WrongEventKind);
    };
    Ok((*question, event.run.is_some()))
}

/// Encodes the vote of the owner. Earlier versions had one for each kind of connection, by its source.
pub(super) fn owner_votes(gate: &Gate) -> BTreeMap<String, bool> {
    let vote = gate.votes.get(&Voter::Owner);
    vote.map(|vote| (OWNER.to_owned(), *vote == Decision::Approve)).into_iter().collect()
}

/// Decodes the vote of the owner. Where an earlier version counted several that differ, the denial counts: it grants
/// nothing.
pub(super) fn owner_vote(written: &BTreeMap<String, bool>) -> BTreeMap<Voter, Decision> {
    let approves = written.values().copied().reduce(|all, one| all && one);
    approves.map(|approves| (Voter::Owner, decision(approves))).into_iter().collect()
}

/// The key of the owner's vote.
const OWNER: &str = "owner";

pub(super) fn participant_votes(state: &State) -> Vec<(String, String, bool)> {
    let votes = state.gates.iter().flat_map(|(gate, open)| open.votes.iter().map(move |vote| (gate, vote)));
    let votes = votes.filter_map(|(gate, (voter, vote))| match voter {
        Voter::Owner => None,
        Voter::Participant(id) => Some((gate.as_str().to_owned(), id.as_str().to_owned(), *vote == Decision::Approve)),
    });
    votes.collect()
}

pub(super) const fn decision(approves: bool) -> Decision {
    if approves { Decision::Approve } else { Decision::Deny }
}

pub(super) fn participant_lines(state: &State) -> Vec<Line> {
    let joined =
        |known: &Participant| ParticipantEvent::Joined { participant: Box::new(known.clone()), by: String::new() };
    state.participants.values().filter_map(|known| event_line(EventKind::Participant(joined(known)))).collect()
}

pub(super) fn participants(lines: &[Line]) -> Result<BTreeMap<ParticipantId, Participant>, CheckpointError> {
    let known = lines.iter().map(|line| {
        let EventKind::Participant(ParticipantEvent::Joined { participant, by: _ }) = decode_line(line)? else {
            return Err(CheckpointError::WrongEventKind);
        };
        Ok((participant.id.clone(), *participant))
    });
    known.collect()
}

pub(super) fn report(line: &RawValue) -> Result<RunReport, CheckpointError> {
    let EventKind::Run(RunEvent::Ended(report)) = decode_line(line)? else {
        return Err(CheckpointError::WrongEventKind);
    };
    Ok(*report)
}

pub(super) const fn empty_report() -> RunReport {
    RunReport {
        outcome: RunOutcome::Success,
        reason: None,
        summary: String::new(),
        checks: Vec::new(),
        checks_requested: 0,
        exit_code: 0,
    }
}
