//! Keys: what each does, by the part of the region that has the focus.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the keys are an enum of another crate, and most of them do nothing"
)]

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::card::{CardAction, HOLD_MILLIS, HeldKey};
use super::client_task::Call;
use super::commands;
use super::completion::{Completion, wants_files};
use super::editor::{Editor, Movement};
use super::model::{Effect, Focus, FollowUp, LeaveReason, Millis, Model};
use super::options::SwitchTarget;
use super::palette::{Palette, PaletteAction, PaletteEntry};
use super::scrolled;
use super::view;
use crate::display::approval::Decision;

/// Within what time a second Ctrl-C leaves.
const SECOND_INTERRUPT: Millis = 2000;
/// The columns before the text of the composer.
pub(crate) const PROMPT_COLUMNS: u16 = 2;

/// Handles a key.
pub(crate) fn press(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    if key.kind == KeyEventKind::Release {
        return Vec::new();
    }
    model.typed_at = model.now;
    if model.scrolled.is_some() {
        return scrolled::press(model, key);
    }
    if let Some(effects) = global(model, key) {
        return effects;
    }
    if model.palette.is_some() {
        return palette(model, key);
    }
    if key.code == KeyCode::PageUp {
        scrolled::open(model);
        return Vec::new();
    }
    if model.read_only {
        return Vec::new();
    }
    match model.focus {
        Focus::Card => card(model, key),
        Focus::Queue => queue(model, key),
        Focus::Composer => composer(model, key),
    }
}

/// Handles a key while the list of sessions and commands is shown.
fn palette(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    let Some(list) = model.palette.as_mut() else { return Vec::new() };
    let entry = match list.key(key) {
        PaletteAction::None => return Vec::new(),
        PaletteAction::Close => {
            model.palette = None;
            return Vec::new();
        }
        PaletteAction::Use(entry) => entry,
    };
    model.palette = None;
    match entry {
        PaletteEntry::Session(session) => switch(model, SwitchTarget::Session(session)),
        PaletteEntry::Command(_) if model.read_only => Vec::new(),
        PaletteEntry::Command(name) if takes_text(name) => {
            model.composer.restore(&format!("{name} "));
            Vec::new()
        }
        PaletteEntry::Command(name) => commands::execute(model, name),
    }
}

fn switch(model: &mut Model, target: SwitchTarget) -> Vec<Effect> {
    if !model.can_switch {
        model.show_hint("this view shows one run; `push chat` and `push attach` show other sessions");
        return Vec::new();
    }
    vec![Effect::Switch(target)]
}

/// Cancels the run, or stops a command of the user; the second time within two seconds leaves.
pub(crate) fn interrupt(model: &mut Model) -> Vec<Effect> {
    let is_second = model.interrupted_at.is_some_and(|before| model.now.saturating_sub(before) < SECOND_INTERRUPT);
    if is_second {
        return vec![Effect::Leave(LeaveReason::Interrupted)];
    }
    model.interrupted_at = Some(model.now);
    if model.read_only {
        model.show_hint("press Ctrl-C again to leave");
        return Vec::new();
    }
    if model.run.is_some() {
        model.show_hint("cancelling the run; press Ctrl-C again to leave");
        return vec![model.call(Call::Cancel, None)];
    }
    if model.transcript.calls.values().any(|log| log.is_of_user) {
        model.show_hint("stopping the command; press Ctrl-C again to leave");
        return vec![model.call(Call::StopCommands, None)];
    }
    if !model.composer.is_empty() {
        // The history keeps it.
        model.composer.take();
        model.completion = None;
    }
    model.show_hint("press Ctrl-C again to leave");
    Vec::new()
}

