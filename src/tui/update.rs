//! Changes the state of the view by one input. Pure: what has to be done is returned.

use std::collections::BTreeSet;

use super::card::ARMING_MILLIS;
use super::client_task::{Call, CallError, CallReply};
use super::commands;
use super::keys;
use super::model::{Connection, Effect, Focus, FollowUp, Input, LeaveReason, Millis, Model, PendingCall, QueueEntry};
use super::scrolled;
use super::session_events::{self, refresh_card};
use crate::client::Notice;
use crate::display::approval::is_already_decided;
use crate::display::sanitize::sanitize_line;
use crate::display::style::Style;

/// How often the view is drawn while something is animated.
const ANIMATION_INTERVAL: Millis = 125;
/// How long leaving waits for requests without a reply.
const LEAVE_TIMEOUT: Millis = 5000;

/// Applies an input.
#[must_use = "dropping effects loses requests"]
pub(crate) fn update(model: &mut Model, input: Input, now: Millis) -> Vec<Effect> {
    model.now = now;
    let effects = match input {
        Input::Key(key) => keys::press(model, key),
        Input::Paste(text) => paste(model, &text),
        Input::Focus(is_watched) => {
            model.is_watched = is_watched;
            Vec::new()
        }
        Input::Resize(width, height) => {
            model.size = (width, height);
            model.resized_at = model.now;
            model.typed_at = 0;
            model.transcript.set_width(width);
            Vec::new()
        }
        Input::Event(event) => session_events::apply(model, &event),
        Input::Notice(notice) => {
            connection(model, &notice);
            Vec::new()
        }
        Input::Approvals(approvals) => list_approvals(model, &approvals),
        Input::Reply { number, reply } => answer(model, number, reply),
        Input::Files(files) => {
            model.files = Some(files);
            keys::refresh_completion(model)
        }
        Input::Interrupt => keys::interrupt(model),
        Input::Detach => vec![Effect::Leave(LeaveReason::Signalled)],
        Input::Suspend => vec![Effect::Suspend],
        Input::Tick => tick(model),
    };
    scrolled::search_new_rows(model);
    let is_gone = match model.focus {
        Focus::Composer => false,
        Focus::Card => model.card.is_none(),
        Focus::Queue => model.queue.is_empty(),
    };
    if is_gone {
        model.focus = Focus::Composer;
    }
    leave_after_replies(model, effects)
}

/// Returns when the view has to be updated although nothing happens; `None` while nothing on it changes with time.
pub(crate) fn next_tick(model: &Model) -> Option<Millis> {
    let now = model.now;
    let next_second = now - now % 1000 + 1000;
    let animation = match (&model.run, &model.card, model.connection) {
        (Some(_), None, _) | (_, _, Connection::Reconnecting) => Some(now + ANIMATION_INTERVAL),
        (Some(_), Some(_), _) => Some(next_second),
        (None, _, Connection::Connected | Connection::Stopped) => None,
    };
    let card = model.card.as_ref().filter(|_| model.scrolled.is_none());
    let arming = card.filter(|card| !card.is_armed(now) && !card.is_sent);
    let expiry = model.card.as_ref().filter(|card| card.pending.question.expires.0 > 0).map(|_| next_second);
    let calls = model.transcript.calls.values().next().map(|_| next_second);
    let hint = model.hint.as_ref().map(|(_, until)| *until);
    let leaving = model.leaving.map(|(_, deadline)| deadline);
    let held = model.card.as_ref().and_then(|card| card.held.as_ref()).map(|held| held.due);
    let arming = arming.map(|_| now + ARMING_MILLIS / 6);
    let typing = model.is_typing().then(|| model.typing_end());
    let resize = model.is_resizing().then(|| model.resize_end());
    [animation, arming, held, expiry, calls, hint, leaving, typing, resize].into_iter().flatten().min()
}

fn paste(model: &mut Model, text: &str) -> Vec<Effect> {
    if scrolled::paste(model, text) || model.read_only {
        return Vec::new();
    }
    model.scrolled = None;
    if model.focus == Focus::Card && model.card.as_mut().is_some_and(|card| card.paste(text)) {
        return Vec::new();
    }
    model.focus = Focus::Composer;
    model.composer.paste(text);
    keys::refresh_completion(model)
}

fn tick(model: &mut Model) -> Vec<Effect> {
    if let Some(effects) = keys::release_held_key(model) {
        return effects;
    }
    if model.hint.as_ref().is_some_and(|(_, until)| *until <= model.now) {
        model.hint = None;
    }
    Vec::new()
}

