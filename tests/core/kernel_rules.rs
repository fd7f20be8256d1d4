//! Rules of the kernel, one scenario each: the reply to a command, and the events that follow.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a scenario looks at what it checks and at nothing else")]

mod fixture;
mod outside_runs;
mod participants;
mod quorums;

use fixture::{Fixture, finish};
use pushd::kernel::command::{
    Answer, Caller, Command, Gap, GateVote, Phase, PrivateEvent, Prompt, Repetition, Reply, Rights, Steer,
};
use pushd::kernel::effect::{
    CallRequest, Effect, FinishReport, GateRequest, Precondition, Report, RequestSubject, Ticket,
};
use pushd::kernel::event::{
    ApprovalScope, Budget, CallResult, Criterion, Decision, DenialEffect, EventKind, GateEvent, Intention, PendingCall,
    Purpose, RecoveredPhase, RunEvent, RunOutcome, STOPPED_WITH_DAEMON, TokenUsage, ToolError, ToolEvent, ToolOutcome,
    TurnUsage,
};
use pushd::kernel::gate::{self, BudgetResource};
use pushd::kernel::id::{CallId, ConnectionId, Fingerprint, GateId, Json, MessageId, RunId, Seq};
use pushd::kernel::limits::Limits;
use pushd::kernel::participant::{ParticipantKind, Role};
use pushd::kernel::quorum::Quorum;
use pushd::kernel::refusal::Refusal;
use pushd::kernel::session::{HistoryGaps, Input, Session};
use pushd::kernel::state::{RunUsage, State};
use pushd::kernel::time::Now;

#[test]
fn one_run_at_a_time() {
    let mut fixture = Fixture::open();
    assert!(matches!(fixture.prompt("one"), Ok(Answer::Prompted { repeated: Repetition::First, .. })));
    assert_eq!(fixture.prompt("two"), Err(Refusal::RunActive));
}

#[test]
fn the_same_message_has_the_same_run_and_another_under_its_id_is_refused() {
    let mut fixture = Fixture::open();
    let first = fixture.prompt("one").unwrap();
    let Answer::Prompted { run, .. } = first else { panic!("{first:?}") };
    let again = fixture.prompt("one");
    assert_eq!(again, Ok(Answer::Prompted { run, repeated: Repetition::Repeated }));
    let mut other = fixture.message("one");
    other.fingerprint = Fingerprint(99);
    assert_eq!(fixture.send(Command::Prompt(Box::new(other))), Err(Refusal::KeyConflict));
}

#[test]
fn a_queued_message_begins_when_the_run_before_it_is_over() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    let queued = Command::Queue(Box::new(fixture.message("two")));
    assert!(matches!(fixture.send(queued), Ok(Answer::Queued { position: 1, .. })));
    let first = fixture.run();
    fixture.finish(RunOutcome::Success);
    assert_ne!(fixture.run(), first);
    assert_eq!(fixture.phase(), Phase::Running);
}

#[test]
fn a_withdrawn_message_may_be_sent_again() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    let queued = Command::Queue(Box::new(fixture.message("two")));
    fixture.send(queued).unwrap();
    let back = Command::Unqueue { message: MessageId::new("two") };
    assert_eq!(fixture.send(back.clone()), Ok(Answer::Unqueued));
    assert_eq!(fixture.send(back), Err(Refusal::NotQueued));
    fixture.finish(RunOutcome::Success);
    assert!(matches!(fixture.prompt("two"), Ok(Answer::Prompted { repeated: Repetition::First, .. })));
}

#[test]
fn a_gate_for_two_needs_two_voters_and_one_cannot_vote_twice() {
    let mut fixture = Fixture::open();
    fixture.join("bob", ParticipantKind::Human, &[Role::Approver]);
    fixture.prompt("one").unwrap();
    fixture.call(Some(2));
    assert_eq!(fixture.vote("cli", Decision::Approve, None), Ok(Answer::Decided));
    assert_eq!(fixture.vote("app", Decision::Approve, None), Ok(Answer::Decided));
    assert_eq!(fixture.phase(), Phase::Waiting);
    assert_eq!(fixture.vote_from(2, "bob", Decision::Approve), Ok(Answer::Decided));
    assert_eq!(fixture.phase(), Phase::Running);
    assert_eq!(fixture.executed, 1);
}

