//! What was said elsewhere, taken in as runs that are over.

use super::Session;
use super::effects::Effects;
use crate::kernel::command::{Answer, Caller, Reply};
use crate::kernel::event::{
    Budget, Compaction, EventKind, Intention, Message, Outcome, Purpose, RunReport, Settlement,
};
use crate::kernel::id::{Fingerprint, RunId, Seq};
use crate::kernel::import::{Import, Imported, ImportedCall, ImportedRun, ImportedTurn};
use crate::kernel::refusal::Refusal;
use crate::kernel::time::Now;

/// Who is said to have sent a message that was taken in.
const IMPORT: &str = "import";
/// The word for how such a run ended.
const IMPORTED: &str = "imported";

impl Session {
    /// Takes in a whole conversation, or nothing of it.
    pub(super) fn import(&mut self, caller: &Caller, import: Import, now: Now, fx: &mut Effects) -> Reply {
        self.entitled(self.roster.rights(caller).control)?;
        self.is_open()?;
        self.at_rest()?;
        let (steps, bytes) = import.size();
        if steps > self.limits.import_steps || bytes > self.limits.import_bytes {
            return Err(Refusal::TooMuch);
        }
        let mut firsts = Vec::with_capacity(import.turns.len());
        for part in import.turns {
            firsts.push(self.issued.next());
            match part {
                Imported::Run(run) => self.import_run(run, now, fx),
                Imported::Aside { call, told } => {
                    self.import_call(None, call, Purpose::Aside { told }, now, fx);
                }
                Imported::Summary { text, tokens_before, kept } => {
                    self.import_summary(text, tokens_before, firsts.get(kept).copied(), now, fx);
                }
            }
        }
        Ok(Answer::Imported)
    }

    fn import_run(&mut self, run: ImportedRun, now: Now, fx: &mut Effects) {
        let ImportedRun { run, message, text, images, turns } = run;
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
        self.record_for(run.clone(), EventKind::RunStarted(Box::new(message)), now, fx);
        for turn in turns {
            self.import_turn(run.as_ref(), turn, now, fx);
        }
        let report = RunReport {
            outcome: Outcome::Success,
            reason: Some(IMPORTED.to_owned()),
            summary: String::new(),
            checks: Vec::new(),
            checks_asked: 0,
            exit_code: 0,
        };
        self.record_for(run, EventKind::RunEnded(Box::new(report)), now, fx);
    }

    fn import_turn(&mut self, run: Option<&RunId>, turn: ImportedTurn, now: Now, fx: &mut Effects) {
        let ImportedTurn { thought, text, message, mut taken, calls } = turn;
        let mut record = |kind| self.record_for(run.cloned(), kind, now, fx);
        if !thought.is_empty() {
            record(EventKind::Thought { text: thought });
        }
        if !text.is_empty() {
            record(EventKind::Said { text });
            record(EventKind::SayingDone { message });
        }
        // Everything that it wanted used follows.
        taken.pending.clear();
        record(EventKind::TurnTaken(Box::new(taken)));
        for call in calls {
            self.import_call(run, call, Purpose::Work, now, fx);
        }
    }

    fn import_call(
        &mut self,
        run: Option<&RunId>,
        call: ImportedCall,
        purpose: Purpose,
        now: Now,
        fx: &mut Effects,
    ) {
        let ImportedCall { call, tool, args, millis, ending, exit_code, text, fault } = call;
        let intention = Intention { call: call.clone(), tool: tool.clone(), args, purpose };
        let started = EventKind::CallStarted { call: call.clone(), tool: tool.clone() };
        let settlement = Settlement { call, tool, purpose, millis, ending, exit_code, text, fault };
        self.record_for(run.cloned(), EventKind::CallIntended(Box::new(intention)), now, fx);
        self.record_for(run.cloned(), started, now, fx);
        self.record_for(run.cloned(), EventKind::CallSettled(Box::new(settlement)), now, fx);
    }

    /// Puts a summary in the place of what is before `kept`, or of everything.
    fn import_summary(
        &mut self,
        summary: String,
        tokens_before: u64,
        kept: Option<Seq>,
        now: Now,
        fx: &mut Effects,
    ) {
        let kept_from = kept.unwrap_or_else(|| self.issued.next());
        let compaction = Compaction { summary, kept_from, tokens_before };
        self.record_for(None, EventKind::Compacted(Box::new(compaction)), now, fx);
    }
}
