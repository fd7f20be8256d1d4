//! Rules of the kernel, one scenario each: the reply to a command, and the events that follow.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a scenario looks at what it checks and at nothing else")]

#[path = "kernel_rules/beside.rs"]
mod beside;
#[path = "kernel_rules/scene.rs"]
mod scene;

use pushd::kernel::command::{
    Answer, Caller, Command, Decide, Gap, Phase, Private, Prompt, Repetition, Reply, Rights, Steer,
};
use pushd::kernel::effect::{Ask, Before, CallRequest, Effect, Finish, Report, Ticket};
use pushd::kernel::event::{
    Budget, Criterion, Decision, Denial, Ending, EventKind, Fault, Found, Intention, Lasting, Outcome,
    Purpose, STOPPED_WITH_DAEMON, Settlement, Taken, Used, Wanted,
};
use pushd::kernel::gate;
use pushd::kernel::id::{CallId, Fingerprint, GateId, Json, MessageId, ParticipantId, RunId, Seq};
use pushd::kernel::limits::Limits;
use pushd::kernel::refusal::Refusal;
use pushd::kernel::session::{Input, Missing, Session};
use pushd::kernel::state::{Spent, State};
use pushd::kernel::time::Now;
use scene::{Scene, finish};

#[test]
fn one_run_at_a_time() {
    let mut scene = Scene::open();
    assert!(matches!(scene.prompt("one"), Ok(Answer::Prompted { repeated: Repetition::First, .. })));
    assert_eq!(scene.prompt("two"), Err(Refusal::RunActive));
}

#[test]
fn the_same_message_has_the_same_run_and_another_under_its_id_is_refused() {
    let mut scene = Scene::open();
    let first = scene.prompt("one").unwrap();
    let Answer::Prompted { run, .. } = first else { panic!("{first:?}") };
    let again = scene.prompt("one");
    assert_eq!(again, Ok(Answer::Prompted { run, repeated: Repetition::Again }));
    let mut other = scene.message("one");
    other.fingerprint = Fingerprint(99);
    assert_eq!(scene.ask(Command::Prompt(Box::new(other))), Err(Refusal::KeyConflict));
}

#[test]
fn a_queued_message_begins_when_the_run_before_it_is_over() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    let queued = Command::Queue(Box::new(scene.message("two")));
    assert!(matches!(scene.ask(queued), Ok(Answer::Queued { ahead: 1, .. })));
    let first = scene.run();
    scene.finish(Outcome::Success);
    assert_ne!(scene.run(), first);
    assert_eq!(scene.phase(), Phase::Running);
}

#[test]
fn a_message_that_was_taken_back_may_be_sent_again() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    let queued = Command::Queue(Box::new(scene.message("two")));
    scene.ask(queued).unwrap();
    let back = Command::Unqueue { message: MessageId::new("two") };
    assert_eq!(scene.ask(back.clone()), Ok(Answer::Unqueued));
    assert_eq!(scene.ask(back), Err(Refusal::NotQueued));
    scene.finish(Outcome::Success);
    assert!(matches!(scene.prompt("two"), Ok(Answer::Prompted { repeated: Repetition::First, .. })));
}

#[test]
fn a_gate_for_two_needs_two_voters_and_one_cannot_vote_twice() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    scene.call(Some(2));
    assert_eq!(scene.vote("ann", Decision::Approve, None), Ok(Answer::Decided));
    assert_eq!(scene.vote("ann", Decision::Approve, None), Ok(Answer::Decided));
    assert_eq!(scene.phase(), Phase::Waiting);
    assert_eq!(scene.vote("bob", Decision::Approve, None), Ok(Answer::Decided));
    assert_eq!(scene.phase(), Phase::Running);
    assert_eq!(scene.executed, 1);
}

#[test]
fn a_late_vote_is_refused_and_a_foreign_one_is_told_apart() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    scene.call(Some(1));
    scene.vote("ann", Decision::Approve, None).unwrap();
    assert_eq!(scene.vote("bob", Decision::Deny, None), Err(Refusal::GateClosed));
    scene.gate = GateId::new("gate-of-nobody");
    assert_eq!(scene.vote("bob", Decision::Deny, None), Err(Refusal::UnknownGate));
}

