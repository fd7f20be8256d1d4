//! The messages of a conversation, in the order in which they were completed.

use std::borrow::Cow;

use super::Conversation;
use super::assistant::AssistantMessage;
use super::item::ItemContent;
use crate::kernel::id::{MessageId, RunId, Seq};
use crate::kernel::time::Now;

/// A message of a user, or a completed text of the assistant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its first event.
    pub first_seq: Seq,
    /// The event that completed it.
    pub seq: Seq,
    /// The time of that event.
    pub at: Now,
    /// Its author.
    pub author: Author,
    /// Its id.
    pub message: &'a MessageId,
    /// The run it belongs to.
    pub run: Option<&'a RunId>,
    /// Its text.
    pub text: Cow<'a, str>,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// A user.
    User,
    /// The assistant.
    Assistant,
}

impl Conversation {
    /// Returns the messages, in the order in which they were completed. Messages that a summary replaces are included.
    pub fn messages(&self) -> Vec<Message<'_>> {
        let mut messages = Vec::new();
        let mut texts = TextReader::default();
        for item in &self.items {
            match &item.content {
                ItemContent::UserMessage(user) => messages.push(Message {
                    first_seq: item.first_seq,
                    seq: item.last_seq,
                    at: item.at,
                    author: Author::User,
                    message: &user.message,
                    run: item.run.as_ref(),
                    text: Cow::Borrowed(&user.text),
                }),
                ItemContent::AssistantMessage(message) => texts.read(message, item.run.as_ref(), &mut messages),
                ItemContent::UserCommand(_) | ItemContent::LostCall(_) => {}
            }
        }
        if let Some(draft) = &self.draft {
            texts.read(&draft.message, draft.run.as_ref(), &mut messages);
        }
        messages.sort_by_key(|message| message.seq);
        messages
    }

    /// Returns the first event of the assistant's text that is not complete.
    pub fn incomplete_text(&self) -> Option<Seq> {
        let turn = self.turn.filter(|turn| !turn.is_over)?.first_seq;
        let of_turn = self.items.iter().filter_map(|item| item.assistant()).filter(|message| message.turn == turn);
        let draft = self.draft.as_ref().map(|draft| &draft.message);
        let mut texts = TextReader::default();
        of_turn.chain(draft).for_each(|message| texts.read(message, None, &mut Vec::new()));
        texts.incomplete.map(|incomplete| incomplete.first_seq)
    }
}

/// Reads texts in order. A text that is not complete is continued by the next one of its turn.
#[derive(Default)]
struct TextReader<'a> {
    incomplete: Option<IncompleteText<'a>>,
}

struct IncompleteText<'a> {
    turn: Seq,
    first_seq: Seq,
    text: Cow<'a, str>,
}

impl<'a> TextReader<'a> {
    /// Reads the texts of a message.
    fn read(&mut self, message: &'a AssistantMessage, run: Option<&'a RunId>, messages: &mut Vec<Message<'a>>) {
        let turn = message.turn;
        for part in message.texts() {
            let (first_seq, text) = match self.incomplete.take().filter(|before| before.turn == turn) {
                Some(before) => (before.first_seq, before.text + part.text.as_str()),
                None => (part.first_seq, Cow::Borrowed(part.text.as_str())),
            };
            match &part.completion {
                Some(completion) => messages.push(Message {
                    first_seq,
                    seq: completion.seq,
                    at: completion.at,
                    author: Author::Assistant,
                    message: &completion.message,
                    run,
                    text,
                }),
                None => self.incomplete = Some(IncompleteText { turn, first_seq, text }),
            }
        }
    }
}
