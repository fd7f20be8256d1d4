//! The conversation of a session in memory.
//!
//! The first turn folds it from the journal, in its own task. From then on it is folded with every event, so that the
//! next turn starts without a read. It starts where the context of the session starts: a compaction or a branch moves
//! that start, and the next turn folds the journal again. An idle lane drops it.
//!
//! A turn gets a copy, which shares the items. It is made when the turn is requested, so that it ends with the event
//! that the request names, whatever is recorded until the turn starts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::journal::Journal;
use crate::kernel::conversation::Conversation;
use crate::kernel::effect::{CompactionRequest, TurnRequest};
use crate::kernel::event::{Event, EventKind, Intention, RunEvent, ToolEvent};
use crate::kernel::id::{Json, MessageId, Seq, SessionId};
use crate::record;

/// The conversation of a lane, while it is used. It is boxed, because every session in memory has this field.
#[derive(Default)]
pub(super) struct LaneConversation(Option<Box<ConversationCache>>);

struct ConversationCache {
    state: State,
    /// The conversation of the turn that was requested and has not started.
    prepared: Option<(ContextRange, ConversationSource)>,
}

#[expect(clippy::large_enum_variant, reason = "a lane has at most one, which is boxed")]
enum State {
    /// A turn folds the journal.
    Loading(LoadTask),
    /// It contains every event since `from`.
    Ready { from: Seq, conversation: Conversation },
}

struct LoadTask {
    range: ContextRange,
    slot: Slot,
    /// The events since the end of the range.
    backlog: Vec<Event>,
}

/// Receives the conversation that a turn has folded.
type Slot = Arc<OnceLock<Conversation>>;

/// The events that make a conversation: from the start of the context to the event that the turn follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContextRange {
    from: Seq,
    until: Seq,
}

impl From<&TurnRequest> for ContextRange {
    fn from(turn: &TurnRequest) -> Self {
        Self { from: turn.context_from, until: turn.last_seq }
    }
}

impl From<&CompactionRequest> for ContextRange {
    fn from(compact: &CompactionRequest) -> Self {
        Self { from: compact.context_from, until: compact.last_seq }
    }
}

/// The source of a turn's conversation.
pub(super) enum ConversationSource {
    /// It is in memory.
    Memory(Box<Conversation>),
    /// It has to be folded from the journal; the lane keeps it if it waits for it.
    Journal { range: ContextRange, slot: Option<Slot> },
}

impl ConversationSource {
    /// Returns the conversation.
    pub(super) async fn load(self, journal: &Journal, session: &SessionId) -> Result<Conversation, String> {
        match self {
            Self::Memory(conversation) => Ok(*conversation),
            Self::Journal { range, slot } => {
                let conversation = read(journal, session, range).await?;
                if let Some(slot) = slot {
                    // Only this turn has the slot.
                    let _ = slot.set(conversation.clone());
                }
                Ok(conversation)
            }
        }
    }
}

impl LaneConversation {
    /// Returns whether it takes memory.
    pub(super) const fn is_held(&self) -> bool {
        self.0.is_some()
    }

    /// Drops it.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    /// Folds an event, in the order of recording.
    pub(super) fn fold(&mut self, event: &Event) {
        let Some(held) = &mut self.0 else { return };
        held.finish_loading();
        match &mut held.state {
            State::Ready { conversation, .. } => conversation.fold(&as_stored(event)),
            State::Loading(loading) if loading.backlog.len() < MAX_BACKLOG => loading.backlog.push(event.clone()),
            State::Loading(_) => self.clear(),
        }
    }

    /// Prepares the conversation of a turn that is requested; `newest` is the newest recorded event.
    pub(super) fn prepare(&mut self, range: ContextRange, newest: Seq) {
        if newest != range.until {
            // The events since then are folded already.
            return self.set_prepared(None);
        }
        if let Some(held) = &mut self.0 {
            held.finish_loading();
            if let State::Ready { from, conversation } = &held.state
                && *from == range.from
                && conversation.last_seq() == range.until
            {
                let source = ConversationSource::Memory(Box::new(conversation.clone()));
                held.prepared = Some((range, source));
                return;
            }
        }
        let slot = Slot::default();
        let prepared = Some((range, ConversationSource::Journal { range, slot: Some(Arc::clone(&slot)) }));
        let state = State::Loading(LoadTask { range, slot, backlog: Vec::new() });
        self.0 = Some(Box::new(ConversationCache { state, prepared }));
    }