#[test]
fn a_run_that_began_with_an_answer_waits_for_nobody() {
    for (rule, executed) in [(gate::APPROVE_ALL, 1), (gate::APPROVE_NOTHING, 0)] {
        let mut scene = Scene::open();
        let prompt = Prompt { rules: vec![rule.into()], ..scene.message("one") };
        scene.ask(Command::Prompt(Box::new(prompt))).unwrap();
        scene.call(Some(1));
        assert_eq!(scene.executed, executed, "{rule}");
        assert_eq!(scene.vote("ann", Decision::Approve, None), Err(Refusal::GateClosed), "{rule}");
        if rule == gate::APPROVE_NOTHING {
            scene.stopped();
            assert_eq!(scene.ended(), (Outcome::Denied, 3));
        }
    }
    // A blanket approval does not satisfy a quorum of two.
    let mut scene = Scene::open();
    let prompt = Prompt { rules: vec![gate::APPROVE_ALL.into()], ..scene.message("one") };
    scene.ask(Command::Prompt(Box::new(prompt))).unwrap();
    scene.call(Some(2));
    assert_eq!((scene.executed, scene.phase()), (0, Phase::Waiting));
}

#[test]
fn a_denial_by_the_policy_of_the_run_is_told_to_a_provider_that_can_go_on() {
    for (denial, goes_on) in [(Denial::Told, true), (Denial::Ends, false)] {
        let mut scene = Scene::open();
        let prompt = Prompt { rules: vec![gate::APPROVE_NOTHING.into()], ..scene.message("one") };
        scene.ask(Command::Prompt(Box::new(prompt))).unwrap();
        scene.denial = denial;
        scene.policy_comment = Some("a rule asks; allow it".into());
        let turns = scene.turns;
        scene.call(Some(1));
        assert_eq!(scene.executed, 0);
        if goes_on {
            assert_eq!((scene.phase(), scene.turns), (Phase::Running, turns + 1));
            let told = scene.session.state().run.as_ref().unwrap().last.clone().unwrap().fault.unwrap();
            let message = "denied by policy: a rule asks; allow it";
            assert_eq!((told.kind.as_str(), told.message.as_str()), (gate::DENIED_BY_POLICY, message));
        } else {
            scene.stopped();
            assert_eq!(scene.ended(), (Outcome::Denied, 3));
        }
    }
    // An approval ignores the comment.
    let mut scene = Scene::open();
    let prompt = Prompt { rules: vec![gate::APPROVE_ALL.into()], ..scene.message("one") };
    scene.ask(Command::Prompt(Box::new(prompt))).unwrap();
    scene.policy_comment = Some("a rule asks; allow it".into());
    scene.call(Some(1));
    assert_eq!(scene.executed, 1);
}

#[test]
fn a_denied_gate_ends_the_run_as_denied_and_the_tool_never_starts() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    scene.call(Some(1));
    scene.vote("ann", Decision::Deny, None).unwrap();
    scene.stopped();
    assert_eq!(scene.ended(), (Outcome::Denied, 3));
    assert_eq!(scene.executed, 0);
}

#[test]
fn a_no_with_a_reason_is_told_to_the_provider_where_that_was_said() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    scene.denial = Denial::Told;
    scene.call(Some(1));
    let turns = scene.turns;
    scene.vote_with(Decision::Deny, Some("use make"), Lasting::Once).unwrap();
    assert_eq!((scene.phase(), scene.turns, scene.executed), (Phase::Running, turns + 1, 0));
    let told = scene.session.state().run.as_ref().unwrap().last.clone().unwrap().fault.unwrap();
    assert_eq!((told.kind.as_str(), told.message.as_str()), ("DENIED", "denied by ann: use make"));
    // Without a reason, or with an empty one, a denial ends the run.
    scene.call(Some(1));
    scene.vote_with(Decision::Deny, Some(" "), Lasting::Once).unwrap();
    scene.stopped();
    assert_eq!(scene.ended(), (Outcome::Denied, 3));
}

#[test]
fn a_reason_changes_nothing_where_a_no_ends_the_run() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    scene.call(Some(1));
    scene.vote_with(Decision::Deny, Some("use make"), Lasting::Once).unwrap();
    scene.stopped();
    assert_eq!(scene.ended(), (Outcome::Denied, 3));
}

#[test]
fn a_yes_holds_as_long_as_was_said() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    let approve = |scene: &mut Scene, rule: &str, lasting| {
        scene.remember = Some(rule.into());
        let call = scene.call(Some(1));
        scene.vote_with(Decision::Approve, None, lasting).unwrap();
        scene.settle(call, Purpose::Work, 0);
    };
    approve(&mut scene, "once", Lasting::Once);
    assert!(scene.granted.is_empty());
    approve(&mut scene, "run", Lasting::Run);
    approve(&mut scene, "session", Lasting::Session);
    approve(&mut scene, "always", Lasting::Always);
    assert_eq!(scene.granted, ["session", "run"]);
    assert_eq!(scene.kept, ["always"]);
    scene.finish(Outcome::Success);
    scene.prompt("two").unwrap();
    assert_eq!(scene.granted, ["session"]);
}

