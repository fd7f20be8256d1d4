//! Draws the approval card.

use ratatui::text::{Line, Span};

use super::card::{Card, Entry};
use super::editor::{Editor, label_none};
use super::model::{Focus, Model};
use super::painted::{self, QuestionExtent};
use super::text::theme::Theme;
use super::text::wrap::wrap_line;
use crate::display::approval_view::context_lines;
use crate::display::form::DISMISS;
use crate::display::sanitize::{escape_line, sanitize_line};

/// The rows of a card, and the cursor in them.
#[derive(Debug, Default)]
pub(crate) struct CardRows {
    /// The rows.
    pub(crate) rows: Vec<Line<'static>>,
    /// The cursor, if text is being entered.
    pub(crate) cursor: Option<(usize, u16)>,
    /// Whether something that is asked for is not shown.
    pub(crate) hides_rows: bool,
}

/// The mark before every row.
const BAR: &str = "▌ ";
/// The mark before text that a model or a file chose.
const QUOTE: &str = "  │ ";
/// How many choices are shown at once.
const SHOWN_CHOICES: usize = 9;

/// Draws the card in at most `height` rows.
pub(crate) fn draw(model: &Model, card: &Card, height: usize) -> CardRows {
    let theme = &model.theme;
    let width = model.size.0.saturating_sub(4).max(8);
    let mut head = wrap(&Line::from(Span::styled(title(model, card), theme.attention)), width);
    let mut details = painted::question(&card.pending.question, theme, QuestionExtent::Screen);
    let context = context_lines(&card.pending.question, &model.cwd);
    details.extend(context.into_iter().map(|line| Line::from(Span::styled(format!("  {line}"), theme.faint))));
    let (foot, cursor) = foot(model, card, width);
    let room = height.saturating_sub(head.len() + foot.len()).max(1);
    let mut hides_rows = details.iter().any(|line| line.to_string().trim_start_matches([' ', '│']).starts_with('…'));
    let (details, hidden) = fit_details(&details, width, room);
    head.extend(details);
    if hidden > 0 {
        hides_rows = true;
        head.push(Line::from(Span::styled(format!("  … {hidden} more rows, v shows all"), theme.attention)));
    }
    let cursor = cursor.map(|(row, column)| (head.len() + row, column + 2));
    head.extend(foot);
    let bar = Span::styled(BAR, theme.attention);
    let rows = head.into_iter().map(|mut line| {
        line.spans.insert(0, bar.clone());
        line
    });
    CardRows { rows: rows.collect(), cursor, hides_rows }
}

