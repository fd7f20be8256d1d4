//! Compares the history of a session with everything its clients saw.
//!
//! The verifier follows runs and calls event by event and collects all findings as text.

use std::collections::{BTreeMap, BTreeSet};

use super::history::HistoryEvent;
use super::observations::{DeliveryMode, GrantedRequest, Lines, Message, MessageResult, Observations, excerpt};
use super::workload::NEEDS_APPROVAL;

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
    pub(crate) spans: usize,
    pub(crate) pi_prompts: usize,
    pub(crate) pi_reads: usize,
    pub(crate) pi_repeated: usize,
}

/// A tool call.
#[derive(Debug, Default)]
struct Call {
    name: String,
    /// How many starts are permitted so far.
    permitted_starts: usize,
    starts: usize,
    result: Option<(String, bool)>,
}

/// The verification of one session.
pub(crate) struct SessionVerifier<'a> {
    session: &'a str,
    ledger: &'a BTreeMap<String, usize>,
    active_run: Option<String>,
    completed_runs: BTreeSet<String>,
    calls: BTreeMap<String, Call>,
    /// Open and decided gates: the call, the kind, and the decision.
    gates: BTreeMap<String, Gate>,
    /// Names of steps, with the number of calls intended for them.
    intended: BTreeMap<String, usize>,
    /// By message: the runs it started, was queued for or was steered into, and how often it was removed.
    started_by_message: BTreeMap<String, Vec<String>>,
    queued_by_message: BTreeMap<String, Vec<String>>,
    steered_by_message: BTreeMap<String, Vec<String>>,
    removed: BTreeMap<String, usize>,
    stopping: BTreeSet<String>,
    names: BTreeSet<String>,
    outcomes: BTreeMap<String, String>,
    findings: &'a mut Vec<String>,
}

struct Gate {
    call: String,
    kind: String,
    decision: Option<(String, Option<String>)>,
}

/// Compares the history with the events that clients saw, and each span with the events that it should contain.
pub(crate) fn compare_events(session: &str, history: &Lines, seen: &Observations, findings: &mut Vec<String>) {
    for (seq, line) in seen.events.get(session).into_iter().flatten() {
        match history.get(seq) {
            Some(kept) if kept == line => {}
            Some(kept) => {
                findings.push(format!("{session} {seq} changed:\n    {}\n    {}", excerpt(line), excerpt(kept)))
            }
            None => findings.push(format!("{session} {seq} was seen and is lost: {}", excerpt(line))),
        }
    }
    for seq in seen.private.get(session).into_iter().flat_map(BTreeMap::keys) {
        if let Some(line) = history.get(seq) {
            findings.push(format!("{session} {seq} was private and is in the history: {}", excerpt(line)));
        }
    }
    for span in seen.spans.iter().filter(|span| span.session == session) {
        // The order within a span was checked when it was received.
        let Some(last) = span.seqs.last().filter(|last| **last > span.after) else { continue };
        let due: Vec<u64> = history.range(span.after + 1..=*last).map(|(seq, _)| *seq).collect();
        if due != span.seqs {
            let missing: Vec<_> = due.iter().filter(|seq| !span.seqs.contains(seq)).take(5).collect();
            let extra: Vec<_> = span.seqs.iter().filter(|seq| !due.contains(seq)).take(5).collect();
            findings.push(format!("missing {missing:?}, not due {extra:?} in {span:?}"));
        }
    }
}

impl<'a> SessionVerifier<'a> {
    pub(crate) fn new(session: &'a str, ledger: &'a BTreeMap<String, usize>, findings: &'a mut Vec<String>) -> Self {
        Self {
            session,
            ledger,
            active_run: None,
            completed_runs: BTreeSet::new(),
            calls: BTreeMap::new(),
            gates: BTreeMap::new(),
            intended: BTreeMap::new(),
            started_by_message: BTreeMap::new(),
            queued_by_message: BTreeMap::new(),
            steered_by_message: BTreeMap::new(),
            removed: BTreeMap::new(),
            stopping: BTreeSet::new(),
            names: BTreeSet::new(),
            outcomes: BTreeMap::new(),
            findings,
        }
    }

