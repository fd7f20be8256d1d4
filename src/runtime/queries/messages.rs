//! The messages of a session, page by page, from its conversation.

use super::read_error;
use crate::kernel::command::Caller;
use crate::kernel::conversation::{Author, Conversation, Message};
use crate::kernel::event::{Event, EventKind, RunEvent, ToolEvent};
use crate::kernel::id::{Seq, SessionId};
use crate::protocol::error::{self, Code, ErrorBody};
use crate::protocol::reply::{MessagePage, MessageRow, Reply, Role};
use crate::record;
use crate::runtime::lane::LaneError;
use crate::runtime::server::{Server, lane_error};

/// Returns the messages of a session after an event, on its current branch.
///
/// The lane has the conversation while it is used; otherwise it is folded from the journal.
pub(in crate::runtime) async fn messages(
    server: &Server,
    caller: &Caller,
    session: &SessionId,
    after: Seq,
    limit: u32,
) -> Result<Reply, ErrorBody> {
    let conversation = match server.lane(session).await?.conversation(caller, after).await {
        Some(Ok(Some(conversation))) => conversation,
        Some(Ok(None)) => read(server, session, after).await?,
        Some(Err(refusal)) => return Err(error::from_refusal(refusal)),
        // The owner may read every session.
        None if caller.participant.is_none() => read(server, session, after).await?,
        None => return Err(lane_error(&LaneError::Busy)),
    };
    Ok(Reply::Messages(page(&conversation, after, limit as usize)))
}

/// Folds the events after `after` from the journal, as far as they matter for messages.
async fn read(server: &Server, session: &SessionId, after: Seq) -> Result<Conversation, ErrorBody> {
    let mut conversation = Conversation::default();
    let mut seen = after;
    loop {
        let read = server.hub().services().journal.page(session.clone(), seen, PAGE_BYTES).await.map_err(read_error)?;
        let lines = read.blocks.iter().flat_map(|block| block.bytes.split_inclusive(|byte| *byte == b'\n'));
        for line in lines {
            let event = record::decode_event(line)
                .map_err(|error| ErrorBody::permanent(Code::InternalError, error.to_string()))?;
            if event.seq > seen {
                seen = event.seq;
                fold_messages(&mut conversation, event);
            }
        }
        if !read.more {
            return Ok(conversation);
        }
    }
}

/// Folds an event without what no message needs: a long session has far more of it than of messages.
fn fold_messages(conversation: &mut Conversation, mut event: Event) {
    if matches!(
        event.kind,
        EventKind::Run(RunEvent::ThinkingDelta { .. })
            | EventKind::Tool(ToolEvent::Intended(_))
            | EventKind::Tool(ToolEvent::Settled(_))
    ) {
        return;
    }
    if let EventKind::Run(RunEvent::Started(message)) = &mut event.kind {
        message.images.clear();
    } else if let EventKind::Run(RunEvent::Steered(steering)) = &mut event.kind {
        steering.images.clear();
    }
    conversation.fold(&event);
}

/// Returns the page after `after`; it has more than `limit` messages only if it would end within a text otherwise.
///
/// No page starts in the middle of a text: messages that arrived during a text are on the page of that text.
fn page(conversation: &Conversation, after: Seq, limit: usize) -> MessagePage {
    let mut messages = conversation.messages();
    messages.retain(|message| message.seq > after);
    let incomplete = conversation.incomplete_text();
    // The first event of the earliest text that ends after each message.
    let mut next_start = incomplete.unwrap_or(Seq::new(u64::MAX));
    let mut next_starts = Vec::with_capacity(messages.len());
    for message in messages.iter().rev() {
        next_starts.push(next_start);
        next_start = next_start.min(message.first_seq);
    }
    let mut whole = 0;
    for (index, (message, next_start)) in messages.iter().zip(next_starts.iter().rev()).enumerate() {
        if *next_start > message.seq {
            whole = index + 1;
            if whole >= limit {
                let (messages, next_after) = (rows(&messages[..whole]), message.seq);
                return MessagePage { messages, next_after, done: false };
            }
        }
    }
    let end = incomplete.map_or(conversation.last_seq(), |start| Seq::new(start.number().saturating_sub(1)));
    MessagePage { messages: rows(&messages[..whole]), next_after: end.max(after), done: true }
}

