//! Applies the events of the session to the state of the view.

use super::activity::{Activity, RunState};
use super::card::Card;
use super::model::{Effect, Focus, Model, QueueEntry};
use crate::client::{Event, EventContent, SessionSnapshot};
use crate::display::format::{loss_message, outcome_name, participant_message, recovery_message, vote_message};
use crate::display::sanitize::{sanitize, sanitize_line};
use crate::display::style::Style;
use crate::display::usage::{elapsed, group};
use crate::kernel::event::{
    ContextEvent, EventKind, GateEvent, NoticeEvent, RunEvent, RunOutcome, RunReport, SessionEvent, ToolEvent,
    TurnUsage,
};

/// Applies one event.
pub(crate) fn apply(model: &mut Model, event: &Event) -> Vec<Effect> {
    let was_live = model.is_live();
    track_run(model, event);
    match &event.content {
        EventContent::Recorded(kind) => recorded(model, kind, event),
        EventContent::Gap { message, detail, .. } => {
            problem(model, Style::Attention, "warning", message, detail.as_deref(), event.at);
        }
        EventContent::Snapshot(snapshot) => draw_snapshot(model, snapshot, event.at),
        EventContent::Deleted => {}
        EventContent::Unreadable { name } => {
            let text = format!("warning: this version of push cannot read a {} event", sanitize_line(name));
            model.transcript.note(Style::Attention, &text, event.at);
        }
    }
    let opened = model.approvals.follow(event).is_some();
    model.last_seq = model.last_seq.max(event.seq);
    let mut effects = Vec::new();
    if opened && was_live && !model.is_watched {
        effects.push(Effect::Notify(format!("push {}: approval wanted", model.handle)));
    }
    if event.ends_run() {
        model.run = None;
        if was_live && !model.is_watched {
            effects.push(Effect::Notify(format!("push {}: the run has ended", model.handle)));
        }
    }
    if model.is_live() {
        refresh_card(model);
    }
    effects
}

