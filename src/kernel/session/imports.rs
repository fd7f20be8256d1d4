//! Imports a conversation as finished runs.
//!
//! Imported events carry their original times and name the session file entries that they come from.

use std::collections::BTreeMap;

use super::Session;
use super::effects::Effects;
use crate::kernel::command::{Answer, Caller, Reply};
use crate::kernel::event::{
    Budget, CallResult, Compaction, ContextEvent, EventKind, Intention, Message, Purpose, RunEvent, RunOutcome,
    RunReport, SessionEvent, ToolEvent,
};
use crate::kernel::id::{Fingerprint, RunId, Seq};
use crate::kernel::import::{ContextStart, Import, ImportedCall, ImportedPart, ImportedRun, ImportedTurn, Provenance};
use crate::kernel::refusal::Refusal;
use crate::kernel::time::Now;

/// The source of an imported message.
const IMPORT: &str = "import";
/// The reason with which an imported run ended.
const IMPORTED: &str = "imported";

impl Session {
    /// Imports a whole conversation, or refuses all of it.
    pub(super) fn import(&mut self, caller: &Caller, import: Import, now: Now, fx: &mut Effects) -> Reply {
        self.ensure_open()?;
        self.ensure_idle()?;
        let (steps, bytes) = import.size();
        if steps > self.limits.import_steps || bytes > self.limits.import_bytes {
            return Err(Refusal::ImportTooLarge);
        }
        if let Some(branch) = import.branch {
            self.branch(caller, branch, now, fx)?;
        }
        let mut importer = Importer { session: self, fx, now, first_events: BTreeMap::new() };
        for part in import.parts {
            match part {
                ImportedPart::Run(run) => importer.run(run),
                ImportedPart::UserCommand { call, in_context } => {
                    importer.user_command(call, Purpose::UserCommand { in_context })
                }
                ImportedPart::Summary { text, tokens_before, context_start, source } => {
                    importer.summary(text, tokens_before, &context_start, &source);
                }
            }
        }
        if let Some(name) = import.name {
            self.record_for(None, EventKind::Session(SessionEvent::Renamed { name }), now, fx);
        }
        self.adjust(caller, Box::new(import.settings), now, fx)?;
        Ok(Answer::Imported)
    }
}

struct Importer<'a> {
    session: &'a mut Session,
    fx: &'a mut Effects,
    now: Now,
    /// The first event of each session file entry.
    first_events: BTreeMap<String, Seq>,
}

impl Importer<'_> {
    fn run(&mut self, run: ImportedRun) {
        let ImportedRun { run, message, text, images, turns, source } = run;
        let message = Message {
            message,
            text,
            images,
            criteria: Vec::new(),
            time_limit: None,
            budget: Budget::default(),
            rules: Vec::new(),
            needs_environment: false,
            fingerprint: Fingerprint(0),
            by: IMPORT.to_owned(),
        };
        let run = Some(run);
        self.record(run.as_ref(), EventKind::Run(RunEvent::Started(Box::new(message))), &source);
        let mut ended_at = source.at;
        for turn in turns {
            let times = turn.calls.iter().map(|call| call.source.at);
            ended_at = times.fold(ended_at.max(turn.source.at), Option::max);
            self.turn(run.as_ref(), turn);
        }
        let report = RunReport {
            outcome: RunOutcome::Success,
            reason: Some(IMPORTED.to_owned()),
            summary: String::new(),
            checks: Vec::new(),
            checks_requested: 0,
            exit_code: 0,
        };
        let end = Provenance { at: ended_at, entry: Some(String::new()) };
        self.record(run.as_ref(), EventKind::Run(RunEvent::Ended(Box::new(report))), &end);
    }

    fn turn(&mut self, run: Option<&RunId>, turn: ImportedTurn) {
        let ImportedTurn { thinking, text, message, mut usage, calls, source } = turn;
        if !thinking.is_empty() {
            self.record(run, EventKind::Run(RunEvent::ThinkingDelta { text: thinking }), &source);
        }
        if !text.is_empty() {
            self.record(run, EventKind::Run(RunEvent::TextDelta { text }), &source);
            self.record(run, EventKind::Run(RunEvent::TextDone { message }), &source);
        }
        // All calls of the turn follow, so none is pending.
        usage.pending.clear();
        self.record(run, EventKind::Run(RunEvent::TurnUsage(Box::new(usage))), &source);
        // The calls of one turn are requested together, before the first of them starts.
        for call in &calls {
            self.intend(run, call, Purpose::Work, &source);
        }
        for call in calls {
            self.settle(run, call, Purpose::Work, &source);
        }
    }

    fn user_command(&mut self, call: ImportedCall, purpose: Purpose) {
        let source = call.source.clone();
        self.intend(None, &call, purpose, &source);
        self.settle(None, call, purpose, &source);
    }

    fn intend(&mut self, run: Option<&RunId>, call: &ImportedCall, purpose: Purpose, source: &Provenance) {
        let (tool, args) = (call.tool.clone(), call.args.clone());
        let intention = Intention { call: call.call.clone(), tool, args, purpose };
        self.record(run, EventKind::Tool(ToolEvent::Intended(Box::new(intention))), source);
    }

    fn settle(&mut self, run: Option<&RunId>, call: ImportedCall, purpose: Purpose, started: &Provenance) {
        let ImportedCall { call, tool, args: _, millis, outcome, exit_code, text, error, source } = call;
        let start = EventKind::Tool(ToolEvent::Started { call: call.clone(), tool: tool.clone() });
        self.record(run, start, started);
        let settlement = CallResult { call, tool, purpose, millis, outcome, exit_code, text, error, diff: None };
        self.record(run, EventKind::Tool(ToolEvent::Settled(Box::new(settlement))), &source);
    }

    /// Records a summary that replaces everything before the start of the verbatim context.
    fn summary(&mut self, summary: String, tokens_before: u64, context_start: &ContextStart, source: &Provenance) {
        let next = self.session.issued.next();
        let kept_from = match context_start {
            ContextStart::AfterSummary => next,
            ContextStart::Entry(entry) => self.first_events.get(entry).copied().unwrap_or(next),
            ContextStart::Event(seq) => (*seq).min(next),
        };
        let compaction = Compaction { summary, kept_from, tokens_before };
        self.record(None, EventKind::Context(ContextEvent::Compacted(Box::new(compaction))), source);
    }

    fn record(&mut self, run: Option<&RunId>, kind: EventKind, source: &Provenance) {
        if let Some(entry) = source.entry.as_ref().filter(|entry| !self.first_events.contains_key(*entry)) {
            self.first_events.insert(entry.clone(), self.session.issued.next());
        }
        // A file may claim any time; no event is later than now.
        let at = source.at.map_or(self.now, |at| at.min(self.now));
        self.session.record_from(run.cloned(), kind, at, source.entry.clone(), self.fx);
    }
}
