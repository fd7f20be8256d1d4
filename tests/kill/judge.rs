//! Compares the history of a session with everything its clients saw.
//!
//! The verifier follows runs and calls event by event and collects all findings as text.

use std::collections::{BTreeMap, BTreeSet};

use super::history::Fact;
use super::witness::{Fate, Granted, How, Lines, Message, Seen, text};
use super::workload::ASKED;

/// Totals of a whole home, for the log.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) events: usize,
    pub(crate) runs: usize,
    pub(crate) successes: usize,
    pub(crate) steps: usize,
    pub(crate) unknown: usize,
    pub(crate) decisions: usize,
    pub(crate) cancels: usize,
    pub(crate) repeated: usize,
    pub(crate) stretches: usize,
}

/// A tool call.
#[derive(Debug, Default)]
struct Call {
    name: String,
    /// How many starts are permitted so far.
    leave: usize,
    starts: usize,
    result: Option<(String, bool)>,
}

/// The verification of one session.
pub(crate) struct Trial<'a> {
    session: &'a str,
    ledger: &'a BTreeMap<String, usize>,
    active: Option<String>,
    over: BTreeSet<String>,
    calls: BTreeMap<String, Call>,
    /// Open and decided gates: the call, the kind, and the decision.
    gates: BTreeMap<String, Gate>,
    /// Names of steps, with the number of calls intended for them.
    intended: BTreeMap<String, usize>,
    /// By message: the runs it started, was queued for or was steered into, and how often it was removed.
    begun: BTreeMap<String, Vec<String>>,
    queued: BTreeMap<String, Vec<String>>,
    steered: BTreeMap<String, Vec<String>>,
    removed: BTreeMap<String, usize>,
    stopping: BTreeSet<String>,
    names: BTreeSet<String>,
    outcomes: BTreeMap<String, String>,
    findings: &'a mut Vec<String>,
}

struct Gate {
    call: String,
    kind: String,
    verdict: Option<(String, Option<String>)>,
}

/// Compares the history with the events that clients saw, and each span with the events that it should contain.
pub(crate) fn compare(session: &str, history: &Lines, seen: &Seen, findings: &mut Vec<String>) {
    for (seq, line) in seen.events.get(session).into_iter().flatten() {
        match history.get(seq) {
            Some(kept) if kept == line => {}
            Some(kept) => {
                findings.push(format!("{session} {seq} changed:\n    {}\n    {}", text(line), text(kept)))
            }
            None => findings.push(format!("{session} {seq} was seen and is lost: {}", text(line))),
        }
    }
    for seq in seen.private.get(session).into_iter().flat_map(BTreeMap::keys) {
        if let Some(line) = history.get(seq) {
            findings.push(format!("{session} {seq} was private and is in the history: {}", text(line)));
        }
    }
    for stretch in seen.stretches.iter().filter(|stretch| stretch.session == session) {
        // The order within a span was checked when it was received.
        let Some(last) = stretch.seqs.last().filter(|last| **last > stretch.after) else { continue };
        let due: Vec<u64> = history.range(stretch.after + 1..=*last).map(|(seq, _)| *seq).collect();
        if due != stretch.seqs {
            let missing: Vec<_> = due.iter().filter(|seq| !stretch.seqs.contains(seq)).take(5).collect();
            let extra: Vec<_> = stretch.seqs.iter().filter(|seq| !due.contains(seq)).take(5).collect();
            findings.push(format!("missing {missing:?}, not due {extra:?} in {stretch:?}"));
        }
    }
}

impl<'a> Trial<'a> {
    pub(crate) fn new(
        session: &'a str,
        ledger: &'a BTreeMap<String, usize>,
        findings: &'a mut Vec<String>,
    ) -> Self {
        Self {
            session,
            ledger,
            active: None,
            over: BTreeSet::new(),
            calls: BTreeMap::new(),
            gates: BTreeMap::new(),
            intended: BTreeMap::new(),
            begun: BTreeMap::new(),
            queued: BTreeMap::new(),
            steered: BTreeMap::new(),
            removed: BTreeMap::new(),
            stopping: BTreeSet::new(),
            names: BTreeSet::new(),
            outcomes: BTreeMap::new(),
            findings,
        }
    }

