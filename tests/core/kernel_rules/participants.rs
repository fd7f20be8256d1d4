//! Rules about participants: who joins, what each may do, and whose votes count.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use pushd::kernel::command::{Idempotency, Right, Steer};
use pushd::kernel::event::{Adjustment, ParticipantEvent, SessionEvent};
use pushd::kernel::id::ParticipantId;
use pushd::kernel::participant::{Authentication, Participant, Presence};

pub(crate) fn participant(id: &str, kind: ParticipantKind, roles: &[Role]) -> Participant {
    Participant {
        id: id.into(),
        kind,
        name: id.to_uppercase(),
        roles: roles.iter().copied().collect(),
        capabilities: Rights::EMPTY,
        authentication: Authentication::Token { name: format!("token of {id}") },
        approval_granted: false,
    }
}

impl Fixture {
    pub(crate) fn join(&mut self, id: &str, kind: ParticipantKind, roles: &[Role]) {
        let reply = self.send(Command::Join(Box::new(participant(id, kind, roles))));
        assert_eq!(reply, Ok(Answer::ParticipantChanged));
    }

    pub(crate) fn send_from(&mut self, connection: u64, id: &str, command: Command) -> Reply {
        let (id, participant) = (ConnectionId(connection), Some(ParticipantId::new(id)));
        let caller = Caller { id, source: "remote".into(), participant, rights: Rights::ALL, admission: None };
        self.apply(Input::Command { ticket: Ticket(0), caller, command, if_version: None }).expect("an answer")
    }

    pub(crate) fn vote_from(&mut self, connection: u64, id: &str, decision: Decision) -> Reply {
        let gate = self.gate.clone();
        let scope = ApprovalScope::Once;
        let vote = GateVote { gate, run: None, decision, choice: None, comment: None, scope, rule: None, answer: None };
        self.send_from(connection, id, Command::Decide(Box::new(vote)))
    }
}

#[test]
fn the_owner_takes_part_without_an_event() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    fixture.call(Some(1));
    fixture.vote("cli", Decision::Approve, None).unwrap();
    assert!(fixture.session.state().participants.is_empty());
    assert!(!fixture.kinds.iter().any(|kind| matches!(kind, EventKind::Participant(_))));
}

#[test]
fn a_participant_may_do_what_its_roles_allow_and_nothing_else() {
    let mut fixture = Fixture::open();
    fixture.join("ann", ParticipantKind::Human, &[Role::Driver]);
    fixture.join("bob", ParticipantKind::Human, &[Role::Observer]);
    let prompt = Command::Prompt(Box::new(fixture.message("one")));
    assert_eq!(fixture.send_from(2, "bob", prompt.clone()), Err(Refusal::NotPermitted));
    assert_eq!(fixture.send_from(4, "nobody", Command::Describe), Err(Refusal::NotPermitted), "it never joined");
    assert!(fixture.send_from(3, "ann", prompt).is_ok());
    fixture.call(Some(1));
    assert_eq!(fixture.vote_from(3, "ann", Decision::Approve), Err(Refusal::NotPermitted));
    assert_eq!(fixture.send_from(3, "ann", Command::End), Err(Refusal::NotPermitted));
    let cancel = Command::Cancel { run: None, reason: "no".into() };
    assert_eq!(fixture.send_from(2, "bob", cancel.clone()), Err(Refusal::NotPermitted));
    assert_eq!(fixture.send_from(3, "ann", cancel), Ok(Answer::Cancelling));
}

#[test]
fn whoever_may_prompt_and_not_approve_gives_no_rules_to_its_run() {
    let mut fixture = Fixture::open();
    fixture.join("ann", ParticipantKind::Human, &[Role::Driver]);
    let rules = vec![gate::APPROVE_ALL.into()];
    let prompt = Prompt { rules, ..fixture.message("one") };
    let refused = fixture.send_from(2, "ann", Command::Prompt(Box::new(prompt.clone())));
    assert_eq!(refused, Err(Refusal::NotPermitted));
    assert!(fixture.send(Command::Prompt(Box::new(prompt))).is_ok(), "the owner does");
}

