//! The fold: how each session event changes the projection.

use super::open::Block;
use super::out::{Held, Out};
use super::trouble::{begin_retry, end_retry};
use super::ui::{self, Loudness};
use super::{Queued, Story};
use crate::kernel::event::{
    Adjustment, Branch, Event, EventKind, LossCause, Opening, Question, QueuedMessage, TURN_CUT, Verdict,
};
use crate::kernel::id::{MessageId, Seq};

impl Story {
    /// Folds one event.
    pub(super) fn fold(&mut self, event: &Event, out: &mut Out) {
        if self.last_seq == Seq::ZERO {
            self.conversation.begin(event.seq);
        }
        self.last_seq = event.seq;
        if !self.goes_on(event, out) {
            self.release(out);
        }
        match &event.kind {
            EventKind::SessionOpened(opening) => self.begin_session(event, opening),
            EventKind::SessionRenamed { name } => {
                self.changed.name = Some(event.at);
                ui::title(name, event.seq, out);
            }
            EventKind::SessionEnded { by } => ended(event.seq, by, out),
            EventKind::Touched { what: _, by: _ } | EventKind::Loaded { by: _ } => {}
            EventKind::Adjusted { adjustment, by: _ } => self.adjust(event, adjustment, out),
            EventKind::Branched { branch, by: _ } => self.branch(event.seq, *branch),
            EventKind::RunStarted(message) => self.begin_run(event, message, out),
            EventKind::MessageQueued(queued) => self.queue(event.seq, queued, out),
            EventKind::MessageUnqueued { message, by: _ } => self.unqueue(event.seq, message, out),
            EventKind::Steered(steering) => self.steer(event, steering, out),
            EventKind::Status { source: _, phase, detail } => {
                self.work(event.seq, phase, detail.as_deref(), out);
            }
            EventKind::Thought { text } => self.piece(event, Block::Thinking, text, out),
            EventKind::Said { text } => self.piece(event, Block::Text, text, out),
            EventKind::SayingDone { message: _ } => self.end_text(out),
            EventKind::TurnTaken(taken) => self.take(event, taken, out),
            EventKind::CompactionBegan { reason, by: _ } => self.begin_compaction(event.seq, *reason, out),
            EventKind::Compacted(compaction) => self.compact(event, compaction, out),
            EventKind::CompactionOver { ending, message, again } => {
                self.end_compaction(event.seq, (*ending, message.as_deref(), *again), out);
            }
            EventKind::RetryBegan(retry) => begin_retry(retry, out),
            EventKind::RetryOver { succeeded, attempt, message } => {
                end_retry(*succeeded, *attempt, message.as_deref(), out);
            }
            EventKind::CallIntended(intention) => self.intend(event, intention, out),
            EventKind::CallStarted { call, tool: _ } => self.start_call(call, out),
            EventKind::CallOutput { call, stream: _, text } => self.print(call, text, out),
            EventKind::CallSettled(settlement) => self.settle(event, settlement, out),
            EventKind::GateOpened(question) => self.ask(event, question, out),
            EventKind::GateVoted { gate, decision, by } => ui::voted(gate, *decision, by, event.seq, out),
            EventKind::GateSettled(verdict) => self.answer(event.seq, verdict, out),
            EventKind::Warned { code, message, detail: _ } => self.warn(event.seq, code, message, out),
            EventKind::Failed { code: _, message, retryable: _, detail: _ } => {
                ui::notify(Loudness::Error, message, event.seq, out);
            }
            EventKind::Stopping { outcome: _, reason, by } => {
                ui::status("run", &format!("stopping: {reason} ({by})"), event.seq, out);
            }
            EventKind::RunRecovered { found: _ } => self.recover(event.seq, out),
            EventKind::RunEnded(report) => self.end_run(event, report, out),
            EventKind::Lost { after: _, cause } => self.lose(event.seq, *cause, out),
        }
    }

    /// Emits the pending delta before another event.
    pub(super) fn release(&mut self, out: &mut Out) {
        match out.held.take() {
            None => {}
            Some(Held::Said(piece)) => {
                if let Some(open) = &self.open {
                    open.tell_piece(&piece, out);
                }
            }
            Some(Held::Printed(call)) => {
                if let Some(used) = self.calls.get(&call) {
                    used.tell_output(out);
                }
            }
        }
    }

