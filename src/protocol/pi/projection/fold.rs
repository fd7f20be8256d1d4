//! The fold: how each session event changes the projection.

use super::compaction_retry::{begin_retry, end_retry};
use super::event_sink::{EventSink, PendingDelta};
use super::open_message::BlockKind;
use super::ui::{self, Severity};
use super::{Projection, QueuedPreview};
use crate::kernel::event::{
    Adjustment, Branch, Event, EventKind, GateDecision, GateQuestion, LossCause, Opening, QueuedMessage,
    is_turn_interrupted,
};
use crate::kernel::id::{MessageId, Seq};

impl Projection {
    /// Folds one event.
    pub(super) fn fold(&mut self, event: &Event, out: &mut EventSink) {
        if self.last_seq == Seq::ZERO {
            self.conversation.set_base(event.seq);
        }
        self.last_seq = event.seq;
        if !self.extends_pending(event, out) {
            self.flush(out);
        }
        match &event.kind {
            EventKind::SessionOpened(opening) => self.begin_session(event, opening),
            EventKind::SessionRenamed { name } => {
                self.setting_times.name = Some(event.at);
                ui::title(name, event.seq, out);
            }
            EventKind::SessionEnded { by } => notify_ended(event.seq, by, out),
            EventKind::VersionBumped { change: _, by: _ } | EventKind::Loaded { by: _ } | EventKind::Unknown(_) => {}
            EventKind::Adjusted { adjustment, by: _ } => self.adjust(event, adjustment, out),
            EventKind::Branched { branch, by: _ } => self.branch(event.seq, *branch),
            EventKind::RunStarted(message) => self.begin_run(event, message, out),
            EventKind::MessageQueued(queued) => self.queue(event.seq, queued, out),
            EventKind::MessageUnqueued { message, by: _ } => self.unqueue(event.seq, message, out),
            EventKind::Steered(steering) => self.steer(event, steering, out),
            EventKind::Status { source: _, phase, detail } => {
                self.show_working(event.seq, phase, detail.as_deref(), out);
            }
            EventKind::ThinkingDelta { text } => self.append_delta(event, BlockKind::Thinking, text, out),
            EventKind::TextDelta { text } => self.append_delta(event, BlockKind::Text, text, out),
            EventKind::TextDone { message: _ } => self.end_text(out),
            EventKind::TurnUsage(usage) => self.record_usage(event, usage, out),
            EventKind::CompactionStarted { reason, by: _ } => self.begin_compaction(event.seq, *reason, out),
            EventKind::Compacted(compaction) => self.compact(event, compaction, out),
            EventKind::CompactionFailed { failure: ending, message, will_retry: again } => {
                self.end_compaction(event.seq, (*ending, message.as_deref(), *again), out);
            }
            EventKind::RetryStarted(retry) => begin_retry(retry, out),
            EventKind::RetryEnded { succeeded, attempt, message } => {
                end_retry(*succeeded, *attempt, message.as_deref(), out);
            }
            EventKind::CallIntended(intention) => self.request_call(event, intention, out),
            EventKind::CallStarted { call, tool: _ } => self.start_call(call, out),
            EventKind::CallOutput { call, stream: _, text } => self.append_output(call, text, out),
            EventKind::CallSettled(settlement) => self.settle_call(event, settlement, out),
            EventKind::GateOpened(question) => self.open_question(event, question, out),
            EventKind::GateVoted { gate, decision, by } => ui::emit_vote(gate, *decision, by, event.seq, out),
            EventKind::GateSettled(decision) => self.settle_question(event.seq, decision, out),
            EventKind::Warned { code, message, detail: _ } => self.warn(event.seq, code, message, out),
            EventKind::Failed { code: _, message, retryable: _, detail: _ } => {
                ui::notify(Severity::Error, message, event.seq, out);
            }
            EventKind::RunStopping { outcome: _, reason, by } => {
                ui::status("run", &format!("stopping: {reason} ({by})"), event.seq, out);
            }
            EventKind::RunRecovered { phase: _ } => self.recover(event.seq, out),
            EventKind::RunEnded(report) => self.end_run(event, report, out),
            EventKind::EventsLost { after: _, cause } => self.report_loss(event.seq, *cause, out),
        }
    }

    /// Emits the pending delta before another event.
    pub(super) fn flush(&mut self, out: &mut EventSink) {
        match out.pending.take() {
            None => {}
            Some(PendingDelta::Text(delta)) => {
                if let Some(open) = &self.open_message {
                    open.emit_delta(&delta, out);
                }
            }
            Some(PendingDelta::Output(call)) => {
                if let Some(state) = self.calls.get(&call) {
                    state.emit_output(out);
                }
            }
        }
    }