fn rows(messages: &[Message<'_>]) -> Vec<MessageRow> {
    let row = |message: &Message<'_>| MessageRow {
        seq: message.seq,
        at: message.at,
        role: match message.author {
            Author::User => Role::User,
            Author::Assistant => Role::Assistant,
        },
        message: message.message.clone(),
        run: message.run.cloned(),
        text: message.text.clone().into_owned(),
    };
    messages.iter().map(row).collect()
}

/// The number of bytes that one read returns.
const PAGE_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Two texts with messages that arrived during them.
    const TALK: &[(&str, &str)] = &[
        ("user_message", "one"),
        ("assistant_token", "The "),
        ("user_message", "two"),
        ("assistant_token", "first."),
        ("assistant_done", "a1"),
        ("user_message", "three"),
        ("assistant_token", "The second."),
        ("user_message", "four"),
        ("user_message", "five"),
        ("assistant_done", "a2"),
        ("status", "idle"),
    ];

    #[test]
    fn pages_of_any_size_contain_every_message_once_and_no_part_of_a_text() {
        for length in 0..=TALK.len() {
            let events = events(length);
            let whole = page(&fold(&events, Seq::ZERO), Seq::ZERO, usize::MAX);
            assert!(whole.done);
            for limit in 1..6 {
                let (mut after, mut read, mut done) = (Seq::ZERO, Vec::new(), false);
                while !done {
                    // The journal is folded from the end of the page before, the conversation in memory from its start.
                    let next = page(&fold(&events, after), after, limit);
                    assert_eq!(next, page(&fold(&events, Seq::ZERO), after, limit), "{length} {limit}");
                    (after, done) = (next.next_after, next.done);
                    read.extend(next.messages);
                }
                assert_eq!(read, whole.messages, "{length} events in pages of {limit}");
                assert_eq!(after, whole.next_after);
            }
        }
        let texts = |length| {
            let page = page(&fold(&events(length), Seq::ZERO), Seq::ZERO, usize::MAX);
            let texts = page.messages.into_iter().map(|row| row.text).collect::<Vec<_>>().join("|");
            (texts, page.next_after.number())
        };
        assert_eq!(texts(4), ("one".to_owned(), 1), "what arrived during a text is returned with it");
        assert_eq!(texts(5), ("one|two|The first.".to_owned(), 5));
        assert_eq!(texts(11), ("one|two|The first.|three|four|five|The second.".to_owned(), 11));
    }

    #[test]
    fn events_that_no_message_needs_do_not_change_the_messages() {
        let mut events = events(TALK.len());
        let call = json!({ "toolName": "x", "callId": "c", "source": "sandbox", "args": {} });
        events.insert(5, event(105, "tool_call", &call));
        events.insert(2, event(102, "thinking_token", &json!({ "text": "hm" })));
        let renumbered = |(seq, event): (u64, Event)| Event { seq: Seq::new(seq), ..event };
        let events: Vec<_> = (1..).zip(events).map(renumbered).collect();
        let mut all = Conversation::default();
        events.iter().for_each(|event| all.fold(event));
        let reduced = fold(&events, Seq::ZERO);
        assert_ne!(all, reduced);
        assert_eq!(page(&all, Seq::ZERO, 100), page(&reduced, Seq::ZERO, 100));
    }

    fn fold(events: &[Event], after: Seq) -> Conversation {
        let mut conversation = Conversation::default();
        for event in events.iter().filter(|event| event.seq > after) {
            fold_messages(&mut conversation, event.clone());
        }
        conversation
    }

    fn events(length: usize) -> Vec<Event> {
        let payload = |kind: &str, text: &str| match kind {
            "user_message" => {
                json!({ "messageId": text, "text": text, "by": "cli", "fingerprint": "0", "delivery": "steer" })
            }
            "assistant_done" => json!({ "messageId": text }),
            "status" => json!({ "source": "daemon", "phase": text }),
            _ => json!({ "text": text }),
        };
        let numbered = (1..).zip(&TALK[..length]);
        numbered.map(|(seq, (kind, text))| event(seq, kind, &payload(kind, text))).collect()
    }

    fn event(seq: u64, kind: &str, payload: &Value) -> Event {
        let line = json!({
            "v": "push.runtime.v1", "kind": "event", "sessionId": "s", "runId": "r", "seq": seq, "ts": seq,
            "type": kind, "payload": payload,
        });
        record::decode_event(line.to_string().as_bytes()).unwrap()
    }
}
