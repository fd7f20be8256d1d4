//! Rules about gates: who is eligible, when a quorum is reached, and gates that belong to no run.

use std::collections::BTreeSet;

use super::participants::participant;
use super::*;
use pushd::kernel::command::{GateProposal, Right};
use pushd::kernel::event::GateDecision;
use pushd::kernel::quorum::Tally;

impl Fixture {
    fn open_gate(&mut self, quorum: Quorum) -> Reply {
        self.last_id += 1;
        self.gate = GateId::new(format!("review-{}", self.last_id));
        self.send(Command::OpenGate(Box::new(GateProposal {
            gate: self.gate.clone(),
            kind: "review".into(),
            title: "t".into(),
            summary: "s".into(),
            details: Json::new("{}"),
            choices: Vec::new(),
            quorum,
            eligible: self.eligible.clone(),
            timeout_millis: Some(100),
        })))
    }

    fn settled(&self) -> Option<GateDecision> {
        self.kinds.iter().rev().find_map(|kind| match kind {
            EventKind::Gate(GateEvent::Settled(decision)) if decision.gate == self.gate => Some((**decision).clone()),
            _ => None,
        })
    }

    fn decision(&self) -> Option<Decision> {
        self.settled().map(|settled| settled.decision)
    }

    fn with_humans(roles: &[(&str, Role)]) -> Self {
        let mut fixture = Self::open();
        for (id, role) in roles {
            fixture.join(id, ParticipantKind::Human, &[*role]);
        }
        fixture
    }
}

const THREE: [(&str, Role); 4] =
    [("ann", Role::Approver), ("bob", Role::Navigator), ("cid", Role::Admin), ("dan", Role::Driver)];

#[test]
fn a_majority_is_more_than_half_of_those_with_the_right() {
    let mut fixture = Fixture::with_humans(&THREE);
    fixture.open_gate(Quorum::Majority).unwrap();
    fixture.vote_from(2, "ann", Decision::Approve).unwrap();
    assert_eq!(fixture.decision(), None, "one of three");
    fixture.vote_from(3, "bob", Decision::Approve).unwrap();
    assert_eq!(fixture.decision(), Some(Decision::Approve));
    let half = Tally { approvals: 1, denials: 0, undecided: 1 };
    assert_eq!(Quorum::Majority.evaluate(half), None);
    assert_eq!(Quorum::Majority.evaluate(Tally { approvals: 1, denials: 1, undecided: 0 }), Some(Decision::Deny));
    for quorum in [Quorum::All, Quorum::Majority, Quorum::Specific(BTreeSet::new())] {
        assert_eq!(quorum.evaluate(Tally::default()), None, "nobody settles nothing");
    }
}

#[test]
fn a_quorum_of_all_waits_for_everybody_and_fails_by_one_denial() {
    let mut fixture = Fixture::with_humans(&THREE);
    fixture.open_gate(Quorum::All).unwrap();
    fixture.vote_from(2, "ann", Decision::Approve).unwrap();
    fixture.vote_from(3, "bob", Decision::Approve).unwrap();
    assert_eq!(fixture.decision(), None);
    fixture.join("eve", ParticipantKind::Human, &[Role::Approver]);
    fixture.vote_from(4, "cid", Decision::Approve).unwrap();
    assert_eq!(fixture.decision(), None, "one who joined later counts");
    fixture.vote_from(5, "eve", Decision::Deny).unwrap();
    assert_eq!(fixture.decision(), Some(Decision::Deny));
}

#[test]
fn a_voter_that_leaves_or_loses_the_right_no_longer_counts() {
    let mut fixture = Fixture::with_humans(&THREE);
    fixture.open_gate(Quorum::All).unwrap();
    fixture.vote_from(2, "ann", Decision::Approve).unwrap();
    let (participant, roles) = ("bob".into(), BTreeSet::from([Role::Observer]));
    fixture.send(Command::ChangeRoles { participant, roles, capabilities: Rights::EMPTY }).unwrap();
    assert_eq!(fixture.decision(), None);
    fixture.send(Command::Remove { participant: "cid".into(), reason: None }).unwrap();
    assert_eq!(fixture.decision(), None, "nobody approves by removing the others");
    fixture.vote_from(2, "ann", Decision::Approve).unwrap();
    let settled = fixture.settled().expect("nobody else is left");
    assert_eq!(settled.decision, Decision::Approve);
}