    /// Returns the prepared conversation of a turn that starts.
    pub(super) fn take(&mut self, range: ContextRange) -> ConversationSource {
        let prepared = self.0.as_mut().and_then(|held| held.prepared.take());
        match prepared {
            Some((of, source)) if of == range => source,
            Some(_) | None => ConversationSource::Journal { range, slot: None },
        }
    }

    /// Returns a copy, if it contains every event after `after`.
    pub(super) fn since(&mut self, after: Seq) -> Option<Conversation> {
        let held = self.0.as_mut()?;
        held.finish_loading();
        match &held.state {
            State::Ready { from, conversation } if *from <= after.next() => Some(conversation.clone()),
            State::Ready { .. } | State::Loading(_) => None,
        }
    }

    fn set_prepared(&mut self, prepared: Option<(ContextRange, ConversationSource)>) {
        if let Some(held) = &mut self.0 {
            held.prepared = prepared;
        }
    }
}

impl ConversationCache {
    /// Takes over the conversation that a turn has folded, with the events since then.
    fn finish_loading(&mut self) {
        let State::Loading(loading) = &mut self.state else { return };
        let Some(mut conversation) = loading.slot.get().cloned() else { return };
        loading.backlog.iter().for_each(|event| conversation.fold(&as_stored(event)));
        self.state = State::Ready { from: loading.range.from, conversation };
    }
}

/// Returns an event as its record has it, so that a restart folds the same conversation.
fn as_stored(event: &Event) -> Cow<'_, Event> {
    if let EventKind::Tool(ToolEvent::Intended(intention)) = &event.kind
        && let Some(args) = changed_by_storage(&intention.args)
    {
        let intention = Box::new(Intention { args, ..(**intention).clone() });
        return Cow::Owned(Event { kind: EventKind::Tool(ToolEvent::Intended(intention)), ..event.clone() });
    }
    if let EventKind::Run(RunEvent::TurnUsage(usage)) = &event.kind
        && usage.pending.iter().any(|call| changed_by_storage(&call.args).is_some())
    {
        let mut usage = usage.clone();
        for call in &mut usage.pending {
            call.args = changed_by_storage(&call.args).unwrap_or_else(|| call.args.clone());
        }
        return Cow::Owned(Event { kind: EventKind::Run(RunEvent::TurnUsage(usage)), ..event.clone() });
    }
    Cow::Borrowed(event)
}

/// Returns a JSON value as a record has it, if that is another text.
fn changed_by_storage(json: &Json) -> Option<Json> {
    let stored = record::wire::raw(json);
    (stored.get() != json.as_str()).then(|| Json::new(stored.get()))
}

/// Folds the events of the journal.
async fn read(journal: &Journal, session: &SessionId, range: ContextRange) -> Result<Conversation, String> {
    let mut conversation = Conversation::default();
    let mut seen = Seq::new(range.from.number().saturating_sub(1));
    loop {
        let page = journal
            .page(session.clone(), seen, PAGE_BYTES)
            .await
            .map_err(|error| format!("cannot read the conversation: {error}"))?;
        for line in page.blocks.iter().flat_map(|block| block.bytes.split_inclusive(|byte| *byte == b'\n')) {
            let event = record::decode_event(line).map_err(|error| format!("cannot read the conversation: {error}"))?;
            if event.seq > range.until {
                return Ok(conversation);
            }
            if event.seq > seen {
                seen = event.seq;
                conversation.fold(&event);
            }
        }
        if !page.more {
            return Ok(conversation);
        }
    }
}

