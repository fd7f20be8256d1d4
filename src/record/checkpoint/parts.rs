//! Parts of a checkpoint that are encoded as the lines of events.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::{CheckpointError, Line};
use crate::kernel::event::{Adjustment, Event, EventKind, GateQuestion, Opening, RunOutcome, RunReport};
use crate::kernel::id::{CallId, RunId, Seq, SessionId};
use crate::kernel::state::{ActiveCall, ActiveCompaction, CallStage};
use crate::kernel::time::Now;
use crate::record;

/// Encodes a part of the state as the line of its event.
pub(super) fn event_line(kind: EventKind) -> Option<Line> {
    let nobody = SessionId::from("");
    // Some kinds of events require a run, so an empty one is set.
    let run = Some(RunId::from(""));
    let event = Event { seq: Seq::ZERO, at: Now::default(), run, version: None, origin: None, kind };
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
        Some((event_line(EventKind::CallIntended(Box::new(call.intention.clone())))?, started))
    });
    written.collect()
}

pub(super) fn decode_calls(
    written: Vec<(Line, bool)>,
    bound: &BTreeMap<String, String>,
) -> Result<BTreeMap<CallId, ActiveCall>, CheckpointError> {
    let calls = written.into_iter().map(|(line, started)| {
        let EventKind::CallIntended(intention) = decode_line(&line)? else {
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
    event_line(EventKind::Adjusted { adjustment: Box::new(changed.clone()), by: String::new() })
}

pub(super) fn adjustment(line: &RawValue) -> Result<Adjustment, CheckpointError> {
    let EventKind::Adjusted { adjustment, by: _ } = decode_line(line)? else {
        return Err(CheckpointError::WrongEventKind);
    };
    Ok(*adjustment)
}

pub(super) fn active_compaction(began: u64, line: &RawValue) -> Result<ActiveCompaction, CheckpointError> {
    let EventKind::CompactionStarted { reason, by: _ } = decode_line(line)? else {
        return Err(CheckpointError::WrongEventKind);
    };
    Ok(ActiveCompaction { start_seq: Seq::new(began), reason })
}

pub(super) fn opening(line: &RawValue) -> Result<Opening, CheckpointError> {
    let EventKind::SessionOpened(opening) = decode_line(line)? else { return Err(CheckpointError::WrongEventKind) };
    Ok(*opening)
}

pub(super) fn question(line: &RawValue) -> Result<GateQuestion, CheckpointError> {
    let EventKind::GateOpened(question) = decode_line(line)? else { return Err(CheckpointError::WrongEventKind) };
    Ok(*question)
}

pub(super) fn report(line: &RawValue) -> Result<RunReport, CheckpointError> {
    let EventKind::RunEnded(report) = decode_line(line)? else { return Err(CheckpointError::WrongEventKind) };
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
