//! Quorums in a walk, compared with a model that knows every voter by name.

use std::collections::BTreeSet;

use super::*;
use pushd::kernel::command::{Answer, GateProposal, Reply, Right};
use pushd::kernel::event::GateQuestion;
use pushd::kernel::gate::{Gate, Voter};
use pushd::kernel::id::ParticipantId;
use pushd::kernel::participant::{Participant, ParticipantKind, Role};
use pushd::kernel::quorum::Quorum;

/// What the model expects of a vote.
pub(super) struct Ballot {
    gate: GateId,
    eligible: bool,
    votes_before: BTreeMap<Voter, Decision>,
    expected: Option<Decision>,
}

impl Walk {
    pub(super) fn quorum(&mut self) -> Quorum {
        match self.random.below(9) {
            0 => Quorum::All,
            1 => Quorum::Majority,
            2 => Quorum::Specific((0..self.random.below(3)).map(|_| self.some_participant()).collect()),
            3 => {
                let role = self.random.pick(&Role::ALL).copied().unwrap_or(Role::Admin);
                Quorum::Role { role, count: self.random.below(3) as u32 }
            }
            _ => Quorum::Any(self.random.below(3) as u32),
        }
    }

    /// Returns a set of eligible voters, for some gates.
    fn eligible(&mut self) -> Option<BTreeSet<ParticipantId>> {
        self.random.one_in(4).then(|| (0..self.random.below(4)).map(|_| self.some_participant()).collect())
    }

    pub(super) fn gate_without_run(&mut self) -> Command {
        let gate = GateId::new(format!("standing-{}", self.random.below(30)));
        Command::OpenGate(Box::new(GateProposal {
            gate,
            kind: "review".into(),
            title: "t".into(),
            summary: "s".into(),
            details: Json::new("{\"of\":\"turns\"}"),
            choices: if self.random.one_in(3) { vec!["merge".into(), "stop".into()] } else { Vec::new() },
            quorum: self.quorum(),
            eligible: self.eligible(),
            timeout_millis: self.random.one_in(3).then_some(9),
        }))
    }

    /// Returns whether a gate names a participant as a voter, in the words of the specification.
    pub(super) fn is_named(&self, known: &Participant, command: &Command) -> bool {
        let Command::Decide(vote) = command else { return false };
        let Some(gate) = self.session.state().gates.get(&vote.gate) else { return false };
        let named = match &gate.question.quorum {
            Quorum::Specific(named) => named.contains(&known.id),
            Quorum::Role { role, .. } => known.roles.contains(role),
            _ => false,
        };
        let eligible = gate.question.eligible.as_ref().is_none_or(|eligible| eligible.contains(&known.id));
        named && eligible && (known.kind == ParticipantKind::Human || known.approval_granted)
    }

    pub(super) fn ballot(&self, input: &Input) -> Option<Ballot> {
        let Input::Command { caller, command: Command::Decide(vote), .. } = input else { return None };
        let state = self.session.state();
        let gate = state.gates.get(&vote.gate)?;
        let voter = Voter::new(caller.participant.as_ref());
        let mut votes = gate.votes.clone();
        votes.insert(voter.clone(), vote.decision);
        let expected = model(&gate.question, &votes, state.participants.values());
        let eligible = counts(&gate.question, &voter, state.participants.values());
        Some(Ballot { gate: vote.gate.clone(), eligible, votes_before: gate.votes.clone(), expected })
    }

    /// A vote of somebody who is not eligible changes nothing, any other does what the model says, and no gate that
    /// the model calls decided stays open.
    pub(super) fn check_ballot(&self, ballot: Option<Ballot>, reply: Option<&Reply>, persisted: usize, what: &str) {
        let state = self.session.state();
        for gate in state.gates.values() {
            let decided = model(&gate.question, &gate.votes, state.participants.values());
            let needs_answer = decided == Some(Decision::Approve) && gate.question.form().is_some();
            assert!(decided.is_none() || needs_answer, "a decided gate is open: {gate:?}, {what}");
        }
        let Some(Ballot { gate, eligible, votes_before, expected }) = ballot else { return };
        let open = state.gates.get(&gate);
        if !eligible {
            assert!(matches!(reply, Some(Err(_))), "a vote that does not count was accepted, {what}");
            assert!(open.is_none_or(|gate: &Gate| gate.votes == votes_before), "it was counted, {what}");
        }
        if reply == Some(&Ok(Answer::Decided)) {
            let settled = self.journal.iter().rev().take(persisted).find_map(|event| match &event.kind {
                EventKind::Gate(GateEvent::Settled(decision)) if decision.gate == gate => Some(decision.decision),
                _ => None,
            });
            assert_eq!(settled, expected, "{what}");
            assert_eq!(open.is_some(), expected.is_none(), "{what}");
        }
    }
}

fn counts<'a>(gate: &GateQuestion, voter: &Voter, mut known: impl Iterator<Item = &'a Participant>) -> bool {
    let quorum = &gate.quorum;
    let id = match voter {
        Voter::Owner => {
            return gate.eligible.is_none() && matches!(quorum, Quorum::Any(_) | Quorum::All | Quorum::Majority);
        }
        Voter::Participant(id) => id,
    };
    let Some(known) = known.find(|known| known.id == *id) else { return false };
    let is_excluded = gate.eligible.as_ref().is_some_and(|eligible| !eligible.contains(id));
    if is_excluded || known.kind != ParticipantKind::Human && !known.approval_granted {
        return false;
    }
    match quorum {
        Quorum::Any(_) | Quorum::All | Quorum::Majority => known.rights().contains(Right::Decide),
        Quorum::Specific(named) => named.contains(id),
        Quorum::Role { role, .. } => known.roles.contains(role),
    }
}

/// Lists every voter with its vote, and reads the result off the list.
fn model<'a>(
    gate: &GateQuestion,
    votes: &BTreeMap<Voter, Decision>,
    known: impl Iterator<Item = &'a Participant> + Clone,
) -> Option<Decision> {
    let quorum = &gate.quorum;
    let mut voters: BTreeMap<Voter, Option<Decision>> = BTreeMap::new();
    for participant in known.clone() {
        voters.insert(Voter::Participant(participant.id.clone()), None);
    }
    if let Quorum::Specific(named) = quorum {
        voters.extend(named.iter().map(|id| (Voter::Participant(id.clone()), None)));
        voters.retain(|voter, _| matches!(voter, Voter::Participant(id) if named.contains(id)));
    } else {
        voters.retain(|voter, _| counts(gate, voter, known.clone()));
    }
    for (voter, vote) in votes.iter().filter(|(voter, _)| counts(gate, voter, known.clone())) {
        voters.insert(voter.clone(), Some(*vote));
    }
    let having = |wanted| voters.values().filter(|vote| **vote == wanted).count() as i64;
    let (yes, no, open) = (having(Some(Decision::Approve)), having(Some(Decision::Deny)), having(None));
    let everybody = voters.len() as i64;
    let (passed, failed) = match quorum {
        Quorum::Any(count) => (yes >= i64::from(*count).max(1), no >= i64::from(*count).max(1)),
        Quorum::All | Quorum::Specific(_) => (everybody != 0 && yes == everybody, no != 0),
        Quorum::Majority => (yes > everybody - yes, no != 0 && yes + open <= everybody - yes - open),
        Quorum::Role { count, .. } => {
            let count = i64::from(*count).max(1);
            (yes >= count, no != 0 && yes + open < count)
        }
    };
    if passed {
        return Some(Decision::Approve);
    }
    failed.then_some(Decision::Deny)
}
