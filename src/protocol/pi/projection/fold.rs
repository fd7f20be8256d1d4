//! The fold: how each session event changes the projection.

use super::compaction_retry::{begin_retry, end_retry};
use super::event_sink::{EventSink, PendingDelta};
use super::open_message::BlockKind;
use super::ui::{self, Severity};
use super::{Projection, QueuedPreview};
use crate::kernel::event::{
    Adjustment, ContextEvent, Event, EventKind, GateDecision, GateEvent, GateQuestion, LossCause, NoticeEvent,
    QueuedMessage, RunEvent, SessionEvent, ToolEvent,
};
use crate::kernel::id::{MessageId, Seq};

impl Projection {
    /// Folds one event.
    pub(super) fn fold(&mut self, event: &Event, out: &mut EventSink) {
        if !self.extends_pending(event, out) {
            self.flush(out);
        }
        self.conversation.fold(event);
        // An event may end the open message and then add to the next one, or add to the open one and then end it.
        if !self.extends_open_message(event) {
            self.follow_open_message(discard_reason(event), out);
        }
        self.has_pending_calls = self.conversation.pending().next().is_some();
        match &event.kind {
            EventKind::Session(change) => self.fold_session_event(event, change, out),
            EventKind::Run(change) => self.fold_run_event(event, change, out),
            EventKind::Tool(change) => self.fold_tool_event(event, change, out),
            EventKind::Gate(change) => self.fold_gate_event(event, change, out),
            EventKind::Context(change) => self.fold_context_event(event, change, out),
            EventKind::Participant(_) => {}
            EventKind::Notice(notice) => self.fold_notice(event.seq, notice, out),
        }
        self.follow_open_message(discard_reason(event), out);
    }

    fn fold_session_event(&mut self, event: &Event, change: &SessionEvent, out: &mut EventSink) {
        match change {
            SessionEvent::Opened(opening) => self.setting_times.name = opening.name.is_some().then_some(event.at),
            SessionEvent::Renamed { name } => {
                self.setting_times.name = Some(event.at);
                ui::title(name, event.seq, out);
            }
            SessionEvent::Ended { by } => notify_ended(event.seq, by, out),
            SessionEvent::Adjusted { adjustment, by: _ } => self.adjust(event, adjustment, out),
            SessionEvent::VersionBumped { .. } | SessionEvent::Loaded { .. } => {}
        }
    }

    fn fold_run_event(&mut self, event: &Event, change: &RunEvent, out: &mut EventSink) {
        match change {
            RunEvent::Started(message) => self.begin_run(event, message, out),
            RunEvent::MessageQueued(queued) => self.queue(event.seq, queued, out),
            RunEvent::MessageUnqueued { message, by: _ } => self.unqueue(event.seq, message, out),
            RunEvent::Steered(steering) => self.steer(event, steering, out),
            RunEvent::ThinkingDelta { text } => self.append_delta(event, BlockKind::Thinking, text, out),
            RunEvent::TextDelta { text } => self.append_delta(event, BlockKind::Text, text, out),
            RunEvent::TextDone { message: _ } => self.end_text(out),
            RunEvent::TurnUsage(usage) => self.record_usage(event, usage, out),
            RunEvent::RetryStarted(retry) => begin_retry(retry, out),
            RunEvent::RetryEnded { succeeded, attempt, message } => {
                end_retry(*succeeded, *attempt, message.as_deref(), out);
            }
            RunEvent::Stopping { outcome: _, reason, by } => {
                ui::status("run", &format!("stopping: {reason} ({by})"), event.seq, out);
            }
            RunEvent::Recovered { phase: _ } => ui::notify(Severity::Info, RECOVERED, event.seq, out),
            RunEvent::Ended(_) => self.finish_run(event, out),
        }
    }