#[test]
fn named_voters_need_no_right_to_approve_and_others_have_no_vote() {
    let mut fixture = Fixture::with_humans(&THREE);
    fixture.join("bot", ParticipantKind::Agent, &[Role::Driver]);
    fixture.open_gate(Quorum::Specific(BTreeSet::from(["dan".into(), "bot".into()]))).unwrap();
    assert_eq!(fixture.vote_from(2, "ann", Decision::Deny), Err(Refusal::NotEligible));
    assert_eq!(fixture.vote("cli", Decision::Deny, None), Err(Refusal::NotEligible), "nor has the owner");
    fixture.vote_from(3, "dan", Decision::Approve).unwrap();
    assert_eq!(fixture.vote_from(4, "bot", Decision::Approve), Err(Refusal::NotPermitted), "it is an agent");
    fixture.send(Command::GrantApproval { participant: "bot".into(), granted: true }).unwrap();
    fixture.vote_from(4, "bot", Decision::Approve).unwrap();
    assert_eq!(fixture.decision(), Some(Decision::Approve));
}

#[test]
fn a_read_only_connection_of_a_named_voter_has_no_vote() {
    let mut fixture = Fixture::with_humans(&THREE);
    fixture.open_gate(Quorum::Specific(BTreeSet::from(["dan".into()]))).unwrap();
    let attach = Command::Attach { seen: Seq::ZERO, rights: Rights::READ_ONLY };
    fixture.send_from(3, "dan", attach).unwrap();
    assert_eq!(fixture.vote_from(3, "dan", Decision::Approve), Err(Refusal::NotPermitted));
}

#[test]
fn a_quorum_of_a_role_counts_its_holders() {
    let drivers = [("ann", Role::Driver), ("bob", Role::Driver), ("cid", Role::Admin)];
    for (decisions, expected) in [
        ([Decision::Approve, Decision::Approve], Some(Decision::Approve)),
        ([Decision::Approve, Decision::Deny], Some(Decision::Deny)),
    ] {
        let mut fixture = Fixture::with_humans(&drivers);
        fixture.open_gate(Quorum::Role { role: Role::Driver, count: 2 }).unwrap();
        assert_eq!(fixture.vote_from(4, "cid", Decision::Approve), Err(Refusal::NotEligible));
        fixture.vote_from(2, "ann", decisions[0]).unwrap();
        assert_eq!(fixture.decision(), None);
        fixture.vote_from(3, "bob", decisions[1]).unwrap();
        assert_eq!(fixture.decision(), expected);
    }
}

#[test]
fn a_gate_of_no_run_settles_into_an_event_only() {
    let mut fixture = Fixture::open();
    fixture.open_gate(Quorum::Any(1)).unwrap();
    assert_eq!((fixture.phase(), fixture.session.is_idle()), (Phase::Idle, false));
    fixture.prompt("one").unwrap();
    assert_eq!(fixture.phase(), Phase::Running, "the run does not wait for it");
    fixture.finish(RunOutcome::Success);
    assert_eq!(fixture.run_end(), (RunOutcome::Success, 0));
    assert_eq!(fixture.decision(), None, "it does not end with a run");
    fixture.crash();
    let gate = fixture.session.state().gates.keys().next().cloned().expect("it survives a restart");
    fixture.gate = gate;
    fixture.vote("cli", Decision::Approve, None).unwrap();
    let settled = fixture.events.last().unwrap();
    assert!(matches!(settled.kind, EventKind::Gate(GateEvent::Settled(_))) && settled.run.is_none(), "{settled:?}");
}

#[test]
fn a_gate_of_no_run_expires() {
    let mut fixture = Fixture::open();
    fixture.open_gate(Quorum::Any(1)).unwrap();
    let deadline = fixture.session.next_deadline().expect("it expires");
    fixture.now = deadline;
    fixture.apply(Input::Deadline);
    let settled = fixture.settled().unwrap();
    assert_eq!((settled.decision, settled.by.as_str()), (Decision::Deny, "timeout"));
    assert_eq!(fixture.session.next_deadline(), None);
    let same = fixture.gate.clone();
    fixture.last_id -= 1;
    assert_eq!(fixture.open_gate(Quorum::Any(1)), Err(Refusal::GateExists));
    assert_eq!(fixture.gate, same);
}

#[test]
fn the_owner_is_one_voter_whatever_client_it_uses() {
    let mut fixture = Fixture::with_humans(&[("ann", Role::Approver)]);
    fixture.open_gate(Quorum::Any(2)).unwrap();
    for source in ["cli", "app", "pi"] {
        fixture.vote(source, Decision::Approve, None).unwrap();
        assert_eq!(fixture.decision(), None, "{source}");
    }
    let gate = fixture.gate.clone();
    fixture.crash();
    fixture.gate = gate;
    fixture.vote("cli", Decision::Approve, None).unwrap();
    assert_eq!(fixture.decision(), None, "nor after a restart");
    fixture.vote_from(2, "ann", Decision::Approve).unwrap();
    assert_eq!(fixture.decision(), Some(Decision::Approve));
}

