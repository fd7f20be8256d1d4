//! Incoming events: those of a session's history, and those that the daemon sends to one client alone.

use super::Envelope;
use super::reply::SessionSnapshot;
use crate::kernel::audience::Audience;
use crate::kernel::event::{self, EventKind, NoticeEvent, RunEvent, ToolEvent};
use crate::kernel::id::{RunId, Seq};
use crate::kernel::time::Now;
use crate::protocol::push::{EARLIEST_SEQ, EVENT_GAP};
use crate::record::encode::{CALL_STARTED_PHASE, RUN_STOPPING_PHASE};
use crate::record::{EventDecoder, decode_event, strip_synthetic_run_id};

/// The type of the event that ends a run.
const RUN_COMPLETE: &str = "run_complete";
/// The field that names the entry of a session file from which an event was imported.
const ENTRY_ID: &[u8] = b"\"entryId\"";

/// An event of a session.
#[derive(Debug, Clone)]
pub struct Event {
    /// The session.
    pub session: String,
    /// The run it belongs to, if any; a command of the user has a run id of its own.
    pub run: Option<String>,
    /// Its position.
    pub seq: u64,
    /// Its time in milliseconds since 1970.
    pub at: u64,
    /// What it reports.
    pub content: EventContent,
    /// The line as received.
    pub line: String,
}

/// What an event reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventContent {
    /// An event of the session's history; of an unknown kind if a newer daemon recorded it.
    Recorded(EventKind),
    /// Events between the last one received and this one are missing; a snapshot follows.
    Gap {
        /// The message, for people.
        message: String,
        /// Details, for people.
        detail: Option<String>,
        /// The seq of the first event that the daemon still has, if it names one.
        earliest: Option<u64>,
    },
    /// The state of the session, in place of missing events.
    Snapshot(Box<SessionSnapshot>),
    /// The session was deleted.
    Deleted,
    /// An event of a known type whose payload is not valid in this version of the protocol.
    Unreadable {
        /// Its type.
        name: String,
    },
}

impl Event {
    /// Returns the event of the session's history, unless the daemon sent this one to one client alone.
    pub const fn recorded(&self) -> Option<&EventKind> {
        match &self.content {
            EventContent::Recorded(kind) => Some(kind),
            EventContent::Gap { .. }
            | EventContent::Snapshot(_)
            | EventContent::Deleted
            | EventContent::Unreadable { .. } => None,
        }
    }

    /// Returns whether it belongs to the session's history; the daemon sent any other to one client alone.
    pub const fn is_of_history(&self) -> bool {
        match &self.content {
            EventContent::Recorded(_) | EventContent::Unreadable { .. } => true,
            EventContent::Gap { .. } | EventContent::Snapshot(_) | EventContent::Deleted => false,
        }
    }

    /// Returns the event as the kernel folds it, unless the daemon sent this one to one client alone or it is not
    /// readable. Who may see it is left out: this client may.
    pub fn into_recorded(self) -> Option<event::Event> {
        // Only imported events name an entry of a session file.
        if memchr::memmem::find(self.line.as_bytes(), ENTRY_ID).is_some() {
            return decode_event(self.line.as_bytes()).ok();
        }
        let EventContent::Recorded(kind) = self.content else { return None };
        Some(strip_synthetic_run_id(event::Event {
            seq: Seq::new(self.seq),
            at: Now(self.at),
            run: self.run.map(RunId::from),
            version: None,
            origin: None,
            audience: Audience::All,
            kind,
        }))
    }

    /// Returns whether no event of its run follows.
    pub fn ends_run(&self) -> bool {
        match &self.content {
            EventContent::Recorded(kind) => matches!(kind, EventKind::Run(RunEvent::Ended(_))),
            EventContent::Unreadable { name } => name == RUN_COMPLETE,
            EventContent::Gap { .. } | EventContent::Snapshot(_) | EventContent::Deleted => false,
        }
    }

    /// Returns the activity that it reports, and the object of the activity.
    pub fn activity(&self) -> Option<(&str, &str)> {
        match self.recorded()? {
            EventKind::Notice(NoticeEvent::Status { phase, detail, .. }) => {
                Some((phase, detail.as_deref().unwrap_or_default()))
            }
            EventKind::Tool(ToolEvent::Started { tool, .. }) => Some((CALL_STARTED_PHASE, tool)),
            EventKind::Run(RunEvent::Stopping { reason, .. }) => Some((RUN_STOPPING_PHASE, reason)),
            EventKind::Session(_)
            | EventKind::Context(_)
            | EventKind::Participant(_)
            | EventKind::Run(_)
            | EventKind::Tool(_)
            | EventKind::Gate(_)
            | EventKind::Notice(_) => None,
        }
    }
}

