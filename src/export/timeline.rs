//! Turns events into entries, each as soon as no later event changes it.
//!
//! Messages come from the conversation of the kernel. What belongs to a call (its approvals, its diff) waits for the
//! message of the call, and what follows a message that is being written waits for that message.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::entry::{
    Approval, Attachment, Block, Check, Content, Delivery, Entry, NoticeLevel, RunSummary, ToolCall, Usage, Vote,
};
use super::survey::Survey;
use crate::display::format;
use crate::display::tool_results::format_result;
use crate::kernel::conversation::{
    self, AssistantMessage, Call, CallOutcome, Conversation, Item, ItemContent, MessageEnd, SkipReason, UserMessage,
};
use crate::kernel::event::{
    CallResult, ContextEvent, Diff, Event, EventKind, GateDecision, GateEvent, GateQuestion, Intention, NoticeEvent,
    ParticipantEvent, Purpose, RunEvent, RunReport, SessionEvent, ToolEvent, is_turn_interrupted,
};
use crate::kernel::id::{CallId, GateId, Json, Seq};
use crate::kernel::time::Now;

/// The second pass over a history.
#[derive(Debug)]
pub struct Timeline<'a> {
    survey: &'a Survey,
    conversation: Conversation,
    /// The sources of messages that are no entries yet, by their events.
    senders: BTreeMap<Seq, String>,
    /// The diffs of calls whose messages are no entries yet.
    diffs: BTreeMap<CallId, Diff>,
    /// The approvals that are open, or whose calls are no entries yet.
    approvals: BTreeMap<GateId, (Option<CallId>, Approval)>,
    /// Entries that follow a message which is not settled.
    waiting: Vec<Entry>,
    run: RunProgress,
}

/// The usage and the start of the active run.
#[derive(Debug, Default)]
struct RunProgress {
    started: Option<Now>,
    usage: Usage,
}

impl<'a> Timeline<'a> {
    /// Starts with the history that was surveyed.
    pub fn new(survey: &'a Survey) -> Self {
        Self {
            survey,
            conversation: Conversation::default(),
            senders: BTreeMap::new(),
            diffs: BTreeMap::new(),
            approvals: BTreeMap::new(),
            waiting: Vec::new(),
            run: RunProgress::default(),
        }
    }

    /// Adds the next event and returns the entries that are complete now, in order.
    pub fn add(&mut self, event: &Event) -> Vec<Entry> {
        if let Some(discarded) = self.survey.discarded_around(event.seq) {
            self.add_discarded(event, discarded.start);
            return Vec::new();
        }
        self.note(event);
        self.conversation.fold(event);
        for item in self.conversation.take_settled() {
            self.add_item(&item);
        }
        if let Some(content) = self.content(event) {
            self.waiting.push(entry(event, content));
        }
        let open = self.conversation.first_open().number();
        self.waiting.sort_by_key(|entry| entry.seq);
        let complete = self.waiting.partition_point(|entry| entry.seq < open);
        self.waiting.drain(..complete).collect()
    }

    /// Folds a discarded event if it matters: the branch itself removes what it left. No item is taken before.
    fn add_discarded(&mut self, event: &Event, start: u64) {
        // It may end what was open at the point of the branch.
        if outlives_branch(&event.kind) || self.conversation.first_open().number() < start {
            self.conversation.fold(event);
        }
        if let EventKind::Session(change) = &event.kind {
            self.waiting.extend(session_notice(change).map(|content| entry(event, content)));
        }
    }

    /// Returns the entries that are left: a run may be active.
    pub fn finish(mut self) -> Vec<Entry> {
        for item in std::mem::take(&mut self.conversation).into_rest() {
            self.add_item(&item);
        }
        let last = self.survey.last_seq();
        for (_, (_, approval)) in std::mem::take(&mut self.approvals) {
            let at = approval.asked_at;
            let content = Content::Approval { approval: Box::new(approval) };
            self.waiting.push(Entry { seq: last, at, run_id: None, content });
        }
        self.waiting.sort_by_key(|entry| entry.seq);
        self.waiting
    }

