//! The approval card: what is to be decided, and the keys that decide it.
//!
//! Pure. For a moment after it was drawn no key decides anything, because it may have been meant for the composer.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the keys are an enum of another crate, and most of them do nothing"
)]

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::editor::Editor;
use super::model::Millis;
use crate::display::approval::{Decision, PendingApproval, Scope};
use crate::display::form::DISMISS;

/// For how long after its appearance a card ignores keys.
pub(crate) const ARMING_MILLIS: Millis = 300;
/// How long a letter waits for another one that makes a message of it.
pub(crate) const HOLD_MILLIS: Millis = 300;

/// The card of a pending approval.
#[derive(Debug)]
pub(crate) struct Card {
    /// The approval.
    pub(crate) pending: PendingApproval,
    /// When it was drawn first.
    shown_at: Option<Millis>,
    /// Whether everything was shown on demand.
    pub(crate) is_viewed: bool,
    /// What is being entered.
    pub(crate) entry: Entry,
    /// The selected choice.
    pub(crate) selected: usize,
    /// What was wrong with the last answer.
    pub(crate) problem: Option<String>,
    /// Whether a decision was sent.
    pub(crate) is_sent: bool,
    /// A letter, which waits for a moment before it acts: it may be the first one of a message.
    pub(crate) held: Option<HeldKey>,
}

/// A letter that acts on the card unless another one follows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeldKey {
    /// The key.
    pub(crate) key: KeyEvent,
    /// When it acts.
    pub(crate) due: Millis,
}

/// What is being entered in a card.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A key decides.
    Keys,
    /// The reason of a denial.
    Reason(Editor),
    /// The rule to store.
    Rule(Editor),
    /// The answer to a form.
    Answer(Editor),
}

/// What a key in a card asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CardAction {
    /// Nothing.
    None,
    /// The key is not one of the card.
    Unused,
    /// Send a decision.
    Decide {
        /// The decision.
        decision: Decision,
        /// The rule in place of the offered one.
        rule: Option<String>,
    },
    /// Show everything.
    ShowWhole,
}

impl Card {
    /// Shows an approval.
    pub(crate) fn new(pending: PendingApproval) -> Self {
        let entry = match &pending.form {
            Some(form) if form.needs_text() => Entry::Answer(Editor::default()),
            Some(_) | None => Entry::Keys,
        };
        Self {
            pending,
            shown_at: None,
            is_viewed: false,
            entry,
            selected: 0,
            problem: None,
            is_sent: false,
            held: None,
        }
    }

    /// Records that it was drawn.
    pub(crate) fn mark_drawn(&mut self, now: Millis) {
        self.shown_at.get_or_insert(now);
    }

    /// Records that something else is shown: it has to be drawn again before keys decide.
    pub(crate) fn mark_hidden(&mut self) {
        self.shown_at = None;
        self.held = None;
    }

    /// Returns whether keys decide: not before it was drawn and could be read.
    pub(crate) fn is_armed(&self, now: Millis) -> bool {
        self.shown_at.is_some_and(|at| now.saturating_sub(at) >= ARMING_MILLIS) && !self.is_sent
    }

    /// Returns the choices: those of the approval or of its form.
    pub(crate) fn choices(&self) -> &[String] {
        match &self.pending.form {
            Some(form) => form.options(),
            None => &self.pending.question.choices,
        }
    }

    /// Returns whether text is being entered.
    pub(crate) const fn is_entering(&self) -> bool {
        !matches!(self.entry, Entry::Keys)
    }

    /// Returns what was written into a field and not sent.
    pub(crate) fn unsent_text(&self) -> Option<&str> {
        match &self.entry {
            Entry::Reason(editor) | Entry::Answer(editor) if !self.is_sent && !editor.is_empty() => Some(editor.text()),
            Entry::Keys | Entry::Rule(_) | Entry::Reason(_) | Entry::Answer(_) => None,
        }
    }

    /// Leaves a field with text, or clears it if there is nothing else; returns whether there was a text.
    pub(crate) fn discard_text(&mut self) -> bool {
        let has_text = match &self.entry {
            Entry::Reason(editor) | Entry::Rule(editor) | Entry::Answer(editor) => !self.is_sent && !editor.is_empty(),
            Entry::Keys => false,
        };
        if has_text {
            self.entry = match &self.entry {
                Entry::Answer(_) => Entry::Answer(Editor::default()),
                Entry::Keys | Entry::Reason(_) | Entry::Rule(_) => Entry::Keys,
            };
        }
        has_text
    }

    /// Inserts a pasted text into the field; returns whether there is one.
    pub(crate) fn paste(&mut self, text: &str) -> bool {
        match &mut self.entry {
            Entry::Keys => false,
            Entry::Reason(editor) | Entry::Rule(editor) | Entry::Answer(editor) => {
                editor.insert(&text.replace('\r', "\n"));
                true
            }
        }
    }

