//! Folds the events of a session into documents (one text for each message and each tool call) and figures.
//!
//! Only public events count: what is for an audience is never found. Documents that are not complete at the end of a
//! pass are read again in the next one: [`Fold::resume`] says from where.

use std::collections::BTreeMap;

use crate::kernel::event::{
    ContextEvent, Decision, Event, EventKind, GateEvent, RunEvent, RunOutcome, SessionEvent, ToolEvent, ToolOutcome,
    TurnUsage,
};
use crate::kernel::gate::RAISE_BUDGET;
use crate::kernel::id::{CallId, Seq};
use crate::kernel::time::Now;

/// The kind of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DocumentKind {
    /// A message of a user or of the assistant.
    Message,
    /// A tool call: its arguments and its output.
    Tool,
    /// The name of a session.
    Name,
}

/// A searchable text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Its kind.
    pub kind: DocumentKind,
    /// The position of its first event.
    pub first: Seq,
    /// The position of its last event.
    pub last: Seq,
    /// When it began.
    pub at: Now,
    /// The text, as journaled: redacted.
    pub text: String,
}

/// The figures of a session in a quarter of an hour, for one model.
///
/// Every time zone is a multiple of a quarter of an hour from UTC, so days of any zone can be summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Runs that succeeded.
    pub succeeded: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Runs that were cancelled.
    pub cancelled: u64,
    /// Runs that were denied.
    pub denied: u64,
    /// Turns of the provider.
    pub turns: u64,
    /// Input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Cost in millionths of a US dollar, as far as it is known.
    pub cost: u64,
    /// Turns without a known cost.
    pub unpriced: u64,
    /// Tool calls that have ended.
    pub calls: u64,
    /// Those that failed.
    pub call_failures: u64,
    /// Approvals that were requested.
    pub asked: u64,
    /// Those that were granted.
    pub approved: u64,
    /// Those that were denied.
    pub refused: u64,
}

impl Figures {
    /// The number of figures.
    pub const COUNT: usize = 14;

    /// Returns the figures in the order of their declaration.
    pub const fn values(&self) -> [u64; Self::COUNT] {
        let Self { succeeded, failed, cancelled, denied, turns, input, output, .. } = *self;
        let Self { cost, unpriced, calls, call_failures, asked, approved, refused, .. } = *self;
        [
            succeeded,
            failed,
            cancelled,
            denied,
            turns,
            input,
            output,
            cost,
            unpriced,
            calls,
            call_failures,
            asked,
            approved,
            refused,
        ]
    }

    /// Returns the figures from their values.
    pub const fn from_values(values: [u64; Self::COUNT]) -> Self {
        let [succeeded, failed, cancelled, denied, turns, input, output, cost, unpriced, calls, call_failures, ..] =
            values;
        let [.., asked, approved, refused] = values;
        Self {
            succeeded,
            failed,
            cancelled,
            denied,
            turns,
            input,
            output,
            cost,
            unpriced,
            calls,
            call_failures,
            asked,
            approved,
            refused,
        }
    }

    /// Adds other figures.
    pub fn add(&mut self, other: &Self) {
        let mut values = self.values();
        for (value, more) in values.iter_mut().zip(other.values()) {
            *value = value.saturating_add(more);
        }
        *self = Self::from_values(values);
    }
}

/// The calls of one tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ToolFigures {
    /// Calls that have ended.
    pub calls: u64,
    /// Those that failed.
    pub failures: u64,
}

/// What a pass over some events has found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extract {
    /// The documents that are complete.
    pub documents: Vec<Document>,
    /// The figures, by quarter of an hour and model.
    pub figures: BTreeMap<(u64, String), Figures>,
    /// The tools, by quarter of an hour and name.
    pub tools: BTreeMap<(u64, String), ToolFigures>,
}

/// The length of a quarter of an hour in milliseconds.
pub const QUARTER_MILLIS: u64 = 15 * 60 * 1000;

/// What a fold needs to know of the events before it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoldContext {
    /// The events up to here were folded before: their figures and complete documents are known.
    pub written: Seq,
    /// The model of the session.
    pub model: String,
    /// The last event that a fork inherited. Inherited events were counted for the parent.
    pub forked_at: Seq,
}