/// Handles keys that do the same everywhere.
pub(crate) fn global(model: &mut Model, key: KeyEvent) -> Option<Vec<Effect>> {
    if key.modifiers != KeyModifiers::CONTROL {
        if key.code == KeyCode::Tab && model.completion.is_none() {
            model.focus = next_focus(model);
            return Some(Vec::new());
        }
        return None;
    }
    let is_entering = model.focus == Focus::Card && model.card.as_ref().is_some_and(super::card::Card::is_entering);
    match key.code {
        KeyCode::Char('c') => Some(interrupt(model)),
        KeyCode::Char('d') if model.composer.is_empty() && !is_entering => {
            Some(vec![Effect::Leave(LeaveReason::Detached)])
        }
        KeyCode::Char('n') if !model.read_only => Some(switch(model, SwitchTarget::New)),
        KeyCode::Char('p') if model.palette.take().is_some() => Some(Vec::new()),
        KeyCode::Char('p') => {
            model.palette = Some(Palette::default());
            Some(vec![model.call(Call::ListSessions, None)])
        }
        KeyCode::Char('z') => Some(vec![Effect::Suspend]),
        KeyCode::Char('l') => Some(vec![Effect::Redraw]),
        KeyCode::Char('o') => {
            model.transcript.toggle_output();
            let words = if model.transcript.full_output { "all output of tools is shown" } else { "output is folded" };
            model.show_hint(words);
            Some(Vec::new())
        }
        KeyCode::Char('t') => {
            model.transcript.toggle_thinking();
            let words = if model.transcript.shows_thinking { "reasoning is shown" } else { "reasoning is folded" };
            model.show_hint(words);
            Some(Vec::new())
        }
        _ => None,
    }
}

/// Returns the part that gets the focus with Tab: the card, the queue, the composer, as far as they are there.
fn next_focus(model: &Model) -> Focus {
    let (has_card, has_queue) = (model.card.is_some(), !model.queue.is_empty());
    match model.focus {
        Focus::Composer if has_card => Focus::Card,
        Focus::Composer | Focus::Card if has_queue => Focus::Queue,
        Focus::Composer | Focus::Card | Focus::Queue => Focus::Composer,
    }
}

fn card(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    let now = model.now;
    let Some(card) = model.card.as_mut() else {
        model.focus = Focus::Composer;
        return composer(model, key);
    };
    if !card.is_armed(now) {
        // It was typed before the card could be read, so it belongs to the composer, and so does what follows.
        if is_text(key) {
            model.focus = Focus::Composer;
            return composer(model, key);
        }
        return Vec::new();
    }
    if let Some(held) = card.held.take() {
        if is_text(key) {
            // The letter before this one was the first one of a message.
            model.focus = Focus::Composer;
            drop(composer(model, held.key));
            return composer(model, key);
        }
        return if key.code == KeyCode::Enter { act_on_card(model, held.key) } else { Vec::new() };
    }
    if is_text(key) && !card.is_entering() && is_card_letter(key) {
        card.held = Some(HeldKey { key, due: now + HOLD_MILLIS });
        return Vec::new();
    }
    act_on_card(model, key)
}

/// Returns whether a letter may mean something to a card.
const fn is_card_letter(key: KeyEvent) -> bool {
    matches!(key.code, KeyCode::Char('y' | 'Y' | 'n' | 'N' | 'r' | 's' | 'w' | 'v' | 'd' | '1'..='9'))
}

/// Lets a letter act on the card that no other letter has followed.
pub(crate) fn release_held_key(model: &mut Model) -> Option<Vec<Effect>> {
    let now = model.now;
    let held = model.card.as_mut()?.held.take_if(|held| held.due <= now)?;
    Some(act_on_card(model, held.key))
}

fn act_on_card(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    let is_incomplete = model.card.as_ref().is_some_and(|card| !card.is_viewed && view::hides_rows_of(model, card));
    let Some(card) = model.card.as_mut() else { return Vec::new() };
    match card.key(key) {
        // The beginning of a message: its other letters decide nothing either.
        CardAction::Unused if is_text(key) => {
            model.focus = Focus::Composer;
            composer(model, key)
        }
        CardAction::None | CardAction::Unused => Vec::new(),
        CardAction::ShowWhole => {
            card.is_viewed = true;
            let question = card.pending.question.clone();
            model.transcript.whole_question(&question);
            Vec::new()
        }
        CardAction::Decide { decision, .. } if grants(&decision) && is_incomplete => {
            card.problem = Some("a part is not shown: v shows everything".to_owned());
            Vec::new()
        }
        CardAction::Decide { decision, rule } => decide(model, decision, rule),
    }
}