#[test]
fn a_late_vote_and_a_vote_for_an_unknown_gate_are_refused_differently() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    fixture.call(Some(1));
    fixture.vote("ann", Decision::Approve, None).unwrap();
    assert_eq!(fixture.vote("bob", Decision::Deny, None), Err(Refusal::GateClosed));
    fixture.gate = GateId::new("gate-of-nobody");
    assert_eq!(fixture.vote("bob", Decision::Deny, None), Err(Refusal::UnknownGate));
}

#[test]
fn a_run_with_a_blanket_decision_waits_for_no_vote() {
    for (rule, executed) in [(gate::APPROVE_ALL, 1), (gate::DENY_ALL, 0)] {
        let mut fixture = Fixture::open();
        let prompt = Prompt { rules: vec![rule.into()], ..fixture.message("one") };
        fixture.send(Command::Prompt(Box::new(prompt))).unwrap();
        fixture.call(Some(1));
        assert_eq!(fixture.executed, executed, "{rule}");
        assert_eq!(fixture.vote("ann", Decision::Approve, None), Err(Refusal::GateClosed), "{rule}");
        if rule == gate::DENY_ALL {
            fixture.stopped();
            assert_eq!(fixture.run_end(), (RunOutcome::Denied, 3));
        }
    }
    // A blanket approval does not satisfy a quorum of two.
    let mut fixture = Fixture::open();
    let prompt = Prompt { rules: vec![gate::APPROVE_ALL.into()], ..fixture.message("one") };
    fixture.send(Command::Prompt(Box::new(prompt))).unwrap();
    fixture.call(Some(2));
    assert_eq!((fixture.executed, fixture.phase()), (0, Phase::Waiting));
}

#[test]
fn a_denial_by_the_policy_of_the_run_reaches_a_provider_that_can_continue() {
    for (denial, goes_on) in [(DenialEffect::InformModel, true), (DenialEffect::EndRun, false)] {
        let mut fixture = Fixture::open();
        let prompt = Prompt { rules: vec![gate::DENY_ALL.into()], ..fixture.message("one") };
        fixture.send(Command::Prompt(Box::new(prompt))).unwrap();
        fixture.denial_effect = denial;
        fixture.policy_comment = Some("a rule asks; allow it".into());
        let turns = fixture.turns;
        fixture.call(Some(1));
        assert_eq!(fixture.executed, 0);
        if goes_on {
            assert_eq!((fixture.phase(), fixture.turns), (Phase::Running, turns + 1));
            let error = fixture.session.state().run.as_ref().unwrap().last_call.clone().unwrap().error.unwrap();
            let message = "denied by policy: a rule asks; allow it";
            assert_eq!((error.kind.as_str(), error.message.as_str()), (gate::DENIED_BY_POLICY, message));
        } else {
            fixture.stopped();
            assert_eq!(fixture.run_end(), (RunOutcome::Denied, 3));
        }
    }
    // An approval ignores the comment.
    let mut fixture = Fixture::open();
    let prompt = Prompt { rules: vec![gate::APPROVE_ALL.into()], ..fixture.message("one") };
    fixture.send(Command::Prompt(Box::new(prompt))).unwrap();
    fixture.policy_comment = Some("a rule asks; allow it".into());
    fixture.call(Some(1));
    assert_eq!(fixture.executed, 1);
}

#[test]
fn a_denied_gate_ends_the_run_as_denied_and_the_tool_never_starts() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    fixture.call(Some(1));
    fixture.vote("ann", Decision::Deny, None).unwrap();
    fixture.stopped();
    assert_eq!(fixture.run_end(), (RunOutcome::Denied, 3));
    assert_eq!(fixture.executed, 0);
}