impl EventContent {
    /// Returns whether decoding it has read the payload, and so has checked where the payload ends.
    pub(super) const fn has_payload(&self) -> bool {
        match self {
            Self::Recorded(kind) => !matches!(kind, EventKind::Notice(NoticeEvent::Unknown(_))),
            Self::Gap { .. } | Self::Snapshot(_) => true,
            Self::Deleted | Self::Unreadable { .. } => false,
        }
    }
}

/// Decodes what an event reports; `line` is its line.
pub(super) fn decode_content(envelope: &Envelope<'_>, payload: &str, line: &str) -> EventContent {
    let name = envelope.r#type.as_ref();
    let unreadable = || EventContent::Unreadable { name: name.to_owned() };
    match name {
        "session_snapshot" => match serde_json::from_str(payload) {
            Ok(snapshot) => EventContent::Snapshot(Box::new(snapshot)),
            Err(_) => unreadable(),
        },
        "session_deleted" => EventContent::Deleted,
        _ => match (EventDecoder { type_name: name, seq: envelope.seq, payload, line: line.as_bytes() }).kind() {
            Ok(EventKind::Notice(NoticeEvent::Warned { code, message, detail })) if code == EVENT_GAP => {
                let earliest = detail.as_deref().and_then(earliest_seq);
                EventContent::Gap { message, detail, earliest }
            }
            Ok(kind) => EventContent::Recorded(kind),
            Err(_) => unreadable(),
        },
    }
}

/// Reads the seq of the first event that the daemon still has from the detail of a gap.
fn earliest_seq(detail: &str) -> Option<u64> {
    let (_, number) = detail.rsplit_once(EARLIEST_SEQ)?;
    number.trim_start().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::{Incoming, decode_line};
    use super::*;

    #[test]
    fn an_event_keeps_its_line_and_needs_no_run() {
        let event = decode(r#""seq":7,"ts":9,"type":"assistant_token","payload":{"text":"x","more":1}"#);
        assert_eq!((event.seq, event.at, event.run.as_deref()), (7, 9, None));
        assert_eq!(event.content, EventContent::Recorded(EventKind::Run(RunEvent::TextDelta { text: "x".into() })));
        assert!(event.line.ends_with(r#""payload":{"text":"x","more":1}}"#), "{}", event.line);
    }

    #[test]
    fn an_event_of_an_unknown_kind_is_kept_and_one_that_is_not_valid_is_unreadable() {
        let event = decode(r#""seq":7,"type":"of_tomorrow","payload":[1]"#);
        let Some(EventKind::Notice(NoticeEvent::Unknown(unknown))) = event.recorded() else { panic!("{event:?}") };
        assert_eq!((unknown.name.as_str(), unknown.record.as_str()), ("of_tomorrow", event.line.as_str()));
        for kind in ["run_complete", "tool_result"] {
            let event = decode(&format!(r#""seq":7,"type":"{kind}","payload":{{"outcome":"of_tomorrow"}}"#));
            assert_eq!(event.content, EventContent::Unreadable { name: kind.into() });
            assert_eq!(event.ends_run(), kind == "run_complete");
        }
    }

    #[test]
    fn a_command_of_the_user_keeps_the_run_id_of_its_line() {
        let event = decode(
            r#""runId":"run_1_user","seq":7,"ts":9,"type":"tool_output","payload":{"callId":"call_1","stream":"stdout","text":"x"}"#,
        );
        assert_eq!(event.run.as_deref(), Some("run_1_user"));
    }

    #[test]
    fn a_long_event_is_decoded_like_a_short_one_wherever_its_payload_is() {
        let text = "x,\"payload\":".repeat(200);
        let payload = serde_json::json!({"text": text}).to_string();
        for fields in [
            format!(r#""seq":7,"type":"assistant_token","payload":{payload}"#),
            format!(r#""seq":7,"type":"assistant_token","payload":{payload},"more":1"#),
            format!(r#""seq":7,"payload":{payload},"type":"assistant_token""#),
            format!(r#""more":{{"a":1,"payload":2}},"seq":7,"type":"assistant_token","payload":{payload}"#),
        ] {
            let event = decode(&fields);
            assert_eq!(
                event.content,
                EventContent::Recorded(EventKind::Run(RunEvent::TextDelta { text: text.clone() })),
                "{fields}"
            );
            assert_eq!((event.seq, event.session.as_str()), (7, "s"), "{fields}");
        }
        let event = decode(&format!(r#""type":"of_tomorrow","payload":{payload},"seq":7"#));
        assert_eq!(event.seq, 7);
        let line = format!(r#"{{"kind":"event","sessionId":"s","type":"of_tomorrow","payload":{payload}"#);
        assert!(decode_line(line).is_err(), "the line is cut off");
    }

    fn decode(fields: &str) -> Event {
        let line = format!(r#"{{"v":"push.runtime.v1","kind":"event","sessionId":"s",{fields}}}"#);
        let Ok(Incoming::Event(event)) = decode_line(line) else { panic!("not an event") };
        *event
    }
}
