//! Draws the approval card.

use ratatui::text::{Line, Span};

use super::card::{Card, Entry};
use super::editor::{Editor, label_none};
use super::model::{Focus, Millis, Model};
use super::painted::{self, QuestionExtent};
use super::text::theme::Theme;
use super::text::wrap::wrap_line;
use crate::display::approval::PendingApproval;
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
/// The same before the rest of a line that is too long for one row, so that it does not look like a line of its own.
const CONTINUED_QUOTE: &str = "  ┆ ";
/// How many choices are shown at once.
const SHOWN_CHOICES: usize = 9;

/// What a card is drawn with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CardContext<'a> {
    /// The styles.
    pub(crate) theme: &'a Theme,
    /// The columns that it may take.
    pub(crate) width: u16,
    /// The present time.
    pub(crate) now: Millis,
    /// The directory of the session.
    pub(crate) cwd: &'a str,
    /// The approval with the votes that were counted.
    pub(crate) counted: &'a PendingApproval,
    /// How many other approvals are pending.
    pub(crate) others: usize,
    /// Whether it receives keys.
    pub(crate) is_focused: bool,
    /// Whether nothing can be decided.
    pub(crate) read_only: bool,
}

impl<'a> CardContext<'a> {
    /// Returns the context of the card in the inline view.
    pub(crate) fn of(model: &'a Model, card: &'a Card) -> Self {
        Self {
            theme: &model.theme,
            width: model.size.0,
            now: model.now,
            cwd: &model.cwd,
            counted: model.approvals.oldest().unwrap_or(&card.pending),
            others: model.approvals.count().saturating_sub(1),
            is_focused: model.focus == Focus::Card,
            read_only: model.read_only,
        }
    }
}

/// Draws the card in at most `height` rows.
pub(crate) fn draw(context: &CardContext<'_>, card: &Card, height: usize) -> CardRows {
    let theme = context.theme;
    let width = context.width.saturating_sub(4).max(8);
    let mut head = wrap(&Line::from(Span::styled(title(context, card), theme.attention)), width);
    let mut details = painted::question(&card.pending.question, theme, QuestionExtent::Card);
    let place = context_lines(&card.pending.question, context.cwd);
    details.extend(place.into_iter().map(|line| Line::from(Span::styled(format!("  {line}"), theme.faint))));
    let (foot, cursor) = foot(context, card, width);
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

/// Returns what begins the further rows of a wrapped line of an approval.
pub(crate) fn continuation(line: &Line<'_>) -> &'static str {
    if line.to_string().starts_with(QUOTE) { CONTINUED_QUOTE } else { "    " }
}

/// Wraps the details and leaves out rows so that they fit; returns how many are left out.
///
/// What the daemon says of an approval is left out last: where it happens, its risk, and why it is asked.
fn fit_details(details: &[Line<'_>], width: u16, room: usize) -> (Vec<Line<'static>>, usize) {
    let mut rows: Vec<(bool, Line<'static>)> = Vec::new();
    for line in details {
        let is_quoted = line.to_string().starts_with(QUOTE);
        rows.extend(wrap_line(line, width, continuation(line)).into_iter().map(|row| (is_quoted, row)));
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

fn title(context: &CardContext<'_>, card: &Card) -> String {
    let question = &card.pending.question;
    let mut text = format!("? {}", escape_line(&question.title));
    for part in context.counted.status(context.now) {
        text += &format!(" · {part}");
    }
    if context.others > 0 {
        text += &format!(" · {} more", context.others);
    }
    text
}

/// Returns the rows below the details: choices, the field that is being filled in, and the keys.
fn foot(context: &CardContext<'_>, card: &Card, width: u16) -> (Vec<Line<'static>>, Option<(usize, u16)>) {
    let theme = context.theme;
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
    let (label, editor) = match &card.entry {
        Entry::Keys => {
            rows.extend(wrap(&Line::from(Span::styled(key_words(context, card), theme.faint)), width));
            return (rows, None);
        }
        Entry::Reason(editor) => ("reason: ", editor),
        Entry::Rule(editor) => ("rule: ", editor),
        Entry::Answer(editor) => ("answer: ", editor),
    };
    let (fields, (row, column)) = entry_rows(label, editor, theme, width);
    let cursor = context.is_focused.then_some((rows.len() + row, column));
    rows.extend(fields);
    rows.extend(wrap(&Line::from(Span::styled(entry_words(context, card), theme.faint)), width));
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

fn key_words(context: &CardContext<'_>, card: &Card) -> String {
    if context.read_only {
        return "read-only".to_owned();
    }
    if card.is_sent {
        return "the decision is being sent".to_owned();
    }
    if card.held.is_some() {
        return "…".to_owned();
    }
    if !context.is_focused {
        return "Tab answers".to_owned();
    }
    if !card.is_armed(context.now) {
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

fn entry_words(context: &CardContext<'_>, card: &Card) -> String {
    if !context.is_focused {
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