#[test]
fn a_denial_with_a_reason_reaches_the_provider_if_requested() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    fixture.denial_effect = DenialEffect::InformModel;
    fixture.call(Some(1));
    let turns = fixture.turns;
    fixture.vote_with(Decision::Deny, Some("use make"), ApprovalScope::Once).unwrap();
    assert_eq!((fixture.phase(), fixture.turns, fixture.executed), (Phase::Running, turns + 1, 0));
    let error = fixture.session.state().run.as_ref().unwrap().last_call.clone().unwrap().error.unwrap();
    assert_eq!((error.kind.as_str(), error.message.as_str()), ("DENIED", "denied by ann: use make"));
    // Without a reason, or with an empty one, a denial ends the run.
    fixture.call(Some(1));
    fixture.vote_with(Decision::Deny, Some(" "), ApprovalScope::Once).unwrap();
    fixture.stopped();
    assert_eq!(fixture.run_end(), (RunOutcome::Denied, 3));
}

#[test]
fn a_reason_changes_nothing_where_a_denial_ends_the_run() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    fixture.call(Some(1));
    fixture.vote_with(Decision::Deny, Some("use make"), ApprovalScope::Once).unwrap();
    fixture.stopped();
    assert_eq!(fixture.run_end(), (RunOutcome::Denied, 3));
}

#[test]
fn an_approval_holds_for_its_scope() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    let approve = |fixture: &mut Fixture, rule: &str, lasting| {
        fixture.remember = Some(rule.into());
        let call = fixture.call(Some(1));
        fixture.vote_with(Decision::Approve, None, lasting).unwrap();
        fixture.settle(call, Purpose::Work, 0);
    };
    approve(&mut fixture, "once", ApprovalScope::Once);
    assert!(fixture.granted_rules.is_empty());
    approve(&mut fixture, "run", ApprovalScope::Run);
    approve(&mut fixture, "session", ApprovalScope::Session);
    approve(&mut fixture, "always", ApprovalScope::Always);
    assert_eq!(fixture.granted_rules, ["session", "run"]);
    assert_eq!(fixture.remembered_rules, ["always"]);
    fixture.finish(RunOutcome::Success);
    fixture.prompt("two").unwrap();
    assert_eq!(fixture.granted_rules, ["session"]);
}

#[test]
fn an_approval_without_a_rule_holds_once() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    fixture.call(Some(1));
    let lasting = fixture.vote_with(Decision::Approve, None, ApprovalScope::Run);
    assert_eq!(lasting, Err(Refusal::UnknownScope));
    fixture.vote_with(Decision::Approve, None, ApprovalScope::Once).unwrap();
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    fixture.remember = Some("rule".into());
    fixture.call(Some(2));
    assert_eq!(fixture.vote_with(Decision::Approve, None, ApprovalScope::Always), Err(Refusal::UnknownScope));
    fixture.call(Some(1));
    assert_eq!(fixture.vote_with(Decision::Deny, None, ApprovalScope::Always), Err(Refusal::UnknownScope));
    assert!(fixture.remembered_rules.is_empty());
}

#[test]
fn turn_usage_is_counted_and_a_budget_can_be_raised() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    let used = TokenUsage { input: 5, output: 2, cache_read: 1, cache_write: 0, cost: Some(30), estimated: true };
    let taken = TurnUsage { model: "m".into(), usage: used, ..TurnUsage::default() };
    fixture.report(Report::TurnUsage(Box::new(taken.clone())));
    fixture.report(Report::TurnUsage(Box::new(taken)));
    let call = fixture.request_budget();
    assert_eq!(fixture.phase(), Phase::Waiting);
    fixture.vote("ann", Decision::Approve, Some(gate::RAISE)).unwrap();
    let spent = fixture.session.state().run.as_ref().unwrap().spent;
    let baseline = Budget { turns: Some(2), ..Budget::default() };
    let raised = RunUsage { cost: 60, turns: 2, tokens: 14, baseline, daily_baseline: None };
    assert_eq!(spent, raised, "nothing else is raised");
    let before = fixture.turns;
    fixture.settle(call, Purpose::Work, 0);
    assert_eq!(fixture.turns, before + 1, "the provider goes on");
}