/// Wraps the details and leaves out rows so that they fit; returns how many are left out.
///
/// What the daemon says of an approval is left out last: where it happens, its risk, and why it is asked.
fn fit_details(details: &[Line<'_>], width: u16, room: usize) -> (Vec<Line<'static>>, usize) {
    let mut rows: Vec<(bool, Line<'static>)> = Vec::new();
    for line in details {
        let is_quoted = line.to_string().starts_with(QUOTE);
        let hanging = if is_quoted { QUOTE } else { "    " };
        rows.extend(wrap_line(line, width, hanging).into_iter().map(|row| (is_quoted, row)));
    }
    let surplus = rows.len().saturating_sub(room);
    if surplus == 0 {
        return (rows.into_iter().map(|(_, row)| row).collect(), 0);
    }
    // One more row says how many are left out.
    let mut hidden = surplus + 1;
    let quoted = rows.iter().filter(|(is_quoted, _)| *is_quoted).count();
    let mut keep_quoted = quoted.saturating_sub(hidden);
    hidden = hidden.saturating_sub(quoted - keep_quoted);
    let keep_others = (rows.len() - quoted).saturating_sub(hidden);
    let (total, mut others) = (rows.len(), keep_others);
    rows.retain(|(is_quoted, _)| {
        let left = if *is_quoted { &mut keep_quoted } else { &mut others };
        let keeps = *left > 0;
        *left = left.saturating_sub(1);
        keeps
    });
    let shown: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
    let hidden = total - shown.len();
    (shown, hidden)
}

fn title(model: &Model, card: &Card) -> String {
    let question = &card.pending.question;
    let mut text = format!("? {}", escape_line(&question.title));
    // The votes are counted there.
    let pending = model.approvals.oldest().unwrap_or(&card.pending);
    for part in pending.status(model.now) {
        text += &format!(" · {part}");
    }
    let others = model.approvals.count().saturating_sub(1);
    if others > 0 {
        text += &format!(" · {others} more");
    }
    text
}

/// Returns the rows below the details: choices, the field that is being filled in, and the keys.
fn foot(model: &Model, card: &Card, width: u16) -> (Vec<Line<'static>>, Option<(usize, u16)>) {
    let theme = &model.theme;
    let mut rows = Vec::new();
    if let Some(problem) = &card.problem {
        rows.extend(wrap(&Line::from(Span::styled(format!("! {problem}"), theme.bad)), width));
    }
    if !card.is_entering() {
        let choices = card.choices();
        let first = card.selected.saturating_sub(SHOWN_CHOICES / 2).min(choices.len().saturating_sub(SHOWN_CHOICES));
        let count = |number: usize, place: &str| {
            let text = format!("  {number} more {place}");
            (number > 0).then(|| Line::from(Span::styled(text, theme.faint)))
        };
        rows.extend(count(first, "above"));
        for (at, choice) in choices.iter().enumerate().skip(first).take(SHOWN_CHOICES) {
            let mark = if at == card.selected { "›" } else { " " };
            let style = if at == card.selected { theme.strong } else { theme.context };
            let line = Line::from(Span::styled(format!("{mark} {} {}", at + 1, escape_line(choice)), style));
            rows.extend(wrap_line(&line, width, "    "));
        }
        rows.extend(count(choices.len().saturating_sub(first + SHOWN_CHOICES), "below"));
    }
    let is_focused = model.focus == Focus::Card;
    let (label, editor) = match &card.entry {
        Entry::Keys => {
            rows.extend(wrap(&Line::from(Span::styled(key_words(model, card), theme.faint)), width));
            return (rows, None);
        }
        Entry::Reason(editor) => ("reason: ", editor),
        Entry::Rule(editor) => ("rule: ", editor),
        Entry::Answer(editor) => ("answer: ", editor),
    };
    let (fields, (row, column)) = entry_rows(label, editor, theme, width);
    let cursor = is_focused.then_some((rows.len() + row, column));
    rows.extend(fields);
    rows.extend(wrap(&Line::from(Span::styled(entry_words(model, card), theme.faint)), width));
    (rows, cursor)
}

fn entry_rows(label: &str, editor: &Editor, theme: &Theme, width: u16) -> (Vec<Line<'static>>, (usize, u16)) {
    let indent = u16::try_from(label.len()).unwrap_or_default();
    let layout = editor.layout(width.saturating_sub(indent), label_none);
    let rows = layout.rows.iter().enumerate().map(|(at, (_, text))| {
        let before = if at == 0 { label.to_owned() } else { " ".repeat(label.len()) };
        Line::from(vec![Span::styled(before, theme.strong), Span::raw(text.clone())])
    });
    (rows.collect(), (layout.row, indent + u16::try_from(layout.column).unwrap_or_default()))
}

fn key_words(model: &Model, card: &Card) -> String {
    if model.read_only {
        return "read-only".to_owned();
    }
    if card.is_sent {
        return "the decision is being sent".to_owned();
    }
    if card.held.is_some() {
        return "…".to_owned();
    }
    if model.focus != Focus::Card {
        return "Tab answers".to_owned();
    }
    if !card.is_armed(model.now) {
        return "…".to_owned();
    }
    if card.pending.form.is_some() {
        let choose = if card.choices().is_empty() { "y yes, n no" } else { "Enter or a number chooses" };
        return format!("{choose}, d dismisses, v view all");
    }
    if !card.choices().is_empty() {
        return "Enter or a number chooses, v view all".to_owned();
    }
    let lasting = if card.pending.can_be_remembered() { ", r this run, s this session, w always here" } else { "" };
    format!("y once{lasting}, n deny, v view all")
}

fn entry_words(model: &Model, card: &Card) -> String {
    if model.focus != Focus::Card {
        return "Tab answers".to_owned();
    }
    match &card.entry {
        Entry::Keys => String::new(),
        Entry::Reason(editor) if editor.is_empty() => {
            "Enter denies without a reason and ends the run, Esc back".to_owned()
        }
        Entry::Reason(_) => "Enter denies; the model reads the reason. Esc back".to_owned(),
        Entry::Rule(_) => "Enter approves and stores this rule for the repository, Esc back".to_owned(),
        Entry::Answer(_) => {
            let prompt = card.pending.form.as_ref().map(|form| sanitize_line(&form.prompt())).unwrap_or_default();
            format!("{prompt} Enter answers, {DISMISS} dismisses")
        }
    }
}

fn wrap(line: &Line<'_>, width: u16) -> Vec<Line<'static>> {
    wrap_line(line, width, "  ")
}
