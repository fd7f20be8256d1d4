//! Encodes events into records: one compact JSON object and a newline.

mod event;
mod message;
mod participant;
#[cfg(test)]
mod tests;
mod tool;
#[cfg(test)]
mod tool_tests;

pub(crate) use event::{CALL_STARTED_PHASE, OPTIONS, RUN_STOPPING_PHASE, approval_required, gate_details, mode};
pub(crate) use participant::message_posted;

use super::json;
use super::tool_compat::synthetic_run_id;
use crate::kernel::audience::Audience;
use crate::kernel::event::Event;
use crate::kernel::id::{RunId, Seq, SessionId};
use crate::kernel::time::Now;
use crate::record::wire::event::AudienceItem;
use crate::record::wire::raw;

/// Appends the record of an event.
pub fn event_line(session: &SessionId, event: &Event, out: &mut Vec<u8>) {
    let of_user = synthetic_run_id(event);
    let (run, version) = (event.run.as_ref().or(of_user.as_ref()), event.version);
    let origin = event.origin.as_deref();
    let audience = Some(&event.audience).filter(|audience| !audience.is_public());
    let head = EventHead { session, run, seq: event.seq, at: event.at, version, origin, audience };
    event::write(&head, &event.kind, out);
}

/// The envelope fields of an event, without its type.
pub(crate) struct EventHead<'a> {
    pub(crate) session: &'a SessionId,
    pub(crate) run: Option<&'a RunId>,
    pub(crate) seq: Seq,
    pub(crate) at: Now,
    pub(crate) version: Option<u64>,
    pub(crate) origin: Option<&'a str>,
    /// Who may see it, unless everybody may.
    pub(crate) audience: Option<&'a Audience>,
}

impl EventHead<'_> {
    /// Appends the line of an event whose payload `payload` writes.
    #[inline]
    pub(crate) fn line(&self, type_name: &str, out: &mut Vec<u8>, payload: impl FnOnce(&mut Vec<u8>)) {
        out.extend_from_slice(b"{\"v\":\"push.runtime.v1\",\"kind\":\"event\",\"sessionId\":");
        json::string(out, self.session.as_str());
        if let Some(run) = self.run {
            out.extend_from_slice(b",\"runId\":");
            json::string(out, run.as_str());
        }
        out.extend_from_slice(b",\"seq\":");
        json::number(out, self.seq.number());
        out.extend_from_slice(b",\"ts\":");
        json::number(out, self.at.0);
        if let Some(version) = self.version {
            out.extend_from_slice(b",\"sessionVersion\":");
            json::number(out, version);
        }
        if let Some(origin) = self.origin {
            out.extend_from_slice(b",\"entryId\":");
            json::string(out, origin);
        }
        if let Some(audience) = self.audience {
            out.extend_from_slice(AUDIENCE_MARK);
            match audience {
                Audience::Unknown(written) => json::value(out, &raw(written)),
                Audience::All | Audience::Participants(_) | Audience::Role(_) => {
                    json::value(out, &audience_item(audience));
                }
            }
        }
        out.extend_from_slice(b",\"type\":\"");
        out.extend_from_slice(type_name.as_bytes());
        out.extend_from_slice(b"\",\"payload\":");
        payload(out);
        out.extend_from_slice(b"}\n");
    }
}

/// What precedes the audience in the record of an event that not everybody may see. A quote within a text is escaped, so
/// that no text contains it.
pub(crate) const AUDIENCE_MARK: &[u8] = b",\"audience\":";

fn audience_item(audience: &Audience) -> Option<AudienceItem> {
    match audience {
        Audience::All | Audience::Unknown(_) => None,
        Audience::Participants(named) => {
            Some(AudienceItem::Participants(named.iter().map(|id| id.as_str().to_owned()).collect()))
        }
        Audience::Role(role) => Some(AudienceItem::Role((*role).into())),
    }
}