#[test]
fn a_tool_call_that_cannot_succeed_is_settled_and_never_executed() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    let intention =
        Intention { call: CallId::new("call-x"), tool: "tool".into(), args: Json::new("{}"), purpose: Purpose::Work };
    let fault = ToolError { kind: "E".into(), retryable: false, message: "m".into(), detail: None };
    let before = Precondition::Refuse(Box::new(fault.clone()));
    fixture.report(Report::CallRequested(Box::new(CallRequest { intention, precondition: before })));
    let settled = fixture.last(|kind| match kind {
        EventKind::Tool(ToolEvent::Settled(settlement)) => Some((settlement.outcome, settlement.error.clone())),
        _ => None,
    });
    assert_eq!((settled, fixture.executed), ((ToolOutcome::Failed, Some(fault)), 0));
    let turns = fixture.turns;
    fixture.report(Report::TurnDone);
    assert_eq!(fixture.turns, turns + 1, "the provider hears of it");
}

#[test]
fn a_budget_that_is_not_raised_ends_the_run_as_failed() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    fixture.request_budget();
    fixture.vote("ann", Decision::Deny, None).unwrap();
    fixture.stopped();
    assert_eq!(fixture.run_end(), (RunOutcome::Failed, 1));
    assert_eq!(fixture.executed, 0);
}

#[test]
fn waiting_calls_are_dropped_for_a_steering_message() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    let steer =
        Steer { message: MessageId::new("s"), text: "t".into(), images: Vec::new(), fingerprint: Fingerprint(9) };
    fixture.send(Command::Steer(Box::new(steer))).unwrap();
    let pending = vec![PendingCall { tool: "tool".into(), args: Json::new("{}") }];
    fixture.report(Report::TurnUsage(Box::new(TurnUsage { pending, ..TurnUsage::default() })));
    let left = fixture.last(|kind| match kind {
        EventKind::Run(RunEvent::TurnUsage(taken)) => Some(taken.pending.len()),
        _ => None,
    });
    assert_eq!(left, 0);
}

#[test]
fn an_expired_gate_counts_as_denied() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    fixture.call(Some(1));
    fixture.now = fixture.session.next_deadline().expect("a gate expires");
    assert_eq!(fixture.vote("ann", Decision::Approve, None), Err(Refusal::GateClosed));
    let verdict = fixture.last(|kind| match kind {
        EventKind::Gate(GateEvent::Settled(verdict)) => Some((verdict.decision, verdict.by.clone())),
        _ => None,
    });
    assert_eq!(verdict, (Decision::Deny, "timeout".to_owned()));
    fixture.stopped();
    assert_eq!(fixture.run_end(), (RunOutcome::Denied, 3));
}

#[test]
fn a_cancel_settles_the_gates_and_late_reports_are_ignored() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    fixture.call(Some(1));
    assert_eq!(fixture.cancel(), Ok(Answer::Cancelling));
    let run = fixture.run();
    fixture.report(Report::TextDelta("late".into()));
    fixture.stopped();
    assert_eq!(fixture.run_end(), (RunOutcome::Cancelled, 2));
    assert!(!fixture.kinds.iter().any(|kind| matches!(kind, EventKind::Run(RunEvent::TextDelta { .. }))));
    fixture.apply(Input::Report { run, report: Report::TextDelta("later".into()) });
    assert!(matches!(fixture.kinds.last(), Some(EventKind::Run(RunEvent::Ended(_)))));
    assert_eq!(fixture.cancel(), Err(Refusal::NoActiveRun));
}

#[test]
fn a_run_past_its_time_limit_fails() {
    let mut fixture = Fixture::open();
    let mut message = fixture.message("one");
    message.time_limit = Some(1_000);
    fixture.send(Command::Prompt(Box::new(message))).unwrap();
    fixture.now = fixture.now.after(1_000);
    fixture.apply(Input::Deadline);
    fixture.stopped();
    assert_eq!(fixture.run_end(), (RunOutcome::Failed, 1));
}