#[test]
fn whoever_may_not_approve_steers_no_run_that_starts_calls_without_a_gate() {
    let steer = |id: &str| {
        let (message, text, fingerprint) = (MessageId::new(id), "more".to_owned(), Fingerprint(1));
        Command::Steer(Box::new(Steer { message, text, images: Vec::new(), fingerprint }))
    };
    for (rules, permitted) in [
        (vec![], true),
        (vec![gate::DENY_ALL.to_owned()], true),
        (vec![gate::APPROVE_ALL.to_owned()], false),
        (vec!["allow: exec(make)".to_owned()], false),
    ] {
        let mut fixture = Fixture::open();
        fixture.join("ann", ParticipantKind::Human, &[Role::Driver]);
        fixture.join("eve", ParticipantKind::Human, &[Role::Driver, Role::Approver]);
        let prompt = Prompt { rules: rules.clone(), ..fixture.message("one") };
        fixture.send(Command::Prompt(Box::new(prompt))).unwrap();
        let steered = fixture.send_from(2, "ann", steer("s"));
        assert_eq!(steered.is_ok(), permitted, "{rules:?} {steered:?}");
        assert!(permitted || steered == Err(Refusal::NotPermitted));
        assert!(fixture.send_from(3, "eve", steer("t")).is_ok(), "{rules:?}");
        assert!(fixture.send(steer("u")).is_ok(), "{rules:?}");
    }
}

#[test]
fn an_agent_approves_only_if_the_owner_granted_it_by_name() {
    let mut fixture = Fixture::open();
    fixture.join("bot", ParticipantKind::Agent, &[Role::Admin, Role::Approver]);
    fixture.join("ann", ParticipantKind::Human, &[Role::Admin]);
    fixture.prompt("one").unwrap();
    fixture.call(Some(2));
    let grant = Command::GrantApproval { participant: "bot".into(), granted: true };
    assert_eq!(fixture.vote_from(2, "bot", Decision::Approve), Err(Refusal::NotPermitted));
    assert_eq!(fixture.send_from(3, "ann", grant.clone()), Err(Refusal::NotPermitted), "an admin is not the owner");
    assert_eq!(fixture.send(grant), Ok(Answer::ParticipantChanged));
    assert_eq!(fixture.vote_from(2, "bot", Decision::Approve), Ok(Answer::Decided));
    fixture.send(Command::GrantApproval { participant: "bot".into(), granted: false }).unwrap();
    assert_eq!(fixture.vote_from(2, "bot", Decision::Deny), Err(Refusal::NotPermitted), "it was revoked");
    let voter = participant("puppet", ParticipantKind::Human, &[Role::Approver]);
    assert_eq!(fixture.send_from(2, "bot", Command::Join(Box::new(voter))), Err(Refusal::NotPermitted));
}

#[test]
fn a_grant_ends_when_the_participant_leaves() {
    let mut fixture = Fixture::open();
    fixture.join("bot", ParticipantKind::Agent, &[Role::Approver]);
    fixture.send(Command::GrantApproval { participant: "bot".into(), granted: true }).unwrap();
    assert_eq!(fixture.send_from(2, "bot", Command::Leave { reason: None }), Ok(Answer::ParticipantChanged));
    assert_eq!(fixture.send_from(2, "bot", Command::Describe), Err(Refusal::NotPermitted));
    fixture.join("bot", ParticipantKind::Agent, &[Role::Approver]);
    assert!(!fixture.session.state().participants[&ParticipantId::new("bot")].rights().contains(Right::Decide));
}

#[test]
fn nobody_gives_another_more_rights_than_it_has() {
    let mut fixture = Fixture::open();
    let manager = Participant {
        capabilities: Rights::of(&[Right::ManageParticipants]),
        ..participant("ann", ParticipantKind::Human, &[Role::Driver])
    };
    fixture.send(Command::Join(Box::new(manager))).unwrap();
    let mut join = |id: &str, role| {
        let joined = participant(id, ParticipantKind::Human, &[role]);
        fixture.send_from(2, "ann", Command::Join(Box::new(joined)))
    };
    assert_eq!(join("bob", Role::Driver), Ok(Answer::ParticipantChanged));
    assert_eq!(join("eve", Role::Approver), Err(Refusal::NotPermitted));
    let admin = BTreeSet::from([Role::Admin]);
    let raise = Command::ChangeRoles { participant: "ann".into(), roles: admin, capabilities: Rights::EMPTY };
    assert_eq!(fixture.send_from(2, "ann", raise), Err(Refusal::NotPermitted));
}