    /// Keeps what the conversation does not: sources, diffs, approvals, usage.
    fn note(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Run(RunEvent::Started(message)) => {
                self.run = RunProgress { started: Some(event.at), usage: Usage::default() };
                self.senders.insert(event.seq, message.by.clone());
            }
            EventKind::Run(RunEvent::Steered(message)) => drop(self.senders.insert(event.seq, message.by.clone())),
            EventKind::Run(RunEvent::TurnUsage(turn)) => self.run.usage.add(&turn.usage),
            EventKind::Tool(ToolEvent::Settled(result)) => {
                if let Some(diff) = &result.diff {
                    self.diffs.insert(result.call.clone(), diff.clone());
                }
            }
            EventKind::Gate(GateEvent::Opened(question)) => {
                let approval = (question.call().cloned(), open_approval(question, event.at));
                self.approvals.insert(question.gate.clone(), approval);
            }
            EventKind::Gate(GateEvent::Voted { gate, decision, by, participant: _ }) => {
                if let Some((_, approval)) = self.approvals.get_mut(gate) {
                    let (by, at) = (by.clone(), event.at);
                    approval.votes.push(Vote { decision: *decision, by, at, comment: None });
                }
            }
            EventKind::Gate(GateEvent::Settled(decided)) => {
                if let Some((_, approval)) = self.approvals.get_mut(&decided.gate) {
                    settle_approval(approval, decided, event.at);
                }
            }
            EventKind::Session(_)
            | EventKind::Run(_)
            | EventKind::Tool(_)
            | EventKind::Participant(_)
            | EventKind::Context(_)
            | EventKind::Notice(_) => {}
        }
    }

    /// Returns the entry that an event is by itself.
    fn content(&mut self, event: &Event) -> Option<Content> {
        match &event.kind {
            EventKind::Run(RunEvent::Ended(report)) => {
                Some(Content::RunEnded(Box::new(self.end_run(report, event.at))))
            }
            EventKind::Gate(GateEvent::Settled(decided)) => self.separate_approval(decided),
            EventKind::Context(ContextEvent::Compacted(summary)) => {
                Some(Content::Summary { text: summary.summary.clone(), tokens_before: summary.tokens_before })
            }
            EventKind::Context(ContextEvent::Branched { .. }) => {
                Some(info("the conversation continues from an earlier point".to_owned()))
            }
            EventKind::Run(RunEvent::Recovered { phase }) => Some(info(format::recovery_message(*phase))),
            EventKind::Run(RunEvent::RetryStarted(retry)) => {
                let count = format!("{}/{}", retry.attempt, retry.max_attempts);
                Some(warning("", format!("the provider did not answer, retry {count}: {}", retry.message)))
            }
            EventKind::Session(change) => session_notice(change),
            EventKind::Participant(ParticipantEvent::Posted(message)) => {
                Some(info(format!("message {} by {}: {}", message.kind, message.by, message.body.as_str())))
            }
            EventKind::Participant(change) => Some(info(format::participant_message(change))),
            EventKind::Notice(notice) => notice_content(notice, event.seq),
            EventKind::Run(_) | EventKind::Tool(_) | EventKind::Gate(_) | EventKind::Context(_) => None,
        }
    }

    fn end_run(&mut self, report: &RunReport, at: Now) -> RunSummary {
        let run = std::mem::take(&mut self.run);
        let checks = report.checks.iter().map(|check| Check {
            id: check.id.clone(),
            passed: check.passed,
            exit_code: check.exit_code,
            output: check.output.clone(),
        });
        RunSummary {
            outcome: report.outcome,
            reason: report.reason.clone(),
            summary: report.summary.clone(),
            exit_code: report.exit_code,
            duration_ms: run.started.map(|started| at.since(started)),
            usage: run.usage,
            checks: checks.collect(),
        }
    }

    /// Returns a settled approval unless it belongs to a call of a message, which shows it.
    fn separate_approval(&mut self, decided: &GateDecision) -> Option<Content> {
        let (call, _) = self.approvals.get(&decided.gate)?;
        if call.as_ref().is_some_and(|call| self.conversation.unsettled_call(call).is_some()) {
            return None;
        }
        let (_, approval) = self.approvals.remove(&decided.gate)?;
        Some(Content::Approval { approval: Box::new(approval) })
    }

    fn add_item(&mut self, item: &Arc<Item>) {
        let content = match &item.content {
            ItemContent::UserMessage(message) => self.user_message(message, item.first_seq),
            ItemContent::AssistantMessage(message) => match self.assistant_message(message) {
                Some(content) => content,
                None => return,
            },
            ItemContent::UserCommand(command) => {
                let (call, approvals) = (&command.intention.call, self.approvals_of(&command.intention.call));
                let diff = self.diffs.remove(call);
                let call = tool_call(&command.intention, Some(&command.result), diff, approvals);
                Content::UserCommand { call: Box::new(call) }
            }
            ItemContent::LostCall(result) => {
                let intention = Intention {
                    call: result.call.clone(),
                    tool: result.tool.clone(),
                    args: Json::new("{}"),
                    purpose: result.purpose,
                };
                let diff = self.diffs.remove(&result.call);
                let call = tool_call(&intention, Some(result), diff, self.approvals_of(&result.call));
                Content::UserCommand { call: Box::new(call) }
            }
        };
        let run_id = item.run.as_ref().map(|run| run.as_str().to_owned());
        self.waiting.push(Entry { seq: item.place().number(), at: item.at, run_id, content });
    }

    fn user_message(&mut self, message: &UserMessage, seq: Seq) -> Content {
        Content::UserMessage {
            text: message.text.clone(),
            by: self.senders.remove(&seq).unwrap_or_default(),
            delivery: match message.delivery {
                conversation::Delivery::Prompt => Delivery::Prompt,
                conversation::Delivery::Steering => Delivery::Steering,
            },
            images: message.images.iter().map(Attachment::from).collect(),
        }
    }

    /// Returns a message of the assistant; none if a reader sees nothing of it.
    fn assistant_message(&mut self, message: &AssistantMessage) -> Option<Content> {
        if message.is_superseded() || !message.has_content() {
            return None;
        }
        let shown = message.blocks.iter().filter(|block| block.is_shown());
        let blocks = shown.map(|block| match block {
            conversation::Block::Thinking(text) => Block::Thinking { text: text.clone() },
            conversation::Block::Text(text) => Block::Text { text: text.text.clone() },
            conversation::Block::Call(call) => Block::ToolCall(Box::new(self.call(call))),
        });
        let blocks = blocks.collect();
        let usage = message.usage.map(|turn| {
            let mut usage = Usage::default();
            usage.add(&turn);
            usage
        });
        let interrupted = matches!(message.end, MessageEnd::Interrupted(_));
        Some(Content::AssistantMessage { model: message.model.to_string(), blocks, usage, interrupted })
    }

    fn call(&mut self, call: &Call) -> ToolCall {
        let intention = match (&call.request, &call.announcement) {
            (Some(request), _) => (request.id.clone(), request.tool.clone(), request.args.clone()),
            (None, Some(announced)) => {
                (CallId::from(String::new()), announced.call.tool.clone(), announced.call.args.clone())
            }
            (None, None) => (CallId::from(String::new()), String::new(), Json::new("{}")),
        };
        let (id, tool, args) = intention;
        let intention = Intention { call: id.clone(), tool, args, purpose: Purpose::Work };
        let result = call.completion.as_ref().and_then(|completion| completion.result());
        let mut shown = tool_call(&intention, result, self.diffs.remove(&id), self.approvals_of(&id));
        match call.completion.as_ref().map(|completion| &completion.outcome) {
            Some(CallOutcome::Skipped(SkipReason::Steered)) => "not started: a message arrived first",
            Some(CallOutcome::Skipped(SkipReason::RunEnded)) => "not started: the run ended first",
            Some(CallOutcome::Settled(_)) => return shown,
            None => "no result",
        }
        .clone_into(&mut shown.result);
        shown
    }

    fn approvals_of(&mut self, call: &CallId) -> Vec<Approval> {
        let of_call = self.approvals.extract_if(.., |_, (of, _)| of.as_ref() == Some(call));
        of_call.map(|(_, (_, approval))| approval).collect()
    }
}

