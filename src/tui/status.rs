//! The row that says what is being waited for, and the status row.

use ratatui::text::{Line, Span};

use super::model::{Connection, Model};
use super::text::wrap::display_width;
use crate::display::sanitize::sanitize_line;
use crate::display::usage::elapsed;

const SPINNER: [char; 8] = ['⣾', '⣽', '⣻', '⢿', '⡿', '⣟', '⣯', '⣷'];
/// The last part of the status row.
const KEYS_HINT: &str = " · ? keys";
/// How long a picture of the spinner is shown.
const SPINNER_MILLIS: u64 = 125;

/// Returns the row that says what the run waits for.
pub(crate) fn activity_row(model: &Model) -> Option<Line<'static>> {
    let run = model.run.as_ref()?;
    let at = usize::try_from(model.now / SPINNER_MILLIS).unwrap_or_default() % SPINNER.len();
    let is_moving = model.card.is_none() && model.connection == Connection::Connected;
    let mark = if is_moving { SPINNER.get(at).copied().unwrap_or('*') } else { '*' };
    let time = elapsed(model.now.saturating_sub(run.started_at));
    let words = run.words(model.now);
    let hint = if model.card.is_some() || model.read_only { "" } else { " · Ctrl-C cancels" };
    Some(Line::from(vec![
        Span::styled(format!("{mark} "), model.theme.attention),
        Span::raw(words),
        Span::styled(format!(" · {time}{hint}"), model.theme.faint),
    ]))
}

/// Returns the status row: a message for the user, or the state of the session.
pub(crate) fn status_row(model: &Model) -> Line<'static> {
    if let Some((hint, _)) = &model.hint {
        return Line::from(Span::styled(hint.clone(), model.theme.attention));
    }
    if model.leaving.is_some() {
        return Line::from(Span::styled("leaving: waiting for pushd to confirm what was sent", model.theme.attention));
    }
    let mut spans = warnings(model);
    let name = model.name.as_deref().map(sanitize_line).filter(|name| !name.is_empty());
    let mut parts = vec![name.unwrap_or_else(|| model.handle.clone()), sanitize_line(&model.provider)];
    if model.ended {
        parts.push("ended".to_owned());
    }
    if model.read_only {
        parts.push("read-only".to_owned());
    }
    if !model.usage.is_empty() {
        parts.push(model.usage.words());
    }
    spans.extend(parts.into_iter().map(|part| Span::styled(part, model.theme.faint)));
    let width = usize::from(model.size.0.saturating_sub(1));
    // How to learn the keys is said in every width; other parts are left out for it.
    let mut line = join(spans, width.saturating_sub(display_width(KEYS_HINT)), model);
    line.spans.push(Span::styled(KEYS_HINT, model.theme.faint));
    line
}

/// Returns what is wrong with the connection, and whether another session waits.
pub(crate) fn warnings(model: &Model) -> Vec<Span<'static>> {
    let mut spans = Vec::new();
    match model.connection {
        Connection::Connected => {}
        Connection::Reconnecting => spans.push(Span::styled("! reconnecting to pushd", model.theme.bad)),
        Connection::Stopped => {
            spans.push(Span::styled("! pushd was stopped; `push daemon start` starts it", model.theme.bad));
        }
    }
    match model.other_approvals.len() {
        0 => {}
        1 => spans.push(Span::styled("! 1 approval in another session: /approvals", model.theme.attention)),
        count => {
            let text = format!("! {count} approvals in other sessions: /approvals");
            spans.push(Span::styled(text, model.theme.attention));
        }
    }
    spans
}

/// Joins as many parts as fit.
pub(crate) fn join(spans: Vec<Span<'static>>, width: usize, model: &Model) -> Line<'static> {
    let separator = Span::styled(" · ", model.theme.faint);
    let mut line: Vec<Span<'static>> = Vec::new();
    let mut used = 0;
    for span in spans {
        let columns = display_width(&span.content) + if line.is_empty() { 0 } else { 3 };
        if used + columns > width && !line.is_empty() {
            break;
        }
        if !line.is_empty() {
            line.push(separator.clone());
        }
        used += columns;
        line.push(span);
    }
    Line::from(line)
}