/// The fold of a session's events.
#[derive(Debug, Default)]
pub struct Fold {
    context: FoldContext,
    last: Seq,
    text: Option<OpenDocument>,
    calls: BTreeMap<CallId, OpenDocument>,
    extract: Extract,
}

#[derive(Debug)]
struct OpenDocument {
    first: Seq,
    at: Now,
    text: String,
    /// Whether the text contains output, so that the result need not be added.
    has_output: bool,
    /// Whether it is part of a run. A command of the user is not.
    in_run: bool,
}

impl OpenDocument {
    const fn new(event: &Event) -> Self {
        Self { first: event.seq, at: event.at, text: String::new(), has_output: false, in_run: event.run.is_some() }
    }
}

impl Fold {
    /// Starts a fold.
    pub fn new(context: FoldContext) -> Self {
        Self { context, ..Self::default() }
    }

    /// Adds the next event.
    pub fn add(&mut self, event: &Event) {
        self.last = event.seq;
        if !event.audience.is_public() {
            return;
        }
        match &event.kind {
            EventKind::Session(of_session) => self.add_session(of_session),
            EventKind::Run(run) => self.add_run(event, run),
            EventKind::Tool(tool) => self.add_tool(event, tool),
            EventKind::Gate(gate) => self.add_gate(event, gate),
            // A summary repeats the conversation. What was branched away is still part of the history.
            EventKind::Context(
                ContextEvent::CompactionStarted { .. }
                | ContextEvent::Compacted(_)
                | ContextEvent::CompactionFailed { .. }
                | ContextEvent::Branched { .. },
            )
            | EventKind::Participant(_)
            | EventKind::Notice(_) => {}
        }
    }

    /// Returns the position after which the next pass reads: before the first event of an incomplete document.
    pub fn resume(&self) -> Seq {
        let open = self.text.iter().chain(self.calls.values()).map(|open| open.first.number().saturating_sub(1));
        open.min().map_or(self.last, |first| Seq::new(first).min(self.last))
    }

    /// Returns the context for the fold of the events that follow.
    pub fn context(&self) -> FoldContext {
        FoldContext { written: self.last.max(self.context.written), ..self.context.clone() }
    }

    /// Takes what was found since the last call.
    pub fn take(&mut self) -> Extract {
        std::mem::take(&mut self.extract)
    }

    /// Ends the incomplete documents, for a reader of a part of the history.
    pub fn finish(mut self) -> Extract {
        self.end_text();
        self.end_calls();
        self.extract
    }

    fn add_session(&mut self, event: &SessionEvent) {
        match event {
            SessionEvent::Opened(opening) => {
                self.context.model = opening.model.clone().unwrap_or_else(|| opening.provider.clone());
                self.context.forked_at = opening.forked_at.unwrap_or(Seq::ZERO);
            }
            SessionEvent::Adjusted { adjustment, .. } => {
                if let Some(model) = adjustment.model.as_ref().or(adjustment.provider.as_ref()) {
                    self.context.model.clone_from(model);
                }
            }
            SessionEvent::Ended { .. } => {
                self.end_text();
                self.end_calls();
            }
            SessionEvent::Renamed { .. } | SessionEvent::Loaded { .. } | SessionEvent::VersionBumped { .. } => {}
        }
    }

    fn add_run(&mut self, event: &Event, run: &RunEvent) {
        match run {
            RunEvent::Started(message) => {
                self.end_calls_of_run();
                self.add_message(event, &message.text);
            }
            RunEvent::Steered(steering) => self.add_message(event, &steering.text),
            RunEvent::TextDelta { text } => {
                let open = self.text.get_or_insert_with(|| OpenDocument::new(event));
                open.text.push_str(text);
                if open.text.len() >= MAX_TEXT_BYTES {
                    self.end_text();
                }
            }
            RunEvent::TextDone { .. } => self.end_text(),
            RunEvent::TurnUsage(usage) => self.add_usage(event, usage),
            RunEvent::Ended(report) => {
                self.end_text();
                self.end_calls_of_run();
                self.count(event, |figures| match report.outcome {
                    RunOutcome::Success => figures.succeeded += 1,
                    RunOutcome::Failed => figures.failed += 1,
                    RunOutcome::Cancelled => figures.cancelled += 1,
                    RunOutcome::Denied => figures.denied += 1,
                });
            }
            // A queued message is indexed when its run starts.
            RunEvent::MessageQueued(_)
            | RunEvent::MessageUnqueued { .. }
            | RunEvent::ThinkingDelta { .. }
            | RunEvent::RetryStarted(_)
            | RunEvent::RetryEnded { .. }
            | RunEvent::Stopping { .. }
            | RunEvent::Recovered { .. } => {}
        }
    }