    /// Follows the history from its beginning to its end.
    pub(crate) fn follow(&mut self, events: &[HistoryEvent]) {
        for event in events {
            let begins = event.kind == "user_message" && event.payload.get("delivery").is_none();
            match (&event.run, &self.active_run) {
                (Some(run), None) if begins && !self.completed_runs.contains(run) => {
                    self.active_run = Some(run.clone())
                }
                (Some(run), Some(active)) if run == active && !begins => {}
                (None, _) => {}
                (Some(_), _) => self.add_finding(format!("{} {} does not belong there", event.seq, event.kind)),
            }
            self.apply(event);
        }
        if let Some(active) = self.active_run.take() {
            self.add_finding(format!("{active} never ends"));
        }
    }

    fn apply(&mut self, event: &HistoryEvent) {
        let run = event.run.clone().unwrap_or_default();
        let message = event.text("messageId").to_owned();
        match event.kind.as_str() {
            "user_message" if event.payload.get("delivery").is_some() => {
                add_run(&mut self.steered_by_message, message, run)
            }
            "user_message" => add_run(&mut self.started_by_message, message, run),
            "message_queued" => add_run(&mut self.queued_by_message, message, event.text("queuedRunId").to_owned()),
            "message_unqueued" => *self.removed.entry(message).or_default() += 1,
            "session_renamed" => drop(self.names.insert(event.text("name").to_owned())),
            "status" if event.payload.get("stopping").is_some() => drop(self.stopping.insert(run)),
            "status" if event.payload.get("callId").is_some() => self.call_started(event),
            "tool_call" => self.call_intended(event),
            "tool_result" => self.call_settled(event),
            "approval_required" => {
                let (call, kind) = (event.text("callId").to_owned(), event.text("kind").to_owned());
                self.gates.insert(event.text("approvalId").to_owned(), Gate { call, kind, decision: None });
            }
            "approval_received" => self.gate_decided(event),
            "run_complete" => {
                self.completed_runs.insert(run.clone());
                self.outcomes.insert(run, event.text("outcome").to_owned());
                self.active_run = None;
            }
            _ => {}
        }
    }

    fn call_intended(&mut self, event: &HistoryEvent) {
        let command = event.payload["args"]["command"].as_str().unwrap_or_default();
        let name = command.split_whitespace().nth(1).unwrap_or_default().to_owned();
        let leave = usize::from(!name.ends_with(NEEDS_APPROVAL));
        *self.intended.entry(name.clone()).or_default() += 1;
        let call = Call { name, permitted_starts: leave, starts: 0, result: None };
        if self.calls.insert(event.text("callId").to_owned(), call).is_some() {
            self.add_finding(format!("{} the call exists already", event.seq));
        }
    }

    fn call_started(&mut self, event: &HistoryEvent) {
        let Some(call) = self.calls.get_mut(event.text("callId")) else {
            return self.add_finding(format!("{} a call is started that nobody intended", event.seq));
        };
        call.starts += 1;
        if call.starts > call.permitted_starts || call.result.is_some() {
            let finding = format!("{} {} is started without leave", event.seq, call.name);
            self.add_finding(finding);
        }
    }

    fn call_settled(&mut self, event: &HistoryEvent) {
        let result = (event.text("status").to_owned(), event.payload.get("exitCode").is_some());
        let before = self.calls.get_mut(event.text("callId")).map(|call| call.result.replace(result));
        if !matches!(before, Some(None)) {
            self.add_finding(format!("{} a result nobody waits for", event.seq));
        }
    }

    fn gate_decided(&mut self, event: &HistoryEvent) {
        let choice = event.payload["choice"].as_str().map(str::to_owned);
        let verdict = (event.text("decision").to_owned(), choice.clone());
        let Some(gate) = self.gates.get_mut(event.text("approvalId")) else {
            return self.add_finding(format!("{} a verdict without a question", event.seq));
        };
        if gate.decision.is_some() {
            return self.add_finding(format!("{} a second verdict", event.seq));
        }
        let may_start = verdict.0 == "approve" && (gate.kind != UNKNOWN || choice.as_deref() == Some("run_again"));
        gate.decision = Some(verdict);
        if let Some(call) = self.calls.get_mut(&gate.call) {
            call.permitted_starts += usize::from(may_start);
        }
    }