#[test]
fn a_yes_that_cannot_be_remembered_holds_once() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    scene.call(Some(1));
    let lasting = scene.vote_with(Decision::Approve, None, Lasting::Run);
    assert_eq!(lasting, Err(Refusal::UnknownScope));
    scene.vote_with(Decision::Approve, None, Lasting::Once).unwrap();
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    scene.remember = Some("rule".into());
    scene.call(Some(2));
    assert_eq!(scene.vote_with(Decision::Approve, None, Lasting::Always), Err(Refusal::UnknownScope));
    scene.call(Some(1));
    assert_eq!(scene.vote_with(Decision::Deny, None, Lasting::Always), Err(Refusal::UnknownScope));
    assert!(scene.kept.is_empty());
}

#[test]
fn what_a_turn_used_is_counted_and_a_budget_can_be_raised() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    let used = Used { input: 5, output: 2, cache_read: 1, cache_write: 0, cost: Some(30), estimated: true };
    let taken = Taken { model: "m".into(), used, ..Taken::default() };
    scene.report(Report::Taken(Box::new(taken.clone())));
    scene.report(Report::Taken(Box::new(taken)));
    let call = scene.ask_for_more();
    assert_eq!(scene.phase(), Phase::Waiting);
    scene.vote("ann", Decision::Approve, Some(gate::RAISE)).unwrap();
    let spent = scene.session.state().run.as_ref().unwrap().spent;
    let raised = Budget { turns: Some(2), ..Budget::default() };
    assert_eq!(spent, Spent { cost: 60, turns: 2, tokens: 14, raised }, "nothing else is raised");
    let before = scene.turns;
    scene.settle(call, Purpose::Work, 0);
    assert_eq!(scene.turns, before + 1, "the provider goes on");
}

#[test]
fn a_tool_that_could_not_succeed_is_settled_and_never_used() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    let intention = Intention {
        call: CallId::new("call-x"),
        tool: "tool".into(),
        args: Json::new("{}"),
        purpose: Purpose::Work,
    };
    let fault = Fault { kind: "E".into(), retryable: false, message: "m".into(), detail: None };
    let before = Before::Refuse(Box::new(fault.clone()));
    scene.report(Report::Call(Box::new(CallRequest { intention, before })));
    let settled = scene.last(|kind| match kind {
        EventKind::CallSettled(settlement) => Some((settlement.ending, settlement.fault.clone())),
        _ => None,
    });
    assert_eq!((settled, scene.executed), ((Ending::Failed, Some(fault)), 0));
    let turns = scene.turns;
    scene.report(Report::TurnDone);
    assert_eq!(scene.turns, turns + 1, "the provider hears of it");
}

#[test]
fn a_budget_that_is_not_raised_ends_the_run_as_failed() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    scene.ask_for_more();
    scene.vote("ann", Decision::Deny, None).unwrap();
    scene.stopped();
    assert_eq!(scene.ended(), (Outcome::Failed, 1));
    assert_eq!(scene.executed, 0);
}

#[test]
fn what_a_turn_wanted_later_is_given_up_for_a_message_that_came_meanwhile() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    let steer = Steer {
        message: MessageId::new("s"),
        text: "t".into(),
        images: Vec::new(),
        fingerprint: Fingerprint(9),
    };
    scene.ask(Command::Steer(Box::new(steer))).unwrap();
    let pending = vec![Wanted { tool: "tool".into(), args: Json::new("{}") }];
    scene.report(Report::Taken(Box::new(Taken { pending, ..Taken::default() })));
    let left = scene.last(|kind| match kind {
        EventKind::TurnTaken(taken) => Some(taken.pending.len()),
        _ => None,
    });
    assert_eq!(left, 0);
}

#[test]
fn a_gate_counts_as_denied_when_its_time_has_come() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    scene.call(Some(1));
    scene.now = scene.session.next_deadline().expect("a gate expires");
    assert_eq!(scene.vote("ann", Decision::Approve, None), Err(Refusal::GateClosed));
    let verdict = scene.last(|kind| match kind {
        EventKind::GateSettled(verdict) => Some((verdict.decision, verdict.by.clone())),
        _ => None,
    });
    assert_eq!(verdict, (Decision::Deny, "timeout".to_owned()));
    scene.stopped();
    assert_eq!(scene.ended(), (Outcome::Denied, 3));
}