#[test]
fn only_eligible_participants_vote_where_a_gate_names_some() {
    let mut fixture = Fixture::with_humans(&THREE);
    fixture.eligible = Some(["ann", "bob", "dan"].into_iter().map(Into::into).collect());
    fixture.open_gate(Quorum::Any(2)).unwrap();
    assert_eq!(fixture.vote("cli", Decision::Approve, None), Err(Refusal::NotEligible), "the owner is not named");
    assert_eq!(fixture.vote_from(4, "cid", Decision::Approve), Err(Refusal::NotEligible), "an admin is not named");
    assert_eq!(fixture.vote_from(5, "dan", Decision::Approve), Err(Refusal::NotPermitted), "a name gives no right");
    fixture.vote_from(2, "ann", Decision::Approve).unwrap();
    let gate = fixture.gate.clone();
    fixture.crash();
    fixture.gate = gate;
    assert_eq!(fixture.decision(), None);
    fixture.vote_from(3, "bob", Decision::Approve).unwrap();
    assert_eq!(fixture.decision(), Some(Decision::Approve));
    // A majority is one of the eligible.
    fixture.eligible = Some(["ann"].into_iter().map(Into::into).collect());
    fixture.open_gate(Quorum::Majority).unwrap();
    fixture.vote_from(2, "ann", Decision::Approve).unwrap();
    assert_eq!(fixture.decision(), Some(Decision::Approve));
}

#[test]
fn gates_of_no_run_are_limited_and_an_observer_opens_none() {
    let mut fixture = Fixture::with_humans(&[("ann", Role::Observer)]);
    let limit = Limits::default().gates_without_run;
    for _ in 0..limit {
        assert_eq!(fixture.open_gate(Quorum::Any(1)), Ok(Answer::GateOpened));
    }
    assert_eq!(fixture.open_gate(Quorum::Any(1)), Err(Refusal::TooManyGates));
    let proposal = GateProposal {
        gate: "late".into(),
        kind: "review".into(),
        title: String::new(),
        summary: String::new(),
        details: Json::new("{}"),
        choices: Vec::new(),
        quorum: Quorum::All,
        eligible: None,
        timeout_millis: None,
    };
    let open = Command::OpenGate(Box::new(proposal));
    assert_eq!(fixture.send_from(2, "ann", open), Err(Refusal::NotPermitted));
    assert!(participant("ann", ParticipantKind::Human, &[Role::Driver]).rights().contains(Right::AddContext));
}

/// Whether the votes satisfy a quorum, by its definition; `total` are all who may vote.
fn is_reached(quorum: &Quorum, approvals: usize, total: usize) -> bool {
    match quorum {
        Quorum::Any(count) | Quorum::Role { count, .. } => approvals >= (*count).max(1) as usize,
        Quorum::All | Quorum::Specific(_) => total > 0 && approvals == total,
        // Strictly more than half, without arithmetic on halves.
        Quorum::Majority => approvals > total - approvals,
    }
}

#[test]
fn every_small_tally_has_the_result_of_a_reference_that_tries_all_further_votes() {
    let named = ["ann", "bob"].into_iter().map(Into::into).collect();
    let role = |count| Quorum::Role { role: Role::Approver, count };
    let any = [0, 1, 2, 3].map(Quorum::Any);
    let quorums = any.into_iter().chain([Quorum::All, Quorum::Majority, Quorum::Specific(named), role(0), role(2)]);
    for quorum in quorums {
        for (approvals, denials, undecided) in small_tallies() {
            let total = approvals + denials + undecided;
            let may_pass = (0..=undecided).any(|more| is_reached(&quorum, approvals + more, total));
            let expected = if is_reached(&quorum, approvals, total) {
                Some(Decision::Approve)
            } else if let Quorum::Any(count) = quorum {
                // Voters are not limited, so that denials settle it like approvals.
                (denials >= count.max(1) as usize).then_some(Decision::Deny)
            } else {
                (denials > 0 && !may_pass).then_some(Decision::Deny)
            };
            let tally = Tally { approvals, denials, undecided };
            assert_eq!(quorum.evaluate(tally), expected, "{quorum:?} {tally:?}");
        }
    }
}

fn small_tallies() -> impl Iterator<Item = (usize, usize, usize)> {
    (0..125).map(|number| (number % 5, number / 5 % 5, number / 25))
}