    /// Returns whether an event extends the pending delta.
    fn goes_on(&self, event: &Event, out: &Out) -> bool {
        match (&event.kind, &out.held) {
            (EventKind::Said { .. } | EventKind::Thought { .. }, Some(Held::Said(_))) => true,
            (EventKind::CallOutput { call, .. }, Some(Held::Printed(held))) => call == held,
            (_, Some(Held::Said(_) | Held::Printed(_)) | None) => false,
        }
    }

    fn begin_session(&mut self, event: &Event, opening: &Opening) {
        self.changed.name = opening.name.is_some().then_some(event.at);
        self.provider.clone_from(&opening.provider);
        self.model = opening.model.clone().unwrap_or_default();
    }

    fn adjust(&mut self, event: &Event, adjustment: &Adjustment, out: &mut Out) {
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
            self.changed.model = Some(event.at);
            let who = format!("{}/{}", self.provider, self.model);
            ui::status("model", who.trim_end_matches('/'), seq, out);
        }
        if let Some(thinking) = thinking {
            self.changed.thinking = Some(event.at);
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
        self.context = None;
    }

    fn queue(&mut self, seq: Seq, queued: &QueuedMessage, out: &mut Out) {
        let line = queued.message.text.lines().next().unwrap_or_default();
        self.queue.push(Queued {
            message: queued.message.message.clone(),
            run: queued.run.clone(),
            line: line.chars().take(QUEUED_CHARS).collect(),
        });
        self.show_queue(seq, out);
    }

    fn unqueue(&mut self, seq: Seq, message: &MessageId, out: &mut Out) {
        self.queue.retain(|queued| queued.message != *message);
        self.show_queue(seq, out);
    }

    /// Displays the queue.
    pub(super) fn show_queue(&self, seq: Seq, out: &mut Out) {
        let lines: Vec<&str> = self.queue.iter().map(|queued| queued.line.as_str()).collect();
        ui::widget("queue", &lines, seq, out);
    }

    fn work(&mut self, seq: Seq, phase: &str, detail: Option<&str>, out: &mut Out) {
        self.busy = true;
        match detail {
            Some(detail) => ui::working(&format!("{phase}: {detail}"), seq, out),
            None => ui::working(phase, seq, out),
        }
    }

    fn ask(&mut self, event: &Event, question: &Question, out: &mut Out) {
        self.close(out);
        ui::ask(question, event.at, out);
        self.questions.insert(question.gate.clone(), question.clone());
    }

    fn answer(&mut self, seq: Seq, verdict: &Verdict, out: &mut Out) {
        self.questions.remove(&verdict.gate);
        ui::settled(verdict, seq, out);
    }

    fn warn(&mut self, seq: Seq, code: &str, message: &str, out: &mut Out) {
        if code == TURN_CUT {
            self.unsay(message, out);
        }
        ui::notify(Loudness::Warning, message, seq, out);
    }

    fn recover(&mut self, seq: Seq, out: &mut Out) {
        self.unsay(RECOVERED, out);
        ui::notify(Loudness::Info, RECOVERED, seq, out);
    }

    fn lose(&mut self, seq: Seq, cause: LossCause, out: &mut Out) {
        let what = lost(cause);
        self.unsay(what, out);
        ui::notify(Loudness::Warning, what, seq, out);
    }
}

fn ended(seq: Seq, by: &str, out: &mut Out) {
    ui::notify(Loudness::Info, &format!("the session was ended by {by}"), seq, out);
}

const fn lost(cause: LossCause) -> &'static str {
    match cause {
        LossCause::Damage => "part of this session was damaged and is lost",
        LossCause::Power => "part of this session was lost when the machine stopped",
        LossCause::Retention => "the older part of this session was removed",
    }
}

const RECOVERED: &str = "the daemon restarted and resumes the run";
/// Characters of a queued message that the queue widget shows.
const QUEUED_CHARS: usize = 200;