#[test]
fn a_failed_acceptance_check_fails_an_otherwise_successful_run() {
    let mut fixture = Fixture::open();
    let mut message = fixture.message("one");
    message.criteria = vec![Criterion { id: "build".into(), check: "make".into(), exit_code: 0, description: None }];
    fixture.send(Command::Prompt(Box::new(message))).unwrap();
    fixture.report(Report::Finished(Box::new(finish(RunOutcome::Success))));
    let call = fixture.request_call(Purpose::Check(0), None);
    fixture.settle(call, Purpose::Check(0), 2);
    fixture.stopped();
    assert_eq!(fixture.run_end(), (RunOutcome::Failed, 4));
}

#[test]
fn after_a_crash_a_started_tool_needs_a_decision_and_is_never_rerun_by_itself() {
    for (choice, decision, runs) in
        [("run_again", Decision::Approve, 1), ("skip", Decision::Approve, 0), ("stop", Decision::Deny, 0)]
    {
        let mut fixture = Fixture::open();
        fixture.prompt("one").unwrap();
        fixture.call(None);
        fixture.crash();
        assert_eq!(fixture.phase(), Phase::Waiting, "{choice}");
        assert_eq!(fixture.executed, 0, "{choice}: it was rerun");
        let wrong = if decision == Decision::Approve { Decision::Deny } else { Decision::Approve };
        assert_eq!(fixture.vote("ann", wrong, Some(choice)), Err(Refusal::UnknownChoice));
        fixture.vote("ann", decision, Some(choice)).unwrap();
        assert_eq!(fixture.executed, runs, "{choice}");
        if choice == "stop" {
            fixture.stopped();
            assert_eq!(fixture.run_end(), (RunOutcome::Denied, 3));
        }
    }
}

#[test]
fn a_tool_that_the_stopping_daemon_ended_is_settled_without_a_decision() {
    let mut fixture = Fixture::open();
    fixture.prompt("a").unwrap();
    let call = fixture.call(None);
    let turns = fixture.turns;
    fixture.apply(Input::ShutDown { survivors: None });
    let settled = fixture.last(|kind| match kind {
        EventKind::Tool(ToolEvent::Settled(settlement)) => Some(settlement.clone()),
        _ => None,
    });
    assert_eq!((&settled.call, settled.outcome), (&call, ToolOutcome::Aborted));
    assert_eq!(settled.error.as_ref().map(|fault| fault.kind.as_str()), Some(STOPPED_WITH_DAEMON));
    assert_eq!(fixture.turns, turns, "nothing begins in this life");
    fixture.crash();
    assert_eq!(fixture.phase(), Phase::Running);
    let found = fixture.last(|kind| match kind {
        EventKind::Run(RunEvent::Recovered { phase: found }) => Some(*found),
        _ => None,
    });
    assert_eq!(found, RecoveredPhase::Working, "the provider is told in the next life");
}

#[test]
fn a_run_that_its_provider_ends_at_the_stop_is_over_and_the_next_one_waits_for_the_restart() {
    let mut fixture = Fixture::open();
    fixture.prompt("a").unwrap();
    let queued = Command::Queue(Box::new(fixture.message("two")));
    fixture.send(queued).unwrap();
    fixture.call(None);
    let finish =
        FinishReport { outcome: RunOutcome::Failed, reason: Some("stopped".into()), summary: "s".into(), error: None };
    // While a tool is in use the run is not the provider's to end.
    fixture.apply(Input::FinishedAtShutdown(finish.clone()));
    assert_eq!(fixture.phase(), Phase::Running);
    fixture.apply(Input::ShutDown { survivors: None });
    fixture.apply(Input::FinishedAtShutdown(finish));
    assert_eq!(fixture.phase(), Phase::Failed);
    assert_eq!(fixture.run_end(), (RunOutcome::Failed, 1));
    fixture.crash();
    assert_eq!(fixture.phase(), Phase::Running, "the message that waits begins its run");
}

#[test]
fn after_a_crash_an_open_gate_stays_open() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    fixture.call(Some(1));
    let gate = fixture.gate.clone();
    fixture.crash();
    fixture.gate = gate;
    assert_eq!(fixture.phase(), Phase::Waiting);
    fixture.vote("ann", Decision::Approve, None).unwrap();
    assert_eq!(fixture.executed, 1);
}