    /// Follows the history from its beginning to its end.
    pub(crate) fn follow(&mut self, facts: &[Fact]) {
        for fact in facts {
            let begins = fact.kind == "user_message" && fact.payload.get("delivery").is_none();
            match (&fact.run, &self.active) {
                (Some(run), None) if begins && !self.over.contains(run) => self.active = Some(run.clone()),
                (Some(run), Some(active)) if run == active && !begins => {}
                (None, _) => {}
                (Some(_), _) => self.find(format!("{} {} does not belong there", fact.seq, fact.kind)),
            }
            self.take(fact);
        }
        if let Some(active) = self.active.take() {
            self.find(format!("{active} never ends"));
        }
    }

    fn take(&mut self, fact: &Fact) {
        let run = fact.run.clone().unwrap_or_default();
        let message = fact.text("messageId").to_owned();
        match fact.kind.as_str() {
            "user_message" if fact.payload.get("delivery").is_some() => note(&mut self.steered, message, run),
            "user_message" => note(&mut self.begun, message, run),
            "message_queued" => note(&mut self.queued, message, fact.text("queuedRunId").to_owned()),
            "message_unqueued" => *self.removed.entry(message).or_default() += 1,
            "session_renamed" => drop(self.names.insert(fact.text("name").to_owned())),
            "status" if fact.payload.get("stopping").is_some() => drop(self.stopping.insert(run)),
            "status" if fact.payload.get("callId").is_some() => self.started(fact),
            "tool_call" => self.intended(fact),
            "tool_result" => self.settled(fact),
            "approval_required" => {
                let (call, kind) = (fact.text("callId").to_owned(), fact.text("kind").to_owned());
                self.gates.insert(fact.text("approvalId").to_owned(), Gate { call, kind, verdict: None });
            }
            "approval_received" => self.verdict(fact),
            "run_complete" => {
                self.over.insert(run.clone());
                self.outcomes.insert(run, fact.text("outcome").to_owned());
                self.active = None;
            }
            _ => {}
        }
    }

    fn intended(&mut self, fact: &Fact) {
        let command = fact.payload["args"]["command"].as_str().unwrap_or_default();
        let name = command.split_whitespace().nth(1).unwrap_or_default().to_owned();
        let leave = usize::from(!name.ends_with(ASKED));
        *self.intended.entry(name.clone()).or_default() += 1;
        let call = Call { name, leave, starts: 0, result: None };
        if self.calls.insert(fact.text("callId").to_owned(), call).is_some() {
            self.find(format!("{} the call exists already", fact.seq));
        }
    }

    fn started(&mut self, fact: &Fact) {
        let Some(call) = self.calls.get_mut(fact.text("callId")) else {
            return self.find(format!("{} a call is started that nobody intended", fact.seq));
        };
        call.starts += 1;
        if call.starts > call.leave || call.result.is_some() {
            let finding = format!("{} {} is started without leave", fact.seq, call.name);
            self.find(finding);
        }
    }

    fn settled(&mut self, fact: &Fact) {
        let result = (fact.text("status").to_owned(), fact.payload.get("exitCode").is_some());
        let before = self.calls.get_mut(fact.text("callId")).map(|call| call.result.replace(result));
        if !matches!(before, Some(None)) {
            self.find(format!("{} a result nobody waits for", fact.seq));
        }
    }

    fn verdict(&mut self, fact: &Fact) {
        let choice = fact.payload["choice"].as_str().map(str::to_owned);
        let verdict = (fact.text("decision").to_owned(), choice.clone());
        let Some(gate) = self.gates.get_mut(fact.text("approvalId")) else {
            return self.find(format!("{} a verdict without a question", fact.seq));
        };
        if gate.verdict.is_some() {
            return self.find(format!("{} a second verdict", fact.seq));
        }
        let may_start =
            verdict.0 == "approve" && (gate.kind != UNKNOWN || choice.as_deref() == Some("run_again"));
        gate.verdict = Some(verdict);
        if let Some(call) = self.calls.get_mut(&gate.call) {
            call.leave += usize::from(may_start);
        }
    }