#[test]
fn an_id_belongs_to_the_one_who_joined_with_it() {
    let mut fixture = Fixture::open();
    fixture.join("ann", ParticipantKind::Human, &[Role::Driver]);
    let events = fixture.events.len();
    fixture.join("ann", ParticipantKind::Human, &[Role::Admin]);
    assert_eq!(fixture.events.len(), events, "the same one joins again, with the roles it has");
    let newcomer = Participant {
        authentication: Authentication::Token { name: "another".into() },
        ..participant("ann", ParticipantKind::Human, &[Role::Driver])
    };
    assert_eq!(fixture.send(Command::Join(Box::new(newcomer))), Err(Refusal::ParticipantExists));
    assert_eq!(
        fixture.send(Command::Remove { participant: "bob".into(), reason: None }),
        Err(Refusal::UnknownParticipant)
    );
}

#[test]
fn two_connections_of_one_participant_have_one_vote() {
    let mut fixture = Fixture::open();
    fixture.join("ann", ParticipantKind::Human, &[Role::Approver]);
    fixture.join("bob", ParticipantKind::Human, &[Role::Approver]);
    fixture.prompt("one").unwrap();
    fixture.call(Some(2));
    fixture.vote_from(2, "ann", Decision::Approve).unwrap();
    fixture.vote_from(3, "ann", Decision::Approve).unwrap();
    assert_eq!(fixture.phase(), Phase::Waiting);
    // Both have the same kind of connection, which tells only the owner's voters apart.
    fixture.vote_from(4, "bob", Decision::Approve).unwrap();
    assert_eq!(fixture.executed, 1);
    let by = fixture.last(|kind| match kind {
        EventKind::Gate(GateEvent::Settled(decision)) => Some((decision.by.clone(), decision.participant.clone())),
        _ => None,
    });
    assert_eq!(by, ("remote".to_owned(), Some("bob".into())));
}

#[test]
fn a_vote_ends_with_the_participation() {
    let mut fixture = Fixture::open();
    fixture.join("ann", ParticipantKind::Human, &[Role::Approver]);
    fixture.join("bob", ParticipantKind::Human, &[Role::Approver]);
    fixture.prompt("one").unwrap();
    fixture.call(Some(2));
    fixture.vote_from(2, "ann", Decision::Approve).unwrap();
    fixture.send(Command::Remove { participant: "ann".into(), reason: Some("gone".into()) }).unwrap();
    fixture.vote_from(3, "bob", Decision::Approve).unwrap();
    assert_eq!((fixture.phase(), fixture.executed), (Phase::Waiting, 0));
    fixture.vote("cli", Decision::Approve, None).unwrap();
    assert_eq!(fixture.executed, 1);
}