/// Returns the original texts of the run's messages.
pub(super) fn original_texts(turn: &TurnRequest) -> BTreeMap<MessageId, String> {
    let steers = turn.steers.iter().map(|(_, steering)| (steering.message.clone(), steering.text.clone()));
    steers.chain([(turn.message.clone(), turn.text.clone())]).collect()
}

/// The number of bytes that one read returns.
const PAGE_BYTES: usize = 256 * 1024;
/// How many events wait for a turn that folds the journal. Beyond it, the next turn folds the journal again.
const MAX_BACKLOG: usize = 1_024;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use tokio::time::timeout;

    use super::*;
    use crate::config::limits::Limits;
    use crate::kernel::command::{Caller, Command, Rights};
    use crate::kernel::effect::Ticket;
    use crate::kernel::id::ConnectionId;
    use crate::kernel::session::{Input, Session};
    use crate::runtime::lane::{Integrity, Lane, LaneInput, LaneStart, StoredBytes, Wakeup};
    use crate::runtime::test_daemon::TestDaemon;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lane_drops_the_conversation_without_work_and_when_events_are_removed() {
        let limits = Limits { park_after: Duration::from_millis(1), ..Limits::default() };
        let (daemon, _disk) = TestDaemon::on_test_disk_with(limits);
        let (listeners, bytes) = (Vec::new(), StoredBytes::default());
        let start = LaneStart::Restored { token_hash: [0; 32], listeners, integrity: Integrity::Intact, bytes };
        let services = Arc::clone(daemon.server.hub().services());
        let mut lane = Lane::new(SessionId::from("s"), Session::new(limits.session), start, services);
        let caller = Caller::owner(ConnectionId(7), "cli".into());
        let command = Command::Attach { seen: Seq::ZERO, rights: Rights::READ_ONLY };
        lane.apply(Input::Command { ticket: Ticket(1), caller, command, if_version: None }, None);
        assert!(!lane.session.is_idle(), "a client is attached");
        lane.conversation.prepare(range(0, 0), Seq::ZERO);
        let wakeup = timeout(Duration::from_secs(60), lane.next_wakeup()).await;
        assert!(matches!(wakeup, Ok(Wakeup::IdleTimeout)));
        assert!(lane.handle_idle_timeout().await.is_none(), "the lane goes on");
        assert!(!lane.conversation.is_held());
        lane.conversation.prepare(range(0, 0), Seq::ZERO);
        lane.handle_input(LaneInput::RaiseFloor(Seq::ZERO));
        assert!(!lane.conversation.is_held(), "retention may have removed a part of it");
        daemon.close().await;
    }

    #[test]
    fn the_next_turn_starts_from_memory_and_contains_what_was_recorded_meanwhile() {
        let events = history();
        let mut lane = LaneConversation::default();
        lane.prepare(range(0, 2), Seq::new(2));
        lane.fold(&events[2]);
        let ConversationSource::Journal { slot: Some(slot), .. } = lane.take(range(0, 2)) else {
            panic!("nothing is in memory")
        };
        lane.fold(&events[3]);
        slot.set(folded(&events[..2])).unwrap();
        lane.fold(&events[4]);
        lane.prepare(range(0, 5), Seq::new(5));
        lane.fold(&events[5]);
        assert_eq!(memory(lane.take(range(0, 5))), Some(folded(&events[..5])), "nothing that followed the request");
        lane.prepare(range(0, 6), Seq::new(6));
        assert_eq!(memory(lane.take(range(0, 6))), Some(folded(&events)));
        assert_eq!(memory(lane.take(range(0, 6))), None, "it is taken once");
    }

    #[test]
    fn a_turn_folds_the_journal_if_the_context_starts_elsewhere_or_events_followed() {
        let events = history();
        let loaded = || {
            let mut lane = LaneConversation::default();
            lane.prepare(range(0, 2), Seq::new(2));
            let ConversationSource::Journal { slot: Some(slot), .. } = lane.take(range(0, 2)) else { panic!("a slot") };
            slot.set(folded(&events[..2])).unwrap();
            lane.fold(&events[2]);
            lane
        };
        let mut lane = loaded();
        lane.prepare(range(2, 3), Seq::new(3));
        let ConversationSource::Journal { slot: Some(_), .. } = lane.take(range(2, 3)) else { panic!("it is read") };
        let mut lane = loaded();
        lane.prepare(range(0, 3), Seq::new(4));
        let ConversationSource::Journal { slot: None, .. } = lane.take(range(0, 3)) else { panic!("it is read") };
        let mut lane = loaded();
        lane.prepare(range(0, 3), Seq::new(3));
        assert_eq!(memory(lane.take(range(0, 2))), None, "of another turn");
        lane.clear();
        assert!(!lane.is_held());
        lane.fold(&events[3]);
        assert!(!lane.is_held(), "an event alone does not load it");
    }

    #[test]
    fn a_turn_that_never_reads_costs_a_bounded_amount() {
        let event = &history()[2];
        let mut lane = LaneConversation::default();
        lane.prepare(range(0, 2), Seq::new(2));
        for _ in 0..=MAX_BACKLOG {
            assert!(lane.is_held());
            lane.fold(event);
        }
        assert!(!lane.is_held());
    }

    #[test]
    fn only_a_conversation_that_is_complete_after_an_event_is_returned() {
        let events = history();
        let mut lane = LaneConversation::default();
        assert_eq!(lane.since(Seq::ZERO), None);
        lane.prepare(range(3, 6), Seq::new(6));
        let ConversationSource::Journal { slot: Some(slot), .. } = lane.take(range(3, 6)) else { panic!("a slot") };
        assert_eq!(lane.since(Seq::new(9)), None, "it is being read");
        slot.set(folded(&events[2..])).unwrap();
        assert_eq!(lane.since(Seq::new(1)), None);
        assert_eq!(lane.since(Seq::new(2)), Some(folded(&events[2..])));
    }

    #[test]
    fn arguments_are_folded_as_their_record_has_them() {
        let mut event = history().remove(4);
        let EventKind::Tool(ToolEvent::Intended(intention)) = &mut event.kind else { panic!("{event:?}") };
        intention.args = Json::new("{\n\"a\":1}");
        let mut line = Vec::new();
        record::event_line(&SessionId::from("s"), &event, &mut line);
        let stored = record::decode_event(&line).unwrap();
        assert_ne!(stored, event);
        assert_eq!(*as_stored(&event), stored);
        assert!(matches!(as_stored(&stored), Cow::Borrowed(_)));
    }

    fn history() -> Vec<Event> {
        let lines = [
            ("user_message", json!({ "messageId": "m", "text": "go", "by": "cli", "fingerprint": "0" })),
            ("assistant_token", json!({ "text": "I look." })),
            ("assistant_done", json!({ "messageId": "a" })),
            ("usage", json!({ "model": "m", "inputTokens": 10, "outputTokens": 2 })),
            ("tool_call", json!({ "toolName": "x", "callId": "c", "source": "sandbox", "args": { "n": 1 } })),
            ("assistant_token", json!({ "text": "Seen." })),
        ];
        (1..).zip(lines).map(|(seq, (kind, payload))| event(seq, kind, &payload)).collect()
    }

    fn event(seq: u64, kind: &str, payload: &Value) -> Event {
        let line = json!({
            "v": "push.runtime.v1", "kind": "event", "sessionId": "s", "runId": "r", "seq": seq, "ts": seq,
            "type": kind, "payload": payload,
        });
        record::decode_event(line.to_string().as_bytes()).unwrap()
    }

    fn folded(events: &[Event]) -> Conversation {
        let mut conversation = Conversation::default();
        events.iter().for_each(|event| conversation.fold(event));
        conversation
    }

    fn memory(source: ConversationSource) -> Option<Conversation> {
        match source {
            ConversationSource::Memory(conversation) => Some(*conversation),
            ConversationSource::Journal { .. } => None,
        }
    }

    const fn range(from: u64, until: u64) -> ContextRange {
        ContextRange { from: Seq::new(from), until: Seq::new(until) }
    }
}