#[test]
fn a_cancel_settles_the_gates_and_what_comes_late_is_not_heard() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    scene.call(Some(1));
    assert_eq!(scene.cancel(), Ok(Answer::Cancelling));
    let run = scene.run();
    scene.report(Report::Said("late".into()));
    scene.stopped();
    assert_eq!(scene.ended(), (Outcome::Cancelled, 2));
    assert!(!scene.kinds.iter().any(|kind| matches!(kind, EventKind::Said { .. })));
    scene.give(Input::Report { run, report: Report::Said("later".into()) });
    assert!(matches!(scene.kinds.last(), Some(EventKind::RunEnded(_))));
    assert_eq!(scene.cancel(), Err(Refusal::NoActiveRun));
}

#[test]
fn a_run_past_its_time_has_failed() {
    let mut scene = Scene::open();
    let mut message = scene.message("one");
    message.time_limit = Some(1_000);
    scene.ask(Command::Prompt(Box::new(message))).unwrap();
    scene.now = scene.now.after(1_000);
    scene.give(Input::Deadline);
    scene.stopped();
    assert_eq!(scene.ended(), (Outcome::Failed, 1));
}

#[test]
fn a_failed_check_fails_a_run_that_did_everything_else() {
    let mut scene = Scene::open();
    let mut message = scene.message("one");
    message.criteria =
        vec![Criterion { id: "build".into(), check: "make".into(), exit_code: 0, description: None }];
    scene.ask(Command::Prompt(Box::new(message))).unwrap();
    scene.report(Report::Finished(Box::new(finish(Outcome::Success))));
    let call = scene.intend(Purpose::Check(0), None);
    scene.settle(call, Purpose::Check(0), 2);
    scene.stopped();
    assert_eq!(scene.ended(), (Outcome::Failed, 4));
}

#[test]
fn after_a_crash_a_started_tool_is_asked_about_and_never_rerun_by_itself() {
    for (choice, decision, runs) in
        [("run_again", Decision::Approve, 1), ("skip", Decision::Approve, 0), ("stop", Decision::Deny, 0)]
    {
        let mut scene = Scene::open();
        scene.prompt("one").unwrap();
        scene.call(None);
        scene.crash();
        assert_eq!(scene.phase(), Phase::Waiting, "{choice}");
        assert_eq!(scene.executed, 0, "{choice}: it was rerun");
        let wrong = if decision == Decision::Approve { Decision::Deny } else { Decision::Approve };
        assert_eq!(scene.vote("ann", wrong, Some(choice)), Err(Refusal::UnknownChoice));
        scene.vote("ann", decision, Some(choice)).unwrap();
        assert_eq!(scene.executed, runs, "{choice}");
        if choice == "stop" {
            scene.stopped();
            assert_eq!(scene.ended(), (Outcome::Denied, 3));
        }
    }
}

#[test]
fn a_tool_that_the_stopping_daemon_ended_is_settled_and_not_asked_about_afterwards() {
    let mut scene = Scene::open();
    scene.prompt("a").unwrap();
    let call = scene.call(None);
    let turns = scene.turns;
    scene.give(Input::Halted { left: None });
    let settled = scene.last(|kind| match kind {
        EventKind::CallSettled(settlement) => Some(settlement.clone()),
        _ => None,
    });
    assert_eq!((&settled.call, settled.ending), (&call, Ending::Cut));
    assert_eq!(settled.fault.as_ref().map(|fault| fault.kind.as_str()), Some(STOPPED_WITH_DAEMON));
    assert_eq!(scene.turns, turns, "nothing begins in this life");
    scene.crash();
    assert_eq!(scene.phase(), Phase::Running);
    let found = scene.last(|kind| match kind {
        EventKind::RunRecovered { found } => Some(*found),
        _ => None,
    });
    assert_eq!(found, Found::Working, "the provider is told in the next life");
}

#[test]
fn a_run_that_its_provider_ends_at_the_stop_is_over_and_the_next_one_waits_for_the_restart() {
    let mut scene = Scene::open();
    scene.prompt("a").unwrap();
    let queued = Command::Queue(Box::new(scene.message("two")));
    scene.ask(queued).unwrap();
    scene.call(None);
    let finish =
        Finish { outcome: Outcome::Failed, reason: Some("stopped".into()), summary: "s".into(), fault: None };
    // While a tool is in use the run is not the provider's to end.
    scene.give(Input::FinishedAtStop(finish.clone()));
    assert_eq!(scene.phase(), Phase::Running);
    scene.give(Input::Halted { left: None });
    scene.give(Input::FinishedAtStop(finish));
    assert_eq!(scene.phase(), Phase::Failed);
    assert_eq!(scene.ended(), (Outcome::Failed, 1));
    scene.crash();
    assert_eq!(scene.phase(), Phase::Running, "the message that waits begins its run");
}