#[test]
fn a_removed_participant_is_detached() {
    let mut fixture = Fixture::open();
    fixture.join("ann", ParticipantKind::Human, &[Role::Driver]);
    let attach = Command::Attach { seen: Seq::ZERO, rights: Rights::ALL };
    fixture.send_from(7, "ann", attach.clone()).unwrap();
    let presence = |fixture: &mut Fixture| match fixture.send(Command::ListParticipants) {
        Ok(Answer::Participants(known)) => known.into_iter().map(|(_, presence)| presence).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(presence(&mut fixture), [Presence::Online]);
    let effects = fixture.session.apply(
        Input::Command {
            ticket: Ticket(0),
            caller: Caller::owner(ConnectionId(1), "owner".into()),
            command: Command::Remove { participant: "ann".into(), reason: None },
            if_version: None,
        },
        fixture.now,
    );
    assert!(effects.contains(&Effect::Unsubscribe(ConnectionId(7))), "{effects:?}");
    assert_eq!(fixture.send_from(7, "ann", attach), Err(Refusal::NotPermitted));
    assert_eq!(presence(&mut fixture), []);
}

#[test]
fn an_approval_for_the_repository_is_the_owners() {
    let mut fixture = Fixture::open();
    fixture.join("ann", ParticipantKind::Human, &[Role::Admin]);
    fixture.remember = Some("rule".into());
    fixture.prompt("one").unwrap();
    fixture.call(Some(1));
    let scope = ApprovalScope::Always;
    let (gate, decision) = (fixture.gate.clone(), Decision::Approve);
    let vote = GateVote { gate, run: None, decision, choice: None, comment: None, scope, rule: None, answer: None };
    assert_eq!(fixture.send_from(2, "ann", Command::Decide(Box::new(vote))), Err(Refusal::NotPermitted));
    fixture.vote_with(Decision::Approve, None, ApprovalScope::Always).unwrap();
    assert_eq!(fixture.remembered_rules, ["rule"]);
}

#[test]
fn a_repeated_command_records_nothing_where_the_table_says_so() {
    let driver = BTreeSet::from([Role::Driver]);
    let commands = |fixture: &mut Fixture| {
        vec![
            Command::Prompt(Box::new(fixture.message("one"))),
            Command::Queue(Box::new(fixture.message("two"))),
            Command::Steer(Box::new(Steer {
                message: "three".into(),
                text: "s".into(),
                images: Vec::new(),
                fingerprint: Fingerprint(1),
            })),
            Command::Unqueue { message: "two".into() },
            Command::Rename { name: "n".into() },
            Command::Adjust(Box::new(Adjustment { thinking: Some("high".into()), ..Adjustment::default() })),
            Command::Join(Box::new(participant("ann", ParticipantKind::Human, &[Role::Admin]))),
            Command::ChangeRoles {
                participant: "ann".into(),
                roles: driver.clone(),
                capabilities: Rights::of(&[Right::Fork]),
            },
            Command::GrantApproval { participant: "ann".into(), granted: true },
            Command::GrantApproval { participant: "ann".into(), granted: false },
            Command::Remove { participant: "ann".into(), reason: None },
            Command::Cancel { run: None, reason: "r".into() },
            Command::ListParticipants,
        ]
    };
    let mut fixture = Fixture::open();
    for command in commands(&mut fixture) {
        let name = command.policy().name;
        fixture.send(command.clone()).unwrap();
        let before = fixture.events.len();
        let _ = fixture.send(command.clone());
        let repeats = fixture.events.len() > before;
        assert_eq!(repeats, command.policy().idempotency == Idempotency::None, "{name}");
    }
    assert!(fixture.kinds.iter().any(|kind| matches!(kind, EventKind::Participant(ParticipantEvent::Left { .. }))));
}

/// The holder of a token that every session admits.
fn token_holder(connection: u64, id: &str, roles: &[Role]) -> Caller {
    let admission = participant(id, ParticipantKind::Human, roles);
    let (id, rights) = (ConnectionId(connection), admission.rights());
    let (source, participant) = ("app".into(), Some(admission.id.clone()));
    Caller { id, source, participant, rights, admission: Some(Arc::new(admission)) }
}

#[test]
fn the_holder_of_a_token_takes_part_from_its_first_deed_on() {
    let mut fixture = Fixture::open();
    let laptop = token_holder(2, "tok_1", &[Role::Driver]);
    let mut send = |caller: &Caller, command: Command| {
        let input = Input::Command { ticket: Ticket(0), caller: caller.clone(), command, if_version: None };
        fixture.apply(input).expect("an answer")
    };
    assert!(matches!(send(&laptop, Command::Describe), Ok(Answer::Described(_))), "it reads");
    let attach = Command::Attach { seen: Seq::ZERO, rights: Rights::ALL };
    for _ in 0..2 {
        assert!(matches!(send(&laptop, attach.clone()), Ok(Answer::Attached { .. })));
    }
    for (command, why) in [
        (Command::Audit { seen: Seq::ZERO }, "only the owner reads everything"),
        (Command::Rename { name: "n".into() }, "its role does not include it"),
        (Command::Join(Box::new(participant("eve", ParticipantKind::Human, &[Role::Driver]))), "it admits nobody"),
    ] {
        assert_eq!(send(&laptop, command), Err(Refusal::NotPermitted), "{why}");
    }
    let promote =
        Command::ChangeRoles { participant: "tok_1".into(), roles: [Role::Admin].into(), capabilities: Rights::EMPTY };
    send(&Caller::owner(ConnectionId(1), "cli".into()), promote).unwrap();
    let rename = Command::Rename { name: "n".into() };
    assert_eq!(send(&laptop, rename), Err(Refusal::NotPermitted), "the role of the token is the upper bound");
    let joined = |kind: &EventKind| matches!(kind, EventKind::Participant(ParticipantEvent::Joined { .. }));
    assert_eq!(fixture.kinds.iter().filter(|kind| joined(kind)).count(), 1, "it is recorded once");
}

#[test]
fn the_holder_of_a_token_opens_a_session_and_takes_part_in_it() {
    let mut fixture = Fixture::new();
    let (caller, opening) = (token_holder(2, "tok_1", &[Role::Driver]), Box::default());
    let open = Input::Command { ticket: Ticket(0), caller, command: Command::Open(opening), if_version: None };
    assert!(matches!(fixture.apply(open), Some(Ok(Answer::Opened(_)))));
    assert!(matches!(fixture.kinds[0], EventKind::Session(SessionEvent::Opened(_))));
    assert!(fixture.session.state().participants.contains_key(&ParticipantId::new("tok_1")));
}