    fn add_usage(&mut self, event: &Event, usage: &TurnUsage) {
        self.end_text();
        if !usage.model.is_empty() {
            self.context.model.clone_from(&usage.model);
        }
        let tokens = usage.usage;
        self.count(event, |figures| {
            figures.turns += 1;
            figures.input = figures.input.saturating_add(tokens.input);
            figures.output = figures.output.saturating_add(tokens.output);
            figures.cost = figures.cost.saturating_add(tokens.cost.unwrap_or(0));
            figures.unpriced += u64::from(tokens.cost.is_none());
        });
    }

    fn add_tool(&mut self, event: &Event, tool: &ToolEvent) {
        match tool {
            ToolEvent::Intended(intention) => {
                self.end_text();
                if intention.tool != RAISE_BUDGET {
                    let mut open = OpenDocument::new(event);
                    open.text = format!("{} {}\n", intention.tool, strings_of(intention.args.as_str()));
                    self.calls.insert(intention.call.clone(), open);
                }
            }
            ToolEvent::Started { .. } => {}
            ToolEvent::Output { call, text, .. } => {
                let open = self.calls.entry(call.clone()).or_insert_with(|| OpenDocument::new(event));
                open.text.push_str(text);
                open.has_output = true;
                if open.text.len() >= MAX_TEXT_BYTES
                    && let Some(open) = self.calls.remove(call)
                {
                    self.complete(DocumentKind::Tool, open);
                    // The rest of the output is another document.
                    let rest = OpenDocument { first: event.seq.next(), has_output: true, ..OpenDocument::new(event) };
                    self.calls.insert(call.clone(), rest);
                }
            }
            ToolEvent::Settled(result) => {
                if result.tool == RAISE_BUDGET {
                    return;
                }
                let mut open = self.calls.remove(&result.call).unwrap_or_else(|| OpenDocument::new(event));
                if !open.has_output {
                    open.text.push_str(&result.text);
                }
                if open.first <= event.seq {
                    self.complete(DocumentKind::Tool, open);
                }
                let failed = u64::from(result.outcome == ToolOutcome::Failed);
                self.count(event, |figures| {
                    figures.calls += 1;
                    figures.call_failures += failed;
                });
                if self.is_counted(event) {
                    let tools = &mut self.extract.tools;
                    let tool = tools.entry((event.at.0 / QUARTER_MILLIS, result.tool.clone())).or_default();
                    tool.calls += 1;
                    tool.failures += failed;
                }
            }
        }
    }

    fn add_gate(&mut self, event: &Event, gate: &GateEvent) {
        self.count(event, |figures| match gate {
            GateEvent::Opened(_) => figures.asked += 1,
            GateEvent::Voted { .. } => {}
            GateEvent::Settled(decided) => match decided.decision {
                Decision::Approve => figures.approved += 1,
                Decision::Deny => figures.refused += 1,
            },
        });
    }

    fn add_message(&mut self, event: &Event, text: &str) {
        self.end_text();
        self.complete(DocumentKind::Message, OpenDocument { text: text.to_owned(), ..OpenDocument::new(event) });
    }

    fn end_text(&mut self) {
        if let Some(open) = self.text.take() {
            self.complete(DocumentKind::Message, open);
        }
    }

    /// Ends all calls that have no result.
    fn end_calls(&mut self) {
        for (_, open) in std::mem::take(&mut self.calls) {
            self.complete(DocumentKind::Tool, open);
        }
    }

    /// Ends the calls that get no result any more: those of a run before, and those that a fork inherited.
    fn end_calls_of_run(&mut self) {
        let forked_at = self.context.forked_at;
        let (ended, open) =
            std::mem::take(&mut self.calls).into_iter().partition(|(_, open)| open.in_run || open.first <= forked_at);
        self.calls = ended;
        self.end_calls();
        self.calls = open;
    }

