//! Draws the region at the bottom. Pure: the state and a size give rows.

use ratatui::text::{Line, Span};

use super::card::Card;
use super::card_view::{self, CardContext};
use super::client_task::Call;
use super::commands::KEYS;
use super::completion::SHOWN;
use super::keys::PROMPT_COLUMNS;
use super::model::{Focus, Model};
use super::status::{activity_row, status_row};
use super::text::wrap::{truncate, wrap_line};
use super::writer::Frame;
use crate::display::sanitize::sanitize_line;
use crate::display::usage::elapsed;

/// How many rows of the composer are shown.
const COMPOSER_ROWS: usize = 12;
/// How many queued messages and running calls are shown.
const LISTED: usize = 5;
/// How many rows a card has at least before other rows are shown.
const CARD_ROWS: usize = 16;
/// The same while something else has the focus: the card is not answered then.
const UNFOCUSED_CARD_ROWS: usize = 6;
/// How many rows are left for others beside the list of keys.
const OTHER_ROWS: usize = 5;
/// How many rows of the output of a folded call are shown.
const LIVE_ROWS: usize = 2;

/// Draws the region.
pub(crate) fn draw(model: &Model) -> Frame {
    let height = usize::from(model.size.1.max(4)) - 1;
    let (mut bottom, composer_cursor) = composer_rows(model);
    bottom.push(status_row(model));
    let mut middle = Vec::new();
    middle.extend(activity_row(model));
    let mut cursor = None;
    let mut below = rows_below_card(model);
    if let Some(card) = &model.card {
        let height = card_height(model, bottom.len() + middle.len(), &mut below);
        let drawn = card_view::draw(&CardContext::of(model, card), card, height);
        cursor = drawn.cursor.map(|(row, column)| (middle.len() + row, column));
        middle.extend(drawn.rows);
    }
    middle.extend(below);
    let room = height.saturating_sub(bottom.len() + middle.len() + 1);
    // A narrower terminal may move the top of a high region out of the screen, where it cannot be removed.
    let mut top = model.transcript.tail(room.min(height / 2));
    top.extend(call_rows(model));
    let hidden = top.len().saturating_sub(room);
    let mut rows: Vec<Line<'static>> = top.split_off(hidden);
    rows.push(Line::default());
    let above = rows.len();
    rows.extend(middle);
    let start = rows.len();
    rows.extend(bottom);
    let cursor = match model.focus {
        Focus::Composer => composer_cursor.map(|(row, column)| (start + row, column)),
        Focus::Card => cursor.map(|(row, column)| (above + row, column)),
        Focus::Queue => None,
    };
    Frame { rows, cursor, is_typing: model.is_typing() }
}

/// Returns whether the card leaves out a part of what it asks for.
pub(crate) fn hides_rows_of(model: &Model, card: &Card) -> bool {
    let others = composer_rows(model).0.len() + 1 + usize::from(activity_row(model).is_some());
    let height = card_height(model, others, &mut rows_below_card(model));
    card_view::draw(&CardContext::of(model, card), card, height).hides_rows
}

/// Returns how many rows the card may take beside `others`; in a small terminal rows below it are left out.
fn card_height(model: &Model, others: usize, below: &mut Vec<Line<'static>>) -> usize {
    let room = (usize::from(model.size.1.max(4)) - 1).saturating_sub(others + 2);
    let card_rows = if model.focus == Focus::Card { CARD_ROWS } else { UNFOCUSED_CARD_ROWS };
    if room < below.len() + card_rows {
        below.truncate(room.saturating_sub(card_rows));
        if let Some(last) = below.last_mut() {
            *last = Line::from(Span::styled("  …", model.theme.faint));
        }
    }
    room.saturating_sub(below.len()).max(4)
}

/// Returns the rows between the card and the composer.
fn rows_below_card(model: &Model) -> Vec<Line<'static>> {
    if let Some(palette) = &model.palette {
        return palette.rows(&model.theme);
    }
    let mut rows = sending_rows(model);
    rows.extend(queue_rows(model));
    rows.extend(completion_rows(model));
    if model.shows_keys() {
        rows.extend(key_rows(model));
    }
    rows
}

fn composer_rows(model: &Model) -> (Vec<Line<'static>>, Option<(usize, u16)>) {
    let theme = &model.theme;
    if model.read_only {
        return (vec![Line::from(Span::styled("read-only: Ctrl-D leaves", theme.faint))], None);
    }
    let prompt = Span::styled("› ", if model.focus == Focus::Composer { theme.strong } else { theme.faint });
    if model.composer.is_empty() {
        let words = match (model.ended, &model.run) {
            (true, _) => "the session has ended",
            (false, Some(_)) => "message for after this run; Ctrl-S sends it into the run",
            (false, None) => "message, /command, !shell command",
        };
        let row = Line::from(vec![prompt, Span::styled(words, theme.faint)]);
        return (vec![row], Some((0, PROMPT_COLUMNS)));
    }
    let layout = model.composer.layout(model.size.0.saturating_sub(PROMPT_COLUMNS + 1));
    let shown = COMPOSER_ROWS.min(usize::from(model.size.1) / 2).max(1);
    let first = (layout.row + 1).saturating_sub(shown).min(layout.rows.len().saturating_sub(shown));
    let rows = layout.rows.iter().enumerate().skip(first).take(shown).map(|(at, (_, text))| {
        let mark = if at == 0 { prompt.clone() } else { Span::raw("  ") };
        Line::from(vec![mark, Span::raw(text.clone())])
    });
    let column = PROMPT_COLUMNS + u16::try_from(layout.column).unwrap_or_default();
    (rows.collect(), Some((layout.row - first, column)))
}