    /// Returns whether an event extends the pending delta.
    fn extends_pending(&self, event: &Event, out: &EventSink) -> bool {
        match (&event.kind, &out.pending) {
            (EventKind::TextDelta { .. } | EventKind::ThinkingDelta { .. }, Some(PendingDelta::Text(_))) => true,
            (EventKind::CallOutput { call, .. }, Some(PendingDelta::Output(held))) => call == held,
            (_, Some(PendingDelta::Text(_) | PendingDelta::Output(_)) | None) => false,
        }
    }

    fn begin_session(&mut self, event: &Event, opening: &Opening) {
        self.setting_times.name = opening.name.is_some().then_some(event.at);
        self.provider.clone_from(&opening.provider);
        self.model = opening.model.clone().unwrap_or_default();
    }

    fn adjust(&mut self, event: &Event, adjustment: &Adjustment, out: &mut EventSink) {
        let seq = event.seq;
        let Adjustment { provider, model, thinking, auto_compaction, auto_retry, workspace: _, unloaded: _ } =
            adjustment;
        if let Some(provider) = provider {
            self.provider.clone_from(provider);
            self.model.clear();
        }
        if let Some(model) = model {
            self.model.clone_from(model);
        }
        if provider.is_some() || model.is_some() {
            self.setting_times.model = Some(event.at);
            let who = format!("{}/{}", self.provider, self.model);
            ui::status("model", who.trim_end_matches('/'), seq, out);
        }
        if let Some(thinking) = thinking {
            self.setting_times.thinking = Some(event.at);
            ui::status("thinking", thinking, seq, out);
        }
        for (name, switch) in [("auto_compaction", auto_compaction), ("auto_retry", auto_retry)] {
            if let Some(on) = switch {
                ui::status(name, if *on { "on" } else { "off" }, seq, out);
            }
        }
    }

    fn branch(&mut self, seq: Seq, branch: Branch) {
        self.last_branch = Some(seq);
        self.conversation.branch(branch.until, branch.from);
        self.context_tokens = None;
    }

    fn queue(&mut self, seq: Seq, queued: &QueuedMessage, out: &mut EventSink) {
        let line = queued.message.text.lines().next().unwrap_or_default();
        self.queue.push(QueuedPreview {
            message: queued.message.message.clone(),
            run: queued.run.clone(),
            preview: line.chars().take(QUEUED_CHARS).collect(),
        });
        self.show_queue(seq, out);
    }

    fn unqueue(&mut self, seq: Seq, message: &MessageId, out: &mut EventSink) {
        self.queue.retain(|queued| queued.message != *message);
        self.show_queue(seq, out);
    }

    /// Displays the queue.
    pub(super) fn show_queue(&self, seq: Seq, out: &mut EventSink) {
        let lines: Vec<&str> = self.queue.iter().map(|queued| queued.preview.as_str()).collect();
        ui::widget("queue", &lines, seq, out);
    }

    fn show_working(&mut self, seq: Seq, phase: &str, detail: Option<&str>, out: &mut EventSink) {
        self.working_message_set = true;
        match detail {
            Some(detail) => ui::working_message(&format!("{phase}: {detail}"), seq, out),
            None => ui::working_message(phase, seq, out),
        }
    }

    fn open_question(&mut self, event: &Event, question: &GateQuestion, out: &mut EventSink) {
        self.close(out);
        ui::emit_question(question, event.at, out);
        self.questions.insert(question.gate.clone(), question.clone());
    }

    fn settle_question(&mut self, seq: Seq, decision: &GateDecision, out: &mut EventSink) {
        self.questions.remove(&decision.gate);
        ui::emit_decision(decision, seq, out);
    }

    fn warn(&mut self, seq: Seq, code: &str, message: &str, out: &mut EventSink) {
        if is_turn_interrupted(code) {
            self.discard_open_message(message, out);
        }
        ui::notify(Severity::Warning, message, seq, out);
    }

    fn recover(&mut self, seq: Seq, out: &mut EventSink) {
        self.discard_open_message(RECOVERED, out);
        ui::notify(Severity::Info, RECOVERED, seq, out);
    }

    fn report_loss(&mut self, seq: Seq, cause: LossCause, out: &mut EventSink) {
        let what = loss_message(cause);
        self.discard_open_message(what, out);
        ui::notify(Severity::Warning, what, seq, out);
    }
}

fn notify_ended(seq: Seq, by: &str, out: &mut EventSink) {
    ui::notify(Severity::Info, &format!("the session was ended by {by}"), seq, out);
}

const fn loss_message(cause: LossCause) -> &'static str {
    match cause {
        LossCause::Damage => "part of this session was damaged and is lost",
        LossCause::PowerLoss => "part of this session was lost when the machine stopped",
        LossCause::Retention => "the older part of this session was removed",
    }
}

const RECOVERED: &str = "the daemon restarted and resumes the run";
/// Characters of a queued message that the queue widget shows.
const QUEUED_CHARS: usize = 200;