    /// Handles a key of an armed card.
    pub(crate) fn key(&mut self, key: KeyEvent) -> CardAction {
        self.problem = None;
        if self.is_entering() {
            return self.entry_key(key);
        }
        if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
            return CardAction::Unused;
        }
        if !self.choices().is_empty() {
            return self.choice_key(key);
        }
        let is_confirmation = self.pending.form.is_some();
        let scope = |scope| match (self.pending.can_be_remembered(), is_confirmation) {
            (true, false) => CardAction::Decide { decision: Decision::ApproveForScope(scope), rule: None },
            (_, _) => CardAction::Unused,
        };
        match key.code {
            KeyCode::Char('y' | 'Y') if is_confirmation => self.submit_answer("y"),
            KeyCode::Char('n' | 'N') if is_confirmation => self.submit_answer("n"),
            KeyCode::Char('d') if is_confirmation => decide(Decision::Deny(None)),
            KeyCode::Char('y' | 'Y') => decide(Decision::Approve(None)),
            KeyCode::Char('r') => scope(Scope::Run),
            KeyCode::Char('s') => scope(Scope::Session),
            KeyCode::Char('w') if self.pending.can_be_remembered() => {
                let rule = self.pending.question.grant_rule.clone().unwrap_or_default();
                self.entry = Entry::Rule(Editor::with_text(&rule));
                CardAction::None
            }
            KeyCode::Char('n' | 'N') => {
                self.entry = Entry::Reason(Editor::default());
                CardAction::None
            }
            KeyCode::Char('v') => CardAction::ShowWhole,
            _ => CardAction::Unused,
        }
    }

    fn choice_key(&mut self, key: KeyEvent) -> CardAction {
        let count = self.choices().len();
        match key.code {
            KeyCode::Up => self.selected = self.selected.checked_sub(1).unwrap_or(count - 1),
            KeyCode::Down => self.selected = (self.selected + 1) % count,
            KeyCode::Enter => return self.submit_choice(self.selected),
            KeyCode::Char(digit @ '1'..='9') => {
                let at = digit.to_digit(10).and_then(|digit| usize::try_from(digit).ok()).unwrap_or_default();
                if at <= count {
                    return self.submit_choice(at - 1);
                }
            }
            KeyCode::Char('v') => return CardAction::ShowWhole,
            KeyCode::Char('d') if self.pending.form.is_some() => return decide(Decision::Deny(None)),
            _ => return CardAction::Unused,
        }
        CardAction::None
    }

    fn submit_choice(&mut self, at: usize) -> CardAction {
        let Some(choice) = self.choices().get(at).cloned() else { return CardAction::None };
        if self.pending.form.is_some() {
            return self.submit_answer(&choice);
        }
        let is_last = at + 1 == self.choices().len();
        decide(if is_last { Decision::Deny(Some(choice)) } else { Decision::Approve(Some(choice)) })
    }

    fn submit_answer(&mut self, typed: &str) -> CardAction {
        let Some(form) = &self.pending.form else { return CardAction::None };
        if typed == DISMISS {
            return decide(Decision::Deny(None));
        }
        match form.parse_line(typed) {
            Some(answer) => decide(Decision::Answer(answer)),
            None => {
                self.problem = Some("this is not a valid answer".to_owned());
                CardAction::None
            }
        }
    }

    fn entry_key(&mut self, key: KeyEvent) -> CardAction {
        if key.code == KeyCode::Esc && self.pending.form.is_none() {
            self.entry = Entry::Keys;
            return CardAction::None;
        }
        let is_break = key.modifiers.contains(KeyModifiers::ALT);
        match (&mut self.entry, key.code) {
            (Entry::Reason(editor), KeyCode::Enter) if !is_break => {
                let reason = editor.text().trim().to_owned();
                decide(if reason.is_empty() { Decision::Deny(None) } else { Decision::DenyWithReason(reason) })
            }
            (Entry::Rule(editor), KeyCode::Enter) if !is_break => {
                let rule = editor.text().trim().to_owned();
                let is_offered = self.pending.question.grant_rule.as_deref() == Some(rule.as_str());
                let rule = (!is_offered && !rule.is_empty()).then_some(rule);
                CardAction::Decide { decision: Decision::ApproveForScope(Scope::Always), rule }
            }
            (Entry::Answer(editor), KeyCode::Enter) if !is_break => {
                let typed = editor.text().trim().to_owned();
                self.submit_answer(&typed)
            }
            (Entry::Reason(editor) | Entry::Rule(editor) | Entry::Answer(editor), _) => edit(editor, key),
            (Entry::Keys, _) => CardAction::Unused,
        }
    }
}

const fn decide(decision: Decision) -> CardAction {
    CardAction::Decide { decision, rule: None }
}

/// Applies an editing key to a field.
fn edit(editor: &mut Editor, key: KeyEvent) -> CardAction {
    if super::keys::edit(editor, key) {
        return CardAction::None;
    }
    match key.code {
        KeyCode::Enter => editor.insert("\n"),
        KeyCode::Char(c) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
            editor.insert(c.encode_utf8(&mut [0; 4]));
        }
        _ => return CardAction::Unused,
    }
    CardAction::None
}