/// Returns whether an event counts although a branch discards it: settings, an earlier branch, and a command of the
/// user, which may end after the branch.
const fn outlives_branch(kind: &EventKind) -> bool {
    match kind {
        EventKind::Session(_) | EventKind::Context(ContextEvent::Branched { .. }) => true,
        EventKind::Tool(ToolEvent::Intended(call)) => matches!(call.purpose, Purpose::UserCommand { .. }),
        EventKind::Run(_)
        | EventKind::Tool(_)
        | EventKind::Gate(_)
        | EventKind::Participant(_)
        | EventKind::Context(_)
        | EventKind::Notice(_) => false,
    }
}

fn entry(event: &Event, content: Content) -> Entry {
    let run_id = event.run.as_ref().map(|run| run.as_str().to_owned());
    Entry { seq: event.seq.number(), at: event.at, run_id, content }
}

fn tool_call(
    intention: &Intention,
    result: Option<&CallResult>,
    diff: Option<Diff>,
    approvals: Vec<Approval>,
) -> ToolCall {
    let (prompt, title) = format::invocation(intention);
    ToolCall {
        call_id: intention.call.as_str().to_owned(),
        tool: intention.tool.clone(),
        title,
        is_command: !prompt.is_empty(),
        args: intention.args.clone(),
        outcome: result.map(|result| result.outcome),
        result: result.map(|result| format::tool_outcome(result).1).unwrap_or_default(),
        exit_code: result.and_then(|result| result.exit_code),
        duration_ms: result.map(|result| result.millis),
        output: result.map(|result| format_result(&result.text)).unwrap_or_default(),
        error: result.and_then(|result| result.error.clone()),
        diff,
        approvals,
    }
}

