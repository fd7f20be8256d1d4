//! Decodes records into events.
//!
//! `decode_event` is the inverse of [`event_line`](super::encode::event_line). An event of a kind that a
//! later version recorded is kept as it is.

mod participant;
mod parts;
mod tool;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::gate_compat;
use super::tool_compat::strip_synthetic_run_id;
use super::wire::event::{
    ApprovalRequired, ApprovalVote, AssistantDone, AudienceItem, CompactionEnded, CompactionStarted, EventEnvelope,
    EventsLost, Failure, MessageUnqueued, RetryEnded, RunRecovered, SessionEnded, SessionRenamed, SessionTouched,
    Status, Token, ToolOutput, UserMessage, Warning,
};
use super::wire::word::DeliveryWord;
use super::wire::{Text, json};
use crate::kernel::audience::Audience;
use crate::kernel::event::{
    Budget, ContextEvent, DenialEffect, Event, EventKind, GateEvent, GateQuestion, Message, NoticeEvent, QueuedMessage,
    RunEvent, SessionEvent, Steering, ToolEvent, UnknownEvent,
};
use crate::kernel::id::{Fingerprint, Json, RunId, Seq};
use crate::kernel::time::Now;
use parts::{
    adjusted, branched, compaction, criterion, gate_decision, id, images, opening, owned, report, retry, turn_usage,
};

