//! Changes the state of the dashboard by one input. Pure: what has to be done is returned.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the keys are an enum of another crate, and most of them do nothing"
)]

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::model::{Dashboard, DashboardExit, Effect, Input, Watched};
use super::pane::{Answer, Handled};
use super::panes;
use crate::client::Notice;
use crate::display::sanitize::sanitize_line;
use crate::tui::client_task::CallError;
use crate::tui::model::{Connection, Millis};

/// How long leaving waits for the answers to changes.
const LEAVE_TIMEOUT: Millis = 5000;

/// Applies an input.
#[must_use = "dropping effects loses requests"]
pub(crate) fn update(dashboard: &mut Dashboard, input: Input, now: Millis) -> Vec<Effect> {
    dashboard.shared.now = now;
    match input {
        Input::Key(key) => {
            arrange(dashboard);
            press(dashboard, key);
        }
        Input::Paste(text) => {
            let (panes, shared) = (&mut dashboard.panes, &mut dashboard.shared);
            panes.get_mut(dashboard.active).into_iter().for_each(|pane| pane.paste(&text, shared));
        }
        Input::Focus(is_watched) => {
            dashboard.shared.is_watched = is_watched;
            dashboard.shared.refresh_soon();
        }
        Input::Resize(width, height) => dashboard.shared.size = (width, height),
        Input::Answer(answer) => answered(dashboard, &answer),
        Input::Repositories(found) => dashboard.shared.sessions.set_roots(found),
        Input::Preview(start) => {
            let Dashboard { panes, shared, active, .. } = dashboard;
            panes.get_mut(*active).into_iter().for_each(|pane| pane.start_preview(&start, shared));
        }
        Input::Event { event, is_replay } => {
            let Dashboard { panes, shared, .. } = dashboard;
            panes.iter_mut().for_each(|pane| pane.event(&event, shared));
            if !is_replay {
                shared.event(&event);
            }
        }
        Input::Unfollowed { session, error } => unfollowed(dashboard, &session, &error),
        Input::Notice(notice) => connection(dashboard, &notice),
        Input::Terminate => dashboard.shared.leave(DashboardExit::Quit),
        Input::Suspend => dashboard.shared.push(Effect::Suspend),
        Input::Tick => {}
    }
    dashboard.shared.tick();
    leave_after_answers(dashboard)
}

/// Adapts the panes to what has changed, before they are drawn; returns what has to be followed.
#[must_use = "dropping effects loses requests"]
pub(crate) fn prepare(dashboard: &mut Dashboard, now: Millis) -> Vec<Effect> {
    dashboard.shared.now = now;
    arrange(dashboard);
    let Dashboard { panes, shared, active, watched, .. } = dashboard;
    let wanted = Watched {
        preview: panes.get(*active).and_then(|pane| pane.previewed(shared)),
        active: shared.sessions.active(),
        attempt: shared.attempt,
    };
    let mut effects = Vec::new();
    if *watched != wanted {
        *watched = wanted.clone();
        effects.push(Effect::Watch(wanted));
    }
    let unknown = shared.sessions.take_unknown();
    if shared.is_local && !unknown.is_empty() {
        effects.push(Effect::FindRepositories(unknown));
    }
    effects
}

/// Continues with a new connection.
pub(crate) fn restart(dashboard: &mut Dashboard) {
    let unanswered = dashboard.shared.restart();
    (dashboard.watched, dashboard.leaving) = (Watched::default(), None);
    for number in unanswered {
        let error = CallError { code: None, message: "interrupted".to_owned() };
        answered(dashboard, &Answer { number, result: Err(error) });
    }
    // What was interrupted is nothing to do any more.
    drop(dashboard.shared.take_effects());
}

/// Returns when the dashboard has to be updated although nothing happens.
pub(crate) fn next_tick(dashboard: &Dashboard) -> Option<Millis> {
    let Dashboard { panes, shared, active, leaving, .. } = dashboard;
    let pane = panes.get(*active).and_then(|pane| pane.next_tick(shared));
    let leaving = leaving.as_ref().map(|(_, deadline)| *deadline);
    [pane, shared.next_tick(), leaving].into_iter().flatten().min()
}

fn arrange(dashboard: &mut Dashboard) {
    let Dashboard { panes, shared, .. } = dashboard;
    shared.sessions.arrange(&shared.approvals.sessions());
    panes.iter_mut().for_each(|pane| pane.refresh(shared));
}