#[test]
fn an_unissued_seq_is_a_gap_and_the_next_one_is_not() {
    let mut fixture = Fixture::open();
    let seen = Seq::new(1_000_000);
    let attach = |seen| Command::Attach { seen, rights: Rights::ALL };
    let answer = fixture.send(attach(seen));
    assert!(matches!(answer, Ok(Answer::Attached { replay, .. }) if replay.gap == Gap::Foreign));
    let [PrivateEvent::Gap { .. }, PrivateEvent::Snapshot { seq, .. }] = &fixture.private[..] else {
        panic!("{:?}", fixture.private)
    };
    let answer = fixture.send(attach(*seq));
    assert!(matches!(answer, Ok(Answer::Attached { replay, .. }) if replay.gap == Gap::None));
}

#[test]
fn deleted_events_are_a_gap_for_clients_that_have_not_seen_them() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    let newest = fixture.session.state().last_seq;
    let attach = |seen| Command::Attach { seen, rights: Rights::ALL };
    let gap = |answer| match answer {
        Ok(Answer::Attached { replay, .. }) => replay.gap,
        other => panic!("{other:?}"),
    };
    assert_eq!(gap(fixture.send(attach(Seq::ZERO))), Gap::None);
    fixture.session.raise_floor(newest);
    fixture.session.raise_floor(Seq::new(1));
    assert_eq!(gap(fixture.send(attach(Seq::ZERO))), Gap::Lost { earliest: newest.next() });
    assert_eq!(gap(fixture.send(attach(newest))), Gap::None);
}

#[test]
fn the_final_event_of_a_session_has_the_highest_seq() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    let issued = fixture.session.issued();
    let farewell = fixture.session.deletion_notice("cli", fixture.now);
    assert_eq!(farewell, PrivateEvent::Deleted { seq: issued.next(), at: fixture.now, by: "cli".into() });
}

#[test]
fn a_participant_without_rights_may_only_observe() {
    let mut fixture = Fixture::open();
    fixture.send(Command::Attach { seen: Seq::ZERO, rights: Rights::READ_ONLY }).unwrap();
    assert_eq!(fixture.prompt("one"), Err(Refusal::NotPermitted));
    assert_eq!(fixture.cancel(), Err(Refusal::NotPermitted));
    assert!(matches!(fixture.send(Command::Describe), Ok(Answer::Described(_))));
}

#[test]
fn a_steering_message_gets_a_turn_even_when_the_provider_was_finishing() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    let turns = fixture.turns;
    let steer =
        Steer { message: MessageId::new("s"), text: "also".into(), images: Vec::new(), fingerprint: Fingerprint(1) };
    assert!(matches!(fixture.send(Command::Steer(Box::new(steer))), Ok(Answer::Steered(_))));
    fixture.report(Report::Finished(Box::new(finish(RunOutcome::Success))));
    assert_eq!(fixture.turns, turns + 1, "nobody heard it");
    fixture.finish(RunOutcome::Success);
    assert_eq!(fixture.run_end(), (RunOutcome::Success, 0));
}

#[test]
fn an_ended_session_accepts_no_more_messages() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    assert_eq!(fixture.send(Command::End), Err(Refusal::RunActive));
    fixture.finish(RunOutcome::Success);
    assert_eq!(fixture.send(Command::End), Ok(Answer::Ended));
    assert_eq!(fixture.prompt("two"), Err(Refusal::SessionEnded));
}

#[test]
fn a_reloaded_session_accepts_messages_again_and_restarts_its_versions() {
    let mut fixture = Fixture::open();
    fixture.send(Command::Rename { name: "one".into() }).unwrap();
    fixture.send(Command::End).unwrap();
    assert_eq!(fixture.session.state().version, 2);
    assert_eq!(fixture.prompt("m1"), Err(Refusal::SessionEnded));
    fixture.send(Command::Load).unwrap();
    assert_eq!(fixture.session.state().version, 0);
    assert!(fixture.prompt("m2").is_ok());
    assert_eq!(fixture.session.state().version, 1);
}