/// Why a line is not an event of the journal.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The envelope cannot be read.
    #[error("cannot read the envelope of an event")]
    Envelope(#[source] serde_json::Error),
    /// The payload cannot be read.
    #[error("cannot read the payload of a {type_name} event at {seq}")]
    Payload {
        /// The type of the event.
        type_name: String,
        /// Its position.
        seq: Seq,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// A field has an invalid value.
    #[error("{field} of a {type_name} event at {seq} is invalid")]
    Field {
        /// The type of the event.
        type_name: String,
        /// Its position.
        seq: Seq,
        /// The field.
        field: &'static str,
    },
}

/// Decodes an event from its line, with or without the newline.
///
/// # Errors
///
/// Refuses anything that `event_line` does not write, except for unknown fields and unknown kinds of events.
pub fn decode_event(line: &[u8]) -> Result<Event, RecordError> {
    let envelope: EventEnvelope<'_> = serde_json::from_slice(line).map_err(RecordError::Envelope)?;
    let (type_name, payload) = (envelope.r#type.as_ref(), envelope.payload.get());
    let kind = EventDecoder { type_name, seq: envelope.seq, payload, line }.kind()?;
    Ok(strip_synthetic_run_id(Event {
        seq: Seq::new(envelope.seq),
        at: Now(envelope.ts),
        run: envelope.run_id.map(RunId::from),
        version: envelope.session_version,
        origin: envelope.entry_id.clone(),
        audience: envelope.audience.map_or(Audience::All, audience),
        kind,
    }))
}

fn audience(written: &RawValue) -> Audience {
    match serde_json::from_str(written.get()) {
        Ok(AudienceItem::Participants(named)) => Audience::Participants(named.into_iter().map(Into::into).collect()),
        Ok(AudienceItem::Role(role)) => Audience::Role(role.into()),
        Err(_) => Audience::Unknown(json(written)),
    }
}

/// Returns whether this version knows a kind of event, by the name that records have for it.
pub(super) fn is_known_kind(name: &str) -> bool {
    let name = serde_json::Value::from(name);
    let line = format!(r#"{{"seq":0,"ts":0,"type":{name},"payload":null}}"#);
    !decode_event(line.as_bytes()).is_ok_and(|event| matches!(event.kind, EventKind::Notice(NoticeEvent::Unknown(_))))
}

/// Returns whether some lines may contain an event that not everybody may see. A line without one is never taken for
/// one that has it, unless a JSON value in it has such a field.
pub(crate) fn names_audience(lines: &[u8]) -> bool {
    memchr::memmem::find(lines, super::encode::AUDIENCE_MARK).is_some()
}

/// Returns the position of an event from its line without parsing the rest.
///
/// Only daemon-generated ids precede it, which contain no escapes.
pub fn seq_of(line: &[u8]) -> Option<Seq> {
    let mark = b"\"seq\":";
    let at = memchr::memmem::find(line, mark)? + mark.len();
    let digits = line[at..].iter().take_while(|byte| byte.is_ascii_digit());
    let number = digits.fold(0_u64, |number, digit| number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')));
    Some(Seq::new(number))
}

/// Decodes the payload of an event whose envelope was read.
pub(crate) struct EventDecoder<'e, 'a> {
    /// The name of its kind.
    pub(crate) type_name: &'e str,
    /// Its position.
    pub(crate) seq: u64,
    /// Its payload.
    pub(crate) payload: &'a str,
    /// Its line, which is kept if the kind is unknown.
    pub(crate) line: &'a [u8],
}

impl<'a> EventDecoder<'_, 'a> {
    /// Decodes the kind of the event and its data.
    pub(crate) fn kind(&self) -> Result<EventKind, RecordError> {
        Ok(match self.type_name {
            "assistant_token" => {
                EventKind::Run(RunEvent::TextDelta { text: self.payload::<Token<'_>>()?.text.into_owned() })
            }
            "thinking_token" => {
                EventKind::Run(RunEvent::ThinkingDelta { text: self.payload::<Token<'_>>()?.text.into_owned() })
            }
            "tool_output" => {
                let output: ToolOutput<'_> = self.payload()?;
                let (call, stream) = (id(output.call_id), output.stream.into());
                EventKind::Tool(ToolEvent::Output { call, stream, text: output.text.into_owned() })
            }
            "session_started" => EventKind::Session(SessionEvent::Opened(Box::new(opening(self.payload()?)))),
            "session_renamed" => EventKind::Session(SessionEvent::Renamed {
                name: self.payload::<SessionRenamed<'_>>()?.name.into_owned(),
            }),
            "session_ended" => {
                EventKind::Session(SessionEvent::Ended { by: self.payload::<SessionEnded<'_>>()?.by.into_owned() })
            }
            "user_message" => self.user_message()?,
            "message_queued" => self.message_queued()?,
            "message_unqueued" => {
                let gone: MessageUnqueued<'_> = self.payload()?;
                EventKind::Run(RunEvent::MessageUnqueued { message: id(gone.message_id), by: gone.by.into_owned() })
            }
            "status" => self.status()?,
            "assistant_done" => {
                EventKind::Run(RunEvent::TextDone { message: id(self.payload::<AssistantDone<'_>>()?.message_id) })
            }
            "usage" => EventKind::Run(RunEvent::TurnUsage(Box::new(turn_usage(self.payload()?)))),
            "tool_call" => EventKind::Tool(ToolEvent::Intended(Box::new(self.intention()?))),
            "tool_result" => EventKind::Tool(ToolEvent::Settled(Box::new(self.call_result()?))),
            "approval_required" => EventKind::Gate(GateEvent::Opened(Box::new(gate_question(self.payload()?)))),
            "approval_vote" => {
                let vote: ApprovalVote<'_> = self.payload()?;
                let (gate, decision) = (id(vote.approval_id), vote.decision.into());
                let participant = vote.participant_id.map(id);
                EventKind::Gate(GateEvent::Voted { gate, decision, by: vote.by.into_owned(), participant })
            }
            "approval_received" => EventKind::Gate(GateEvent::Settled(Box::new(gate_decision(self.payload()?)))),
            "warning" => {
                let Warning { code, message, detail } = self.payload()?;
                let (code, message) = (code.into_owned(), message.into_owned());
                EventKind::Notice(NoticeEvent::Warned { code, message, detail: owned(detail) })
            }
            "error" => {
                let Failure { code, message, retryable, detail } = self.payload()?;
                let (code, message) = (code.into_owned(), message.into_owned());
                EventKind::Notice(NoticeEvent::Failed { code, message, retryable, detail: owned(detail) })
            }
            "run_recovered" => {
                EventKind::Run(RunEvent::Recovered { phase: self.payload::<RunRecovered>()?.found.into() })
            }
            "events_lost" => self.decode_loss()?,
            "run_complete" => EventKind::Run(RunEvent::Ended(Box::new(report(self.payload()?)))),
            other => return self.decode_session_change(other),
        })
    }

    /// Decodes the events of settings, branches, compactions and retries.
    fn decode_session_change(&self, type_name: &str) -> Result<EventKind, RecordError> {
        Ok(match type_name {
            "session_touched" => {
                let SessionTouched { what, by } = self.payload()?;
                EventKind::Session(SessionEvent::VersionBumped { change: what.into_owned(), by: by.into_owned() })
            }
            "session_loaded" => {
                EventKind::Session(SessionEvent::Loaded { by: self.payload::<SessionEnded<'_>>()?.by.into_owned() })
            }
            "session_adjusted" => adjusted(self.payload()?),
            "session_branched" => branched(self.payload()?),
            "compaction_started" => {
                let CompactionStarted { reason, by } = self.payload()?;
                EventKind::Context(ContextEvent::CompactionStarted { reason: reason.into(), by: owned(by) })
            }
            "context_compacted" => EventKind::Context(ContextEvent::Compacted(Box::new(compaction(self.payload()?)))),
            "compaction_ended" => {
                let CompactionEnded { ending, message, again } = self.payload()?;
                EventKind::Context(ContextEvent::CompactionFailed {
                    failure: ending.into(),
                    message: owned(message),
                    will_retry: again,
                })
            }
            "retry_started" => EventKind::Run(RunEvent::RetryStarted(Box::new(retry(self.payload()?)))),
            "retry_ended" => {
                let RetryEnded { succeeded, attempt, message } = self.payload()?;
                EventKind::Run(RunEvent::RetryEnded { succeeded, attempt, message: owned(message) })
            }
            other => match self.participant_event()? {
                Some(event) => event,
                None => EventKind::Notice(NoticeEvent::Unknown(Box::new(self.decode_unknown(other)?))),
            },
        })
    }

    fn decode_unknown(&self, name: &str) -> Result<UnknownEvent, RecordError> {
        // The envelope was decoded, so the line is one JSON object in UTF-8; a record is always a single line.
        let record: &RawValue = serde_json::from_slice(self.line).map_err(RecordError::Envelope)?;
        if record.get().bytes().any(|byte| byte < b' ') {
            return Err(self.field_error("record"));
        }
        Ok(UnknownEvent { name: name.to_owned(), record: json(record) })
    }

    fn decode_loss(&self) -> Result<EventKind, RecordError> {
        let lost: EventsLost = self.payload()?;
        if lost.until_seq != self.seq {
            return Err(self.field_error("untilSeq"));
        }
        Ok(EventKind::Notice(NoticeEvent::EventsLost { after: Seq::new(lost.after_seq), cause: lost.cause.into() }))
    }

    fn user_message(&self) -> Result<EventKind, RecordError> {
        let message: UserMessage<'_> = self.payload()?;
        Ok(match message.delivery {
            None => EventKind::Run(RunEvent::Started(Box::new(self.message(message)?))),
            Some(DeliveryWord::Steer) => EventKind::Run(RunEvent::Steered(Box::new(Steering {
                fingerprint: self.fingerprint(&message.fingerprint)?,
                message: id(message.message_id),
                text: message.text.into_owned(),
                images: images(message.images),
                by: message.by.into_owned(),
            }))),
        })
    }

    fn message_queued(&self) -> Result<EventKind, RecordError> {
        let mut message: UserMessage<'_> = self.payload()?;
        let run = message.queued_run_id.take().ok_or_else(|| self.field_error("queuedRunId"))?;
        let queued = QueuedMessage { run: id(run), message: self.message(message)? };
        Ok(EventKind::Run(RunEvent::MessageQueued(Box::new(queued))))
    }

    fn message(&self, message: UserMessage<'_>) -> Result<Message, RecordError> {
        Ok(Message {
            fingerprint: self.fingerprint(&message.fingerprint)?,
            message: id(message.message_id),
            text: message.text.into_owned(),
            images: images(message.images),
            criteria: message.acceptance_criteria.into_iter().map(criterion).collect(),
            time_limit: message.timeout_ms,
            budget: message.budget.map_or_else(Budget::default, |budget| Budget {
                cost: budget.max_cost_micro_usd,
                turns: budget.max_turns,
                tokens: budget.max_tokens,
            }),
            rules: message.rules.into_iter().map(Text::into_owned).collect(),
            needs_environment: message.needs_environment,
            by: message.by.into_owned(),
        })
    }

    fn fingerprint(&self, digits: &str) -> Result<Fingerprint, RecordError> {
        let number = u128::from_str_radix(digits, 16).map_err(|_| self.field_error("fingerprint"))?;
        Ok(Fingerprint(number))
    }

    fn status(&self) -> Result<EventKind, RecordError> {
        let status: Status<'_> = self.payload()?;
        let detail = owned(status.detail);
        Ok(match (status.call_id, status.stopping) {
            (None, None) => EventKind::Notice(NoticeEvent::Status {
                source: status.source.into_owned(),
                phase: status.phase.into_owned(),
                detail,
            }),
            (Some(call), _) => EventKind::Tool(ToolEvent::Started {
                call: id(call),
                tool: detail.ok_or_else(|| self.field_error("detail"))?,
            }),
            (None, Some(stopping)) => EventKind::Run(RunEvent::Stopping {
                outcome: stopping.outcome.into(),
                reason: detail.ok_or_else(|| self.field_error("detail"))?,
                by: stopping.by.into_owned(),
            }),
        })
    }

    fn payload<T: Deserialize<'a>>(&self) -> Result<T, RecordError> {
        serde_json::from_str(self.payload).map_err(|source| RecordError::Payload {
            type_name: self.type_name.to_owned(),
            seq: Seq::new(self.seq),
            source,
        })
    }

    fn field_error(&self, field: &'static str) -> RecordError {
        RecordError::Field { type_name: self.type_name.to_owned(), seq: Seq::new(self.seq), field }
    }
}

/// Converts the question of a gate from its wire type.
pub(crate) fn gate_question(approval: ApprovalRequired<'_>) -> GateQuestion {
    let (details, choices) = split_last_list(&approval.details, "choices");
    let details = if approval.remember.is_some() && choices.is_empty() {
        split_last_list(&approval.details, "scopes").0
    } else {
        details
    };
    let form = approval.form.as_deref().map(json);
    let written = (approval.subject, approval.resource);
    GateQuestion {
        gate: id(approval.approval_id),
        subject: gate_compat::subject(&approval.kind, id(approval.call_id), &details, form, written),
        kind: approval.kind.into_owned(),
        title: approval.title.into_owned(),
        summary: approval.summary.into_owned(),
        details,
        choices,
        quorum: gate_compat::quorum(approval.needed, approval.quorum),
        eligible: approval.eligible.map(|ids| ids.into_iter().map(Into::into).collect()),
        expires: Now(approval.expires_at),
        grant_rule: owned(approval.remember),
        digest: owned(approval.sha256),
        on_denial: approval.on_denial.map_or(DenialEffect::EndRun, Into::into),
    }
}

/// Removes the trailing list `name` from the details of a gate and returns both.
///
/// Details without such a field stay unchanged: no content of a provider may make a record unreadable.
fn split_last_list(details: &RawValue, name: &str) -> (Json, Vec<String>) {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(details.get()).unwrap_or_default();
    let parts = fields.get(name).and_then(|list| {
        let choices: Vec<String> = serde_json::from_str(list.get()).ok()?;
        let head = format!("\"{name}\":");
        let rest = details.get().strip_suffix('}')?.strip_suffix(list.get())?.strip_suffix(&head)?;
        Some((Json::new(format!("{}}}", rest.strip_suffix(',').unwrap_or(rest))), choices))
    });
    parts.unwrap_or_else(|| (json(details), Vec::new()))
}