#[test]
fn after_a_crash_a_waiting_gate_still_waits() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    scene.call(Some(1));
    let gate = scene.gate.clone();
    scene.crash();
    scene.gate = gate;
    assert_eq!(scene.phase(), Phase::Waiting);
    scene.vote("ann", Decision::Approve, None).unwrap();
    assert_eq!(scene.executed, 1);
}

#[test]
fn a_position_that_was_never_issued_is_a_gap_and_the_next_one_is_not() {
    let mut scene = Scene::open();
    let seen = Seq::new(1_000_000);
    let attach = |seen| Command::Attach { seen, rights: Rights::ALL };
    let answer = scene.ask(attach(seen));
    assert!(matches!(answer, Ok(Answer::Attached { replay, .. }) if replay.gap == Gap::Foreign));
    let [Private::Gap { .. }, Private::Snapshot { seq, .. }] = &scene.private[..] else {
        panic!("{:?}", scene.private)
    };
    let answer = scene.ask(attach(*seq));
    assert!(matches!(answer, Ok(Answer::Attached { replay, .. }) if replay.gap == Gap::None));
}

#[test]
fn what_was_removed_on_purpose_is_a_gap_for_who_has_not_seen_it() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    let newest = scene.session.state().last_seq;
    let attach = |seen| Command::Attach { seen, rights: Rights::ALL };
    let gap = |answer| match answer {
        Ok(Answer::Attached { replay, .. }) => replay.gap,
        other => panic!("{other:?}"),
    };
    assert_eq!(gap(scene.ask(attach(Seq::ZERO))), Gap::None);
    scene.session.forget(newest);
    scene.session.forget(Seq::new(1));
    assert_eq!(gap(scene.ask(attach(Seq::ZERO))), Gap::Lost { earliest: newest.next() });
    assert_eq!(gap(scene.ask(attach(newest))), Gap::None);
}

#[test]
fn the_last_word_about_a_session_has_a_number_above_all_others() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    let issued = scene.session.issued();
    let farewell = scene.session.depart("cli", scene.now);
    assert_eq!(farewell, Private::Deleted { seq: issued.next(), at: scene.now, by: "cli".into() });
}

#[test]
fn a_watcher_may_watch_and_nothing_else() {
    let mut scene = Scene::open();
    scene.ask(Command::Attach { seen: Seq::ZERO, rights: Rights::NONE }).unwrap();
    assert_eq!(scene.prompt("one"), Err(Refusal::NotEntitled));
    assert_eq!(scene.cancel(), Err(Refusal::NotEntitled));
    assert!(matches!(scene.ask(Command::Describe), Ok(Answer::Described(_))));
}

#[test]
fn a_message_into_a_run_gets_a_turn_even_when_the_provider_was_finishing() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    let turns = scene.turns;
    let steer = Steer {
        message: MessageId::new("s"),
        text: "also".into(),
        images: Vec::new(),
        fingerprint: Fingerprint(1),
    };
    assert!(matches!(scene.ask(Command::Steer(Box::new(steer))), Ok(Answer::Steered(_))));
    scene.report(Report::Finished(Box::new(finish(Outcome::Success))));
    assert_eq!(scene.turns, turns + 1, "nobody heard it");
    scene.finish(Outcome::Success);
    assert_eq!(scene.ended(), (Outcome::Success, 0));
}

#[test]
fn an_ended_session_takes_no_more_messages() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    assert_eq!(scene.ask(Command::End), Err(Refusal::RunActive));
    scene.finish(Outcome::Success);
    assert_eq!(scene.ask(Command::End), Ok(Answer::Ended));
    assert_eq!(scene.prompt("two"), Err(Refusal::SessionEnded));
}

#[test]
fn an_ended_session_that_is_loaded_takes_messages_again_and_counts_its_versions_anew() {
    let mut scene = Scene::open();
    scene.ask(Command::Rename { name: "one".into() }).unwrap();
    scene.ask(Command::End).unwrap();
    assert_eq!(scene.session.state().version, 2);
    assert_eq!(scene.prompt("m1"), Err(Refusal::SessionEnded));
    scene.ask(Command::Load).unwrap();
    assert_eq!(scene.session.state().version, 0);
    assert!(scene.prompt("m2").is_ok());
    assert_eq!(scene.session.state().version, 1);
}