fn decide(model: &mut Model, decision: Decision, rule: Option<String>) -> Vec<Effect> {
    let Some(card) = model.card.as_mut() else { return Vec::new() };
    card.is_sent = true;
    let pending = Box::new(card.pending.clone());
    vec![model.call(Call::Decide { pending, decision, comment: None, rule }, None)]
}

/// Returns whether a decision allows something.
pub(crate) const fn grants(decision: &Decision) -> bool {
    match decision {
        Decision::Approve(_) | Decision::ApproveForScope(_) => true,
        // An answer is written or chosen from what is shown.
        Decision::Answer(_) | Decision::Deny(_) | Decision::DenyWithReason(_) => false,
    }
}

fn queue(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    let count = model.queue.len();
    model.selected = model.selected.min(count.saturating_sub(1));
    let Some(entry) = model.queue.get(model.selected).cloned() else {
        model.focus = Focus::Composer;
        return composer(model, key);
    };
    let unqueue = Call::Unqueue { id: entry.id };
    match key.code {
        KeyCode::Up => model.selected = model.selected.saturating_sub(1),
        KeyCode::Down => model.selected = (model.selected + 1).min(count - 1),
        KeyCode::Esc => model.focus = Focus::Composer,
        KeyCode::Enter | KeyCode::Char('e') => {
            model.focus = Focus::Composer;
            return vec![model.call_then(unqueue, None, FollowUp::Edit(entry.text))];
        }
        KeyCode::Char('s') => return vec![model.call_then(unqueue, None, FollowUp::Steer(entry.text))],
        KeyCode::Char('d') | KeyCode::Delete | KeyCode::Backspace => {
            model.composer.remember(&entry.text);
            return vec![model.call(unqueue, None)];
        }
        _ => {}
    }
    Vec::new()
}

fn composer(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    if let Some(effects) = complete(model, key) {
        return effects;
    }
    let width = model.size.0.saturating_sub(PROMPT_COLUMNS + 1);
    let is_plain = !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
    match key.code {
        KeyCode::Esc | KeyCode::Enter if model.shows_keys() => drop(model.composer.discard()),
        KeyCode::Enter if is_plain && !key.modifiers.contains(KeyModifiers::SHIFT) => return send(model),
        KeyCode::Enter => model.composer.insert("\n"),
        KeyCode::Char('j') if key.modifiers == KeyModifiers::CONTROL => model.composer.insert("\n"),
        KeyCode::Char('s') if key.modifiers == KeyModifiers::CONTROL => return steer(model),
        KeyCode::Up => model.composer.up(width),
        KeyCode::Down => model.composer.down(width),
        KeyCode::Char(c) if is_plain => model.composer.insert(c.encode_utf8(&mut [0; 4])),
        _ => {
            edit(model.composer.editor_mut(), key);
        }
    }
    refresh_completion(model)
}

/// Finds the candidates for the word before the cursor.
pub(crate) fn refresh_completion(model: &mut Model) -> Vec<Effect> {
    let before = model.composer.before_cursor().to_owned();
    model.completion = Completion::find(&before, model.files.as_deref());
    if model.files.is_none() && wants_files(&before) {
        model.files = Some(Vec::new());
        return vec![Effect::ListFiles(model.cwd.clone())];
    }
    Vec::new()
}

/// Handles a key while candidates are shown.
fn complete(model: &mut Model, key: KeyEvent) -> Option<Vec<Effect>> {
    let completion = model.completion.as_mut()?;
    match key.code {
        KeyCode::Up => completion.select(false),
        KeyCode::Down => completion.select(true),
        KeyCode::Esc => model.completion = None,
        KeyCode::Tab | KeyCode::Enter if key.modifiers.is_empty() => {
            let (start, chosen) = (completion.start, completion.chosen().to_owned());
            let end = model.composer.before_cursor().len();
            model.composer.editor_mut().replace(start..end, &format!("{chosen} "));
            model.completion = None;
            if key.code == KeyCode::Enter && chosen.starts_with('/') && !takes_text(&chosen) {
                return Some(send(model));
            }
        }
        _ => return None,
    }
    Some(Vec::new())
}