    fn fold_tool_event(&mut self, event: &Event, change: &ToolEvent, out: &mut EventSink) {
        match change {
            ToolEvent::Intended(intention) => self.request_call(event, intention, out),
            ToolEvent::Started { call, tool: _ } => self.start_call(call, out),
            ToolEvent::Output { call, stream: _, text } => self.append_output(call, text, out),
            ToolEvent::Settled(settlement) => self.settle_call(event, settlement, out),
        }
    }

    fn fold_gate_event(&mut self, event: &Event, change: &GateEvent, out: &mut EventSink) {
        match change {
            GateEvent::Opened(question) => self.open_question(event, question, out),
            GateEvent::Voted { gate, decision, by, participant: _ } => {
                ui::emit_vote(gate, *decision, by, event.seq, out)
            }
            GateEvent::Settled(decision) => self.settle_question(event.seq, decision, out),
        }
    }

    fn fold_context_event(&mut self, event: &Event, change: &ContextEvent, out: &mut EventSink) {
        match change {
            ContextEvent::Branched { branch: _, by: _ } => self.branch(event.seq),
            ContextEvent::CompactionStarted { reason, by: _ } => self.begin_compaction(event.seq, *reason, out),
            ContextEvent::Compacted(_) => self.compact(event, out),
            ContextEvent::CompactionFailed { failure, message, will_retry } => {
                self.end_compaction(event.seq, (*failure, message.as_deref(), *will_retry), out);
            }
        }
    }

    fn fold_notice(&mut self, seq: Seq, notice: &NoticeEvent, out: &mut EventSink) {
        match notice {
            NoticeEvent::Status { source: _, phase, detail } => {
                self.show_working(seq, phase, detail.as_deref(), out);
            }
            NoticeEvent::Warned { code: _, message, detail: _ } => ui::notify(Severity::Warning, message, seq, out),
            NoticeEvent::Failed { code: _, message, retryable: _, detail: _ } => {
                ui::notify(Severity::Error, message, seq, out);
            }
            NoticeEvent::EventsLost { after: _, cause } => {
                ui::notify(Severity::Warning, loss_message(*cause), seq, out);
            }
            NoticeEvent::Unknown(_) => {}
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
            (
                EventKind::Run(RunEvent::TextDelta { .. } | RunEvent::ThinkingDelta { .. }),
                Some(PendingDelta::Text(_)),
            ) => true,
            (EventKind::Tool(ToolEvent::Output { call, .. }), Some(PendingDelta::Output(held))) => call == held,
            (_, Some(PendingDelta::Text(_) | PendingDelta::Output(_)) | None) => false,
        }
    }

    fn adjust(&mut self, event: &Event, adjustment: &Adjustment, out: &mut EventSink) {
        let seq = event.seq;
        let Adjustment { provider, model, thinking, auto_compaction, auto_retry, workspace: _, unloaded: _ } =
            adjustment;
        if provider.is_some() || model.is_some() {
            self.setting_times.model = Some(event.at);
            let who = format!("{}/{}", self.conversation.provider(), self.conversation.model());
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

    const fn branch(&mut self, seq: Seq) {
        self.last_branch = Some(seq);
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
        ui::emit_question(question, event.at, out);
        self.questions.insert(question.gate.clone(), question.clone());
    }

    fn settle_question(&mut self, seq: Seq, decision: &GateDecision, out: &mut EventSink) {
        self.questions.remove(&decision.gate);
        ui::emit_decision(decision, seq, out);
    }
}

/// Returns why an event discards the open message.
fn discard_reason(event: &Event) -> &str {
    match &event.kind {
        EventKind::Notice(NoticeEvent::Warned { message, .. }) => message,
        EventKind::Notice(NoticeEvent::EventsLost { cause, .. }) => loss_message(*cause),
        EventKind::Context(ContextEvent::Branched { .. }) => "the conversation continues from an earlier point",
        EventKind::Session(_)
        | EventKind::Run(_)
        | EventKind::Tool(_)
        | EventKind::Gate(_)
        | EventKind::Participant(_)
        | EventKind::Context(_)
        | EventKind::Notice(_) => RECOVERED,
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
