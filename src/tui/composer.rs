//! The composer: the message that is being written, its pasted parts and the history.
//!
//! Pure. A large paste is one character of a private range in the text and drawn as a label, so that it is moved over
//! and deleted as a whole; it becomes its content when the message is sent.

use super::editor::{Editor, EditorLayout};
use crate::display::usage::group;

/// The message that is being written.
#[derive(Debug, Default)]
pub(crate) struct Composer {
    editor: Editor,
    pastes: Vec<String>,
    history: Vec<String>,
    /// The position in the history, and the draft that it hides.
    recalled: Option<(usize, String)>,
}

/// The first character that stands for a paste; the range has 65,534 of them.
const FIRST_PASTE: u32 = 0xF_0000;
const MAX_PASTES: usize = 0xFFFD;
/// A paste with more lines or bytes than this is drawn as a label.
const INLINE_LINES: usize = 8;
const INLINE_BYTES: usize = 1000;
/// How many messages the history keeps.
const HISTORY: usize = 200;

impl Composer {
    /// Inserts typed text.
    pub(crate) fn insert(&mut self, text: &str) {
        let text: String = text.chars().filter(|c| is_typable(*c)).collect();
        self.editor.insert(&text);
    }

    /// Inserts pasted text.
    pub(crate) fn paste(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let is_large = text.lines().count() > INLINE_LINES || text.len() > INLINE_BYTES;
        let label = u32::try_from(self.pastes.len()).ok().and_then(|at| char::from_u32(FIRST_PASTE + at));
        match label.filter(|_| is_large && self.pastes.len() < MAX_PASTES) {
            Some(label) => {
                self.pastes.push(text);
                self.editor.insert(label.encode_utf8(&mut [0; 4]));
            }
            None => self.insert(&text),
        }
    }

    /// Takes the message out, with pastes in place of their labels, and adds it to the history.
    pub(crate) fn take(&mut self) -> String {
        let text = self.discard();
        self.remember(&text);
        text
    }

    /// Takes the message out without adding it to the history.
    pub(crate) fn discard(&mut self) -> String {
        let text = self.message();
        self.editor.take();
        self.pastes.clear();
        self.recalled = None;
        text
    }

    /// Puts a message back, before what has been written since.
    pub(crate) fn restore(&mut self, text: &str) {
        let rest = self.discard();
        self.paste(text);
        if !rest.trim().is_empty() {
            self.editor.insert("\n");
            self.paste(&rest);
        }
    }

    /// Adds a message to the history.
    pub(crate) fn remember(&mut self, text: &str) {
        if text.trim().is_empty() || self.history.last().is_some_and(|last| last == text) {
            return;
        }
        if self.history.len() == HISTORY {
            self.history.remove(0);
        }
        self.history.push(text.to_owned());
    }

    /// Moves one row up, or to the message before if the cursor is in the first row.
    pub(crate) fn up(&mut self, width: u16) {
        if self.editor.move_row(false, width) {
            return;
        }
        let at = self.recalled.as_ref().map_or(self.history.len(), |(at, _)| *at);
        let Some(before) = at.checked_sub(1) else { return };
        let draft = match self.recalled.take() {
            Some((_, draft)) => draft,
            None => self.message(),
        };
        self.show(before, draft);
    }

    /// Moves one row down, or to the next message if the cursor is in the last row.
    pub(crate) fn down(&mut self, width: u16) {
        if self.editor.move_row(true, width) {
            return;
        }
        let Some((at, draft)) = self.recalled.take() else { return };
        if at + 1 < self.history.len() {
            self.show(at + 1, draft);
        } else {
            self.editor.take();
            self.pastes.clear();
            self.paste(&draft);
        }
    }

    /// Returns the editor, for changes that do not concern pastes.
    pub(crate) const fn editor_mut(&mut self) -> &mut Editor {
        &mut self.editor
    }

    /// Returns the text before the cursor, with labels in place of pastes.
    pub(crate) fn before_cursor(&self) -> &str {
        self.editor.text().get(..self.editor.cursor()).unwrap_or_default()
    }

    /// Returns whether nothing has been written.
    pub(crate) const fn is_empty(&self) -> bool {
        self.editor.is_empty()
    }

    /// Returns the complete message.
    pub(crate) fn message(&self) -> String {
        let mut message = String::new();
        for c in self.editor.text().chars() {
            match paste_index(c).and_then(|at| self.pastes.get(at)) {
                Some(paste) => message.push_str(paste),
                None => message.push(c),
            }
        }
        message
    }

    /// Divides the text into rows.
    pub(crate) fn layout(&self, width: u16) -> EditorLayout {
        self.editor.layout(width, |c| self.label(c))
    }

    fn label(&self, c: char) -> Option<String> {
        let paste = self.pastes.get(paste_index(c)?)?;
        let count = |number: usize| group(u64::try_from(number).unwrap_or(u64::MAX));
        let (lines, bytes) = (paste.lines().count(), paste.len());
        Some(match lines {
            1 => format!("[pasted {} characters]", count(bytes)),
            lines => format!("[pasted {} lines]", count(lines)),
        })
    }

    fn show(&mut self, at: usize, draft: String) {
        let text = self.history.get(at).cloned().unwrap_or_default();
        self.editor.take();
        self.pastes.clear();
        self.paste(&text);
        self.recalled = Some((at, draft));
    }
}

fn paste_index(c: char) -> Option<usize> {
    let at = usize::try_from(u32::from(c).checked_sub(FIRST_PASTE)?).ok()?;
    (at < MAX_PASTES).then_some(at)
}

/// Returns whether a character can be in the text: control characters and those that stand for a paste cannot.
fn is_typable(c: char) -> bool {
    (!c.is_control() || matches!(c, '\n' | '\t')) && paste_index(c).is_none()
}

#[cfg(test)]
mod tests {
    use super::super::editor::Movement;
    use super::*;

    #[test]
    fn a_large_paste_is_a_label_and_is_sent_as_its_content() {
        let mut composer = Composer::default();
        let paste: String = (0..5000).map(|n| format!("line {n}\r\n")).collect();
        composer.insert("see ");
        composer.paste(&paste);
        composer.insert("!");
        assert_eq!(composer.layout(80).rows[0].1, "see [pasted 5,000 lines]!");
        let message = composer.take();
        assert!(message.starts_with("see line 0\nline 1\n") && message.ends_with("line 4999\n!"));
        assert!(composer.is_empty());
        composer.up(80);
        assert_eq!(composer.message(), message);
    }

    #[test]
    fn a_label_is_deleted_as_a_whole_and_nothing_typed_can_be_one() {
        let mut composer = Composer::default();
        composer.paste(&"x\n".repeat(100));
        composer.insert("\u{F0000}\u{1b}");
        composer.editor_mut().delete(Movement::Left);
        assert!(composer.is_empty());
    }

    #[test]
    fn the_history_keeps_the_draft() {
        let mut composer = Composer::default();
        composer.insert("one");
        composer.take();
        composer.insert("two");
        composer.take();
        composer.insert("draft");
        composer.up(80);
        composer.up(80);
        composer.up(80);
        assert_eq!(composer.message(), "one");
        composer.down(80);
        composer.down(80);
        assert_eq!(composer.message(), "draft");
    }

    #[test]
    fn a_message_that_was_not_sent_comes_back_before_the_new_text() {
        let mut composer = Composer::default();
        composer.insert("first");
        let text = composer.take();
        composer.insert("second");
        composer.restore(&text);
        assert_eq!(composer.message(), "first\nsecond");
    }
}