fn takes_text(command: &str) -> bool {
    commands::COMMANDS.iter().any(|(name, arguments, _)| *name == command && !arguments.is_empty())
}

/// Sends what is in the composer: a command, a command of the user, or a message.
fn send(model: &mut Model) -> Vec<Effect> {
    if model.composer.message().trim().is_empty() {
        return Vec::new();
    }
    if model.ended {
        model.show_hint("the session has ended and accepts no more messages");
        return Vec::new();
    }
    let text = model.composer.take();
    model.completion = None;
    if commands::is_command(&text) {
        return commands::execute(model, &text);
    }
    if let Some(command) = text.strip_prefix('!').map(str::trim).filter(|command| !command.is_empty()) {
        let command = command.to_owned();
        return vec![model.call(Call::RunCommand { command }, Some(text))];
    }
    let id = (model.new_id)();
    vec![model.call(Call::Queue { id, text: text.clone() }, Some(text))]
}

/// Sends what is in the composer into the run; if it is empty, the first queued message.
fn steer(model: &mut Model) -> Vec<Effect> {
    if model.composer.message().trim().is_empty() {
        let Some(first) = model.queue.first().cloned() else { return Vec::new() };
        return vec![model.call_then(Call::Unqueue { id: first.id }, None, FollowUp::Steer(first.text))];
    }
    let text = model.composer.take();
    let id = (model.new_id)();
    vec![model.call(Call::Steer { id, text: text.clone() }, Some(text))]
}

const fn is_text(key: KeyEvent) -> bool {
    matches!(key.code, KeyCode::Char(_)) && !key.modifiers.intersects(KeyModifiers::CONTROL.union(KeyModifiers::ALT))
}

/// Applies an editing key; returns whether it is one.
pub(crate) fn edit(editor: &mut Editor, key: KeyEvent) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    let alt = key.modifiers.contains(KeyModifiers::ALT);
    let by_word = control || alt;
    match key.code {
        KeyCode::Left => editor.move_cursor(if by_word { Movement::WordLeft } else { Movement::Left }),
        KeyCode::Right => editor.move_cursor(if by_word { Movement::WordRight } else { Movement::Right }),
        KeyCode::Home => editor.move_cursor(Movement::LineStart),
        KeyCode::End => editor.move_cursor(Movement::LineEnd),
        KeyCode::Backspace => editor.delete(if by_word { Movement::WordLeft } else { Movement::Left }),
        KeyCode::Delete => editor.delete(if by_word { Movement::WordRight } else { Movement::Right }),
        KeyCode::Char('b') if alt => editor.move_cursor(Movement::WordLeft),
        KeyCode::Char('f') if alt => editor.move_cursor(Movement::WordRight),
        KeyCode::Char('d') if alt => editor.delete(Movement::WordRight),
        KeyCode::Char('a') if control => editor.move_cursor(Movement::LineStart),
        KeyCode::Char('e') if control => editor.move_cursor(Movement::LineEnd),
        KeyCode::Char('b') if control => editor.move_cursor(Movement::Left),
        KeyCode::Char('f') if control => editor.move_cursor(Movement::Right),
        KeyCode::Char('d') if control => editor.delete(Movement::Right),
        KeyCode::Char('h') if control => editor.delete(Movement::Left),
        KeyCode::Char('w') if control => editor.delete(Movement::WordLeft),
        KeyCode::Char('u') if control => editor.delete(Movement::LineStart),
        KeyCode::Char('k') if control => editor.delete(Movement::LineEnd),
        KeyCode::Char('y') if control => editor.paste_cut(),
        KeyCode::Char('_' | '7' | '/') if control => editor.undo(),
        KeyCode::Char('r') if alt => editor.redo(),
        _ => return false,
    }
    true
}