/// Shows the card of the oldest pending approval. It takes the focus only if nothing is being written.
pub(crate) fn refresh_card(model: &mut Model) {
    let oldest = model.approvals.oldest();
    let is_same = match (&model.card, oldest) {
        (Some(card), Some(pending)) => card.pending.id() == pending.id(),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    if is_same {
        return;
    }
    let next = oldest.map(|pending| Card::new(pending.clone()));
    if let Some(before) = std::mem::replace(&mut model.card, next)
        && let Some(text) = before.unsent_text()
    {
        model.composer.restore(text);
        model.show_hint("the approval was decided elsewhere; what you wrote is kept");
    }
    let can_focus = model.card.is_some() && model.composer.is_empty() && !model.read_only;
    model.focus = match model.focus {
        Focus::Queue if !model.queue.is_empty() => Focus::Queue,
        Focus::Composer | Focus::Card | Focus::Queue if can_focus => Focus::Card,
        Focus::Composer | Focus::Card | Focus::Queue => Focus::Composer,
    };
}

fn track_run(model: &mut Model, event: &Event) {
    if let EventContent::Snapshot(snapshot) = &event.content {
        let same = model.run.take().filter(|run| Some(&run.id) == snapshot.active_run_id.as_ref());
        let started = |id: &String| RunState::new(id, event.at);
        model.run = same.or_else(|| snapshot.active_run_id.as_ref().map(started));
    }
}

fn recorded(model: &mut Model, kind: &EventKind, event: &Event) {
    match kind {
        EventKind::Run(run) => run_event(model, run, event),
        EventKind::Tool(tool) => tool_event(model, tool, event),
        EventKind::Gate(gate) => gate_event(model, gate, event),
        EventKind::Session(session) => session_event(model, session, event),
        EventKind::Participant(participant) => {
            model.transcript.note(Style::Faint, &participant_message(participant), event.at);
        }
        EventKind::Context(context) => context_event(model, context, event),
        EventKind::Notice(notice) => notice_event(model, notice, event),
    }
}

fn run_event(model: &mut Model, kind: &RunEvent, event: &Event) {
    let at = event.at;
    match kind {
        RunEvent::Started(message) => {
            model.queue.retain(|entry| entry.id != message.message.as_str());
            if event.run.is_none() || event.run != model.own_run {
                model.transcript.message(&message.text, at);
            }
            model.run = event.run.as_deref().map(|id| RunState::new(id, at));
        }
        RunEvent::Steered(steering) => {
            model.queue.retain(|entry| entry.id != steering.message.as_str());
            model.transcript.message(&steering.text, at);
        }
        RunEvent::MessageQueued(queued) => {
            let (id, text) = (queued.message.message.as_str(), &queued.message.text);
            if !model.queue.iter().any(|entry| entry.id == id) {
                model.queue.push(QueueEntry { id: id.to_owned(), text: text.clone() });
            }
        }
        RunEvent::MessageUnqueued { message, .. } => {
            model.queue.retain(|entry| entry.id != message.as_str());
        }
        RunEvent::ThinkingDelta { text } => {
            model.transcript.thinking(text, at);
            set(model, Activity::Thinking, at);
        }
        RunEvent::TextDelta { text } => {
            model.transcript.text(text, at);
            set(model, Activity::Writing, at);
        }
        RunEvent::TextDone { .. } => {
            model.transcript.close(at);
            set(model, Activity::Model, at);
        }
        RunEvent::TurnUsage(usage) => add_usage(model, usage),
        RunEvent::RetryStarted(retry) => {
            let message = sanitize_line(&retry.message);
            let (attempt, max_attempts, until) = (retry.attempt, retry.max_attempts, at + retry.pause_millis);
            set(model, Activity::Retry { attempt, max_attempts, until, message }, at);
        }
        RunEvent::RetryEnded { .. } => set(model, Activity::Model, at),
        RunEvent::Stopping { .. } => set(model, Activity::Stopping, at),
        RunEvent::Recovered { phase } => {
            model.transcript.note(Style::Attention, &recovery_message(*phase), at);
            if let Some(id) = &event.run {
                model.run.get_or_insert_with(|| RunState::new(id, at));
            }
        }
        RunEvent::Ended(report) => complete(model, report, at),
    }
}

fn tool_event(model: &mut Model, kind: &ToolEvent, event: &Event) {
    match kind {
        ToolEvent::Intended(call) => {
            model.transcript.call(call, event.at);
            set_tool(model, call.call.as_str(), event.at);
        }
        ToolEvent::Started { call, .. } => set_tool(model, call.as_str(), event.at),
        ToolEvent::Output { call, stream, text } => model.transcript.output(call.as_str(), *stream, text),
        ToolEvent::Settled(result) => {
            model.transcript.result(result, event.at);
            set(model, Activity::Model, event.at);
        }
    }
}

fn gate_event(model: &mut Model, kind: &GateEvent, event: &Event) {
    match kind {
        GateEvent::Opened(question) => {
            model.transcript.question(question, event.at);
            set(model, Activity::Approval, event.at);
        }
        GateEvent::Voted { decision, by, .. } => {
            model.transcript.note(Style::Attention, &vote_message(*decision, by), event.at);
        }
        GateEvent::Settled(decided) => {
            model.decided.insert(decided.gate.as_str().to_owned());
            model.transcript.decision(decided, event.at);
            set(model, Activity::Model, event.at);
        }
    }
}

fn session_event(model: &mut Model, kind: &SessionEvent, event: &Event) {
    match kind {
        SessionEvent::Renamed { name } => {
            model.transcript.note(Style::Faint, &format!("renamed to {}", sanitize_line(name)), event.at);
            model.name = Some(name.clone());
        }
        SessionEvent::Ended { .. } => {
            model.ended = true;
            model.transcript.note(Style::Faint, "the session was ended", event.at);
        }
        SessionEvent::Loaded { .. } => model.ended = false,
        SessionEvent::Adjusted { adjustment, .. } => {
            if adjustment.provider.is_some() || adjustment.model.is_some() {
                let parts = [adjustment.provider.as_deref(), adjustment.model.as_deref()];
                model.provider = parts.into_iter().flatten().collect::<Vec<_>>().join("/");
                let text = format!("the model is {}", sanitize_line(&model.provider));
                model.transcript.note(Style::Faint, &text, event.at);
            }
        }
        SessionEvent::Opened(_) | SessionEvent::VersionBumped { .. } => {}
    }
}

fn context_event(model: &mut Model, kind: &ContextEvent, event: &Event) {
    let at = event.at;
    match kind {
        ContextEvent::Branched { .. } => {
            model.transcript.note(Style::Faint, "the conversation continues from an earlier point", at);
        }
        ContextEvent::CompactionStarted { .. } => {
            set(model, Activity::Compaction, at);
            model.transcript.note(Style::Faint, "summarising the conversation", at);
        }
        ContextEvent::Compacted(compaction) => {
            set(model, Activity::Model, at);
            let tokens = group(compaction.tokens_before);
            let text = format!("the conversation was compacted to free context space; it had about {tokens} tokens");
            model.transcript.note(Style::Faint, &text, at);
        }
        ContextEvent::CompactionFailed { message, .. } => {
            set(model, Activity::Model, at);
            let why = sanitize_line(message.as_deref().unwrap_or_default());
            model.transcript.note(Style::Attention, &format!("the conversation was not compacted: {why}"), at);
        }
    }
}

fn notice_event(model: &mut Model, kind: &NoticeEvent, event: &Event) {
    match kind {
        NoticeEvent::Status { source, phase, detail } => {
            // Only provider status is shown, such as loading a model; other activity has events of its own.
            if source == "provider" {
                let detail = detail.as_deref().unwrap_or_default();
                let words = format!("{} ({})", sanitize_line(phase), sanitize_line(detail));
                set(model, Activity::Provider(words), event.at);
            }
        }
        NoticeEvent::Warned { message, detail, .. } => {
            problem(model, Style::Attention, "warning", message, detail.as_deref(), event.at);
        }
        NoticeEvent::Failed { message, detail, .. } => {
            model.last_error.clone_from(message);
            problem(model, Style::Bad, "error", message, detail.as_deref(), event.at);
        }
        NoticeEvent::EventsLost { after, cause } => {
            model.transcript.note(Style::Attention, &loss_message(*after, event.seq, *cause), event.at);
        }
        NoticeEvent::Unknown(_) => {}
    }
}

fn complete(model: &mut Model, report: &RunReport, at: u64) {
    let outcome = outcome_name(report.outcome);
    let (style, mark) = match report.outcome {
        RunOutcome::Success => (Style::Good, "✓ "),
        RunOutcome::Failed | RunOutcome::Cancelled | RunOutcome::Denied => (Style::Bad, "✗ "),
    };
    for check in report.checks.iter().filter(|check| !check.passed) {
        model.transcript.note(Style::Bad, &format!("check {}: failed", sanitize_line(&check.id)), at);
    }
    let mut text = format!("{mark}{outcome}");
    let (reason, summary) =
        (sanitize_line(report.reason.as_deref().unwrap_or_default()), sanitize_line(&report.summary));
    match summary.strip_prefix(outcome) {
        Some(rest) => text += rest,
        None => {
            if !reason.is_empty() {
                text += &format!(" ({reason})");
            }
            // The summary of a successful model's run is the start of its last message.
            let is_news = report.outcome != RunOutcome::Success || model.provider == "playbook";
            let is_repeated = summary == sanitize_line(&std::mem::take(&mut model.last_error));
            if !summary.is_empty() && is_news && !is_repeated {
                text += &format!(": {summary}");
            }
        }
    }
    if let Some(run) = &model.run {
        text += &format!(" · {}", elapsed(at.saturating_sub(run.started_at)));
        if !run.usage.is_empty() {
            text += &format!(" · {}", run.usage.words());
        }
    }
    model.transcript.note(style, &text, at);
}

fn add_usage(model: &mut Model, turn: &TurnUsage) {
    model.usage.add(&turn.usage);
    if let Some(run) = &mut model.run {
        run.usage.add(&turn.usage);
    }
    if !turn.model.is_empty() && !model.provider.contains(&turn.model) {
        let provider = model.provider.split('/').next().unwrap_or_default();
        model.provider = format!("{provider}/{}", turn.model);
    }
}

fn problem(model: &mut Model, style: Style, word: &str, message: &str, detail: Option<&str>, at: u64) {
    let mut text = format!("{word}: {}", sanitize_line(message));
    let detail = sanitize_line(detail.unwrap_or_default());
    if !detail.is_empty() {
        text += &format!(" ({detail})");
    }
    model.transcript.note(style, &text, at);
}

/// Shows the state of the session in place of missing events.
fn draw_snapshot(model: &mut Model, snapshot: &SessionSnapshot, at: u64) {
    let state = sanitize_line(snapshot.state.as_str());
    model.transcript.note(Style::Faint, &format!("earlier events are lost; the session is {state}"), at);
    let last = sanitize(&snapshot.last_assistant_text);
    if !last.is_empty() {
        model.transcript.text(&last, at);
        model.transcript.close(at);
    }
    if let Some(question) = &snapshot.pending_approval {
        model.transcript.question(question, at);
    }
    model.ended = snapshot.ended;
}

fn set(model: &mut Model, activity: Activity, at: u64) {
    // A command of the user has a run id of its own, and changes nothing about the run.
    if let Some(run) = &mut model.run {
        run.set(activity, at);
    }
}

fn set_tool(model: &mut Model, call: &str, at: u64) {
    let title = model.transcript.calls.get(call).filter(|log| !log.is_of_user).map(super::call_log::CallLog::title);
    if let Some(title) = title {
        set(model, Activity::Tool(title), at);
    }
}