    /// Compares the effects of the steps with the history.
    pub(crate) fn judge_steps(&mut self) {
        let mut words = Vec::new();
        for call in self.calls.values() {
            let did = self.ledger.get(&call.name).copied().unwrap_or_default();
            let finished = matches!(&call.result, Some((status, true)) if status != "cut");
            let least = usize::from(finished);
            if did < least || did > call.starts {
                words.push(format!("{} was done {did} times: {call:?}", call.name));
            }
            if call.result.is_none() {
                words.push(format!("{} has no result: {call:?}", call.name));
            }
        }
        words.extend(
            self.intended
                .iter()
                .filter(|(_, times)| **times > 1)
                .map(|(name, times)| format!("{name} was intended {times} times")),
        );
        words.extend(
            self.gates
                .iter()
                .filter(|(_, gate)| gate.verdict.is_none())
                .map(|(id, _)| format!("{id} was never settled")),
        );
        for word in words {
            self.find(word);
        }
    }

    /// Compares the history with the reply to a message.
    pub(crate) fn judge_message(&mut self, id: &str, message: &Message) {
        let none = Vec::new();
        let [begun, queued, steered] =
            [&self.begun, &self.queued, &self.steered].map(|runs| runs.get(id).unwrap_or(&none).clone());
        let removed = self.removed.get(id).copied().unwrap_or_default();
        // A message that was removed may be sent again, by a client that got neither reply.
        let there = begun.len().max(queued.len().saturating_sub(removed)) + steered.len();
        let fits = match (&message.fate, message.how) {
            (Fate::Unanswered, _) => there <= 1,
            (Fate::Refused { .. }, _) => there == 0,
            (Fate::Taken { run }, How::Steer) => steered == [run.clone()],
            (Fate::Taken { run }, How::Send | How::Queue) if removed == 0 => {
                begun == [run.clone()] && (queued.is_empty() || queued == begun)
            }
            (Fate::Taken { run }, How::Send | How::Queue) => {
                let back_again = queued.len() == removed + 1 && begun == [run.clone()];
                let gone = queued.len() == removed && begun.is_empty();
                (back_again || gone) && queued.last() == Some(run)
            }
        };
        if !fits {
            let found = format!("begun {begun:?} queued {queued:?} steered {steered:?} removed {removed}");
            self.find(format!("{id}: {message:?}, but the history has: {found}"));
        }
        let run = begun.first().or(steered.first());
        if run.and_then(|run| self.outcomes.get(run)).is_some_and(|outcome| outcome == "success") {
            let left: Vec<_> =
                message.steps.iter().filter(|step| !self.intended.contains_key(*step)).collect();
            if !left.is_empty() {
                self.find(format!("{id}: its run succeeded without {left:?}"));
            }
        }
    }

    /// Compares the history with a granted request.
    pub(crate) fn judge_grant(&mut self, granted: &Granted) {
        let kept = match granted {
            Granted::Decision { approval, decision, choice, .. } => {
                let verdict = self.gates.get(approval).and_then(|gate| gate.verdict.as_ref());
                verdict.is_some_and(|(decided, chosen)| {
                    decided == decision && (choice.is_none() || chosen == choice)
                })
            }
            Granted::Cancel { run, .. } => self.stopping.contains(run),
            Granted::Removal { message, .. } => self.removed.get(message) == Some(&1),
            Granted::Name { name, .. } => self.names.contains(name),
        };
        if !kept {
            self.find(format!("granted and not done: {granted:?}"));
        }
    }

    pub(crate) fn count(&self, tally: &mut Tally) {
        tally.runs += self.outcomes.len();
        tally.successes += self.outcomes.values().filter(|outcome| *outcome == "success").count();
        tally.steps += self.calls.values().map(|call| call.starts).sum::<usize>();
        tally.unknown += self.gates.values().filter(|gate| gate.kind == UNKNOWN).count();
    }

    fn find(&mut self, what: String) {
        self.findings.push(format!("{}: {what}", self.session));
    }
}

/// The kind of approval for a step whose result is unknown.
const UNKNOWN: &str = "unknown_step";

fn note(map: &mut BTreeMap<String, Vec<String>>, message: String, run: String) {
    map.entry(message).or_default().push(run);
}