    fn complete(&mut self, kind: DocumentKind, open: OpenDocument) {
        if self.last > self.context.written && !open.text.trim().is_empty() {
            let OpenDocument { first, at, text, .. } = open;
            self.extract.documents.push(Document { kind, first, last: self.last, at, text });
        }
    }

    /// Returns whether an event counts: it is new, it happened here, and it is not inherited.
    fn is_counted(&self, event: &Event) -> bool {
        event.seq > self.context.written && event.seq > self.context.forked_at && event.origin.is_none()
    }

    fn count(&mut self, event: &Event, add: impl FnOnce(&mut Figures)) {
        if self.is_counted(event) {
            let key = (event.at.0 / QUARTER_MILLIS, self.context.model.clone());
            add(self.extract.figures.entry(key).or_default());
        }
    }
}

/// Returns the strings in a JSON value, without its punctuation and escapes.
fn strings_of(json: &str) -> String {
    fn collect(value: &serde_json::Value, out: &mut String) {
        match value {
            serde_json::Value::String(text) => {
                out.push_str(text);
                out.push(' ');
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| collect(item, out)),
            serde_json::Value::Object(fields) => fields.values().for_each(|field| collect(field, out)),
            serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
        }
    }
    let mut out = String::new();
    if let Ok(value) = serde_json::from_str(json) {
        collect(&value, &mut out);
    }
    out
}

/// The length at which a text is continued in another document, so that memory stays bounded.
const MAX_TEXT_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::audience::Audience;
    use crate::kernel::event::{OutputStream, RunReport};
    use crate::kernel::participant::Role;

    fn said(seq: u64, text: &str, audience: Audience) -> Event {
        let kind = EventKind::Run(RunEvent::TextDelta { text: text.into() });
        Event { seq: Seq::new(seq), at: Now(1), run: None, version: None, origin: None, audience, kind }
    }

    #[test]
    fn only_events_for_everybody_become_documents() {
        let mut fold = Fold::new(FoldContext::default());
        fold.add(&said(1, "for all, ", Audience::All));
        fold.add(&said(2, "for approvers, ", Audience::Role(Role::Approver)));
        fold.add(&said(3, "for some, ", Audience::Participants([].into())));
        fold.add(&said(4, "for a later version, ", Audience::Unknown(crate::kernel::id::Json::new("{}"))));
        fold.add(&said(5, "for all again", Audience::All));
        let texts: Vec<String> = fold.finish().documents.into_iter().map(|document| document.text).collect();
        assert_eq!(texts, ["for all, for all again"]);
    }

    #[test]
    fn a_call_without_a_result_ends_with_its_run_and_a_command_of_the_user_does_not() {
        let event = |seq: u64, run: Option<&str>, kind| Event {
            run: run.map(Into::into),
            kind,
            ..said(seq, "", Audience::All)
        };
        let output = |call: &str, text: &str| {
            let (call, text) = (call.into(), text.to_owned());
            EventKind::Tool(ToolEvent::Output { call, text, stream: OutputStream::Stdout })
        };
        let ended = || {
            let (outcome, checks) = (RunOutcome::Cancelled, Vec::new());
            let (reason, summary) = (None, String::new());
            let report = RunReport { outcome, reason, summary, checks, checks_requested: 0, exit_code: 1 };
            EventKind::Run(RunEvent::Ended(Box::new(report)))
        };
        let mut fold = Fold::new(FoldContext::default());
        fold.add(&event(1, Some("run"), output("inherited", "wombat")));
        assert_eq!(fold.resume(), Seq::ZERO);
        fold.add(&event(2, Some("run"), ended()));
        assert_eq!(fold.resume(), Seq::new(2), "the next pass does not read the call again");
        fold.add(&event(3, None, output("command", "numbat")));
        fold.add(&event(4, Some("other"), ended()));
        assert_eq!(fold.resume(), Seq::new(2), "the command still runs");
        let texts: Vec<String> = fold.take().documents.into_iter().map(|document| document.text).collect();
        assert_eq!(texts, ["wombat"]);
    }
}