/// Delays leaving until every request that carries something of the user has a reply.
fn leave_after_replies(model: &mut Model, effects: Vec<Effect>) -> Vec<Effect> {
    let mut rest = Vec::new();
    for effect in effects {
        if let Effect::Leave(departure) = effect
            && model.leaving.is_none()
        {
            model.leaving = Some((departure, model.now + LEAVE_TIMEOUT));
        } else {
            // Who asks twice does not wait any longer.
            rest.push(effect);
        }
    }
    if let Some((departure, deadline)) = model.leaving {
        let waits = model.pending.values().any(|pending| pending.draft.is_some() || is_decision(&pending.call));
        if !waits || model.now >= deadline {
            rest.push(Effect::Leave(departure));
        }
    }
    rest
}

const fn is_decision(call: &Call) -> bool {
    matches!(call, Call::Decide { .. } | Call::Cancel | Call::Unqueue { .. })
}

fn answer(model: &mut Model, number: u64, reply: Result<CallReply, CallError>) -> Vec<Effect> {
    let Some(pending) = model.pending.remove(&number) else { return Vec::new() };
    match reply {
        Ok(reply) => succeeded(model, pending, reply),
        Err(error) => {
            failed(model, pending, &error);
            Vec::new()
        }
    }
}

fn succeeded(model: &mut Model, pending: PendingCall, reply: CallReply) -> Vec<Effect> {
    match pending.next {
        FollowUp::None => {}
        FollowUp::Print => commands::print_reply(model, &reply),
        FollowUp::Edit(text) => model.composer.restore(&text),
        FollowUp::Steer(text) => {
            let id = (model.new_id)();
            return vec![model.call(Call::Steer { id, text: text.clone() }, Some(text))];
        }
    }
    match reply {
        CallReply::Approvals(approvals) => return list_approvals(model, &approvals),
        CallReply::Queue(messages) => {
            let entry =
                |message: crate::client::QueuedMessage| QueueEntry { id: message.message_id, text: message.text };
            model.queue = messages.into_iter().map(entry).collect();
        }
        CallReply::Sessions(items) => {
            if let Some(palette) = &mut model.palette {
                palette.set_sessions(&items, &model.session);
            }
        }
        CallReply::Done | CallReply::Rules(_) | CallReply::Snapshot(_) => {}
    }
    Vec::new()
}

/// Counts approvals of other sessions and announces new ones, and adds those of this session that opened before the shown
/// events.
fn list_approvals(model: &mut Model, approvals: &[crate::client::ListedApproval]) -> Vec<Effect> {
    let (own, others): (Vec<_>, Vec<_>) = approvals.iter().partition(|approval| approval.session == model.session);
    let others: BTreeSet<String> = others.iter().map(|approval| approval.question.gate.to_string()).collect();
    let is_new = !others.is_subset(&std::mem::replace(&mut model.other_approvals, others.clone()));
    for approval in own {
        let id = approval.question.gate.as_str();
        // Events may have been faster than the list.
        if model.approvals.contains(id) || model.decided.contains(id) {
            continue;
        }
        model.transcript.question(&approval.question, model.now);
        model.approvals.add(&approval.session, approval.run.as_deref(), &approval.question);
    }
    if model.is_live() {
        refresh_card(model);
    }
    if is_new && !model.is_watched {
        return vec![Effect::Notify("push: approval wanted in another session".to_owned())];
    }
    Vec::new()
}

fn failed(model: &mut Model, pending: PendingCall, error: &CallError) {
    let message = sanitize_line(&error.message);
    if let Some(draft) = &pending.draft {
        model.composer.restore(draft);
    }
    match pending.call {
        Call::Decide { .. } if is_already_decided(error.code.as_deref()) => {
            model.show_hint("the approval is already decided");
        }
        Call::Decide { .. } => {
            if let Some(card) = &mut model.card {
                card.is_sent = false;
                card.problem = Some(message);
            }
        }
        Call::Unqueue { .. } => model.show_hint("the message is no longer in the queue"),
        Call::Cancel => model.show_hint(message),
        Call::ListApprovals => {}
        Call::Queue { .. }
        | Call::Steer { .. }
        | Call::RunCommand { .. }
        | Call::StopCommands
        | Call::ListQueue
        | Call::ListRules
        | Call::ListSessions
        | Call::Snapshot
        | Call::Compact { .. }
        | Call::Rename { .. }
        | Call::End => model.transcript.note(Style::Bad, &format!("error: {message}"), model.now),
    }
}

fn connection(model: &mut Model, notice: &Notice) {
    let now = model.now;
    match notice {
        Notice::Starting => model.show_hint("starting pushd"),
        Notice::VersionMismatch { client, daemon } => {
            let daemon = sanitize_line(daemon);
            let text =
                format!("pushd is version {daemon}, this is {client}; `push daemon restart` starts version {client}");
            model.transcript.aside(Style::Attention, &text, now);
        }
        Notice::ConnectionLost => model.connection = Connection::Reconnecting,
        Notice::DaemonStopped => model.connection = Connection::Stopped,
        Notice::Reconnected => {
            model.connection = Connection::Connected;
            let text = format!("reconnected to pushd; continuing after event {}", model.last_seq);
            model.transcript.aside(Style::Faint, &text, now);
        }
    }
}