fn open_approval(question: &GateQuestion, at: Now) -> Approval {
    Approval {
        approval_id: question.gate.as_str().to_owned(),
        kind: question.kind.clone(),
        title: question.title.clone(),
        question: question.summary.clone(),
        asked_at: at,
        votes: Vec::new(),
        decision: None,
        result: String::new(),
        scope: None,
    }
}

fn settle_approval(approval: &mut Approval, decided: &GateDecision, at: Now) {
    let (by, comment) = (decided.by.clone(), decided.comment.clone());
    approval.decision = Some(Vote { decision: decided.decision, by, at, comment });
    approval.result = format::decision_message(decided).1;
    approval.scope = Some(decided.scope);
}

fn info(text: String) -> Content {
    Content::Notice { level: NoticeLevel::Info, code: String::new(), text }
}

fn warning(code: &str, text: String) -> Content {
    Content::Notice { level: NoticeLevel::Warning, code: code.to_owned(), text }
}

fn session_notice(change: &SessionEvent) -> Option<Content> {
    match change {
        SessionEvent::Renamed { name } => Some(info(format!("the session was renamed to {name}"))),
        SessionEvent::Ended { by } => Some(info(format!("the session was ended by {by}"))),
        SessionEvent::Adjusted { adjustment, by: _ } => {
            let model = [adjustment.provider.as_deref(), adjustment.model.as_deref()];
            let model: Vec<&str> = model.into_iter().flatten().collect();
            (!model.is_empty()).then(|| info(format!("the model is now {}", model.join(" "))))
        }
        SessionEvent::Opened(_) | SessionEvent::VersionBumped { .. } | SessionEvent::Loaded { .. } => None,
    }
}

fn notice_content(notice: &NoticeEvent, seq: Seq) -> Option<Content> {
    let with_detail = |message: &str, detail: &Option<String>| match detail {
        Some(detail) => format!("{message}: {detail}"),
        None => message.to_owned(),
    };
    match notice {
        // The text before it is not part of the conversation.
        NoticeEvent::Warned { code, .. } if is_turn_interrupted(code) => None,
        NoticeEvent::Warned { code, message, detail } => Some(warning(code, with_detail(message, detail))),
        NoticeEvent::Failed { code, message, retryable: _, detail } => {
            Some(Content::Notice { level: NoticeLevel::Error, code: code.clone(), text: with_detail(message, detail) })
        }
        NoticeEvent::EventsLost { after, cause } => {
            Some(warning("EVENTS_LOST", format::loss_message(*after, seq.number(), *cause)))
        }
        NoticeEvent::Unknown(unknown) => Some(info(format!("an event of an unknown kind: {}", unknown.name))),
        NoticeEvent::Status { .. } => None,
    }
}