fn answered(dashboard: &mut Dashboard, answer: &Answer) {
    let Dashboard { panes, shared, .. } = dashboard;
    shared.answer(answer);
    panes.iter_mut().for_each(|pane| pane.answer(answer, shared));
}

fn press(dashboard: &mut Dashboard, key: KeyEvent) {
    if key.kind == KeyEventKind::Release {
        return;
    }
    if key.modifiers == KeyModifiers::CONTROL {
        match key.code {
            KeyCode::Char('c' | 'd') => {
                let Dashboard { panes, shared, active, .. } = dashboard;
                if !panes.get_mut(*active).is_some_and(|pane| pane.discard_text(shared)) {
                    shared.leave(DashboardExit::Quit);
                }
                return;
            }
            KeyCode::Char('l') => {
                dashboard.shared.attempt += 1;
                return dashboard.shared.push(Effect::Redraw);
            }
            KeyCode::Char('z') => return dashboard.shared.push(Effect::Suspend),
            _ => {}
        }
    }
    if std::mem::take(&mut dashboard.shows_keys) {
        return;
    }
    let count = dashboard.panes.len();
    match key.code {
        KeyCode::Tab => return show(dashboard, (dashboard.active + 1) % count),
        KeyCode::BackTab => return show(dashboard, (dashboard.active + count - 1) % count),
        KeyCode::F(1) => {
            dashboard.shows_keys = true;
            return;
        }
        _ => {}
    }
    let Dashboard { panes, shared, active, .. } = dashboard;
    let Some(pane) = panes.get_mut(*active) else { return };
    if pane.key(key, shared) == Handled::Yes {
        return;
    }
    match key.code {
        KeyCode::Char('?') => dashboard.shows_keys = true,
        KeyCode::Char('q') => dashboard.shared.leave(DashboardExit::Quit),
        KeyCode::Esc => show(dashboard, panes::SESSIONS),
        KeyCode::Char(digit @ '1'..='9') => {
            let at = digit.to_digit(10).and_then(|digit| usize::try_from(digit).ok()).unwrap_or(1) - 1;
            if at < count {
                show(dashboard, at);
            }
        }
        _ => {}
    }
}

fn show(dashboard: &mut Dashboard, at: usize) {
    dashboard.active = at;
    let Dashboard { panes, shared, .. } = dashboard;
    panes.get_mut(at).into_iter().for_each(|pane| pane.show(shared));
}

fn unfollowed(dashboard: &mut Dashboard, session: &str, error: &CallError) {
    match error.code.as_deref() {
        Some("SESSION_NOT_FOUND" | "SESSION_DELETED") => {
            dashboard.shared.sessions.remove(session);
            dashboard.shared.approvals.remove_session(session);
        }
        _ => dashboard.shared.show_error(error),
    }
}

fn connection(dashboard: &mut Dashboard, notice: &Notice) {
    let shared = &mut dashboard.shared;
    match notice {
        Notice::Starting => shared.show_hint("starting pushd"),
        Notice::VersionMismatch { client, daemon } => {
            let daemon = sanitize_line(daemon);
            let text =
                format!("pushd is version {daemon}, this is {client}; `push daemon restart` starts version {client}");
            shared.show_hint(&text);
        }
        Notice::ConnectionLost => shared.connection = Connection::Reconnecting,
        Notice::DaemonStopped => shared.connection = Connection::Stopped,
        Notice::Reconnected => {
            shared.connection = Connection::Connected;
            shared.attempt += 1;
            shared.show_hint("reconnected to pushd");
            shared.refresh_soon();
        }
    }
}

/// Delays leaving until every change has an answer.
fn leave_after_answers(dashboard: &mut Dashboard) -> Vec<Effect> {
    let mut rest = Vec::new();
    for effect in dashboard.shared.take_effects() {
        match effect {
            Effect::Leave(exit) if dashboard.leaving.is_none() => {
                dashboard.leaving = Some((exit, dashboard.shared.now + LEAVE_TIMEOUT));
            }
            // Who asks twice does not wait any longer.
            effect => rest.push(effect),
        }
    }
    if let Some((exit, deadline)) = &dashboard.leaving
        && (!dashboard.shared.awaits_change() || dashboard.shared.now >= *deadline)
    {
        rest.push(Effect::Leave(exit.clone()));
    }
    rest
}