/// Returns messages without a reply of the daemon.
fn sending_rows(model: &Model) -> Vec<Line<'static>> {
    let texts = model.pending.values().filter_map(|pending| match &pending.call {
        Call::Queue { text, .. } | Call::Steer { text, .. } => Some(text),
        Call::Unqueue { .. }
        | Call::Decide { .. }
        | Call::Cancel
        | Call::RunCommand { .. }
        | Call::StopCommands
        | Call::ListQueue
        | Call::ListApprovals
        | Call::ListRules
        | Call::ListSessions
        | Call::Snapshot
        | Call::Compact { .. }
        | Call::Rename { .. }
        | Call::End => None,
    });
    let row = |text: &String| Line::from(Span::styled(format!("sending: {}", preview(text)), model.theme.faint));
    texts.take(LISTED).map(row).collect()
}

fn queue_rows(model: &Model) -> Vec<Line<'static>> {
    let is_focused = model.focus == Focus::Queue;
    let selected = model.selected.min(model.queue.len().saturating_sub(1));
    let first = if is_focused { (selected + 1).saturating_sub(LISTED) } else { 0 };
    let shown = model.queue.iter().enumerate().skip(first).take(LISTED);
    let mut rows: Vec<_> = shown
        .map(|(at, entry)| {
            let is_selected = is_focused && at == selected;
            let mark = if is_selected { "›" } else { " " };
            let style = if is_selected { model.theme.strong } else { model.theme.faint };
            Line::from(Span::styled(format!("{mark} queued {}: {}", at + 1, preview(&entry.text)), style))
        })
        .collect();
    if model.queue.len() > LISTED {
        rows.push(Line::from(Span::styled(format!("  {} queued in all", model.queue.len()), model.theme.faint)));
    }
    if is_focused && !rows.is_empty() {
        rows.push(Line::from(Span::styled("  Enter edits, s steers, d removes, Esc back", model.theme.faint)));
    } else if !rows.is_empty() {
        rows.push(Line::from(Span::styled("  Tab edits the queue, Ctrl-S steers", model.theme.faint)));
    }
    rows
}

fn completion_rows(model: &Model) -> Vec<Line<'static>> {
    let Some(completion) = &model.completion else { return Vec::new() };
    let first = (completion.selected + 1).saturating_sub(SHOWN);
    let shown = completion.candidates.iter().enumerate().skip(first).take(SHOWN);
    shown
        .map(|(at, (text, about))| {
            let is_selected = at == completion.selected;
            let (mark, style) = if is_selected { ("› ", model.theme.strong) } else { ("  ", model.theme.context) };
            let text = sanitize_line(text);
            Line::from(vec![
                Span::styled(format!("{mark}{text:<12}"), style),
                Span::styled(format!(" {about}"), model.theme.faint),
            ])
        })
        .collect()
}

fn key_rows(model: &Model) -> Vec<Line<'static>> {
    let row = |(key, about): &(&str, &str)| {
        Line::from(vec![
            Span::styled(format!("  {key:<18}"), model.theme.strong),
            Span::styled(format!(" {about}"), model.theme.faint),
        ])
    };
    let width = model.size.0.saturating_sub(1);
    let mut rows: Vec<_> =
        KEYS.iter().map(row).flat_map(|line| wrap_line(&line, width, "                     ")).collect();
    let room = usize::from(model.size.1).saturating_sub(OTHER_ROWS);
    if rows.len() > room {
        rows.truncate(room.saturating_sub(1));
        rows.push(Line::from(Span::styled("  … /help prints all keys", model.theme.faint)));
    }
    rows
}

/// Returns the running calls: a row each, and the end of their output.
pub(crate) fn call_rows(model: &Model) -> Vec<Line<'static>> {
    let theme = &model.theme;
    let mut rows = Vec::new();
    let width = model.size.0.saturating_sub(1);
    for log in model.transcript.calls.values().take(LISTED) {
        if log.is_streamed {
            if let Some(line) = log.unfinished_line() {
                rows.push(truncate(&Line::from(format!("  {line}")), width));
            }
            continue;
        }
        let time = elapsed(model.now.saturating_sub(log.started_at));
        rows.push(Line::from(vec![
            Span::styled("● ", theme.attention),
            Span::styled(log.title(), theme.strong),
            Span::styled(format!(" · {time}"), theme.faint),
        ]));
        for line in log.last_lines(LIVE_ROWS).0 {
            rows.push(truncate(&Line::from(Span::styled(format!("  {line}"), theme.faint)), width));
        }
    }
    rows
}

/// Returns the beginning of a message in one line.
fn preview(text: &str) -> String {
    let lines = text.lines().count();
    let first: String = text.chars().take(400).collect();
    let more = if lines > 1 { format!(" ({lines} lines)") } else { String::new() };
    let first = sanitize_line(first.lines().next().unwrap_or_default());
    format!("{first}{more}")
}
