//! Encodes events into records: one compact JSON object and a newline.

mod event;
mod message;
#[cfg(test)]
mod tests;
mod tool;
#[cfg(test)]
mod tool_tests;

pub(crate) use event::{CALL_STARTED_PHASE, OPTIONS, RUN_STOPPING_PHASE, approval_required, gate_details, mode};

use super::json;
use super::tool_compat::synthetic_run_id;
use crate::kernel::event::Event;
use crate::kernel::id::{RunId, Seq, SessionId};
use crate::kernel::time::Now;

/// Appends the record of an event.
pub fn event_line(session: &SessionId, event: &Event, out: &mut Vec<u8>) {
    let of_user = synthetic_run_id(event);
    let (run, version) = (event.run.as_ref().or(of_user.as_ref()), event.version);
    let origin = event.origin.as_deref();
    let head = EventHead { session, run, seq: event.seq, at: event.at, version, origin };
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
        out.extend_from_slice(b",\"type\":\"");
        out.extend_from_slice(type_name.as_bytes());
        out.extend_from_slice(b"\",\"payload\":");
        payload(out);
        out.extend_from_slice(b"}\n");
    }
}