    /// Compares the effects of the steps with the history.
    pub(crate) fn verify_steps(&mut self) {
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
                .filter(|(_, gate)| gate.decision.is_none())
                .map(|(id, _)| format!("{id} was never settled")),
        );
        for word in words {
            self.add_finding(word);
        }
    }

    /// Compares the history with the reply to a message.
    pub(crate) fn verify_message(&mut self, id: &str, message: &Message) {
        let none = Vec::new();
        let [begun, queued, steered] = [&self.started_by_message, &self.queued_by_message, &self.steered_by_message]
            .map(|runs| runs.get(id).unwrap_or(&none).clone());
        let removed = self.removed.get(id).copied().unwrap_or_default();
        // A message that was removed may be sent again, by a client that got neither reply.
        let there = begun.len().max(queued.len().saturating_sub(removed)) + steered.len();
        let fits = match (&message.result, message.delivery) {
            (MessageResult::Unanswered, _) => there <= 1,
            (MessageResult::Refused { .. }, _) => there == 0,
            (MessageResult::Accepted { run }, DeliveryMode::Steer) => steered == [run.clone()],
            (MessageResult::Accepted { run }, DeliveryMode::Send | DeliveryMode::Queue) if removed == 0 => {
                begun == [run.clone()] && (queued.is_empty() || queued == begun)
            }
            (MessageResult::Accepted { run }, DeliveryMode::Send | DeliveryMode::Queue) => {
                let back_again = queued.len() == removed + 1 && begun == [run.clone()];
                let gone = queued.len() == removed && begun.is_empty();
                (back_again || gone) && queued.last() == Some(run)
            }
        };
        if !fits {
            let found = format!("begun {begun:?} queued {queued:?} steered {steered:?} removed {removed}");
            self.add_finding(format!("{id}: {message:?}, but the history has: {found}"));
        }
        let run = begun.first().or(steered.first());
        if run.and_then(|run| self.outcomes.get(run)).is_some_and(|outcome| outcome == "success") {
            let left: Vec<_> = message.steps.iter().filter(|step| !self.intended.contains_key(*step)).collect();
            if !left.is_empty() {
                self.add_finding(format!("{id}: its run succeeded without {left:?}"));
            }
        }
    }

    /// Compares the history with a granted request.
    pub(crate) fn verify_grant(&mut self, granted: &GrantedRequest) {
        let kept = match granted {
            GrantedRequest::Decision { approval, decision, choice, .. } => {
                let verdict = self.gates.get(approval).and_then(|gate| gate.decision.as_ref());
                verdict.is_some_and(|(decided, chosen)| decided == decision && (choice.is_none() || chosen == choice))
            }
            GrantedRequest::Cancel { run, .. } => self.stopping.contains(run),
            GrantedRequest::Removal { message, .. } => self.removed.get(message) == Some(&1),
            GrantedRequest::Name { name, .. } => self.names.contains(name),
        };
        if !kept {
            self.add_finding(format!("granted and not done: {granted:?}"));
        }
    }

    pub(crate) fn count(&self, tally: &mut Tally) {
        tally.runs += self.outcomes.len();
        tally.successes += self.outcomes.values().filter(|outcome| *outcome == "success").count();
        tally.steps += self.calls.values().map(|call| call.starts).sum::<usize>();
        tally.unknown += self.gates.values().filter(|gate| gate.kind == UNKNOWN).count();
    }

    fn add_finding(&mut self, what: String) {
        self.findings.push(format!("{}: {what}", self.session));
    }
}

/// The kind of approval for a step whose result is unknown.
const UNKNOWN: &str = "unknown_step";

fn add_run(map: &mut BTreeMap<String, Vec<String>>, message: String, run: String) {
    map.entry(message).or_default().push(run);
}
